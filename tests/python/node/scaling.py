"""The Kubernetes autoscaler with the recipes of deploy/autoscaling: Prometheus scrapes the pods, and the autoscaler adds and removes replicas.

The recipes are used as written, except for three durations that would make the test wait too long.
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
from node.scenarios import crossed, hooks, repeat_streams, scene, termination_checks
from pod.scenarios import record_checks, telemetry_checks

RECIPES = pathlib.Path(__file__).resolve().parents[3] / "deploy/autoscaling"
# The namespace that the recipes use.
NAME = "llm"
MONITORING = "monitoring"
STORE, ADAPTER = 9090, 6444
# The engine answers PLACES requests at a time, each for about 4 s. All other clients wait.
PLACES, GAP, HEAVY, LIGHT = 4, 0.1, 24, 2
# The minimum of gateway replicas, the number of clients, and the clients per replica. Three replicas are right for any load within a fifth
# of OPEN: a client that starts its next stream may still be counted for its last one.
LEAST, OPEN, EACH = 2, 100, 40
# Ports of the simulated providers.
PORTS = itertools.count(9001)
# In seconds instead of minutes: the stabilization window for scale-down, and the period in which one replica may be removed.
STABLE, PERIOD = 10, 10
# The lookback window of the guard.
WINDOW, SOONER = "[5m]", "[20s]"


def autoscaled(node, pods, args, tally):
    """vLLM with prometheus-adapter, which serves the autoscaler's metrics."""
    followed("autoscaled", Adapter, node, pods, args, tally)


def gateway_by_adapter(node, pods, args, tally):
    """The gateway with prometheus-adapter, and with metrics-server for the CPU."""
    gateway_followed("gateway-by-adapter", Adapter, node, pods, args, tally)


def followed(title, variant, node, pods, args, tally):
    """Scales up while requests queue, keeps replicas while metrics are missing, scales down one replica at a time. No stream is interrupted."""
    check = lambda what, *found: tally.check(f"{title}: {what}", *found)
    ours = lambda: pods.alive(NAME, "vllm-")
    with scene(NAME, node, pods, args) as one, contextlib.closing(AutoscalerStatus(node, "vllm", variant)) as autoscaler, contextlib.ExitStack() as ends:
        one.apply(shapes.inbound(one.otlp, replicas=1, simulated=f"sim-typical:slots={PLACES}"))
        one.await_ready(1)
        store = ends.enter_context(contextlib.closing(Prometheus(node, args)))
        recipe, address = ends.enter_context(contextlib.closing(variant(node, args))), one.address("vllm")
        light, heavy = (one.clients(lambda: address, GAP) for _ in range(2))
        running = [one.spawn(repeat_streams(light)) for _ in range(LIGHT)]
        # Start with one pod. Otherwise the autoscaler may act on the first pod before the others are ready.
        output = one.apply(recipe.read("vllm", most=1))
        check("the recipe is applied without a warning", not output, output)
        check("the autoscaler has both metrics, and no request is queued", one.wait(lambda: autoscaler.now.get("queue") == autoscaler.now.get("guard") == 0), autoscaler)

        running += [one.spawn(repeat_streams(heavy)) for _ in range(HEAVY)]
        waiting = HEAVY + LIGHT - PLACES
        check("the autoscaler's queue depth matches the clients' count", one.wait(lambda: waiting - PLACES <= autoscaler.now.get("queue", 0) <= waiting), autoscaler)
        seen = autoscaler.now.get("queue")
        one.apply(recipe.read("vllm"))
        check("replicas are added while requests are queued", one.wait(lambda: autoscaler.now.get("replicas") == 3), autoscaler)
        one.await_ready(3)
        check("the guard detects slow first tokens", one.wait(lambda: autoscaler.now.get("guard") == 2), autoscaler)

        store.stop()
        check("without Prometheus the autoscaler has no metrics", one.wait(lambda: not autoscaler.now.get("ScalingActive", True)), autoscaler)
        heavy.stopping = True
        # Longer than the stabilization window for scale-down.
        time.sleep(STABLE + 2 * PERIOD)
        check("without Prometheus no replica is removed, though no request is queued", autoscaler.now.get("replicas") == 3 and not autoscaler.now.get("ScalingActive", True), autoscaler)

        store.begin()
        check("with Prometheus replicas are removed", one.wait(lambda: autoscaler.now.get("replicas") == 1), autoscaler)
        check("pods of removed replicas end", one.wait(lambda: len(ours()) == 1), one.describe_state())
        light.stopping = True
        for each in running:
            each.result(rig.WAIT_LIMIT)
        check("scale-up was one step of at most two, and scale-down was one replica at a time", autoscaler.steps() == [1, 3, 2, 1], autoscaler.steps())
        one.kubectl("delete", f"{variant.kinds},deployment", "--all", "--wait=false")
        check("all pods end", one.wait(lambda: not ours()), one.describe_state())
        counts, mine = crossed(one, tally), pods.of(NAME, "vllm-")
        check("there were three pods", len(mine) == 3, len(mine))
        for pod in mine:
            record_checks(title, tally, termination_checks(pod, True))
        record_checks(title, tally, hooks(one))
        record_checks(title, tally, telemetry_checks(one.answers, one.collector.telemetry()))
        print(f"     {title}: {counts}, replicas {autoscaler.steps()}, {seen} of {waiting} seen in the queue", flush=True)


