#!/usr/bin/env python3
"""Compares the recorded numbers of eight replicas with the request logs of the eight.

    fleet_check.py --binary target/release/tokengauge [--seed 1] [--calls 400] [--verbose]

The load is skewed: replicas get very different numbers of calls, with different times to first token and output rates. One replica is slow, and one fails a
part of its calls. A real Prometheus evaluates the generated rules, with all durations divided (`DIVIDE`). The truth comes from the request logs alone: exact
percentiles, and the same percentiles read from buckets. Each check prints both. The mean of the replicas' own percentiles must differ from the truth;
otherwise the load would not show why percentiles cannot be averaged.
Needs prometheus on the path. The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import asyncio
import bisect
import datetime
import json
import math
import random
import subprocess
import sys
import time
import urllib.parse
import urllib.request

from rig import WAIT_LIMIT, Processes, Tally, clear_environment, free_port

REPLICAS = 8
# Divides 5 min to 100 s, the windows of percentiles, and 10 min to 200 s, that of the comparison of replicas.
DIVIDE = 3
# Seconds between scrapes.
SCRAPE = 2
WINDOW = 300 / DIVIDE
# Seconds in which the load is played. The load and one evaluation fit into one window.
LOAD = 36
# Seconds that nearly every call takes at most.
LONGEST = 9
# Seconds after which the rules have seen the whole load: two evaluations, and a scrape.
SETTLE = 2 * 30 / DIVIDE + 2 * SCRAPE
# Calls of a replica from which it is compared, for the short load of this check.
MIN_CALLS = 15
SLO_TARGET = 0.9
# Seconds to the first token up to which a call is good.
THRESHOLD = 0.6
# The replica with the fewest calls that is compared is slow.
SLOW, FAILING = 6, 2
# Tolerance of sums: Prometheus extrapolates each series to the window's ends, by up to a scrape interval of the window.
TOLERANCE = 0.05


class Fleet(Processes):
    """The simulated backend, the replicas and a Prometheus."""

    def __init__(self, args):
        super().__init__("fleet")
        backend, self.prometheus = free_port(), free_port()
        self.start("backend", [args.binary, "simulate", "--listen", f"127.0.0.1:{backend}", "--model", "m:jitter=0,tokens=20"], backend)
        self.listen, admins = [], []
        for number in range(REPLICAS):
            listen, admin = free_port(), free_port()
            # JSON is YAML.
            (self.folder / f"replica-{number}.yaml").write_text(json.dumps({
                "version": 1, "upstreams": {"engine": {"url": f"http://127.0.0.1:{backend}"}},
                "request_log": {"path": str(self.folder / f"replica-{number}.jsonl")}, "cardinality_limits": {"models": 2},
                "slos": [{"name": "early", "sli": "ttft", "threshold": f"{THRESHOLD * 1000:.0f}ms", "target": SLO_TARGET}]}))
            self.start(f"replica-{number}", [args.binary, "run", "--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}",
                                             "--config", str(self.folder / f"replica-{number}.yaml")], listen)
            self.listen.append(listen)
            admins.append(f"127.0.0.1:{admin}")
        self.admins = admins
        self.start_prometheus(args, admins)

    def start_prometheus(self, args, admins):
        (self.folder / "values.yaml").write_text(json.dumps({"replica": {"min_calls": MIN_CALLS}}))
        rules = self.folder / "rules"
        subprocess.run([args.binary, "alerts", "--values", str(self.folder / "values.yaml"), "--divide-durations", str(DIVIDE), "--out", str(rules)],
                       check=True, stdout=subprocess.DEVNULL)
        (self.folder / "prometheus.json").write_text(json.dumps({
            "global": {"scrape_interval": f"{SCRAPE}s"}, "rule_files": [str(rules / "*.rules.yaml")],
            "scrape_configs": [{"job_name": "tokengauge", "static_configs": [{"targets": admins}]}]}))
        self.start("prometheus", ["prometheus", f"--config.file={self.folder / 'prometheus.json'}", f"--storage.tsdb.path={self.folder / 'data'}",
                                  f"--web.listen-address=127.0.0.1:{self.prometheus}"], self.prometheus)

    def ask(self, query):
        """Returns the labels and the value of each series."""
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=WAIT_LIMIT) as answer:
            return [(one["metric"], float(one["value"][1])) for one in json.load(answer)["data"]["result"]]

    def value(self, query):
        """Returns the value of the only series, or None."""
        found = self.ask(query)
        return found[0][1] if len(found) == 1 else None

    def log(self, since=0.0):
        """Returns the lines of all request logs by replica, of requests that began after `since`."""
        logs = []
        for number in range(REPLICAS):
            lines = (self.folder / f"replica-{number}.jsonl").read_text().splitlines()
            records = [json.loads(line) for line in lines]
            logs.append([record for record in records if unix(record["time"]) >= since])
        return logs


def unix(text):
    return datetime.datetime.fromisoformat(text[:26].rstrip("Z") + "+00:00").timestamp()


def shares(args, chance):
    """Returns the number of calls of each replica: each gets about two thirds of the calls of the one before."""
    weights = [1.6 ** -number * chance.uniform(0.8, 1.2) for number in range(REPLICAS)]
    return [max(MIN_CALLS + 10, round(args.calls * weight / sum(weights))) for weight in weights]


def headers(number, chance):
    """Returns how the backend serves a call of this replica."""
    first = chance.lognormvariate(math.log(0.25 * (1 + number / 4) * (5 if number == SLOW else 1)), 0.3)
    gap = chance.uniform(0.02, 0.03) * (3 if number == SLOW else 1)
    fails = number == FAILING and chance.random() < 0.3
    return {"ttft-us": round(first * 1e6), "gap-us": round(gap * 1e6), **({"status": 503} if fails else {})}


async def call(port, model, shaping):
    body = json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": "Describe the sea."}]}).encode()
    lines = "".join(f"x-simulate-{key}: {value}\r\n" for key, value in shaping.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n{lines}"
                 f"content-length: {len(body)}\r\n\r\n".encode() + body)
    await reader.read(-1)
    writer.close()


async def warm_up(fleet):
    """Creates every series that the load increases, because Prometheus cannot see the first increase of a new series."""
    for port in fleet.listen:
        for model in ("m", "n", "others"):
            for shaping in ({"ttft-us": 5000, "gap-us": 10000}, {"status": 503}):
                await call(port, model, shaping)


async def play(fleet, counts, chance):
    """Spreads the calls of each replica over the load. Every tenth call is of a model beyond the limit of label values."""
    async def one(number, at, shaping, model):
        await asyncio.sleep(at)
        await call(fleet.listen[number], model, shaping)
    plan = [(number, chance.uniform(0, LOAD - LONGEST), headers(number, chance), "others" if index % 10 == 9 else "m")
            for number, count in enumerate(counts) for index in range(count)]
    await asyncio.gather(*(one(*call_plan) for call_plan in plan))


def quantile(values, share):
    """Returns the exact quantile: the smallest value with at least this share of the values up to it."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def bucketed(values, share, bounds):
    """Returns the quantile as `histogram_quantile` reads it from buckets with these upper bounds."""
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect.bisect_left(bounds, value)] += 1
    rank, below = share * len(values), 0
    for index, count in enumerate(counts):
        if below + count >= rank and count:
            if index == len(bounds):
                return bounds[-1]
            lower = bounds[index - 1] if index else 0.0
            return lower + (bounds[index] - lower) * (rank - below) / count
        below += count
    return bounds[-1]


