"""Common parts of the client checks: a backend, the proxy, an OTLP receiver, and its data."""
import base64
import collections
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

# Limits only the waiting. Much longer than a busy machine needs.
WAIT_LIMIT = 300
# The parent span of every call through the proxy.
CALLER = "00000000000000aa"
# Variables of the machine that would affect the proxy or a client.
FOREIGN_SETTINGS = ("OTEL_", "TOKENGAUGE_", "AWS_", "GOOGLE_", "OLLAMA_")


class Tally:
    """Counts passed and failed checks."""

    def __init__(self, verbose):
        self.passed, self.failed, self.verbose = 0, 0, verbose

    def check(self, name, held, note=""):
        if held:
            self.passed += 1
        else:
            self.failed += 1
        if not held or self.verbose:
            print(f"{'ok  ' if held else 'FAIL'} {name}{'' if held or not note else ': ' + str(note)[:600]}", flush=True)


class Telemetry:
    """The data that the OTLP receiver has written so far."""

    def __init__(self, path):
        self.path = path
        self.at, self.spans, self.sums, self.histograms = 0, collections.defaultdict(list), {}, {}

    def read(self):
        """Returns spans by trace id, and the points of each sum in its newest export, by name."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self.at)
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # still being written
                    self.at += len(line)
                    self.take(json.loads(line)["body"])
        return self.spans, self.sums

    def take(self, body):
        for scope in (s for r in body.get("resourceSpans", []) for s in r.get("scopeSpans", [])):
            for span in scope.get("spans", []):
                self.spans[base64.b64decode(span["traceId"]).hex()].append(span)
        for scope in (s for r in body.get("resourceMetrics", []) for s in r.get("scopeMetrics", [])):
            for metric in scope.get("metrics", []):
                if "sum" in metric:
                    self.sums[metric["name"]] = metric["sum"].get("dataPoints", [])
                if "histogram" in metric:
                    self.histograms[metric["name"]] = metric["histogram"].get("dataPoints", [])

    def total(self, name, wanted=()):
        """Returns the sum of the points of counter `name` whose attributes include `wanted`."""
        points = self.read()[1].get(name, [])
        fits = [p for p in points if all(attributes(p).get(key) == value for key, value in dict(wanted).items())]
        return sum(float(point.get("asInt", point.get("asDouble", 0))) for point in fits)

    def distribution(self, name):
        """Returns the count and the sum of histogram `name` over all its series."""
        self.read()
        points = self.histograms.get(name, [])
        return sum(int(point.get("count", 0)) for point in points), sum(float(point.get("sum", 0)) for point in points)


class Processes:
    """Server processes with their logs in one folder."""

    def __init__(self, name):
        self.processes, self.folder = [], pathlib.Path(tempfile.mkdtemp(prefix=f"client-check-{name}-"))

    def start(self, name, command, port, environment=None):
        log = open(self.folder / f"{name}.log", "w")
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        self.processes.append(process)
        if not wait_until(lambda: process.poll() is not None or listening(port)) or process.poll() is not None:
            self.stop()
            raise SystemExit(f"{name} does not listen on {port}; see {log.name}")
        return process

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
                process.wait(WAIT_LIMIT)


class Rig(Processes):
    """A backend, an OTLP receiver, and the proxy in front of the backend."""

    def __init__(self, args, tally, name, backend=None, protocol="http/protobuf", configuration=None, environment=None):
        """`backend` is the backend's command with `{port}` for its port. None if the caller has its own backend. Then `configuration(rig)` returns the
        proxy's configuration file, which must listen at `rig.listen`."""
        super().__init__(name)
        self.tally, self.name, self.calls = tally, name, {}
        self.telemetry = Telemetry(self.folder / "otlp.jsonl")
        self.backend, self.listen, http, grpc = (free_port() for _ in range(4))
        if backend:
            self.start("backend", [part.format(port=self.backend) for part in backend], self.backend)
        tools = pathlib.Path(args.shared) / "tools"
        self.start("sink", [sys.executable, str(tools / "otlp_sink.py"), "--http", str(http), "--grpc", str(grpc),
                            "--out", str(self.telemetry.path)], grpc)
        endpoint = http if protocol == "http/protobuf" else grpc
        way = ["--listen", f"127.0.0.1:{self.listen}", "--upstream", f"http://127.0.0.1:{self.backend}"]
        if configuration:
            (self.folder / "tokengauge.yaml").write_text(configuration(self))
            way = ["--config", str(self.folder / "tokengauge.yaml")]
        self.proxy = self.start("proxy", [args.binary, "run", "--admin", f"127.0.0.1:{free_port()}", *way], self.listen, {
            **os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{endpoint}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "OTEL_METRIC_EXPORT_INTERVAL": "500",
            "OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_BSP_MAX_QUEUE_SIZE": "65536", "OTEL_TRACES_SAMPLER": "always_on",
            **(environment or {})})

    def trace(self, call):
        """Returns headers that give the next call its own trace id, by which its spans are found."""
        trace = f"{len(self.calls) + 1:032x}"
        self.calls[trace] = call
        return {"traceparent": f"00-{trace}-{CALLER}-01"}

    def ask_backend(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.backend}{path}", timeout=WAIT_LIMIT) as answer:
            return json.load(answer)

    def await_telemetry(self):
        """Waits until every call has its spans and is counted. Returns the spans by trace id."""
        wait_until(lambda: set(self.calls) <= set(self.telemetry.read()[0]))
        wait_until(lambda: self.telemetry.total("tokengauge.requests.finished") >= len(self.calls))
        return self.telemetry.read()[0]

    def end(self):
        self.proxy.send_signal(signal.SIGTERM)
        try:
            code = self.proxy.wait(WAIT_LIMIT)
        except subprocess.TimeoutExpired:
            code = "none"
        self.tally.check(f"{self.name}: the proxy exits 0 on SIGTERM", code == 0, f"exit {code}; logs in {self.folder}")


def replay_backend(shared):
    """Returns the command of the server that replays the recordings."""
    corpus = pathlib.Path(shared) / "corpus"
    return [sys.executable, str(corpus / "replay_server.py"), "--root", str(corpus / "dev"), "--port", "{port}", "--quiet"]


def clear_environment():
    """Removes environment variables that would redirect a client or configure the proxy."""
    for name in [name for name in os.environ if name.startswith(FOREIGN_SETTINGS) or name.lower().endswith("_proxy")]:
        del os.environ[name]


def attributes(item):
    def plain(value):
        kind, inner = next(iter(value.items())) if value else ("none", None)
        if kind == "arrayValue":
            return [plain(one) for one in inner.get("values", [])]
        return int(inner) if kind == "intValue" else inner

    return {one["key"]: plain(one["value"]) for one in item.get("attributes", [])}


def of_kind(spans, kind):
    """Returns the attributes of each span of that kind."""
    return [attributes(span) for span in spans if span.get("kind") == f"SPAN_KIND_{kind}"]


def first_difference(direct, through):
    for index, (a, b) in enumerate(zip(direct, through)):
        if a != b:
            return f"object {index}: {a} != {b}"
    return f"{len(direct)} objects != {len(through)}; the last {direct[-1:]} != {through[-1:]}"


def wait_until(condition):
    """Polls until `condition` is true. Returns whether that happened in time."""
    end = time.monotonic() + WAIT_LIMIT
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def listening(port, address="127.0.0.1"):
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0
