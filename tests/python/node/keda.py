"""KEDA on the node, installed from its own manifests, with the recipes of deploy/autoscaling."""
import pathlib

from node import foreign, scaling

# The programs in its images.
PROGRAMS = {"/keda": "operator", "/keda-adapter": "adapter", "/keda-admission-webhooks": "webhooks"}


def autoscaled_by_keda(node, pods, args, tally):
    """Scales vLLM on queue depth and on the burn rate guard. KEDA sends one Prometheus query for each."""
    scaling.followed("autoscaled-by-keda", Keda, node, pods, args, tally)


def gateway_by_keda(node, pods, args, tally):
    """Scales the gateway on active requests by KEDA, and on CPU by metrics-server."""
    scaling.gateway_followed("gateway-by-keda", Keda, node, pods, args, tally)


class Keda(scaling.RecipeVariant):
    """The recipes keda-*.yaml with KEDA."""

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
