"""A cluster of one node: the Kubernetes servers, containerd, runc and a CNI plugin, as processes of one network, mount and PID namespace.

The namespaces remove most of their state when they end. `inside` restores the cgroups and the kernel settings that they do not cover.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import yaml

from kubernetes.control_plane import SERVER, ControlPlane, until
from namespaces import APART, SKIPPED, run_inside, group_removed
from node.dns import Dns

NAME = "node-0"
PODS = "10.88.0.0/16"
DOMAIN = "cluster.local"
PAUSE = "localhost/pause:1"
# The kubelet's cAdvisor looks for the socket only here.
RUNTIME = "/run/containerd/containerd.sock"
# Where the Debian package installs the plugins.
PLUGINS = "/usr/lib/cni"
# Set for the process that runs inside the namespaces.
INSIDE = "NODE_CHECK_INSIDE"
CGROUPS = pathlib.Path("/sys/fs/cgroup")
# The parent cgroup of all pods. The name must differ from `kubepods`: this machine may already run a node.
CGROUP = "tokengauge-node"
# The kubelet does not start without these controllers (pkg/kubelet/cm, cgroup_manager_linux.go).
CONTROLLERS = {"cpu", "cpuset", "memory", "pids"}
# Machine-wide settings that the kubelet changes (pkg/kubelet/cm, setupKernelTunables).
KERNEL = ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"]


def unsupported_reason():
    """Returns the reason why this machine cannot run a node, or None."""
    if os.geteuid() != 0:
        return "root is required"
    tried = subprocess.run([*APART, "ip", "link", "add", "it", "type", "veth", "peer", "name", "that"], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"cannot create namespaces or links: {tried.stderr.strip()}"
    try:
        for folder in cgroups():
            folder.mkdir(exist_ok=True)
        lacking = CONTROLLERS - controllers()
    except OSError as problem:
        return f"cannot create cgroups: {problem}"
    finally:
        remove_cgroups()
    return f"cgroups lack the controllers {', '.join(sorted(lacking))}" if lacking else None


def cgroups():
    """Returns our folder in each hierarchy: one for version 2, one per controller for version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS / CGROUP]
    return [folder / CGROUP for folder in CGROUPS.iterdir() if (folder / "cgroup.procs").exists()]


def controllers():
    """Returns the controllers that our folders have."""
    try:
        return set((CGROUPS / CGROUP / "cgroup.controllers").read_text().split())
    except FileNotFoundError:
        return {folder.parent.name for folder in cgroups()}


def remove_cgroups():
    # The last processes in them may still be ending.
    until(lambda: all([group_removed(folder) for folder in cgroups()]), 20)


