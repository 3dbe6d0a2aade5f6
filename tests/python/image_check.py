#!/usr/bin/env python3
"""Checks that the image matches deploy/docker/Dockerfile and runs as in Kubernetes. Needs no Docker.

    image_check.py --rootfs FOLDER [--budget BYTES] [--memory BYTES] [--machine x86_64|aarch64]

deploy/docker/rootfs created FOLDER, which holds the files that the Dockerfile's last stage copies. They are mounted read-only as the root of a
new file system. The program runs there without capabilities, as the user of the Dockerfile. It has the mounts that a kubelet makes: /proc,
/dev/null, /etc/hosts, /etc/resolv.conf and one folder of configuration. A DNS server, a backend with and without TLS, and an OTLP receiver run
in the same network namespace. Needs Linux and root or user namespaces; exit status 77 without them.

QEMU (qemu-user-static) runs a program for another machine. Its static binary is one more mount in the container. The output lists the checks
that emulation does not cover. Without QEMU only the files are checked, and the exit status is 77.
"""
import argparse
import errno
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from namespaces import MOUNTS, NETWORK, SKIPPED, called, enter, libc, loopback, mount

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
MAY_HOLD = {"tokengauge", "tokengauge.cdx.json", "LICENSE"}
MS_RDONLY, MS_NOSUID, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 32, 4096, 16384
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
# The machine number in an ELF file, and the largest page size of its kernels: Linux on arm64 may use 64 KiB.
MACHINES = {62: ("x86_64", 0x1000), 183: ("aarch64", 0x10000)}

failures = []
passed = 0


def check(held, what, note=""):
    global passed
    if held:
        passed += 1
    else:
        failures.append(what)
        print(f"FAIL {what}: {note}")


# --- the Dockerfile --------------------------------------------------------------------------------------------------


def last_stage(text):
    """Returns the instructions of the last stage as (name, rest), with line continuations joined."""
    lines = [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip() and not line.startswith("#")]
    begin = max(at for at, line in enumerate(lines) if line.startswith("FROM "))
    return [tuple(line.split(None, 1)) for line in lines[begin:]]


def described(text):
    stage = last_stage(text)
    instructions = dict(stage)
    check(instructions["FROM"] == "scratch", "the last stage starts from scratch", instructions["FROM"])
    check(not any(name in ("RUN", "ADD", "SHELL") for name, _ in stage), "the last stage runs no command", stage)
    copies = [rest for name, rest in stage if name == "COPY"]
    check(copies == ["--from=build /rootfs/ /"], "the last stage copies the output of deploy/docker/rootfs", copies)
    check("deploy/docker/rootfs /rootfs" in text, "the build stage calls deploy/docker/rootfs", "")
    pinned = re.findall(r"^FROM (?:--platform=\S+ )?(\S+)", text, re.M)
    check(all(name == "scratch" or re.search(r":\d+\.\d+\.\d+-", name) for name in pinned), "images are pinned", pinned)
    user, group = instructions["USER"].split(":")
    check(int(user) > 0 and int(group) > 0, "the user is a number and not root", instructions["USER"])
    health = re.search(r"CMD (\[.*\])", instructions["HEALTHCHECK"])
    return {
        "user": int(user),
        "group": int(group),
        "entrypoint": json.loads(instructions["ENTRYPOINT"]),
        "health": json.loads(health.group(1)),
    }


# --- the files -------------------------------------------------------------------------------------------------------


def inspected(rootfs, budget, wanted):
    """Checks the files. Returns the program's machine and the total size."""
    found = {str(path.relative_to(rootfs)) for path in rootfs.rglob("*")}
    check("tokengauge" in found and found <= MAY_HOLD, "the image holds the program and its documents", sorted(found))
    size = sum((rootfs / name).stat().st_size for name in found)
    check(size <= budget, "the image is within its size budget", f"{size:,} of {budget:,} bytes")
    for name in found:
        mode = (rootfs / name).stat().st_mode & 0o7777
        check(mode in (0o644, 0o755), f"{name} is not writable for others and not setuid", oct(mode))
    binary = (rootfs / "tokengauge").read_bytes()
    (machine, page), segments, sections = elf(binary)
    check(machine == wanted, f"the program is for {wanted}", machine)
    check(PT_INTERP not in (kind for kind, *_ in segments), "the program has no dynamic loader", "PT_INTERP is present")
    check(not needed(binary, segments), "the program needs no shared library", needed(binary, segments))
    aligned = [align for kind, _, _, align in segments if kind == PT_LOAD]
    check(aligned and all(align >= page for align in aligned), f"the program can be loaded with pages of {page:#x}", aligned)
    check(".symtab" not in sections and not any(name.startswith(".debug") for name in sections), "the program has no symbols", sections)
    places = (str(ROOT), os.path.expanduser("~/.cargo"), os.environ.get("CARGO_HOME"), os.environ.get("CARGO_TARGET_DIR"))
    paths = [path for path in places if path and path.encode() in binary]
    check(not paths, "the program contains no path of this machine", paths)
    return machine, size


