#!/usr/bin/env python3
"""The vendors' own clients through tokengauge: each must see what it sees without it, and its spans must tell the truth.

    vendor_check.py --binary target/release/tokengauge --shared ../shared [--only NAME] [--verbose]

Every recording of an API that a client speaks is asked for twice, straight from a replay of the recordings and through
the proxy, cut at random and every other one compressed, and the objects that the client makes of the answers are
compared. The spans are compared with what is known of each recording. A recording that the client cannot read even
straight is left out and named. One stream of each client is paced: its first object must be there before the backend
wrote the last. Then boto3 signs its requests for an upstream that verifies the signatures.

--shared names the folder with the OTLP receiver, the recordings and what judges spans (tools/replay_check.py). --only
takes the clients whose names contain it; `signing` is the last part. Needs the packages of requirements.txt. The last
line is `N passed, N failed`; exit 0 when nothing failed.
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
from rig import Rig, Tally, first_difference, forget_the_machine, of_kind, replay_backend
from vendors import VENDORS

# What of an exception its catcher can see, where it has it.
OF_ERRORS = ("status_code", "code", "status", "type", "param", "message", "body", "error", "details", "response")
# How answers are cut: pieces of 1 to 800 bytes, the same each time.
CUT = "random:5:1-800"
# Pauses of the paced stream, and how many events one should have so that first and last are well apart.
PACE_MS, ENOUGH_EVENTS = 40, 8


@dataclasses.dataclass
class Call:
    """One call through the proxy."""

    name: str
    recording: Recording


class Raised(list):
    """The last of what a caller saw, where the call ended with an exception."""


async def outcome(call):
    """What the caller of `call` sees: objects, maybe an exception; and when it saw the first."""
    seen, first = [], None
    try:
        result = call()
        if inspect.isawaitable(result):
            result = await result
        async for item in items(result):
            first = first or time.monotonic_ns()
            seen.append(plain(item))
    except Exception as error:  # Whatever a client raises is what its caller sees.
        parts = {name: plain(getattr(error, name)) for name in OF_ERRORS if hasattr(error, name)}
        seen.append(Raised([type(error).__name__, parts]))
    return seen, first


async def items(result):
    """An answer as a sequence: its objects if it is a stream, else itself."""
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
    """An object as data that can be compared, without the date of the answer."""
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
        # An asynchronous client gets compressed what its sister gets plain.
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
        print(f"{vendor.name} cannot read even straight: {', '.join(left_out)}")
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
    """The client has the first object of a slow stream before the backend writes the last."""
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
    rig.tally.check(f"{call.name}: the first object is there before the last is written", first and first < last,
                    f"{((first or 0) - last) / 1e6:.1f} ms late")


# --- what was told ---------------------------------------------------------------------------------------------------

def check_spans(rig, judge):
    spans = rig.await_telemetry()
    for trace, call in rig.calls.items():
        for what, held, note in judge(call.recording.truth, spans.get(trace, []), None):
            rig.tally.check(f"{call.name}: {what}", held, note)
        for server, client in zip(of_kind(spans.get(trace, []), "SERVER"), of_kind(spans.get(trace, []), "CLIENT")):
            for what, held in more_of(call.recording, server, client):
                rig.tally.check(f"{call.name}: {what}", held, client)
    told = [call.recording for call in rig.calls.values()]
    for what, wanted, attribute in (
        ("every call is counted once", len(told), {}),
        ("failed calls are counted as such", sum(one.failed and not one.cut for one in told), {"tokengauge.outcome": "error"}),
        ("cut calls are counted as such", sum(one.cut for one in told), {"tokengauge.outcome": "truncated"}),
    ):
        counted = rig.telemetry.total("tokengauge.requests.finished", attribute)
        rig.tally.check(f"vendors: {what}", counted == wanted, f"{counted}, not {wanted}")


def more_of(recording, server, client):
    """What a span must say besides: that all of the answer was seen, and where the number of tokens comes from."""
    truth, usage = recording.truth, recording.truth.get("usage") or {}
    is_ours = "tokengauge.own_response" in server or server.get("tokengauge.fault") == "proxy"
    yield "nothing is the proxy's own doing", not is_ours
    if recording.failed or "gen_ai.operation.name" not in client:
        return
    yield "all of it was seen", client.get("tokengauge.complete") == "true"
    yield "it is a stream or is none", ("gen_ai.request.stream" in client) == (truth["framing"] in STREAMS)
    source = client.get("tokengauge.token.source")
    if not usage.get("output_tokens"):
        if truth.get("output_text"):
            yield "the tokens are counted here", source in ("counted", "estimated")
    elif has_reasoning(truth) and usage.get("reasoning_tokens") is None:
        yield "tokens that were reported without what reasoning took are estimated", source == "estimated"
    else:
        yield "the tokens are the reported ones", source == "reported"


def has_reasoning(truth):
    """Cohere's plan for its tools is reasoning too."""
    return bool(truth.get("reasoning_text")) or "tool_plan_delta" in truth["oddities"]


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
    forget_the_machine()
    # Clients warn of models that are old and of fields that are new.
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
