#!/usr/bin/env python3
"""Exports spans to a real Jaeger, over both OTLP protocols, and queries them there.

    jaeger_check.py --binary target/release/tokengauge --jaeger PATH [--verbose]

Calls with known trace ids go through the proxy to `tokengauge simulate`. Jaeger must then know the service, find the calls by an attribute, and
return the spans of each trace with their parents. The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request

from rig import CALLER, WAIT_LIMIT, Processes, Tally, clear_environment, free_port, wait_until

MODEL = "sim-typical"
# trace id → (OTLP protocol, options of the simulated response)
CALLS = {
    f"{1:032x}": ("http/protobuf", {"tokens": 20}),
    f"{2:032x}": ("http/protobuf", {"status": 503}),
    f"{3:032x}": ("grpc", {"tokens": 20}),
}


class Stage(Processes):
    """The simulated backend, Jaeger, and a proxy per OTLP protocol."""

    def __init__(self, args):
        super().__init__("jaeger")
        self.backend, self.query, self.http, self.grpc, query_grpc = (free_port() for _ in range(5))
        self.start("backend", [args.binary, "simulate", "--listen", f"127.0.0.1:{self.backend}"], self.backend)
        at = lambda port: {"endpoint": f"127.0.0.1:{port}"}
        configuration = self.folder / "jaeger.yaml"
        # JSON is YAML.
        configuration.write_text(json.dumps({
            "service": {
                "extensions": ["jaeger_storage", "jaeger_query"],
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}},
            },
            "extensions": {
                "jaeger_query": {"storage": {"traces": "memory"}, "http": at(self.query), "grpc": at(query_grpc)},
                "jaeger_storage": {"backends": {"memory": {"memory": {"max_traces": 1000}}}},
            },
            "receivers": {"otlp": {"protocols": {"http": at(self.http), "grpc": at(self.grpc)}}},
            "exporters": {"jaeger_storage_exporter": {"trace_storage": "memory"}},
        }))
        self.start("jaeger", [args.jaeger, "--config", str(configuration)], self.query)
        ports = {"http/protobuf": self.http, "grpc": self.grpc}
        self.proxies = {protocol: self.proxy(args, protocol, port) for protocol, port in ports.items()}

    def proxy(self, args, protocol, endpoint):
        listen = free_port()
        self.start(protocol.replace("/", "-"), [
            args.binary, "run", "--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{free_port()}",
            "--upstream", f"http://127.0.0.1:{self.backend}"], listen, {
            **os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{endpoint}", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_METRICS_EXPORTER": "none", "OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_TRACES_SAMPLER": "always_on"})
        return listen

    def call(self, trace, protocol, shaping):
        body = json.dumps({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Hello"}]})
        headers = {"content-type": "application/json", "traceparent": f"00-{trace}-{CALLER}-01",
                   **{f"x-simulate-{key}": str(value) for key, value in shaping.items()}}
        url = f"http://127.0.0.1:{self.proxies[protocol]}/v1/chat/completions"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, body.encode(), headers), timeout=WAIT_LIMIT) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            error.read()

    def ask(self, path, **query):
        """Returns the data of a query, or an empty list if Jaeger knows none."""
        url = f"http://127.0.0.1:{self.query}/api/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=WAIT_LIMIT) as answer:
                return json.load(answer)["data"] or []
        except urllib.error.HTTPError:
            return []

    def spans(self, trace):
        return [span for found in self.ask(f"traces/{trace}") for span in found["spans"]]


def tags(span):
    return {tag["key"]: tag["value"] for tag in span["tags"]}


def parents(span):
    return [reference["spanID"] for reference in span["references"] if reference["refType"] == "CHILD_OF"]


def check_trace(stage, tally, trace, protocol, shaping):
    name = f"{protocol}, {shaping}"
    if not wait_until(lambda: len(stage.spans(trace)) >= 2):
        return tally.check(f"{name}: Jaeger has the spans", False, stage.spans(trace))
    kinds = {tags(span).get("span.kind"): span for span in stage.spans(trace)}
    tally.check(f"{name}: a SERVER and a CLIENT span", sorted(kinds) == ["client", "server"], sorted(kinds))
    server, client = kinds["server"], kinds["client"]
    tally.check(f"{name}: the caller's span is the parent", parents(server) == [CALLER], parents(server))
    tally.check(f"{name}: the CLIENT span is below the SERVER span", parents(client) == [server["spanID"]], parents(client))
    tally.check(f"{name}: the model", tags(client).get("gen_ai.request.model") == MODEL, tags(client))
    failed = "status" in shaping
    tally.check(f"{name}: an error only if the call failed", tags(client).get("error", False) is failed, tags(client))


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--jaeger", required=True)
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    clear_environment()
    tally = Tally(args.verbose)
    stage = Stage(args)
    try:
        for trace, (protocol, shaping) in CALLS.items():
            stage.call(trace, protocol, shaping)
        for trace, (protocol, shaping) in CALLS.items():
            check_trace(stage, tally, trace, protocol, shaping)
        tally.check("Jaeger lists the service", "tokengauge" in stage.ask("services"), stage.ask("services"))
        found = stage.ask("traces", service="tokengauge", tags=json.dumps({"gen_ai.request.model": MODEL}), limit=20)
        tally.check("a search by model finds every call", {trace["traceID"].zfill(32) for trace in found} == set(CALLS), found)
    finally:
        stage.stop()
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
