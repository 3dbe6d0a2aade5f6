#!/usr/bin/env python3
"""The chart's injector, and every manifest, before a real API server.

    cluster_check.py --binary TOKENGAUGE --apiserver KUBE_APISERVER --helm HELM

etcd and kube-apiserver run in a network namespace of their own; nothing else of a cluster does, so pods are admitted and
never scheduled. The chart is installed by helm. What its Deployment says is started here as a process: two injectors with the
chart's arguments and the token of the chart's ServiceAccount, behind the chart's Service, whose EndpointSlice is written by
hand. Then pods are made as people make them. It is run as root; exit status 77 where there are no namespaces.
"""
import argparse
import base64
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import yaml

from chart_random_check import Draw, Strict
from kubernetes import put_back
from kubernetes.control_plane import SERVER, ControlPlane, until
from namespaces import NETWORK, enter, loopback

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/tokengauge"
PODS = ["198.51.100.11", "198.51.100.12"]
HOME = "tokengauge"
INJECTOR = "tokengauge-injector"

failures = []
passed = 0


def check(held, what, note=""):
    global passed
    if held:
        passed += 1
    else:
        failures.append(what)
        print(f"FAIL {what}: {str(note)[:600]}")


def make_namespace(cluster, name, labels):
    status, _, said = cluster.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    assert status in (201, 409), said
    # What the controller manager would do, without which no pod is admitted.
    cluster.create(f"/api/v1/namespaces/{name}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})


# --- what kubectl would accept ---------------------------------------------------------------------------------------

PLACES = {
    ("v1", "Pod"): "/api/v1/namespaces/{}/pods", ("v1", "Service"): "/api/v1/namespaces/{}/services",
    ("v1", "ConfigMap"): "/api/v1/namespaces/{}/configmaps", ("v1", "Secret"): "/api/v1/namespaces/{}/secrets",
    ("v1", "ServiceAccount"): "/api/v1/namespaces/{}/serviceaccounts",
    ("v1", "PersistentVolumeClaim"): "/api/v1/namespaces/{}/persistentvolumeclaims",
    ("apps/v1", "Deployment"): "/apis/apps/v1/namespaces/{}/deployments",
    ("apps/v1", "StatefulSet"): "/apis/apps/v1/namespaces/{}/statefulsets",
    ("apps/v1", "DaemonSet"): "/apis/apps/v1/namespaces/{}/daemonsets",
    ("apps/v1", "ReplicaSet"): "/apis/apps/v1/namespaces/{}/replicasets",
    ("batch/v1", "Job"): "/apis/batch/v1/namespaces/{}/jobs", ("batch/v1", "CronJob"): "/apis/batch/v1/namespaces/{}/cronjobs",
    ("policy/v1", "PodDisruptionBudget"): "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
    ("networking.k8s.io/v1", "NetworkPolicy"): "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    ("rbac.authorization.k8s.io/v1", "Role"): "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
# Those that are in no namespace.
WIDE = {
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"): "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
}


def documents(text):
    for document in yaml.load_all(text, Strict):
        if document and document.get("kind") == "List":
            yield from document["items"]
        elif document:
            yield document


def pod_of(document):
    """The pod that a workload makes, or None."""
    spec = document.get("spec") or {}
    if document["kind"] == "Pod":
        return {"metadata": document["metadata"], "spec": spec}
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    return spec.get("template") if isinstance(spec.get("template"), dict) and "spec" in spec["template"] else None


def accepted(cluster, name, text, restricted):
    """Every object is accepted as it is by a dry run, and its pod; `restricted` where pods must keep that standard."""
    namespace = "restricted" if restricted else "privileged"
    for document in documents(text):
        identity = document["apiVersion"], document["kind"]
        place = PLACES.get(identity) or WIDE.get(identity)
        if place is None:
            continue
        title = f"{name}: {document['kind']} {document['metadata'].get('name')}"
        if identity in PLACES:
            document["metadata"]["namespace"] = namespace
        status, warnings, said = cluster.create(place.format(namespace), document, dry=True)
        check(status == 201, f"{title} is accepted", f"{status} {said if status != 201 else ''}")
        check(not warnings, f"{title} is accepted without a warning", warnings)
        pod = pod_of(document)
        if pod and document["kind"] != "Pod":
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**pod.get("metadata", {}), "name": "it", "namespace": namespace}, "spec": {**pod["spec"]}}
            # What it names is not here.
            for named in ("serviceAccountName", "serviceAccount", "priorityClassName"):
                pod["spec"].pop(named, None)
            status, warnings, said = cluster.create(PLACES["v1", "Pod"].format(namespace), pod, dry=True)
            check(status == 201, f"{title}: its pod is admitted", f"{status} {said if status != 201 else ''}")
            check(not warnings, f"{title}: its pod is admitted without a warning", warnings)


