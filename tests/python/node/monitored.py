"""The chart's monitors and rules and the monitor of deploy/kubernetes, read by the Prometheus Operator and its Prometheus."""
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
# The label by which Prometheus selects its monitors, as in MONITOR.
LABELS = {"release": "kube-prometheus-stack"}
# A separate namespace: scaling.py creates a Service in `monitoring` with the name that the operator uses.
NAMESPACE = "operated"
CALLS = 10
# In seconds. Groups with a longer interval may still wait for their first evaluation.
SOON = 60
# The operator reports an invalid object as an event with this reason.
REFUSED = "InvalidConfiguration"


def monitored(node, pods, args, tally):
    """Each pod is exactly one target, under the job name that the alerts expect, for every kind of monitor. Every rule is evaluated."""
    with scene("gateway", node, pods, args) as one, scene("models", node, pods, args) as other:
        store = Prometheus(node, pods, args)
        vendor = shapes.vendor(node, args.binary, 9100)
        other.apply(shapes.inbound(other.otlp, replicas=1))
        other.await_ready(1)
        done, wrong = charted(node, args, vendor, one.otlp, "install", podMonitor={"enabled": True})
        tally.check("monitored: helm installs the chart with its monitors and rules", done, wrong or one.describe_state())
        all_pods = {*of_gateway(pods), *of_models(pods)}
        tally.check("monitored: with PodMonitors each pod is one target, under its job", store.has(lambda: store.targets() == sorted(all_pods)), store.targets())

        calls(one, "tokengauge", tally)
        calls(other, "vllm", tally)
        finished = lambda: store.ask('sum by (job, namespace) (tokengauge_requests_finished_total)', "job", "namespace")
        wanted = {("tokengauge", "gateway"): CALLS, ("tokengauge", "models"): CALLS}
        tally.check("monitored: Prometheus has the requests of both services", one.wait(lambda: finished() == wanted), finished())

        rules = {(group["name"], rule.get("alert") or rule["record"]) for path in (ROOT / "alerts").glob("*.rules.yaml")
                 for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]}
        store.has(lambda: store.rules() and not store.due())
        found = store.rules()
        tally.check("monitored: Prometheus has every rule of alerts/", {(group, rule["name"]) for group, rule in found} == rules, f"{len(found)} of {len(rules)}")
        failing = [(rule["name"], rule["health"], rule.get("lastError")) for _, rule in found if rule["health"] == "err"]
        tally.check("monitored: each rule that is due is evaluated without an error", found and not failing and not store.due(), failing or store.due())
        firing = [rule["name"] for _, rule in found if rule.get("state") == "firing"]
        tally.check("monitored: no alert fires after a few successful requests", not firing, firing)
        recorded = {rule["name"] for _, rule in found if rule["type"] == "recording"}
        tally.check("monitored: recording rules produce series", any(store.ask(f'count({{__name__="{name}"}})') for name in recorded), recorded)

        done, wrong = charted(node, args, vendor, one.otlp, "upgrade", podMonitor={"enabled": True}, serviceMonitor={"enabled": True})
        tally.check("monitored: helm upgrades the release to ServiceMonitors", done, wrong)
        pools = ["podMonitor/gateway/tokengauge-sidecars/0", "serviceMonitor/gateway/tokengauge-injector/0", "serviceMonitor/gateway/tokengauge/0"]
        tally.check("monitored: Prometheus has the pools of the ServiceMonitors", store.has(lambda: store.pools() == pools), f"{store.pools()}\n{store.made()}")
        tally.check("monitored: each pod is one target again", one.wait(lambda: store.targets() == sorted(all_pods)), store.targets())

        done, wrong = helm(node, args, "uninstall", "tokengauge", "--wait")
        tally.check("monitored: helm uninstalls the release", done, wrong)
        output = other.apply(MONITOR.read_text())
        tally.check("monitored: the monitor of deploy/kubernetes is applied without a warning", not output, output)
        by_it = lambda: store.pools() == ["podMonitor/models/tokengauge/0"] and store.targets() == of_models(pods)
        tally.check("monitored: with this monitor a pod with a sidecar is one target", store.has(by_it), store.targets())
        refused = [event["message"] for event in json.loads(node.kubectl("get", "events", "--all-namespaces", "--output=json")[0])["items"]
                   if event["reason"] == REFUSED]
        tally.check("monitored: the operator rejected nothing", not refused, refused)
        evaluated = sum(rule["health"] == "ok" for _, rule in found)
        print(f"     monitored: {len(all_pods)} targets, {evaluated} of {len(found)} rules evaluated", flush=True)


