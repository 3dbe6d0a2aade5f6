#!/usr/bin/env python3
"""The Helm chart with random values: every value that its schema allows is rendered correctly, or rejected by an error message.

    chart_random_check.py --helm HELM --binary TOKENGAUGE [--count 100] [--seed 1] [--only N]

Each draw is rendered under a random name in a random namespace. The functions `about_…` below hold the checks. Their docstrings name the
checks in the output. A failure prints the number of its draw; --only N repeats that draw and prints values and objects. The last line is
`N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import yaml

import chart_values
import kubernetes_check
ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/tokengauge"
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
OWN = ["app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"]
# An error message of a template: the value, the problem, and the remedy.
SENTENCE = re.compile(r"execution error at \(.*\): \n*([a-zA-Z]+(\.[a-zA-Z0-9-]+(\[\d+\])?)*): .+\. ?.*\n", re.DOTALL)
DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
SERVICE = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
# Dashboards, rules and cert-manager's objects may have long names. These names end up in labels or host names.
SHORT = ("Service", "Deployment", "Pod", "MutatingWebhookConfiguration", "HorizontalPodAutoscaler", "PodDisruptionBudget")


class Strict(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Rejects duplicate keys, like the API server."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {str(key) for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.YAMLError(f"{sorted(twice)} twice{node.start_mark}")
        return super().construct_mapping(node, deep)


# YAML 1.1 types of this parser that Kubernetes does not use.
for tag in ("merge", "value"):
    Strict.add_constructor(f"tag:yaml.org,2002:{tag}", Strict.construct_yaml_str)
# Conversely, the API server reads 1e3 as a number.
Strict.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789"))


class Draw:
    """Values, their release, and the rendered objects."""

    def __init__(self, number, seed):
        draw = random.Random(f"{seed} {number}")
        self.number = number
        made = chart_values.Values(draw, draw.choice([0.15, 0.5, 0.9])).of(chart_values.SCHEMA)
        if draw.random() < 0.8:
            made.setdefault("gateway", {})["enabled"] = True
            self.usable(made["gateway"])
        self.values = made
        self.all_values = chart_values.merged(DEFAULTS, made)
        self.name, self.namespace = draw.choice(chart_values.NAMES), draw.choice(chart_values.NAMESPACES)
        self.wrong = self.objects = None

    @staticmethod
    def usable(gateway):
        """Makes most gateways reachable. Otherwise almost all draws would be rejected for the same reason."""
        config = gateway.setdefault("config", {"version": 1})
        config.setdefault("upstreams", {"a": {"url": "http://a"}})
        for key in ("listeners", "admin"):
            if "127.0.0.1" in str(config.get(key)) or not config.get(key):
                config.pop(key, None)
        config["upstreams"] = config["upstreams"] or {"a": {"url": "http://a"}}
        names = list(config["upstreams"])
        routes = config.get("routes") or ([{} for _ in names] if len(names) > 1 else [])
        for number, route in enumerate(routes):
            route |= {"name": f"route-{number}", "upstream": names[number % len(names)], "match": {"prefix": f"/{number}"}}
        if routes:
            config["routes"] = routes
        for one in [*(slo.get("scope") or {} for slo in config.get("slos") or []), *((config.get("cost") or {}).get("budgets") or [])]:
            one.pop("route", None)
        service = gateway.get("service", {})
        if service.get("type") != "LoadBalancer":
            for key in ("externalTrafficPolicy", "loadBalancerSourceRanges"):
                service.pop(key, None)

    def render(self, helm):
        done = subprocess.run(
            [helm, "template", self.name, str(CHART), "--namespace", self.namespace, "--values", "-"],
            input=json.dumps(self.values, ensure_ascii=False), capture_output=True, text=True)
        if done.returncode != 0:
            self.wrong = done.stderr + done.stdout
            return
        self.text = done.stdout
        # The user's own extra objects are not checked.
        theirs = [part for part in re.split(r"^---$", done.stdout, flags=re.MULTILINE) if "# Source: tokengauge/templates/" in part]
        self.objects = [one for part in theirs if "/extra.yaml" not in part for one in yaml.load_all(part, Strict) if one]
        self.extra = [one for part in theirs if "/extra.yaml" in part for one in yaml.load_all(part, Strict) if one]

    def of(self, kind, component=None):
        return [
            one for one in self.objects
            if one["kind"] == kind and component in (None, one["metadata"]["labels"]["app.kubernetes.io/component"])
        ]

    def parts(self):
        """Yields each Deployment with the values of its component, and the component's name."""
        return [(one, self.all_values[name], name) for name in ("gateway", "injector") for one in self.of("Deployment", name)]


