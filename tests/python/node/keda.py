"""KEDA on the node, as its own manifests install it; it follows deploy/autoscaling."""
import pathlib

from node import foreign, scaling

# The programs of its images.
PROGRAMS = {"/keda": "operator", "/keda-adapter": "adapter", "/keda-admission-webhooks": "webhooks"}


def autoscaled_by_keda(node, pods, args, tally):
    """What waits and the guard are one query each, which KEDA puts to Prometheus for the autoscaler that it makes of them."""
    scaling.followed("autoscaled-by-keda", Keda, node, pods, args, tally)


def gateway_by_keda(node, pods, args, tally):
    """What is open, and the CPU, which the autoscaler asks of metrics-server itself."""
    scaling.gateway_followed("gateway-by-keda", Keda, node, pods, args, tally)


class Keda(scaling.Way):
    """keda-*.yaml, and KEDA."""

    files, scalers, kinds = "keda", "keda-hpa-", "scaledobject"

    def __init__(self, node, args):
        folder = pathlib.Path(args.tools, "keda")
        manifests = foreign.manifests(node, folder / "config/default")
        for one in manifests:
            if one["kind"] == "Deployment":
                [container] = one["spec"]["template"]["spec"]["containers"]
                foreign.load(node, container, folder / PROGRAMS[container["command"][0]])
        foreign.install(node, manifests, ["v1beta1.external.metrics.k8s.io"])

    @staticmethod
    def changed(spec, most, each):
        spec["maxReplicaCount"] = most or spec["maxReplicaCount"]
        for trigger in spec["triggers"]:
            if trigger["type"] == "prometheus":
                trigger["metadata"]["query"] = trigger["metadata"]["query"].replace(scaling.WINDOW, scaling.SOONER)
        first = spec["triggers"][0]["metadata"]
        first["threshold"] = str(each or first["threshold"])
        return spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
