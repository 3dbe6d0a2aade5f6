"""Schemas of the custom resources in this repository, limited to the fields that we use. They find misspelt or misplaced keys.

The sources are the API references of Prometheus Operator (v1), KEDA (v1alpha1) and cert-manager (v1).
"""


def closed(required=(), **properties):
    """Returns the schema of an object with only these properties."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def listed(items, least=1):
    return {"type": "array", "items": items, "minItems": least}


def resource(version, kind, spec):
    return closed(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": version},
        kind={"const": kind},
        metadata=METADATA,
        spec=spec,
    )


TEXT = {"type": "string", "minLength": 1}
INTEGER = {"type": "integer", "minimum": 0}
# Every value must be a string. Numbers are a frequent mistake, for example in KEDA's metadata.
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
METADATA = closed(("name",), name=TEXT, namespace=TEXT, labels=TEXTS, annotations=TEXTS)
DURATION = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
PORT_NAME = {"type": "string", "pattern": "^[a-z0-9-]{1,15}$"}
SELECTOR = closed(
    matchLabels=TEXTS,
    matchExpressions=listed(
        closed(
            ("key", "operator"),
            key=TEXT,
            operator={"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
            values=listed(TEXT),
        )
    ),
)
RELABELING = closed(
    sourceLabels=listed(TEXT),
    separator=TEXT,
    targetLabel=TEXT,
    regex=TEXT,
    modulus=INTEGER,
    replacement={"type": "string"},
    action={"enum": ["replace", "keep", "drop", "labelmap", "labeldrop", "labelkeep", "hashmod"]},
)
ENDPOINT = closed(
    ("port",),
    port=PORT_NAME,
    path={"type": "string", "pattern": "^/"},
    scheme={"enum": ["http", "https"]},
    interval=DURATION,
    scrapeTimeout=DURATION,
    honorLabels={"type": "boolean"},
    relabelings=listed(RELABELING),
    metricRelabelings=listed(RELABELING),
)
NAMESPACES = closed(any={"type": "boolean"}, matchNames=listed(TEXT))
RULE = {
    **closed(
        ("expr",),
        alert=TEXT,
        record=TEXT,
        expr=TEXT,
        labels=TEXTS,
        annotations=TEXTS,
        **{"for": DURATION, "keep_firing_for": DURATION},
    ),
    "oneOf": [{"required": ["alert"]}, {"required": ["record"]}],
}
TRIGGER = {
    "oneOf": [
        closed(
            ("type", "metadata"),
            type={"const": "prometheus"},
            name=TEXT,
            metricType={"enum": ["AverageValue", "Value"]},
            metadata=closed(
                # KEDA does not require ignoreNullValues, but we do: by default missing telemetry would count as no load.
                ("serverAddress", "query", "threshold", "ignoreNullValues"),
                serverAddress={"type": "string", "pattern": "^https?://"},
                query=TEXT,
                threshold={"type": "string", "pattern": r"^[0-9.]+$"},
                activationThreshold={"type": "string", "pattern": r"^[0-9.]+$"},
                ignoreNullValues={"const": "false"},
                timeout={"type": "string", "pattern": "^[0-9]+$"},
                namespace=TEXT,
                authModes=TEXT,
                unsafeSsl=TEXT,
                customHeaders=TEXT,
            ),
        ),
        closed(("type", "metadata"), type={"const": "cpu"}, metricType={"const": "Utilization"}, metadata=TEXTS),
    ]
}
SCALING_RULES = closed(
    stabilizationWindowSeconds={"type": "integer", "minimum": 0, "maximum": 3600},
    selectPolicy={"enum": ["Max", "Min", "Disabled"]},
    policies=listed(
        closed(
            ("type", "value", "periodSeconds"),
            type={"enum": ["Pods", "Percent"]},
            value={"type": "integer", "minimum": 1},
            periodSeconds={"type": "integer", "minimum": 1, "maximum": 1800},
        )
    ),
)

SCHEMAS = {
    ("monitoring.coreos.com/v1", "PodMonitor"): closed(
        ("selector", "podMetricsEndpoints"),
        jobLabel=TEXT,
        namespaceSelector=NAMESPACES,
        podMetricsEndpoints=listed(ENDPOINT),
        podTargetLabels=listed(TEXT),
        selector=SELECTOR,
    ),
    ("monitoring.coreos.com/v1", "ServiceMonitor"): closed(
        ("selector", "endpoints"),
        endpoints=listed(ENDPOINT),
        jobLabel=TEXT,
        namespaceSelector=NAMESPACES,
        selector=SELECTOR,
        targetLabels=listed(TEXT),
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): closed(
        ("groups",),
        groups=listed(
            closed(("name", "rules"), name=TEXT, interval=DURATION, rules=listed(RULE), labels=TEXTS, limit=INTEGER)
        ),
    ),
    ("keda.sh/v1alpha1", "ScaledObject"): closed(
        ("scaleTargetRef", "triggers"),
        advanced=closed(
            restoreToOriginalReplicaCount={"type": "boolean"},
            horizontalPodAutoscalerConfig=closed(
                name=TEXT, behavior=closed(scaleUp=SCALING_RULES, scaleDown=SCALING_RULES)
            ),
            scalingModifiers=closed(
                ("formula", "target"),
                formula=TEXT,
                target=TEXT,
                activationTarget=TEXT,
                metricType={"enum": ["AverageValue", "Value"]},
            ),
        ),
        cooldownPeriod=INTEGER,
        fallback=closed(
            ("failureThreshold", "replicas"),
            behavior={"enum": ["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]},
            failureThreshold=INTEGER,
            replicas=INTEGER,
        ),
        idleReplicaCount=INTEGER,
        initialCooldownPeriod=INTEGER,
        maxReplicaCount=INTEGER,
        minReplicaCount=INTEGER,
        pollingInterval={"type": "integer", "minimum": 1},
        scaleTargetRef=closed(("name",), apiVersion=TEXT, kind=TEXT, name=TEXT, envSourceContainerName=TEXT),
        triggers=listed(TRIGGER),
    ),
    ("cert-manager.io/v1", "Certificate"): closed(
        ("secretName", "issuerRef"),
        commonName=TEXT,
        isCA={"type": "boolean"},
        dnsNames=listed(TEXT),
        duration=DURATION,
        renewBefore=DURATION,
        issuerRef=closed(("name",), name=TEXT, kind={"enum": ["Issuer", "ClusterIssuer"]}, group=TEXT),
        privateKey=closed(
            algorithm={"enum": ["RSA", "ECDSA", "Ed25519"]},
            encoding={"enum": ["PKCS1", "PKCS8"]},
            rotationPolicy={"enum": ["Never", "Always"]},
            size=INTEGER,
        ),
        secretName=TEXT,
        usages=listed(TEXT),
    ),
    ("cert-manager.io/v1", "Issuer"): {
        "oneOf": [
            closed(("selfSigned",), selfSigned=closed()),
            closed(("ca",), ca=closed(("secretName",), secretName=TEXT)),
        ]
    },
}


def schema(version, kind):
    """Returns the schema of the whole object, or nothing for an unknown kind."""
    spec = SCHEMAS.get((version, kind))
    return spec and resource(version, kind, spec)
