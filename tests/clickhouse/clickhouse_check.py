#!/usr/bin/env python3
"""Checks deploy/clickhouse and `tokengauge report --clickhouse` on a real ClickHouse engine (PyPI chdb).

    tests/clickhouse/clickhouse_check.py --binary target/release/tokengauge [--otelcol PATH] [--generated 1000000]

1. Applies the SQL files in order, also as an upgrade of a filled database.
2. Loads a request log, and compares the tables with `tokengauge report` on the same lines: counts and sums exactly, percentiles within
   the error of the t-digest.
3. Asks `tokengauge report --clickhouse` the same questions.
4. With --otelcol: sends the traffic of a proxy through the Collector's exporter, and compares the tables with the proxy's request log.
5. Runs the queries of the dashboard and of docs/how-to/history.md.
6. Checks that the parts of compose.yaml fit together.
7. Generates requests, and measures time, memory and disk.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
sys.path[:0] = [HERE, os.path.join(ROOT, "tests/python")]

import collector
import compose
import documents
import engine
import figures
import remote
import report_check
import volume

PARTS = ["upgrade", "exact", "remote", "collector", "documents", "compose", "volume"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--otelcol")
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--generated", type=int, default=1_000_000)
    parser.add_argument("--only", choices=PARTS, action="append")
    args = parser.parse_args()
    wanted = args.only or [part for part in PARTS if part != "collector" or args.otelcol]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        base = engine.Engine()
        if "upgrade" in wanted:
            upgrade(base, wrong)
        else:
            base.apply(engine.files())
        path = recent(report_check.write(folder, args.lines, seed=1), folder)
        fill(base, path)
        if "exact" in wanted:
            figures.check(base, args.binary, path, wrong)
        if "remote" in wanted:
            remote.check(base, args.binary, path, folder, wrong)
        if "collector" in wanted:
            collector.check(base, args.binary, args.otelcol, folder, wrong)
        if "documents" in wanted:
            documents.check(base, path, folder, wrong)
        if "compose" in wanted:
            compose.check(wrong)
        if "volume" in wanted:
            volume.check(base, args.binary, args.generated, wrong)
    for problem in wrong:
        print("FAIL", problem)
    print(f"{'FAILED' if wrong else 'ok'}: {', '.join(wanted)}")
    sys.exit(bool(wrong))


def upgrade(base, wrong):
    """Applies the first release, inserts a request, applies the upgrades and then everything again. No row is lost or doubled, and
    the index of the upgrade covers the stored request."""
    first = [path for path in engine.files() if os.path.basename(path) < "005"]
    later = [path for path in engine.files() if path not in first]
    line = {"time": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "outcome": "ok", "times": {"end": 1}, "call": {"labels": {"model": "m"}, "rates": {}}}
    base.apply(first)
    base.insert_events([json.dumps(line) + "\n"])
    base.apply(later)
    base.apply(engine.files())
    line["http"] = {"request_headers": {"user-agent": "claude-cli/2.1.86 (external)"}}
    line["attempts"] = {"resend_count": 2}
    line["call"]["reported_cost"] = 0.25
    base.insert_events([json.dumps(line) + "\n"])
    found = base.rows("SELECT count(), countIf(agent = 'claude-cli' AND resend_count = 2 AND reported_cost = 0.25) FROM tokengauge.requests")
    sums = {
        name: base.rows(f"SELECT sum(requests), sumIf(requests, agent = 'claude-cli') FROM tokengauge.{name}")
        for name in engine.ROLLUPS
    }
    for name, rows in [("requests", found), *sums.items()]:
        if rows != [["2", "1"]]:
            wrong.append(f"upgrade: {name} has {rows} instead of 2 rows, 1 of them with an agent")
    indexed = base.rows("SELECT countIf(secondary_indices_compressed_bytes > 0), count() FROM system.parts WHERE active AND table = 'requests'")
    if indexed[0][0] != indexed[0][1]:
        wrong.append(f"upgrade: {indexed[0][0]} of {indexed[0][1]} parts of requests have the index")
    base.truncate()


def recent(paths, folder):
    """Moves the requests to yesterday, because the table keeps 30 days. Returns one file."""
    day = (datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=1)).strftime("%Y-%m-%d")
    path = os.path.join(folder, "recent.jsonl")
    with open(path, "w") as out:
        for old in paths:
            with report_check.opened(old) as log:
                out.writelines(line.replace('"time":"2026-01-01T', f'"time":"{day}T', 1) for line in log)
    return path


def fill(base, path):
    """Inserts the log in batches of 20,000 lines, as the Collector does. Lines that are not JSON never become an event."""
    batch = []
    with open(path) as log:
        for line in log:
            try:
                json.loads(line)
            except ValueError:
                continue
            batch.append(line)
            if len(batch) == 20_000:
                base.insert_events(batch)
                batch = []
    base.insert_events(batch)


if __name__ == "__main__":
    main()
