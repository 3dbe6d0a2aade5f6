#!/usr/bin/env python3
"""Runs mixed traffic through tokengauge for a long time, with faults on every side.

    soak_check.py --binary target/release/tokengauge [--seconds 60] [--clients 48] [--verbose]

Clients of nine API formats, some with the deviations of real servers, read, read slowly and abort. The backend resets, closes, hangs, sends garbage and refuses. The collector fails in
five ways. The configuration is reloaded every few seconds. Checked while this runs: started = finished + in flight in every scrape, and bounds
of memory and descriptors. Checked at the end: every byte, the number of requests, the tokens of complete responses, and the exit status.
The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import asyncio
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from rig import Tally, clear_environment, free_port
from soak.backend import Backend
from soak.client import Client, Totals
from soak.collector import Collector
from soak.formats import FORMATS

CONFIGURATION = """version: 1
listeners: [{{address: "127.0.0.1:{listen}"}}]
admin: {{address: "127.0.0.1:{admin}"}}
upstreams:
  backend:
    url: http://127.0.0.1:{backend}
    timeouts: {{connect: 10s, response_header: 10s}}
routes: [{{upstream: backend}}]
request_log: {{path: "{log}", rotate: {{max_files: 100}}}}
slos:
  - {{name: availability, sli: availability, target: 99.5%}}
  - {{name: ttft, sli: ttft, threshold: {threshold}ms, target: 95%}}
"""
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


class Sampler:
    """The pages and the resources of the running proxy."""

    def __init__(self, process, admin):
        self.process, self.admin, self.scrapes, self.memory, self.descriptors = process, admin, 0, [], []

    async def metrics(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.admin)
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        page = (await asyncio.wait_for(reader.read(), 30)).decode()
        writer.close()
        self.scrapes += 1
        return [found.groups() for found in map(SAMPLE.match, page.splitlines()) if found]

    def sample(self):
        """Records the resident memory in bytes and the number of open descriptors."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        self.memory.append(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024)
        self.descriptors.append(len(os.listdir(f"/proc/{self.process.pid}/fd")))


def total(metrics, name, **labels):
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(float(value) for known, text, value in metrics if known == name and all(one in (text or "").split(",") for one in wanted))


def imbalance(metrics):
    started, finished = total(metrics, "tokengauge_requests_started_total"), total(metrics, "tokengauge_requests_finished_total")
    return int(started - finished - total(metrics, "tokengauge_active_requests"))


