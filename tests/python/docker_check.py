#!/usr/bin/env python3
"""Builds the last stage of deploy/docker/Dockerfile with Docker and runs the image by the command in the Dockerfile's head.

    docker_check.py --rootfs FOLDER --binary FILE [--save FILE] [--verbose]

deploy/docker/rootfs created FOLDER. A Docker engine builds the Dockerfile's last stage unchanged, with FOLDER in place of the first stage's
result, which would need a registry and minutes. The container runs with the command in the Dockerfile's head, with a simulated backend of
--binary as its upstream. Streams pass through it, its health is checked, it is drained and stopped. --save writes the image in the format of
`docker save` under the name tokengauge:checked.

The check runs its own engine. The engine's files are in a temporary folder. Its processes, mounts and networks are in namespaces that end
with the check. Needs Linux, root and `dockerd`; exit status 77 if an engine cannot start.
"""
import argparse
import asyncio
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile

from image_check import DOCKERFILE, last_stage
from namespaces import SKIPPED, run_inside, group_removed
from pod.client import Clients
from rig import WAIT_LIMIT, Tally, clear_environment, listening, wait_until

# The folder of the engine. Set for the process that runs inside the namespaces.
INSIDE = "DOCKER_CHECK_FOLDER"
IMAGE = "tokengauge:checked"
# Docker's bridge. The backend listens on it, because the machine's addresses are not visible in the namespace.
BRIDGE, BACKEND = "10.89.0.1", 8000
# The default grace period of `docker stop` in seconds, before SIGKILL.
DOCKER_WAITS = 10
SECOND = 1_000_000_000


# --- the engine ------------------------------------------------------------------------------------------------------


def outside():
    """Runs this check again as the first process of new namespaces, and leaves nothing behind."""
    if os.geteuid() != 0 or not shutil.which("dockerd") or not shutil.which("unshare"):
        print("SKIPPED: a Docker engine needs root, dockerd and unshare (util-linux)")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="docker-check-") as folder:
        try:
            return run_inside(INSIDE, folder)
        finally:
            wait_until(lambda: all([group_removed(group) for group in pathlib.Path("/sys/fs/cgroup").rglob(pathlib.Path(folder).name)]))