def about_names(draw):
    """names of objects are valid and unique"""
    seen = set()
    for one in draw.objects:
        name, namespace = one["metadata"]["name"], one["metadata"].get("namespace")
        identity = one["kind"], namespace, name
        short = one["kind"] in SHORT
        if not (isinstance(name, str) and DNS.fullmatch(name)) or len(name) > (63 if short else 253):
            yield f"{one['kind']} {name!r}"
        if one["kind"] == "Service" and not SERVICE.fullmatch(str(name)):
            yield f"Service {name!r}"
        if identity in seen:
            yield f"{identity} twice"
        if namespace is not None and not isinstance(namespace, str):
            yield f"namespace {namespace!r}"
        seen.add(identity)


def about_schemas(draw):
    """objects match Kubernetes' schemas, the restricted standard and rules beyond schemas"""
    things = [(one, kubernetes_check.pod(one)) for one in draw.objects]
    for one, _ in things:
        for wrong in kubernetes_check.wrong_with(one, VERSIONS, False):
            yield f"{one['kind']} {one['metadata']['name']}: {wrong}"
    yield from (what for _, what in kubernetes_check.beyond.services(things))


def about_texts(draw):
    """labels and annotations are strings"""
    for one in draw.objects:
        template = (kubernetes_check.pod(one) or {}).get("metadata", {})
        for kind in ("labels", "annotations"):
            for key, value in {**one["metadata"].get(kind, {}), **template.get(kind, {})}.items():
                if not (isinstance(key, str) and isinstance(value, str)):
                    yield f"{one['kind']} {one['metadata']['name']}: {key!r}: {value!r}"


def about_selectors(draw):
    """selectors match exactly the pods of their component"""
    pods = [(one["metadata"]["name"], kubernetes_check.pod(one)["metadata"]["labels"]) for one in draw.objects if kubernetes_check.pod(one)]
    for one in draw.objects:
        spec = one.get("spec") or {}
        selector = spec.get("selector") if one["kind"] == "Service" else (spec.get("podSelector") or spec.get("selector") or {}).get("matchLabels")
        if selector is None or one["kind"] == "ServiceMonitor":
            continue
        if sorted(selector) != sorted(OWN):
            yield f"{one['kind']} {one['metadata']['name']} has the selector {selector}"
        component = one["metadata"]["labels"]["app.kubernetes.io/component"]
        found = [name for name, labels in pods if selector.items() <= labels.items()]
        wanted = [name for name, labels in pods if labels["app.kubernetes.io/component"] == component]
        if found != wanted or not found:
            yield f"{one['kind']} {one['metadata']['name']} selects {found}, expected {wanted}"
    for one in draw.of("ServiceMonitor"):
        found = [it for it in draw.of("Service") if one["spec"]["selector"]["matchLabels"].items() <= it["metadata"]["labels"].items()]
        port = one["spec"]["endpoints"][0]["port"]
        if [port] != [it["name"] for service in found for it in service["spec"]["ports"] if it["name"] == port]:
            yield f"ServiceMonitor {one['metadata']['name']} does not find the port {port} exactly once in {[it['metadata']['name'] for it in found]}"