def gateway_followed(title, variant, node, pods, args, tally):
    """deploy/kubernetes/gateway scales up with active requests and down when they end, but not because metrics are missing."""
    check = lambda what, *found: tally.check(f"{title}: {what}", *found)
    ours = lambda: pods.alive(NAME, "tokengauge-")
    with scene(NAME, node, pods, args) as one, contextlib.closing(AutoscalerStatus(node, "tokengauge", variant)) as autoscaler, contextlib.ExitStack() as ends:
        metrics_server(node, args)
        vendor = shapes.vendor(node, args.binary, next(PORTS))
        output = one.apply(shapes.gateway(node, vendor, one.otlp))
        check("the manifests are applied without a warning", not output, output)
        # The autoscaler's minimum.
        one.kubectl("scale", "deployment/tokengauge", f"--replicas={LEAST}")
        one.await_ready(LEAST, "tokengauge-")
        store = ends.enter_context(contextlib.closing(Prometheus(node, args)))
        recipe, address = ends.enter_context(contextlib.closing(variant(node, args))), one.address("tokengauge")
        output = one.apply(recipe.read("gateway", each=EACH))
        check("the recipe is applied without a warning", not output, output)
        check("the autoscaler has both metrics, and no request is active", one.wait(lambda: autoscaler.now.get("queue") == 0 and "cpu" in autoscaler.now), autoscaler)

        clients = one.clients(lambda: address, GAP, "/openai/v1/chat/completions")
        running = [one.spawn(repeat_streams(clients)) for _ in range(OPEN)]
        check("the autoscaler's active requests match the clients' count", one.wait(lambda: OPEN * 0.9 <= autoscaler.now.get("queue", 0) <= OPEN * 1.1), autoscaler)
        check("a replica is added", one.wait(lambda: autoscaler.now.get("replicas") == LEAST + 1), autoscaler)
        one.await_ready(LEAST + 1, "tokengauge-")

        store.stop()
        check("without Prometheus the autoscaler has no request metric", one.wait(lambda: "queue" not in autoscaler.now), autoscaler)
        clients.stopping = True
        for each in running:
            each.result(rig.WAIT_LIMIT)
        time.sleep(STABLE + 2 * PERIOD)
        check("without Prometheus no replica is removed, though no request is active and the CPU is idle", "queue" not in autoscaler.now and autoscaler.now.get("replicas") == LEAST + 1, autoscaler)

        store.begin()
        check("with Prometheus the replica is removed", one.wait(lambda: autoscaler.now.get("replicas") == LEAST), autoscaler)
        check("the pod of the removed replica ends", one.wait(lambda: len(ours()) == LEAST), one.describe_state())
        check("scale-up and scale-down were one replica each", autoscaler.steps() == [LEAST, LEAST + 1, LEAST], autoscaler.steps())
        one.kubectl("delete", f"{variant.kinds},deployment", "--all", "--wait=false")
        check("all pods end", one.wait(lambda: not ours()), one.describe_state())
        counts = crossed(one, tally)
        record_checks(title, tally, hooks(one))
        record_checks(title, tally, telemetry_checks(one.answers, one.collector.telemetry()))
        print(f"     {title}: {counts}, replicas {autoscaler.steps()}", flush=True)