class Engine:
    """`dockerd` with its own files, cgroup, settings and network."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "dockerd.log"
        # Do not use a running containerd, or settings and keys of the machine.
        for hidden in ("/run", "/etc/docker"):
            if os.path.isdir(hidden):
                run("mount", "-t", "tmpfs", "none", hidden)
        run("ip", "link", "set", "lo", "up")
        (folder / "daemon.json").write_text("{}")
        os.environ["DOCKER_HOST"] = "unix:///run/docker.sock"
        os.environ["DOCKER_CONFIG"] = str(folder / "client")
        self.process = subprocess.Popen(
            ["dockerd", "--config-file", folder / "daemon.json", "--data-root", folder / "data", "--exec-root", "/run/docker", "--pidfile", "/run/docker.pid",
             "--host", os.environ["DOCKER_HOST"], "--iptables=false", "--bip", f"{BRIDGE}/24", "--exec-opt", "native.cgroupdriver=cgroupfs",
             "--cgroup-parent", folder.name],
            stdout=self.log.open("w"), stderr=subprocess.STDOUT)
        wait_until(lambda: self.process.poll() is not None or subprocess.run(["docker", "version"], capture_output=True).returncode == 0)

    @property
    def runs(self):
        return self.process.poll() is None

    def stop(self):
        for container in run("docker", "ps", "--all", "--quiet").split():
            run("docker", "rm", "--force", container)
        self.process.terminate()
        self.process.wait(WAIT_LIMIT)


def run(*command, **options):
    """Returns the output of a command, which must succeed."""
    done = subprocess.run(command, text=True, capture_output=True, timeout=2 * WAIT_LIMIT, **options)
    if done.returncode:
        raise SystemExit(f"{shlex.join(map(str, command))}: exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


def inspected(name):
    return json.loads(run("docker", "inspect", name))[0]


def builder():
    """Returns a client that builds with BuildKit, and its version. Clients from 23.0 on need a plugin for BuildKit."""
    for folder in os.get_exec_path():
        client = pathlib.Path(folder, "docker")
        if client.exists():
            version = run(client, "version", "--format", "{{.Client.Version}}")
            if int(version.split(".")[0]) < 23 or subprocess.run([client, "buildx", "version"], capture_output=True).returncode == 0:
                return client, version
    raise SystemExit("no Docker client here builds with BuildKit: install docker-buildx, or Debian 12's docker.io")


# --- the Dockerfile --------------------------------------------------------------------------------------------------


def built(text, rootfs, folder):
    """Builds the image of the last stage."""
    context = folder / "context"
    shutil.copytree(rootfs, context / "rootfs")
    (context / "Dockerfile").write_text("FROM scratch AS build\nCOPY rootfs /rootfs\n\n" + text[text.rindex("\nFROM ") + 1 :])
    client, version = builder()
    run(client, "build", "--tag", IMAGE, context, env={**os.environ, "DOCKER_BUILDKIT": "1"})
    return version


def understood(image, text, tally):
    """Checks that Docker parsed each instruction of the last stage as intended."""
    stage = last_stage(text)
    instructions, config = dict(stage), image["Config"]
    for key in ("Entrypoint", "Cmd"):
        tally.check(f"{key} is the Dockerfile's, without a shell", config[key] == exec_form(instructions[key.upper()]), config[key])
    tally.check("the user is the Dockerfile's", config["User"] == instructions["USER"], config["User"])
    ports = {f"{port}/tcp": {} for port in instructions["EXPOSE"].split()}
    tally.check("the ports are the Dockerfile's", config["ExposedPorts"] == ports, config["ExposedPorts"])
    labels = dict(word.split("=", 1) for name, rest in stage if name == "LABEL" for word in shlex.split(rest))
    tally.check("the labels are the Dockerfile's", labels and config["Labels"] == labels, config["Labels"])
    health = config.get("Healthcheck") or {}
    options, command = instructions["HEALTHCHECK"].split("CMD", 1)
    tally.check("the health check is the Dockerfile's, without a shell", health.get("Test") == ["CMD", *exec_form(command)], health)
    for key, seconds in re.findall(r"--(\w+)=(\d+)s", options):
        tally.check(f"the health check's {key} is the Dockerfile's", health.get(key.capitalize()) == int(seconds) * SECOND, health)
    tally.check("there are no volumes and no variables except PATH", not config.get("Volumes") and all(one.startswith("PATH=") for one in config["Env"] or []), config)


def exec_form(text):
    """Parses a command in JSON form. Returns nothing for a shell command."""
    try:
        return json.loads(text)
    except ValueError:
        return []


def packed(tar, rootfs, tally):
    """Checks that the saved image has one layer with the built files, owned by root."""
    with tarfile.open(tar) as outer:
        manifest = json.load(outer.extractfile("manifest.json"))[0]
        tally.check("the image has one layer", len(manifest["Layers"]) == 1, manifest)
        with tarfile.open(fileobj=outer.extractfile(manifest["Layers"][0])) as layer:
            files = {one.name: one for one in layer if one.name.strip("./")}
            tally.check("the image holds the built files", files.keys() == set(os.listdir(rootfs)), sorted(files))
            for name, file in files.items():
                same = file.isreg() and layer.extractfile(file).read() == (rootfs / name).read_bytes()
                tally.check(f"{name} is the built file, owned by root and read-only", same and file.mode & 0o7777 in (0o644, 0o755) and (file.uid, file.gid) == (0, 0), file.get_info())


def command_at_head(text, *options, port):
    """Returns the `docker run` command in the Dockerfile's head, with more options, another port and the simulated backend."""
    head = " ".join(line.removeprefix("#").strip() for line in text.split("\nFROM ", 1)[0].splitlines())
    found = re.search(r"docker run .*?--upstream \S+", head.replace("\\ ", ""))
    words = shlex.split(found[0]) if found else []
    if {"--rm", "4000:4000", "tokengauge"} - set(words):
        raise SystemExit(f"{DOCKERFILE} has no known `docker run` command in its head: {words}")
    # Keep stopped containers for inspection.
    changed = {"--rm": "--detach", "4000:4000": f"{port}:4000", "tokengauge": IMAGE, words[-1]: f"http://{BRIDGE}:{BACKEND}"}
    words = [changed.get(word, word) for word in words]
    at = words.index(IMAGE)
    return [*words[:at], *options, *words[at:]]


# --- the container ---------------------------------------------------------------------------------------------------