def manifests(cluster):
    make_namespace(cluster, "restricted", {"pod-security.kubernetes.io/enforce": "restricted"})
    make_namespace(cluster, "privileged", {"pod-security.kubernetes.io/enforce": "privileged"})
    loose = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    status, _, said = cluster.create(PLACES["v1", "Pod"].format("restricted"), loose, dry=True)
    check(status == 403 and "restricted" in str(said), "a pod that keeps nothing of the standard is turned away", said)
    built = 0
    for file in sorted(ROOT.glob("deploy/kubernetes/**/kustomization.yaml")):
        if "kind: Component" in file.read_text():
            continue
        made = subprocess.run(["kubectl", "kustomize", "--load-restrictor=LoadRestrictionsNone", str(file.parent)], capture_output=True, text=True)
        if made.returncode != 0:
            check(False, f"{file.parent.relative_to(ROOT)} is built", made.stderr)
            continue
        built += 1
        accepted(cluster, str(file.parent.relative_to(ROOT)), made.stdout, restricted=True)
    check(built > 0, "there are manifests", built)
    goldens = sorted(ROOT.glob("tests/fixtures/kube/injected/**/*.yaml"))
    for file in goldens:
        accepted(cluster, str(file.relative_to(ROOT)), file.read_text(), restricted=False)
    check(goldens, "there are workloads that inject has changed")


def drawn(cluster, helm, count=10):
    """The chart with random values is accepted, whatever was drawn."""
    tried = 0
    for number in range(1000):
        draw = Draw(number, "cluster")
        draw.render(helm)
        if draw.wrong is None:
            accepted(cluster, f"draw {number}", draw.text, restricted=True)
            tried += 1
        if tried == count:
            return
    check(False, f"{count} draws are rendered", tried)


# --- sidecars in what runs -------------------------------------------------------------------------------------------


def what_runs(cluster, binary):
    """As docs/how-to/kubernetes.md has it: what runs is read, changed and put back, however it came there."""
    workload = (ROOT / "deploy/kubernetes/inbound/workload.yaml").read_text()
    for way in (["create"], ["apply"], ["apply", "--server-side"]):
        namespace = f"by-{'-'.join(way).replace('--', '')}"
        make_namespace(cluster, namespace, {})
        _, wrong = cluster.kubectl(*way, "-n", namespace, "-f", "-", given=workload)
        read = lambda: cluster.kubectl("get", "deployments,services", "-n", namespace, "-o", "yaml")[0]
        before = {it["metadata"]["name"] + it["kind"]: it["spec"] for it in documents(read())}
        for step, wanted in [
            (["inject", "--mode", "inbound", "--drain", "600s"], 630),
            (["inject", "--mode", "inbound"], 330),
            (["uninject"], 30),
        ]:
            title = f"{' '.join(way)}, then {' '.join(step)}"
            made = subprocess.run([binary, *step, "-"], input=read(), capture_output=True, text=True)
            done, wrong = cluster.kubectl("replace", "-f", "-", given=made.stdout)
            check(done is not None, f"{title}: is taken", wrong)
            after = {it["metadata"]["name"] + it["kind"]: it["spec"] for it in documents(read())}
            template = after["vllmDeployment"]["template"]["spec"]
            check(template["terminationGracePeriodSeconds"] == wanted, f"{title}: the settings are the last ones", template)
            check(len(template.get("initContainers", [])) == (step[0] == "inject"), f"{title}: sidecars", template)
        check(after == before, f"{' '.join(way)}: in the end all is as it was", json.dumps({"before": before, "after": after}))


