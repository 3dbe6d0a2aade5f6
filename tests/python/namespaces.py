"""Linux namespaces for checks that need their own network or file system. Uses only the standard library."""
import ctypes
import fcntl
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys

NETWORK, MOUNTS, USERS = 0x40000000, 0x00020000, 0x10000000
SKIPPED = 77
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


def called(result, what):
    """Raises OSError if a C call returned -1."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter(flags):
    """Moves this process into new namespaces; without root, into a user namespace as its root. Exits with 77 if that is not permitted."""
    user, group = os.getuid(), os.getgid()
    try:
        called(libc.unshare(flags if user == 0 else flags | USERS), "unshare")
    except OSError as problem:
        print(f"cannot create namespaces: {problem}; run the check as root")
        sys.exit(SKIPPED)
    if user != 0:
        pathlib.Path("/proc/self/setgroups").write_text("deny")
        pathlib.Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        pathlib.Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    if flags & MOUNTS:
        mount("none", "/", 16384 | 1 << 18)  # recursively private


# Prefix of a command that becomes the first process of new network, mount and PID namespaces.
APART = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def run_inside(name, value):
    """Runs this program again as a child with one more variable, which marks it. Returns the child's exit status.

    The child ends when this process ends for any reason."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return subprocess.run([*APART, sys.executable, *sys.argv], env={**os.environ, name: str(value)},
                          preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)).returncode


def group_removed(group):
    """Returns whether a cgroup and its children are gone or could be removed. Removal fails while their processes are ending."""
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)
    except OSError:
        return False
    return True


def mount(source, at, flags):
    called(libc.mount(str(source).encode(), str(at).encode(), None, flags, None), f"mount {at}")


def loopback(*addresses):
    """Brings up lo in a new network namespace, with more addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        up = 0x1 | 0x40  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", up))  # SIOCSIFFLAGS
        for number, address in enumerate(addresses, 1):
            name = f"lo:{number}".encode()
            place = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(sock, 0x8916, struct.pack("16s16s", name, place))  # SIOCSIFADDR
