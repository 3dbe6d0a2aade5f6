#!/usr/bin/env python3
"""Compares tokengauge with a real engine: llama.cpp or vLLM, with a tiny model of random weights.

    engines_check.py llama_cpp|vllm --binary target/checked/tokengauge --python VENV/bin/python [--only CHECK] [--verbose]

The official `openai` and `anthropic` clients call the engine through the proxy. Each call has its own trace id, by which its line of the request
log is found. Then these must be equal:

* reported tokens of each call, and the usage that the client received;
* the sums of all calls, and the growth of the engine's own counters;
* counted tokens of a stream without usage, and the engine's `/tokenize` of the text that the client received;
* requests that run and wait, and the engine's gauges, after one scrape.

Times of the proxy must lie between those of the engine and those of the client, on any machine. Means and quantiles must agree within 5 % or
5 ms, unless other programs use the machine: then threads wait for a core between two timestamps, and the differences are only printed.

VENV has the packages of the engine. The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import concurrent.futures
import functools
import http.client
import itertools
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

import tokenizers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))

from rig import Processes, Tally, clear_environment, free_port, wait_until  # noqa: E402
from truth import Clients, observe  # noqa: E402

SLOTS = 2
TOOL = {"name": "weather", "description": "The weather in a city", "schema": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Oslo"]}}, "required": ["city"]}}
OPENAI_TOOLS = [{"type": "function", "function": {"name": TOOL["name"], "description": TOOL["description"], "parameters": TOOL["schema"]}}]
ANTHROPIC_TOOLS = [{"name": TOOL["name"], "description": TOOL["description"], "input_schema": TOOL["schema"]}]
PROMPT = "What is the weather in Paris? "
# Fields that the official clients do not have: no reasoning, and no end before `max_tokens`.
PLAIN, ENDLESS = {"chat_template_kwargs": {"enable_thinking": False}}, {"ignore_eos": True}
RESPONSES_TOOLS = [{"type": "function", **OPENAI_TOOLS[0]["function"]}]


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return answer.read().decode()


def is_ready(port):
    """Returns whether the engine has loaded its model. Until then, its status is 503."""
    try:
        return bool(get(port, "/health"))
    except OSError:
        return False


def samples(page):
    """Returns each series of a metrics page, by name and labels as written."""
    lines = (line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in lines}


def traced(trace):
    return {"traceparent": f"00-{trace}-00000000000000aa-01"}


def total(page, name, *labels):
    """Returns the sum of the series of `name` that have all labels."""
    return sum(value for series, value in samples(page).items()
               if series.split("{")[0] == name and all(label in series for label in labels))


class LlamaCpp:
    """llama.cpp's server: one process that generates, and one for embeddings."""

    name, model = "llama_cpp", "tiny"
    counters = {"input": ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
                "cached": ("llamacpp:prompt_tokens_cached_total",), "output": ("llamacpp:tokens_predicted_total",)}
    running, waiting = "llamacpp:requests_processing", "llamacpp:requests_deferred"

    def __init__(self, python, processes):
        self.python, self.processes, self.folder = python, processes, processes.folder / "model"
        subprocess.run([python, str(HERE / "model.py"), str(self.folder)], check=True)
        self.port, self.embedding_port = free_port(), free_port()
        self.start()
        processes.start("embedding-engine", self.command(self.embedding_port, "embedding=true"), self.embedding_port)
        wait_until(lambda: is_ready(self.embedding_port))

    def command(self, port, *settings):
        return [self.python, str(HERE / "llama_server.py"), str(self.folder / "model.gguf"), str(port), f"n_parallel={SLOTS}", f"n_ctx={4096 * SLOTS}",
                f'model_alias=["{self.model}"]', *settings]

    def start(self):
        self.process = self.processes.start("engine", self.command(self.port), self.port)
        wait_until(lambda: is_ready(self.port))

    def tokens(self, text):
        body = json.dumps({"content": text}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/tokenize", body, timeout=30) as answer:
            return len(json.load(answer)["tokens"])

    def counted(self, text):
        """Returns the number of tokens by the tokenizer's file, also while the engine is down."""
        return len(tokenizers.Tokenizer.from_file(str(self.folder / "tokenizer.json")).encode(text, add_special_tokens=False).ids)

    def marker(self, text):
        """Returns the id of a token of the tokenizer's added tokens."""
        added = json.loads((self.folder / "tokenizer.json").read_text())["added_tokens"]
        return next(token["id"] for token in added if token["content"] == text)

    def calls(self, clients):
        """Returns all calls that end normally, by name, and the number of their prompts."""
        think = {"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget_tokens": 12}
        # The model has no sense for tools. The bias starts a call, and the engine's grammar completes it.
        tool = {**PLAIN, "logit_bias": {str(self.marker("<tool_call>")): 100}, "parallel_tool_calls": False}
        calls = {}
        for stream, kind in ((True, "stream"), (False, "whole")):
            chat, completions, responses, messages = (
                functools.partial(make, PROMPT, stream) for make in (clients.chat, clients.completions, clients.responses, clients.messages))
            calls |= {
                f"chat, {kind}": chat(max_tokens=40, extra={**PLAIN, **ENDLESS}),
                f"chat with reasoning, {kind}": chat(max_tokens=40, extra={**think, **ENDLESS}),
                f"chat with tools, {kind}": chat(max_tokens=200, tools=OPENAI_TOOLS, tool_choice="required", extra=tool),
                f"chat with stop strings, {kind}": chat(max_tokens=400, stop=["e", "of"], extra=PLAIN),
                f"chat with logprobs, {kind}": chat(max_tokens=20, logprobs=True, top_logprobs=3, extra=PLAIN),
                f"chat of 1 token, {kind}": chat(max_tokens=1, extra=PLAIN),
                f"completion, {kind}": completions(max_tokens=40, extra=ENDLESS),
                f"completion with logprobs, {kind}": completions(max_tokens=20, logprobs=2),
                f"responses, {kind}": responses(max_output_tokens=40, extra=PLAIN),
                f"responses with reasoning, {kind}": responses(max_output_tokens=40, extra=think),
                f"responses with tools, {kind}": responses(max_output_tokens=200, tools=RESPONSES_TOOLS, tool_choice="required", extra=tool),
                f"messages, {kind}": messages(max_tokens=40, extra=PLAIN),
                f"messages with reasoning, {kind}": messages(max_tokens=40, extra=think),
                f"messages with tools, {kind}": messages(max_tokens=200, tools=ANTHROPIC_TOOLS, tool_choice={"type": "any"}, extra=tool),
                f"/completion, {kind}": clients.own("/completion", {"prompt": PROMPT, "n_predict": 30, "stream": stream}),
                f"/infill, {kind}": clients.own("/infill", {"input_prefix": "def ma", "input_suffix": "return", "n_predict": 10, "stream": stream}),
            }
        calls["chat, n = 2, stream"] = clients.chat(PROMPT, max_tokens=20, n=2, extra={**PLAIN, **ENDLESS})
        calls["completion, n = 2, stream"] = clients.completions(PROMPT, max_tokens=20, n=2, extra=ENDLESS)
        two = {"/completion of two prompts": clients.own("/completion", {"prompt": [PROMPT, "Water"], "n_predict": 10}),
               "completion of two prompts, stream": clients.completions([PROMPT, "Water"], max_tokens=10, extra=ENDLESS)}
        return {**{name: (call, 1) for name, call in calls.items()}, **{name: (call, 2) for name, call in two.items()}}

    def calls_with_partial_usage(self, clients):
        """Responses in one piece with several choices: llama.cpp reports the usage of the first choice only."""
        return {"chat, n = 2, whole": clients.chat(PROMPT, False, max_tokens=20, n=2, extra={**PLAIN, **ENDLESS}),
                "completion, n = 2, whole": clients.completions(PROMPT, False, max_tokens=20, n=2, extra=ENDLESS)}

    def calls_without_usage(self, clients):
        """llama.cpp always reports usage in streams of completions."""
        return {"chat without usage": clients.chat(PROMPT, usage=False, max_tokens=150, extra={**PLAIN, **ENDLESS}),
                "chat without usage, n = 2": clients.chat(PROMPT, usage=False, max_tokens=50, n=2, extra={**PLAIN, **ENDLESS})}


class Run:
    """A proxy in front of the engine, its request log and its calls."""

    def __init__(self, args, tally, engine, processes):
        self.tally, self.engine, self.seen, self.numbers = tally, engine, {}, itertools.count(1)
        self.listen, self.admin, self.log = free_port(), free_port(), processes.folder / "requests.jsonl"
        # llama.cpp closes the connection after each stream, see docs/how-to/llama-cpp.md.
        upstream = {"url": f"http://127.0.0.1:{engine.port}", "engine_metrics": {"scrape_interval": "1s"}, "pool": {"idle_timeout": "0s"}}
        routes = [{"upstream": "engine"}]
        upstreams = {"engine": upstream}
        if getattr(engine, "embedding_port", None):
            upstreams["embedding"] = {"url": f"http://127.0.0.1:{engine.embedding_port}"}
            routes.insert(0, {"match": {"prefix": "/v1/embeddings"}, "upstream": "embedding"})
        (processes.folder / "tokengauge.yaml").write_text(json.dumps({
            "version": 1, "listeners": [{"address": f"127.0.0.1:{self.listen}"}], "admin": {"address": f"127.0.0.1:{self.admin}"},
            "upstreams": upstreams, "routes": routes, "request_log": {"path": str(self.log)},
            "tokenizers": {"*": str(engine.folder / "tokenizer.json")}}))
        self.proxy = processes.start("proxy", [args.binary, "run", "--config", str(processes.folder / "tokengauge.yaml")], self.listen)
        self.clients = Clients(self.listen, engine.model)

    def check(self, name, held, note=""):
        self.tally.check(f"{self.engine.name}: {name}", held, note)

    def begin(self, name):
        """Returns the trace id of a new call."""
        trace = f"{next(self.numbers):032x}"
        self.seen[trace] = name, None
        return trace

    def make(self, name, call):
        """Makes one call, and returns its trace id and what the client received."""
        trace = self.begin(name)
        self.seen[trace] = name, observe(call, traced(trace))
        return trace, self.seen[trace][1]

    def together(self, name, calls):
        """Makes all calls at the same time."""
        with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(lambda numbered: self.make(f"{name} {numbered[0]}", numbered[1]), enumerate(calls)))

    def lines(self):
        """Waits for the line of each call. Returns the lines by the trace id of the call."""
        def read():
            text = self.log.read_text() if self.log.exists() else ""
            lines = (json.loads(line) for line in text.splitlines(True) if line.endswith("\n"))
            return {line["trace"]["trace_id"]: line for line in lines}
        wait_until(lambda: set(self.seen) <= set(read()))
        return read()

    def counters(self):
        page = get(self.engine.port, "/metrics")
        return {kind: sum(total(page, name) for name in names) for kind, names in self.engine.counters.items()}

    def gauges(self):
        """Returns the running and waiting requests of the engine and of the proxy."""
        engine, proxy = get(self.engine.port, "/metrics"), get(self.admin, "/metrics")
        return ((total(engine, self.engine.running), total(engine, self.engine.waiting)),
                tuple(total(proxy, "tokengauge_backend_requests", f'tokengauge_state="{state}"') for state in ("running", "waiting")))