# --- the injector ----------------------------------------------------------------------------------------------------


class Injector:
    """A pod of the chart's Deployment, as a process."""

    def __init__(self, cluster, binary, address, deployment, token):
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        folder = cluster.folder / address
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(token)
        self.address, self.log = address, folder / "log"
        self.process = subprocess.Popen(
            [binary, *container["args"], f"--listen={address}:8443", f"--admin={address}:4001", f"--api-server=https://{SERVER}:6443",
             f"--token-file={folder}/token", f"--ca-file={cluster.folder}/ca.crt"],
            env={"PATH": os.environ["PATH"]}, stdout=open(self.log, "w"), stderr=subprocess.STDOUT)

    def page(self, path):
        try:
            with urllib.request.urlopen(f"http://{self.address}:4001{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as answer:
            return answer.code, answer.read().decode()
        except OSError:
            return 0, ""

    def ready(self):
        if self.process.poll() is not None:
            raise SystemExit(f"the injector ended with {self.process.returncode}:\n{self.log.read_text()[-2000:]}")
        return self.page("/readyz")[0] == 200


def helmed(cluster, helm, *args):
    return subprocess.run(
        [helm, *args, "--namespace", HOME, "--kubeconfig", str(cluster.folder / "kubeconfig")],
        capture_output=True, text=True, env={**os.environ, "HOME": str(cluster.folder)})


def installed(cluster, helm):
    done = helmed(
        cluster, helm, "install", "tokengauge", str(CHART), "--create-namespace", "--set", "injector.enabled=true", "--set", "gateway.enabled=true",
        "--set", "gateway.config.upstreams.openai.url=https://api.openai.com")
    check(done.returncode == 0, "helm installs the chart", done.stderr)
    if done.returncode != 0:
        print(done.stderr)
        raise SystemExit(1)
    status, _, deployment = cluster.ask("GET", f"/apis/apps/v1/namespaces/{HOME}/deployments/{INJECTOR}")
    check(status == 200 and deployment["spec"]["replicas"] == 2, "the injector has two replicas", deployment)
    return deployment


def endpoints(cluster, addresses):
    """What the controller manager would write for the chart's Service."""
    service = cluster.ask("GET", f"/api/v1/namespaces/{HOME}/services/{INJECTOR}")[2]
    port = service["spec"]["ports"][0]
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": f"{INJECTOR}-1", "labels": {"kubernetes.io/service-name": INJECTOR}},
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
        "ports": [{"name": port.get("name", ""), "port": 8443, "protocol": "TCP"}],
    }
    place = f"/apis/discovery.k8s.io/v1/namespaces/{HOME}/endpointslices"
    cluster.ask("DELETE", f"{place}/{INJECTOR}-1")
    status, _, said = cluster.create(place, slice_)
    check(status == 201, "the Service has its endpoints", said)


def token(cluster):
    account = cluster.ask("GET", f"/apis/apps/v1/namespaces/{HOME}/deployments/{INJECTOR}")[2]["spec"]["template"]["spec"]["serviceAccountName"]
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    status, _, said = cluster.create(f"/api/v1/namespaces/{HOME}/serviceaccounts/{account}/token", asked)
    check(status == 201, "the chart's ServiceAccount has a token", said)
    return said["status"]["token"]


