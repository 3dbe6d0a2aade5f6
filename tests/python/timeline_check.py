#!/usr/bin/env python3
"""Compares timestamps on spans with the times of the upstream's writes.

    timeline_check.py --binary target/release/tokengauge --shared ../shared [--exchanges 1000] [--parallel 4] [--verbose]

A replay server records when each of its writes completed (`x-replay-id`, `/__timeline`). A thousand streams go through the proxy, a few at a
time, at several rates and split in several ways. Each stream has its own trace id. All processes read the same monotonic clock.

The checks hold regardless of scheduling delays:

* no timestamp is before the earliest possible start of its write, which is the completion of the previous write;
* the time to each event is within the bracket of the upstream's and the client's timestamps: at least from the request's arrival at the
 upstream to the previous write, at most from the client's send to its receive;
* the counts of chunks and gaps equal the writes.

The differences between timestamps and writes (p50, p90, p99, maximum) are printed without a check. The goal is a p99 within 1 ms on an idle
machine.

--shared names the folder with the OTLP receiver (tools/otlp_sink.py) and the replay server (corpus/). The last line is `N passed, N failed`;
exit status 0 if nothing failed.
"""
import argparse
import bisect
import concurrent.futures
import dataclasses
import itertools
import json
import pathlib
import socket
import sys
import tempfile
import time

from rig import WAIT_LIMIT, Rig, Tally, attributes, clear_environment

PATH = "/v1/chat/completions"
MODEL = "gpt-4o"
# The span attribute with the time from accept to each timestamp, by the name of the timestamp's span event.
TIME_TO = {
    "head": "tokengauge.time_to_headers",
    "byte": "tokengauge.time_to_first_byte",
    "event": "tokengauge.time_to_first_event",
    "token": "tokengauge.time_to_first_token",
    "visible": "tokengauge.time_to_first_visible_token",
}
# The maximum correction of the wall clock during the run before absolute times are meaningless. NTP slews by at most 500 µs a second; a step
# is larger.
LARGEST_DRIFT_NS = 50_000_000

PACES = ("0", "1", "3-12", "20")
CUTS = ("event", "whole", "bytes:97", "random:7:20-400")
FRAMINGS = ("chunked", "length", "close")
CODINGS = ("identity", "gzip")


def delta(content, finish=None):
    choice = {"index": 0, "delta": content, "finish_reason": finish}
    return json.dumps({"id": "c", "object": "chat.completion.chunk", "model": MODEL, "choices": [choice]})


@dataclasses.dataclass
class Case:
    """A stream: its events, and the events for which a span has a timestamp."""

    name: str
    events: list
    # Indexes of events.
    tokens: list
    visible: int

    def body(self):
        return b"".join(f"data: {event}\n\n".encode() for event in self.events)

    def ends(self):
        """Returns the end offset of each event in the body."""
        return list(itertools.accumulate(len(f"data: {event}\n\n".encode()) for event in self.events))

    def points(self):
        return {"event": 0, "token": self.tokens[0], "visible": self.visible, "last": self.tokens[-1]}


def case(name, reasoning, text):
    role = [delta({"role": "assistant", "content": ""})]
    thoughts = [delta({"reasoning_content": piece}) for piece in reasoning]
    words = [delta({"content": piece}) for piece in text]
    number = len(reasoning) + len(text)
    end = [delta({}, "stop"), "[DONE]"]
    return Case(name, role + thoughts + words + end, list(range(1, 1 + number)), 1 + len(reasoning))


CASES = (
    case("plain", [], [" word"] * 24),
    case("reasoning", [" thought"] * 8, [" word"] * 16),
    case("batched", [], [" one two three four"] * 10),
)


