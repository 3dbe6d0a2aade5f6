#!/usr/bin/env python3
"""The official `openai` client through tokengauge: it must see what it sees without it, and every call must be told of.

    client_check.py --binary target/release/tokengauge --shared ../shared [--only simulate|replay] [--verbose]

Each call is made twice, straight to the backend and through the proxy, and the objects that the client makes of the
answers are compared. Each call through the proxy carries a trace id of its own; afterwards its spans and the metrics are
looked for in what an OTLP receiver was sent. Two backends take turns: `tokengauge simulate`, with export over gRPC, and
a replay of recorded answers, with export over HTTP.

--shared names the folder with the OTLP receiver (tools/otlp_sink.py) and the recordings (corpus/). Needs the packages of
requirements.txt. The last line is `N passed, N failed`; exit 0 when nothing failed.
"""
import argparse
import asyncio
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

import httpx
import openai

# A limit on waiting, not a measure of anything: far more than a loaded machine needs.
PATIENCE = 60
# How long the client of the time-out call waits, and how long the backend keeps it waiting: so far apart that the order
# of the two is certain.
CLIENT_TIMEOUT, BACKEND_SILENCE = 1.0, 30.0

TOOLS = [{
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather at a place",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}]
HELLO = [{"role": "user", "content": "Say hello in three languages."}]


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

    def read(self):
        """Spans by trace id, and the points of the newest export of each sum by name."""
        spans, sums = collections.defaultdict(list), {}
        for line in self.path.read_text().splitlines(keepends=True) if self.path.exists() else []:
            if not line.endswith("\n"):
                break  # still being written
            body = json.loads(line)["body"]
            for scope in (s for r in body.get("resourceSpans", []) for s in r.get("scopeSpans", [])):
                for span in scope.get("spans", []):
                    spans[base64.b64decode(span["traceId"]).hex()].append(span)
            for scope in (s for r in body.get("resourceMetrics", []) for s in r.get("scopeMetrics", [])):
                for metric in scope.get("metrics", []):
                    if "sum" in metric:
                        sums[metric["name"]] = metric["sum"].get("dataPoints", [])
        return spans, sums

    def total(self, name, **wanted):
        """The sum of the points of counter `name` whose attributes are as `wanted` (`__` stands for a dot)."""
        wanted = {key.replace("__", "."): value for key, value in wanted.items()}
        points = self.read()[1].get(name, [])
        fits = [p for p in points if all(attributes(p).get(key) == value for key, value in wanted.items())]
        return sum(float(point.get("asInt", point.get("asDouble", 0))) for point in fits)


def attributes(item):
    def plain(value):
        kind, inner = next(iter(value.items())) if value else ("none", None)
        if kind == "arrayValue":
            return [plain(one) for one in inner.get("values", [])]
        return int(inner) if kind == "intValue" else inner

    return {one["key"]: plain(one["value"]) for one in item.get("attributes", [])}


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


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Rig:
    """A backend, an OTLP receiver and the proxy between, with a client for each way to the backend."""

    def __init__(self, args, tally, name, backend, protocol):
        self.tally, self.name, self.processes, self.calls = tally, name, [], {}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"client-check-{name}-"))
        self.telemetry = Telemetry(self.folder / "otlp.jsonl")
        self.backend, self.listen, http, grpc = (free_port() for _ in range(4))
        tools = pathlib.Path(args.shared) / "tools"
        self.start("backend", [part.format(port=self.backend) for part in backend], self.backend)
        self.start("sink", [sys.executable, str(tools / "otlp_sink.py"), "--http", str(http), "--grpc", str(grpc),
                            "--out", str(self.telemetry.path)], grpc)
        endpoint = http if protocol == "http/protobuf" else grpc
        environment = dict(
            {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "TOKENGAUGE_"))},
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{endpoint}", OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_METRIC_EXPORT_INTERVAL="500", OTEL_BSP_SCHEDULE_DELAY="200", OTEL_BSP_MAX_QUEUE_SIZE="65536",
            OTEL_TRACES_SAMPLER="always_on")
        self.proxy = self.start("proxy", [
            args.binary, "run", "--listen", f"127.0.0.1:{self.listen}", "--admin", f"127.0.0.1:{free_port()}",
            "--upstream", f"http://127.0.0.1:{self.backend}"], self.listen, environment)
        self.direct, self.through = self.client(self.backend), self.client(self.listen)

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

    def client(self, port, kind=openai.OpenAI):
        return kind(base_url=self.address(port), api_key="not-a-key", max_retries=0, timeout=PATIENCE)

    def address(self, port):
        return f"http://127.0.0.1:{port}/v1"

    def trace(self, call):
        """Headers that give the next call through the proxy a trace id of its own, under which it is looked for."""
        trace = f"{len(self.calls) + 1:032x}"
        self.calls[trace] = call
        return {"traceparent": f"00-{trace}-00000000000000aa-01"}

    def same(self, call, act, scrub=lambda seen: seen):
        """Makes one call both ways with `act(client, headers)` and compares what the client saw."""
        direct = scrub(outcome(act, self.direct, {}))
        through = scrub(outcome(act, self.through, self.trace(call)))
        self.tally.check(f"{self.name}: {call}: same objects as without the proxy", direct == through,
                         f"{first_difference(direct, through)}")
        return through

    def check_telemetry(self, ended_by_client):
        """Every call has its two spans, is counted once, and those in `ended_by_client` are told as such."""
        wait_until(lambda: set(self.calls) <= set(self.telemetry.read()[0]))
        finished = "tokengauge.requests.finished"
        wait_until(lambda: self.telemetry.total(finished) >= len(self.calls))
        spans, _ = self.telemetry.read()
        for trace, call in self.calls.items():
            kinds = sorted(span.get("kind", "").removeprefix("SPAN_KIND_") for span in spans.get(trace, []))
            self.tally.check(f"{self.name}: {call}: one SERVER and one CLIENT span", kinds == ["CLIENT", "SERVER"], kinds)
            for span in spans.get(trace, []):
                if span.get("kind") == "SPAN_KIND_CLIENT":
                    self.check_client_span(call, attributes(span), call in ended_by_client)
        counted = self.telemetry.total(finished)
        self.tally.check(f"{self.name}: every call is counted once", counted == len(self.calls), f"{counted} of {len(self.calls)}")
        cancelled = self.telemetry.total(finished, tokengauge__outcome="cancelled")
        self.tally.check(f"{self.name}: calls that the client ended are counted as such", cancelled == len(ended_by_client),
                         f"{cancelled} of {len(ended_by_client)}")

    def check_client_span(self, call, found, ended_by_client):
        operation = found.get("gen_ai.operation.name")
        wanted = "embeddings" if "embeddings" in call else "text_completion" if "completions" in call else "chat"
        self.tally.check(f"{self.name}: {call}: the CLIENT span names the operation", operation == wanted, operation)
        if ended_by_client:
            self.tally.check(f"{self.name}: {call}: the CLIENT span says that it was cut", found.get("tokengauge.complete") == "cut"
                             or "tokengauge.complete" not in found, found)
            self.tally.check(f"{self.name}: {call}: the CLIENT span has an error.type", bool(found.get("error.type")), found)

    def end(self):
        self.proxy.send_signal(signal.SIGTERM)
        try:
            code = self.proxy.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = "none"
        self.tally.check(f"{self.name}: the proxy exits 0 on SIGTERM", code == 0, f"exit {code}; logs in {self.folder}")


