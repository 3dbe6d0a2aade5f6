"""The proxy in front of a backend, the prompts of a load generator, and what tokengauge recorded of its requests."""
import contextlib
import datetime
import json
import os
import random
import re
import signal
import statistics
import subprocess
import urllib.request

from rig import WAIT_LIMIT, Processes, free_port, wait_until

REQUESTS = 48
CONCURRENCY = 8
# A first token after a second and a token every 31 ms: delays of a busy machine then stay below 1 %.
MODELS = {
    "sim-plain": "prefill-ms=1000,step-ms=20,tokens=40-80,usage=on-request",
    "sim-reasoning": "prefill-ms=1000,step-ms=20,tokens=40-80,reasoning=10-30,usage=on-request",
    "sim-batched": "prefill-ms=1000,step-ms=20,tokens=40-80,chunk-tokens=4,usage=on-request",
}
WORDS = "river stone window garden letter morning table music paper winter bridge market engine signal copper".split()
SAMPLE = re.compile(r"^(\w+)(\{.*\})? (\S+)$")


class Bench(Processes):
    """A backend and the proxy. The backend is `tokengauge simulate`, unless an address is given."""

    def __init__(self, binary, upstream=None):
        super().__init__("judges")
        self.binary = binary
        self.listen, self.admin = free_port(), free_port()
        if upstream is None:
            port = free_port()
            models = [part for name, options in MODELS.items() for part in ("--model", f"{name}:{options}")]
            self.start("backend", [binary, "simulate", "--listen", f"127.0.0.1:{port}", *models], port)
            upstream = f"http://127.0.0.1:{port}"
        self.url, self.log = f"http://127.0.0.1:{self.listen}", self.folder / "requests.jsonl"
        configuration = {
            "version": 1,
            "listeners": [{"address": f"127.0.0.1:{self.listen}"}],
            "upstreams": {"engine": {"url": upstream}},
            "request_log": {"path": str(self.log)},
        }
        (self.folder / "tokengauge.yaml").write_text(json.dumps(configuration))
        command = [binary, "run", "--config", str(self.folder / "tokengauge.yaml"), "--admin", f"127.0.0.1:{self.admin}"]
        self.proxy = self.start("proxy", command, self.listen)

    def prompts(self, key):
        """Writes different prompts as JSON lines, each under `key`. Returns the path."""
        pick = random.Random(1)
        path = self.folder / f"prompts-{key}.jsonl"
        texts = (f"{number}: {' '.join(pick.choices(WORDS, k=pick.randint(50, 300)))}" for number in range(REQUESTS))
        path.write_text("".join(json.dumps({key: text}) + "\n" for text in texts))
        return path

    def run(self, name, command, environment):
        """Runs a load generator to its end."""
        with open(self.folder / f"{name}.log", "w") as log:
            done = subprocess.run(command, env={**os.environ, **environment}, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder,
                                  timeout=2 * WAIT_LIMIT, check=False)
        if done.returncode:
            raise SystemExit(f"{name} exited with {done.returncode}; see {log.name}")

    def finish(self):
        """Waits until every call is counted, and stops the proxy. Returns its metrics, and the report of its request log."""
        wait_until(lambda: self.metrics().total("tokengauge_requests_finished_total", "gen_ai_request_model") >= REQUESTS)
        metrics = self.metrics()
        self.proxy.send_signal(signal.SIGTERM)
        self.proxy.wait(WAIT_LIMIT)
        report = subprocess.run([self.binary, "report", str(self.log), "--format", "json"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, check=True)
        return metrics, json.loads(report.stdout)["subjects"][0]

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=WAIT_LIMIT) as answer:
            return Metrics(answer.read().decode())

    def calls(self):
        """Returns the calls in the request log. Plain HTTP, such as a health check of the load generator, is left out."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [Call(line) for line in lines if "call" in line]


class Metrics:
    """A scrape page."""

    def __init__(self, page):
        self.samples = [match.groups() for match in map(SAMPLE.match, page.splitlines()) if match]

    def total(self, name, label=""):
        """Returns the sum of the series of `name` that have this text in their labels."""
        return sum(float(value) for found, labels, value in self.samples if found == name and label in (labels or ""))

    def mean(self, name):
        return self.total(f"{name}_sum") / self.total(f"{name}_count")


class Call:
    """A call in the request log. Its timestamps are seconds since 1970."""

    def __init__(self, line):
        self.line, self.call, self.times = line, line["call"], line["times"]
        whole, fraction = line["time"].rstrip("Z").split(".")
        self.accept = datetime.datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction}")
        self.input, self.output = self.call["usage"]["input"], self.call["usage"]["output"]
        self.counted, self.first_chunk = self.call["output"]["counted"], self.call["output"]["counted_in_first_chunk"]
        self.first, self.visible, self.last = (self.times[f"{name}_token"] for name in ("first", "first_visible", "last"))
        self.end, self.blocked = self.times["end"], line["client_backpressure"]

    @property
    def request_id(self):
        return self.line["http"]["request_headers"].get("x-request-id")

    @property
    def response_id(self):
        return self.call["response"]["id"]


@contextlib.contextmanager
def started(binary, upstream):
    bench = Bench(binary, upstream)
    try:
        yield bench
    finally:
        bench.stop()


mean, median = statistics.fmean, statistics.median