# --- tokens ----------------------------------------------------------------------------------------------------------

def check_tokens(run):
    """Makes each call once, then many at once. Compares tokens call by call, and in sum with the engine's counters."""
    before, made = run.counters(), {}
    for name, (call, prompts) in run.engine.calls(run.clients).items():
        made[run.make(name, call)[0]] = prompts
    for count in (8, 32):
        calls = [run.clients.chat(f"Question {number}", max_tokens=20 + number, extra=PLAIN) for number in range(count)]
        made.update({trace: 1 for trace, _ in run.together(f"{count} at once", calls)})
    grown = {kind: value - before[kind] for kind, value in run.counters().items()}
    lines = run.lines()
    found = [check_call(run, trace, lines[trace], prompts) for trace, prompts in made.items()]
    sums = {kind: sum(tokens.get(kind, 0) for tokens in found) for kind in grown}
    run.check("the sums of all calls equal the engine's counters", sums == grown, f"{sums}, not {grown}")
    # After the counters, which include the tokens that the usage omits.
    for name, call in run.engine.calls_with_partial_usage(run.clients).items():
        trace, _ = run.make(name, call)
        check_call(run, trace, run.lines()[trace], 1)


def check_call(run, trace, line, prompts):
    """Compares one call with its line. Returns the tokens by the proxy."""
    name, seen = run.seen[trace]
    usage = line.get("call", {}).get("usage", {})
    found = {"input": usage.get("input"), "output": usage.get("output"), "cached": usage.get("cache_read")}
    truth = seen.usage(prompts)
    run.check(f"{name}: the call succeeds with text", seen.status == 200 and not seen.error and seen.text(), seen)
    run.check(f"{name}: tokens equal the usage", truth and {kind: found[kind] for kind in truth} == truth, f"{found}, not {truth}")
    run.check(f"{name}: the outcome is ok", line["outcome"] == "ok", line.get("error_type"))
    if seen.finish:
        reasons = set(line["call"]["response"]["finish_reasons"])
        run.check(f"{name}: the finish reasons are the client's", reasons == seen.finish, f"{reasons}, not {seen.finish}")
    output = line["call"].get("output", {})
    if any(kind == "tool" for _, kind in seen.texts):
        run.check(f"{name}: tokens of the tool call are counted", output.get("by_kind", {}).get("tool", 0) > 0, output)
    else:
        tokens = sum(run.engine.tokens(text) for text in seen.texts.values())
        run.check(f"{name}: counted tokens equal the engine's tokenizer", (output.get("counted"), output.get("counted_source")) == (tokens, "counted"),
                  f"{output}, not {tokens}")
    return {kind: value for kind, value in found.items() if value is not None}


