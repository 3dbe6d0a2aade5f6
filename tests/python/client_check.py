#!/usr/bin/env python3
"""Runs the official `openai` client with and without tokengauge. Results must be equal, and every call must have telemetry.

    client_check.py --binary target/release/tokengauge --shared ../shared [--only simulate|replay] [--verbose]

Each call is made twice, directly to the backend and through the proxy, and the client's result objects are compared. Each call through the
proxy has its own trace id. Afterwards its spans and metrics must be in the exports to an OTLP receiver. There are two backends:
`tokengauge simulate` with export over gRPC, and a replay of recorded responses with export over HTTP.

--shared names the folder with the OTLP receiver (tools/otlp_sink.py) and the recordings (corpus/). Needs the packages of
requirements.txt. The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import asyncio
import dataclasses
import json
import pathlib
import sys
import time

import httpx
import openai

from rig import WAIT_LIMIT, Rig, Tally, first_difference, clear_environment, of_kind, replay_backend, wait_until

# The client's timeout, and the delay of the backend. The large difference makes the order of events certain.
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


@dataclasses.dataclass
class Call:
    """One call through the proxy, and its expected telemetry."""

    name: str
    operation: str = "chat"
    failed: bool = False
    # Whether the client aborted: before the end, and in the middle of the stream.
    left: bool = False
    cut: bool = False
    output_tokens: int | None = None


class OpenAiRig(Rig):
    """A rig with a direct client and a proxied client."""

    def __init__(self, args, tally, name, backend, protocol):
        super().__init__(args, tally, name, backend, protocol)
        self.direct, self.through = self.client(self.backend), self.client(self.listen)

    def client(self, port, kind=openai.OpenAI):
        address = f"http://127.0.0.1:{port}/v1"
        return kind(base_url=address, api_key="not-a-key", max_retries=0, timeout=WAIT_LIMIT)

    def check(self, call, what, held, note=""):
        self.tally.check(f"{self.name}: {call.name}: {what}", held, note)

    def same(self, call, act):
        """Makes one call both ways with `act(client, headers)`, compares the results and returns the result."""
        direct = outcome(act, self.direct, {})
        through = outcome(act, self.through, self.trace(call))
        self.check(call, "same objects as without the proxy", direct == through, first_difference(direct, through))
        return through

    def check_telemetry(self):
        """Checks that every call has two correct spans, and is counted once with its outcome."""
        spans = self.await_telemetry()
        for trace, call in self.calls.items():
            kinds = sorted(span.get("kind", "").removeprefix("SPAN_KIND_") for span in spans.get(trace, []))
            self.check(call, "one SERVER and one CLIENT span", kinds == ["CLIENT", "SERVER"], kinds)
            for found in of_kind(spans.get(trace, []), "CLIENT"):
                self.check_client_span(call, found)
        calls = self.calls.values()
        for what, wanted, attribute in (
            ("every call is counted once", len(calls), {}),
            ("aborted calls are counted as cancelled", sum(call.left for call in calls), {"tokengauge.outcome": "cancelled"}),
            ("failed calls are counted as errors", sum(call.failed for call in calls), {"tokengauge.outcome": "error"}),
        ):
            counted = self.telemetry.total("tokengauge.requests.finished", attribute)
            self.tally.check(f"{self.name}: {what}", counted == wanted, f"{counted}, not {wanted}")

    def check_client_span(self, call, found):
        self.check(call, "the CLIENT span names the operation", found.get("gen_ai.operation.name") == call.operation, found)
        failed = call.failed or call.left
        self.check(call, f"the CLIENT span has {'an' if failed else 'no'} error.type", bool(found.get("error.type")) == failed, found)
        if call.cut:
            self.check(call, "the CLIENT span is marked as cut", found.get("tokengauge.complete") == "cut", found)
            self.check(call, "output tokens are counted", found.get("tokengauge.output_tokens.normalized", 0) > 0, found)
        if call.output_tokens is not None:
            seen = [found.get(name) for name in ("gen_ai.usage.output_tokens", "tokengauge.output_tokens.normalized")]
            self.check(call, "reported and counted tokens equal those of the response", seen == [call.output_tokens] * 2,
                       f"{seen}, not {call.output_tokens}")


def outcome(act, client, headers):
    """Returns what the caller observes: the result objects, and the error if there is one."""
    seen = []
    try:
        for item in act(client, headers):
            seen.append(item if isinstance(item, (dict, list, str)) else item.model_dump(warnings=False))
    except openai.APIStatusError as error:
        seen.append([type(error).__name__, error.status_code, error.body])
    except openai.APIError as error:
        seen.append([type(error).__name__, error.body])
    except (httpx.HTTPError, json.JSONDecodeError) as error:
        seen.append([type(error).__name__])
    return seen


def each(answer):
    """Returns a response as a sequence: the chunks of a stream, or the response itself."""
    return answer if isinstance(answer, openai.Stream) else [answer]


# --- simulated backend -----------------------------------------------------------------------------------------------

# Settings of the simulated backend for each call. Equal requests get equal bytes.
SHORT = {"x-simulate-gap-us": "1000", "x-simulate-tokens": "40"}
# A stream that is longer than the check.
ENDLESS = {"x-simulate-gap-us": "20000", "x-simulate-tokens": "100000"}
HUNG = {"x-simulate-ttft-us": f"{BACKEND_SILENCE * 1e6:.0f}"}
FAILING = {"x-simulate-status": "503"}
WITH_USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def check_simulate(args, tally):
    rig = OpenAiRig(args, tally, "simulate", [args.binary, "simulate", "--listen", "127.0.0.1:{port}"], "grpc")
    try:
        simulate_calls(rig)
        check_many_at_once(rig)
        leave_early(rig, chat(ENDLESS, stream=True))
        time_out(rig, chat(HUNG, stream=True))
        rig.check_telemetry()
        rig.end()
    finally:
        rig.stop()


def chat(shaping, **more):
    def act(client, headers):
        arguments = {"model": "sim-typical", "messages": HELLO, **more}
        return each(client.chat.completions.create(**arguments, extra_headers={**shaping, **headers}))
    return act


def simulate_calls(rig):
    call = Call("streaming")
    chunks = rig.same(call, chat(SHORT, **WITH_USAGE))
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    call.output_tokens = (chunks[-1].get("usage") or {}).get("completion_tokens")
    rig.check(call, "text and usage arrived", text and call.output_tokens, chunks[-1:])
    rig.same(Call("streaming without usage"), chat(SHORT, stream=True))
    rig.same(Call("whole answer"), chat(SHORT))

    call = Call("streaming tools")
    chunks = rig.same(call, chat(SHORT, **WITH_USAGE, tools=TOOLS, tool_choice="required"))
    pieces = [tool["function"]["arguments"] or "" for chunk in chunks for choice in chunk["choices"]
              for tool in choice["delta"].get("tool_calls") or []]
    rig.check(call, "the arguments are JSON", "query" in json.loads("".join(pieces) or "{}"), pieces)
    rig.same(Call("whole tools"), chat(SHORT, tools=TOOLS, tool_choice="required"))

    call = Call("streaming n = 3")
    chunks = rig.same(call, chat(SHORT, **WITH_USAGE, n=3))
    choices = {choice["index"] for chunk in chunks for choice in chunk["choices"]}
    call.output_tokens = (chunks[-1].get("usage") or {}).get("completion_tokens")
    rig.check(call, "three choices arrived", choices == {0, 1, 2}, choices)
    rig.same(Call("whole n = 3"), chat(SHORT, n=3))

    rig.same(Call("failing backend", failed=True), chat(FAILING, stream=True))
    rig.same(Call("text completion", "text_completion"), lambda client, headers: each(client.completions.create(
        model="sim-typical", prompt="Once upon a time", stream=True, extra_headers={**SHORT, **headers})))
    rig.same(Call("embeddings", "embeddings"), lambda client, headers: each(client.embeddings.create(
        model="sim-typical", input=["one", "two"], extra_headers=headers)))


def check_many_at_once(rig):
    """Makes twenty concurrent streams with the asynchronous client. Each must get its own response, as without the proxy."""
    async def ask(client, number, headers):
        messages = [{"role": "user", "content": f"Question {number}"}]
        stream = await client.chat.completions.create(
            model="sim-typical", messages=messages, stream=True, extra_headers={**SHORT, **headers})
        return [chunk.model_dump() async for chunk in stream]

    async def ask_all(port, headers):
        async with rig.client(port, openai.AsyncOpenAI) as client:
            return await asyncio.gather(*(ask(client, number, headers(number)) for number in range(20)))

    direct = asyncio.run(ask_all(rig.backend, lambda number: {}))
    through = asyncio.run(ask_all(rig.listen, lambda number: rig.trace(Call(f"stream {number} of many"))))
    rig.tally.check("simulate: twenty streams at once: same objects as without the proxy", direct == through,
                    first_difference(direct, through))


# --- client aborts ---------------------------------------------------------------------------------------------------

def leave_early(rig, act):
    call = Call("early close", left=True, cut=True)

    def first_chunks(client, headers):
        with act(client, headers) as stream:
            for _, chunk in zip(range(5), stream):
                yield chunk

    chunks = outcome(first_chunks, rig.through, rig.trace(call))
    rig.check(call, "chunks arrived before the client aborted", len(chunks) == 5 and all("choices" in chunk for chunk in chunks), chunks)


def time_out(rig, act):
    call = Call("time-out", left=True)

    def impatient(client, headers):
        return act(client.with_options(timeout=CLIENT_TIMEOUT), headers)

    seen = rig.same(call, impatient)
    rig.check(call, "the client raises a timeout error", seen[-1][0] == "APITimeoutError", seen)


# --- recorded responses ----------------------------------------------------------------------------------------------

OPERATIONS = {"openai.chat": "chat", "openai.completions": "text_completion", "openai.embeddings": "embeddings"}


def check_replay(args, tally):
    corpus = pathlib.Path(args.shared) / "corpus"
    rig = OpenAiRig(args, tally, "replay", replay_backend(args.shared), "http/protobuf")
    try:
        name, body = replay_calls(rig, corpus / "dev")
        # Events arrive one at a time, so that the client aborts in the middle of the stream, and the backend notices at its next write.
        leave_early(rig, recorded("openai.chat", body, {"x-case": name, "x-split": "event", "x-delay-ms": "50"}))
        tally.check("replay: early close: the backend's connection is closed too", wait_until(lambda: rig.ask_backend("/__stats")["aborted"] >= 1), rig.ask_backend("/__stats"))
        time_out(rig, recorded("openai.chat", body, {"x-case": name, "x-ttfb-ms": f"{BACKEND_SILENCE * 1000:.0f}"}))
        rig.check_telemetry()
        rig.end()
    finally:
        rig.stop()


def replay_calls(rig, corpus):
    """Requests every recording of the three APIs. Returns the stream with the most events."""
    longest, most = None, 0
    for folder in sorted(path for path in corpus.iterdir() if path.is_dir()):
        truth = json.loads((folder / "truth.json").read_text())
        if truth["api"] not in OPERATIONS:
            continue
        body = json.loads(json.loads((folder / "request.json").read_text())["body"])
        call = Call(folder.name, OPERATIONS[truth["api"]], failed=truth["status"] >= 400 or bool(truth.get("error")))
        rig.same(call, recorded(truth["api"], body, {"x-case": folder.name, "x-split": "random:5"}))
        if truth["api"] == "openai.chat" and truth["framing"] == "sse" and (truth.get("n_output_events") or 0) > most:
            longest, most = (folder.name, body), truth["n_output_events"]
    return longest


def recorded(api, body, shaping):
    """Returns a function that makes the recorded request: required fields as named arguments, other fields in the extra body."""
    def act(client, headers):
        method, arguments = {
            "openai.chat": (client.chat.completions.create, {"messages": [], "stream": bool(body.get("stream"))}),
            "openai.completions": (client.completions.create, {"prompt": "", "stream": bool(body.get("stream"))}),
            "openai.embeddings": (client.embeddings.create, {"input": ""}),
        }[api]
        return each(method(model=body.get("model", "none"), **arguments, extra_body=body, extra_headers={**shaping, **headers}))
    return act


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--shared", required=True)
    cli.add_argument("--only", choices=["simulate", "replay"])
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    clear_environment()
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
