"""The test workloads: the manifests of deploy/kubernetes as written, the chart, a Job, and their images."""
import yaml

from kubernetes.control_plane import SERVER
from node import images
from pod import shapes

MODEL = "sim-typical:slots=4000"
SIDECAR, ENGINE, APP = shapes.SIDECAR, shapes.ENGINE, shapes.APP
# The image name in the manifests. Here the image holds a simulated engine, which ignores vLLM's arguments.
VLLM = "docker.io/vllm/vllm-openai:v0.28.0"
JOB = "localhost/job:1"
JOB_CALLS, JOB_TOKENS = 20, 40


def load(node, binary, image):
    """Imports the images. `image` is an archive of our own image."""
    ours = shapes.container(shapes.inbound(0), SIDECAR)["image"]
    node.load(image, ours)
    simulate = f"exec /tokengauge simulate --listen 0.0.0.0:{shapes.BEHIND} --model ${{SIMULATED:-{MODEL}}}"
    shell = {"bin/sh": images.BUSYBOX}
    for name, files, entrypoint in [
        ("localhost/pause:1", shell, ["/bin/sh", "-c", "sleep 2147483647"]),
        (VLLM, {**shell, "tokengauge": binary}, ["/bin/sh", "-c", simulate]),
        (JOB, {f"bin/{name}": images.BUSYBOX for name in ("sh", "wget", "grep", "seq")}, ["/bin/sh", "-c"]),
    ]:
        archive = node.folder / "image.tar"
        images.saved(archive, name, files, {"Entrypoint": entrypoint})
        node.load(archive, name)


def inbound(otlp, replicas=2, simulated=None, **changes):
    """Returns the Service, ServiceAccount and Deployment of deploy/kubernetes/inbound, or of its fallback for older clusters.

    The engine requests a GPU as in the manifest, and less of the other resources. `simulated` is the served model, by default MODEL."""
    spec = shapes.inbound(otlp, **changes)
    engine = shapes.container(spec, ENGINE)
    engine["resources"]["requests"].update(cpu="10m", memory="64Mi")
    if simulated:
        engine["env"] = [*engine.get("env", []), {"name": "SIMULATED", "value": simulated}]
    folder = shapes.MANIFESTS if changes.get("native", True) else shapes.MANIFESTS / "no-native-sidecar"
    documents = [one for one in yaml.safe_load_all((folder / "inbound/injected.yaml").read_text()) if one]
    deployment = next(one for one in documents if one["kind"] == "Deployment")["spec"]
    deployment["replicas"], deployment["template"]["spec"] = replicas, spec
    return documents


def gateway(node, vendor, otlp):
    """Returns deploy/kubernetes/gateway without its autoscaler, with this provider instead of OpenAI."""
    documents = list(yaml.safe_load_all(node.run("kubectl", "kustomize", str(shapes.MANIFESTS / "gateway"))))
    for one in documents:
        if one["kind"] == "ConfigMap":
            config = yaml.safe_load(one["data"]["tokengauge.yaml"])
            config["upstreams"]["openai"]["url"] = vendor
            one["data"]["tokengauge.yaml"] = yaml.safe_dump(config)
        elif one["kind"] == "Deployment":
            shapes.to_collector(one["spec"]["template"]["spec"], otlp)
    return [one for one in documents if one["kind"] != "HorizontalPodAutoscaler"]


def job(vendor, otlp):
    """Returns an application's Job whose only reference to the sidecar is its annotations. It sends all streams at once and prints each result."""
    body = '{"model":"sim-typical","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"How long does a Job live?"}]}'
    script = f"""
for n in $(seq 1 {JOB_CALLS}); do
  wget -q -O /tmp/$n --header 'content-type: application/json' --header "traceparent: 00-$(printf %032x $n)-00000000000000aa-01" \\
    --header 'x-simulate-tokens: {JOB_TOKENS}' --header 'x-simulate-chunk-tokens: 1' --header 'x-simulate-gap-us: 50000' \\
    --post-data '{body}' "$OPENAI_BASE_URL/chat/completions" &
done
wait
for n in $(seq 1 {JOB_CALLS}); do echo "call $n $(grep -c '"content":"[^"]' /tmp/$n) $(grep -c '^data: .DONE.' /tmp/$n)"; done
"""
    locked = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    return [{
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "batch"},
        "spec": {"backoffLimit": 0, "template": {
            "metadata": {"annotations": {
                "tokengauge.dev/mode": "outbound", "tokengauge.dev/upstream": f"/openai={vendor}",
                "tokengauge.dev/otlp-endpoint": f"http://$(K8S_NODE_IP):{otlp}", "tokengauge.dev/otlp-protocol": "http/protobuf"}},
            "spec": {
                "restartPolicy": "Never", "automountServiceAccountToken": False,
                "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{"name": APP, "image": JOB, "args": [script], "securityContext": locked, "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}],
                "volumes": [{"name": "tmp", "emptyDir": {}}]}}}}]


def chart(vendor, otlp):
    """Returns the chart's values: a gateway in front of the provider, and the injector."""
    return {"otlp": {"endpoint": f"http://$(K8S_NODE_IP):{otlp}"},
            "gateway": {"enabled": True, "config": {"upstreams": {"vendor": {"url": vendor}}}}}


def vendor(node, binary, port):
    """Starts a simulated provider on the node. Returns its address."""
    node.start(f"vendor-{port}", binary, "simulate", "--listen", f"{SERVER}:{port}", "--model", MODEL)
    return f"http://{SERVER}:{port}"