def check_withheld(run):
    """Streams without usage: the proxy counts the tokens itself."""
    for name, call in run.engine.calls_without_usage(run.clients).items():
        trace, seen = run.make(name, call)
        output = run.lines()[trace]["call"]["output"]
        tokens = sum(run.engine.tokens(text) for text in seen.texts.values())
        run.check(f"{name}: no usage arrived", not seen.usages, seen.usages)
        run.check(f"{name}: output equals the engine's tokenizer", (output["tokens"], output["source"]) == (tokens, "counted"), f"{output}, not {tokens}")


def check_embeddings(run):
    trace, seen = run.make("embeddings", run.clients.embeddings(["one", "two words"]))
    call = run.lines()[trace]["call"]
    run.check("embeddings: tokens equal the usage", seen.usages and call.get("usage", {}).get("input") == seen.usage()["input"], f"{call}, not {seen}")
    run.check("embeddings: the operation", call["labels"]["operation"] == "embeddings", call["labels"])


def check_errors(run):
    trace, seen = run.make("context too long", run.clients.chat("water " * 4000, max_tokens=5))
    line = run.lines()[trace]
    run.check("context too long: the client gets status 400", seen.status == 400, seen)
    run.check("context too long: an error of the client", (line["outcome"], line["http"]["status"], line["error_source"]) == ("error", 400, "client"), line)


