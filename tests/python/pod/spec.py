"""What a pod's spec says, as the kubelet reads it: variables, the downward API, ports by name.

References are to kubernetes v1.34.2.
"""
import dataclasses
import re

REFERENCE = re.compile(r"\$(\$|\(([^)]*)\))")


class Unsupported(Exception):
    """The spec asks for what this kubelet cannot do: better said than left out."""


@dataclasses.dataclass(frozen=True)
class Identity:
    """What the downward API can tell."""

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
    """The container's variables, in order: each may refer to those before it (kubelet_pods.go, makeEnvironmentVariables)."""
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
    """`command` stands for the image's ENTRYPOINT and `args` for its CMD. `images` says by the beginning of its name what an image holds: a
    function from the command line without the entrypoint, and the variables, to what is run here."""
    run = next((run for prefix, run in images.items() if container["image"].startswith(prefix)), None)
    if run is None:
        raise Unsupported(f"image {container['image']}")
    return run([expanded(part, variables) for part in container.get("command", []) + container.get("args", [])], variables)


def port(reference, container):
    """A number, or the name of a port of the same container (lifecycle/handlers.go, resolvePort)."""
    if isinstance(reference, int) or reference.isdigit():
        return int(reference)
    return next(one["containerPort"] for one in container.get("ports", []) if one.get("name") == reference)


def native(container):
    """Whether an init container is a sidecar."""
    return container.get("restartPolicy") == "Always"
