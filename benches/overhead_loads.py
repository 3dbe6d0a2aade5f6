"""The loads of the overhead benchmark, and the statistics of their rounds."""
import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Load:
    label: str
    clients: int
    script: dict
    # What the CPU time is divided by: "chunk" or "request".
    unit: str
    # A group of processes serves the loads of one setup.
    setup: str = "http1"
    seconds: float = 3
    options: tuple = ()
    # The largest ratio of the CPU time to the relay's.
    budget: float | None = None
    # Whether added delay and added time to first token are figures of the load.
    timed: bool = False
    is_quick: bool = True

    def arguments(self, quick):
        """Returns the arguments of `overhead load`. Clients start during the first stream, so the window begins after it."""
        script = dict(self.script)
        gap = script.get("gap-us", 0)
        seconds = self.seconds
        if quick:
            seconds = 0.8
            if gap:
                script["tokens"] = max(2, min(script["tokens"], 400_000 // gap))
        stream = script.get("tokens", 0) * gap / 1e6
        text = ",".join(f"{key}={value}" for key, value in script.items())
        return ["--clients", self.clients, "--script", text, "--seconds", seconds, "--warm-up", round(stream + 0.3, 3), *self.options]


def paced(tokens, gap_ms):
    return {"kind": "stream", "tokens": tokens, "gap-us": gap_ms * 1000}


def json_call(tokens=100, prompt=200):
    return {"kind": "json", "tokens": tokens, "prompt-bytes": prompt}


EMBEDDINGS = {"kind": "embeddings", "model": "text-embedding-3-small", "tokens": 16, "prompt-bytes": 1000}

LOADS = {
    "light": Load("20 streams × 50 tokens/s", 20, paced(100, 20), "chunk", seconds=6, budget=1.25, timed=True),
    "paced": Load("200 streams × 50 tokens/s", 200, paced(100, 20), "chunk", seconds=6, budget=1.25, timed=True),
    "many": Load("1,000 streams × 20 tokens/s", 1000, paced(40, 50), "chunk", seconds=5, budget=1.15),
    "most": Load("5,000 streams × 4 tokens/s", 5000, paced(20, 250), "chunk", seconds=5, budget=1.15, is_quick=False),
    "gzip": Load("200 streams × 50 tokens/s, gzip", 200, paced(100, 20) | {"gzip": "yes"}, "chunk", seconds=5),
    "saturated": Load("64 streams, no gaps", 64, {"kind": "stream", "tokens": 200}, "chunk", budget=1.25),
    "short": Load("streams of 10 tokens, each on a new client connection", 32, {"kind": "stream", "tokens": 10}, "request", options=("--new-connections",)),
    "json": Load("whole JSON", 32, json_call(), "request", budget=1.5),
    # With a pause, because the observer drops bytes if prompts or embeddings exceed its speed.
    "prompt-20k": Load("prompt of 20 KB, 16 clients with 50 ms pause", 16, json_call(20, 20_000), "request", seconds=5, options=("--pause-ms", 50)),
    "prompt-300k": Load("prompt of 300 KB, 16 clients with 50 ms pause", 16, json_call(20, 300_000), "request", seconds=5, options=("--pause-ms", 50)),
    "embeddings": Load("embeddings, 16 inputs of 1 KB, 16 clients with 50 ms pause", 16, EMBEDDINGS, "request", seconds=5, options=("--pause-ms", 50)),
    "http2-clients": Load("100 streams × 50 tokens/s, one HTTP/2 client connection", 100, paced(100, 20), "chunk", "http2-clients", seconds=5),
    "tls": Load("200 streams × 50 tokens/s, TLS to the upstream", 200, paced(100, 20), "chunk", "tls", seconds=5, budget=1.1),
    "tls-json": Load("whole JSON, TLS to the upstream", 32, json_call(), "request", "tls", budget=1.4),
    "tls-http2": Load("200 streams × 50 tokens/s, HTTP/2 over TLS to the upstream", 200, paced(100, 20), "chunk", "tls-http2", seconds=5, budget=1.1),
    "tls-http2-json": Load("whole JSON, HTTP/2 over TLS to the upstream", 32, json_call(), "request", "tls-http2", budget=1.4),
}
# The difference of these two loads is the cost of a longer prompt.
PROMPTS = ("prompt-20k", "prompt-300k")
PROMPT_DIFFERENCE_KB = 280


def cpu_us(report, load, source="scheduled_s"):
    """Returns the CPU time per chunk or request in µs, including that of a process beside the proxy, or None if nothing was measured."""
    parts = [cpu for cpu in (report["cpu"], report.get("beside_cpu")) if cpu]
    return per_unit_us(report, load, sum(cpu["user_s"] + cpu["system_s"] if source == "ticks" else cpu[source] for cpu in parts))


def per_unit_us(report, load, seconds):
    count = report[LOADS[load].unit + "s"]
    return seconds * 1e6 / count if count else None


def added_us(report, direct, what, percentile):
    """Returns the difference of a percentile to the one without a proxy, or None if nothing was measured."""
    return report[what][percentile] - direct[what][percentile] if report[what] and direct[what] else None


@dataclasses.dataclass(frozen=True)
class Values:
    """The values of one figure: the median of the rounds, and the extremes."""
    median: float
    least: float
    most: float

    @classmethod
    def of(cls, rounds):
        """Returns None if the figure was not measured in all rounds."""
        if not rounds or any(value is None for value in rounds):
            return None
        return cls(statistics.median(rounds), min(rounds), max(rounds))


def ratios(values, relay):
    """Returns the ratio to the relay in each round. A ratio to a value that is not positive has no meaning."""
    if any(value is None or base is None or base <= 0 for value, base in zip(values, relay, strict=True)):
        return None
    return [value / base for value, base in zip(values, relay, strict=True)]
