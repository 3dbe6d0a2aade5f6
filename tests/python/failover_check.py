#!/usr/bin/env python3
"""A simulated night of incidents: metrics in three real stores, alerts at a real Alertmanager, and the queries of every dashboard.

    failover_check.py --binary target/release/tokengauge --tools target/tools [--verbose]

The release binary runs in front of two simulated backends. Its metrics take three pipelines: scraped by Prometheus 2; over OTLP to a
Collector that a second Prometheus 2 scrapes; and the same bytes over OTLP into Prometheus 3. All three stores evaluate the generated rules
with divided durations, so that half an hour takes a minute. They send to one Alertmanager with the example's routing. Calls with a known
token rate produce normal load, longer prompts, another model, slow tokens, stalls, errors, rate limits, broken streams, and no traffic.
Afterwards every query of every panel runs in every store.

--again FOLDER repeats the checks on a finished run, whose folder the program printed. The last line is `N passed, N failed`; exit
status 0 if nothing failed.
"""
import argparse
import dataclasses
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

from failover import checks, pages, panels
from failover.checks import MayBeEmpty
from failover.load import Load
from failover.phases import LINGERING, PHASES
from failover.scene import INTERVAL, PIPELINES, Scene, Stores
from rig import Tally, clear_environment

# Seconds that a phase may take longer than planned, until its alerts fire.
EXTENSION = 60
DURATION = re.compile(r"\b(?:\d+(?:ms|[smhdwy]))+\b")

# Panels that may be empty in this run, and why. A row without a matching panel, or whose panels all have data, is a failure.
NO_LIMIT = "limits are reported only in a container with limits"
HOURS = "a process reports it only after an hour"
MAY_BE_EMPTY = (
    MayBeEmpty("tokengauge-health", "Memory / limit", NO_LIMIT, depends=True),
    MayBeEmpty("tokengauge-health", "CPU|Memory", NO_LIMIT, query="_limit", depends=True),
    MayBeEmpty("tokengauge-health", "Parse errors", "there were no parse errors", query=r"> 0$"),
    MayBeEmpty("tokengauge-health", "Scheduling delay p99", "the observer was never late", query="snapshot_age", depends=True),
    MayBeEmpty("tokengauge-health", "Exports", "every export succeeded at once", query="retries", depends=True),
    MayBeEmpty("tokengauge-health", "Label overflow", "no dimension reached its limit"),
    MayBeEmpty("tokengauge-health", "Request log", "every line was written", query="dropped"),
    MayBeEmpty("tokengauge-health", "Engine scrapes", "every number was plausible", query="implausible"),
    MayBeEmpty("tokengauge-overview", "Firing alerts, all routes", "alerts fire only in the incidents", depends=True),
    MayBeEmpty("tokengauge-slo", "Burn rate of 1 h, by process", HOURS),
    MayBeEmpty("tokengauge-slo", "SLOs, by process", HOURS, query="exhaustion"),
    MayBeEmpty("tokengauge-slo", "SLOs", "the first objective's budget may be spent before its exhaustion is predicted",
               query="time_period:days", choice=panels.ONE, depends=True),
    MayBeEmpty("tokengauge-saturation", "Tokens remaining", "the simulated backend limits only requests"),
    MayBeEmpty("tokengauge-saturation", "Queue depth, all models", "the hosted route has no engine that reports its queue", query="exact", choice=panels.ONE),
    MayBeEmpty("tokengauge-saturation", "Rejected by concurrency limit, all models", "the hosted route rejects no request", choice=panels.ONE),
    MayBeEmpty("tokengauge-workload", ".* length, now and a day ago", "the run is shorter than a day", query="offset 1d"),
    MayBeEmpty("tokengauge-workload", "GPU cost per 1M output tokens, all models", "the hosted route has no hardware", choice=panels.ONE),
    MayBeEmpty("tokengauge-workload", "Calls without a price", "hosted models have prices", choice=panels.ONE),
)


class Watch:
    """Polls the Alertmanager during the run and keeps the results."""

    def __init__(self, scene):
        self.scene, self.silenced, self.over = scene, set(), threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.over.wait(INTERVAL):
            for pipeline, name, state, by in self.scene.held():
                if state == "suppressed":
                    self.silenced |= {(pipeline, name, first) for first in by}

    def stop(self):
        self.over.set()
        self.thread.join()


def run(phase, scene, load, watch, divide):
    """Runs one phase. Returns its start and end."""
    load.change(phase.calls)
    began = time.time()
    print(f"{time.strftime('%H:%M:%S')} {phase.name}{': ' + phase.why if phase.why else ''}", flush=True)
    least, most = phase.least * 60 / divide, phase.least * 60 / divide + EXTENSION
    while (past := time.time() - began) < most:
        time.sleep(0.5)
        if past < least:
            continue
        states = [store.alerts() for store in scene.stores.stores.values()]
        firing = all(state.get(name) == "firing" for state in states for name in phase.fires)
        silenced = all((pipeline, second, first) in watch.silenced for pipeline in PIPELINES for first, second in phase.inhibits)
        calm = not any(one == "firing" and name not in LINGERING for state in states for name, one in state.items())
        if firing and silenced and (calm or not phase.calms):
            break
    return {"name": phase.name, "began": began, "ended": time.time(), "calls": len(phase.calls)}


