#!/usr/bin/env python3
"""Installs the files of a release in clean roots and from local servers, as users do.

    dist_check.py --distrib FOLDER --tools FOLDER [--image FILE] [--verbose]

`cargo xtask dist` created FOLDER. A clean root is an empty folder with busybox. deb and rpm are installed there, the command of the systemd
unit is started, the packages are upgraded and removed. systemd starts the unit in a copy of this machine's root. install.sh runs in a clean root against a local file server. The chart, and the image
FILE in the format of `docker save`, are pushed to a local registry and installed from there.

The check runs in a separate network namespace. Needs Linux, root, dpkg, rpm, busybox and systemd-analyze; exit status 77 without root.
"""
import argparse
import contextlib
import functools
import hashlib
import http.server
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import tomllib

from namespaces import SKIPPED, group_removed, loopback, run_inside
from rig import WAIT_LIMIT, Tally, listening, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Set for the process that runs inside the namespaces.
INSIDE = "DIST_CHECK_INSIDE"
MANIFEST = tomllib.loads((ROOT / "Cargo.toml").read_text())
VERSION = MANIFEST["workspace"]["package"]["version"]
# Version of the package to which the check upgrades.
NEWER = "999.0.0"
FILES_PORT, REGISTRY_PORT = 25080, 25000
CONFIG = "etc/tokengauge/tokengauge.yaml"
# Any user without rights. systemd chooses one of the range 61184 to 65519 (DynamicUser).
USER = 65500
COMMANDS = ("sh", "rm", "kill", "cat", "sed", "grep", "tar", "gzip", "wget", "sha256sum", "mktemp", "mkdir", "cp", "mv", "chmod", "uname", "id")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=WAIT_LIMIT, **options)


def clean_root(folder):
    """Creates a root with busybox, and a `systemctl` that writes its arguments to a file."""
    for name in ("bin", "dev", "etc", "proc", "tmp", "run/systemd/system", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/rpm"):
        (folder / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), folder / "bin/busybox")
    for name in COMMANDS:
        (folder / "bin" / name).symlink_to("busybox")
    for name in ("status", "available"):
        (folder / "var/lib/dpkg" / name).touch()
    (folder / "bin/systemctl").write_text('#!/bin/sh\necho "$@" >>/systemctl.log\n')
    (folder / "bin/systemctl").chmod(0o755)
    for name in ("dev", "proc"):
        subprocess.run(["mount", "--rbind", f"/{name}", folder / name], check=True)
    return folder


def service_calls(root):
    """Returns the calls of systemctl since the last call of this function."""
    log = root / "systemctl.log"
    text = log.read_text() if log.exists() else ""
    log.unlink(missing_ok=True)
    return text.splitlines()


# --- archives --------------------------------------------------------------------------------------------------------


def archives(files, folder, tally):
    checked = run("sha256sum", "--check", "SHA256SUMS", cwd=files)
    tally.check("SHA256SUMS has the checksum of every file", checked.returncode == 0, checked.stdout + checked.stderr)
    summed = {line.split("  ")[1] for line in (files / "SHA256SUMS").read_text().splitlines()}
    missing = {file.name for file in files.iterdir()} - summed - {"SHA256SUMS", "tokengauge.rb"}
    tally.check("no file lacks a checksum", not missing, missing)
    # The values that cargo-binstall has for these machines.
    values = {"repo": "R", "name": "tokengauge", "version": VERSION, "target-family": "linux", "target-arch": os.uname().machine, "bin": "tokengauge"}
    metadata = MANIFEST["package"]["metadata"]["binstall"]
    url, inner = (re.sub(r"\{ ([a-z-]+) \}", lambda match: values[match[1]], metadata[key]) for key in ("pkg-url", "bin-dir"))
    archive = files / url.rsplit("/", 1)[1]
    tally.check("cargo binstall finds the archive", archive.is_file() and url == f"R/releases/download/v{VERSION}/{archive.name}", url)
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="fully_trusted")
        owners = {(member.uid, member.gid) for member in content}
    tally.check("the archive belongs to root", owners == {(0, 0)}, owners)
    said = run(folder / inner, "--version")
    tally.check("the program of the archive runs", said.stdout == f"tokengauge {VERSION}\n", said)
    parts = ("LICENSE", "tokengauge.cdx.json", "man/tokengauge-run.1", "completions/_tokengauge", "tokengauge.service", "tokengauge.yaml")
    absent = [part for part in parts if not (folder / inner).parent.joinpath(part).is_file()]
    tally.check("the archive has license, SBOM, manual, completions and the files of the service", not absent, absent)