def near(found, expected, tolerance=TOLERANCE):
    return found is not None and abs(found - expected) <= tolerance * abs(expected)


def check_percentiles(fleet, tally, logs):
    for series, metric, share, read in (
            ("model:tokengauge_time_to_first_token:quantile5m", "tokengauge_time_to_first_token_seconds", 0.5, ttft),
            ("model:tokengauge_time_to_first_token:quantile5m", "tokengauge_time_to_first_token_seconds", 0.95, ttft),
            ("model:tokengauge_time_to_first_token:quantile5m", "tokengauge_time_to_first_token_seconds", 0.99, ttft),
            ("model:tokengauge_request_output_token_rate:quantile5m", "tokengauge_request_output_token_rate_per_second", 0.05, rate),
            ("model:tokengauge_request_output_token_rate:quantile5m", "tokengauge_request_output_token_rate_per_second", 0.5, rate)):
        by_replica = [[value for record in log if model(record) == "m" and (value := read(record)) is not None] for log in logs]
        values = [value for log in by_replica for value in log]
        bounds = sorted({float(labels["le"]) for labels, _ in fleet.ask(f"count by (le) ({metric}_bucket)")} - {math.inf})
        if not bounds or not values:
            tally.check(f"{series}: Prometheus has buckets, and the logs have values", False, f"{len(bounds)} bounds, {len(values)} values")
            continue
        recorded = fleet.value(f'{series}{{gen_ai_request_model="m", quantile="{share}"}}')
        exact, from_buckets = quantile(values, share), bucketed(values, share, bounds)
        name = f"{series}, quantile {share}"
        text = f"recorded {recorded}, from buckets of the logs {from_buckets:.4f}, exact {exact:.4f}, of {len(values)} calls"
        print(f"     {name}: {text}", flush=True)
        tally.check(f"{name} equals the quantile of the logs' values in the same buckets", near(recorded, from_buckets), text)
        bucket = bisect.bisect_left(bounds, exact)
        lower, upper = (bounds[bucket - 1] if bucket else 0), (bounds[bucket] if bucket < len(bounds) else math.inf)
        tally.check(f"{name} is in the bucket of the exact quantile", recorded is not None and lower * 0.98 <= recorded <= upper * 1.02, text)
        if share == 0.99:
            own = [quantile(log, share) for log in by_replica if log]
            mean = sum(own) / len(own)
            tally.check(f"the mean of the replicas' quantiles {share} is no substitute", not near(mean, exact, 0.2), f"mean {mean:.4f}, {text}")


