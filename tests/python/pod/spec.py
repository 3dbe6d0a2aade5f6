"""Reads a pod's spec like the kubelet: variables, the downward API, named ports.

References are to kubernetes v1.34.2.
"""
import dataclasses
import re

REFERENCE = re.compile(r"\$(\$|\(([^)]*)\))")


class Unsupported(Exception):
    """The spec uses a feature that this kubelet lacks. An error is better than a silent omission."""


@dataclasses.dataclass(frozen=True)
class Identity:
    """The fields of the downward API."""

    name: str
    namespace: str
    uid: str
    node: str
    address: str
    node_address: str
    labels: dict
    annotations: dict

    def field(self, path):
        fields = {
            "metadata.name": self.name, "metadata.namespace": self.namespace, "metadata.uid": self.uid, "spec.nodeName": self.node,
            "status.podIP": self.address, "status.hostIP": self.node_address}
        if found := re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path):
            return getattr(self, found[1]).get(found[2], "")
        if path not in fields:
            raise Unsupported(f"fieldRef {path}")
        return fields[path]


def expanded(text, known):
    """`$(NAME)` is replaced where NAME is known and stays otherwise; `$$` is a dollar (third_party/forked/golang/expansion)."""
    return REFERENCE.sub(lambda found: "$" if found[1] == "$" else known.get(found[2], found[0]), text)


def environment(container, identity):
    """Returns the container's variables in order. Each may refer to earlier ones (kubelet_pods.go, makeEnvironmentVariables)."""
    if container.get("envFrom"):
        raise Unsupported(f"envFrom of {container['name']}")
    known = {}
    for one in container.get("env", []):
        source = one.get("valueFrom")
        if source is None:
            known[one["name"]] = expanded(one.get("value", ""), known)
        elif "fieldRef" in source:
            known[one["name"]] = identity.field(source["fieldRef"]["fieldPath"])
        else:
            raise Unsupported(f"{one['name']} from {source}")
    return known


def command(container, images, variables):
    """Returns the command to run. `command` overrides the image's ENTRYPOINT, and `args` its CMD.

    `images` maps a prefix of an image name to a function. The function gets the arguments without the entrypoint and the variables, and
    returns the local command."""
    run = next((run for prefix, run in images.items() if container["image"].startswith(prefix)), None)
    if run is None:
        raise Unsupported(f"image {container['image']}")
    return run([expanded(part, variables) for part in container.get("command", []) + container.get("args", [])], variables)


def port(reference, container):
    """Returns a port by number, or by the name of a port of the same container (lifecycle/handlers.go, resolvePort)."""
    if isinstance(reference, int) or reference.isdigit():
        return int(reference)
    return next(one["containerPort"] for one in container.get("ports", []) if one.get("name") == reference)


def native(container):
    """Whether an init container is a sidecar."""
    return container.get("restartPolicy") == "Always"
