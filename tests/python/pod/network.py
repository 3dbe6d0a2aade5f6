"""The network of pods: one network namespace per pod, or loopback for all."""
import dataclasses
import itertools
import os
import shutil
import subprocess
import sys

BRIDGE = "node0"
NETWORK = "10.88.0"
# Set for the process that runs inside the node's namespace.
INSIDE = "POD_LIFE_NODE"


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """The network shared by a pod's containers: an address, and a command prefix."""

    address: str
    enter: tuple
    pause: subprocess.Popen | None

    def close(self):
        if self.pause:
            self.pause.kill()
            self.pause.wait()


class Namespaces:
    """Gives each pod a network namespace with a veth to a bridge. A sleeping process (the pause container) holds the namespace."""

    name = "a network namespace for each pod"
    # Whether several pods can run at the same time.
    apart = True

    def __init__(self):
        self.address, self.numbers = f"{NETWORK}.1", itertools.count(2)
        ip("link", "set", "lo", "up")
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("address", "add", f"{self.address}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")

    def sandbox(self):
        number = next(self.numbers)
        pause = subprocess.Popen(["unshare", "--net", "--kill-child", "sleep", "infinity"])
        # The link differs from ours once `unshare` has entered the new namespace.
        ours = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{pause.pid}/ns/net") == ours:
            pass
        enter = ("nsenter", f"--net=/proc/{pause.pid}/ns/net", "--")
        ip("link", "add", f"pod{number}", "type", "veth", "peer", "name", "eth0", "netns", str(pause.pid))
        ip("link", "set", f"pod{number}", "master", BRIDGE, "up")
        for args in (("address", "add", f"{NETWORK}.{number}/24", "dev", "eth0"), ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):
            subprocess.run([*enter, "ip", *args], check=True)
        return Sandbox(f"{NETWORK}.{number}", enter, pause)


class Loopback:
    """Runs all pods on 127.0.0.1, one at a time, so that the ports of the specs need no change."""

    name = "loopback, one pod after the other"
    apart = False
    address = "127.0.0.1"

    def sandbox(self):
        return Sandbox(self.address, (), None)


def network(wanted):
    """Returns the first of the two networks that works here.

    For namespaces the process restarts in its own namespace, which acts as the node. The namespace hides everything that is created there,
    and removes it at the end."""
    if os.environ.get(INSIDE):
        return Namespaces()
    tools = all(shutil.which(tool) for tool in ("unshare", "nsenter", "ip"))
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    way = ["unshare", *user, "--net"]
    if wanted == "auto" and tools and subprocess.run([*way, "ip", "link", "add", "test", "type", "bridge"], capture_output=True).returncode == 0:
        os.environ[INSIDE] = "1"
        os.execvp(way[0], [*way, sys.executable, *sys.argv])
    return Loopback()


def ip(*args):
    subprocess.run(["ip", *args], check=True)
