#!/usr/bin/env python3
"""Tests the chart's injector, and every manifest, with a real API server.

    cluster_check.py --binary TOKENGAUGE --apiserver KUBE_APISERVER --helm HELM

etcd and kube-apiserver run in their own network namespace. There are no other cluster components, so pods are admitted but never
scheduled. helm installs the chart. This script runs the containers of its Deployment as processes: two injectors with the chart's
arguments and a token of the chart's ServiceAccount. It also writes the EndpointSlice of the chart's Service. Then it creates pods as a user
would. Needs root; exit status 77 without namespaces.
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

# The image of sidecars, the same as in the chart. No sidecar is started.
os.environ.setdefault("TOKENGAUGE_IMAGE", "ghcr.io/example/tokengauge:0.1.0")

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
    status, _, result = cluster.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    assert status in (201, 409), result
    # The controller manager would create this ServiceAccount. Without one no pod is admitted.
    cluster.create(f"/api/v1/namespaces/{name}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})


# --- manifests -------------------------------------------------------------------------------------------------------

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
# Cluster-scoped kinds.
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
    """Returns the pod that a workload creates, or None."""
    spec = document.get("spec") or {}
    if document["kind"] == "Pod":
        return {"metadata": document["metadata"], "spec": spec}
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    return spec.get("template") if isinstance(spec.get("template"), dict) and "spec" in spec["template"] else None


def accepted(cluster, name, text, restricted):
    """Checks with a dry run that every object and its pod are accepted. With `restricted`, pods must meet that standard."""
    namespace = "restricted" if restricted else "privileged"
    for document in documents(text):
        identity = document["apiVersion"], document["kind"]
        place = PLACES.get(identity) or WIDE.get(identity)
        if place is None:
            continue
        title = f"{name}: {document['kind']} {document['metadata'].get('name')}"
        if identity in PLACES:
            document["metadata"]["namespace"] = namespace
        status, warnings, result = cluster.create(place.format(namespace), document, dry=True)
        check(status == 201, f"{title} is accepted", f"{status} {result if status != 201 else ''}")
        check(not warnings, f"{title} is accepted without a warning", warnings)
        pod = pod_of(document)
        if pod and document["kind"] != "Pod":
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**pod.get("metadata", {}), "name": "it", "namespace": namespace}, "spec": {**pod["spec"]}}
            # The referenced object does not exist here.
            for named in ("serviceAccountName", "serviceAccount", "priorityClassName"):
                pod["spec"].pop(named, None)
            status, warnings, result = cluster.create(PLACES["v1", "Pod"].format(namespace), pod, dry=True)
            check(status == 201, f"{title}: its pod is admitted", f"{status} {result if status != 201 else ''}")
            check(not warnings, f"{title}: its pod is admitted without a warning", warnings)


def manifests(cluster):
    make_namespace(cluster, "restricted", {"pod-security.kubernetes.io/enforce": "restricted"})
    make_namespace(cluster, "privileged", {"pod-security.kubernetes.io/enforce": "privileged"})
    loose = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "loose"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    status, _, result = cluster.create(PLACES["v1", "Pod"].format("restricted"), loose, dry=True)
    check(status == 403 and "restricted" in str(result), "a pod that violates the standard is rejected", result)
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
    check(built > 0, "at least one manifest was built", built)
    goldens = sorted(ROOT.glob("tests/fixtures/kube/injected/**/*.yaml"))
    for file in goldens:
        accepted(cluster, str(file.relative_to(ROOT)), file.read_text(), restricted=False)
    check(goldens, "there are workloads with an injected sidecar")


def drawn(cluster, helm, count=10):
    """Checks that the API server accepts the chart with random values."""
    tried = 0
    for number in range(1000):
        draw = Draw(number, "cluster")
        draw.render(helm)
        if draw.wrong is None:
            accepted(cluster, f"draw {number}", draw.text, restricted=True)
            tried += 1
        if tried == count:
            return
    check(False, f"{count} draws were rendered", tried)


# --- sidecars in live objects ----------------------------------------------------------------------------------------


def live_objects(cluster, binary):
    """Reads live objects, changes them and puts them back, as in docs/how-to/kubernetes.md, for each way to create them."""
    workload = (ROOT / "deploy/kubernetes/inbound/workload.yaml").read_text()
    for way in (["create"], ["apply"], ["apply", "--server-side"]):
        namespace = f"by-{'-'.join(way).replace('--', '')}"
        make_namespace(cluster, namespace, {})
        _, wrong = cluster.kubectl(*way, "-n", namespace, "-f", "-", given=workload)
        read = lambda: cluster.kubectl("get", "deployments,services", "-n", namespace, "-o", "yaml")[0]
        before = {it["metadata"]["name"] + it["kind"]: it["spec"] for it in documents(read())}
        for step, wanted in [
            (["inject", "--mode", "inbound", "--shutdown-grace-period", "600s"], 630),
            (["inject", "--mode", "inbound"], 330),
            (["uninject"], 30),
        ]:
            title = f"{' '.join(way)}, then {' '.join(step)}"
            made = subprocess.run([binary, *step, "-"], input=read(), capture_output=True, text=True)
            done, wrong = cluster.kubectl("replace", "-f", "-", given=made.stdout)
            check(done is not None, f"{title}: is accepted", wrong)
            after = {it["metadata"]["name"] + it["kind"]: it["spec"] for it in documents(read())}
            template = after["vllmDeployment"]["template"]["spec"]
            check(template["terminationGracePeriodSeconds"] == wanted, f"{title}: the latest settings apply", template)
            check(len(template.get("initContainers", [])) == (step[0] == "inject"), f"{title}: sidecars", template)
        check(after == before, f"{' '.join(way)}: the object is restored at the end", json.dumps({"before": before, "after": after}))


# --- the injector ----------------------------------------------------------------------------------------------------


class Injector:
    """A pod of the chart's Deployment, run as a process."""

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
            raise SystemExit(f"the injector exited with status {self.process.returncode}:\n{self.log.read_text()[-2000:]}")
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
    """Writes the EndpointSlice that a controller would write for the chart's Service."""
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
    status, _, result = cluster.create(place, slice_)
    check(status == 201, "the Service has its endpoints", result)


