#!/usr/bin/env python3
"""Measures the cost of tokengauge compared with a bare hyper relay: interleaved rounds on loopback, with telemetry on.

    overhead.py --lab target/dist/overhead --binary target/dist/tokengauge [--before BINARY] [--rounds 5] [--quick]
                [--only hold,idle,viewers,LOAD,…] [--out FILE.json]

Starts a scripted backend, an OTLP receiver, the relay with two threads, and tokengauge with default settings that exports metrics and all spans.
nginx, HAProxy and Envoy are measured in the same rounds if they are on PATH, without telemetry; `--peers ""` omits them. `--peers envoy,envoy-ai,envoy-ext-proc`
compares Envoy alone, with its AI filter, and with a copy of the traffic to `tokengauge ext-proc`.
Each round starts all programs again and begins with another proxy. Clients compare every byte of every response with the bytes that the backend
sent. Prints a table with the medians of all rounds, and the range of the ratios in single rounds. Uses only the standard library.

Exit status 1 if a budget was missed, a byte was wrong, or a request was not observed. `--quick` takes about a minute: one short round without
peers, where a figure fails only if it is more than four times its budget. Delays and small differences do not fail.
"""
import argparse
import json
import pathlib
import re
import selectors
import socket
import sys
import threading
import time

from overhead_loads import LOADS, PROMPT_DIFFERENCE_KB, PROMPTS, Values, added_us, cpu_us, per_unit_us, ratios
from overhead_programs import ENVOY_WITH, PEERS, SETUPS, Programs, installed_peers, is_installed, text

# A miss by this factor is not the noise of one short round, even if other programs use the machine.
FAR = 4
# The observer is late if other programs use the machine.
OBSERVER_PATIENCE_S = 10
VIEWERS = (0, 1, 20)
VIEWED = ["--clients", 200, "--script", "kind=stream,tokens=10,gap-us=200000"]


def total(metrics, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines() if re.match(name + r"(\{|\s)", line))


class Viewers:
    """Open event streams of the console, read by a thread."""

    def __init__(self, port, count):
        self.events, self.selector, self.is_open = [0] * count, selectors.DefaultSelector(), True
        for number in range(count):
            viewer = socket.create_connection(("127.0.0.1", port))
            viewer.sendall(b"GET /api/v1/live HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n")
            self.selector.register(viewer, selectors.EVENT_READ, number)
        self.thread = threading.Thread(target=self.read)

    def __enter__(self):
        self.thread.start()
        return self

    def read(self):
        while self.is_open:
            for key, _ in self.selector.select(0.2):
                data = key.fileobj.recv(1 << 20)
                self.events[key.data] += data.count(b"data:")
                if not data:
                    self.selector.unregister(key.fileobj)

    def __exit__(self, *_):
        self.is_open = False
        self.thread.join()
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()


