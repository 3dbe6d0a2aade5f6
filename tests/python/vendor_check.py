#!/usr/bin/env python3
"""Runs the providers' own clients with and without tokengauge. Results must be equal, and the spans must be correct.

    vendor_check.py --binary target/release/tokengauge --shared ../shared [--only NAME] [--verbose]

Every recording of a client's APIs is requested twice, directly from a replay server and through the proxy. Responses are split at random, and
every other one is compressed. The client's result objects are compared, and the spans are compared with the recording's truth. A recording
that the client cannot read even without the proxy is skipped and listed. One stream of each client is paced: its first object must arrive
before the backend writes the last one. At the end boto3 signs requests for an upstream that verifies signatures.

--shared names the folder with the OTLP receiver, the recordings and the span checks (tools/replay_check.py). --only selects the clients whose
names contain the text; `signing` selects the last part. Needs the packages of requirements.txt. The last line is `N passed, N failed`; exit
status 0 if nothing failed.
"""
import argparse
import asyncio
import dataclasses
import importlib
import inspect
import pathlib
import re
import sys
import time
import warnings

import botocore.eventstream
import botocore.response
import pydantic

import signing
from recordings import STREAMS, Recording, recordings
from rig import Rig, Tally, first_difference, clear_environment, of_kind, replay_backend
from vendors import VENDORS

# Attributes of an exception that a caller can read, if present.
OF_ERRORS = ("status_code", "code", "status", "type", "param", "message", "body", "error", "details", "response")
# How responses are split: pieces of 1 to 800 bytes, the same each time.
CUT = "random:5:1-800"
# Pauses of the paced stream, and the minimum of events that separates first and last clearly.
PACE_MS, ENOUGH_EVENTS = 40, 8


@dataclasses.dataclass
class Call:
    """One call through the proxy."""

    name: str
    recording: Recording


class Raised(list):
    """The last item of a call that ended with an exception."""


async def outcome(call):
    """Returns what the caller observes: the result objects, an exception if there is one, and the time of the first object."""
    seen, first = [], None
    try:
        result = call()
        if inspect.isawaitable(result):
            result = await result
        async for item in items(result):
            first = first or time.monotonic_ns()
            seen.append(plain(item))
    except Exception as error:  # The caller observes any error of the client.
        parts = {name: plain(getattr(error, name)) for name in OF_ERRORS if hasattr(error, name)}
        seen.append(Raised([type(error).__name__, parts]))
    return seen, first


async def items(result):
    """Yields a response as a sequence: the objects of a stream, or the response itself."""
    if isinstance(result, dict):  # boto3
        for key in [key for key, value in result.items() if isinstance(value, botocore.eventstream.EventStream)]:
            for event in result.pop(key):
                yield event
        yield result
    elif hasattr(result, "__aiter__"):
        async for item in result:
            yield item
    elif isinstance(result, (pydantic.BaseModel, list)) or not hasattr(result, "__iter__"):
        yield result
    else:
        for item in result:
            yield item


def plain(value):
    """Returns an object as comparable data, without the date of the response."""
    if isinstance(value, pydantic.BaseModel):
        return [type(value).__name__, plain(value.model_dump(warnings=False))]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items() if str(key).lower() != "date"}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, botocore.response.StreamingBody) or hasattr(value, "iter_bytes"):
        return value.read()
    if value is None or isinstance(value, (str, bytes, int, float, bool)):
        return value
    return re.sub(" at 0x[0-9a-f]+", "", repr(value))


# --- one client ------------------------------------------------------------------------------------------------------

async def check_vendor(rig, vendor, found):
    direct, through = (vendor.client(f"http://127.0.0.1:{port}") for port in (rig.backend, rig.listen))
    offered = [one for one in found if one.api in vendor.calls and vendor.fits(one)]
    accepted, left_out = [], []
    for number, recording in enumerate(offered):
        headers = {"x-case": recording.name, "x-split": CUT}
        # The asynchronous client gets compressed the recordings that the synchronous client gets uncompressed.
        if vendor.decodes and (number + ("async" in vendor.name)) % 2:
            headers["x-encode"] = vendor.decodes
        make = vendor.calls[recording.api]
        straight, _ = await outcome(lambda: make(direct, recording, headers))
        if not recording.failed and straight and isinstance(straight[-1], Raised):
            left_out.append(f"{recording.name} ({straight[-1][0]})")
            continue
        accepted.append(recording)
        call = Call(f"{vendor.name}: {recording.name}{' (compressed)' if 'x-encode' in headers else ''}", recording)
        proxied, _ = await outcome(lambda: make(through, recording, {**headers, **rig.trace(call)}))
        rig.tally.check(f"{call.name}: same objects as without the proxy", straight == proxied,
                        first_difference(straight, proxied))
    if left_out:
        print(f"{vendor.name} cannot read even without the proxy: {', '.join(left_out)}")
    missing = {kind for one in offered for kind in kinds(one)} - {kind for one in accepted for kind in kinds(one)}
    rig.tally.check(f"{vendor.name}: reads recordings of every kind", not missing, missing)
    await check_pace(rig, vendor, through, accepted)


