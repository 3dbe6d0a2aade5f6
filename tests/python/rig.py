"""What the checks with clients share: a backend, an OTLP receiver and the proxy between, and what they wrote down."""
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

# A limit on waiting, not a measure of anything: far more than a loaded machine needs.
PATIENCE = 60
# The span that every call through the proxy is a child of.
CALLER = "00000000000000aa"
# Settings of the machine that would reach the proxy or a client unasked.
FOREIGN_SETTINGS = ("OTEL_", "TOKENGAUGE_", "AWS_", "GOOGLE_", "OLLAMA_")


class Tally:
    """Counts what held and what did not."""

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
    """What the OTLP receiver has written down so far."""

    def __init__(self, path):
        self.path = path
        self.at, self.spans, self.sums, self.histograms = 0, collections.defaultdict(list), {}, {}

    def read(self):
        """Spans by trace id, and the points of the newest export of each sum by name."""
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
        """The sum of the points of counter `name` whose attributes are as `wanted`."""
        points = self.read()[1].get(name, [])
        fits = [p for p in points if all(attributes(p).get(key) == value for key, value in dict(wanted).items())]
        return sum(float(point.get("asInt", point.get("asDouble", 0))) for point in fits)

    def distribution(self, name):
        """How many values histogram `name` has in all its series, and their sum."""
        self.read()
        points = self.histograms.get(name, [])
        return sum(int(point.get("count", 0)) for point in points), sum(float(point.get("sum", 0)) for point in points)


class Processes:
    """Processes that listen, with their logs in a folder of their own."""

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
                process.wait(PATIENCE)


class Rig(Processes):
    """A backend, an OTLP receiver and the proxy between."""

    def __init__(self, args, tally, name, backend=None, protocol="http/protobuf", configuration=None, environment=None):
        """`backend` is its command, `{port}` standing for its port; None where the caller has one of its own. Then
        `configuration(rig)` is the proxy's file, which must listen at `rig.listen`."""
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
        """Headers that give the next call through the proxy a trace id of its own, under which it is looked for."""
        trace = f"{len(self.calls) + 1:032x}"
        self.calls[trace] = call
        return {"traceparent": f"00-{trace}-{CALLER}-01"}

    def ask_backend(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.backend}{path}", timeout=PATIENCE) as answer:
            return json.load(answer)

    def await_telemetry(self):
        """Waits until the spans of every call came and every call is counted; gives back the spans by trace id."""
        wait_until(lambda: set(self.calls) <= set(self.telemetry.read()[0]))
        wait_until(lambda: self.telemetry.total("tokengauge.requests.finished") >= len(self.calls))
        return self.telemetry.read()[0]

    def end(self):
        self.proxy.send_signal(signal.SIGTERM)
        try:
            code = self.proxy.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = "none"
        self.tally.check(f"{self.name}: the proxy exits 0 on SIGTERM", code == 0, f"exit {code}; logs in {self.folder}")


def replay_backend(shared):
    """The command of the server that answers with the recordings."""
    corpus = pathlib.Path(shared) / "corpus"
    return [sys.executable, str(corpus / "replay_server.py"), "--root", str(corpus / "dev"), "--port", "{port}", "--quiet"]


def forget_the_machine():
    """Takes out of the environment what would send a client elsewhere or configure the proxy."""
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
    """The attributes of each span of that kind."""
    return [attributes(span) for span in spans if span.get("kind") == f"SPAN_KIND_{kind}"]


def first_difference(direct, through):
    for index, (a, b) in enumerate(zip(direct, through)):
        if a != b:
            return f"object {index}: {a} != {b}"
    return f"{len(direct)} objects != {len(through)}; the last {direct[-1:]} != {through[-1:]}"


def wait_until(condition):
    """Polls until `condition` holds; says whether it ever did."""
    end = time.monotonic() + PATIENCE
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
