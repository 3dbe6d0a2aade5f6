"""Where pods run: a network namespace each, or all on loopback."""
import dataclasses
import itertools
import os
import shutil
import subprocess
import sys

BRIDGE = "node0"
NETWORK = "10.88.0"
# Set for the process that runs inside the node's own namespace.
INSIDE = "POD_LIFE_NODE"


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """What a pod's containers share: an address, and what each command line begins with."""

    address: str
    enter: tuple
    pause: subprocess.Popen | None

    def close(self):
        if self.pause:
            self.pause.kill()
            self.pause.wait()


class Namespaces:
    """Each pod has a network namespace, held by a process that sleeps (the pause container), and a veth to a bridge."""

    name = "a network namespace for each pod"
    # Pods that may live at the same time.
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
        # `unshare` has left our namespace when its own link says so.
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
    """All on 127.0.0.1, one pod at a time, so that ports stay what the specs say."""

    name = "loopback, one pod after the other"
    apart = False
    address = "127.0.0.1"

    def sandbox(self):
        return Sandbox(self.address, (), None)


def network(wanted):
    """The first of the two that works here. The process begins anew in a namespace of its own, which is the node: nothing that is
    made there is seen outside, and all of it is gone when the process is."""
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
