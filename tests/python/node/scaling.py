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
from node import shapes
from node.scenarios import again, crossed, ended, hooks, scene
from pod.scenarios import telling, told

RECIPES = pathlib.Path(__file__).resolve().parents[3] / "deploy/autoscaling"
# The namespace of the recipes.
NAME = "llm"
STORE, ADAPTER = "127.0.0.1:9090", 6444
# An engine that answers so many calls at a time, each for some 4 s; and so many clients, of whom all others wait.
PLACES, GAP, HEAVY, LIGHT = 4, 0.1, 24, 2
# In seconds, for minutes: how long a wish for less must last, and in what time one replica goes.
STABLE, PERIOD = 10, 10
# And what the guard looks back on.
WINDOW, SOONER = "[5m]", "[20s]"


def autoscaled(node, pods, args, tally):
    """Up as calls wait, no replica lost with telemetry, down one by one when nobody waits; and no stream notices."""
    check = lambda what, *found: tally.check(f"autoscaled: {what}", *found)
    with scene(NAME, node, pods, args) as one, contextlib.closing(Wishes(node)) as wishes:
        one.apply(shapes.inbound(one.otlp, replicas=1, simulated=f"sim-typical:slots={PLACES}"))
        one.await_ready(1)
        store, address = Prometheus(node, f"{args.tools}/prometheus3"), one.address("vllm")
        adapter(node, args)
        light, heavy = (one.clients(lambda: address, GAP) for _ in range(2))
        running = [one.spawn(again(light)) for _ in range(LIGHT)]
        # At first as one pod: else it could act on the first of them while the others come.
        said = one.apply(recipe(most=1))
        check("the recipe is taken without a warning", not said, said)
        check("it has both metrics, and nobody waits", one.wait(lambda: wishes.now.get("queue") == wishes.now.get("guard") == 0), wishes)

        running += [one.spawn(again(heavy)) for _ in range(HEAVY)]
        waiting = HEAVY + LIGHT - PLACES
        check("it sees what the engine holds back, as clients know it", one.wait(lambda: waiting - PLACES <= wishes.now.get("queue", 0) <= waiting), wishes)
        seen = wishes.now.get("queue")
        one.apply(recipe())
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
        check("and their pods end", one.wait(lambda: len(pods.alive(NAME)) == 1), one.told())
        light.stopping = True
        for each in running:
            each.result(rig.PATIENCE)
        check("it went up at once, by two at most, and down one by one", wishes.steps() == [1, 3, 2, 1], wishes.steps())
        one.kubectl("delete", "horizontalpodautoscaler,deployment", "--all", "--wait=false")
        check("all pods end", one.wait(lambda: not pods.alive(NAME)), one.told())
        counts, mine = crossed(one, tally), pods.of(NAME)
        check("there were three pods", len(mine) == 3, len(mine))
        for pod in mine:
            told("autoscaled", tally, ended(pod, True))
        told("autoscaled", tally, hooks(one))
        told("autoscaled", tally, telling(one.answers, one.collector.telemetry()))
        print(f"     autoscaled: {counts}, replicas {wishes.steps()}, {seen} of {waiting} seen waiting", flush=True)


def recipe(most=None):
    """hpa-vllm.yaml, whose replicas go sooner; `most` is how many there may be, if not as many as there."""
    document = yaml.safe_load((RECIPES / "hpa-vllm.yaml").read_text())
    spec = document["spec"]
    down = spec["behavior"]["scaleDown"]
    down["stabilizationWindowSeconds"], down["policies"][0]["periodSeconds"] = STABLE, PERIOD
    spec["maxReplicas"] = most or spec["maxReplicas"]
    return [document]


class Wishes:
    """What the autoscaler says of itself, and how many replicas there shall be, asked again and again."""

    def __init__(self, node):
        self.node, self.said, self.over = node, [{}], False
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while not self.over:
            with contextlib.suppress(OSError, http.client.HTTPException, KeyError):
                _, _, deployment = self.node.ask("GET", f"/apis/apps/v1/namespaces/{NAME}/deployments/vllm")
                found, _, scaler = self.node.ask("GET", f"/apis/autoscaling/v2/namespaces/{NAME}/horizontalpodautoscalers/vllm")
                if found == 200:
                    self.said.append({"replicas": deployment["spec"]["replicas"], **self.of_status(scaler["status"])})
            time.sleep(0.3)

    @staticmethod
    def of_status(status):
        """In it, what all pods together hold back, and the burn rate; nothing where the autoscaler knows nothing."""
        found = {"pods": status.get("currentReplicas", 0)}
        for one in status.get("conditions", []):
            found[one["type"]] = one["status"] == "True"
        for metric in status.get("currentMetrics") or []:
            if metric.get("pods"):
                found["queue"] = quantity(metric["pods"]["current"]["averageValue"]) * found["pods"]
            elif metric.get("external"):
                found["guard"] = quantity(metric["external"]["current"]["value"])
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


class Prometheus:
    """Reads all pods of the namespace that have the sidecar's port, as an Operator does that has the PodMonitor of deploy/kubernetes."""

    def __init__(self, node, program):
        self.node, self.program, self.config = node, program, node.folder / "prometheus.yaml"
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
        self.begin()

    def begin(self):
        self.process = self.node.start("prometheus", self.program, f"--config.file={self.config}", f"--storage.tsdb.path={self.node.folder}/prometheus",
                                       f"--web.listen-address={STORE}")

    def stop(self):
        self.node.processes.remove(self.process)
        self.process.terminate()
        self.process.wait(rig.PATIENCE)


def adapter(node, args):
    """prometheus-adapter with the recipe's rules, to which the API server passes on what is asked of metrics."""
    [rules] = yaml.safe_load_all((RECIPES / "prometheus-adapter.yaml").read_text())
    config = node.folder / "prometheus-adapter.config"
    said = rules["data"]["config.yaml"]
    assert WINDOW in said
    config.write_text(said.replace(WINDOW, SOONER))
    known = [f"--{kind}-kubeconfig={node.kubeconfig}" for kind in ("lister", "authentication", "authorization")]
    node.start("prometheus-adapter", f"{args.tools}/prometheus-adapter", f"--config={config}", f"--prometheus-url=http://{STORE}", *known,
               f"--bind-address={SERVER}", f"--secure-port={ADAPTER}", f"--cert-dir={node.folder}/adapter", "--metrics-relist-interval=5s")
    meta = {"name": "prometheus-adapter", "namespace": "monitoring"}
    apis = [(version, f"{kind}.metrics.k8s.io") for kind, version in (("custom", "v1beta1"), ("custom", "v1beta2"), ("external", "v1beta1"))]
    documents = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monitoring"}},
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"name": "https", "port": 443, "targetPort": ADAPTER}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {**meta, "labels": {"kubernetes.io/service-name": meta["name"]}},
         "addressType": "IPv4", "endpoints": [{"addresses": [SERVER]}], "ports": [{"name": "https", "port": ADAPTER}]},
        *({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"{version}.{group}"},
           "spec": {"service": meta, "group": group, "version": version, "insecureSkipTLSVerify": True, "groupPriorityMinimum": 100, "versionPriority": 100}}
          for version, group in apis)]
    done, wrong = node.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(documents))
    assert done is not None, wrong
    done, wrong = node.kubectl("wait", "--for=condition=Available", "--timeout=60s", *(f"apiservice/{version}.{group}" for version, group in apis))
    assert done is not None, wrong
