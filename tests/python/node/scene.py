"""A scenario on a real node: a namespace, a collector, clients on their own thread, and the history of each pod."""
import asyncio
import collections
import contextlib
import http.client
import json
import socket
import ssl
import threading
import time

import yaml

import rig
from kubernetes.control_plane import SERVER
from pod.client import Clients
from pod.collector import Collector, State

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
# Limits only the waiting. Longer than the kubelet needs for three failed probes and a restart.
WAIT_LIMIT = 120


class Pods:
    """Every state of every pod that the API server reports."""

    def __init__(self, node):
        self.node, self.states, self.gone = node, collections.defaultdict(list), {}
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        context = ssl.create_default_context(cafile=self.node.folder / "ca.crt")
        context.load_cert_chain(self.node.folder / "admin.crt", self.node.folder / "admin.key")
        version = "0"
        while True:
            try:
                connection = http.client.HTTPSConnection(SERVER, 6443, context=context)
                connection.request("GET", f"/api/v1/pods?watch=1&resourceVersion={version}")
                for line in connection.getresponse():
                    event = json.loads(line)
                    version = event["object"]["metadata"]["resourceVersion"]
                    self.take(event["type"], event["object"])
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                time.sleep(0.2)

    def take(self, kind, pod):
        uid = pod["metadata"]["uid"]
        self.states[uid].append(pod)
        if kind == "DELETED":
            self.gone[uid] = time.monotonic()

    def of(self, namespace, prefix=""):
        """Returns the newest state of each pod of the namespace, including deleted pods."""
        newest = [states[-1] for states in list(self.states.values())]
        return [pod for pod in newest if pod["metadata"]["namespace"] == namespace and pod["metadata"]["name"].startswith(prefix)]

    def alive(self, namespace, prefix=""):
        return [pod for pod in self.of(namespace, prefix) if pod["metadata"]["uid"] not in self.gone]


def container(pod, name):
    """Returns the status of a container, or {}."""
    found = pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", [])
    return next((one for one in found if one["name"] == name), {})


def ready(pod):
    found = [one for one in pod["status"].get("conditions", []) if one["type"] == "Ready"]
    return bool(found) and found[0]["status"] == "True" and "deletionTimestamp" not in pod["metadata"]


def answers(place):
    with contextlib.suppress(OSError), socket.create_connection(place, timeout=1):
        return True
    return False


class Scene:
    """A scenario. `name` is also the namespace."""

    def __init__(self, name, node, pods, args, state=State.TAKES, labels=RESTRICTED):
        self.name, self.node, self.pods, self.args = name, node, pods, args
        self.collector, self.answers = Collector(SERVER, state), []
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}])
        rig.wait_until(lambda: self.kubectl("get", "serviceaccount", "default")[0])

    @property
    def otlp(self):
        return self.collector.address[1]

    # --- the cluster ---

    def kubectl(self, *args, given=None):
        return self.node.kubectl("--namespace", self.name, *args, given=given)

    def apply(self, documents):
        text = documents if isinstance(documents, str) else yaml.safe_dump_all(documents)
        done, wrong = self.kubectl("apply", "-f", "-", given=text)
        assert done is not None, wrong
        return wrong

    def await_ready(self, count, prefix=""):
        found = lambda: [pod for pod in self.pods.alive(self.name, prefix) if ready(pod)]
        if not self.wait(lambda: len(found()) >= count):
            raise AssertionError(f"{len(found())} of {count} pods of {self.name} are ready:\n" + self.describe_state())
        return found()

    def wait(self, holds):
        end = time.monotonic() + WAIT_LIMIT
        while not holds():
            self.node.alive()
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def describe_state(self):
        """Returns the state of this namespace, for a failure message."""
        events, _ = self.kubectl("get", "events", "--sort-by=.lastTimestamp")
        described, _ = self.kubectl("describe", "pods")
        logs, _ = self.kubectl("logs", "--all-containers", "--prefix", "--tail=5", "--selector=app.kubernetes.io/name", "--ignore-errors")
        return "\n".join(part[-3000:] for part in (described or "", events or "", logs or ""))

    def address(self, service):
        """Returns the ClusterIP of a Service, which kube-proxy routes, and its first port."""
        output, wrong = self.kubectl("get", "service", service, "--output=json")
        assert output, wrong
        spec = json.loads(output)["spec"]
        place = spec["clusterIP"], spec["ports"][0]["port"]
        # The pods are ready, but kube-proxy may not have their endpoints yet.
        assert self.wait(lambda: answers(place)), f"{service} does not answer at {place}:\n{self.describe_state()}"
        return place

    # --- clients ---

    def clients(self, find, gap, path="/v1/chat/completions"):
        return Clients(find, path=path, gap=gap, answers=self.answers)

    def spawn(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def open_streams(self, clients, count, tokens):
        """Starts `count` streams. Returns them, still running, when each has received a token."""
        before = len(self.answers)
        ours = [self.spawn(clients.stream(tokens)) for _ in range(count)]
        rig.wait_until(lambda: sum(answer.tokens > 0 or bool(answer.ended) for answer in self.answers[before:]) >= count)
        return ours

    def close(self):
        self.collector.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