def write_cases(folder):
    """Returns a folder in the format of the replay server."""
    (folder / "index.json").write_text("[]")
    for one in CASES:
        place = folder / one.name
        place.mkdir()
        request = {"method": "POST", "path": PATH, "query": "", "headers": [], "body": one.name, "body_encoding": "text"}
        response = {"status": 200, "headers": [["content-type", "text/event-stream"]]}
        (place / "request.json").write_text(json.dumps(request))
        (place / "response.json").write_text(json.dumps(response))
        (place / "truth.json").write_text(json.dumps({"framing": "sse"}))
        (place / "body.bin").write_bytes(one.body())


@dataclasses.dataclass
class Played:
    """One request: its parameters, and the upstream's and the client's timestamps in nanoseconds of the monotonic clock."""

    number: int
    case: Case
    pace: str
    cut: str
    framing: str
    coding: str
    sent: int = 0
    received: list = dataclasses.field(default_factory=list)
    timeline: dict = dataclasses.field(default_factory=dict)

    def __str__(self):
        return f"{self.number} ({self.case.name}, pace {self.pace}, {self.cut}, {self.framing}, {self.coding})"

    def written(self, position):
        """Returns, for the write that completed the event: completion of the previous write, its own completion, and its end offset."""
        ends = list(itertools.accumulate(length for _, length in self.timeline["writes"]))
        if self.coding != "identity":
            index = 0 if self.cut == "whole" else position
        else:
            index = bisect.bisect_left(ends, self.case.ends()[position])
        before = self.timeline["writes"][index - 1][0] if index else self.timeline["t_request_ns"]
        end = ends[index] if self.coding != "identity" else self.case.ends()[position]
        return before, self.timeline["writes"][index][0], end

    def had(self, end):
        """Returns when the client had received `end` bytes of the body."""
        return next(at for at, length in self.received if length >= end)


def plan(number):
    """Returns every combination in turn. Compressed streams are split at events, because other splits hide the position of an event."""
    combinations = [
        (one, pace, cut, framing, coding)
        for coding, pace, framing, cut, one in itertools.product(CODINGS, PACES, FRAMINGS, CUTS, CASES)
        if coding == "identity" or cut in ("event", "whole")
    ]
    return [Played(n, *combinations[n % len(combinations)]) for n in range(number)]