def ttft(record):
    return record.get("times", {}).get("first_token")


def rate(record):
    return record.get("call", {}).get("rates", {}).get("output")


def model(record):
    return record.get("call", {}).get("labels", {}).get("model")


def is_bad(record):
    """Returns the result of the SLO: the first token came late, or a failure of the upstream came before it."""
    first = ttft(record)
    return first > THRESHOLD if first is not None else record["error_source"] in ("upstream", "proxy")


def check_slo_ratio(fleet, tally, logs):
    counted = [record for log in logs for record in log]
    bad = sum(map(is_bad, counted)) / len(counted)
    recorded = fleet.value('slo:sli_error:ratio_rate5m{sloth_slo="early"}')
    tally.check("the ratio of bad events equals that of the logs", near(recorded, bad), f"recorded {recorded}, truth {bad}")
    own = [sum(map(is_bad, log)) / len(log) for log in logs if log]
    mean = sum(own) / len(own)
    tally.check("the mean of the replicas' ratios is no substitute", not near(mean, bad, 0.2), f"mean {mean}, truth {bad}")


def check_replicas(fleet, tally):
    slow, failing = fleet.admins[SLOW], fleet.admins[FAILING]
    for quantity, wanted in (("time_to_first_token", slow), ("output_rate", slow)):
        found = fleet.ask(f'instance:tokengauge_slowdown:ratio{{quantity="{quantity}", gen_ai_request_model="m"}}')
        worst = max(found, key=lambda one: one[1], default=({}, 0))
        print(f"     {quantity}: {sorted((round(value, 2), labels['instance']) for labels, value in found)}", flush=True)
        tally.check(f"all replicas have a {quantity} to compare", len(found) == REPLICAS, found)
        tally.check(f"the replica with the slowest {quantity} is named", worst[0].get("instance") == wanted and worst[1] > 1.5, (worst, wanted))
    found = fleet.ask('instance:tokengauge_requests_failed:excess{gen_ai_request_model="m"}')
    worst = max(found, key=lambda one: one[1], default=({}, 0))
    tally.check("the replica that fails is named", worst[0].get("instance") == failing and worst[1] > 0.1, (worst, failing))
    alerts = {(labels["instance"], labels["quantity"]) for labels, _ in fleet.ask('ALERTS{alertname="LLMReplicaDeviating"}')}
    wanted = {(slow, "time_to_first_token"), (slow, "output_rate"), (failing, "error_share")}
    tally.check("the alert names these replicas and no other", alerts == wanted, (alerts, wanted))


def check_sums(fleet, tally, logs):
    """Counters can be added, so their sums are the truth."""
    counted = sum(len(log) for log in logs)
    recorded = fleet.value(f"sum(increase(tokengauge_requests_finished_total[{WINDOW:.0f}s]))")
    tally.check("the sum of the counters equals the number of lines", near(recorded, counted), f"{recorded}, {counted} lines")
    peak = fleet.value('model:tokengauge_output_tokens:peak5m{gen_ai_request_model="m"}')
    own = [value for _, value in fleet.ask('max by (instance) (max_over_time('
           f'tokengauge_token_throughput_per_second{{gen_ai_request_model="m", tokengauge_window="peak"}}[{WINDOW:.0f}s]))')]
    mean = sum(20 for log in logs for record in log if model(record) == "m" and ttft(record) is not None) / LOAD
    tally.check("the peak of all replicas is between the mean rate and the sum of the replicas' peaks", peak is not None and mean <= peak <= sum(own),
                f"peak {peak}, mean {mean}, peaks {own}")


def main():
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--binary", required=True)
    cli.add_argument("--seed", type=int, default=1, help="seed of the load")
    cli.add_argument("--calls", type=int, default=400, help="calls of all replicas together")
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    clear_environment()
    tally, chance = Tally(args.verbose), random.Random(args.seed)
    fleet = Fleet(args)
    try:
        asyncio.run(warm_up(fleet))
        # The window of the load must not contain the warm-up.
        time.sleep(WINDOW + SETTLE)
        counts = shares(args, chance)
        print(f"     calls by replica: {counts}", flush=True)
        began = time.time()
        asyncio.run(play(fleet, counts, chance))
        time.sleep(max(0.0, began + LOAD - time.time()) + SETTLE)
        took = time.time() - began
        tally.check("the load and its evaluation are in one window", took < WINDOW, f"{took} s: the machine is too busy for this check")
        logs = fleet.log(began)
        check_percentiles(fleet, tally, logs)
        check_sums(fleet, tally, logs)
        check_slo_ratio(fleet, tally, logs)
        check_replicas(fleet, tally)
    finally:
        fleet.stop()
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
