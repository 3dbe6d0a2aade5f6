"""The autoscaler of Kubernetes, which follows deploy/autoscaling: Prometheus reads the pods, prometheus-adapter asks it, replicas come and go.

All of it as it is written there, but for three times that one would wait for.
"""
import contextlib
import http.client
import itertools
import pathlib
import threading
import time

import yaml

import rig
from kubernetes.control_plane import SERVER
from node import foreign, shapes
from node.scenarios import again, crossed, ended, hooks, scene
from pod.scenarios import telling, told

RECIPES = pathlib.Path(__file__).resolve().parents[3] / "deploy/autoscaling"
# The namespace of the recipes.
NAME = "llm"
MONITORING = "monitoring"
STORE, ADAPTER = 9090, 6444
# An engine that answers so many calls at a time, each for some 4 s; and so many clients, of whom all others wait.
PLACES, GAP, HEAVY, LIGHT = 4, 0.1, 24, 2
# Replicas of the gateway that there are at least, so many clients, and how many of them are for one replica: three are right for any number
# that lies by less than a fifth off, since who begins the next stream may be counted while its last one still is.
LEAST, OPEN, EACH = 2, 100, 40
# Of its vendors.
PORTS = itertools.count(9001)
# In seconds, for minutes: how long a wish for less must last, and in what time one replica goes.
STABLE, PERIOD = 10, 10
# And what the guard looks back on.
WINDOW, SOONER = "[5m]", "[20s]"


def autoscaled(node, pods, args, tally):
    """By prometheus-adapter, which the autoscaler asks."""
    followed("autoscaled", Adapter, node, pods, args, tally)


def gateway_by_adapter(node, pods, args, tally):
    """By prometheus-adapter, and by metrics-server for the CPU."""
    gateway_followed("gateway-by-adapter", Adapter, node, pods, args, tally)


def followed(title, way, node, pods, args, tally):
    """Up as calls wait, no replica lost with telemetry, down one by one when nobody waits; and no stream notices."""
    check = lambda what, *found: tally.check(f"{title}: {what}", *found)
    ours = lambda: pods.alive(NAME, "vllm-")
    with scene(NAME, node, pods, args) as one, contextlib.closing(Wishes(node, "vllm", way)) as wishes, contextlib.ExitStack() as ends:
        one.apply(shapes.inbound(one.otlp, replicas=1, simulated=f"sim-typical:slots={PLACES}"))
        one.await_ready(1)
        store = ends.enter_context(contextlib.closing(Prometheus(node, args)))
        recipe, address = ends.enter_context(contextlib.closing(way(node, args))), one.address("vllm")
        light, heavy = (one.clients(lambda: address, GAP) for _ in range(2))
        running = [one.spawn(again(light)) for _ in range(LIGHT)]
        # At first as one pod: else it could act on the first of them while the others come.
        said = one.apply(recipe.read("vllm", most=1))
        check("the recipe is taken without a warning", not said, said)
        check("it has both metrics, and nobody waits", one.wait(lambda: wishes.now.get("queue") == wishes.now.get("guard") == 0), wishes)

        running += [one.spawn(again(heavy)) for _ in range(HEAVY)]
        waiting = HEAVY + LIGHT - PLACES
        check("it sees what the engine holds back, as clients know it", one.wait(lambda: waiting - PLACES <= wishes.now.get("queue", 0) <= waiting), wishes)
        seen = wishes.now.get("queue")
        one.apply(recipe.read("vllm"))
        check("replicas come as calls wait", one.wait(lambda: wishes.now.get("replicas") == 3), wishes)
        one.await_ready(3)
        check("the guard sees that first tokens come too late", one.wait(lambda: wishes.now.get("guard") == 2), wishes)

        store.stop()
        check("without Prometheus it knows nothing", one.wait(lambda: not wishes.now.get("ScalingActive", True)), wishes)
        heavy.stopping = True
        # Longer than a wish for less would have to last.
        time.sleep(STABLE + 2 * PERIOD)
        check("and takes no replica away, though nobody waits", wishes.now.get("replicas") == 3 and not wishes.now.get("ScalingActive", True), wishes)

        store.begin()
        check("with it replicas go", one.wait(lambda: wishes.now.get("replicas") == 1), wishes)
        check("and their pods end", one.wait(lambda: len(ours()) == 1), one.told())
        light.stopping = True
        for each in running:
            each.result(rig.PATIENCE)
        check("it went up at once, by two at most, and down one by one", wishes.steps() == [1, 3, 2, 1], wishes.steps())
        one.kubectl("delete", f"{way.kinds},deployment", "--all", "--wait=false")
        check("all pods end", one.wait(lambda: not ours()), one.told())
        counts, mine = crossed(one, tally), pods.of(NAME, "vllm-")
        check("there were three pods", len(mine) == 3, len(mine))
        for pod in mine:
            told(title, tally, ended(pod, True))
        told(title, tally, hooks(one))
        told(title, tally, telling(one.answers, one.collector.telemetry()))
        print(f"     {title}: {counts}, replicas {wishes.steps()}, {seen} of {waiting} seen waiting", flush=True)