def play(rig, played, headers):
    body = json.dumps({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    head = {"host": "a", "content-length": len(body), "x-case": played.case.name, "x-delay-ms": played.pace,
            "x-split": played.cut, "x-framing": played.framing, "x-encode": played.coding, "x-seed": played.number,
            "x-replay-id": played.number, "connection": "close", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    request = f"POST {PATH} HTTP/1.1\r\n{lines}\r\n".encode() + body
    with socket.create_connection(("127.0.0.1", rig.listen), WAIT_LIMIT) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        played.sent = time.monotonic_ns()
        client.sendall(request)
        raw, stamps = bytearray(), []
        while piece := client.recv(1 << 16):
            stamps.append((time.monotonic_ns(), len(raw := raw + piece)))
    start = raw.index(b"\r\n\r\n") + 4
    chunked = b"transfer-encoding: chunked" in bytes(raw[:start]).lower()
    pieces = chunks(raw, start) if chunked else [(start, len(raw))]
    played.received = [(at, bytes_of_body(pieces, length)) for at, length in stamps]
    # The client may finish before the server has recorded its last write.
    while "t_end_ns" not in played.timeline:
        played.timeline = rig.ask_backend(f"/__timeline?id={played.number}")


def chunks(raw, at):
    """Yields start and end of the data of each chunk."""
    found = []
    while True:
        line = raw.index(b"\r\n", at)
        size = int(raw[at:line], 16)
        if size == 0:
            return found
        found.append((line + 2, line + 2 + size))
        at = line + 4 + size


def bytes_of_body(pieces, length):
    return sum(max(0, min(end, length) - start) for start, end in pieces)


def wall_less_monotonic():
    """Returns the difference between the two clocks in nanoseconds, and its uncertainty."""
    best = None
    for _ in range(200):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if best is None or after - before < best[1]:
            best = (wall - (before + after) // 2, after - before)
    return best


class Judge:
    """Compares a span with the timeline."""

    def __init__(self, tally, start, end):
        self.tally, self.start, self.end = tally, start, end
        self.uncertain = start[1] + end[1] + abs(end[0] - start[0])
        self.differences = {name: [] for name in ("time to first token", "event", "token", "visible", "last", "mean gap")}
        self.gaps = self.chunks = 0

    def exchange(self, played, spans):
        client = next(span for span in spans if span["kind"] == "SPAN_KIND_CLIENT")
        reported = attributes(client)
        at = {event["name"].rsplit(".", 1)[-1]: int(event["timeUnixNano"]) - self.start[0] for event in client["events"]}
        request_at = played.timeline["t_request_ns"]
        times, writes = {}, {}
        for name, position in played.case.points().items():
            before, done, end = played.written(position)
            writes[name], had = done, played.had(end)
            self.hold(f"{name} not before it was written", played, at[name] >= before - self.uncertain, at[name] - before)
            self.differences[name].append(at[name] - done)
            key = TIME_TO.get(name)
            if key in reported:
                times[name] = round(reported[key] * 1e9)
                shortest, longest = before - request_at, had - played.sent
                self.hold(f"time to {name} in the bracket", played, shortest <= times[name] <= longest,
                          f"{shortest} <= {times[name]} <= {longest}")
        self.differences["time to first token"].append(times["token"] - (writes["token"] - request_at))
        gaps = len(played.case.tokens) - 1
        self.differences["mean gap"].append(((at["last"] - at["token"]) - (writes["last"] - writes["token"])) / gaps)
        self.gaps, self.chunks = self.gaps + gaps, self.chunks + gaps + 1

    def hold(self, name, played, held, note):
        self.tally.check(f"{played}: {name}", held, note)

    def report(self):
        print(f"{'µs from the write to the point':32} {'p50':>9} {'p90':>9} {'p99':>9} {'least':>9} {'greatest':>9}")
        for name, values in self.differences.items():
            values = sorted(value / 1e3 for value in values)
            quantile = lambda q: values[min(len(values) - 1, int(q * len(values)))]  # noqa: E731
            print(f"{name:32} {quantile(.5):9.1f} {quantile(.9):9.1f} {quantile(.99):9.1f} {values[0]:9.1f} {values[-1]:9.1f}")
        print(f"the two clocks: known to {self.start[1] + self.end[1]} ns, {self.end[0] - self.start[0]} ns apart after the run")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--shared", required=True)
    parser.add_argument("--exchanges", type=int, default=1000)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    clear_environment()
    tally = Tally(args.verbose)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="timeline-check-"))
    write_cases(folder)
    server = str(pathlib.Path(args.shared) / "corpus" / "replay_server.py")
    rig = Rig(args, tally, "timeline", [sys.executable, server, "--root", str(folder), "--port", "{port}", "--quiet"])
    try:
        exchanges = plan(args.exchanges)
        traced = [(played, rig.trace(played)) for played in exchanges]
        before = wall_less_monotonic()
        with concurrent.futures.ThreadPoolExecutor(args.parallel) as pool:
            for one in [pool.submit(play, rig, played, headers) for played, headers in traced]:
                one.result()
        after = wall_less_monotonic()
        spans = rig.await_telemetry()
        judge = Judge(tally, before, after)
        steady = abs(after[0] - before[0]) < LARGEST_DRIFT_NS
        tally.check("the wall clock was not changed during the run", steady, f"by {after[0] - before[0]} ns")
        for trace, played in rig.calls.items() if steady else ():
            tally.check(f"{played}: a pair of spans", len(spans[trace]) == 2, len(spans[trace]))
            judge.exchange(played, spans[trace])
        rig.end()
        for name, expected in (("tokengauge.inter_chunk_latency", judge.gaps), ("tokengauge.tokens_per_chunk", judge.chunks)):
            count, _ = rig.telemetry.distribution(name)
            tally.check(f"{name}: the count equals the writes", count == expected, f"{count}, not {expected}")
        judge.report()
    finally:
        rig.stop()
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