def simulate(args, rules, routing):
    """Runs all phases, and writes a file with the data that the stores lack."""
    scene = Scene(args, rules, routing)
    print(f"the data of the run is in {scene.folder}", flush=True)
    try:
        load, watch = Load(scene.ports["listen"]), Watch(scene)
        # The stores need a first sample of the counters before traffic starts.
        time.sleep(3 * INTERVAL)
        began = time.time()
        phases = [run(phase, scene, load, watch, args.divide) for phase in PHASES]
        load.stop()
        # The Alertmanager reports resolved alerts with the next notification of their group.
        time.sleep(300 / args.divide + 2 * INTERVAL)
        watch.stop()
        data = {
            "began": began, "ended": time.time() - 2 * INTERVAL, "phases": phases, "latest": load.latest, "divide": args.divide,
            "records": [dataclasses.asdict(one) for one in load.records], "failed": load.failed,
            "refused": scene.splitter.refused, "arrived": scene.pager.arrived, "silenced": sorted(watch.silenced)}
        (scene.folder / "night.json").write_text(json.dumps(data))
    finally:
        scene.stop()
    return scene.folder


def run_checks(args, folder, tally):
    """Runs all checks on stores with the data of the run."""
    data = json.loads((folder / "night.json").read_text())
    held = Stores(args, folder)
    try:
        stores, dashboards = held.stores, panels.dashboards(args.dashboards)
        tally.check("every call of the load got a response", not data["failed"], data["failed"][:3])
        tally.check("both receivers accepted every export", not data["refused"], data["refused"][:3])
        timeline(stores, data)
        checks.agreement(stores, tally, data)
        checks.totals(stores, tally, data)
        checks.check_truths(stores, tally, data)
        pages.alerts(stores, tally, data)
        pages.page_delay(stores, tally, data)
        tally.check("there are dashboards", dashboards, args.dashboards)
        panel_checks = {pipeline: checks.PanelCheck(stores[pipeline], data, tally, INTERVAL * 5, MAY_BE_EMPTY) for pipeline in PIPELINES}
        for pipeline, check in panel_checks.items():
            check.all(dashboards)
            print(f"     {pipeline}: {len(check.steady)} queries of {len(dashboards)} dashboards, with variables substituted", flush=True)
            checks.true_panels(check, tally, data)
        checks.compare_queries(panel_checks, tally)
        used = {one for check in panel_checks.values() for one in check.used}
        for row in MAY_BE_EMPTY:
            seen = {shown for one, shown in used if one == row}
            tally.check(f"'{row.dashboard} · {row.panel}' is empty as expected: {row.why}", seen == {False} or row.depends and seen, seen)
    finally:
        held.stop()


def timeline(stores, data):
    """Prints the events in seconds since the start, as seen by the scraping store."""
    happened = [(phase["began"], f"---- {phase['name']}") for phase in data["phases"]]
    for name, spans in pages.histories(stores["scrape"], data).items():
        for state, since, until in spans:
            happened.append((since, f"{name} {state}"))
            if state == "firing" and until < data["ended"] - 2:
                happened.append((until, f"{name} over"))
    happened += [(at, f"  the Alertmanager reports: {name} {status}") for at, pipeline, name, status in data["arrived"] if pipeline == "scrape"]
    for at, what in sorted(happened):
        print(f"{at - data['began']:6.1f} s  {what}")


def generated(args, folder, tally):
    """Writes the rules with divided durations, and checks that nothing else differs from the original rules."""
    subprocess.run([args.binary, "alerts", "--divide-durations", str(args.divide), "--out", str(folder)], check=True,
                   stdout=subprocess.DEVNULL)
    for path in sorted(pathlib.Path(args.alerts).glob("*.rules.yaml")):
        bare = lambda text: DURATION.sub("…", text)
        real, copy = path.read_text(), (folder / path.name).read_text()
        tally.check(f"the copy of {path.name} differs only in durations", bare(real) == bare(copy) and real != copy)
    return folder


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--tools", required=True, help="folder in which tests/tools/build installed Prometheus 3 and the Collector")
    cli.add_argument("--dashboards", default="dashboards")
    cli.add_argument("--alerts", default="alerts")
    cli.add_argument("--divide", type=int, default=30, help="divisor of the rules' durations")
    cli.add_argument("--again", help="folder of a finished run to check again")
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    # Prometheus looks back 5 min for a sample. Here the lookback is divided too, but stays longer than the delay of a busy machine.
    args.lookback = max(300 // args.divide, 10)
    clear_environment()
    for tool in ("prometheus", str(pathlib.Path(args.tools) / "prometheus3"), str(pathlib.Path(args.tools) / "otelcol"), "prometheus-alertmanager"):
        version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True)
        print((version.stdout or version.stderr).splitlines()[0], flush=True)
    tally = Tally(args.verbose)
    if args.again:
        folder = pathlib.Path(args.again)
    else:
        rules = generated(args, pathlib.Path(tempfile.mkdtemp(prefix="failover-rules-")), tally)
        folder = simulate(args, rules, (pathlib.Path(args.alerts) / "alertmanager.yaml").read_text())
    run_checks(args, folder, tally)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