def kinds(recording):
    truth = recording.truth
    yield "failed" if recording.failed else "stream" if truth["framing"] in STREAMS else "whole"
    if truth.get("tool_calls"):
        yield "tools"
    if truth.get("reasoning_text"):
        yield "reasoning"


async def check_pace(rig, vendor, client, accepted):
    """Checks that the client has the first object of a slow stream before the backend writes the last one."""
    streams = [one for one in accepted if not one.failed and one.truth["framing"] in STREAMS]

    def length(recording):
        events = recording.truth["n_output_events"] or 0
        return events < ENOUGH_EVENTS, events, recording.name

    chosen = min(streams, key=length)
    call = Call(f"{vendor.name}: paced {chosen.name}", chosen)
    headers = {"x-case": chosen.name, "x-split": "event", "x-delay-ms": str(PACE_MS),
               "x-replay-id": vendor.name.replace(" ", "-")}
    if vendor.decodes:
        headers["x-encode"] = vendor.decodes
    _, first = await outcome(lambda: vendor.calls[chosen.api](client, chosen, {**headers, **rig.trace(call)}))
    last = rig.ask_backend(f"/__timeline?id={headers['x-replay-id']}")["writes"][-1][0]
    rig.tally.check(f"{call.name}: the first object arrives before the last one is written", first and first < last,
                    f"{((first or 0) - last) / 1e6:.1f} ms late")


# --- telemetry -------------------------------------------------------------------------------------------------------

def check_spans(rig, judge):
    spans = rig.await_telemetry()
    for trace, call in rig.calls.items():
        for what, held, note in judge(call.recording.truth, spans.get(trace, []), None):
            rig.tally.check(f"{call.name}: {what}", held, note)
        for server, client in zip(of_kind(spans.get(trace, []), "SERVER"), of_kind(spans.get(trace, []), "CLIENT")):
            for what, held in more_of(call.recording, server, client):
                rig.tally.check(f"{call.name}: {what}", held, client)
    replayed = [call.recording for call in rig.calls.values()]
    for what, wanted, attribute in (
        ("every call is counted once", len(replayed), {}),
        ("failed calls are counted as errors", sum(one.failed and not one.cut for one in replayed), {"tokengauge.outcome": "error"}),
        ("cut calls are counted as truncated", sum(one.cut for one in replayed), {"tokengauge.outcome": "truncated"}),
    ):
        counted = rig.telemetry.total("tokengauge.requests.finished", attribute)
        rig.tally.check(f"vendors: {what}", counted == wanted, f"{counted}, not {wanted}")


def more_of(recording, server, client):
    """Yields more checks of a span: the response was observed completely, and the source of the token counts."""
    truth, usage = recording.truth, recording.truth.get("usage") or {}
    is_ours = "tokengauge.local_reply" in server or server.get("tokengauge.error_source") == "proxy"
    yield "no error comes from the proxy", not is_ours
    if recording.failed or "gen_ai.operation.name" not in client:
        return
    yield "the response was observed completely", client.get("tokengauge.complete") == "true"
    yield "the stream attribute is correct", ("gen_ai.request.stream" in client) == (truth["framing"] in STREAMS)
    source = client.get("tokengauge.token.source")
    if not usage.get("output_tokens") or truth.get("contradictory"):
        if truth.get("output_text"):
            yield "the tokens are counted by the proxy", source in ("counted", "estimated")
    else:
        yield "the tokens are reported by the provider", source == "reported"


async def check_vendors(args, tally):
    found = recordings(args.shared)
    rig = Rig(args, tally, "vendors", replay_backend(args.shared))
    try:
        for vendor in VENDORS:
            if args.only in vendor.name:
                began = time.monotonic()
                await check_vendor(rig, vendor, found)
                print(f"{vendor.name}: {time.monotonic() - began:.0f} s", flush=True)
        sys.path.insert(0, str(pathlib.Path(args.shared) / "tools"))
        check_spans(rig, importlib.import_module("replay_check").judge)
        rig.end()
    finally:
        rig.stop()


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--shared", required=True)
    cli.add_argument("--only", default="")
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    clear_environment()
    # Clients warn about old models and new fields.
    warnings.simplefilter("ignore")
    tally = Tally(args.verbose)
    if any(args.only in vendor.name for vendor in VENDORS):
        asyncio.run(check_vendors(args, tally))
    if args.only in "signing":
        signing.check(args, tally)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