def elf(data):
    """Returns an ELF file's machine; type, offset, size and alignment of its segments; and the names of its sections."""
    assert data[:6] == b"\x7fELF\x02\x01", "not a 64-bit little-endian ELF file"
    machine = struct.unpack_from("<H", data, 18)[0]
    segments_at, sections_at = struct.unpack_from("<QQ", data, 32)
    segment_size, segment_count, section_size, section_count, names_in = struct.unpack_from("<HHHHH", data, 54)
    segments = []
    for at in range(segment_count):
        kind, _, offset, _, _, size, _, align = struct.unpack_from("<IIQQQQQQ", data, segments_at + at * segment_size)
        segments.append((kind, offset, size, align))
    headers = [struct.unpack_from("<IIQQQQ", data, sections_at + at * section_size) for at in range(section_count)]
    names = headers[names_in][4] if headers else 0
    sections = [data[names + name :].split(b"\0", 1)[0].decode() for name, *_ in headers]
    return MACHINES.get(machine, (f"machine {machine}", 0)), segments, sections


def needed(data, segments):
    """Returns the number of libraries that the dynamic section requires."""
    entries = [
        struct.unpack_from("<qQ", data, offset + at)
        for kind, offset, size, _ in segments if kind == PT_DYNAMIC for at in range(0, size, 16)
    ]
    return sum(1 for tag, _ in entries if tag == 1)


