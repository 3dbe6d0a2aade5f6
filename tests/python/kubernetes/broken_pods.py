"""A valid pod, and changes that each break exactly one rule: (rule, path, value)."""

GOOD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "good"},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [
            {
                "name": "sidecar",
                "image": "example/sidecar:1",
                "restartPolicy": "Always",
                "ports": [{"name": "tokengauge", "containerPort": 4001}],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}],
                "livenessProbe": {"httpGet": {"path": "/livez", "port": "tokengauge"}},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
        "containers": [
            {
                "name": "app",
                "image": "example/app:1",
                "ports": [{"name": "http", "containerPort": 8000}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    },
}

SIDECAR, APP = ("spec", "initContainers", 0), ("spec", "containers", 0)
CONTEXT = ("spec", "securityContext")
OF_APP = (*APP, "securityContext")

RESTRICTED = (
    ("host_process", (*CONTEXT, "windowsOptions"), {"hostProcess": True}),
    ("host_process", (*OF_APP, "windowsOptions"), {"hostProcess": True}),
    ("host_namespaces", ("spec", "hostNetwork"), True),
    ("host_namespaces", ("spec", "hostPID"), True),
    ("host_namespaces", ("spec", "hostIPC"), True),
    ("privileged", (*OF_APP, "privileged"), True),
    ("capabilities", (*OF_APP, "capabilities"), {}),
    ("capabilities", (*OF_APP, "capabilities"), {"drop": ["NET_RAW"]}),
    ("capabilities", (*OF_APP, "capabilities", "add"), ["NET_ADMIN"]),
    ("capabilities", (*SIDECAR, "securityContext", "capabilities", "add"), ["CHOWN"]),
    ("volume_types", ("spec", "volumes", 0), {"name": "tmp", "hostPath": {"path": "/tmp"}}),
    ("volume_types", ("spec", "volumes", 0), {"name": "tmp", "nfs": {"server": "a", "path": "/"}}),
    ("host_ports", (*APP, "ports", 0, "hostPort"), 8000),
    ("probe_hosts", (*SIDECAR, "livenessProbe", "httpGet", "host"), "10.0.0.1"),
    ("probe_hosts", (*APP, "lifecycle"), {"preStop": {"tcpSocket": {"port": 8000, "host": "10.0.0.1"}}}),
    ("apparmor", (*OF_APP, "appArmorProfile"), {"type": "Unconfined"}),
    ("apparmor", ("metadata", "annotations"), {"container.apparmor.security.beta.kubernetes.io/app": "unconfined"}),
    ("selinux", (*OF_APP, "seLinuxOptions"), {"type": "spc_t"}),
    ("selinux", (*CONTEXT, "seLinuxOptions"), {"user": "system_u"}),
    ("selinux", (*CONTEXT, "seLinuxOptions"), {"role": "system_r"}),
    ("proc_mount", (*OF_APP, "procMount"), "Unmasked"),
    ("sysctls", (*CONTEXT, "sysctls"), [{"name": "net.core.somaxconn", "value": "1"}]),
    ("privilege_escalation", (*OF_APP, "allowPrivilegeEscalation"), True),
    ("privilege_escalation", OF_APP, {"capabilities": {"drop": ["ALL"]}}),
    ("run_as_non_root", (*OF_APP, "runAsNonRoot"), False),
    ("run_as_non_root", CONTEXT, {"seccompProfile": {"type": "RuntimeDefault"}}),
    ("run_as_user", (*CONTEXT, "runAsUser"), 0),
    ("run_as_user", (*OF_APP, "runAsUser"), 0),
    ("seccomp", (*OF_APP, "seccompProfile"), {"type": "Unconfined"}),
    ("seccomp", CONTEXT, {"runAsNonRoot": True}),
)

BEYOND = (
    ("port_names", (*APP, "ports", 0, "name"), "tokengauge-admin"),
    ("port_names", (*APP, "ports", 0, "name"), "tokengauge"),
    ("port_names", (*APP, "ports", 0, "name"), "a--b"),
    ("port_names", (*APP, "ports", 0, "name"), "8000"),
    ("port_numbers", (*APP, "ports", 0, "containerPort"), 4001),
    ("named_ports", (*APP, "readinessProbe"), {"httpGet": {"path": "/", "port": "htpp"}}),
    ("names", (*APP, "name"), "sidecar"),
    ("mounts", (*APP, "volumeMounts", 0, "name"), "shm"),
    ("references", (*SIDECAR, "env", 0), {"name": "C", "value": "1"}),
    ("references", (*SIDECAR, "env", 0, "name"), "B"),
    ("restart_policies", (*APP, "restartPolicy"), "Always"),
    ("sidecar_hooks", (*SIDECAR, "restartPolicy"), None),
    ("values_are_text", (*SIDECAR, "env", 0, "value"), 1),
)