def narrow(cluster, held):
    """What the chart's roles allow is what the injector needs, and nothing else."""
    secrets = f"/api/v1/namespaces/{HOME}/secrets"
    cluster.create(secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "somebodys"}, "stringData": {"a": "b"}})
    for method, path in [
        ("GET", secrets), ("GET", f"{secrets}/somebodys"), ("GET", "/api/v1/secrets"), ("GET", "/api/v1/pods"), ("DELETE", f"{secrets}/somebodys"),
        ("GET", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"),
        ("DELETE", f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{INJECTOR}"),
        ("GET", "/api/v1/namespaces"),
    ]:
        status, _, said = cluster.ask(method, path, token=held)
        check(status == 403, f"the injector may not {method} {path}", said)


RESTRICTED = {"runAsNonRoot": True, "runAsUser": 1000, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}


def pod(name, annotations=None, labels=None, **container):
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {f"tokengauge.dev/{key}": value for key, value in (annotations or {}).items()}, "labels": labels or {}},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app:1", "securityContext": RESTRICTED, **container}]},
    }


def sidecar(said):
    return next((c for c in said.get("spec", {}).get("initContainers", []) if c["name"] == "tokengauge"), None)


def without_defaults(said, wanted):
    """What of the stored `said` was asked for by `wanted`: the API server fills in the rest."""
    if isinstance(wanted, dict):
        return {key: without_defaults(said.get(key), value) for key, value in wanted.items()} if isinstance(said, dict) else said
    if isinstance(wanted, list) and isinstance(said, list) and len(said) == len(wanted):
        return [without_defaults(one, other) for one, other in zip(said, wanted)]
    return said


def by_hand(binary, wanted, folder):
    """The same pod by `tokengauge inject`."""
    done = subprocess.run([binary, "inject", "-"], input=yaml.safe_dump(wanted), capture_output=True, text=True, cwd=folder)
    return yaml.safe_load(done.stdout) if done.returncode == 0 else done.stderr


def admitted(cluster, binary):
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    make_namespace(cluster, "team", {"tokengauge.dev/inject": "enabled", **labels})
    make_namespace(cluster, "others", labels)
    place = PLACES["v1", "Pod"]

    engine = pod("engine", {"mode": "inbound", "provider": "vllm"}, ports=[{"name": "http", "containerPort": 8000}])
    status, warnings, said = cluster.create(place.format("team"), engine)
    check(status == 201 and sidecar(said), "an engine's pod has the sidecar", f"{status} {warnings} {said}")
    wanted = by_hand(binary, engine, cluster.folder)
    check(isinstance(wanted, dict) and without_defaults(said["spec"], wanted["spec"]) == wanted["spec"],
          "the webhook makes of it what tokengauge inject makes of it", json.dumps({"is": said.get("spec"), "wanted": wanted}))
    if sidecar(said):
        check(sidecar(said).get("restartPolicy") == "Always", "it is a native sidecar", sidecar(said))

    app = pod("app", {"mode": "outbound"})
    status, warnings, said = cluster.create(place.format("team"), app)
    environment = {entry["name"]: entry.get("value") for entry in said.get("spec", {}).get("containers", [{}])[0].get("env", [])}
    check(status == 201 and sidecar(said) and "OPENAI_BASE_URL" in environment, "an application's pod has the sidecar and its variable", f"{status} {warnings} {said}")

    status, _, said = cluster.create(place.format("others"), pod("app", {"mode": "outbound"}))
    check(status == 201 and not sidecar(said), "a namespace that has not opted in is left alone", said)
    status, _, said = cluster.create(place.format("team"), pod("quiet", {"mode": "outbound", "inject": "disabled"}))
    check(status == 201 and not sidecar(said), "a pod that has opted out is left alone", said)
    status, warnings, said = cluster.create(place.format("team"), pod("typo", {"mode": "outbound", "upsteam": "https://api.openai.com"}))
    check(status == 201 and not sidecar(said), "what is refused is let through as it was", f"{status} {said}")
    check(any("upstream" in warning for warning in warnings), "and whoever made it is warned, with the name that was meant", warnings)
    status, _, said = cluster.ask("GET", place.format("team") + "/app")
    again = {**said, "metadata": {"name": "again", "annotations": said["metadata"]["annotations"]}, "status": None}
    again["spec"].pop("nodeName", None)
    status, _, said = cluster.create(place.format("team"), again)
    check(status == 201 and len(said["spec"]["initContainers"]) == 1, "a pod that has it already keeps one", f"{status} {said}")


