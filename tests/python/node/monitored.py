"""The chart's monitors and rules, and the monitor of deploy/kubernetes, as the Prometheus Operator and its Prometheus read them."""
import contextlib
import json
import pathlib
import subprocess
import time
import urllib.parse
import urllib.request

import yaml

import rig
from kubernetes.control_plane import until
from node import foreign, shapes
from node.scenarios import GAP, SHORT, helm, scene
from node.scene import ready

ROOT = pathlib.Path(__file__).resolve().parents[3]
MONITOR = ROOT / "deploy/kubernetes/components/pod-monitor/pod-monitor.yaml"
# By which Prometheus chooses what it reads: as in MONITOR.
LABELS = {"release": "kube-prometheus-stack"}
# Of its own: what scaling.py has in `monitoring` goes by the name of the Service that the operator makes.
NAMESPACE = "operated"
CALLS = 10
# In seconds: of groups that are evaluated more rarely the first time is not waited for.
SOON = 60
# What makes no sense to the operator is an event of this kind.
REFUSED = "InvalidConfiguration"


def monitored(node, pods, args, tally):
    """Every pod is a target once, under the job that the alerts ask for, whatever monitor names it; and every rule is evaluated."""
    with scene("gateway", node, pods, args) as one, scene("models", node, pods, args) as other:
        store = Prometheus(node, pods, args)
        vendor = shapes.vendor(node, args.binary, 9100)
        other.apply(shapes.inbound(other.otlp, replicas=1))
        other.await_ready(1)
        done, wrong = charted(node, args, vendor, one.otlp, "install", podMonitor={"enabled": True})
        tally.check("monitored: helm installs the chart with its monitors and rules", done, wrong or one.told())
        everybody = {*of_gateway(pods), *of_models(pods)}
        tally.check("monitored: by its PodMonitors each pod is a target once, under its job", store.has(lambda: store.targets() == sorted(everybody)), store.targets())

        calls(one, "tokengauge", tally)
        calls(other, "vllm", tally)
        finished = lambda: store.ask('sum by (job, namespace) (tokengauge_requests_finished_total)', "job", "namespace")
        wanted = {("tokengauge", "gateway"): CALLS, ("tokengauge", "models"): CALLS}
        tally.check("monitored: it has the calls of both", one.wait(lambda: finished() == wanted), finished())

        rules = {(group["name"], rule.get("alert") or rule["record"]) for path in (ROOT / "alerts").glob("*.rules.yaml")
                 for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]}
        store.has(lambda: store.rules() and not store.due())
        found = store.rules()
        tally.check("monitored: it has every rule of alerts/", {(group, rule["name"]) for group, rule in found} == rules, f"{len(found)} of {len(rules)}")
        ill = [(rule["name"], rule["health"], rule.get("lastError")) for _, rule in found if rule["health"] == "err"]
        tally.check("monitored: each whose turn has come is evaluated, without an error", found and not ill and not store.due(), ill or store.due())
        loud = [rule["name"] for _, rule in found if rule.get("state") == "firing"]
        tally.check("monitored: no alert fires of a few good calls", not loud, loud)
        recorded = {rule["name"] for _, rule in found if rule["type"] == "recording"}
        tally.check("monitored: recording rules have made series", any(store.ask(f'count({{__name__="{name}"}})') for name in recorded), recorded)

        done, wrong = charted(node, args, vendor, one.otlp, "upgrade", podMonitor={"enabled": True}, serviceMonitor={"enabled": True})
        tally.check("monitored: helm upgrades it to ServiceMonitors", done, wrong)
        pools = ["podMonitor/gateway/tokengauge-sidecars/0", "serviceMonitor/gateway/tokengauge-injector/0", "serviceMonitor/gateway/tokengauge/0"]
        tally.check("monitored: then by them", store.has(lambda: store.pools() == pools), f"{store.pools()}\n{store.made()}")
        tally.check("monitored: each pod is a target once again", one.wait(lambda: store.targets() == sorted(everybody)), store.targets())

        done, wrong = helm(node, args, "uninstall", "tokengauge", "--wait")
        tally.check("monitored: helm uninstalls it", done, wrong)
        said = other.apply(MONITOR.read_text())
        tally.check("monitored: the monitor of deploy/kubernetes is taken without a warning", not said, said)
        by_it = lambda: store.pools() == ["podMonitor/models/tokengauge/0"] and store.targets() == of_models(pods)
        tally.check("monitored: by it a pod with a sidecar is a target once", store.has(by_it), store.targets())
        refused = [event["message"] for event in json.loads(node.kubectl("get", "events", "--all-namespaces", "--output=json")[0])["items"]
                   if event["reason"] == REFUSED]
        tally.check("monitored: the operator refused nothing", not refused, refused)
        evaluated = sum(rule["health"] == "ok" for _, rule in found)
        print(f"     monitored: {len(everybody)} targets, {evaluated} of {len(found)} rules evaluated", flush=True)


def charted(node, args, vendor, otlp, verb, **monitors):
    """The chart's gateway and injector, with rules and these monitors."""
    values = shapes.chart(vendor, otlp)
    values["monitoring"] = {"labels": LABELS, "interval": "2s", "scrapeTimeout": "1s", "prometheusRule": {"enabled": True}, **monitors}
    path = node.folder / "monitored.yaml"
    path.write_text(yaml.safe_dump(values))
    return helm(node, args, verb, "tokengauge", str(ROOT / "deploy/helm/tokengauge"), "--values", str(path), "--wait", "--timeout=180s")