class Bench:
    """Measures rounds, and keeps the reports by load and proxy."""

    def __init__(self, args):
        self.args, self.failures = args, []
        self.reports = {load: {} for load in args.loads}
        self.extra = {"hold": {}, "idle": [], "viewers": []}
        self.lost = []

    def round(self, number):
        for setup in SETUPS:
            loads = [load for load in self.args.loads if LOADS[load].setup == setup]
            if not loads:
                continue
            with Programs(setup, self.args) as programs:
                for load in loads:
                    self.load(programs, load, number)
                self.read_losses(programs)
        if "viewers" in self.args.parts:
            with Programs("http1", self.args) as programs:
                self.extra["viewers"].append({count: self.viewed(programs, count) for count in VIEWERS})

    def load(self, programs, load, number):
        names = list(programs.proxies) + (["direct"] if LOADS[load].timed else [])
        first = number % len(names)
        before, unobserved = self.finished(programs), self.unobserved(programs)
        for name in names[first:] + names[:first]:
            report = programs.measure("load", [*programs.address(name), *LOADS[load].arguments(self.args.quick)])
            self.reports[load].setdefault(name, []).append(report)
            self.check(f"{load}: {name}", report)
            if not report[LOADS[load].unit + "s"]:
                self.failures.append(f"{load}: {name}: nothing was measured")
            if name == "tokengauge":
                self.compare_counts(load, report["requests"], programs, before)
                report["unobserved"] = self.unobserved(programs) - unobserved

    def check(self, what, report):
        if report["mismatches"] or report["errors"]:
            self.failures.append(f"{what}: {report['mismatches']} responses differ, errors: {report['errors']}")

    def compare_counts(self, load, sent, programs, before):
        """Requests outside the window are observed too. Fewer observed requests than sent ones is a loss."""
        for _ in range(OBSERVER_PATIENCE_S * 4):
            time.sleep(0.25)
            observed = self.finished(programs) - before
            if observed >= sent:
                return
        self.failures.append(f"{load}: {observed:.0f} requests observed of {sent}")

    def finished(self, programs):
        return total(text(programs.admin, "/metrics"), "tokengauge_requests_finished_total")

    def unobserved(self, programs):
        """Returns the number of requests of which the observer missed bytes, because it was too slow."""
        return total(text(programs.admin, "/metrics"), "tokengauge_self_observer_unobserved_requests_total")

    def read_losses(self, programs):
        metrics = text(programs.admin, "/metrics")
        names = {re.split(r"[{ ]", line)[0] for line in metrics.splitlines() if line.startswith(("tokengauge_self_observer", "tokengauge_self_export"))}
        self.lost.append({name: total(metrics, name) for name in sorted(names)} | {"receiver": json.loads(text(programs.sink, "/"))})

    def hold(self):
        """Holds a few streams first, which fill what does not depend on their number, such as the tables of the tokenizer."""
        streams, seconds = (500, 2) if self.args.quick else (self.args.streams, 8)
        # Other loads leave memory that held streams could reuse, so these processes serve no other load.
        with Programs("http1", self.args) as programs:
            for name in programs.proxies:
                arguments = [*programs.address(name), "--backend", f"http://127.0.0.1:{programs.plain}", "--seconds", seconds]
                programs.measure("hold", [*arguments, "--streams", 50])
                report = programs.measure("hold", [*arguments, "--streams", streams])
                self.check(f"hold: {name}", report)
                self.extra["hold"][name] = report

    def idle(self):
        """Measures the memory of a process that has used both tokenizers."""
        with Programs("http1", self.args) as programs:
            for model in ("gpt-4o", "gpt-4"):
                arguments = ["--script", f"kind=json,tokens=20,model={model}", "--seconds", 0.3, "--warm-up", 0.1]
                report = programs.measure("load", [*programs.address("tokengauge"), *arguments])
                self.check("idle", report)
            self.extra["idle"].append(report["memory"])

    def viewed(self, programs, count):
        """Returns the CPU time of tokengauge in percent of a core, while `count` viewers watch 200 streams."""
        seconds = 2 if self.args.quick else 10
        with Viewers(programs.admin, count) as viewers:
            report = programs.measure("load", [*programs.address("tokengauge"), *VIEWED, "--seconds", seconds, "--warm-up", 2.3])
        self.check(f"viewers: {count}", report)
        if count and min(viewers.events) < seconds:
            self.failures.append(f"viewers: {min(viewers.events)} events in {seconds} s")
        return 100 * report["cpu"]["scheduled_s"] / report["seconds"]