def reviews(injectors):
    """How many reviews all injectors together have answered, by outcome."""
    counted = {}
    for injector in injectors:
        for labels, value in re.findall(r"^tokengauge_injector_reviews_total(\{.*\}) (\S+)", injector.page("/metrics")[1], re.M):
            outcome = re.search(r'outcome="([^"]*)"', labels).group(1)
            counted[outcome] = counted.get(outcome, 0) + float(value)
    return counted


def told(cluster, injectors, before):
    events = until(lambda: [event for event in cluster.ask("GET", "/api/v1/namespaces/team/events")[2].get("items", []) if "efused" in event["reason"]], 20)
    check(events, "a refusal is an event", cluster.ask("GET", "/api/v1/namespaces/team/events")[2])
    counted = {outcome: count - before.get(outcome, 0) for outcome, count in reviews(injectors).items()}
    check((counted.get("injected"), counted.get("refused")) == (2, 1), "what was injected and what was refused is counted", counted)


def configuration(cluster):
    return cluster.ask("GET", f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{INJECTOR}")[2]


def repaired(cluster, binary):
    place = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{INJECTOR}"
    right = configuration(cluster)["webhooks"][0]["clientConfig"]["caBundle"]
    wrong = base64.b64encode((cluster.folder / "ca.crt").read_bytes()).decode()
    patch = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": wrong}]
    status, _, said = cluster.ask("PATCH", place, patch, content="application/json-patch+json")
    check(status == 200, "somebody breaks the certificate authority of the webhook", said)
    status, _, said = cluster.create(PLACES["v1", "Pod"].format("team"), pod("meanwhile", {"mode": "outbound"}))
    check(status == 201, "pods pass while the API server cannot trust the webhook", said)
    mended = until(lambda: configuration(cluster)["webhooks"][0]["clientConfig"]["caBundle"] == right, 120)
    check(mended, "the injector puts it right", configuration(cluster)["webhooks"][0]["clientConfig"]["caBundle"][:80])

    def injected():
        name = f"after-{int(time.monotonic() * 1000)}"
        said = cluster.create(PLACES["v1", "Pod"].format("team"), pod(name, {"mode": "outbound"}))[2]
        return sidecar(said)

    check(until(injected, 60), "and pods have their sidecar again", "")


def gone(cluster, injectors):
    """One of two goes as the kubelet ends it, then the other is killed."""
    first, last = injectors
    endpoints(cluster, [last.address])
    first.process.send_signal(signal.SIGTERM)
    status = first.process.wait(40)
    check(status == 0, "a replica ends well", first.log.read_text()[-1000:])

    def injected():
        name = f"one-{int(time.monotonic() * 1000)}"
        return sidecar(cluster.create(PLACES["v1", "Pod"].format("team"), pod(name, {"mode": "outbound"}))[2])

    check(until(injected, 30), "the other one serves", last.log.read_text()[-1000:])
    last.process.kill()
    last.process.wait()
    status, _, said = cluster.create(PLACES["v1", "Pod"].format("team"), pod("alone", {"mode": "outbound"}))
    check(status == 201 and not sidecar(said), "without an injector pods pass as they are", said)


def changed_and_taken_away(cluster, helm):
    """What no upgrade can do is said, and an uninstall leaves nothing that could stand in a pod's way."""
    upgrade = ["upgrade", "tokengauge", str(CHART), "--reuse-values", "--set"]
    done = helmed(cluster, helm, *upgrade, "nameOverride=gauge")
    check(done.returncode != 0 and "Set nameOverride=tokengauge" in done.stderr, "another name to select pods by is refused with a remedy", done.stderr)
    done = helmed(cluster, helm, *upgrade, "gateway.strategy.type=Recreate")
    check(done.returncode == 0, "a Deployment may be told to delete its pods first", done.stderr)
    done = helmed(cluster, helm, *upgrade, "injector.webhook.failurePolicy=Fail")
    check(done.returncode == 0, "the webhook may be told to fail", done.stderr)
    status, _, said = cluster.create(PLACES["v1", "Pod"].format("team"), pod("held", {"mode": "outbound"}))
    check(status == 500, "then no pod starts without an injector", f"{status} {said}")
    done = helmed(cluster, helm, "uninstall", "tokengauge")
    check(done.returncode == 0, "helm uninstalls the chart", done.stderr)
    for (version, kind), place in {**WIDE, **PLACES}.items():
        where = place.format(HOME) if (version, kind) in PLACES else place
        names = {it["metadata"]["name"] for it in cluster.ask("GET", where)[2]["items"]}
        left = {name for name in names if name.startswith("tokengauge")}
        wanted = {f"{INJECTOR}-certificate"} if kind == "Secret" else set()
        check(left == wanted, f"after it there is no {kind} but what the chart's page names", left)
    ended = lambda: cluster.create(PLACES["v1", "Pod"].format("team"), pod(f"free-{time.monotonic_ns()}", {"mode": "outbound"}))[0] == 201
    check(until(ended, 30), "and pods start again")


def main():
    cli = argparse.ArgumentParser()
    for name in ("binary", "apiserver", "helm"):
        cli.add_argument(f"--{name}", required=True)
    said = cli.parse_args()
    binary, apiserver, helm = (str(pathlib.Path(path).resolve()) for path in (said.binary, said.apiserver, said.helm))
    enter(NETWORK)
    loopback(SERVER, *PODS)
    injectors = []
    with tempfile.TemporaryDirectory() as folder:
        # A webhook's Service is found by its endpoints: there is no kube-proxy here.
        cluster = ControlPlane(pathlib.Path(folder), apiserver, ["--enable-aggregator-routing=true"])
        try:
            cluster.await_ready()
            print(subprocess.run([apiserver, "--version"], capture_output=True, text=True).stdout.strip())
            manifests(cluster)
            drawn(cluster, helm)
            what_runs(cluster, binary)
            make_namespace(cluster, "put-back", {})
            put_back.rehearse(binary, cluster.kubectl, check, "put-back")
            deployment = installed(cluster, helm)
            held = token(cluster)
            injectors = [Injector(cluster, binary, address, deployment, held) for address in PODS]
            for injector in injectors:
                check(until(injector.ready, 60), "an injector is ready", injector.log.read_text()[-2000:])
            bundle = configuration(cluster)["webhooks"][0]["clientConfig"].get("caBundle")
            check(bundle, "the webhook has its certificate authority", configuration(cluster))
            narrow(cluster, held)
            endpoints(cluster, PODS)
            # The API server hears of endpoints and of the configuration a moment later.
            probe = lambda: sidecar(cluster.create("/api/v1/namespaces/warm/pods", pod(f"p{time.monotonic_ns()}", {"mode": "outbound"}), dry=True)[2])
            make_namespace(cluster, "warm", {"tokengauge.dev/inject": "enabled"})
            check(until(probe, 60), "the API server asks the injector", injectors[0].log.read_text()[-2000:])
            before = reviews(injectors)
            admitted(cluster, binary)
            told(cluster, injectors, before)
            repaired(cluster, binary)
            gone(cluster, injectors)
            changed_and_taken_away(cluster, helm)
        finally:
            for injector in injectors:
                injector.process.kill()
            cluster.stop()
            if failures:
                for injector in injectors:
                    print(f"--- {injector.address}\n{injector.log.read_text()[-1500:]}")
    print(f"{passed} passed, {len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