def of_gateway(pods):
    """Job, namespace and name of each pod of the chart."""
    found = [pod["metadata"] for pod in pods.alive("gateway") if ready(pod)]
    jobs = {"gateway": "tokengauge", "injector": "tokengauge-injector"}
    return sorted((jobs[meta["labels"]["app.kubernetes.io/component"]], "gateway", meta["name"]) for meta in found)


def of_models(pods):
    return sorted(("tokengauge", "models", pod["metadata"]["name"]) for pod in pods.alive("models"))


def calls(scene, service, tally):
    address = scene.address(service)
    clients = scene.clients(lambda: address, GAP)
    answers = [scene.spawn(clients.stream(SHORT)).result(rig.PATIENCE) for _ in range(CALLS)]
    tally.check(f"monitored: calls by {service} go well", all(answer.whole for answer in answers), [answer.error for answer in answers])


class Prometheus:
    """The operator as its own manifests install it, and the Prometheus that it makes of an object, which chooses by LABELS in all namespaces."""

    def __init__(self, node, pods, args):
        self.node, self.pods = node, pods
        folder = pathlib.Path(args.tools, "prometheus-operator")
        manifests = foreign.documents((folder / "bundle.yaml").read_text())
        [deployment] = [one for one in manifests if one["kind"] == "Deployment"]
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        foreign.load(node, container, folder / "operator", ["/bin/operator"])
        [reloader] = [one.partition("=")[2] for one in container["args"] if one.startswith("--prometheus-config-reloader=")]
        foreign.named(node, reloader, "/bin/prometheus-config-reloader", folder / "prometheus-config-reloader")
        program = pathlib.Path(args.tools, "prometheus3")
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
        foreign.named(node, f"quay.io/prometheus/prometheus:v{version}", "/bin/prometheus", program)
        foreign.install(node, manifests)
        foreign.install(node, self.wanted(version))
        made = until(lambda: any(ready(pod) for pod in pods.alive(NAMESPACE, "prometheus-main-")), 240)
        assert made, node.kubectl("--namespace", NAMESPACE, "describe", "pods,prometheus")[0]

    @staticmethod
    def wanted(version):
        meta = {"name": "main", "namespace": NAMESPACE}
        subject = {"kind": "ServiceAccount", "name": "main", "namespace": NAMESPACE}
        read = ["get", "list", "watch"]
        chosen = {f"{kind}{suffix}": value for kind in ("podMonitor", "serviceMonitor", "rule")
                  for suffix, value in (("Selector", {"matchLabels": LABELS}), ("NamespaceSelector", {}))}
        return [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "prometheus-main"}, "rules": [
                {"apiGroups": [""], "resources": ["services", "endpoints", "pods"], "verbs": read},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read}]},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "prometheus-main"}, "subjects": [subject],
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "prometheus-main"}},
            {"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus", "metadata": meta,
             "spec": {"version": f"v{version}", "serviceAccountName": "main", "evaluationInterval": "2s", **chosen}}]

    def has(self, holds):
        """Whether it came to hold, of what is in a Secret. A kubelet looks once a minute or so what has become of a pod's Secrets, and at once when
        the pod is changed; the pod's config-reloader, where it does not notice, every three minutes."""
        self.node.kubectl("--namespace", NAMESPACE, "annotate", "--overwrite", "pod", "prometheus-main-0", f"changed={time.monotonic()}")
        return until(holds, 240)

    def made(self):
        """The monitors there are, and what Prometheus says, for a failure."""
        monitors = self.node.kubectl("get", "--all-namespaces", "podmonitor,servicemonitor")[0]
        log = self.node.kubectl("--namespace", NAMESPACE, "logs", "--tail=20", "prometheus-main-0", "--container=prometheus")[0]
        return f"{monitors}\n{log}"

    def get(self, path):
        [pod] = [pod for pod in self.pods.alive(NAMESPACE, "prometheus-main-")]
        with urllib.request.urlopen(f"http://{pod['status']['podIP']}:9090/api/v1/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def active(self):
        with contextlib.suppress(OSError):
            return self.get("targets?state=active")["activeTargets"]
        return []

    def targets(self):
        """Job, namespace and pod of each target, as often as it is one; nothing while one of them does not answer."""
        found = self.active()
        known = [tuple(target["labels"].get(name) for name in ("job", "namespace", "pod")) for target in found]
        return sorted(known) if all(target["health"] == "up" for target in found) else []

    def pools(self):
        return sorted({target["scrapePool"] for target in self.active()})

    def ask(self, query, *labels):
        found = self.get(f"query?query={urllib.parse.quote(query)}")["result"]
        return {tuple(series["metric"].get(label) for label in labels): float(series["value"][1]) for series in found}

    def due(self):
        """Rules that are not evaluated yet, though they are every minute or more often."""
        with contextlib.suppress(OSError):
            return [rule["name"] for group in self.get("rules")["groups"] if group["interval"] <= SOON for rule in group["rules"] if rule["health"] == "unknown"]
        return [None]

    def rules(self):
        """Each rule with the name of its group."""
        with contextlib.suppress(OSError):
            return [(group["name"], rule) for group in self.get("rules")["groups"] for rule in group["rules"]]
        return []
