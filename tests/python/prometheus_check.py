#!/usr/bin/env python3
"""A real Prometheus scrapes tokengauge: its exemplars must lead to traces that an OTLP receiver was really sent.

    prometheus_check.py --binary target/release/tokengauge [--verbose]

Calls of known trace ids go through the proxy to `tokengauge simulate`: sampled ones, unsampled ones, and unsampled ones of
which one fails and one stalls. The receiver is a few lines in here. Then `/api/v1/query_exemplars` is asked what it has, the text format is
given to `promtool check metrics`, and OpenMetrics to the strict parser of Prometheus' Python client. Needs prometheus and
promtool on the path, and the packages of requirements.txt. The last line is `N passed, N failed`; exit 0 when nothing
failed.
"""
import argparse
import collections
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.openmetrics import parser as openmetrics

from rig import CALLER, PATIENCE, Processes, Tally, forget_the_machine, free_port, wait_until

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
TIME_TO_FIRST_TOKEN = 'tokengauge_time_to_seconds_bucket{tokengauge_point="token"}'
FAILED = 'tokengauge_requests_finished_total{tokengauge_outcome="error"}'
STALLED = "tokengauge_stream_stalls_total"
# How long the stalled stream is silent: so much longer than the 2 s for which a route has patience that a machine on
# which the proxy hardly runs, which is no fault of the stream, does not matter.
STALL_MS = 6000
# Milliseconds until the first token, the slowest last: so far apart that they fall into several buckets.
FIRST_TOKEN = (5, 50, 200, 800)
CLIENT = 3


class Sink:
    """An OTLP receiver over HTTP."""

    def __init__(self):
        self.spans = collections.defaultdict(list)
        # Of the newest export: metric name → (trace id, span id).
        self.exemplars = {}
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                sink.take(self.path, self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path, body):
        if path.endswith("/traces"):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    self.spans[span.trace_id.hex()].append(span)
        else:
            newest = collections.defaultdict(set)
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    for point in getattr(metric, metric.WhichOneof("data")).data_points:
                        newest[metric.name] |= {(e.trace_id.hex(), e.span_id.hex()) for e in point.exemplars}
            self.exemplars = newest

    def client_spans(self):
        """The attributes of every CLIENT span by its ids."""
        return {(trace, span.span_id.hex()): {kv.key: plain(kv.value) for kv in span.attributes}
                for trace, spans in list(self.spans.items()) for span in spans if span.kind == CLIENT}


class Stage(Processes):
    """The simulated backend, the proxy and a Prometheus that scrapes it."""

    def __init__(self, args, sink):
        super().__init__("prometheus")
        self.backend, self.listen, self.admin, self.prometheus = (free_port() for _ in range(4))
        self.start("backend", [args.binary, "simulate", "--listen", f"127.0.0.1:{self.backend}"], self.backend)
        # Without objectives: on a loaded machine a call could break one, and be kept for that.
        (self.folder / "tokengauge.yaml").write_text("version: 1\nobjectives: []\n")
        way = ["--listen", f"127.0.0.1:{self.listen}", "--upstream", f"http://127.0.0.1:{self.backend}",
               "--admin", f"127.0.0.1:{self.admin}", "--config", str(self.folder / "tokengauge.yaml")]
        self.start("proxy", [args.binary, "run", *way], self.listen, {
            **os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": sink.address, "OTEL_METRIC_EXPORT_INTERVAL": "500",
            "OTEL_BSP_SCHEDULE_DELAY": "100"})
        configuration = self.folder / "prometheus.yml"
        configuration.write_text(json.dumps({"scrape_configs": [{
            "job_name": "tokengauge", "scrape_interval": "1s",
            "static_configs": [{"targets": [f"127.0.0.1:{self.admin}"]}]}]}))
        self.start("prometheus", [
            "prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.prometheus}", "--enable-feature=exemplar-storage"], self.prometheus)

    def call(self, trace, sampled, **shaping):
        """One streamed chat under the trace `trace`."""
        body = json.dumps({"model": "sim-typical", "stream": True, "messages": [{"role": "user", "content": "Hello"}]})
        headers = {"content-type": "application/json", "traceparent": f"00-{trace}-{CALLER}-{int(sampled):02}",
                   "x-simulate-gap-us": "1000", "x-simulate-tokens": "20",
                   **{f"x-simulate-{key.replace('_', '-')}": str(value) for key, value in shaping.items()}}
        url = f"http://127.0.0.1:{self.listen}/v1/chat/completions"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers), timeout=PATIENCE) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            error.read()

    def scrape(self, accept):
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin}/metrics", headers={"accept": accept})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.headers["content-type"], answer.read().decode()

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def exemplars(self, query):
        """Each with the labels of its series."""
        now = time.time()
        found = self.ask("query_exemplars", query=query, start=now - 3600, end=now + 3600)
        return [(series["seriesLabels"], one) for series in found for one in series["exemplars"]]


def plain(value):
    return getattr(value, value.WhichOneof("value"))


def ids(exemplar):
    return exemplar["labels"]["trace_id"], exemplar["labels"]["span_id"]


def series(text):
    """Every series of an exposition, as it stands."""
    samples = (line.split(" # ")[0] for line in text.splitlines() if not line.startswith("#"))
    return {sample.rpartition(" ")[0] for sample in samples}


