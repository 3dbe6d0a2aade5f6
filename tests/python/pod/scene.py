"""A scenario: a node with a collector, a Service, pods, and clients on their own thread."""
import asyncio
import json
import pathlib
import subprocess
import sys
import threading
import urllib.request

import rig
from pod import shapes
from pod.client import Answer, Clients
from pod.collector import Collector, State
from pod.kubelet import Pod
from pod.service import Service

HERE = pathlib.Path(__file__).parent
# Seconds by which the rest of the cluster lags behind the kubelet's view of a pod.
PROPAGATION = 1.5
MODEL = "sim-typical:slots=4000"


class Scene:
    def __init__(self, name, args, node, folder, state=State.TAKES, clients=Clients):
        self.name, self.args, self.node, self.folder = name, args, node, folder / name
        self.folder.mkdir()
        self.collector, self.service, self.pods, self.processes = Collector(node.address, state), Service(PROPAGATION), [], []
        self.clients = clients(self.found)
        self.everyone = [self.clients]
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    @property
    def otlp(self):
        return self.collector.address[1]

    # --- pods ---

    def pod(self, spec, name, served=True):
        """Starts a pod and returns it when it is ready."""
        binary = self.args.binary
        images = {
            "ghcr.io/example/tokengauge": lambda line, _: [binary, *line],
            "vllm/": lambda line, _: [binary, "simulate", "--listen", f"0.0.0.0:{shapes.BEHIND}", "--model", MODEL],
            # The first process ignores SIGTERM, which is the effect of a server that waits for its connections.
            "stubborn/": lambda line, _: ["sh", "-c", 'trap "" TERM; setpriv --pdeathsig KILL "$@" & wait', "sh", binary, "simulate", "--listen",
                                          f"0.0.0.0:{shapes.BEHIND}", "--model", MODEL],
            # The engine finishes its streams on SIGTERM, like Python servers.
            "patient/": lambda line, _: [sys.executable, str(HERE / "patient.py"), "--port", str(shapes.BEHIND), "--", binary, "simulate", "--listen",
                                         f"0.0.0.0:{shapes.BEHIND}", "--model", MODEL],
            "registry.example/app": lambda line, _: [sys.executable, str(HERE / "app.py"), *line]}
        pod = Pod(spec, {"name": name, "namespace": "llm"}, self.node.sandbox(), self.node.address, images, {"/tokengauge": binary},
                  self.folder / name, self.service if served else None)
        self.pods.append(pod)
        pod.start(rig.WAIT_LIMIT)
        return pod

    def vendor(self):
        """Starts a simulated provider on the node. Returns its address."""
        port = rig.free_port()
        log = open(self.folder / "vendor.log", "w")
        listen = f"{self.node.address}:{port}"
        self.processes.append(subprocess.Popen([self.args.binary, "simulate", "--listen", listen, "--model", MODEL], stdout=log, stderr=log))
        rig.wait_until(lambda: metric(f"http://{listen}", "vllm:num_requests_running") is not None)
        return f"http://{listen}"

    def close(self):
        for pod in self.pods:
            pod.close()
        for process in self.processes:
            process.kill()
            process.wait()
        self.collector.close()
        self.loop.call_soon_threadsafe(self.loop.stop)

    # --- clients ---

    def found(self):
        pod = self.service.pick()
        return pod and (pod.sandbox.address, shapes.PROXY)

    def spawn(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def to(self, pod, gap):
        """Returns clients that connect to this pod only and bypass the Service."""
        self.everyone.append(type(self.clients)(lambda: (pod.sandbox.address, shapes.PROXY), gap=gap, answers=self.clients.answers))
        return self.everyone[-1]

    def open_streams(self, pod, count, tokens, gap):
        """Starts `count` streams to the pod. Returns them, still running, when each has received a token."""
        clients, before = self.to(pod, gap), len(self.clients.answers)
        ours = [self.spawn(clients.stream(tokens)) for _ in range(count)]
        rig.wait_until(lambda: sum(answer.tokens > 0 or bool(answer.ended) for answer in list(self.clients.answers)[before:]) >= count)
        return ours

    def by_app(self):
        """Returns the call results that the application wrote."""
        path = pathlib.Path(self.out)
        return [Answer(**one) for one in json.loads(path.read_text())] if path.exists() else []

    @property
    def out(self):
        return str(self.folder / "app.json")


def metric(address, name):
    """Returns the value of a metric from an engine's /metrics, or None."""
    try:
        with urllib.request.urlopen(f"{address}/metrics", timeout=rig.WAIT_LIMIT) as page:
            found = [float(line.rsplit(" ", 1)[1]) for line in page.read().decode().splitlines() if line.startswith(name + "{") or line.startswith(name + " ")]
    except OSError:
        return None
    return sum(found)