def about_passing(draw):
    """values in the form of pod fields are rendered unchanged"""
    for deployment, given, component in draw.parts():
        template = deployment["spec"]["template"]
        pod, container = template["spec"], template["spec"]["containers"][0]
        for key in ("affinity", "tolerations", "nodeSelector", "priorityClassName"):
            if (pod.get(key) or None) != (given.get(key) or None):
                yield f"{component}: {key} is {pod.get(key)}, expected {given.get(key)}"
        for key, where in (("podSecurityContext", pod), ("securityContext", container)):
            if where["securityContext"] != draw.all_values[key]:
                yield f"{component}: {key} is {where['securityContext']}"
        if container["resources"] != given["resources"]:
            yield f"{component}: resources are {container['resources']}"
        env = container.get("env") or []
        yield from (f"{component}: env lacks {one}" for one in given.get("extraEnv", []) if one not in env)
        yield from (f"{component}: envFrom lacks {one}" for one in given.get("extraEnvFrom", []) if one not in container["envFrom"])
        yield from (f"{component}: volumes lack {one}" for one in given.get("extraVolumes", []) if one not in pod["volumes"])
        yield from (f"{component}: args lack {one}" for one in given.get("extraArgs", []) if one not in container["args"])
        spread = pod.get("topologySpreadConstraints") or []
        for one, other in zip(given.get("topologySpreadConstraints", []), spread, strict=True):
            if not one.items() <= other.items():
                yield f"{component}: topologySpreadConstraints have {other}, expected {one}"
        annotations = template["metadata"]["annotations"]
        if not given.get("podAnnotations", {}).items() <= annotations.items():
            yield f"{component}: podAnnotations are {annotations}"
        labels = {**draw.all_values["commonLabels"], **given.get("podLabels", {})}
        if not labels.items() <= template["metadata"]["labels"].items():
            yield f"{component}: podLabels are {template['metadata']['labels']}"
        if component == "injector" or not given["autoscaling"]["enabled"]:
            if deployment["spec"]["replicas"] != given["replicas"]:
                yield f"{component}: replicas are {deployment['spec']['replicas']}"
        for one in draw.of("PodDisruptionBudget", component):
            if one["spec"]["maxUnavailable"] != given["podDisruptionBudget"]["maxUnavailable"]:
                yield f"{component}: {one['spec']}"
    for one in draw.of("Service", "gateway"):
        if one["spec"].get("clusterIP") == "None":
            continue
        service = draw.all_values["gateway"]["service"]
        if not service["annotations"].items() <= one["metadata"].get("annotations", {}).items():
            yield f"annotations of the Service are {one['metadata'].get('annotations')}"
        if not {**draw.all_values["commonLabels"], **service["labels"]}.items() <= one["metadata"]["labels"].items():
            yield f"labels of the Service are {one['metadata']['labels']}"
        if one["spec"]["ports"][0]["port"] != service["port"]:
            yield f"port of the Service is {one['spec']['ports']}"
    for one in draw.objects:
        lost = [key for key in draw.all_values["commonLabels"] if key not in one["metadata"]["labels"]]
        if lost:
            yield f"{one['kind']} {one['metadata']['name']} lacks the labels {lost}"
    for flag, value in draw.all_values["injector"]["sidecar"]["flags"].items():
        for word in value if isinstance(value, list) else [value]:
            text = f"--{flag}={json.dumps(word) if not isinstance(word, str) else word.replace('$(', '$$(')}"
            yield from (f"{text} is missing in {one['spec']['template']['spec']['containers'][0]['args']}" for one in draw.of("Deployment", "injector") if text not in one["spec"]["template"]["spec"]["containers"][0]["args"])
    for one in draw.of("MutatingWebhookConfiguration"):
        labels = one["webhooks"][0]["namespaceSelector"]["matchLabels"]
        if labels["tokengauge.dev/inject"] != "enabled":
            yield f"the webhook selects namespaces with {labels}"
    if len(draw.extra) != len(draw.all_values["extraObjects"]):
        yield f"{len(draw.extra)} of {len(draw.all_values['extraObjects'])} extra objects are rendered"


def about_configuration(draw):
    """the configuration in the ConfigMap equals the given one, and `tokengauge check` gives the same result for both"""
    for one in draw.of("ConfigMap", "gateway"):
        if "tokengauge.yaml" not in one["data"]:
            continue
        given = draw.all_values["gateway"]["config"]
        text = one["data"]["tokengauge.yaml"]
        if yaml.load(text, Strict) != given and json.loads(json.dumps(given), parse_int=float) != json.loads(json.dumps(yaml.load(text, Strict)), parse_int=float):
            yield f"{text} of {given}"
        outputs = [checked(content) for content in (text, json.dumps(given))]
        if outputs[0] != outputs[1]:
            yield f"rendered: {outputs[0]}; given: {outputs[1]}"