def check_exemplars(stage, sink, tally, sampled, unsampled, kept):
    """`kept`: the unsampled traces that are kept, and for what reason."""
    slowest = sampled[-1]
    traces = lambda query: {ids(one)[0] for _, one in stage.exemplars(query)}
    tally.check("the slowest call is an exemplar of its bucket of the time to first token",
                wait_until(lambda: slowest in traces(TIME_TO_FIRST_TOKEN)), traces(TIME_TO_FIRST_TOKEN))
    tally.check("the receiver was sent the traces that are to be kept",
                wait_until(lambda: {*sampled, *kept} <= set(sink.spans)), list(sink.spans))
    found, spans = stage.exemplars(TIME_TO_FIRST_TOKEN), sink.client_spans()
    tally.check("several buckets have one", len({labels["le"] for labels, _ in found}) > 1, found)
    for labels, one in found:
        span, value = spans.get(ids(one)), float(one["value"])
        tally.check("an exemplar names a CLIENT span that the receiver was sent", span is not None, one)
        tally.check("its labels are the two ids alone", set(one["labels"]) == {"trace_id", "span_id"}, one)
        told = (span or {}).get("tokengauge.time_to.token")
        tally.check("its value is the time to first token of that span", told is not None and abs(told - value) < 1e-9,
                    f"{value}, not {told}")
        tally.check("its value belongs to the bucket", value <= float(labels["le"]), (labels, one))
    for trace, reason in kept.items():
        query = {"error": FAILED, "stall": STALLED}[reason]
        tally.check(f"{query} leads to the call that did it", wait_until(lambda: traces(query) == {trace}), traces(query))
    for (trace, _), span in spans.items():
        said = [span.get(f"tokengauge.sampling.{key}") for key in ("reason", "against_parent")]
        tally.check("a span says why it was kept", said == ([kept[trace], True] if trace in kept else ["parent", None]), said)
    everywhere = traces('{job="tokengauge"}')
    tally.check("no exemplar anywhere is of a trace that was not kept", everywhere <= {*sampled, *kept}, everywhere)
    tally.check("unsampled calls that went well were not sent", not set(unsampled) & set(sink.spans), list(sink.spans))


def check_otlp(sink, tally, sampled):
    """What was pushed has the same exemplars."""
    newest = lambda: sink.exemplars.get("tokengauge.time_to", set())
    tally.check("the slowest call is an exemplar over OTLP too",
                wait_until(lambda: sampled[-1] in {trace for trace, _ in newest()}), newest())
    tally.check("exemplars over OTLP name CLIENT spans that the receiver was sent", newest() <= set(sink.client_spans()), newest())


def check_formats(stage, tally):
    (plain_kind, text), (open_kind, opened) = stage.scrape("*/*"), stage.scrape("application/openmetrics-text;version=1.0.0")
    tally.check("the text format says what it is", plain_kind == TEXT, plain_kind)
    tally.check("OpenMetrics says what it is", open_kind == OPEN_METRICS, open_kind)
    tally.check("the text format has no exemplars", " # {" not in text)
    tally.check("both formats show the same series", series(text) == series(opened), series(text) ^ series(opened))
    linted = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=PATIENCE)
    tally.check("promtool has nothing to say of the text format", linted.returncode == 0 and not linted.stderr, linted.stdout + linted.stderr)
    families = list(openmetrics.text_string_to_metric_families(opened))
    marked = {family.name for family in families for sample in family.samples if sample.exemplar}
    tally.check("the strict parser of OpenMetrics reads exemplars", {"tokengauge_time_to_seconds", "tokengauge_requests_finished"} <= marked, marked)
    up = stage.ask("query", query='up{job="tokengauge"}')["result"]
    tally.check("Prometheus scrapes without an error", [one["value"][1] for one in up] == ["1"], up)
    scraped = {match[1] for match in re.finditer(r'\ble="([^"]*)"', opened)}
    stored = set(stage.ask("label/le/values"))
    tally.check("Prometheus keeps bounds as they are written", stored == scraped, stored ^ scraped)


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    forget_the_machine()
    for tool in ("prometheus", "promtool"):
        version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True)
        print((version.stdout or version.stderr).splitlines()[0], flush=True)
    tally, sink = Tally(args.verbose), Sink()
    stage = Stage(args, sink)
    try:
        trace = iter(f"{number:032x}" for number in range(1, 1000))
        unsampled = [next(trace) for _ in range(3)]
        for one in unsampled:
            stage.call(one, sampled=False)
        failed, stalled = next(trace), next(trace)
        stage.call(failed, sampled=False, status=503)
        stage.call(stalled, sampled=False, stall_after=5, stall_ms=STALL_MS)
        sampled = [next(trace) for _ in FIRST_TOKEN]
        for one, millis in zip(sampled, FIRST_TOKEN):
            stage.call(one, sampled=True, ttft_us=millis * 1000)
        check_exemplars(stage, sink, tally, sampled, unsampled, {failed: "error", stalled: "stall"})
        check_otlp(sink, tally, sampled)
        check_formats(stage, tally)
    finally:
        stage.stop()
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
