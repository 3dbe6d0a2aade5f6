"""The pod security standard *restricted* including *baseline*, rule by rule.

The source is https://kubernetes.io/docs/concepts/security/pod-security-standards/ for 1.34, the first version with the rule on hosts of
probes. The exceptions for Windows pods are omitted. Each rule is a function from a pod (metadata and spec) to the paths that violate
the rule.
"""
CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
}
SELINUX_TYPES = {None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


def spec(pod):
    return pod.get("spec") or {}


def containers(pod):
    for kind in CONTAINERS:
        for container in spec(pod).get(kind) or []:
            yield f"{kind}[{container.get('name')}]", container


def contexts(pod):
    """Yields the security contexts of the pod and of each container."""
    yield "spec", spec(pod).get("securityContext") or {}
    for path, container in containers(pod):
        yield path, container.get("securityContext") or {}


def host_process(pod):
    for path, context in contexts(pod):
        if (context.get("windowsOptions") or {}).get("hostProcess"):
            yield path


def host_namespaces(pod):
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if spec(pod).get(key):
            yield key


def privileged(pod):
    for path, context in contexts(pod):
        if context.get("privileged"):
            yield path


def capabilities(pod):
    for path, container in containers(pod):
        options = (container.get("securityContext") or {}).get("capabilities") or {}
        if "ALL" not in (options.get("drop") or []):
            yield f"{path} does not drop ALL"
        for added in options.get("add") or []:
            if added != "NET_BIND_SERVICE":
                yield f"{path} adds {added}"


def volume_types(pod):
    for volume in spec(pod).get("volumes") or []:
        for kind in volume.keys() - {"name"} - VOLUMES:
            yield f"volumes[{volume['name']}] is a {kind}"


def host_ports(pod):
    for path, container in containers(pod):
        for port in container.get("ports") or []:
            if port.get("hostPort"):
                yield f"{path} uses host port {port['hostPort']}"


def handlers(container):
    """Yields probes and hooks by name."""
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        yield name, container.get(name) or {}
    for name, hook in (container.get("lifecycle") or {}).items():
        if isinstance(hook, dict):
            yield name, hook


def probe_hosts(pod):
    for path, container in containers(pod):
        for name, handler in handlers(container):
            for way in ("httpGet", "tcpSocket"):
                if (handler.get(way) or {}).get("host"):
                    yield f"{path}.{name}"


def apparmor(pod):
    for path, context in contexts(pod):
        if (context.get("appArmorProfile") or {}).get("type") not in (None, "RuntimeDefault", "Localhost"):
            yield path
    for key, value in ((pod.get("metadata") or {}).get("annotations") or {}).items():
        if key.startswith(APPARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/"):
            yield key


def selinux(pod):
    for path, context in contexts(pod):
        options = context.get("seLinuxOptions") or {}
        if options.get("type") not in SELINUX_TYPES or options.get("user") or options.get("role"):
            yield path


def proc_mount(pod):
    for path, context in contexts(pod):
        if context.get("procMount") not in (None, "Default"):
            yield path


def sysctls(pod):
    for one in (spec(pod).get("securityContext") or {}).get("sysctls") or []:
        if one["name"] not in SYSCTLS:
            yield one["name"]


def privilege_escalation(pod):
    for path, container in containers(pod):
        if (container.get("securityContext") or {}).get("allowPrivilegeEscalation") is not False:
            yield path


def run_as_non_root(pod):
    of_pod = (spec(pod).get("securityContext") or {}).get("runAsNonRoot")
    if of_pod is False:
        yield "spec"
    for path, container in containers(pod):
        if (container.get("securityContext") or {}).get("runAsNonRoot", of_pod) is not True:
            yield path


def run_as_user(pod):
    for path, context in contexts(pod):
        if context.get("runAsUser") == 0:
            yield path


def seccomp(pod):
    def kind(context):
        return (context.get("seccompProfile") or {}).get("type")

    of_pod = kind(spec(pod).get("securityContext") or {})
    if of_pod not in (None, "RuntimeDefault", "Localhost"):
        yield "spec"
    for path, container in containers(pod):
        if (kind(container.get("securityContext") or {}) or of_pod) not in ("RuntimeDefault", "Localhost"):
            yield path


RULES = (
    host_process,
    host_namespaces,
    privileged,
    capabilities,
    volume_types,
    host_ports,
    probe_hosts,
    apparmor,
    selinux,
    proc_mount,
    sysctls,
    privilege_escalation,
    run_as_non_root,
    run_as_user,
    seccomp,
)


def broken(pod):
    """Returns the violations of the standard: (rule, path)."""
    return [(rule.__name__, where) for rule in RULES for where in rule(pod)]
