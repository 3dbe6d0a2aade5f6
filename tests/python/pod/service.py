"""A Service: selects the pod for a new connection, like EndpointSlices and kube-proxy."""
import itertools
import random
import threading
import time


class Service:
    """Follows the readiness of pods with a delay of `delay` seconds.

    The delay stands for the path from the kubelet through the API server and the controller to each node's kube-proxy."""

    def __init__(self, delay):
        self.delay, self.published, self.lock = delay, {}, threading.Lock()
        self.numbers = itertools.count()
        # When each pod received its last new connection.
        self.last = {}

    def changed(self, pod):
        """Called by a pod when its readiness changes or it is deleted."""
        # staging/src/k8s.io/endpointslice/utils.go, podToEndpoint: ready is serving and not terminating.
        state = {"number": next(self.numbers), "serving": pod.ready, "terminating": pod.deleted, "ready": pod.ready and not pod.deleted}
        timer = threading.Timer(self.delay, self.publish, (pod, state))
        timer.daemon = True
        timer.start()

    def publish(self, pod, state):
        with self.lock:
            if state["number"] > self.published.get(pod, {"number": -1})["number"]:
                self.published[pod] = state

    def endpoints(self):
        """pkg/proxy/topology.go, CategorizeEndpoints: the ready pods; if there are none, the terminating pods that still serve."""
        with self.lock:
            ready = [pod for pod, state in self.published.items() if state["ready"]]
            return ready or [pod for pod, state in self.published.items() if state["serving"] and state["terminating"]]

    def pick(self):
        """Returns the pod for a new connection. Without a pod, kube-proxy refuses the connection."""
        found = self.endpoints()
        if not found:
            return None
        pod = random.choice(found)
        self.last[pod] = time.monotonic()
        return pod