# --- aborts ----------------------------------------------------------------------------------------------------------

def check_queue_and_aborts(run):
    """Fills the slots and the queue, compares the gauges, then aborts all: in the queue, in prefill and in the stream."""
    body = {"model": run.engine.model, "stream": True, "max_tokens": 3500, "messages": [{"role": "user", "content": "Tell a story"}], **ENDLESS, **PLAIN}
    streams = {run.begin(f"aborted {number}"): None for number in range(8)}
    for trace in streams:
        streams[trace] = OpenStream(run.listen, trace, body)
    held = wait_until(lambda: is_full(*run.gauges()))
    run.check("a full queue: running and waiting equal the engine's gauges", held, run.gauges())
    texts = {trace: stream.has_text() for trace, stream in streams.items()}
    run.check("aborts: some streams have text, the others wait", SLOTS <= sum(texts.values()) < 8, texts)
    for stream in streams.values():
        stream.abort()
    held = wait_until(lambda: all(gauges == (0, 0) for gauges in run.gauges()))
    run.check("after the aborts: nothing runs or waits, by the engine and by the proxy", held, run.gauges())
    lines = run.lines()
    for trace, had_text in texts.items():
        name, line = run.seen[trace][0], lines[trace]
        run.check(f"{name}: cancelled by the client", (line["outcome"], line["ending"]["kind"]) == ("cancelled", "client_gone"), line["ending"])
        if had_text:
            run.check(f"{name}: tokens are counted", line["call"]["output"].get("counted", 0) > 0, line["call"])
    abort_in_prefill(run, {**body, "messages": [{"role": "user", "content": "Paris " * 3500}]})