def outcome(act, client, headers):
    """What a caller sees of one call: the objects, and the error that ended it."""
    seen = []
    try:
        for item in act(client, headers):
            seen.append(item if isinstance(item, (dict, list, str)) else item.model_dump())
    except openai.APIStatusError as error:
        seen.append([type(error).__name__, error.status_code, error.body])
    except openai.APIError as error:
        seen.append([type(error).__name__, error.body])
    except (httpx.HTTPError, json.JSONDecodeError) as error:
        seen.append([type(error).__name__])
    return seen


def first_difference(direct, through):
    for index, (a, b) in enumerate(zip(direct, through)):
        if a != b:
            return f"object {index}: {a} != {b}"
    return f"{len(direct)} objects != {len(through)}; the last {direct[-1:]} != {through[-1:]}"


def each(answer):
    """An answer as a sequence: its chunks if it is a stream, else itself."""
    return answer if isinstance(answer, openai.Stream) else [answer]


def first_chunks(stream, count):
    """Some chunks, and then the caller leaves."""
    with stream:
        for _, chunk in zip(range(count), stream):
            yield chunk


# --- against the simulated backend -----------------------------------------------------------------------------------

# Ids and times are made anew for every answer; all else must be the same for the same seed.
MADE_ANEW = ("id", "created", "system_fingerprint")