# --- packages --------------------------------------------------------------------------------------------------------


def newer_packages(distrib, tools, folder):
    """Packages the staged files with another version and another configuration."""
    stage = folder / "stage"
    shutil.copytree(distrib / "stage" / f"tokengauge-{VERSION}-linux-{os.uname().machine}", stage)
    with (stage / "tokengauge.yaml").open("a") as file:
        file.write("# A default that is new in this version.\n")
    for packager in ("deb", "rpm"):
        packaged = run(tools / "nfpm", "package", "--config", "deploy/packages/nfpm.yaml", "--packager", packager, "--target", folder, cwd=ROOT,
                       env={**os.environ, "STAGE": str(stage), "VERSION": NEWER, "REPOSITORY": "R", "ARCH": architecture()})
        assert packaged.returncode == 0, packaged


def architecture():
    return {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


class Deb:
    kept, removed = ".dpkg-dist", None

    def __init__(self, root):
        self.command = ["dpkg", f"--root={root}", "--force-confdef", "--force-confold"]

    def install(self, folder):
        return run(*self.command, "--install", *folder.glob(f"*_{architecture()}.deb"), stdin=subprocess.DEVNULL)

    def remove(self):
        return run(*self.command, "--remove", "tokengauge")


class Rpm:
    # `rpm -e` renames a changed file.
    kept, removed = ".rpmnew", ".rpmsave"

    def __init__(self, root):
        # The clean root has a shell, but no package that provides it.
        self.command = ["rpm", f"--root={root}", "--nodeps", "--nosignature"]

    def install(self, folder):
        return run(*self.command, "--upgrade", *folder.glob(f"*.{os.uname().machine}.rpm"))

    def remove(self):
        return run(*self.command, "--erase", "tokengauge")


def package(kind, root, distrib, newer, tally):
    """Installs a package, starts the service's command, upgrades and removes the package."""
    name, manager = kind.__name__.lower(), kind(root)
    done = manager.install(distrib / "files")
    tally.check(f"{name}: installs", done.returncode == 0, done)
    tally.check(f"{name}: does not start the service", service_calls(root) == ["daemon-reload", "try-restart tokengauge.service"])
    for file in ("usr/share/man/man1/tokengauge-run.1", "usr/share/bash-completion/completions/tokengauge", "usr/share/doc/tokengauge/tokengauge.cdx.json"):
        tally.check(f"{name}: installs /{file}", (root / file).is_file())
    served(name, root, tally)

    default = (root / CONFIG).read_text()
    own = default.replace("127.0.0.1:4000", "127.0.0.1:4010")
    (root / CONFIG).write_text(own)
    done = manager.install(newer)
    tally.check(f"{name}: upgrades", done.returncode == 0, done)
    tally.check(f"{name}: an upgrade keeps a changed configuration", (root / CONFIG).read_text() == own)
    beside = root / (CONFIG + manager.kept)
    tally.check(f"{name}: an upgrade writes the new default beside it", beside.is_file() and "is new in this version" in beside.read_text())
    calls = service_calls(root)
    tally.check(f"{name}: an upgrade restarts a running service once", calls.count("try-restart tokengauge.service") == 1, calls)
    tally.check(f"{name}: an upgrade does not disable the service", not any(call.startswith("disable") for call in calls), calls)

    done = manager.remove()
    tally.check(f"{name}: is removed", done.returncode == 0 and not (root / "usr/bin/tokengauge").exists(), done)
    tally.check(f"{name}: removal stops the service first", service_calls(root)[0] == "disable --now tokengauge.service")
    left = root / (CONFIG + (manager.removed or ""))
    tally.check(f"{name}: removal keeps the changed configuration", left.is_file() and left.read_text() == own)


def purged(root, tally):
    state = root / "var/lib/private/tokengauge/slo.json"
    state.parent.mkdir(parents=True)
    state.touch()
    done = run("dpkg", f"--root={root}", "--purge", "tokengauge")
    tally.check("deb: purge removes configuration and state", done.returncode == 0 and not (root / CONFIG).exists() and not state.exists(), done)


class Manager:
    """The socket on which systemd waits for a service of Type=notify."""

    def __init__(self, root):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(1)
        (root / "run/notify").unlink(missing_ok=True)
        self.socket.bind(str(root / "run/notify"))
        (root / "run/notify").chmod(0o777)

    def received(self, process):
        """Returns the state of the next message, or why there is none."""
        for _ in range(60):
            with contextlib.suppress(TimeoutError):
                return self.socket.recv(1024).decode().splitlines()[0]
            if process.poll() is not None:
                return f"the process ended with {process.returncode}"
        return "nothing"


def unit(root):
    text = (root / "usr/lib/systemd/system/tokengauge.service").read_text()
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.M))