def charted(node, args, vendor, otlp, verb, **monitors):
    """Installs the chart's gateway and injector, with rules and these monitors."""
    values = shapes.chart(vendor, otlp)
    values["monitoring"] = {"labels": LABELS, "interval": "2s", "scrapeTimeout": "1s", "prometheusRule": {"enabled": True}, **monitors}
    path = node.folder / "monitored.yaml"
    path.write_text(yaml.safe_dump(values))
    return helm(node, args, verb, "tokengauge", str(ROOT / "deploy/helm/tokengauge"), "--values", str(path), "--wait", "--timeout=180s")


def of_gateway(pods):
    """Returns job, namespace and name of each pod of the chart."""
    found = [pod["metadata"] for pod in pods.alive("gateway") if ready(pod)]
    jobs = {"gateway": "tokengauge", "injector": "tokengauge-injector"}
    return sorted((jobs[meta["labels"]["app.kubernetes.io/component"]], "gateway", meta["name"]) for meta in found)


def of_models(pods):
    return sorted(("tokengauge", "models", pod["metadata"]["name"]) for pod in pods.alive("models"))


def calls(scene, service, tally):
    address = scene.address(service)
    clients = scene.clients(lambda: address, GAP)
    answers = [scene.spawn(clients.stream(SHORT)).result(rig.WAIT_LIMIT) for _ in range(CALLS)]
    tally.check(f"monitored: requests through {service} succeed", all(answer.is_complete for answer in answers), [answer.error for answer in answers])


class Prometheus:
    """The operator, installed from its own manifests, and a Prometheus object that selects monitors by LABELS in all namespaces."""

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
        """Waits until `holds` is true, and returns whether it became true. The configuration of Prometheus is in a Secret.

        The kubelet syncs a pod's Secrets about once a minute, and at once when the pod changes. The pod's config-reloader polls every three
        minutes if it misses the change."""
        self.node.kubectl("--namespace", NAMESPACE, "annotate", "--overwrite", "pod", "prometheus-main-0", f"changed={time.monotonic()}")
        return until(holds, 240)

    def made(self):
        """Returns the existing monitors and the log of Prometheus, for a failure message."""
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
        """Returns job, namespace and pod of each target, with duplicates. Returns nothing while a target is not up."""
        found = self.active()
        known = [tuple(target["labels"].get(name) for name in ("job", "namespace", "pod")) for target in found]
        return sorted(known) if all(target["health"] == "up" for target in found) else []

    def pools(self):
        return sorted({target["scrapePool"] for target in self.active()})

    def ask(self, query, *labels):
        found = self.get(f"query?query={urllib.parse.quote(query)}")["result"]
        return {tuple(series["metric"].get(label) for label in labels): float(series["value"][1]) for series in found}

    def due(self):
        """Returns rules with an interval of a minute or less that are not yet evaluated."""
        with contextlib.suppress(OSError):
            return [rule["name"] for group in self.get("rules")["groups"] if group["interval"] <= SOON for rule in group["rules"] if rule["health"] == "unknown"]
        return [None]

    def rules(self):
        """Returns each rule with the name of its group."""
        with contextlib.suppress(OSError):
            return [(group["name"], rule) for group in self.get("rules")["groups"] for rule in group["rules"]]
        return []
