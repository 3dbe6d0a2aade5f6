#!/usr/bin/env python3
"""Scrapes tokengauge with a real Prometheus. The stored exemplars must lead to traces that an OTLP receiver got.

    prometheus_check.py --binary target/release/tokengauge [--verbose]

Requests with known trace ids go through the proxy to `tokengauge simulate`: sampled ones, unsampled ones, and unsampled ones that fail or
stall. The OTLP receiver is a class in this file. The check compares the exemplars of `/api/v1/query_exemplars`. `promtool check metrics` checks the
text format, and the strict parser of Prometheus' Python client checks OpenMetrics. Needs prometheus and promtool on the path, and the
packages of requirements.txt. The last line is `N passed, N failed`; exit status 0 if nothing failed.
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

from rig import CALLER, WAIT_LIMIT, Processes, Tally, clear_environment, free_port, wait_until

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
TIME_TO_FIRST_TOKEN = 'tokengauge_time_to_first_token_seconds_bucket'
FAILED = 'tokengauge_requests_finished_total{tokengauge_outcome="error"}'
STALLED = "tokengauge_stream_stalls_total"
# The silence of the stalled stream in seconds. It exceeds the route's stall threshold of 2 s by far, so that scheduling delays of the proxy do
# not matter.
STALL_MS = 6000
# Milliseconds until the first token, slowest last. The values fall into different buckets.
FIRST_TOKEN = (5, 50, 200, 800)
CLIENT = 3


class Sink:
    """An OTLP receiver over HTTP."""

    def __init__(self):
        self.spans = collections.defaultdict(list)
        # Exemplars of the newest export: metric name → (trace id, span id).
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
        """Returns the attributes of every CLIENT span by its ids."""
        return {(trace, span.span_id.hex()): {kv.key: plain(kv.value) for kv in span.attributes}
                for trace, spans in list(self.spans.items()) for span in spans if span.kind == CLIENT}


class Stage(Processes):
    """The simulated backend, the proxy and a Prometheus that scrapes it."""

    def __init__(self, args, sink):
        super().__init__("prometheus")
        self.backend, self.listen, self.admin, self.prometheus = (free_port() for _ in range(4))
        self.start("backend", [args.binary, "simulate", "--listen", f"127.0.0.1:{self.backend}"], self.backend)
        # Without SLOs: on a busy machine a request could miss its objective, and its trace would be kept.
        (self.folder / "tokengauge.yaml").write_text("version: 1\nslos: []\n")
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
        """Sends one streamed chat request in the trace `trace`."""
        body = json.dumps({"model": "sim-typical", "stream": True, "messages": [{"role": "user", "content": "Hello"}]})
        headers = {"content-type": "application/json", "traceparent": f"00-{trace}-{CALLER}-{int(sampled):02}",
                   "x-simulate-gap-us": "1000", "x-simulate-tokens": "20",
                   **{f"x-simulate-{key.replace('_', '-')}": str(value) for key, value in shaping.items()}}
        url = f"http://127.0.0.1:{self.listen}/v1/chat/completions"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers), timeout=WAIT_LIMIT) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            error.read()

    def scrape(self, accept):
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin}/metrics", headers={"accept": accept})
        with urllib.request.urlopen(request, timeout=WAIT_LIMIT) as answer:
            return answer.headers["content-type"], answer.read().decode()

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=WAIT_LIMIT) as answer:
            return json.load(answer)["data"]

    def exemplars(self, query):
        """Returns each exemplar with the labels of its series."""
        now = time.time()
        found = self.ask("query_exemplars", query=query, start=now - 3600, end=now + 3600)
        return [(series["seriesLabels"], one) for series in found for one in series["exemplars"]]


def plain(value):
    return getattr(value, value.WhichOneof("value"))


def ids(exemplar):
    return exemplar["labels"]["trace_id"], exemplar["labels"]["span_id"]


def series(text):
    """Returns every series of an exposition, unparsed."""
    samples = (line.split(" # ")[0] for line in text.splitlines() if not line.startswith("#"))
    return {sample.rpartition(" ")[0] for sample in samples}


def check_exemplars(stage, sink, tally, sampled, unsampled, kept):
    """`kept` maps the unsampled traces that are kept to the reason."""
    slowest = sampled[-1]
    traces = lambda query: {ids(one)[0] for _, one in stage.exemplars(query)}
    tally.check("the slowest request is an exemplar in its bucket of time to first token",
                wait_until(lambda: slowest in traces(TIME_TO_FIRST_TOKEN)), traces(TIME_TO_FIRST_TOKEN))
    tally.check("the receiver got the traces that must be kept",
                wait_until(lambda: {*sampled, *kept} <= set(sink.spans)), list(sink.spans))
    found, spans = stage.exemplars(TIME_TO_FIRST_TOKEN), sink.client_spans()
    tally.check("several buckets have exemplars", len({labels["le"] for labels, _ in found}) > 1, found)
    for labels, one in found:
        span, value = spans.get(ids(one)), float(one["value"])
        tally.check("an exemplar names a CLIENT span that the receiver got", span is not None, one)
        tally.check("an exemplar's only labels are the two ids", set(one["labels"]) == {"trace_id", "span_id"}, one)
        span_value = (span or {}).get("tokengauge.time_to_first_token")
        tally.check("an exemplar's value is the time to first token of its span", span_value is not None and abs(span_value - value) < 1e-9,
                    f"{value}, not {span_value}")
        tally.check("an exemplar's value belongs to its bucket", value <= float(labels["le"]), (labels, one))
    for trace, reason in kept.items():
        query = {"error": FAILED, "stall": STALLED}[reason]
        tally.check(f"{query} leads to the request that caused it", wait_until(lambda: traces(query) == {trace}), traces(query))
    for (trace, _), span in spans.items():
        sampling = [span.get(f"tokengauge.sampling.{key}") for key in ("reason", "overrides_parent")]
        tally.check("a span has the reason why it was kept", sampling == ([kept[trace], True] if trace in kept else ["parent", None]), sampling)
    everywhere = traces('{job="tokengauge"}')
    tally.check("no exemplar refers to a trace that was not kept", everywhere <= {*sampled, *kept}, everywhere)
    tally.check("unsampled successful requests were not exported", not set(unsampled) & set(sink.spans), list(sink.spans))


def check_otlp(sink, tally, sampled):
    """Checks that OTLP exports have the same exemplars."""
    newest = lambda: sink.exemplars.get("tokengauge.time_to_first_token", set())
    tally.check("the slowest request is an exemplar over OTLP too",
                wait_until(lambda: sampled[-1] in {trace for trace, _ in newest()}), newest())
    tally.check("exemplars over OTLP name CLIENT spans that the receiver got", newest() <= set(sink.client_spans()), newest())


def check_formats(stage, tally):
    (plain_kind, text), (open_kind, opened) = stage.scrape("*/*"), stage.scrape("application/openmetrics-text;version=1.0.0")
    tally.check("the text format has its content type", plain_kind == TEXT, plain_kind)
    tally.check("OpenMetrics has its content type", open_kind == OPEN_METRICS, open_kind)
    tally.check("the text format has no exemplars", " # {" not in text)
    tally.check("both formats have the same series", series(text) == series(opened), series(text) ^ series(opened))
    linted = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=WAIT_LIMIT)
    tally.check("promtool reports no problem in the text format", linted.returncode == 0 and not linted.stderr, linted.stdout + linted.stderr)
    families = list(openmetrics.text_string_to_metric_families(opened))
    marked = {family.name for family in families for sample in family.samples if sample.exemplar}
    tally.check("the strict parser of OpenMetrics reads exemplars", {"tokengauge_time_to_first_token_seconds", "tokengauge_requests_finished"} <= marked, marked)
    up = stage.ask("query", query='up{job="tokengauge"}')["result"]
    tally.check("Prometheus scrapes without an error", [one["value"][1] for one in up] == ["1"], up)
    scraped = {match[1] for match in re.finditer(r'\ble="([^"]*)"', opened)}
    stored = set(stage.ask("label/le/values"))
    tally.check("Prometheus stores bucket bounds as they are written", stored == scraped, stored ^ scraped)


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    clear_environment()
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