def served(name, root, tally):
    """Starts and reloads the service with the commands of its unit."""
    settings = unit(root)
    tally.check(f"{name}: the unit waits for the program", settings["Type"] == "notify")
    manager = Manager(root)
    chroot = [shutil.which("chroot"), f"--userspec={USER}:{USER}", str(root)]
    # A container cannot raise its own limit.
    limit = min(int(settings["LimitNOFILE"]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    process = subprocess.Popen(["prlimit", f"--nofile={limit}:{limit}", *chroot, *shlex.split(settings["ExecStart"])],
                               env={"NOTIFY_SOCKET": "/run/notify", "PATH": "/usr/bin:/bin"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    got = manager.received(process)
    tally.check(f"{name}: the program reports that it is ready", got == "READY=1", got)
    if got != "READY=1":
        process.kill()
        process.wait()
        return
    probe = run(*chroot, "/usr/bin/tokengauge", "probe", "readyz")
    tally.check(f"{name}: the service is ready with the installed configuration", probe.returncode == 0, probe)
    # prlimit and chroot replace themselves, so the process is the program.
    reload = shlex.split(settings["ExecReload"].replace("$MAINPID", str(process.pid)))
    run(*chroot, *reload)
    got = [manager.received(process), manager.received(process)]
    tally.check(f"{name}: the reload command reloads", got == ["RELOADING=1", "READY=1"], got)
    process.send_signal(signal.SIGTERM)
    got = manager.received(process)
    tally.check(f"{name}: the program reports that it stops", got == "STOPPING=1", got)
    log, _ = process.communicate(timeout=WAIT_LIMIT)
    tally.check(f"{name}: the program stops with 0 and without a warning", process.returncode == 0 and "warn" not in log.lower() and "error" not in log.lower(), log)


def hardened(root, tally):
    """Checks the unit with systemd. `security` rates the exposure from 0 to 10; --threshold is in tenths."""
    # The units to which the unit refers.
    shutil.copytree("/lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True, dirs_exist_ok=True)
    found = run("systemd-analyze", "verify", f"--root={root}", "--man=no", "--generators=no", root / "usr/lib/systemd/system/tokengauge.service")
    named = [line for line in (found.stdout + found.stderr).splitlines() if "tokengauge.service" in line]
    tally.check("systemd accepts every line of the unit", not named, named)
    rated = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", root / "usr/lib/systemd/system/tokengauge.service")
    exposure = re.search(r"exposure level.*", rated.stdout)
    print(f"systemd-analyze security: {exposure[0] if exposure else rated}")
    tally.check("systemd rates the exposure of the unit 2 or less", rated.returncode == 0, exposure)


def own_group():
    """Creates a cgroup, below which systemd creates those of its services."""
    mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    unified = next(mount[1] for mount in mounts if mount[2] == "cgroup2")
    own = next(line[3:] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    group = pathlib.Path(unified) / own.strip("/") / f"dist-check-{os.getpid()}"
    group.mkdir()
    return group


def booted(files, folder, tally):
    """Lets systemd start, reload and stop the installed service with all restrictions of its unit."""
    command = ["timeout", "--kill-after=1", "120", "unshare", "--pid", "--mount", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child",
               ROOT / "tests/python/dist_boot.sh", folder, next(files.glob(f"*_{architecture()}.deb"))]
    group = own_group()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               preexec_fn=lambda: (group / "cgroup.procs").write_text("0"))
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line == "done\n":
            break
    process.terminate()
    process.wait()
    wait_until(lambda: group_removed(group))
    facts = dict(line.strip().split("=", 1) for line in lines if "=" in line)
    if "booting" not in facts:
        print(f"systemd was not booted: {lines[-1] if lines else 'no output'}")
        return
    tally.check("systemd: the service starts", facts.get("started") == "yes" and facts.get("ready") == "ready", lines)
    tally.check("systemd: the status is that of the program", facts.get("status") == "serving", lines)
    confined = facts.get("Uid", "0") != "0" and int(facts.get("CapEff", "1"), 16) == 0 and facts.get("NoNewPrivs") == "1" and facts.get("Seccomp") == "2"
    tally.check("systemd: the service has no rights and a filter of system calls", confined, lines)
    tally.check("systemd: the service has the limit of open files", facts.get("files") == "65536", lines)
    tally.check("systemd: the status shows a rejected configuration", facts.get("reloaded") == "yes" and "previous configuration" in facts.get("rejected", ""), lines)
    tally.check("systemd: the service stops cleanly and without a warning", facts.get("result") == "success inactive" and facts.get("warnings") == "0", lines)


# --- install.sh ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def file_server(folder):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", FILES_PORT), functools.partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{FILES_PORT}"
        server.shutdown()


def installer(root, files, folder, tally):
    """Runs install.sh in a clean root, and with the machine's shell and curl."""
    tampered = folder / "download/v0.0.1"
    for place in (folder / "latest/download", folder / f"download/v{VERSION}", tampered):
        place.mkdir(parents=True)
        for file in files.glob("*.tar.gz"):
            os.link(file, place / file.name)
        shutil.copy(files / "SHA256SUMS", place)
    for file in tampered.glob("*.tar.gz"):
        content = file.read_bytes()
        file.unlink()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    shutil.copy(files / "install.sh", root / "install.sh")
    with file_server(folder) as address:
        def install(*arguments, **variables):
            variables = {"TOKENGAUGE_BASE_URL": address, "PATH": "/bin", "HOME": "/home", **variables}
            return run(shutil.which("chroot"), root, "/bin/sh", "/install.sh", *arguments, env=variables)

        for what, arguments, variables, program in (
            ("the newest version", [], {}, "usr/local/bin/tokengauge"),
            ("a version with --prefix", ["--prefix", "/opt/a"], {"TOKENGAUGE_VERSION": VERSION}, "opt/a/bin/tokengauge"),
        ):
            done = install(*arguments, **variables)
            said = run(root / program, "--version") if (root / program).exists() else None
            tally.check(f"install.sh installs {what}", done.returncode == 0 and said and said.stdout == f"tokengauge {VERSION}\n", done)
            tally.check(f"install.sh reports the program for {what}", f"/{program}" in done.stdout and "not in PATH" in done.stdout, done)
        for what, arguments, variables, message in (
            ("a wrong checksum", [], {"TOKENGAUGE_VERSION": "0.0.1"}, "nothing was installed"),
            ("an unknown version", [], {"TOKENGAUGE_VERSION": "0.0.2"}, "is there a release 0.0.2?"),
            ("an unknown argument", ["--prefx", "/x"], {}, "unknown argument '--prefx'"),
        ):
            done = install(*arguments, **{"HOME": "/home", **variables})
            tally.check(f"install.sh refuses {what}", done.returncode == 1 and message in done.stderr, done)
        done = install("--prefix", "/opt/b", TOKENGAUGE_VERSION="0.0.1")
        tally.check("install.sh installs nothing after a wrong checksum", done.returncode == 1 and not (root / "opt/b").exists(), done)
        done = run("sh", files / "install.sh", "--prefix", folder / "own", env={**os.environ, "TOKENGAUGE_BASE_URL": address})
        tally.check("install.sh runs with this machine's shell", done.returncode == 0 and (folder / "own/bin/tokengauge").is_file(), done)
        # busybox's shell would prefer its own uname.
        other = folder / "other"
        other.mkdir()
        (other / "uname").write_text('#!/bin/sh\ncase $1 in -s) echo Plan9 ;; *) echo mips ;; esac\n')
        (other / "uname").chmod(0o755)
        done = run("sh", files / "install.sh", "--prefix", folder / "none", env={**os.environ, "PATH": f"{other}:{os.environ['PATH']}", "TOKENGAUGE_BASE_URL": address})
        tally.check("install.sh names a platform without binaries", done.returncode == 1 and "no binary for Plan9 on mips" in done.stderr, done)


# --- registry --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def registry(tools):
    process = subprocess.Popen([tools / "crane", "registry", "serve", "--address", f"127.0.0.1:{REGISTRY_PORT}"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: process.poll() is not None or listening(REGISTRY_PORT, "127.0.0.1"))
        yield f"127.0.0.1:{REGISTRY_PORT}"
    finally:
        process.kill()
        process.wait()


def pushed(files, tools, image, folder, tally):
    helm = functools.partial(run, tools / "helm")
    with registry(tools) as address:
        chart = files / f"tokengauge-{VERSION}.tgz"
        done = helm("push", chart, f"oci://{address}/charts", "--plain-http")
        tally.check("the chart is pushed to a registry", done.returncode == 0, done)
        done = helm("pull", f"oci://{address}/charts/tokengauge", "--version", VERSION, "--plain-http", "--destination", folder)
        tally.check("the chart is pulled from the registry", done.returncode == 0, done)
        rendered, local = (helm("template", "one", chart) for chart in (folder / chart.name, ROOT / "deploy/helm/tokengauge"))
        tally.check("the chart of the registry renders like the chart of the repository",
                    rendered.returncode == 0 and "kind: " in local.stdout and rendered.stdout == local.stdout, rendered)
        if not image:
            print("image: not pushed, because the stage docker has not saved one")
            return
        name = f"{address}/tokengauge:{VERSION}"
        done = run(tools / "crane", "push", "--insecure", image, name)
        tally.check("the image is pushed to a registry", done.returncode == 0, done)
        exported = folder / "image.tar"
        done = run(tools / "crane", "export", "--insecure", name, exported)
        tally.check("the image is pulled", done.returncode == 0, done)
        with tarfile.open(exported) as content:
            content.extractall(folder / "image", filter="fully_trusted")
        said = run("chroot", folder / "image", "/tokengauge", "--version")
        tally.check("the program of the pulled image runs", said.stdout == f"tokengauge {VERSION}\n", said)
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (folder / "image").glob("tokengauge*")]
        tally.check("the image has program and SBOM", len(digests) == 2, digests)


def inside(args, folder):
    loopback()
    tally = Tally(args.verbose)
    files = args.distrib / "files"
    newer = folder / "newer"
    for name in ("archive", "newer", "booted", "server", "registry"):
        (folder / name).mkdir()
    archives(files, folder / "archive", tally)
    newer_packages(args.distrib, args.tools, newer)
    roots = {kind: clean_root(folder / kind.__name__) for kind in (Deb, Rpm)}
    for kind, root in roots.items():
        package(kind, root, args.distrib, newer, tally)
    purged(roots[Deb], tally)
    root = clean_root(folder / "unit")
    Deb(root).install(files)
    hardened(root, tally)
    booted(files, folder / "booted", tally)
    installer(clean_root(folder / "installer"), files, folder / "server", tally)
    pushed(files, args.tools, args.image, folder / "registry", tally)
    print(f"{tally.passed} checks passed, {tally.failed} failed")
    return 1 if tally.failed else 0


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--distrib", type=pathlib.Path, required=True)
    cli.add_argument("--tools", type=pathlib.Path, required=True)
    cli.add_argument("--image", type=pathlib.Path)
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    if os.geteuid() != 0:
        print("SKIPPED: package managers write into a clean root only as root")
        return SKIPPED
    if folder := os.environ.get(INSIDE):
        return inside(args, pathlib.Path(folder))
    with tempfile.TemporaryDirectory(prefix="dist-check-", dir=args.distrib) as folder:
        return run_inside(INSIDE, folder)


if __name__ == "__main__":
    sys.exit(main())