def listed(rootfs, machine):
    """Checks that the SBOM names each crate of the lock file that is linked into the program."""
    path = rootfs / "tokengauge.cdx.json"
    if not path.exists():
        print("there is no SBOM (SBOM=no): not checked")
        return
    papers = json.loads(path.read_text())
    named = {(part["name"], part["version"]) for part in papers["components"]}
    tree = subprocess.run(
        ["cargo", "tree", "--locked", "--package", "tokengauge", "--edges", "normal", "--prefix", "none", "--no-default-features", "--features",
         os.environ.get("FEATURES", "console,envoy,hf-tokenizers"), "--format", "{p}", "--target", f"{machine}-unknown-linux-gnu"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout
    linked = {(name, version) for name, version in re.findall(r"^(\S+) v(\S+)", tree, re.M)} - {(papers["metadata"]["component"]["name"], papers["metadata"]["component"]["version"])}
    check(linked <= named, "the SBOM has all linked crates", sorted(linked - named)[:5])
    check(papers["metadata"]["component"]["name"] == "tokengauge", "the SBOM's component is tokengauge", papers["metadata"]["component"]["name"])
    check(str(ROOT) not in path.read_text(), "the SBOM contains no path of this machine", "")


# --- servers around the container ------------------------------------------------------------------------------------

PIECES = ["Bytes", " pass", " unchanged", "."]


def stream():
    for piece in PIECES:
        yield json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
    yield json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    yield "[DONE]"


WHOLE = "".join(f"data: {event}\n\n" for event in stream()).encode()


class Backend(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in stream():
            line = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
            time.sleep(0.05)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen = {}

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        Collector.seen[self.path] = Collector.seen.get(self.path, b"") + body
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def names(zone, resolved):
    """Serves A records of `zone` over DNS. Other names do not exist."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 53))

    def answer():
        while True:
            query, client = server.recvfrom(4096)
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1 : at + 1 + query[at]].decode())
                at += 1 + query[at]
            kind = struct.unpack_from("!H", query, at + 1)[0]
            name, question = ".".join(labels).lower(), query[12 : at + 5]
            resolved.append(name)
            known = name in zone
            records = b""
            if known and kind == 1:
                records = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 5, 4) + socket.inet_aton(zone[name])
            code = 0x8180 if known else 0x8183
            head = query[:2] + struct.pack("!HHHHH", code, 1, 1 if records else 0, 0, 0)
            server.sendto(head + question + records, client)

    threading.Thread(target=answer, daemon=True).start()


def serve(handler, port, context=None):
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


# --- the container ---------------------------------------------------------------------------------------------------


class Container:
    """The image's root file system, read-only, with the mounts that a kubelet makes, and the emulator's mount if needed."""

    def __init__(self, image, rootfs, scratch, mounts, emulator=None):
        self.image = image
        self.before = ["/emulator"] if emulator else []
        mounts = {**mounts, **({emulator: "emulator"} if emulator else {})}
        self.root = scratch / "root"
        self.root.mkdir()
        # A runtime creates the mount points below the read-only layer.
        upper, work = scratch / "layer", self.root
        upper.mkdir()
        subprocess.run(["cp", "-a", f"{rootfs}/.", str(upper)], check=True)
        for folder in ("proc", "dev", "etc", "etc/tokengauge"):
            (upper / folder).mkdir()
        for file in ("dev/null", "etc/hosts", "etc/resolv.conf", *(["emulator"] if emulator else [])):
            (upper / file).touch()
        mount(upper, work, MS_BIND)
        mount("none", work, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID)
        mount("/proc", work / "proc", MS_BIND | MS_REC)
        mount("/dev/null", work / "dev/null", MS_BIND)
        for source, at in mounts.items():
            mount(source, work / at, MS_BIND)
            mount("none", work / at, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID)

    def start(self, command, environment=None, **options):
        def enter():
            os.chroot(self.root)
            os.chdir("/")
            if os.getuid() == 0:
                for capability in range(64):
                    libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
            try:
                os.setgroups([])
                os.setresgid(*[self.image["group"]] * 3)
                os.setresuid(*[self.image["user"]] * 3)
            except OSError as problem:
                if problem.errno not in (errno.EINVAL, errno.EPERM):
                    raise  # a user namespace has only one user
            called(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")

        return subprocess.Popen(
            self.before + command, preexec_fn=enter, env=environment or {}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
        )

    def run(self, command, environment=None, seconds=30):
        process = self.start(command, environment)
        output = process.communicate(timeout=seconds)[0].decode()
        return process.returncode, output


def fetched(url, body=None):
    request = urllib.request.Request(url, data=body, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read()


CONFIGURATION = """\
version: 1
listeners: [{address: "0.0.0.0:4000"}]
admin: {address: "0.0.0.0:4001"}
upstreams:
  engine: {url: "http://engine:8000"}
  vendor: {url: "https://api.vendor.example:8443", ca_file: /etc/tokengauge/ca.pem}
routes:
  - {name: vendor, match: {prefix: /vendor}, strip_prefix: true, upstream: vendor}
  - {name: engine, upstream: engine}
log: {format: json}
"""


def question(model):
    return json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": "?"}]}).encode()


def lived(image, rootfs, scratch, emulator, memory):
    home = scratch / "configuration"
    home.mkdir()
    home.chmod(0o755)
    (home / "tokengauge.yaml").write_text(CONFIGURATION)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-keyout", str(scratch / "key.pem"), "-out", str(home / "ca.pem"), "-subj", "/CN=api.vendor.example",
         "-addext", "subjectAltName=DNS:api.vendor.example", "-addext", "basicConstraints=critical,CA:FALSE"], check=True, capture_output=True)
    (home / "unwritable.yaml").write_text(CONFIGURATION + "request_log: {path: /requests.jsonl}\n")
    for file in home.iterdir():
        file.chmod(0o644)
    (scratch / "resolv.conf").write_text("search team.svc.cluster.local svc.cluster.local cluster.local\nnameserver 127.0.0.1\noptions ndots:5\n")
    (scratch / "hosts").write_text("127.0.0.1 localhost\n127.0.0.1 collector.observability\n")
    resolved = []
    names({"engine.team.svc.cluster.local": "127.0.0.1", "api.vendor.example": "127.0.0.1"}, resolved)
    serve(Backend, 8000)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(home / "ca.pem", scratch / "key.pem")
    serve(Backend, 8443, context)
    serve(Collector, 4318)

    container = Container(image, rootfs, scratch, {
        scratch / "resolv.conf": "etc/resolv.conf", scratch / "hosts": "etc/hosts", home: "etc/tokengauge"}, emulator)
    status, output = container.run([*image["entrypoint"], "--version"])
    check(status == 0 and output.startswith("tokengauge "), "the program prints its version", output)
    status, output = container.run(image["health"])
    check(status == 1, "the health check fails while the proxy does not run", f"{status} {output}")
    status, output = container.run([*image["entrypoint"], "run", "--config", "/etc/tokengauge/unwritable.yaml"])
    check(status != 0 and "/requests.jsonl" in output, "an unwritable path is reported", output)

    process = container.start(
        [*image["entrypoint"], "run", "--config", "/etc/tokengauge/tokengauge.yaml"],
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.observability:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"})
    for _ in range(200):
        status, output = container.run(image["health"])
        if status == 0 or process.poll() is not None:
            break
        time.sleep(0.1)
    check(status == 0, "the health check passes once the proxy runs", output)
    facts = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    status_fields = dict(line.split(":\t", 1) for line in facts.splitlines() if ":\t" in line)
    if os.getuid() == 0 and "0 0 4294967295" in re.sub(r" +", " ", pathlib.Path("/proc/self/uid_map").read_text()):
        check(set(status_fields["Uid"].split()) == {str(image["user"])}, "the process runs as the image's user", status_fields["Uid"])
        check(int(status_fields["CapBnd"], 16) == 0, "the process cannot gain capabilities", status_fields["CapBnd"])
    check(int(status_fields["CapEff"], 16) == 0 or os.getuid() != 0, "the process has no capabilities", status_fields["CapEff"])
    check(status_fields["NoNewPrivs"].strip() == "1", "the process cannot gain privileges", status_fields["NoNewPrivs"])

    status, body = fetched("http://127.0.0.1:4000/v1/chat/completions", question("gpt-4o"))
    check((status, body) == (200, WHOLE), "a stream from a Service's name completes", (status, body[:200]))
    check("engine.team.svc.cluster.local" in resolved, "the name was resolved in the pod's search domain", resolved)
    status, body = fetched("http://127.0.0.1:4000/vendor/v1/chat/completions", question("gpt-4"))
    check((status, body) == (200, WHOLE), "a stream over TLS completes", (status, body[:200]))
    for _ in range(100):
        metrics = fetched("http://127.0.0.1:4001/metrics")[1].decode()
        counted = sum(float(value) for value in re.findall(r"^tokengauge_requests_finished_total\{[^}]*\} (\S+)", metrics, re.M))
        if counted == 2:
            break
        time.sleep(0.1)
    check(counted == 2, "both requests are counted", counted)
    check("process_memory_usage_bytes" in metrics, "the process reports its memory", "")
    resident = int(re.search(r"^VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{process.pid}/status").read_text(), re.M)[1]) * 1024
    if emulator:
        print("not covered by emulation: the kernel's connection statistics (QEMU does not support sock_diag) and memory usage")
    else:
        check(resident <= memory, "the memory with both tokenizers is within its budget", f"{resident:,} of {memory:,} bytes")

    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=30)[0].decode()
    check(process.returncode == 0, "SIGTERM ends the process with status 0", f"{process.returncode} {output[-500:]}")
    check("/v1/traces" in Collector.seen and "/v1/metrics" in Collector.seen, "telemetry arrived at the collector", sorted(Collector.seen))


def emulator_of(machine):
    """Returns QEMU's static binary for `machine`, or nothing if this machine runs its programs natively."""
    if machine == os.uname().machine:
        return None
    found = shutil.which(f"qemu-{machine}-static")
    if not found:
        print(f"SKIPPED: qemu-{machine}-static is missing (Debian: qemu-user-static): {passed} checks of the files passed, {len(failures)} failed")
        sys.exit(1 if failures else SKIPPED)
    return pathlib.Path(found).resolve()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--rootfs", type=pathlib.Path, required=True)
    cli.add_argument("--budget", type=int, default=20_000_000, help="maximum total size of all files in bytes")
    cli.add_argument("--memory", type=int, default=28_000_000, help="maximum resident memory in bytes after one request for each built-in tokenizer, with TLS and OTLP (default: %(default)s)")
    cli.add_argument("--machine", default=os.uname().machine, help="target machine as in `uname -m` (default: %(default)s)")
    args = cli.parse_args()
    image = described(DOCKERFILE.read_text())
    machine, size = inspected(args.rootfs, args.budget, args.machine)
    listed(args.rootfs, machine)
    emulator = emulator_of(machine)
    by = f" by {emulator}" if emulator else ""
    print(f"{machine}, {size:,} bytes; started{by} as {shlex.join(image['entrypoint'])}, user {image['user']}:{image['group']}")
    enter(NETWORK | MOUNTS)
    loopback()
    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)
        try:
            lived(image, args.rootfs, pathlib.Path(scratch), emulator, args.memory)
        finally:
            # The namespace removes the mounts later. The folder must be removable now.
            libc.umount2(str(pathlib.Path(scratch) / "root").encode(), 2)  # MNT_DETACH
    print(f"{passed} passed, {len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