def gateway_followed(title, way, node, pods, args, tally):
    """deploy/kubernetes/gateway, of which there are more as more exchanges are open, and fewer when they end; but not because nothing is known."""
    check = lambda what, *found: tally.check(f"{title}: {what}", *found)
    ours = lambda: pods.alive(NAME, "tokengauge-")
    with scene(NAME, node, pods, args) as one, contextlib.closing(Wishes(node, "tokengauge", way)) as wishes, contextlib.ExitStack() as ends:
        metrics_server(node, args)
        vendor = shapes.vendor(node, args.binary, next(PORTS))
        said = one.apply(shapes.gateway(node, vendor, one.otlp))
        check("the manifests are taken without a warning", not said, said)
        # As many as the autoscaler would have at once.
        one.kubectl("scale", "deployment/tokengauge", f"--replicas={LEAST}")
        one.await_ready(LEAST, "tokengauge-")
        store = ends.enter_context(contextlib.closing(Prometheus(node, args)))
        recipe, address = ends.enter_context(contextlib.closing(way(node, args))), one.address("tokengauge")
        said = one.apply(recipe.read("gateway", each=EACH))
        check("the recipe is taken without a warning", not said, said)
        check("it has both metrics, and nothing is open", one.wait(lambda: wishes.now.get("queue") == 0 and "cpu" in wishes.now), wishes)

        clients = one.clients(lambda: address, GAP, "/openai/v1/chat/completions")
        running = [one.spawn(again(clients)) for _ in range(OPEN)]
        check("it sees what is open, as clients know it", one.wait(lambda: OPEN * 0.9 <= wishes.now.get("queue", 0) <= OPEN * 1.1), wishes)
        check("a replica comes", one.wait(lambda: wishes.now.get("replicas") == LEAST + 1), wishes)
        one.await_ready(LEAST + 1, "tokengauge-")

        store.stop()
        check("without Prometheus it knows of no exchange", one.wait(lambda: "queue" not in wishes.now), wishes)
        clients.stopping = True
        for each in running:
            each.result(rig.PATIENCE)
        time.sleep(STABLE + 2 * PERIOD)
        check("and takes no replica away, though none is open and the CPU idles", "queue" not in wishes.now and wishes.now.get("replicas") == LEAST + 1, wishes)

        store.begin()
        check("with it the replica goes", one.wait(lambda: wishes.now.get("replicas") == LEAST), wishes)
        check("and its pod ends", one.wait(lambda: len(ours()) == LEAST), one.told())
        check("it went up and down by one", wishes.steps() == [LEAST, LEAST + 1, LEAST], wishes.steps())
        one.kubectl("delete", f"{way.kinds},deployment", "--all", "--wait=false")
        check("all pods end", one.wait(lambda: not ours()), one.told())
        counts = crossed(one, tally)
        told(title, tally, hooks(one))
        told(title, tally, telling(one.answers, one.collector.telemetry()))
        print(f"     {title}: {counts}, replicas {wishes.steps()}", flush=True)


class Way:
    """One of the two ways that the recipes are written for; making it puts on the node what it takes."""

    # How the names of its files begin, how the name of its autoscalers, and of which kinds its recipes are.
    files, scalers, kinds = None, None, None

    def read(self, of, most=None, each=None):
        """The recipe of vLLM or of the gateway as it is written, but that replicas go sooner, and the guard looks back on less; `most` is how
        many there may be, and `each` what one of them is for, if not as much as there."""
        document = yaml.safe_load((RECIPES / f"{self.files}-{of}.yaml").read_text())
        down = self.changed(document["spec"], most, each)
        down["stabilizationWindowSeconds"], down["policies"][0]["periodSeconds"] = STABLE, PERIOD
        return [document]

    @staticmethod
    def changed(spec, most, each):
        """Changes what has its own place in each; gives back what rules the way down."""
        raise NotImplementedError

    def close(self):
        """Leaves the metrics to whoever comes next."""


class Wishes:
    """What the autoscaler of a Deployment says of itself, and how many replicas there shall be, asked again and again."""

    def __init__(self, node, deployment, way):
        self.node, self.said, self.over = node, [{}], False
        self.deployment = f"/apis/apps/v1/namespaces/{NAME}/deployments/{deployment}"
        self.scaler = f"/apis/autoscaling/v2/namespaces/{NAME}/horizontalpodautoscalers/{way.scalers}{deployment}"
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while not self.over:
            with contextlib.suppress(OSError, http.client.HTTPException, KeyError):
                _, _, deployment = self.node.ask("GET", self.deployment)
                found, _, scaler = self.node.ask("GET", self.scaler)
                if found == 200:
                    self.said.append({"replicas": deployment["spec"]["replicas"], **self.of_status(scaler["status"])})
            time.sleep(0.3)

    @staticmethod
    def of_status(status):
        """In it, what all pods together hold back or have open, the burn rate, and the CPU in %; nothing of what the autoscaler does not know."""
        found = {"pods": status.get("currentReplicas", 0)}
        for one in status.get("conditions", []):
            found[one["type"]] = one["status"] == "True"
        for metric in status.get("currentMetrics") or []:
            current = (metric.get("pods") or metric.get("external") or {}).get("current", {})
            if "averageValue" in current:
                found["queue"] = quantity(current["averageValue"]) * found["pods"]
            elif "value" in current:
                found["guard"] = quantity(current["value"])
            elif metric.get("resource"):
                found["cpu"] = metric["resource"]["current"]["averageUtilization"]
        return found

    @property
    def now(self):
        return self.said[-1]

    def close(self):
        self.over = True

    def steps(self):
        """The numbers of replicas, one after the other."""
        return [count for count, _ in itertools.groupby(said["replicas"] for said in self.said if said)]

    def __str__(self):
        """The last that it said, newest first."""
        return " < ".join(str(one) for one, _ in itertools.groupby(reversed(self.said[-100:])))