class Table:
    """The figures of all loads, and the budgets that were missed."""

    def __init__(self, bench):
        self.bench, self.rows, self.misses = bench, [], []
        self.names = [name for name in ("relay", *PEERS, *ENVOY_WITH, "before", "tokengauge") if name == "tokengauge" or any(name in reports for reports in [*bench.reports.values(), bench.extra["hold"]])]

    def row(self, load, figure, rounds, budget=None, limit=None, is_steady=True):
        """`rounds` has the values of each proxy. `limit` takes the median of the relay and returns the largest value of tokengauge. In a quick
        run, only a steady figure can fail."""
        values = {name: Values.of(rounds[name]) for name in self.names if name in rounds}
        gauge, relay = values.get("tokengauge"), values.get("relay")
        cells = [f"{values[name].median:.1f}" if values.get(name) else "–" for name in self.names]
        if gauge and relay and (single := ratios(rounds["tokengauge"], rounds["relay"])):
            cells[-1] += f" ({gauge.median / relay.median:.2f} ×, {min(single):.2f}–{max(single):.2f})"
        met = "–"
        if limit and gauge:
            most = limit(relay.median if relay else None)
            met = "yes" if gauge.median <= most else "**no**"
            if gauge.median > (most if not self.bench.args.quick else most * FAR if is_steady else float("inf")):
                self.misses.append(f"{load}: {figure}: {gauge.median:.1f}, budget {budget} ({most:.1f})")
        self.rows.append((load, figure, *cells, budget or "–", met))

    def loads(self):
        for load, reports in self.bench.reports.items():
            kind = LOADS[load]
            for source, what in (("scheduled_s", "CPU"), ("ticks", "user + system time")):
                rounds = {name: [cpu_us(report, load, source) for report in reports[name]] for name in reports if name != "direct"}
                is_first = source == "scheduled_s"
                budget = f"{kind.budget} ×" if kind.budget and is_first else None
                self.row(kind.label, f"{what}, µs per {kind.unit}", rounds, budget, budget and (lambda relay, kind=kind: kind.budget * relay))
            beside = {name: [per_unit_us(report, load, report["beside_cpu"]["scheduled_s"]) for report in reports[name]]
                      for name in ENVOY_WITH if name in reports and reports[name][0]["beside_cpu"]}
            if beside:
                self.row(kind.label, f"of it tokengauge ext-proc, µs per {kind.unit}", beside)
            if missed := sum(report["unobserved"] for report in reports["tokengauge"]):
                self.row(kind.label, "requests observed in part", {"tokengauge": [missed]}, "0", lambda _: 0, is_steady=False)
            if kind.timed:
                self.timed(kind.label, reports)

    def timed(self, label, reports):
        def row(figure, what, percentile, budget, limit):
            pairs = {name: zip(reports[name], reports["direct"], strict=True) for name in reports if name != "direct"}
            self.row(label, figure, {name: [added_us(*pair, what, percentile) for pair in pairs[name]] for name in pairs}, budget, limit, is_steady=False)

        row("added delay p50, µs", "delay", "p50_us", "1.2 ×", lambda relay: max(1.2 * relay, 0))
        row("added delay p99, µs", "delay", "p99_us", "relay + 100", lambda relay: relay + 100)
        row("added time to first token p50, µs", "first_chunk", "p50_us", "1.3 ×", lambda relay: max(1.3 * relay, 0))

    def prompts(self):
        if not all(load in self.bench.reports for load in PROMPTS):
            return
        short, long = (self.bench.reports[load] for load in PROMPTS)
        slopes = {name: [(cpu_us(b, PROMPTS[1]) - cpu_us(a, PROMPTS[0])) / PROMPT_DIFFERENCE_KB for a, b in zip(short[name], long[name])] for name in long}
        beyond = {name: [own - relay for own, relay in zip(slopes[name], slopes["relay"])] for name in slopes if name != "relay"}
        self.row("longer prompt", "CPU beyond the relay, µs per KB", beyond, "0.8", lambda _: 0.8, is_steady=False)

    def extra(self):
        extra = self.bench.extra
        held = extra["hold"]
        if held:
            label = f"{held['relay']['streams']:,} streams held"
            for memory in ("rss", "pss"):
                kib = {name: [(report["held"][memory] - report["before"][memory]) / report["streams"] / 1024] for name, report in held.items()}
                self.row(label, f"KiB {memory.upper()} per stream", kib, "24" if memory == "rss" else None, (lambda _: 24) if memory == "rss" else None)
            gone = {name: [report["noticed_ms"]] for name, report in held.items()}
            self.row("all clients disconnect", "ms until the backend has noticed", gone, "1.5 ×", lambda relay: 1.5 * relay)
        if extra["idle"]:
            self.row("idle, both tokenizers", "MB RSS", {"tokengauge": [memory["rss"] / 1e6 for memory in extra["idle"]]}, "20", lambda _: 20)
        if extra["viewers"]:
            for count in VIEWERS[1:]:
                more = [round[count] - round[0] for round in extra["viewers"]]
                self.row("200 streams × 5 tokens/s", f"more % of a core, {count} viewer{'s'[:count - 1]} of the console", {"tokengauge": more}, "2", lambda _: 2)

    def print(self):
        header = ("load", "figure", *self.names, "budget", "met")
        for line in (header, ["---"] * len(header), *self.rows):
            print("| " + " | ".join(line) + " |")


