#!/usr/bin/env python3
"""Measures the cost of tokengauge compared with a bare hyper relay: alternating rounds on loopback, with telemetry on.

    overhead.py --loadlab PATH/loadlab --binary target/release/tokengauge --sink target/release/examples/otlp_sink
                [--before BINARY] [--peers FOLDER] [--rounds 5] [--only hold,paced,many,most,light,saturated,json] [--out FILE.json]

Starts a simulated backend, the relay with two threads, an OTLP receiver, and tokengauge that exports to it. loadlab drives direct, relay and
tokengauge in turn. Each round starts all programs again and begins with another proxy. Prints a table of medians, the range of
the ratios in single rounds, the budgets, and whether every request was observed. Uses only the standard library. Exit status 1 if a budget is
exceeded or a request was not observed.

--before measures an earlier build in the same rounds.

FOLDER contains nginx.conf, haproxy.cfg and envoy.yaml, which forward to 127.0.0.1:18080. Those of the three programs that are on PATH are
measured in the same rounds, without telemetry. They have no budgets.
"""
import argparse
import json
import operator
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

LOADS = {
    "paced": ["-c", "200", "-r", "1000", "--tokens", "100", "--gap-us", "20000"],
    "many": ["-c", "1000", "-r", "2000", "--tokens", "40", "--gap-us", "50000"],
    "most": ["-c", "5000", "-r", "5000", "--tokens", "20", "--gap-us", "250000"],
    "light": ["-c", "20", "-r", "100", "--tokens", "100", "--gap-us", "20000"],
    "saturated": ["-c", "64", "-d", "3", "--tokens", "200", "--gap-us", "0"],
    "json": ["-c", "32", "-d", "3", "--no-stream", "--tokens", "100"],
}
# The configuration, the port that it listens on, and the arguments of each peer. All have two worker threads or processes.
PEERS = {
    "nginx": ("nginx.conf", 18101, ["-p", "{folder}", "-c", "{config}", "-g", "daemon off;"]),
    "haproxy": ("haproxy.cfg", 18102, ["-db", "-f", "{config}"]),
    "envoy": ("envoy.yaml", 18103, ["--concurrency", "2", "--disable-hot-restart", "-l", "error", "-c", "{config}"]),
}
BACKEND_PORT = 18080


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_port(port):
    for _ in range(200):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"no server listens on {port}")


def text(port, path):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10).read().decode()


def total(metrics, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines() if re.match(name + r"(\{|\s)", line))


