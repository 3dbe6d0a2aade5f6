#!/usr/bin/env python3
"""Checks exported spans, metrics and logs against the semantic conventions and the own registry, as Weaver's live check does.

    conventions_check.py --binary target/release/tokengauge [--write] [--verbose]

All example exchanges go through the proxy, with a session, prices and content capture. The OTLP data that arrives must have only names that the
conventions or telemetry/registry define, with their types, units, instruments and required attributes. Then the spans are read as
Langfuse, Phoenix and OpenLIT read them. --write replaces the section of docs/explanation/agreement.md. Needs the packages of requirements.txt.
The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import json
import os
import signal
import sys

from judges import page, viewers
from judges.conventions import ROOT, Registry, plain_value
from judges.exchanges import Backend, Exchange
from judges.otlp import Receiver
from rig import WAIT_LIMIT, Processes, Tally, clear_environment, free_port, wait_until

PAGE = ROOT / "docs/explanation/agreement.md"
CLIENT = 3
CONVENTIONS = """## Semantic conventions and own registry

The check sends all example exchanges through the proxy, with content capture. It compares each exported span, metric and log event with the GenAI conventions 0.1.0, the semantic conventions 1.45.0 and the registry in [telemetry/registry](../../telemetry/registry/manifest.yaml). The rules are those of the live check of OpenTelemetry Weaver: unknown names, wrong types, units and instruments, missing attributes, and names that are the first part of other names. Weaver itself is in no package registry, so a script of this repository applies the rules."""
VIEWERS = """## Viewers of traces

Langfuse, Phoenix and OpenLIT read the GenAI attributes of spans. The check reads the CLIENT spans of all example exchanges as these viewers do, and compares each value. To show the cost of tokengauge in Langfuse and OpenLIT, copy `tokengauge.cost.amount` to `usage.cost` below `gen_ai` in a Collector (processor `attributes`). Both viewers expect US dollars."""


class Stage(Processes):
    """The proxy between the client and the backend."""

    def __init__(self, binary, backend, receiver):
        super().__init__("conventions")
        self.listen = free_port()
        prices = {"version": 1, "currency": "USD", "models": [{"model": "*", "input": 1, "output": 2}]}
        (self.folder / "prices.yaml").write_text(json.dumps(prices))
        configuration = {
            "version": 1,
            "listeners": [{"address": f"127.0.0.1:{self.listen}"}],
            "upstreams": {"recorded": {"url": f"http://127.0.0.1:{backend.port}"}},
            "routes": [{"upstream": "recorded", "content": {"capture": True}}],
            "cost": {"prices": str(self.folder / "prices.yaml")},
        }
        (self.folder / "tokengauge.yaml").write_text(json.dumps(configuration))
        command = [binary, "run", "--config", str(self.folder / "tokengauge.yaml"), "--admin", f"127.0.0.1:{free_port()}"]
        self.proxy = self.start("proxy", command, self.listen, {
            **os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.address, "OTEL_LOGS_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "always_on",
            "OTEL_METRIC_EXPORT_INTERVAL": "500", "OTEL_BSP_SCHEDULE_DELAY": "200"})


def export(binary, exchanges):
    """Sends each exchange through the proxy. Returns what the proxy exported until its end."""
    receiver = Receiver()
    stage = Stage(binary, Backend(exchanges), receiver)
    try:
        for exchange in exchanges:
            # The client's session, in the header of an agent.
            exchange.send(stage.listen, {"x-exchange": exchange.name, "x-session-id": "session-of-the-check"})
        wait_until(lambda: sum(span.kind == CLIENT for span in receiver.spans) >= len(exchanges))
        stage.proxy.send_signal(signal.SIGTERM)
        stage.proxy.wait(WAIT_LIMIT)
    finally:
        stage.stop()
    return receiver


def problems(registry, receiver):
    """Returns each problem once, with the name of the first signal that has it."""
    found = dict.fromkeys(registry.own_problems())
    for span in receiver.spans:
        found |= dict.fromkeys(registry.span_problems(span))
    for metric in receiver.metrics.values():
        found |= dict.fromkeys(registry.metric_problems(metric))
    for log in receiver.logs:
        found |= dict.fromkeys(registry.log_problems(log))
    return list(found)


def self_test(registry, receiver, tally):
    """A registry that lacks a name, or has another type, must be noticed."""
    wanted = {"gen_ai.usage.input_tokens": "type_mismatch", "tokengauge.outcome": "missing_attribute"}
    kept = {key: registry.attributes[key] for key in wanted}
    registry.attributes["gen_ai.usage.input_tokens"] = "string"
    del registry.attributes["tokengauge.outcome"]
    found = problems(registry, receiver)
    for key, rule in wanted.items():
        tally.check(f"a wrong registry is noticed: {rule}", any(one.startswith(rule) and key in one for one in found), found[:5])
    registry.attributes.update(kept)


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--write", action="store_true")
    cli.add_argument("--verbose", action="store_true")
    options = cli.parse_args()
    clear_environment()
    tally, registry = Tally(options.verbose), Registry()
    exchanges = [Exchange(path) for path in sorted((ROOT / "tests/fixtures/exchanges").glob("*/*.http"))]
    exchanges = [exchange for exchange in exchanges if exchange.is_http()]
    receiver = export(options.binary, exchanges)
    client = [span for span in receiver.spans if span.kind == CLIENT]
    tally.check("every exchange has a CLIENT span", len(client) == len(exchanges), (len(client), len(exchanges)))
    found = problems(registry, receiver)
    for problem in found:
        tally.check(problem, False)
    self_test(registry, receiver, tally)
    spans = [{one.key: plain_value(one.value)[1] for one in span.attributes} for span in client]
    rows = viewers.compare(spans, tally)
    keys = {one.key for span in receiver.spans for one in span.attributes}
    counts = [["example exchanges", str(len(exchanges))], ["spans", str(len(receiver.spans))], ["different span attributes", str(len(keys))],
              ["metrics", str(len(receiver.metrics))], ["log events", str(sum(bool(log.event_name) for log in receiver.logs))]]
    text = f"\n{CONVENTIONS}\n\n{page.table(['checked', 'number'], counts)}\n\n{VIEWERS}\n\n{page.table(['viewer', 'quantity', 'attribute', ''], rows)}\n"
    if options.write:
        page.write(PAGE, "conventions", text)
    else:
        old = page.stale(PAGE, "conventions", text)
        tally.check("docs/explanation/agreement.md is up to date; otherwise run `just judge conventions --write`", old is None, old)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
