"""Random values of the Helm chart within values.schema.json, by a seed.

A value that the schema describes is drawn by its type, bounds and pattern. Kubernetes validates the other values; they are drawn from GENERATORS
below, in forms that an API server accepts. Strings are of the kind that YAML misreads as another type.
"""
import json
import pathlib
import re

SCHEMA = json.loads((pathlib.Path(__file__).resolve().parents[2] / "deploy/helm/tokengauge/values.schema.json").read_text())

# Valid names or labels that YAML 1.1 reads as a number, a boolean, null or a date.
WORDS = ["1", "0", "007", "1e3", "1000000", "0x1f", "12345678901234567890", "true", "on", "y", "no", "null", "nan", "2026-01-02", "a", "a-b"]
LABELS = [*WORDS, "", "True", "1.10", "1_000", "A.b_c", "0b1", "0o17", ".inf"[1:], "x" * 63]
KEYS = ["team", "on", "1", "null", "example.com/part", "example.com/1e3", "release", "grafana_dashboard", "tokengauge.dev/admin"]
TEXTS = [
    *LABELS, "12:30", ": ", "a: b", "a #b", "# c", "- d", "{e", "[f]", "&g", "*h", "!i", "|", ">", "%j", "@k", "`l`", "'m", '"n', "o\n", "p\nq\n\n", "  r",
    "s  ", "\ttab", "ü…", "{{ .Values.x }}", "{{", "a:", "~", "=", "?", "-", "---", "...", "<<", "😀",
]
KINDS = ["ClusterIP", "NodePort", "LoadBalancer"]
DURATIONS = ["1s", "500ms", "1m", "2h", "24h", "30s"]
SECRET = {"secretKeyRef": {"name": "1e3", "key": "on"}}
ENV = [
    {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}, {"name": "A", "value": "1"}, {"name": "B", "value": "true"}, {"name": "C", "value": "1e3"},
    {"name": "D", "value": ""}, {"name": "E", "value": "a: b # c\n{{ d }}"}, {"name": "F", "valueFrom": SECRET},
    {"name": "K8S_POD_NAME", "value": "1"}, {"name": "TOKENGAUGE_CONFIG", "value": "/etc/tokengauge/tokengauge.yaml"},
    {"name": "OTEL_RESOURCE_ATTRIBUTES", "value": "a=b"},
]
SELECTOR = {"matchLabels": {"a": "1", "on": "true"}, "matchExpressions": [{"key": "b", "operator": "In", "values": ["1", "on"]}]}
PEER = [{"podSelector": SELECTOR}, {"namespaceSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]
EGRESS = [{"to": [one], "ports": [{"port": 8000, "protocol": "TCP", "endPort": 9000}]} for one in PEER] + [{}]
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": SELECTOR}
AFFINITY = [
    {},
    {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}},
    {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": TERM}]}},
    {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["1000000"]}]}]}}},
]
TOLERATIONS = [
    {"operator": "Exists"}, {"key": "a", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
    {"key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 31536000}, {"key": "c", "value": "1e3"},
]
SPREAD = [
    {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
    {"maxSkew": 1000000, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": SELECTOR},
]
RESOURCES = [
    {}, {"limits": {"memory": "1Gi"}}, {"requests": {"cpu": 1, "memory": 134217728}, "limits": {"cpu": "2", "memory": 10000000000}},
    {"requests": {"cpu": 0.5, "memory": "64Mi"}, "limits": {"memory": "1e9"}},
]
# OpenShift's user ids are above a million. With the chart's defaults all of these satisfy the restricted standard.
CONTEXT = [{}, {"runAsUser": 1000650000, "runAsGroup": 1000650000}, {"runAsUser": None, "runAsGroup": None}]
POD_CONTEXT = [*CONTEXT, {"fsGroup": 1000650000, "supplementalGroups": [1000000], "fsGroupChangePolicy": "OnRootMismatch"}]
STRATEGY = [
    {}, {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "0%"}}, {"rollingUpdate": {"maxSurge": 1000000}}, {"type": "Recreate"},
    {"type": "Recreate", "rollingUpdate": None},
]
METRIC = {"type": "Pods", "pods": {"metric": {"name": "a"}, "target": {"type": "AverageValue", "averageValue": 1000000}}}
BEHAVIOR = [{}, {"scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 1000000, "periodSeconds": 60}]}}]
OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own-{{ .Release.Name }}"}, "data": {"a": "1000000", "b": "on"}}
OBJECTS = [OBJECT, 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ include "tokengauge.fullname" . }}-text\n']
RULES = ["---\ngroups:\n  - name: a\n    rules:\n      - record: a:b\n        expr: vector(1)\n\n", "groups:\n- name: b\n  rules:\n  - alert: C\n    expr: vector(1)\n    annotations:\n      d: |\n        {{ $labels.e }}\n\n        f\n"]
CONDITIONS = [{"name": "a", "expression": "object.metadata.name != 'b'"}, {"name": "1.c", "expression": "!('on' in object.metadata)"}]
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
IMAGES = ["registry.example:5000/a/tokengauge:1.0", "tokengauge", "1e3", "a@sha256:" + "0" * 64]


def some(*of):
    return lambda draw: draw.choice(of)


def several(*of, unique=None):
    """Returns a few of them, in random order, no two with the same `unique`."""

    def drawn(draw):
        chosen = draw.sample(of, draw.randint(0, min(3, len(of))))
        return list({one[unique]: one for one in chosen}.values()) if unique else chosen

    return drawn


def mapped(keys, values, most=3):
    return lambda draw: {key: draw.choice(values) for key in draw.sample(keys, draw.randint(0, min(most, len(keys))))}


VOLUMES = several({"name": "prices", "configMap": {"name": "1", "defaultMode": 420}}, {"name": "1", "emptyDir": {"sizeLimit": "1e9"}}, unique="name")
LABELLED = mapped(KEYS, LABELS)
ANNOTATED = mapped([*KEYS, "checksum/config", "kubectl.kubernetes.io/default-container"], TEXTS)

# Generators by the end of the path. The longest match wins.
GENERATORS = {
    "nameOverride": some("", "", "", "", *WORDS, "gauge", "x" * 70, "a" * 51 + "---b"),
    "fullnameOverride": some("", "a", "on", "x" * 70, "a" * 51 + "---b", "tokengauge"),
    "commonLabels": LABELLED, "podLabels": LABELLED, "service.labels": LABELLED, "monitoring.labels": LABELLED, "dashboards.labels": LABELLED,
    "annotations": ANNOTATED, "podAnnotations": ANNOTATED,
    "nodeSelector": mapped(KEYS, LABELS), "matchLabels": mapped([*KEYS, "tokengauge.dev/inject"], LABELS),
    "matchExpressions": several(*SELECTOR["matchExpressions"], {"key": "c", "operator": "DoesNotExist"}),
    "image.registry": some("ghcr.io", "", "localhost:5000", "1"), "image.repository": some("example/tokengauge", "tokengauge", "12", "a/true"),
    "image.tag": some("", "1", "30", "1e3", "true", "v1.0_x"), "image.digest": some("", "", "sha256:" + "1" * 64), "sidecar.image": some("", *IMAGES),
    "clusterName": some("", "a", "1e3", "true", "a:", "-", "b/c", "1:30", "2026-01-02"),
    "otlp.endpoint": some("", "http://collector:4318", "http://$(K8S_NODE_IP):4318", "https://a", "http://[fd00::1]:4317/b/", "http://1:1"),
    "headersSecret.key": some("headers", *WORDS), "adminToken.key": some("token", *WORDS),
    "monitoring.jobName": some("tokengauge", "a,b", "{c", "d}", "1e3", "true", "'", '"', "a:", "#", "$1"),
    "monitoring.scrapeTimeout": some("10s", "500ms"), "monitoring.interval": some("15s", "1m", "1m30s"),
    "resources": some(*RESOURCES), "podSecurityContext": some(*POD_CONTEXT), "securityContext": some(*CONTEXT), "affinity": some(*AFFINITY),
    "tolerations": several(*TOLERATIONS), "topologySpreadConstraints": several(*SPREAD), "strategy": some(*STRATEGY), "extraEnv": several(*ENV, unique="name"),
    "extraEnvFrom": several({"secretRef": {"name": "1e3", "optional": True}}, {"prefix": "A_", "configMapRef": {"name": "on"}}),
    "extraVolumes": VOLUMES, "extraVolumeMounts": some([]), "callers": several(*PEER), "scrapers": several(*PEER), "egress": several(*EGRESS),
    "autoscaling.metrics": some([], [METRIC]), "autoscaling.behavior": some(*BEHAVIOR), "extraObjects": several(*OBJECTS), "prometheusRule.files": mapped(["a", "1", "on"], RULES),
    "webhook.matchConditions": several(*CONDITIONS, unique="name"), "certificates.secret.caBundle": some("", PEM, "\n" + PEM, "MTIz", "1234", "MTIz\n"),
    "loadBalancerSourceRanges": several("10.0.0.0/8", "0.0.0.0/0"), "sidecar.flags": some(
        {}, {"mode": "outbound"}, {"mode": "inbound", "slos": "chat", "shutdown-grace-period": "600s", "port": 8000, "native": True},
        {"mode": "outbound", "upstream": ["/a=https://a.example", "/b=https://b.example"], "native": False},
        {"image": "a:1", "otlp-endpoint": "http://$(K8S_NODE_IP):4317", "otlp-protocol": "grpc", "cluster": "1e3"}),
    "injector.extraArgs": some([], ["--listen=[::]:8443", "--admin=[::]:4001"], ["--shutdown-delay=10s"]),
    "podDisruptionBudget.maxUnavailable": some(0, 1, 1000000, "25%", "100%"),
    "replicas": some(0, 1, 2, 1000000), "minReplicas": some(1, 2), "maxReplicas": some(1, 2, 1000000), "targetCPUUtilizationPercentage": some(70, 1000000),
    "dashboards.namespace": some("", "monitoring", "1"), "certManager.issuerRef": some({}, {"name": "1", "kind": "ClusterIssuer", "group": "cert-manager.io"}),
    "certManager.duration": some("2160h", "1000000h"), "global": some({}), "enabled": some(True, False),
    # Parts of the configuration that the chart itself reads.
    "config.upstreams": some({"openai": {"url": "https://api.openai.com"}}, {"1e3": {"url": "http://a:8000/#"[:-1]}, "on": {"url": "http://b"}}, {}),
    "config.listeners": some([{"address": "0.0.0.0:4000"}], [{"address": "[::]:4000", "max_connections": 1000000}], [{"address": "127.0.0.1:4000"}], []),
    "config.admin": some({"address": "0.0.0.0:4001"}, {"address": "[::]:4001"}, {"address": "127.0.0.1:4001"}, {}),
    "config.version": some(1), "existingConfigMap": some("", "", "", "1e3"),
}

# Examples of each pattern. A pattern without an example is an error.
EXAMPLES = [
    *WORDS, *TEXTS, *DURATIONS, *IMAGES, "", "25%", "0%", "99.5%", "99", "1KiB", "64 MiB", "USD", "http://a.example:8000/b", "a.b", "a.1", "1", "/metrics", "sha256:" + "1" * 64, "0.5",
]
NAMES = ["tokengauge", "a", "1", "on", "true", "null", "my.release", "a.1", "x" * 53, "a" * 43 + "---------b", "tokengauge-0"]
NAMESPACES = ["tokengauge", "1", "1e3", "on", "null", "n" * 63]


def merged(default, given):
    """Merges values like Helm: maps key by key, and null removes a key."""
    if not (isinstance(default, dict) and isinstance(given, dict)):
        return given
    made = {**default, **{key: merged(default.get(key), value) for key, value in given.items()}}
    return {key: value for key, value in made.items() if not (value is None and key in given)}


class Values:
    """Draws values from the schema with `draw`, a random.Random. Each optional key is present with the probability `density`."""

    def __init__(self, draw, density):
        self.draw, self.density = draw, density

    def of(self, schema, path=()):
        generator = self.generator(path)
        if generator is not None:
            return generator(self.draw)
        if "$ref" in schema:
            return self.of(self.resolved(schema["$ref"]), path)
        for several_ in ("anyOf", "oneOf"):
            if several_ in schema:
                return self.of(self.draw.choice(schema[several_]), path)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.draw.choice(schema["enum"])
        kind = schema["type"]
        return getattr(self, self.draw.choice(kind) if isinstance(kind, list) else kind)(schema, path)

    @staticmethod
    def generator(path):
        for begin in range(len(path)):
            found = GENERATORS.get(".".join(path[begin:]))
            if found is not None and not ("config" in path and path[begin] != "config"):
                return found
        return None

    @staticmethod
    def resolved(reference):
        at = SCHEMA
        for key in reference.removeprefix("#/").split("/"):
            at = at[key]
        return at

    def object(self, schema, path):
        must = schema.get("required", [])
        known = schema.get("properties", {})
        made = {key: self.of(inner, (*path, key)) for key, inner in known.items() if key in must or self.draw.random() < self.density}
        others = schema.get("additionalProperties")
        if isinstance(others, dict):
            made |= {key: self.of(others, (*path, "*")) for key in self.draw.sample(WORDS, self.draw.randint(0, 2))}
        return made

    def array(self, schema, path):
        return [self.of(schema["items"], (*path, "0")) for _ in range(self.draw.randint(0, 2))]

    def string(self, schema, path):
        fitting = [one for one in EXAMPLES if len(one) >= schema.get("minLength", 0) and re.search(schema.get("pattern", "").replace("$", r"\Z"), one)]
        if not fitting:
            raise SystemExit(f"{'.'.join(path)}: no example of {schema['pattern']!r} in EXAMPLES")
        return self.draw.choice(fitting)

    def bounded(self, schema, between):
        least, most = schema.get("minimum", schema.get("exclusiveMinimum", 0)), schema.get("maximum", schema.get("exclusiveMaximum"))
        candidates = [least, most, *between]
        allowed = [
            one for one in candidates
            if one is not None and one >= least and (most is None or one <= most)
            and one not in (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
        ]
        return self.draw.choice(allowed)

    def integer(self, schema, _):
        return self.bounded(schema, [7, 300, 1000000, 123456789, 2**53])

    def number(self, schema, _):
        return self.bounded(schema, [0.25, 0.000001, 0.995, 12.5, 1000000.0, 1e15])

    def boolean(self, _, __):
        return self.draw.random() < 0.5