def token(cluster):
    account = cluster.ask("GET", f"/apis/apps/v1/namespaces/{HOME}/deployments/{INJECTOR}")[2]["spec"]["template"]["spec"]["serviceAccountName"]
    token_request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    status, _, result = cluster.create(f"/api/v1/namespaces/{HOME}/serviceaccounts/{account}/token", token_request)
    check(status == 201, "the chart's ServiceAccount has a token", result)
    return result["status"]["token"]


def check_permissions(cluster, held):
    """Checks that the chart's roles allow what the injector needs, and nothing else."""
    secrets = f"/api/v1/namespaces/{HOME}/secrets"
    cluster.create(secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "somebodys"}, "stringData": {"a": "b"}})
    for method, path in [
        ("GET", secrets), ("GET", f"{secrets}/somebodys"), ("GET", "/api/v1/secrets"), ("GET", "/api/v1/pods"), ("DELETE", f"{secrets}/somebodys"),
        ("GET", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"),
        ("DELETE", f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{INJECTOR}"),
        ("GET", "/api/v1/namespaces"),
    ]:
        status, _, result = cluster.ask(method, path, token=held)
        check(status == 403, f"the injector is not allowed to {method} {path}", result)


RESTRICTED = {"runAsNonRoot": True, "runAsUser": 1000, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}


def pod(name, annotations=None, labels=None, **container):
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {f"tokengauge.dev/{key}": value for key, value in (annotations or {}).items()}, "labels": labels or {}},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app:1", "securityContext": RESTRICTED, **container}]},
    }


def sidecar(result):
    return next((c for c in result.get("spec", {}).get("initContainers", []) if c["name"] == "tokengauge"), None)


def without_defaults(result, wanted):
    """Removes the fields that the API server added to `result` and that `wanted` does not have."""
    if isinstance(wanted, dict):
        return {key: without_defaults(result.get(key), value) for key, value in wanted.items()} if isinstance(result, dict) else result
    if isinstance(wanted, list) and isinstance(result, list) and len(result) == len(wanted):
        return [without_defaults(one, other) for one, other in zip(result, wanted)]
    return result


def by_hand(binary, wanted, folder):
    """Returns the same pod with a sidecar by `tokengauge inject`."""
    done = subprocess.run([binary, "inject", "-"], input=yaml.safe_dump(wanted), capture_output=True, text=True, cwd=folder)
    return yaml.safe_load(done.stdout) if done.returncode == 0 else done.stderr


