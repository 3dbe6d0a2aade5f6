"""The pods of deploy/kubernetes, as `tokengauge inject` makes them, with what has to differ here: where telemetry goes, the vendor's address,
and what runs beside the sidecar."""
import copy
import pathlib

import yaml

MANIFESTS = pathlib.Path(__file__).parents[3] / "deploy" / "kubernetes"
# Names of containers in those manifests.
ENGINE, APP, SIDECAR = "vllm", "app", "tokengauge"
# The ports there: the proxy's, and the engine's.
PROXY, BEHIND = 4000, 8000


def pod(kind, native):
    """The pod spec of the manifest's Deployment."""
    folder = MANIFESTS if native else MANIFESTS / "no-native-sidecar"
    documents = yaml.safe_load_all((folder / kind / "injected.yaml").read_text())
    return copy.deepcopy(next(one for one in documents if one and one["kind"] == "Deployment")["spec"]["template"]["spec"])


def container(spec, name):
    return next(one for one in spec.get("initContainers", []) + spec["containers"] if one["name"] == name)


def set_variables(spec, name, **values):
    """At the end, as they may refer to others."""
    env = container(spec, name)["env"]
    env[:] = [one for one in env if one["name"] not in values] + [{"name": key, "value": value} for key, value in values.items()]


def to_collector(spec, port):
    """Telemetry goes to the node's collector, all spans of it. How often stays as it is by default: the end has something to deliver."""
    set_variables(spec, SIDECAR, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://$(K8S_NODE_IP):{port}", OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
                  OTEL_TRACES_SAMPLER="always_on")


def inbound(otlp, native=True, hooks=True, grace=None, alive=None, engine_is=None, drain=None):
    """Service → tokengauge → engine. `alive` is a file without which the engine's liveness probe fails; an engine that is `stubborn` takes no
    notice of SIGTERM, one that is `patient` lets its streams end. `drain` are seconds that the drain may take, of which connections are
    taken as before for one."""
    spec = pod("inbound", native)
    to_collector(spec, otlp)
    engine = container(spec, ENGINE)
    # The simulated engine has no weights to load.
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
    """Application → tokengauge → vendor. With policy `Never` it is a Job's pod, too."""
    spec = pod("outbound", native)
    to_collector(spec, otlp)
    set_variables(spec, SIDECAR, TOKENGAUGE_UPSTREAM=f"/openai={vendor}")
    app = container(spec, APP)
    app.update(image="registry.example/app:1", args=args, env=[one for one in app["env"] if "value" in one])
    for there in ("command", "livenessProbe", "readinessProbe", "volumeMounts"):
        app.pop(there, None)
    return {**spec, "restartPolicy": policy, "terminationGracePeriodSeconds": grace or spec["terminationGracePeriodSeconds"]}
