#!/usr/bin/env python3
"""Replays a trace of `tokengauge report --format trace` with AIPerf, and compares the load of the replay with the recorded load.

    trace_check.py --binary target/release/tokengauge --venv FOLDER --encodings FOLDER

1. Sends requests of several sessions through a proxy to `tokengauge simulate`, with random arrivals and lengths.
2. Writes the trace of the request log.
3. AIPerf replays the trace through another proxy against the same simulator.
4. Compares both request logs: number of requests, arrivals, lengths of prompts and responses.

--encodings is the cache of Python's tiktoken. The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import bisect
import calendar
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import urllib.request

from rig import WAIT_LIMIT, Processes, Tally, clear_environment, free_port, wait_until

REQUESTS, SESSIONS = 60, 8
# Mean time between two arrivals in seconds. Long enough that a busy machine keeps the order.
GAP = 0.5
WORDS = "river stone window garden letter morning table music paper winter bridge market engine signal copper".split()
# Largest difference between the recorded and the replayed arrival of a request, in seconds since the first one. A busy machine sends late.
ARRIVAL = 1.0
# AIPerf cuts a prompt from texts of 512 tokens. Where texts meet, the tokens of the whole prompt differ from those of its parts.
INPUT_RATIO, INPUT_TOKENS = 0.03, 16
# Largest difference between the cumulative distributions, as in a Kolmogorov–Smirnov test.
DISTANCE = 0.1


class Scene(Processes):
    """A proxy with a request log in front of a simulated backend whose responses have `max_tokens` tokens."""

    def __init__(self, name, binary):
        super().__init__(name)
        backend, self.listen = free_port(), free_port()
        model = "m:prefill-ms=2,prefill-us-per-token=1,step-ms=1,batch-ms=0,tokens=20000,usage=always"
        self.start("backend", [binary, "simulate", "--listen", f"127.0.0.1:{backend}", "--model", model], backend)
        self.log = self.folder / "requests.jsonl"
        configuration = {
            "version": 1,
            "listeners": [{"address": f"127.0.0.1:{self.listen}"}],
            "admin": {"address": f"127.0.0.1:{free_port()}"},
            "upstreams": {"engine": {"url": f"http://127.0.0.1:{backend}"}},
            "request_log": {"path": str(self.log)},
            "identity": {"session": {"headers": ["x-session"]}},
        }
        path = self.folder / "tokengauge.yaml"
        path.write_text(json.dumps(configuration))
        self.proxy = self.start("proxy", [binary, "run", "--config", str(path)], self.listen)

    def calls(self):
        """Stops all processes. Returns the calls of the request log in the order of their arrival."""
        self.stop()
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return sorted((Call(line) for line in lines if "call" in line), key=lambda call: call.arrival)


class Call:
    """A call in a request log."""

    def __init__(self, line):
        whole, fraction = line["time"].rstrip("Z").split(".")
        self.arrival = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction}")
        self.input, self.output = (line["call"]["usage"][name] for name in ("input", "output"))


def record(scene):
    """Sends requests at random times. Each prompt of a session begins with the previous one."""
    draw = random.Random(7)
    prompts, at = ["" for _ in range(SESSIONS)], 0.0
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        futures = []
        for _ in range(REQUESTS):
            session = draw.randrange(SESSIONS)
            prompts[session] += " " + " ".join(draw.choices(WORDS, k=min(1500, int(draw.lognormvariate(5.5, 1.0)) + 5)))
            time.sleep(max(0.0, began + at - time.monotonic()))
            futures.append(pool.submit(send, scene.listen, f"s-{session}", prompts[session], draw.randint(5, 120)))
            at += draw.expovariate(1 / GAP)
        for future in futures:
            future.result()


def send(port, session, prompt, tokens):
    body = {"model": "m", "stream": True, "max_tokens": tokens, "messages": [{"role": "user", "content": prompt}]}
    headers = {"content-type": "application/json", "x-session": session}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=WAIT_LIMIT) as answer:
        answer.read()


def replay(scene, trace, options):
    command = [
        str(pathlib.Path(options.venv) / "bin/aiperf"), "profile", "--model", "m", "--url", f"http://127.0.0.1:{scene.listen}",
        "--endpoint-type", "chat", "--streaming", "--tokenizer", "builtin", "--input-file", str(trace),
        "--custom-dataset-type", "mooncake_trace", "--fixed-schedule", "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics",
        "--workers-max", "2", "--record-processors", "1", "--artifact-dir", str(scene.folder / "aiperf")]
    # The defaults are too short for a busy machine.
    limits = {f"AIPERF_SERVICE_{name}_TIMEOUT": str(WAIT_LIMIT) for name in ("REGISTRATION", "START", "PROFILE_START", "CONNECTION_PROBE")}
    with open(scene.folder / "aiperf.log", "w") as log:
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, cwd=scene.folder, check=False, timeout=2 * WAIT_LIMIT,
                              env={**os.environ, **limits, "TIKTOKEN_CACHE_DIR": options.encodings})
    if done.returncode:
        raise SystemExit(f"AIPerf exited with {done.returncode}; see {log.name}")


def distance(one, other):
    """The largest difference between two cumulative distributions."""
    one, other = sorted(one), sorted(other)
    share = lambda values, value: bisect.bisect_right(values, value) / len(values)
    return max(abs(share(one, value) - share(other, value)) for value in one + other)


def compare(tally, recorded, replayed, trace):
    tally.check("the replay has as many requests", len(replayed) == len(recorded) == len(trace), (len(recorded), len(trace), len(replayed)))
    since = lambda calls: [call.arrival - calls[0].arrival for call in calls]
    late = max(abs(a - b) for a, b in zip(since(recorded), since(replayed)))
    tally.check(f"arrivals differ by at most {ARRIVAL} s", late <= ARRIVAL, f"{late:.3f} s")
    # Requests that arrive almost at the same time can change places. The pairs are therefore those of the sorted lengths.
    inputs = list(zip(sorted(call.input for call in recorded), sorted(call.input for call in replayed)))
    off = [(a, b) for a, b in inputs if abs(a - b) > max(INPUT_TOKENS, INPUT_RATIO * a)]
    tally.check(f"lengths of prompts differ by at most {INPUT_RATIO:.0%} or {INPUT_TOKENS} tokens", not off, off[:5])
    outputs = [sorted(call.output for call in calls) for calls in (recorded, replayed)]
    tally.check("lengths of responses are equal", outputs[0] == outputs[1], outputs)
    for name in ("input", "output"):
        found = distance(*[[getattr(call, name) for call in calls] for calls in (recorded, replayed)])
        tally.check(f"distributions of {name} lengths differ by at most {DISTANCE}", found <= DISTANCE, f"{found:.3f}")
    largest = max(abs(a - b) for a, b in inputs)
    print(f"{len(replayed)} requests in {since(recorded)[-1]:.0f} s: arrivals within {late:.3f} s, prompts within {largest} tokens, responses equal")


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--venv", required=True)
    cli.add_argument("--encodings", required=True)
    cli.add_argument("--verbose", action="store_true")
    options = cli.parse_args()
    clear_environment()
    tally = Tally(options.verbose)
    source = Scene("trace-source", options.binary)
    try:
        record(source)
        recorded = source.calls()
    finally:
        source.stop()
    trace = source.folder / "trace.jsonl"
    command = [options.binary, "report", str(source.log), "--by", "session,model", "--format", "trace"]
    trace.write_bytes(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    scene = Scene("trace-replay", options.binary)
    try:
        replay(scene, trace, options)
        replayed = scene.calls()
    finally:
        scene.stop()
    compare(tally, recorded, replayed, [json.loads(line) for line in trace.read_text().splitlines()])
    print(f"{tally.passed} passed, {tally.failed} failed; logs in {source.folder} and {scene.folder}")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