def is_full(engine, proxy):
    return engine == proxy and engine[0] == SLOTS and engine[1] > 0


class OpenStream:
    """A streamed response that a thread reads until the client aborts."""

    def __init__(self, port, trace, body):
        self.received = b""
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json", **traced(trace)})
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            response = self.connection.getresponse()
            while data := response.read1(65536):
                self.received += data
        except (OSError, http.client.HTTPException):
            pass  # aborted

    def has_text(self):
        return b'"content":"' in self.received

    def abort(self):
        self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(30)
        self.connection.close()


def abort_in_prefill(run, body):
    trace = run.begin("aborted in prefill")
    stream = OpenStream(run.listen, trace, body)
    held = wait_until(lambda: total(get(run.admin, "/metrics"), "tokengauge_active_requests") >= 1)
    run.check("aborted in prefill: the request is in flight, without text", held and not stream.has_text())
    stream.abort()
    line = run.lines()[trace]
    run.check("aborted in prefill: cancelled, without tokens", line["outcome"] == "cancelled" and "output" not in line["call"], line["call"])


def check_kill(run):
    """Kills the engine in the middle of a stream, and starts it again."""
    story = run.clients.chat("Tell a story", max_tokens=3000, extra={**PLAIN, **ENDLESS})

    def killing(headers):
        for number, event in enumerate(story(headers)):
            if number == 20:
                run.engine.process.kill()
                run.engine.process.wait()
            yield event

    trace, seen = run.make("engine killed", killing)
    line = run.lines()[trace]
    tokens = sum(run.engine.counted(text) for text in seen.texts.values())
    run.check("engine killed: the client gets an error", bool(seen.error), seen.error)
    run.check("engine killed: the upstream failed", (line["ending"]["kind"], line["error_source"]) == ("upstream_failed", "upstream"), line["ending"])
    run.check("engine killed: the tokens that arrived are counted", (line["call"]["output"].get("counted"), line["call"]["complete"]) == (tokens, "cut"),
              f"{line['call']['output']}, not {tokens}")
    _, refused = run.make("engine down", run.clients.chat(PROMPT, max_tokens=5))
    run.check("engine down: status 502", refused.status == 502, refused)
    run.engine.start()
    _, seen = run.make("engine restarted", run.clients.chat(PROMPT, max_tokens=5, extra=PLAIN))
    run.check("engine restarted: the next call succeeds", seen.status == 200 and seen.usages, seen)