def inside():
    """Runs this program again as the first process of new namespaces, and returns the node's folder there.

    The outer process restores the machine when the inner one ends, keeps logs only after a failure, and exits with the same status.
    Exits with 77 if this machine cannot run a node."""
    if not os.environ.get(INSIDE):
        if problem := unsupported_reason():
            print(f"SKIPPED: cannot run a node here: {problem}")
            sys.exit(SKIPPED)
        before = {name: value for name in KERNEL if (value := setting(name)) is not None}
        for each in cgroups():
            each.mkdir(exist_ok=True)
        folder = tempfile.mkdtemp(prefix="node-check-")
        try:
            status = run_inside(INSIDE, folder)
        finally:
            remove_cgroups()
            for data in ("containerd", "containerd-state", "etcd", "kubelet", "image.tar"):
                subprocess.run(["rm", "-rf", f"{folder}/{data}"])
            for name, value in before.items():
                if setting(name) != value:
                    pathlib.Path("/proc/sys", name).write_text(value)
        if status == 0:
            shutil.rmtree(folder)
        sys.exit(status)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    # Service addresses belong to no interface. kube-proxy can rewrite packets to them only if a route exists.
    for step in ("link add eth0 type veth peer name out0", "link set out0 up", "link set eth0 up", f"address add {SERVER}/32 dev eth0", "route add default dev eth0"):
        subprocess.run(["ip", *step.split()], check=True)
    # The kubelet writes there even if its own folders are elsewhere.
    for folder in ("/var/lib/kubelet", "/var/log", "/run", "/etc/cni"):
        os.makedirs(folder, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    return pathlib.Path(os.environ[INSIDE])


def setting(name):
    try:
        return pathlib.Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None


class Node(ControlPlane):
    """A running node. `tools` is a folder with the Kubernetes servers. The constructor returns when everything is ready."""

    def __init__(self, folder, tools):
        super().__init__(folder, str(tools / "kube-apiserver"), [
            f"--kubelet-client-certificate={folder}/admin.crt", f"--kubelet-client-key={folder}/admin.key",
            "--kubelet-preferred-address-types=InternalIP"])
        self.address, self.tools = SERVER, tools
        self.dns = Dns(self, SERVER, DOMAIN)
        self.runtime()
        self.await_ready()
        known = f"--kubeconfig={self.kubeconfig}"
        self.start("kube-controller-manager", str(tools / "kube-controller-manager"), known, "--leader-elect=false", "--bind-address=127.0.0.1",
                   f"--service-account-private-key-file={folder}/accounts.key", f"--root-ca-file={folder}/ca.crt",
                   "--horizontal-pod-autoscaler-sync-period=5s")
        self.start("kube-scheduler", str(tools / "kube-scheduler"), known, "--leader-elect=false", "--bind-address=127.0.0.1")
        self.start("kube-proxy", str(tools / "kube-proxy"), f"--config={self.settings('kube-proxy', self.of_proxy())}", f"--hostname-override={NAME}")
        self.start("kubelet", str(tools / "kubelet"), known, f"--config={self.settings('kubelet', self.of_kubelet())}", f"--hostname-override={NAME}",
                   f"--node-ip={SERVER}", f"--root-dir={folder}/kubelet")
        self.await_node()

    # --- settings ---

    def settings(self, name, content):
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    def of_kubelet(self):
        (self.folder / "resolv.conf").write_text(f"nameserver {SERVER}\n")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "address": SERVER,
            "authentication": {"x509": {"clientCAFile": f"{self.folder}/ca.crt"}},
            "cgroupDriver": "cgroupfs", "failCgroupV1": False, "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{RUNTIME}", "podLogsDir": f"{self.folder}/logs",
            "volumePluginDir": f"{self.folder}/plugins", "clusterDNS": [SERVER], "clusterDomain": DOMAIN, "resolvConf": f"{self.folder}/resolv.conf",
            # The tests do not depend on the free disk space of the machine.
            "evictionHard": {"nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "1Mi"}, "imageGCHighThresholdPercent": 100,
            "enforceNodeAllocatable": [], "cgroupRoot": f"/{CGROUP}",
        }

    def of_proxy(self):
        return {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables", "clusterCIDR": PODS,
                "bindAddress": "127.0.0.1", "clientConnection": {"kubeconfig": str(self.kubeconfig)}, "detectLocalMode": "ClusterCIDR",
                # These settings would change the whole machine.
                "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}}

    def runtime(self):
        network = self.folder / "cni"
        network.mkdir()
        # A pod has a route to the node only, so that kube-proxy's rules see both directions of the traffic between two pods of a Service.
        (network / "10-pods.conflist").write_text(json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [
            {"type": "ptp", "ipMasq": False,
             "ipam": {"type": "host-local", "dataDir": f"{self.folder}/addresses", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}))
        (self.folder / "containerd.toml").write_text(f"""
version = 2
root = "{self.folder}/containerd"
state = "{self.folder}/containerd-state"
[grpc]
address = "{RUNTIME}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{PLUGINS}"
conf_dir = "{network}"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
""")
        self.start("containerd", "containerd", "--config", f"{self.folder}/containerd.toml")

    # --- operations ---

    def load(self, archive, name):
        """Imports an image from an archive in the format of `docker save` under this name."""
        ctr = ("ctr", "--address", RUNTIME, "--namespace", "k8s.io", "images")
        loaded = self.run(*ctr, "import", str(archive)).split()[1]
        if loaded != name:
            self.run(*ctr, "tag", loaded, name)

    def run(self, *command):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
        return done.stdout

    def await_node(self):
        def ready():
            self.alive()
            status, _, result = self.ask("GET", f"/api/v1/nodes/{NAME}")
            return status == 200 and any(it["type"] == "Ready" and it["status"] == "True" for it in result["status"].get("conditions", []))

        assert until(ready, 120), "the node was not ready within 2 minutes:\n" + (self.folder / "kubelet.log").read_text(errors="replace")[-3000:]

    def stop(self):
        self.dns.close()
        super().stop()