async def soak(args, tally):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
    backend, collector, totals = Backend(), Collector(), Totals()
    await backend.start()
    await collector.start()
    listen, admin, threshold = free_port(), free_port(), 1000
    file = folder / "tokengauge.yaml"

    def configure():
        text = CONFIGURATION.format(listen=listen, admin=admin, backend=backend.address[1], log=folder / "requests.jsonl", threshold=threshold)
        file.with_suffix(".new").write_text(text)
        file.with_suffix(".new").rename(file)

    configure()
    log = open(folder / "proxy.log", "w")
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.address[1]}", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                   "OTEL_METRIC_EXPORT_INTERVAL": "1000", "OTEL_TRACES_SAMPLER": "always_on", "OTEL_EXPORTER_OTLP_TIMEOUT": "2000"}
    process = subprocess.Popen([args.binary, "run", "--config", str(file)], env=environment, stdout=log, stderr=subprocess.STDOUT)
    sampler = Sampler(process, admin)
    for _ in range(200):
        try:
            metrics = await sampler.metrics()
            break
        except OSError:
            await asyncio.sleep(0.05)
    end = time.monotonic() + args.seconds
    flapping = asyncio.create_task(collector.flap(max(2, args.seconds / 30)))
    clients = [Client(("127.0.0.1", listen), FORMATS, totals, seed) for seed in range(args.clients)]
    running = [asyncio.create_task(one.run(lambda: time.monotonic() > end)) for one in clients]
    unbalanced, reloads, next_report = [], 0, time.monotonic() + 60
    while time.monotonic() < end:
        await asyncio.sleep(1)
        metrics = await sampler.metrics()
        unbalanced += [difference for difference in [imbalance(metrics)] if difference]
        sampler.sample()
        if sampler.scrapes % 5 == 0:
            threshold = 1500 if threshold == 1000 else 1000
            configure()
            process.send_signal(signal.SIGHUP)
            reloads += 1
        if time.monotonic() > next_report:
            next_report += 60
            print(f"     {totals.sent} requests, {sampler.memory[-1] / 1e6:.1f} MB, {sampler.descriptors[-1]} descriptors", flush=True)
    await asyncio.gather(*running)
    for _ in range(100):
        metrics = await sampler.metrics()
        if total(metrics, "tokengauge_requests_finished_total") >= totals.sent:
            break
        await asyncio.sleep(0.1)
    flapping.cancel()

    check = tally.check
    check("clients received every byte", not totals.problems, "; ".join(totals.problems[:8]))
    check("there were whole, broken and aborted responses", min(totals.whole, totals.broken, totals.aborted) > 0, totals)
    check("started = finished + in flight in every scrape", not unbalanced, f"differences {unbalanced[:20]} in {sampler.scrapes} scrapes")
    check("no request is in flight at the end", total(metrics, "tokengauge_active_requests") == 0)
    finished = total(metrics, "tokengauge_requests_finished_total")
    check("each request is counted once", totals.sent <= finished <= totals.sent + totals.unknown, f"{finished} of {totals.sent} (+ {totals.unknown})")
    # A machine that is too busy for the observer loses observations, and counts them. Then there are fewer tokens, never more.
    unobserved = int(total(metrics, "tokengauge_self_observer_unobserved_requests_total"))
    if unobserved:
        print(f"     {unobserved} requests were not observed completely", flush=True)

    def is_sum(found, wanted):
        return found == wanted > 0 if not unobserved else 0 < found <= wanted

    for kind in FORMATS:
        wanted = totals.tokens.get(kind.model, 0)
        labels = {"gen_ai_request_model": kind.model}
        reported = sum(total(metrics, "tokengauge_reported_tokens_total", tokengauge_token_kind=part, **labels) for part in ("output", "reasoning", "hidden"))
        check(f"{kind.name}: reported output tokens", is_sum(reported, wanted), f"{reported} of {wanted}")
        if kind.counted:
            counted = total(metrics, "tokengauge_tokens_total", gen_ai_token_type="output", **labels)
            check(f"{kind.name}: counted output tokens", is_sum(counted, wanted), f"{counted} of {wanted}")
    # The first third fills pools, caches and series. Afterwards nothing may grow.
    third = len(sampler.memory) // 3
    early, late = max(sampler.memory[:third]), max(sampler.memory[-third:])
    check("memory does not grow", late < early * 1.15 + 8e6, f"{early / 1e6:.1f} MB in the first third, {late / 1e6:.1f} MB in the last third")
    early, late = max(sampler.descriptors[:third]), max(sampler.descriptors[-third:])
    check("descriptors do not grow", late <= early * 1.15 + 16, f"{early} in the first third, {late} in the last third")
    states = {"accepts", "unavailable", "hangs", "rejects", "closes"}
    check("the collector received exports in every state", collector.seen >= states and collector.exports > 0, collector.seen)
    process.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(process.wait, 60)
    check("the proxy exits with 0 on SIGTERM", code == 0, code)
    text = (folder / "proxy.log").read_text()
    check("the log contains no panic", "panicked" not in text, folder)
    check("each reload is logged", text.count("configuration reloaded") >= reloads, f"{text.count('configuration reloaded')} of {reloads}")
    lines = (folder / "requests.jsonl").read_text().count("\n") + sum(one.read_bytes().count(b"\n") for one in folder.glob("requests.jsonl.*"))
    check("the request log has one line for each request", lines == finished, f"{lines} of {finished}")
    print(f"     {args.seconds} s: {totals.sent} requests ({totals.whole} whole, {totals.broken} broken, {totals.aborted} aborted), "
          f"{sum(totals.tokens.values())} tokens, {sampler.scrapes} scrapes, {reloads} reloads, {collector.exports} exports; "
          f"memory {early and max(sampler.memory[:third]) / 1e6:.1f} to {max(sampler.memory[-third:]) / 1e6:.1f} MB, descriptors {early} to {late}", flush=True)


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--seconds", type=int, default=60)
    cli.add_argument("--clients", type=int, default=48)
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    clear_environment()
    tally = Tally(args.verbose)
    asyncio.run(soak(args, tally))
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