class RecipeVariant:
    """One of the two variants of the recipes. The constructor installs its dependencies on the node."""

    # The prefix of its file names, the prefix of its autoscalers' names, and the kinds of its recipes.
    files, scalers, kinds = None, None, None

    def read(self, of, most=None, each=None):
        """Reads the recipe of vLLM or of the gateway, with a faster scale-down and a shorter lookback for the guard.

        `most` overrides the maximum of replicas, and `each` the load per replica."""
        document = yaml.safe_load((RECIPES / f"{self.files}-{of}.yaml").read_text())
        down = self.changed(document["spec"], most, each)
        down["stabilizationWindowSeconds"], down["policies"][0]["periodSeconds"] = STABLE, PERIOD
        return [document]

    @staticmethod
    def changed(spec, most, each):
        """Changes the fields whose place differs by variant. Returns the scale-down behavior."""
        raise NotImplementedError

    def close(self):
        """Removes the registration of the metrics APIs, so that the next variant can register its own."""


class AutoscalerStatus:
    """Polls the status of a Deployment's autoscaler and its desired replicas."""

    def __init__(self, node, deployment, variant):
        self.node, self.history, self.over = node, [{}], False
        self.deployment = f"/apis/apps/v1/namespaces/{NAME}/deployments/{deployment}"
        self.scaler = f"/apis/autoscaling/v2/namespaces/{NAME}/horizontalpodautoscalers/{variant.scalers}{deployment}"
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while not self.over:
            with contextlib.suppress(OSError, http.client.HTTPException, KeyError):
                _, _, deployment = self.node.ask("GET", self.deployment)
                found, _, scaler = self.node.ask("GET", self.scaler)
                if found == 200:
                    self.history.append({"replicas": deployment["spec"]["replicas"], **self.of_status(scaler["status"])})
            time.sleep(0.3)

    @staticmethod
    def of_status(status):
        """Returns the total queue depth or active requests, the burn rate, and the CPU in %. Metrics that the autoscaler lacks are absent."""
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
        return self.history[-1]

    def close(self):
        self.over = True

    def steps(self):
        """Returns the sequence of desired replica counts."""
        return [count for count, _ in itertools.groupby(state["replicas"] for state in self.history if state)]

    def __str__(self):
        """Returns the latest states, newest first."""
        return " < ".join(str(one) for one, _ in itertools.groupby(reversed(self.history[-100:])))


def quantity(text):
    """Parses a Kubernetes quantity."""
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)


class Adapter(RecipeVariant):
    """The recipes hpa-*.yaml, and prometheus-adapter with its rules as an aggregated API."""

    files, scalers, kinds = "hpa", "", "horizontalpodautoscaler"
    APIS = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io")

    def __init__(self, node, args):
        self.node = node
        [rules] = yaml.safe_load_all((RECIPES / "prometheus-adapter.yaml").read_text())
        config = node.folder / "prometheus-adapter.config"
        output = rules["data"]["config.yaml"]
        assert WINDOW in output
        config.write_text(output.replace(WINDOW, SOONER))
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
    """Installs metrics-server from its own manifests for the CPU metric. The kubelet here signs its own certificate."""
    folder = pathlib.Path(args.tools, "metrics-server")
    manifests = foreign.manifests(node, folder / "manifests/base")
    [deployment] = [one for one in manifests if one["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    container["args"] += ["--kubelet-insecure-tls"]
    foreign.load(node, container, folder / "metrics-server", ["/metrics-server"])
    foreign.install(node, manifests, ["v1beta1.metrics.k8s.io"])


def on_node(name, port, behind):
    """Creates a Service in the namespace `monitoring` for a process that listens on the node at the port `behind`."""
    meta = {"name": name, "namespace": MONITORING}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"name": "it", "port": port, "targetPort": behind}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {**meta, "labels": {"kubernetes.io/service-name": name}},
         "addressType": "IPv4", "endpoints": [{"addresses": [SERVER]}], "ports": [{"name": "it", "port": behind}]}]


class Prometheus:
    """Scrapes all pods of the namespace that have the sidecar's port, like an Operator with the PodMonitor of deploy/kubernetes.

    Its Service has the name of the Operator's Service."""

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