def arguments():
    parts = ["hold", "idle", "viewers"]
    cli = argparse.ArgumentParser()
    cli.add_argument("--lab", required=True, type=pathlib.Path)
    cli.add_argument("--binary", required=True, type=pathlib.Path)
    cli.add_argument("--before", type=pathlib.Path)
    cli.add_argument("--peers")
    cli.add_argument("--rounds", type=int, default=5)
    cli.add_argument("--streams", type=int, default=5000)
    cli.add_argument("--sampler", default="parentbased_always_on")
    cli.add_argument("--quick", action="store_true")
    cli.add_argument("--only")
    cli.add_argument("--out", type=pathlib.Path)
    args = cli.parse_args()
    only = args.only.split(",") if args.only else [*parts, *(load for load in LOADS if LOADS[load].is_quick or not args.quick)]
    if unknown := set(only) - set(parts) - set(LOADS):
        cli.error(f"--only: unknown {', '.join(sorted(unknown))}; known: {', '.join([*parts, *LOADS])}")
    if args.peers is None:
        args.peers = [] if args.quick else installed_peers()
    else:
        args.peers = [name for name in args.peers.split(",") if name]
    if unknown := set(args.peers) - {*PEERS, *ENVOY_WITH}:
        cli.error(f"--peers: unknown {', '.join(sorted(unknown))}; known: {', '.join([*PEERS, *ENVOY_WITH])}")
    if missing := [name for name in args.peers if not is_installed(name)]:
        cli.error(f"--peers: not installed: {', '.join(missing)}")
    args.parts, args.loads = [part for part in parts if part in only], [load for load in LOADS if load in only]
    args.rounds = 1 if args.quick else args.rounds
    args.lab, args.binary, args.before = (path and path.resolve() for path in (args.lab, args.binary, args.before))
    return args


def main():
    args = arguments()
    bench = Bench(args)
    if "hold" in args.parts:
        bench.hold()
    if "idle" in args.parts:
        bench.idle()
    for number in range(args.rounds):
        # The figures of two processes of one program can differ by more than 10 %, so each round has new processes.
        bench.round(number)
        print(f"finished round {number + 1} of {args.rounds}", file=sys.stderr)
    table = Table(bench)
    table.loads()
    table.prompts()
    table.extra()
    table.print()
    print(f"\nlost: {bench.lost}")
    if args.out:
        args.out.write_text(json.dumps({"loads": bench.reports, "lost": bench.lost, **bench.extra}, indent=1))
    for failure in bench.failures:
        print(f"FAILED {failure}")
    for miss in table.misses:
        print(f"MISSED {miss}")
    sys.exit(1 if bench.failures or table.misses else 0)


if __name__ == "__main__":
    main()
