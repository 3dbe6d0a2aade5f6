"""Pods as docs/kubernetes.md has them: an engine with an inbound sidecar, an application with an outbound one."""

IMAGE = "ghcr.io/example/tokengauge:0.1.0"
ENGINE, APP, SIDECAR = "vllm", "app", "tokengauge"
PROXY, ADMIN, BEHIND = 4000, 4001, 8000


def sidecar(vantage, upstream, otlp, native, prestop=None, environment=None):
    """The container as `tokengauge inject` makes it. `prestop` is the command line of its hook, without the binary."""
    fields = {"K8S_POD_NAME": "metadata.name", "K8S_POD_UID": "metadata.uid", "K8S_NAMESPACE_NAME": "metadata.namespace",
              "K8S_NODE_NAME": "spec.nodeName", "K8S_NODE_IP": "status.hostIP"}
    values = {
        "TOKENGAUGE_LISTEN": f"{'0.0.0.0' if vantage == 'inbound' else '127.0.0.1'}:{PROXY}", "TOKENGAUGE_ADMIN": f"0.0.0.0:{ADMIN}", "TOKENGAUGE_UPSTREAM": upstream,
        "TOKENGAUGE_VANTAGE": vantage, "TOKENGAUGE_LOG_FORMAT": "json", "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://$(K8S_NODE_IP):{otlp}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_TRACES_SAMPLER": "always_on",
        "OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=$(K8S_NAMESPACE_NAME).$(K8S_POD_NAME).tokengauge,k8s.pod.name=$(K8S_POD_NAME),"
                                    "k8s.pod.uid=$(K8S_POD_UID),k8s.node.name=$(K8S_NODE_NAME),k8s.container.name=tokengauge", **(environment or {})}
    container = {
        "name": SIDECAR, "image": IMAGE, "args": ["run"],
        "env": [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
               + [{"name": name, "value": value} for name, value in values.items()],
        "ports": [{"containerPort": PROXY}, {"name": "tokengauge", "containerPort": ADMIN}],
        "startupProbe": {"httpGet": {"path": "/readyz", "port": ADMIN}, "periodSeconds": 1, "failureThreshold": 120},
        "livenessProbe": {"httpGet": {"path": "/livez", "port": ADMIN}}, "readinessProbe": {"httpGet": {"path": "/readyz", "port": ADMIN}}}
    if native:
        container["restartPolicy"] = "Always"
    if prestop:
        container["lifecycle"] = {"preStop": {"exec": {"command": ["/tokengauge", *prestop]}}}
    return container


def pod(app, beside, native, grace):
    together = {"initContainers": [beside], "containers": [app]} if native else {"containers": [app, beside]}
    return {"terminationGracePeriodSeconds": grace, **together}


def inbound(otlp, native=True, hooks=True, grace=330, environment=None, alive=None):
    """Service → tokengauge → engine. `alive` is a file without which the engine's liveness probe fails."""
    engine = {
        "name": ENGINE, "image": "vllm/vllm-openai:v0.28.0", "ports": [{"name": "http", "containerPort": PROXY}, {"containerPort": BEHIND}],
        "startupProbe": {"httpGet": {"path": "/v1/models", "port": BEHIND}, "periodSeconds": 1, "failureThreshold": 120}}
    if hooks:
        engine["lifecycle"] = {"preStop": {"httpGet": {"path": "/drained", "port": ADMIN}}}
    if alive:
        engine["livenessProbe"] = {"exec": {"command": ["test", "-e", alive]}, "periodSeconds": 1, "failureThreshold": 1}
    beside = sidecar("inbound", f"http://127.0.0.1:{BEHIND}", otlp, native, ["drain"] if hooks else None, environment)
    return pod(engine, beside, native, grace)


def outbound(otlp, vendor, args, native=True, grace=60, policy="Always", environment=None):
    """Application → tokengauge → vendor."""
    app = {"name": APP, "image": "registry.example/app:1", "args": args, "env": [{"name": "OPENAI_BASE_URL", "value": f"http://127.0.0.1:{PROXY}/openai/v1"}]}
    hook = None if native else ["drain", "--delay", "0s", "--quiet", "5s"]
    beside = sidecar("outbound", f"/openai={vendor}", otlp, native, hook, environment)
    return {**pod(app, beside, native, grace), "restartPolicy": policy}