class Container:
    """The image, started with the command in the head. Its health check runs each second instead of every ten seconds."""

    def __init__(self, text, port):
        self.port = port
        self.name = run(*command_at_head(text, "--health-interval", "1s", port=port))
        self.clients = Clients(lambda: ("127.0.0.1", port))

    @property
    def health(self):
        return inspected(self.name)["State"]["Health"]

    def becomes(self, status):
        return wait_until(lambda: self.health["Status"] == status)

    def stream(self, pool, seconds):
        """Starts a stream of at least `seconds` seconds. Returns it after the first token."""
        future = pool.submit(asyncio.run, self.clients.stream(int(seconds / self.clients.gap)))
        wait_until(lambda: future.done() or self.clients.answers and self.clients.answers[-1].tokens)
        return future

    def confined(self, tally):
        """Checks the confinement of the process as reported by the kernel."""
        state = inspected(self.name)["State"]
        facts = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{state['Pid']}/status").read_text().splitlines() if ":\t" in line)
        tally.check("the process runs as the image's user", set(facts["Uid"].split()) == set(facts["Gid"].split()) == {"65532"}, facts["Uid"])
        tally.check("the process has no capabilities and cannot gain any", int(facts["CapEff"], 16) == int(facts["CapBnd"], 16) == 0, facts["CapBnd"])
        tally.check("the process cannot gain privileges", facts["NoNewPrivs"].strip() == "1", facts["NoNewPrivs"])
        tally.check("Docker's seccomp filter is active", facts["Seccomp"].strip() == "2", facts["Seccomp"])
        mounts = [line.split() for line in pathlib.Path(f"/proc/{state['Pid']}/mountinfo").read_text().splitlines()]
        options = [words[5] for words in mounts if words[4] == "/"]
        tally.check("the root file system is read-only", len(options) == 1 and "ro" in options[0].split(","), options)

    def ended(self, what, tally):
        state = inspected(self.name)["State"]
        tally.check(f"{what}: exit code 0", (state["Status"], state["ExitCode"], state["OOMKilled"]) == ("exited", 0, False), state)
        changes = run("docker", "diff", self.name)
        tally.check(f"{what}: no file was written", not changes, changes)
        log = subprocess.run(["docker", "logs", self.name], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
        tally.check(f"{what}: the log has no warnings", log and "WARN" not in log and "ERROR" not in log, log)


def lived(text, binary, folder, tally):
    one = Container(text, 4000)
    tally.check("healthy before the backend starts", one.becomes("healthy"), one.health)
    one.confined(tally)
    backend = subprocess.Popen([binary, "simulate", "--listen", f"{BRIDGE}:{BACKEND}"], stdout=(folder / "backend.log").open("w"), stderr=subprocess.STDOUT)
    wait_until(lambda: backend.poll() is not None or listening(BACKEND, BRIDGE))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = one.stream(pool, 0.5).result()
        tally.check("a stream completes", answer.is_complete, answer)
        # Longer than Docker's default grace period. The command in the head sets a longer one.
        last = one.stream(pool, DOCKER_WAITS + 2)
        stop = pool.submit(run, "docker", "stop", one.name)
        drained(Container(text, 4002), pool, tally)
        answer = last.result()
        tally.check("docker stop during a stream: the backend ends the stream", answer.is_complete, answer)
        stop.result()
    one.ended("docker stop", tally)
    backend.kill()
    backend.wait()


def drained(two, pool, tally):
    """Drains the container by `docker exec`. The container becomes unhealthy and keeps running."""
    tally.check("a second container is healthy", two.becomes("healthy"), two.health)
    open_one = two.stream(pool, 5)
    drain = pool.submit(run, "docker", "exec", two.name, "/tokengauge", "drain")
    tally.check("unhealthy while it drains", two.becomes("unhealthy"), two.health)
    answer = open_one.result()
    tally.check("drained: the backend ends the open stream", answer.is_complete, answer)
    drain.result()
    tally.check("drained: the container runs until it is stopped", inspected(two.name)["State"]["Running"])
    run("docker", "stop", two.name)
    two.ended("drained and stopped", tally)


def inside(args, folder):
    text = DOCKERFILE.read_text()
    engine, tally = Engine(folder), Tally(args.verbose)
    if not engine.runs:
        print("SKIPPED: cannot start a Docker engine here: " + engine.log.read_text().strip().splitlines()[-1])
        return SKIPPED
    try:
        client = built(text, args.rootfs, folder)
        about = json.loads(run("docker", "info", "--format", "{{json .}}"))
        print(f"Docker {about['ServerVersion']}, {about['Driver']}, client {client}", flush=True)
        understood(inspected(IMAGE), text, tally)
        saved = folder / "image.tar"
        run("docker", "save", "--output", saved, IMAGE)
        packed(saved, args.rootfs, tally)
        if args.save:
            shutil.copyfile(saved, args.save)
        version = run("docker", "run", "--rm", IMAGE, "--version")
        tally.check("arguments replace `run`", version.startswith("tokengauge "), version)
        lived(text, args.binary, folder, tally)
    finally:
        engine.stop()
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--rootfs", type=pathlib.Path, required=True)
    cli.add_argument("--binary", type=pathlib.Path, required=True, help="tokengauge binary with `simulate`")
    cli.add_argument("--save", type=pathlib.Path, help="output file for the image")
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    args.rootfs, args.binary = args.rootfs.resolve(), args.binary.resolve()
    if not os.environ.get(INSIDE):
        return outside()
    clear_environment()
    return inside(args, pathlib.Path(os.environ[INSIDE]))


if __name__ == "__main__":
    sys.exit(main())
