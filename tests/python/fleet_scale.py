#!/usr/bin/env python3
"""Measures series, scrape bytes and OTLP bytes of 1, 10 and 100 processes, and compares them with docs/explanation/scaling.md.

    fleet_scale.py --binary target/release/tokengauge [--processes 1 10 100] [--models 2] [--verbose]

Each process has one route and serves one stream of each model, from `tokengauge simulate`. A Prometheus scrapes all processes, and an OTLP receiver in this
file counts the bytes of each signal. The fleet must have as many series as the formulas of the page predict from the figures of the page, and
`tokengauge check` must estimate the page of one process. Both profiles are measured.
Needs prometheus on the path. The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import collections
import concurrent.futures
import http.client
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

from rig import WAIT_LIMIT, Processes, Tally, clear_environment, free_port, listening, wait_until

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "explanation" / "scaling.md"
# Seconds between scrapes. Longer for a large fleet, whose pages take a machine with two cores some time.
SCRAPE = 5
# Seconds between exports of metrics: the default of the proxy.
EXPORT = 10
# Largest difference between a measured figure and that of the page, as a ratio. Bytes depend on the lengths of names, hosts and numbers.
TOLERANCE = 0.1
# Largest error of the estimate, as a ratio of the measured page.
ESTIMATE_TOLERANCE = 0.2
# Gauges that a young process does not have yet, such as throughput over 5 min.
YOUNG_SERIES, YOUNG_BYTES = 100, 30_000
TOKENS = 40


class Sink:
    """Counts the bytes of OTLP exports by process and signal."""

    def __init__(self):
        self.exports = collections.defaultdict(list)
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                sink.exports[self.path].append((time.time(), len(body)))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def total(self, signal, since=0.0, until=float("inf")):
        found = [size for name, exports in list(self.exports.items()) if name.endswith(f"/v1/{signal}")
                 for at, size in list(exports) if since <= at < until]
        return sum(found), len(found)


class Fleet(Processes):
    def __init__(self, args, profile, count, sink):
        super().__init__(f"scale-{profile}-{count}")
        self.args, self.profile, self.count = args, profile, count
        backend, self.prometheus = free_port(), free_port()
        models = [part for number in range(args.models) for part in ("--model", f"model-{number:08}:jitter=0,tokens={TOKENS},usage=always,step-ms=3,batch-ms=0")]
        self.start("backend", [args.binary, "simulate", "--listen", f"127.0.0.1:{backend}", *models], backend)
        self.configuration = self.folder / "tokengauge.yaml"
        # JSON is YAML.
        self.configuration.write_text(json.dumps({"version": 1, "telemetry": {"profile": profile},
                                                  "upstreams": {"engine": {"url": f"http://127.0.0.1:{backend}"}}}))
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": sink.address,
                       "OTEL_METRIC_EXPORT_INTERVAL": str(EXPORT * 1000)}
        self.ports = [(free_port(), free_port()) for _ in range(count)]
        for number, (listen, admin) in enumerate(self.ports):
            log = open(self.folder / f"proxy-{number}.log", "w")
            self.processes.append(subprocess.Popen(
                [args.binary, "run", "--config", str(self.configuration), "--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}"],
                env=environment, stdout=log, stderr=subprocess.STDOUT))
        for number, (listen, admin) in enumerate(self.ports):
            if not wait_until(lambda: listening(listen) and listening(admin)):
                self.stop()
                raise SystemExit(f"proxy {number} does not listen; logs in {self.folder}")
        (self.folder / "prometheus.json").write_text(json.dumps({
            "global": {"scrape_interval": f"{SCRAPE}s", "scrape_timeout": f"{SCRAPE}s"},
            "scrape_configs": [{"job_name": "tokengauge", "static_configs": [{"targets": [f"127.0.0.1:{admin}" for _, admin in self.ports]}]},
                               {"job_name": "prometheus", "static_configs": [{"targets": [f"127.0.0.1:{self.prometheus}"]}]}]}))

    def start_prometheus(self):
        self.start("prometheus", ["prometheus", f"--config.file={self.folder / 'prometheus.json'}", f"--storage.tsdb.path={self.folder / 'data'}",
                                  f"--web.listen-address=127.0.0.1:{self.prometheus}"], self.prometheus)
        wait_until(self.is_ready)

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.prometheus}/-/ready", timeout=WAIT_LIMIT):
                return True
        except OSError:
            return False

    def call(self, listen):
        for number in range(self.args.models):
            connection = http.client.HTTPConnection("127.0.0.1", listen, timeout=WAIT_LIMIT)
            connection.request("POST", "/v1/chat/completions", json.dumps({
                "model": f"model-{number:08}", "stream": True, "messages": [{"role": "user", "content": "Describe the sea."}]}))
            if connection.getresponse().read() == b"":
                raise SystemExit("the backend sent no response")
            connection.close()

    def page(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[0][1]}/metrics", timeout=WAIT_LIMIT) as answer:
            text = answer.read()
        return sum(not line.startswith(b"#") for line in text.splitlines()), len(text)

    def ask(self, query):
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=WAIT_LIMIT) as answer:
            found = json.load(answer)["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0


def estimated(args, fleet):
    """Returns the series and bytes that `tokengauge check` prints, before the first call and after the calls."""
    text = subprocess.run([args.binary, "check", str(fleet.configuration), "--models", str(args.models)], capture_output=True, text=True, check=True).stdout
    return [tuple(map(int, found)) for found in re.findall(r"about (\d+) series, (\d+) kB", text)]


def stated(profile):
    """Returns the figures of one process from the page."""
    column = {"full": 1, "lean": 2}[profile]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    figures = {row[0]: row[column] for row in rows if len(row) == 3}
    number = lambda name: float(figures[name].replace(",", "").split(" ")[0])
    return {"idle": number("series before the first call"), "route": number("series of a route with calls"), "combination": number("series of a streamed model"),
            "page": number("bytes of a series on `/metrics`"), "otlp": number("bytes of a series in an OTLP export")}


def close(found, expected, tolerance=TOLERANCE):
    return abs(found - expected) <= tolerance * expected


def measure(args, tally, profile, count):
    sink = Sink()
    fleet = Fleet(args, profile, count, sink)
    try:
        # The first page can lack the metrics of the observer.
        time.sleep(2)
        (idle, idle_bytes), figures = fleet.page(), stated(profile)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(fleet.call, [listen for listen, _ in fleet.ports]))
        # Metrics are exported within the interval.
        time.sleep(EXPORT + 2)
        fleet.start_prometheus()
        up = lambda: fleet.ask('sum(up{job="tokengauge"})') == count
        tally.check(f"{profile}, {count}: Prometheus scrapes every process", wait_until(up), fleet.ask('sum(up{job="tokengauge"})'))
        since = time.time()
        time.sleep(2 * EXPORT)
        exported, exports = sink.total("metrics", since, since + 2 * EXPORT)
        series, page = fleet.page()
        scraped = fleet.ask('sum(scrape_samples_scraped{job="tokengauge"})')
        head, memory = fleet.ask("prometheus_tsdb_head_series"), fleet.ask('process_resident_memory_bytes{job="prometheus"}')
        seconds = fleet.ask('avg(scrape_duration_seconds{job="tokengauge"})')
        each = (series - idle - figures["route"]) / args.models
        print(f"| {profile} | {count} | {series:,} | {page / 1e3:,.0f} kB | {scraped:,.0f} | {scraped / SCRAPE:,.0f} | {exported / (2 * EXPORT) / 1e3:,.0f} kB/s "
              f"| {head:,.0f} | {memory / 1e6:,.0f} MB |", flush=True)
        print(f"     idle {idle} series, {idle_bytes} B; combination {each:.0f} series; page {page / series:.0f} B per series; "
              f"OTLP {exported / max(1, exports) / series:.0f} B per series, {exports} exports; scrape {seconds:.3f} s", flush=True)
        name = f"{profile}, {count}"
        tally.check(f"{name}: series before the first call", close(idle, figures["idle"]), (idle, figures))
        tally.check(f"{name}: series of a streamed model", close(each, figures["combination"]), (series, idle, figures))
        predicted = count * (figures["idle"] + figures["route"] + args.models * figures["combination"])
        tally.check(f"{name}: the fleet has the predicted series", close(scraped, predicted), (scraped, predicted))
        tally.check(f"{name}: bytes of a series on the page", close(page / series, figures["page"]), (page / series, figures))
        # An export has all series of one process.
        per_series = exported / max(1, exports) / series
        tally.check(f"{name}: bytes of a series over OTLP", close(per_series, figures["otlp"], 2 * TOLERANCE), (per_series, figures))
        for what, (wanted, size), (found, found_size) in zip(("before the first call", "after the calls"), estimated(args, fleet),
                                                             ((idle, idle_bytes), (series, page))):
            text = f"estimated {wanted} series, {size} kB; measured {found} series, {found_size} B"
            print(f"     {what}: {text}", flush=True)
            tally.check(f"{name}: `tokengauge check` estimates the series {what}", abs(wanted - found) <= ESTIMATE_TOLERANCE * found + YOUNG_SERIES, text)
            tally.check(f"{name}: `tokengauge check` estimates the bytes {what}", abs(size * 1000 - found_size) <= ESTIMATE_TOLERANCE * found_size + YOUNG_BYTES, text)
    finally:
        fleet.stop()


def main():
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--binary", required=True)
    cli.add_argument("--processes", type=int, nargs="+", default=[1, 10, 100])
    cli.add_argument("--profiles", nargs="+", default=["full", "lean"])
    cli.add_argument("--models", type=int, default=2)
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    clear_environment()
    tally = Tally(args.verbose)
    print("| profile | processes | series of one | page of one | series of all | samples/s | OTLP metrics | head series | Prometheus memory |")
    for profile in args.profiles:
        for count in args.processes:
            measure(args, tally, profile, count)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