def quantity(text):
    """As Kubernetes writes numbers."""
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)


class Adapter(Way):
    """hpa-*.yaml, and prometheus-adapter with its rules, to which the API server passes on what is asked of metrics."""

    files, scalers, kinds = "hpa", "", "horizontalpodautoscaler"
    APIS = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io")

    def __init__(self, node, args):
        self.node = node
        [rules] = yaml.safe_load_all((RECIPES / "prometheus-adapter.yaml").read_text())
        config = node.folder / "prometheus-adapter.config"
        said = rules["data"]["config.yaml"]
        assert WINDOW in said
        config.write_text(said.replace(WINDOW, SOONER))
        known = [f"--{kind}-kubeconfig={node.kubeconfig}" for kind in ("lister", "authentication", "authorization")]
        self.process = node.start("prometheus-adapter", f"{args.tools}/prometheus-adapter", f"--config={config}", f"--prometheus-url=http://{SERVER}:{STORE}", *known,
                   f"--bind-address={SERVER}", f"--secure-port={ADAPTER}", f"--cert-dir={node.folder}/adapter", "--metrics-relist-interval=5s")
        documents = on_node("prometheus-adapter", 443, ADAPTER)
        service = documents[0]["metadata"]
        documents += [
            {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": api},
             "spec": {"service": service, "group": group, "version": version, "insecureSkipTLSVerify": True, "groupPriorityMinimum": 100, "versionPriority": 100}}
            for api in self.APIS for version, group in [api.split(".", 1)]]
        foreign.install(node, documents, self.APIS)

    def close(self):
        foreign.kubectl(self.node, "delete", "apiservice", *self.APIS)
        self.node.end(self.process)

    @staticmethod
    def changed(spec, most, each):
        spec["maxReplicas"] = most or spec["maxReplicas"]
        target = spec["metrics"][0]["pods"]["target"]
        target["averageValue"] = str(each or target["averageValue"])
        return spec["behavior"]["scaleDown"]


def metrics_server(node, args):
    """metrics-server as its own manifests install it, for what the autoscaler asks of the CPU. The kubelet here signs its own certificate."""
    folder = pathlib.Path(args.tools, "metrics-server")
    manifests = foreign.manifests(node, folder / "manifests/base")
    [deployment] = [one for one in manifests if one["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    container["args"] += ["--kubelet-insecure-tls"]
    foreign.load(node, container, folder / "metrics-server", ["/metrics-server"])
    foreign.install(node, manifests, ["v1beta1.metrics.k8s.io"])


def on_node(name, port, behind):
    """A Service in the namespace `monitoring` for what listens on the node, at the port `behind`."""
    meta = {"name": name, "namespace": MONITORING}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"name": "it", "port": port, "targetPort": behind}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {**meta, "labels": {"kubernetes.io/service-name": name}},
         "addressType": "IPv4", "endpoints": [{"addresses": [SERVER]}], "ports": [{"name": "it", "port": behind}]}]


class Prometheus:
    """Reads all pods of the namespace that have the sidecar's port, as an Operator does that has the PodMonitor of deploy/kubernetes; and
    is found by the name of that Operator's Service."""

    def __init__(self, node, args):
        self.node, self.program, self.config = node, f"{args.tools}/prometheus3", node.folder / "prometheus.yaml"
        self.config.write_text(yaml.safe_dump({
            "global": {"scrape_interval": "2s"},
            "scrape_configs": [{
                "job_name": "tokengauge",
                "kubernetes_sd_configs": [{"role": "pod", "kubeconfig_file": str(node.kubeconfig), "namespaces": {"names": [NAME]}}],
                "relabel_configs": [
                    {"source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": "tokengauge", "action": "keep"},
                    {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "Succeeded|Failed", "action": "drop"},
                    {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
                    {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
                ]}]}))
        documents = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MONITORING}}, *on_node("prometheus-operated", STORE, STORE)]
        foreign.install(node, documents)
        self.begin()

    def begin(self):
        self.process = self.node.start("prometheus", self.program, f"--config.file={self.config}", f"--storage.tsdb.path={self.node.folder}/prometheus",
                                       f"--web.listen-address={SERVER}:{STORE}")

    def stop(self):
        self.node.end(self.process)
        self.process = None

    def close(self):
        if self.process:
            self.stop()