def admitted(cluster, binary):
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    make_namespace(cluster, "team", {"tokengauge.dev/inject": "enabled", **labels})
    make_namespace(cluster, "others", labels)
    place = PLACES["v1", "Pod"]

    engine = pod("engine", {"mode": "inbound", "provider": "vllm"}, ports=[{"name": "http", "containerPort": 8000}])
    status, warnings, result = cluster.create(place.format("team"), engine)
    check(status == 201 and sidecar(result), "an engine's pod has the sidecar", f"{status} {warnings} {result}")
    wanted = by_hand(binary, engine, cluster.folder)
    check(isinstance(wanted, dict) and without_defaults(result["spec"], wanted["spec"]) == wanted["spec"],
          "the webhook changes the pod like tokengauge inject", json.dumps({"is": result.get("spec"), "wanted": wanted}))
    if sidecar(result):
        check(sidecar(result).get("restartPolicy") == "Always", "the sidecar is native", sidecar(result))

    app = pod("app", {"mode": "outbound"})
    status, warnings, result = cluster.create(place.format("team"), app)
    environment = {entry["name"]: entry.get("value") for entry in result.get("spec", {}).get("containers", [{}])[0].get("env", [])}
    check(status == 201 and sidecar(result) and "OPENAI_BASE_URL" in environment, "an application's pod has the sidecar and its variable", f"{status} {warnings} {result}")

    status, _, result = cluster.create(place.format("others"), pod("app", {"mode": "outbound"}))
    check(status == 201 and not sidecar(result), "a namespace without opt-in is unchanged", result)
    status, _, result = cluster.create(place.format("team"), pod("quiet", {"mode": "outbound", "inject": "disabled"}))
    check(status == 201 and not sidecar(result), "a pod with opt-out is unchanged", result)
    status, warnings, result = cluster.create(place.format("team"), pod("typo", {"mode": "outbound", "upsteam": "https://api.openai.com"}))
    check(status == 201 and not sidecar(result), "a pod with invalid settings is admitted unchanged", f"{status} {result}")
    check(any("upstream" in warning for warning in warnings), "its creator gets a warning that suggests the correct name", warnings)
    status, _, result = cluster.ask("GET", place.format("team") + "/app")
    again = {**result, "metadata": {"name": "again", "annotations": result["metadata"]["annotations"]}, "status": None}
    again["spec"].pop("nodeName", None)
    status, _, result = cluster.create(place.format("team"), again)
    check(status == 201 and len(result["spec"]["initContainers"]) == 1, "a pod that has a sidecar does not get another", f"{status} {result}")


def reviews(injectors):
    """Returns the number of reviews of all injectors by outcome."""
    counted = {}
    for injector in injectors:
        for labels, value in re.findall(r"^tokengauge_injector_reviews_total(\{.*\}) (\S+)", injector.page("/metrics")[1], re.M):
            outcome = re.search(r'outcome="([^"]*)"', labels).group(1)
            counted[outcome] = counted.get(outcome, 0) + float(value)
    return counted


def check_reporting(cluster, injectors, before):
    events = until(lambda: [event for event in cluster.ask("GET", "/api/v1/namespaces/team/events")[2].get("items", []) if "efused" in event["reason"]], 20)
    check(events, "a refused injection is recorded as an event", cluster.ask("GET", "/api/v1/namespaces/team/events")[2])
    counted = {outcome: count - before.get(outcome, 0) for outcome, count in reviews(injectors).items()}
    check((counted.get("injected"), counted.get("refused")) == (2, 1), "injected and refused pods are counted", counted)


