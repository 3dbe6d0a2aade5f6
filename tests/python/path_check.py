#!/usr/bin/env python3
"""Checks the proxy on network paths that are slow, lose all packets, or have a name server that does not answer.

    path_check.py --binary target/release/tokengauge [--verbose]

The proxy and its upstream have a network namespace each. A program between the two forwards packets with a delay of 50 ms, or drops them
without a sign, as a NAT device does that has forgotten a connection.

The last line is `N passed, N failed`; exit status 0 if nothing failed, 77 if the namespaces cannot be created.
"""
import argparse
import collections
import fcntl
import os
import pathlib
import random
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

import namespaces
from rig import Tally, clear_environment

NEAR, FAR = "10.9.0.1", "10.9.0.2"
DELAY_S = 0.05
# An upstream that closes this long after its response sends a FIN that crosses a request which arrives 0 to 30 ms after the response.
CLOSE_AFTER_S = DELAY_S + 0.01
BODY = b"\r\n\r\nbody"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LINGER_ZERO = struct.pack("ii", 1, 0)
# Each step ends much earlier. The limit only turns a hang into a failure.
WAIT_LIMIT = 120


def tunnel(address):
    """Creates a network device in the current namespace. Returns the descriptor that carries its packets."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, 0x400454CA, struct.pack("16sH22x", b"tun0", 0x0001 | 0x1000))  # TUNSETIFF: IFF_TUN, IFF_NO_PI
    namespaces.loopback()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for request, value in ((0x8916, address), (0x891C, "255.255.255.0")):  # SIOCSIFADDR, SIOCSIFNETMASK
            fcntl.ioctl(sock, request, struct.pack("16s16s", b"tun0", struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(value))))
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"tun0", 0x1 | 0x40))  # SIOCSIFFLAGS: IFF_UP, IFF_RUNNING
    return device


class Path:
    """Forwards packets between two devices."""

    def __init__(self, near, far):
        self.is_dead = False
        for source, target in ((near, far), (far, near)):
            packets, changed = collections.deque(), threading.Condition()
            start(self.read, source, packets, changed)
            start(self.write, target, packets, changed)

    @staticmethod
    def read(source, packets, changed):
        while True:
            packet = os.read(source, 65536)
            with changed:
                packets.append((time.monotonic() + DELAY_S, packet))
                changed.notify()

    def write(self, target, packets, changed):
        while True:
            with changed:
                changed.wait_for(lambda: packets)
                at, packet = packets.popleft()
            time.sleep(max(0, at - time.monotonic()))
            if not self.is_dead:
                os.write(target, packet)


def start(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()


class Upstream:
    """The upstream, in its own process and namespace. `behave` selects what it does with requests."""

    def __init__(self, certificate):
        self.here, there = socket.socketpair()
        self.process = os.fork()
        if self.process == 0:
            try:
                serve(there, certificate)
            finally:
                os._exit(1)
        there.close()
        _, [self.device], _, _ = socket.recv_fds(self.here, 1, 1)

    def behave(self, how, delay_s=0):
        self.here.send(f"{how} {delay_s}".encode())
        self.here.recv(1)

    def executions(self):
        self.here.send(b"executions")
        return int(self.here.recv(100))


class State:
    how, delay_s, executions = "", 0.0, 0


def serve(control, certificate):
    """Runs the upstream: HTTP/1.1 on port 80, with TLS on port 443, HTTP/2 on port 82."""
    namespaces.called(namespaces.libc.unshare(namespaces.NETWORK), "unshare")
    namespaces.libc.prctl(namespaces.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    device = tunnel(FAR)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    state = State()
    listen(80, lambda stream: serve_http1(stream, state))
    listen(443, lambda stream: serve_http1(context.wrap_socket(stream, server_side=True), state))
    listen(82, serve_http2)
    socket.send_fds(control, [b"x"], [device])
    while message := control.recv(100).decode():
        if message == "executions":
            control.send(str(state.executions).encode())
        else:
            state.how, delay = message.split()
            state.delay_s, state.executions = float(delay), 0
            control.send(b"x")


def listen(port, handle):
    listener = socket.create_server((FAR, port))

    def accept():
        while True:
            start(attempt, handle, listener.accept()[0])

    start(accept)


def attempt(handle, stream):
    try:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        handle(stream)
    except OSError:
        pass
    stream.close()


def serve_http1(stream, state):
    while request := read_request(stream):
        if request.startswith(b"POST /run ") and state.how in ENDINGS:
            state.executions += 1
            time.sleep(state.delay_s)
            end(stream, state.how)
            return
        state.executions += request.startswith(b"POST /run ")
        stream.sendall(OK)
        if request.startswith(b"POST /warm ") and state.how.startswith("idle-"):
            time.sleep(CLOSE_AFTER_S)
            end(stream, state.how.removeprefix("idle-"))
            return


def read_request(stream):
    request = b""
    while not request.endswith(BODY):
        byte = stream.recv(1)
        if not byte:
            return b""
        request += byte
    return request


# How an upstream ends a connection: FIN, RST, FIN and then RST, and for TLS `close_notify` and FIN.
ENDINGS = ("close", "reset", "half", "notify")


def end(stream, how):
    if how == "notify" and isinstance(stream, ssl.SSLSocket):
        stream.settimeout(0)
        try:
            stream.unwrap()
        except OSError:
            pass  # the answer of the proxy has not arrived
    if how == "half":
        stream.shutdown(socket.SHUT_WR)
    if how in ("reset", "half"):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
    stream.close()


def serve_http2(stream):
    """Answers each request with status 200 and no body."""
    reader = stream.makefile("rb")
    reader.read(24)
    stream.sendall(frame(4, 0, 0))
    while len(head := reader.read(9)) == 9:
        kind, flags, number = head[3], head[4], int.from_bytes(head[5:9], "big")
        payload = reader.read(int.from_bytes(head[:3], "big"))
        if kind == 4 and not flags & 1:
            stream.sendall(frame(4, 1, 0))
        if kind == 6 and not flags & 1:
            stream.sendall(frame(6, 1, 0, payload))
        if kind == 1:
            stream.sendall(frame(1, 0x4 | 0x1, number, b"\x88"))  # `:status: 200` of HPACK's table


def frame(kind, flags, number, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + number.to_bytes(4, "big") + payload


class Proxy:
    PORT = 4100

    def __init__(self, binary, folder):
        text = f"""version: 1