def without_made_anew(seen):
    if isinstance(seen, dict):
        return {key: without_made_anew(value) for key, value in seen.items() if key not in MADE_ANEW}
    if isinstance(seen, list):
        return [without_made_anew(item) for item in seen]
    return seen


def check_simulate(args, tally):
    # `hung` keeps its caller waiting before the first token, `endless` talks for longer than any check lasts.
    models = ["typical:step-ms=1,batch-ms=0,tokens=40,seed=7", f"hung:prefill-ms={BACKEND_SILENCE * 1000:.0f}",
              "endless:step-ms=20,tokens=20000", "broken:fail=1,status=503"]
    backend = [args.binary, "simulate", "--listen", "127.0.0.1:{port}", *(part for model in models for part in ("--model", model))]
    rig = Rig(args, tally, "simulate", backend, "grpc")
    try:
        simulate_calls(rig)
        rig.check_telemetry({"early close", "time-out"})
        tally.check("simulate: tokens of the stream that was closed early are counted",
                    rig.telemetry.total("tokengauge.tokens", gen_ai__request__model="endless", gen_ai__token__type="output") > 0)
        rig.end()
    finally:
        rig.stop()


def simulate_calls(rig):
    def chat(**more):
        def act(client, headers):
            return each(client.chat.completions.create(**{"model": "typical", "messages": HELLO, **more}, extra_headers=headers))
        return act

    def same(call, act):
        return rig.same(call, act, without_made_anew)

    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = same("streaming", chat(**streamed))
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    rig.tally.check("simulate: streaming: text and usage came", text and chunks[-1].get("usage"), chunks[-1:])
    same("streaming without usage", chat(stream=True))
    same("whole answer", chat())
    chunks = same("streaming tools", chat(**streamed, tools=TOOLS, tool_choice="required"))
    pieces = [call["function"]["arguments"] or "" for chunk in chunks for choice in chunk["choices"]
              for call in choice["delta"].get("tool_calls") or []]
    rig.tally.check("simulate: streaming tools: the arguments are JSON", "query" in json.loads("".join(pieces) or "{}"), pieces)
    same("whole tools", chat(tools=TOOLS, tool_choice="required"))
    chunks = same("streaming n = 3", chat(**streamed, n=3))
    choices = {choice["index"] for chunk in chunks for choice in chunk["choices"]}
    rig.tally.check("simulate: streaming n = 3: three choices came", choices == {0, 1, 2}, choices)
    same("whole n = 3", chat(n=3))
    same("failing backend", chat(model="broken"))
    same("text completions", lambda client, headers: each(client.completions.create(
        model="typical", prompt="Once upon a time", stream=True, extra_headers=headers)))
    same("embeddings", lambda client, headers: each(client.embeddings.create(
        model="typical", input=["one", "two"], extra_headers=headers)))
    check_many_at_once(rig)
    check_leaving(rig, "early close", lambda client, headers: first_chunks(client.chat.completions.create(
        model="endless", messages=HELLO, stream=True, extra_headers=headers), 5))
    check_timeout(rig, lambda client, headers: each(client.with_options(timeout=CLIENT_TIMEOUT).chat.completions.create(
        model="hung", messages=HELLO, stream=True, extra_headers=headers)))


def check_many_at_once(rig):
    """Twenty streams at once over the asynchronous client: each gets its own answer, as without the proxy."""
    async def ask(client, headers):
        stream = await client.chat.completions.create(model="typical", messages=HELLO, stream=True, extra_headers=headers)
        return [chunk.model_dump() async for chunk in stream]

    async def all_at_once():
        async with rig.client(rig.backend, openai.AsyncOpenAI) as direct, rig.client(rig.listen, openai.AsyncOpenAI) as through:
            alone = await ask(direct, {})
            together = await asyncio.gather(*(ask(through, rig.trace(f"streams at once {n}")) for n in range(20)))
        return alone, together

    alone, together = without_made_anew(list(asyncio.run(all_at_once())))
    rig.tally.check("simulate: twenty streams at once: each is whole", all(len(one) == len(alone) for one in together),
                    f"{len(alone)} chunks alone, {[len(one) for one in together]} together")