def configuration(cluster):
    return cluster.ask("GET", f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{INJECTOR}")[2]


def check_ca_repair(cluster, binary):
    place = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{INJECTOR}"
    right = configuration(cluster)["webhooks"][0]["clientConfig"]["caBundle"]
    wrong = base64.b64encode((cluster.folder / "ca.crt").read_bytes()).decode()
    patch = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": wrong}]
    status, _, result = cluster.ask("PATCH", place, patch, content="application/json-patch+json")
    check(status == 200, "the webhook's certificate authority is replaced with a wrong one", result)
    status, _, result = cluster.create(PLACES["v1", "Pod"].format("team"), pod("meanwhile", {"mode": "outbound"}))
    check(status == 201, "pods are admitted while the API server does not trust the webhook", result)
    restored = until(lambda: configuration(cluster)["webhooks"][0]["clientConfig"]["caBundle"] == right, 120)
    check(restored, "the injector restores the certificate authority", configuration(cluster)["webhooks"][0]["clientConfig"]["caBundle"][:80])

    def injected():
        name = f"after-{int(time.monotonic() * 1000)}"
        result = cluster.create(PLACES["v1", "Pod"].format("team"), pod(name, {"mode": "outbound"}))[2]
        return sidecar(result)

    check(until(injected, 60), "pods get their sidecar again", "")


def gone(cluster, injectors):
    """Ends one of two injectors like the kubelet, then kills the other."""
    first, last = injectors
    endpoints(cluster, [last.address])
    first.process.send_signal(signal.SIGTERM)
    status = first.process.wait(40)
    check(status == 0, "a replica exits cleanly", first.log.read_text()[-1000:])

    def injected():
        name = f"one-{int(time.monotonic() * 1000)}"
        return sidecar(cluster.create(PLACES["v1", "Pod"].format("team"), pod(name, {"mode": "outbound"}))[2])

    check(until(injected, 30), "the other replica serves requests", last.log.read_text()[-1000:])
    last.process.kill()
    last.process.wait()
    status, _, result = cluster.create(PLACES["v1", "Pod"].format("team"), pod("alone", {"mode": "outbound"}))
    check(status == 201 and not sidecar(result), "without an injector pods are admitted unchanged", result)


def check_upgrade_and_uninstall(cluster, helm):
    """Checks that impossible upgrades are rejected with a message, and that after an uninstall nothing blocks pods."""
    upgrade = ["upgrade", "tokengauge", str(CHART), "--reuse-values", "--set"]
    done = helmed(cluster, helm, *upgrade, "nameOverride=gauge")
    check(done.returncode != 0 and "Set nameOverride=tokengauge" in done.stderr, "a changed pod selector is rejected with a hint", done.stderr)
    done = helmed(cluster, helm, *upgrade, "gateway.strategy.type=Recreate")
    check(done.returncode == 0, "the strategy Recreate can be set on a Deployment", done.stderr)
    done = helmed(cluster, helm, *upgrade, "injector.webhook.failurePolicy=Fail")
    check(done.returncode == 0, "the webhook's failure policy can be set to Fail", done.stderr)
    status, _, result = cluster.create(PLACES["v1", "Pod"].format("team"), pod("held", {"mode": "outbound"}))
    check(status == 500, "with this policy no pod starts without an injector", f"{status} {result}")
    done = helmed(cluster, helm, "uninstall", "tokengauge")
    check(done.returncode == 0, "helm uninstalls the chart", done.stderr)
    for (version, kind), place in {**WIDE, **PLACES}.items():
        where = place.format(HOME) if (version, kind) in PLACES else place
        names = {it["metadata"]["name"] for it in cluster.ask("GET", where)[2]["items"]}
        left = {name for name in names if name.startswith("tokengauge")}
        wanted = {f"{INJECTOR}-certificate"} if kind == "Secret" else set()
        check(left == wanted, f"after the uninstall only the documented {kind} objects remain", left)
    ended = lambda: cluster.create(PLACES["v1", "Pod"].format("team"), pod(f"free-{time.monotonic_ns()}", {"mode": "outbound"}))[0] == 201
    check(until(ended, 30), "pods start again after the uninstall")


def main():
    cli = argparse.ArgumentParser()
    for name in ("binary", "apiserver", "helm"):
        cli.add_argument(f"--{name}", required=True)
    args = cli.parse_args()
    binary, apiserver, helm = (str(pathlib.Path(path).resolve()) for path in (args.binary, args.apiserver, args.helm))
    enter(NETWORK)
    loopback(SERVER, *PODS)
    injectors = []
    with tempfile.TemporaryDirectory() as folder:
        # Without kube-proxy, the API server resolves a webhook's Service by its endpoints.
        cluster = ControlPlane(pathlib.Path(folder), apiserver, ["--enable-aggregator-routing=true"])
        try:
            cluster.await_ready()
            print(subprocess.run([apiserver, "--version"], capture_output=True, text=True).stdout.strip())
            manifests(cluster)
            drawn(cluster, helm)
            live_objects(cluster, binary)
            make_namespace(cluster, "put-back", {})
            put_back.check_put_back(binary, cluster.kubectl, check, "put-back")
            deployment = installed(cluster, helm)
            held = token(cluster)
            injectors = [Injector(cluster, binary, address, deployment, held) for address in PODS]
            for injector in injectors:
                check(until(injector.ready, 60), "an injector is ready", injector.log.read_text()[-2000:])
            bundle = configuration(cluster)["webhooks"][0]["clientConfig"].get("caBundle")
            check(bundle, "the webhook has a certificate authority", configuration(cluster))
            check_permissions(cluster, held)
            endpoints(cluster, PODS)
            # The API server sees the endpoints and the webhook configuration with a short delay.
            probe = lambda: sidecar(cluster.create("/api/v1/namespaces/warm/pods", pod(f"p{time.monotonic_ns()}", {"mode": "outbound"}), dry=True)[2])
            make_namespace(cluster, "warm", {"tokengauge.dev/inject": "enabled"})
            check(until(probe, 60), "the API server calls the injector", injectors[0].log.read_text()[-2000:])
            before = reviews(injectors)
            admitted(cluster, binary)
            check_reporting(cluster, injectors, before)
            check_ca_repair(cluster, binary)
            gone(cluster, injectors)
            check_upgrade_and_uninstall(cluster, helm)
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