listeners: [{{address: "127.0.0.1:{self.PORT}"}}]
upstreams:
  http: {{url: "http://{FAR}"}}
  tls: {{url: "https://{FAR}", ca_file: {folder}/cert.pem, pool: {{idle_timeout: 4s}}}}
  http2: {{url: "http://{FAR}:82", protocol: http2}}
  named: {{url: "http://upstream.example"}}
  hanging: {{url: "http://hanging.example"}}
routes:
""" + "".join(f"  - {{upstream: {name}, match: {{prefix: /{name}}}, strip_prefix: true}}\n" for name in ("http", "tls", "http2", "named", "hanging"))
        (folder / "tokengauge.yaml").write_text(text)
        self.process = subprocess.Popen([binary, "run", "--config", folder / "tokengauge.yaml", "--admin", "127.0.0.1:0"], stderr=subprocess.PIPE)
        while str(self.PORT).encode() not in self.process.stderr.readline():
            if self.process.poll() is not None:
                sys.exit("the proxy did not start")
        start(self.process.stderr.read)

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))


class Client:
    def __init__(self, limit_s=WAIT_LIMIT):
        self.stream = socket.create_connection(("127.0.0.1", Proxy.PORT), limit_s)
        self.reader = self.stream.makefile("rb")

    def send(self, path, method="POST"):
        self.stream.sendall(f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 4".encode() + BODY)

    def status(self):
        status, length = int(self.reader.readline().split()[1]), 0
        while line := self.reader.readline().strip().lower():
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        self.reader.read(length)
        return status

    def ask(self, path, method="POST"):
        self.send(path, method)
        return self.status()


def check_crossing_requests(tally, upstream):
    """A request that crosses the FIN of an idle connection is sent again, and executed once."""
    for prefix, how in (("/http", "close"), ("/tls", "close"), ("/tls", "notify")):
        results = collections.Counter()
        for _ in range(10):
            upstream.behave(f"idle-{how}")
            client = Client()
            warm = client.ask(prefix + "/warm")
            time.sleep(random.uniform(0, 0.03))
            results[warm, client.ask(prefix + "/run"), upstream.executions()] += 1
        tally.check(f"{prefix}: a request crosses {how}", results == {(200, 200, 1): 10}, results)


def check_executed_requests(tally, upstream):
    """A request that the upstream has read is not sent again."""
    for prefix in ("/http", "/tls"):
        for how in ENDINGS:
            for delay_s in (0, 0.01, 0.1, 1):
                upstream.behave(how, delay_s)
                client = Client()
                client.ask(prefix + "/warm")
                status = client.ask(prefix + "/run")
                tally.check(f"{prefix}: {how} {delay_s} s after reading", (status, upstream.executions()) == (502, 1), (status, upstream.executions()))


def check_name_server(tally, proxy, upstream):
    """A name server that does not answer stops only the upstream whose name it does not resolve."""
    upstream.behave("answer")
    waiting = [Client() for _ in range(600)]
    for client in waiting:
        client.send("/hanging/run")
    time.sleep(1)
    statuses = [Client().ask("/named/run") for _ in range(5)]
    tally.check("another upstream works while a name server hangs", statuses == [200] * 5, statuses)
    threads = proxy.threads()
    tally.check("lookups take few threads", threads < 40, threads)
    # The system gives up after 10 s, at about the same time as `timeouts.connect`.
    statuses = {client.status() for client in waiting}
    tally.check("requests that need the name server fail", statuses <= {502, 504}, statuses)


def check_dead_path(tally, path):
    """If a path loses all packets, the proxy leaves its HTTP/2 connection. A new connection works when the path works again."""
    client = Client()
    tally.check("HTTP/2 works", client.ask("/http2/run") == 200)
    path.is_dead = True
    begun = time.monotonic()
    status = client.ask("/http2/run")
    took = time.monotonic() - begun
    tally.check("the request on the dead connection fails", status == 502, status)
    tally.check("the dead connection is left after two intervals of pings", 10 < took < 40, took)
    path.is_dead = False
    tally.check("the next request succeeds", Client().ask("/http2/run") == 200)


def create_certificate(folder):
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj", "/CN=x",
               "-addext", f"subjectAltName=IP:{FAR}", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*command, "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, stderr=subprocess.DEVNULL)


def replace_name_server(folder):
    """Gives this mount namespace a name server that never answers, and a hosts file with one name."""
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    (folder / "hosts").write_text(f"{FAR} upstream.example\n")
    for name in ("resolv.conf", "hosts"):
        namespaces.mount(folder / name, pathlib.Path("/etc") / name, 4096)  # MS_BIND
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.1", 53))
    return silent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    clear_environment()
    namespaces.enter(namespaces.NETWORK | namespaces.MOUNTS)
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        print("cannot use /dev/net/tun; run the check as root")
        return namespaces.SKIPPED
    tally = Tally(args.verbose)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        create_certificate(folder)
        upstream = Upstream(folder)
        path = Path(tunnel(NEAR), upstream.device)
        _silent = replace_name_server(folder)
        proxy = Proxy(args.binary, folder)
        try:
            check_crossing_requests(tally, upstream)
            check_executed_requests(tally, upstream)
            check_name_server(tally, proxy, upstream)
            check_dead_path(tally, path)
        finally:
            proxy.process.kill()
            os.kill(upstream.process, signal.SIGKILL)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