def check_leaving(rig, call, act):
    chunks = outcome(act, rig.through, rig.trace(call))
    rig.tally.check(f"{rig.name}: {call}: chunks came before the caller left", len(chunks) == 5 and all("choices" in c for c in chunks), chunks)


def check_timeout(rig, act):
    direct, through = outcome(act, rig.direct, {}), outcome(act, rig.through, rig.trace("time-out"))
    wanted = "APITimeoutError"
    rig.tally.check(f"{rig.name}: time-out: the caller sees the time-out", direct == through and through[-1][0] == wanted, through)


# --- against recorded answers ----------------------------------------------------------------------------------------

def check_replay(args, tally):
    corpus = pathlib.Path(args.shared) / "corpus"
    backend = [sys.executable, str(corpus / "replay_server.py"), "--root", str(corpus / "dev"), "--port", "{port}", "--quiet"]
    rig = Rig(args, tally, "replay", backend, "http/protobuf")
    try:
        longest = replay_calls(rig, corpus / "dev")
        replay_endings(rig, longest)
        rig.check_telemetry({"early close", "time-out"})
        rig.end()
    finally:
        rig.stop()


APIS = {"openai.chat": "chat", "openai.completions": "completions", "openai.embeddings": "embeddings"}


def replay_calls(rig, corpus):
    """Every recording of the three APIs, asked for as it was; gives the name of the one with the most events."""
    longest, most = None, 0
    for folder in sorted(path for path in corpus.iterdir() if path.is_dir()):
        truth = json.loads((folder / "truth.json").read_text())
        if truth["api"] not in APIS:
            continue
        body = json.loads(json.loads((folder / "request.json").read_text())["body"])
        rig.same(f"{folder.name} ({APIS[truth['api']]})", recorded(truth["api"], body, {"x-case": folder.name, "x-split": "random:5"}))
        if truth["api"] == "openai.chat" and truth["framing"] == "sse" and (truth.get("n_output_events") or 0) > most:
            longest, most = (folder.name, body), truth["n_output_events"]
    return longest


def recorded(api, body, shaping):
    """The call that makes the recorded request: what the client must be given by name, the rest as it stood."""
    def act(client, headers):
        method, needed = {
            "openai.chat": (client.chat.completions.create, {"messages": []}),
            "openai.completions": (client.completions.create, {"prompt": ""}),
            "openai.embeddings": (client.embeddings.create, {"input": ""}),
        }[api]
        if api != "openai.embeddings":
            needed["stream"] = bool(body.get("stream"))
        return each(method(model=body.get("model", "none"), **needed, extra_body=body, extra_headers={**shaping, **headers}))
    return act


def replay_endings(rig, longest):
    name, body = longest
    slowly = {"x-case": name, "x-split": "event", "x-delay-ms": "50"}
    check_leaving(rig, "early close", lambda client, headers: list_of_first(recorded("openai.chat", body, slowly)(client, headers)))
    # The backend notices by itself only when it writes; that it does is the proof that the proxy closed its side too.
    rig.tally.check("replay: early close: the backend's connection is closed too", wait_until(lambda: stats(rig)["aborted"] >= 1), stats(rig))
    silent = {"x-case": name, "x-ttfb-ms": f"{BACKEND_SILENCE * 1000:.0f}"}
    check_timeout(rig, lambda client, headers: recorded("openai.chat", body, silent)(client.with_options(timeout=CLIENT_TIMEOUT), headers))


def list_of_first(stream):
    return first_chunks(stream, 5)


def stats(rig):
    with urllib.request.urlopen(f"http://127.0.0.1:{rig.backend}/__stats", timeout=PATIENCE) as answer:
        return json.load(answer)


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--shared", required=True)
    cli.add_argument("--only", choices=["simulate", "replay"])
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    tally = Tally(args.verbose)
    for name, check in (("simulate", check_simulate), ("replay", check_replay)):
        if args.only in (None, name):
            began = time.monotonic()
            check(args, tally)
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
