"""The pods of deploy/kubernetes as `tokengauge inject` makes them, adapted to this test: the OTLP endpoint, the provider's address, and
the container next to the sidecar."""
import copy
import pathlib

import yaml

MANIFESTS = pathlib.Path(__file__).parents[3] / "deploy" / "kubernetes"
# Container names in the manifests.
ENGINE, APP, SIDECAR = "vllm", "app", "tokengauge"
# Ports in the manifests: the proxy's and the engine's.
PROXY, BEHIND = 4000, 8000


def pod(kind, native):
    """Returns the pod spec of the manifest's Deployment."""
    folder = MANIFESTS if native else MANIFESTS / "no-native-sidecar"
    documents = yaml.safe_load_all((folder / kind / "injected.yaml").read_text())
    return copy.deepcopy(next(one for one in documents if one and one["kind"] == "Deployment")["spec"]["template"]["spec"])


def container(spec, name):
    return next(one for one in spec.get("initContainers", []) + spec["containers"] if one["name"] == name)


def set_variables(spec, name, **values):
    # Append the variables, since they may refer to earlier ones.
    env = container(spec, name)["env"]
    env[:] = [one for one in env if one["name"] not in values] + [{"name": key, "value": value} for key, value in values.items()]


def to_collector(spec, port):
    """Sends telemetry to the node's collector and samples every span. The default export interval leaves data to flush at shutdown."""
    set_variables(spec, SIDECAR, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://$(K8S_NODE_IP):{port}", OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
                  OTEL_TRACES_SAMPLER="always_on")


def inbound(otlp, native=True, hooks=True, grace=None, alive=None, engine_is=None, drain=None):
    """Service → tokengauge → engine.

    `alive` is a file without which the engine's liveness probe fails. A `stubborn` engine ignores SIGTERM, a `patient` one finishes its
    streams. `drain` is the drain limit in seconds, with new connections accepted for one of them."""
    spec = pod("inbound", native)
    to_collector(spec, otlp)
    engine = container(spec, ENGINE)
    # The simulated engine loads no weights.
    engine["startupProbe"]["periodSeconds"] = engine["readinessProbe"]["periodSeconds"] = 1
    if not hooks:
        del engine["lifecycle"], container(spec, SIDECAR)["lifecycle"]
    if alive:
        engine["livenessProbe"] = {"exec": {"command": ["test", "-e", alive]}, "periodSeconds": 1, "failureThreshold": 1}
    if engine_is:
        engine["image"] = f"{engine_is}/vllm"
    if drain:
        command = container(spec, SIDECAR)["lifecycle"]["preStop"]["exec"]["command"]
        command[command.index("--timeout") + 1] = f"{drain}s"
        command += ["--delay", "1s"]
    return {**spec, "terminationGracePeriodSeconds": grace or spec["terminationGracePeriodSeconds"]}


def outbound(otlp, vendor, args, native=True, grace=None, policy="Never"):
    """Application → tokengauge → provider. With policy `Never` it is also a Job's pod."""
    spec = pod("outbound", native)
    to_collector(spec, otlp)
    set_variables(spec, SIDECAR, TOKENGAUGE_UPSTREAM=f"/openai={vendor}")
    app = container(spec, APP)
    app.update(image="registry.example/app:1", args=args, env=[one for one in app["env"] if "value" in one])
    for there in ("command", "livenessProbe", "readinessProbe", "volumeMounts"):
        app.pop(there, None)
    return {**spec, "restartPolicy": policy, "terminationGracePeriodSeconds": grace or spec["terminationGracePeriodSeconds"]}
