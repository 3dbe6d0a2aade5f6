"""A Service: which pods a new connection goes to, as EndpointSlices and kube-proxy decide it."""
import itertools
import random
import threading
import time


class Service:
    """Follows the pods' readiness, `delay` seconds late: that is how long the change takes from the kubelet by way of the API server
    and the controller to each node's kube-proxy."""

    def __init__(self, delay):
        self.delay, self.published, self.lock = delay, {}, threading.Lock()
        self.numbers = itertools.count()
        # When each pod took its last new connection.
        self.last = {}

    def changed(self, pod):
        """By a pod, whenever its readiness changes or it is deleted."""
        # staging/src/k8s.io/endpointslice/utils.go, podToEndpoint: ready is serving and not terminating.
        told = {"number": next(self.numbers), "serving": pod.ready, "terminating": pod.deleted, "ready": pod.ready and not pod.deleted}
        timer = threading.Timer(self.delay, self.publish, (pod, told))
        timer.daemon = True
        timer.start()

    def publish(self, pod, told):
        with self.lock:
            if told["number"] > self.published.get(pod, {"number": -1})["number"]:
                self.published[pod] = told

    def endpoints(self):
        """pkg/proxy/topology.go, CategorizeEndpoints: who is ready; if nobody is, who is terminating and serves still."""
        with self.lock:
            ready = [pod for pod, told in self.published.items() if told["ready"]]
            return ready or [pod for pod, told in self.published.items() if told["serving"] and told["terminating"]]

    def pick(self):
        """The pod that a new connection goes to; without one kube-proxy refuses it."""
        found = self.endpoints()
        if not found:
            return None
        pod = random.choice(found)
        self.last[pod] = time.monotonic()
        return pod