# --- times -----------------------------------------------------------------------------------------------------------

def check_times(run, count=20):
    """Streams one after another with prompts of different length. Compares the proxy's times with those of the client and the engine."""
    made = []
    for number in range(count):
        body = {"prompt": f"{number} " + "Paris is cold. " * (5 + number), "n_predict": 20 + number, "stream": True, **ENDLESS}
        made.append(run.make(f"timed {number}", run.clients.own("/completion", body)))
    lines, rows = run.lines(), []
    is_busy = os.getloadavg()[0] > 2 * os.cpu_count()
    if is_busy:
        print(f"{run.engine.name}: load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores: means and quantiles are not compared")
    for trace, seen in made:
        run.check(f"{run.seen[trace][0]}: the call succeeds", seen.usages and not seen.error, seen)
        if not seen.usages:
            continue
        line, engine, tokens = lines[trace], {key: value / 1000 for key, value in seen.timings.items()}, seen.usage()["output"]
        row = {"ttft": (engine["prompt_ms"], line["times"]["first_token"], seen.first),
               "itl": (engine["predicted_ms"] / tokens, line["call"]["rates"]["time_per_output_token"], (seen.last - seen.first) / (tokens - 1)),
               "duration": (engine["prompt_ms"] + engine["predicted_ms"], line["times"]["end"], seen.end)}
        rows.append(row)
        run.check(f"{run.seen[trace][0]}: engine ≤ proxy ≤ client", all(list(row[what]) == sorted(row[what]) for what in ("ttft", "duration")), row)
        backend = line["call"].get("backend", {})
        run.check(f"{run.seen[trace][0]}: prefill and decode are the engine's", all(
            abs(backend.get(name, 0) - engine[key]) < 1e-6 for name, key in (("prefill", "prompt_ms"), ("decode", "predicted_ms"))), backend)
    for what in ("ttft", "itl", "duration"):
        for measure, fold in (("mean", statistics.mean), *((f"p{part}", lambda values, part=part: quantile(values, part)) for part in (50, 90, 99))):
            engine, proxy, client = (fold([row[what][column] for row in rows]) * 1000 for column in range(3))
            print(f"{run.engine.name}: {what} {measure}: engine {engine:.2f} ms, proxy {proxy:.2f} ms, client {client:.2f} ms")
            for name, other in () if is_busy else (("client's clock", client), ("engine's timings", engine)):
                run.check(f"{what} {measure} agrees with the {name}", abs(proxy - other) <= max(5, 0.05 * other), f"{proxy:.2f} ms, not {other:.2f} ms")


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, len(values) * part // 100)]


ENGINES = {"llama_cpp": LlamaCpp}
CHECKS = {"tokens": check_tokens, "withheld": check_withheld, "embeddings": check_embeddings, "errors": check_errors, "times": check_times,
          "queue": check_queue_and_aborts, "kill": check_kill}


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("engine", choices=ENGINES)
    cli.add_argument("--binary", required=True)
    cli.add_argument("--python", required=True)
    cli.add_argument("--only", choices=CHECKS)
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    clear_environment()
    tally, processes = Tally(args.verbose), Processes(args.engine)
    try:
        run = Run(args, tally, ENGINES[args.engine](args.python, processes), processes)
        for check in CHECKS.values() if args.only is None else [CHECKS[args.only]]:
            began = time.monotonic()
            check(run)
            print(f"{check.__name__}: {time.monotonic() - began:.1f} s", flush=True)
        run.proxy.send_signal(signal.SIGTERM)
        run.check("the proxy exits 0 on SIGTERM", run.proxy.wait(30) == 0)
    finally:
        processes.stop()
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