class Bench:
    """The running programs. `proxies` has the port and the process of each proxy by its name, in the order of the table."""

    def __init__(self, args):
        self.args, self.started, self.proxies = args, [], {}
        self.folder = tempfile.TemporaryDirectory(prefix="overhead-")
        self.backend, self.sink, self.admin = (free_port() for _ in range(3))
        self.spawn([args.loadlab, "upstream", "--listen", f"127.0.0.1:{self.backend}"])
        self.spawn([args.sink, f"127.0.0.1:{self.sink}"])
        port = free_port()
        self.proxy("relay", port, [args.loadlab, "relay", "--mode", "hyper", "--threads", "2", "--listen", f"127.0.0.1:{port}", "--to", f"127.0.0.1:{self.backend}"])
        for name in filter(shutil.which, PEERS if args.peers else ()):
            self.peer(name)
        if args.before:
            self.tokengauge("before", args.before, free_port())
        self.tokengauge("tokengauge", args.binary, self.admin)
        for port in (self.backend, self.sink, self.admin, *(port for port, _ in self.proxies.values())):
            wait_port(port)

    def tokengauge(self, name, binary, admin):
        env = dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{self.sink}", OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf", OTEL_TRACES_SAMPLER=self.args.sampler)
        port = free_port()
        self.proxy(name, port, [binary, "run", "--listen", f"127.0.0.1:{port}", "--upstream", f"http://127.0.0.1:{self.backend}", "--admin", f"127.0.0.1:{admin}"], env)

    def peer(self, name):
        config, former, arguments = PEERS[name]
        port, folder = free_port(), pathlib.Path(self.folder.name, name)
        folder.mkdir()
        written = (pathlib.Path(self.args.peers) / config).read_text()
        (folder / config).write_text(written.replace(str(former), str(port)).replace(str(BACKEND_PORT), str(self.backend)))
        names = {"folder": folder, "config": folder / config}
        self.proxy(name, port, [name, *(argument.format(**names) for argument in arguments)], cwd=folder)

    def proxy(self, name, port, command, env=None, cwd=None):
        self.proxies[name] = (port, self.spawn(command, env, cwd))

    def spawn(self, command, env=None, cwd=None):
        process = subprocess.Popen(command, env=env, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.started.append(process)
        return process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.started:
            process.terminate()
        for process in self.started:
            process.wait()
        self.folder.cleanup()

    def url(self, port):
        return f"http://127.0.0.1:{port}/v1/chat/completions"

    def finished(self):
        return total(text(self.admin, "/metrics"), "tokengauge_requests_finished_total")

    def compare(self, load, number):
        """Runs round `number`. Returns the figures of each proxy by its name, and the number of requests that tokengauge observed."""
        before = self.finished()
        command = [self.args.loadlab, "compare", "--a", self.url(self.backend), "--rounds", "1", "--verify", *LOADS[load]]
        first = number % len(self.proxies)
        names = list(self.proxies)[first:] + list(self.proxies)[:first]
        for name in names:
            port, process = self.proxies[name]
            command += ["--b", f"{name}={self.url(port)}", "--pid-b", str(process.pid)]
        output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout.decode()
        result = json.JSONDecoder().raw_decode(output)[0]
        time.sleep(0.5)
        return dict(zip(names, result["compare"], strict=True)), self.finished() - before

    def lost(self):
        """Returns what tokengauge and the receiver report about lost data."""
        metrics = text(self.admin, "/metrics")
        names = {re.split(r"[{ ]", line)[0] for line in metrics.splitlines() if line.startswith(("tokengauge_self_observer", "tokengauge_self_export"))}
        return {name: total(metrics, name) for name in sorted(names)} | {"receiver": json.loads(text(self.sink, "/"))}

    def hold(self, name):
        """Holds a few streams first, which fill what does not depend on their number, such as the tables of the tokenizer."""
        self.hold_streams(name, 50)
        return self.hold_streams(name, self.args.streams)

    def hold_streams(self, name, streams):
        port, process = self.proxies[name]
        command = [self.args.loadlab, "hold", "--url", self.url(port), "--streams", str(streams), "--pid", str(process.pid), "--gap-us", "2000000", "--hold-s", "8",
                   "--ramp-per-s", "1000", "--stats-url", f"http://127.0.0.1:{self.backend}/loadlab/stats"]
        output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout.decode()
        return json.JSONDecoder().raw_decode(output[output.index("{"):])[0]


class Table:
    """The figures of all loads, and the budgets that were missed."""

    def __init__(self, names):
        self.names, self.rows, self.missed = names, [], []

    def row(self, load, what, figures, budget, is_met, rounds=""):
        """`figures` has one value per proxy. `is_met` takes the values of the relay and of tokengauge. `rounds` is the range of single rounds."""
        relay, gauge = figures["relay"], figures["tokengauge"]
        cells = [f"{figures[name]:.1f}" if name in figures else "" for name in self.names]
        print(f"{load}: {what}: {', '.join(f'{name} {cell}' for name, cell in zip(self.names, cells) if cell)}", file=sys.stderr)
        met = is_met(relay, gauge)
        self.rows.append((load, what, *cells, f"{gauge / relay:.2f}{rounds}", budget, "yes" if met else "NO"))
        if not met:
            self.missed.append(f"{load}: {what}")

    def hold(self, held):
        kib = {name: figures["rss_bytes_per_stream"] / 1024 for name, figures in held.items()}
        self.row("hold", "KiB RSS per stream", kib, "relay + 6 KiB", lambda relay, gauge: gauge <= relay + 6)
        gone = {name: figures["backend_saw_clients_gone_ms"] for name, figures in held.items()}
        self.row("hold", "backend saw all clients gone, ms", gone, "1.5 × relay", lambda relay, gauge: gauge <= 1.5 * relay)

    def load(self, load, measured):
        def row(what, read, budget, is_met):
            pairs = zip(measured["relay"]["rounds"], measured["tokengauge"]["rounds"], strict=True)
            ratios = [read(gauge) / read(relay) for relay, gauge in pairs]
            figures = {name: read(figures) for name, figures in measured.items()}
            self.row(load, what, figures, budget, is_met, f" ({min(ratios):.2f} to {max(ratios):.2f})")

        if load == "json":
            row("CPU µs per request", lambda figures: figures["cpu_us_per_request"], "1.5 × relay", lambda relay, gauge: gauge <= 1.5 * relay)
        else:
            row("CPU s per million chunks", lambda figures: figures["cpu_s_per_million_chunks"], "1.25 × relay", lambda relay, gauge: gauge <= 1.25 * relay)
        if load in ("paced", "light"):
            added = lambda key: lambda figures: figures["added"][key]
            row("added delay p50, µs", added("delay_p50_us"), "1.25 × relay or + 15 µs", lambda relay, gauge: gauge <= max(1.25 * relay, relay + 15))
            row("added delay p99, µs", added("delay_p99_us"), "relay + 100 µs", lambda relay, gauge: gauge <= relay + 100)

    def check(self, load, gauge, finished):
        # The warm-up is observed too, but loadlab does not report it. Fewer observed requests than sent ones is a loss.
        if finished < gauge["ok_via"]:
            self.missed.append(f"{load}: {finished:.0f} requests observed of {gauge['ok_via']}")
        if gauge["mismatched_via"] or gauge["errors_via"]:
            self.missed.append(f"{load}: {gauge['mismatched_via']} bodies differ, errors {gauge['errors_via']}")
        print(f"{load}: {finished:.0f} requests observed of {gauge['ok_via']} sent, plus the warm-up", file=sys.stderr)

    def print(self):
        header = ("load", "figure", *self.names, "ratio to relay", "budget", "met")
        for line in (header, ["---"] * len(header), *self.rows):
            print("| " + " | ".join(line) + " |")


def median(rounds):
    """Returns the figures of a proxy: the medians of its rounds, and the sums of counts."""
    middle = lambda read: statistics.median(map(read, rounds)) if all(read(figures) is not None for figures in rounds) else None
    figures = {key: middle(operator.itemgetter(key)) for key in ("cpu_us_per_request", "cpu_s_per_million_chunks")}
    figures["added"] = {key: middle(lambda figures: figures["added"][key]) for key in ("delay_p50_us", "delay_p99_us")}
    figures |= {key: sum(one[key] for one in rounds) for key in ("ok_via", "mismatched_via")}
    return figures | {"errors_via": [one["errors_via"] for one in rounds if one["errors_via"]], "rounds": rounds}


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--loadlab", required=True)
    cli.add_argument("--binary", required=True)
    cli.add_argument("--sink", required=True)
    cli.add_argument("--before")
    cli.add_argument("--peers")
    cli.add_argument("--rounds", type=int, default=5)
    cli.add_argument("--streams", type=int, default=5000)
    cli.add_argument("--sampler", default="parentbased_always_on")
    cli.add_argument("--only", default="hold,paced,many,most,light,saturated,json")
    cli.add_argument("--out")
    args = cli.parse_args()
    loads, kept, rounds = args.only.split(","), {}, []
    peers = [name for name in PEERS if args.peers and shutil.which(name)]
    table = Table(["relay", *peers, *(["before"] if args.before else []), "tokengauge"])
    if "hold" in loads:
        # Other loads leave memory that held streams could reuse, so these processes serve no other load.
        loads.remove("hold")
        with Bench(args) as bench:
            kept["hold"] = {name: bench.hold(name) for name in bench.proxies}
        table.hold(kept["hold"])
    for number in range(args.rounds if loads else 0):
        # The figures of two processes of one program can differ by more than 10 %, so each round has new processes.
        with Bench(args) as bench:
            rounds.append({load: bench.compare(load, number) for load in loads})
            kept.setdefault("lost", []).append(bench.lost())
        print(f"finished round {number + 1} of {args.rounds}", file=sys.stderr)
    for load in loads:
        kept[load] = {name: median([measured[load][0][name] for measured in rounds]) for name in table.names}
        table.load(load, kept[load])
        table.check(load, kept[load]["tokengauge"], sum(measured[load][1] for measured in rounds))
    table.print()
    print(f"\nlost: {kept.get('lost')}")
    if args.out:
        pathlib.Path(args.out).write_text(json.dumps(kept, indent=1))
    for miss in table.missed:
        print("MISSED " + miss)
    sys.exit(1 if table.missed else 0)


if __name__ == "__main__":
    main()