def checked(text):
    """Returns the output of `tokengauge check` without lines and columns."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "tokengauge.yaml").write_text(text)
        done = subprocess.run([BINARY, "check", "tokengauge.yaml"], cwd=folder, capture_output=True, text=True)
    return done.returncode, sorted(re.sub(r"^tokengauge\.yaml:\d+:\d+: ", "", line) for line in (done.stdout + done.stderr).splitlines())


def about_arguments(draw):
    """the injector accepts its arguments"""
    for one in draw.of("Deployment", "injector"):
        # As the kubelet reads arguments, without variable references.
        arguments = [it.replace("$$(", "$(") for it in one["spec"]["template"]["spec"]["containers"][0]["args"]]
        done = subprocess.run([BINARY, *arguments, "--help"], capture_output=True, text=True)
        if done.returncode != 0:
            yield f"{arguments}: {done.stderr}"


def about_upgrades(draw):
    """no upgrade from the defaults, or back, changes an immutable field"""
    if (draw.name, draw.namespace) not in INSTALLED:
        before = Draw(draw.number, 0)
        before.values = {"fullnameOverride": "tokengauge"} if not draw.name[0].isalpha() else {}
        before.values["gateway"] = {"enabled": True, "config": {"upstreams": {"a": {"url": "http://a"}}}}
        before.name, before.namespace = draw.name, draw.namespace
        before.render(HELM)
        assert before.wrong is None, before.wrong
        INSTALLED[draw.name, draw.namespace] = {(one["kind"], one["metadata"]["name"]): one for one in before.objects}
    # The template rejects another name in the label by a lookup in the cluster. cluster_check.py tests that.
    renamed = draw.all_values["nameOverride"] not in ("", "tokengauge")
    for one in draw.objects:
        was = INSTALLED[draw.name, draw.namespace].get((one["kind"], one["metadata"]["name"]))
        if was is None:
            continue
        if one["kind"] == "Deployment" and was["spec"]["selector"] != one["spec"]["selector"] and not renamed:
            yield f"the selector of {one['metadata']['name']}"
        if one["kind"] == "Service" and was["spec"].get("clusterIP") != one["spec"].get("clusterIP"):
            yield f"clusterIP of {one['metadata']['name']}"
        if was.get("roleRef") != one.get("roleRef"):
            yield f"roleRef of {one['metadata']['name']}"


ABOUT = [value for name, value in list(globals().items()) if name.startswith("about_")]
INSTALLED = {}
# All versions are strict, and the rendered objects do not depend on the version. One version is enough.
VERSIONS = kubernetes_check.versions("1.28")[-1:]
HELM = BINARY = None


def without():
    """Checks values removed by null. The schema requires the values that rendering needs. Without all other values rendering succeeds."""
    base = {"enabled": True, "config": {"upstreams": {"a": {"url": "http://a"}}}}
    optional = {"gateway": dict(base)}

    def below(at, schema, path):
        for key, value in at.items():
            here = (*path, key)
            inner = schema["properties"][key]
            is_leaf = inner.get("type") == "array" or (inner.get("type") == "object" and inner.get("additionalProperties", {}) is not False)
            if is_leaf:
                place = optional
                for step in path:
                    place = place.setdefault(step, {})
                place[key] = None
            elif key not in schema.get("required", []):
                yield f"{'.'.join(here)} is required", "the schema does not require it"
            if isinstance(value, dict) and not is_leaf and "properties" in inner:
                yield from below(value, inner, here)

    yield from below(DEFAULTS, chart_values.SCHEMA, ())
    for what, values, wanted in [
        ("all optional values are null", optional, None),
        ("gateway.service=null", {"gateway": {**base, "service": None}}, "at '/gateway': missing property 'service'"),
    ]:
        draw = Draw(0, 0)
        draw.values, draw.name, draw.namespace = values, "tokengauge", "tokengauge"
        draw.render(HELM)
        yield what, None if (draw.wrong is None if wanted is None else wanted in (draw.wrong or "")) else draw.wrong or "it was rendered"


def known():
    """Returns the difference between the sidecar flags in the schema and the program's flags, without flags that concern files."""
    outputs = subprocess.run([BINARY, "inject", "--help"], capture_output=True, text=True).stdout
    flags = set(re.findall(r"^ +--([a-z-]+)", outputs, flags=re.MULTILINE)) - {"check", "help", "only", "strict"}
    at = chart_values.SCHEMA["properties"]["injector"]["properties"]["sidecar"]["properties"]["flags"]
    return flags ^ set(at["propertyNames"]["enum"])


def judged(draw):
    """Returns the errors of a draw: (check, error)."""
    if draw.wrong is not None:
        return [] if SENTENCE.search(draw.wrong) else [("the draw is rendered, or rejected by an error message", draw.wrong)]
    return [(about.__doc__, wrong) for about in ABOUT for wrong in about(draw)]


def main():
    global HELM, BINARY
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--helm", required=True)
    parser.add_argument("--binary", required=True, type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", type=int)
    args = parser.parse_args()
    HELM, BINARY = args.helm, args.binary.resolve()
    passed = failed = refused = configured = 0
    for number in range(args.count) if args.only is None else [args.only]:
        draw = Draw(number, args.seed)
        try:
            draw.render(HELM)
            wrong = judged(draw)
        except yaml.YAMLError as error:
            wrong = [("the output is YAML", str(error))]
        refused += draw.wrong is not None
        configured += draw.objects is not None and bool(draw.of("ConfigMap", "gateway"))
        passed, failed = (passed, failed + 1) if wrong else (passed + 1, failed)
        for what, note in wrong:
            print(f"FAILED draw {number} ({draw.name} in {draw.namespace}): {what}: {note[:1500]}")
        if args.only is not None:
            print(yaml.safe_dump(draw.values), draw.wrong or draw.text)
    if args.only is None:
        print(f"{args.count} draws: {refused} rejected by an error message, {configured} with their own configuration")
        # If almost all draws are rejected, the other checks prove nothing.
        if refused > args.count / 2 or configured < args.count / 5:
            failed += 1
            print("FAILED: too few draws were rendered")
        for what, wrong in [("sidecar flags in the schema are the program's", known()), *without()]:
            passed, failed = (passed, failed + 1) if wrong else (passed + 1, failed)
            if wrong:
                print(f"FAILED {what}: {str(wrong)[:600]}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
