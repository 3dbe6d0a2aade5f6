"""Rules beyond the schemas: what an API server rejects, or what cannot work, although the schema accepts it."""
import re

from kubernetes.restricted import containers, handlers, spec

REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")


def port_names(pod):
    """IANA service names: at most 15 of a-z, 0-9 and -, with a letter. Unique in a pod, because a Service finds only one of them."""
    seen = {}
    for path, container in containers(pod):
        for port in container.get("ports") or []:
            name = port.get("name")
            if name is None:
                continue
            if not re.fullmatch(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?", name) or "--" in name:
                yield f"{path} names a port {name}"
            if name in seen:
                yield f"{path} names a port {name}, like {seen[name]}"
            seen[name] = path


def port_numbers(pod):
    """Two containers of a pod share one network and cannot both listen on the same declared port."""
    seen = {}
    for path, container in containers(pod):
        for port in container.get("ports") or []:
            number = port["containerPort"], port.get("protocol", "TCP")
            if number in seen and seen[number] != path:
                yield f"{path} and {seen[number]} declare port {number[0]}"
            seen[number] = path


def named_ports(pod):
    """A probe or hook may name only a port of its own container."""
    for path, container in containers(pod):
        own = {port.get("name") for port in container.get("ports") or []}
        for name, handler in handlers(container):
            for way in ("httpGet", "tcpSocket"):
                port = (handler.get(way) or {}).get("port")
                if isinstance(port, str) and port not in own:
                    yield f"{path}.{name} refers to port {port}"


def names(pod):
    seen = set()
    for path, container in containers(pod):
        if container["name"] in seen:
            yield path
        seen.add(container["name"])


def mounts(pod):
    there = {volume["name"] for volume in spec(pod).get("volumes") or []}
    for path, container in containers(pod):
        for mount in container.get("volumeMounts") or []:
            if mount["name"] not in there:
                yield f"{path} mounts {mount['name']}"


def references(pod):
    """$(NAME) is not expanded unless NAME was declared earlier."""
    for path, container in containers(pod):
        defined = set()
        for one in container.get("env") or []:
            for name in REFERENCE.findall(str(one.get("value", ""))):
                if name not in defined:
                    yield f"{path}: {one['name']} refers to {name}"
            if one["name"] in defined:
                yield f"{path}: {one['name']} is defined twice"
            defined.add(one["name"])


def restart_policies(pod):
    """Only init containers may set a restart policy (others from 1.34 on, behind a feature gate). A sidecar's policy is Always."""
    for path, container in containers(pod):
        if "restartPolicy" in container and not (path.startswith("init") and container["restartPolicy"] == "Always"):
            yield path


def sidecar_hooks(pod):
    """Only containers that keep running may have probes and preStop hooks, not init containers that end."""
    for path, container in containers(pod):
        if path.startswith("init") and container.get("restartPolicy") != "Always":
            yield from (f"{path}.{name}" for name, handler in handlers(container) if handler)


def values_are_text(pod):
    for path, container in containers(pod):
        for one in container.get("env") or []:
            if "value" in one and not isinstance(one["value"], str):
                yield f"{path}: {one['name']} is {one['value']!r}, which is not a string in YAML"


RULES = (
    port_names,
    port_numbers,
    named_ports,
    names,
    mounts,
    references,
    restart_policies,
    sidecar_hooks,
    values_are_text,
)


def broken(pod):
    return [(rule.__name__, where) for rule in RULES for where in rule(pod)]


def services(things):
    """Yields errors in the Services of a file: a named target port that no container of their pods has.

    Named ports of native sidecars are not counted, because Services resolve them only from 1.32 on. `things` are (object, its pod or None).
    """
    for service, _ in things:
        service_spec = service.get("spec") or {}
        if service.get("kind") != "Service" or not service_spec.get("selector"):
            continue
        chosen = [pod for _, pod in things if pod and service_spec["selector"].items() <= labels(pod).items()]
        for port in service_spec.get("ports") or []:
            target = port.get("targetPort")
            for pod in chosen:
                if isinstance(target, str) and target not in main_ports(pod):
                    yield service, f"services: no container of the selected pods has a port named {target}"


def labels(pod):
    return (pod.get("metadata") or {}).get("labels") or {}


def main_ports(pod):
    return {port.get("name") for it in spec(pod).get("containers") or [] for port in it.get("ports") or []}
