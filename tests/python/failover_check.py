#!/usr/bin/env python3
"""One night of tokengauge: its metrics in three real stores, its alerts at a real Alertmanager, its dashboards' queries.

    failover_check.py --binary target/release/tokengauge --tools target/tools [--pictures DIR] [--verbose]

The release binary stands in front of two simulated backends. Its metrics go three ways at once: scraped by Prometheus 2;
over OTLP to a Collector, scraped there by a second Prometheus 2; and, the same bytes, over OTLP into Prometheus 3. All
three evaluate the generated rules, with their durations divided so that half an hour takes a minute, and send to one
Alertmanager with the example's routing. Calls of known pace make a night: normal load, longer prompts, another model, slow
tokens, stalls, errors, rate limits, broken streams, and nothing. Then every query of every panel is asked in every store.

--again FOLDER looks once more at a night that is over, by the folder that it printed. The last line is `N passed, N failed`; exit
0 when nothing failed.
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

from failover import checks, pages, panels, picture
from failover.checks import MayBeEmpty
from failover.load import Load
from failover.phases import LINGERING, NIGHT
from failover.scene import INTERVAL, WAYS, Scene, Stores
from rig import PATIENCE, Tally, forget_the_machine

DURATION = re.compile(r"\b(?:\d+(?:ms|[smhdwy]))+\b")

# What shows nothing in the night, and why. A row that fits no panel, or whose panels all show something, is a failure.
NO_LIMIT = "limits are told in a container that has some"
HOURS = "a process tells it when it has seen an hour"
MAY_BE_EMPTY = (
    MayBeEmpty("tokengauge-health", "Memory, of its limit", NO_LIMIT, depends=True),
    MayBeEmpty("tokengauge-health", "CPU|Memory", NO_LIMIT, query="_limit", depends=True),
    MayBeEmpty("tokengauge-health", "Anomalies", "nothing odd went by", query=r"> 0$"),
    MayBeEmpty("tokengauge-health", "Labels called other", "no dimension was full"),
    MayBeEmpty("tokengauge-health", "Request log", "every line was written", query="dropped"),
    MayBeEmpty("tokengauge-health", "Asking engines for their metrics", "every number was plausible", query="implausible"),
    MayBeEmpty("tokengauge-slo", "Burn rate of 1 h, by process", HOURS),
    MayBeEmpty("tokengauge-slo", "Objectives, by process", HOURS, query="exhaustion"),
    MayBeEmpty("tokengauge-slo", "Objectives", "the first objective's budget may be spent before its end is foreseen",
               query="time_period:days", choice=panels.ONE, depends=True),
    MayBeEmpty("tokengauge-saturation", "Tokens left", "the simulated backend limits requests alone"),
    MayBeEmpty("tokengauge-saturation", "Depth of the queue", "the hosted route has no engine that tells its queue", query="exact", choice=panels.ONE),
    MayBeEmpty("tokengauge-saturation", "Turned away here", "the hosted route lets everybody in", choice=panels.ONE),
    MayBeEmpty("tokengauge-workload", "Length of .*, now and a day ago", "the night is no day", query="offset 1d"),
    MayBeEmpty("tokengauge-workload", "Hardware by the hour.*", "the hosted route has no hardware", choice=panels.ONE),
    MayBeEmpty("tokengauge-workload", "Calls without a price", "what is hosted has prices", choice=panels.ONE),
)


class Watch:
    """Looks at the Alertmanager while the night lasts, and keeps what it saw."""

    def __init__(self, scene):
        self.scene, self.silenced, self.over = scene, set(), threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.over.wait(INTERVAL):
            for way, name, state, by in self.scene.held():
                if state == "suppressed":
                    self.silenced |= {(way, name, first) for first in by}

    def stop(self):
        self.over.set()
        self.thread.join()


def run(phase, scene, load, watch, divide):
    """One phase; says when it began and ended."""
    load.change(phase.calls)
    began = time.time()
    print(f"{time.strftime('%H:%M:%S')} {phase.name}{': ' + phase.why if phase.why else ''}", flush=True)
    least, most = phase.least * 60 / divide, phase.least * 60 / divide + PATIENCE
    while (past := time.time() - began) < most:
        time.sleep(0.5)
        if past < least:
            continue
        states = [store.alerts() for store in scene.stores.stores.values()]
        firing = all(state.get(name) == "firing" for state in states for name in phase.fires)
        silenced = all((way, second, first) in watch.silenced for way in WAYS for first, second in phase.inhibits)
        calm = not any(one == "firing" and name not in LINGERING for state in states for name, one in state.items())
        if firing and silenced and (calm or not phase.calms):
            break
    return {"name": phase.name, "began": began, "ended": time.time(), "calls": len(phase.calls)}


def night(args, rules, routing):
    """Runs it all, and writes down what is not in the stores."""
    scene = Scene(args, rules, routing)
    print(f"the night is in {scene.folder}", flush=True)
    try:
        load, watch = Load(scene.ports["listen"]), Watch(scene)
        # A store must have seen the counters before they move.
        time.sleep(3 * INTERVAL)
        began = time.time()
        phases = [run(phase, scene, load, watch, args.divide) for phase in NIGHT]
        load.stop()
        # The Alertmanager tells what is over with its group's next message.
        time.sleep(300 / args.divide + 2 * INTERVAL)
        watch.stop()
        told = {
            "began": began, "ended": time.time() - 2 * INTERVAL, "phases": phases, "latest": load.latest, "divide": args.divide,
            "records": [dataclasses.asdict(one) for one in load.records], "failed": load.failed,
            "refused": scene.splitter.refused, "arrived": scene.pager.arrived, "silenced": sorted(watch.silenced)}
        (scene.folder / "night.json").write_text(json.dumps(told))
    finally:
        scene.stop()
    return scene.folder


def looked_at(args, folder, tally):
    """All checks, on stores that hold the night."""
    told = json.loads((folder / "night.json").read_text())
    held = Stores(args, folder)
    try:
        stores, dashboards = held.stores, panels.dashboards(args.dashboards)
        tally.check("every call of the load was answered", not told["failed"], told["failed"][:3])
        tally.check("both receivers took every export", not told["refused"], told["refused"][:3])
        timeline(stores, told)
        checks.agreement(stores, tally, told)
        checks.totals(stores, tally, told)
        checks.truths(stores, tally, told)
        pages.alerts(stores, tally, told)
        pages.promptness(stores, tally, told)
        tally.check("there are dashboards", dashboards, args.dashboards)
        asked = {way: checks.PanelCheck(stores[way], told, tally, INTERVAL * 5, MAY_BE_EMPTY) for way in WAYS}
        for way, check in asked.items():
            check.all(dashboards)
            print(f"     {way}: {len(check.steady)} queries of {len(dashboards)} dashboards, variables filled in", flush=True)
            checks.true_panels(check, tally, told)
        checks.alike(asked, tally)
        used = {one for check in asked.values() for one in check.used}
        for row in MAY_BE_EMPTY:
            seen = {shown for one, shown in used if one == row}
            tally.check(f"'{row.dashboard} · {row.panel}' is rightly excused: {row.why}", seen == {False} or row.depends and seen, seen)
        if args.pictures:
            picture.draw_all(dashboards, stores["scrape"], told, pathlib.Path(args.pictures), INTERVAL * 5, tally)
    finally:
        held.stop()


def timeline(stores, told):
    """What was when, in seconds since the beginning, by the store that scrapes."""
    happened = [(phase["began"], f"---- {phase['name']}") for phase in told["phases"]]
    for name, spans in pages.histories(stores["scrape"], told).items():
        for state, since, until in spans:
            happened.append((since, f"{name} {state}"))
            if state == "firing" and until < told["ended"] - 2:
                happened.append((until, f"{name} over"))
    happened += [(at, f"  the Alertmanager tells: {name} {status}") for at, way, name, status in told["arrived"] if way == "scrape"]
    for at, what in sorted(happened):
        print(f"{at - told['began']:6.1f} s  {what}")


def generated(args, folder, tally):
    """The rules with their durations divided; they differ from the real ones in durations alone."""
    subprocess.run([args.binary, "alerts", "--divide-durations", str(args.divide), "--out", str(folder)], check=True,
                   stdout=subprocess.DEVNULL)
    for path in sorted(pathlib.Path(args.alerts).glob("*.rules.yaml")):
        bare = lambda text: DURATION.sub("…", text)
        real, copy = path.read_text(), (folder / path.name).read_text()
        tally.check(f"the copy of {path.name} differs in durations alone", bare(real) == bare(copy) and real != copy)
    return folder


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--tools", required=True, help="where tests/tools/build put Prometheus 3 and the Collector")
    cli.add_argument("--dashboards", default="dashboards")
    cli.add_argument("--alerts", default="alerts")
    cli.add_argument("--divide", type=int, default=30, help="by how much the rules' durations are divided")
    cli.add_argument("--pictures", help="draw each dashboard into this folder")
    cli.add_argument("--again", help="the folder of a night that is over")
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    # Prometheus looks back 5 min for a sample; here so much shorter, and never shorter than a machine may be late.
    args.lookback = max(300 // args.divide, 10)
    forget_the_machine()
    for tool in ("prometheus", str(pathlib.Path(args.tools) / "prometheus3"), str(pathlib.Path(args.tools) / "otelcol"), "prometheus-alertmanager"):
        version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True)
        print((version.stdout or version.stderr).splitlines()[0], flush=True)
    tally = Tally(args.verbose)
    if args.again:
        folder = pathlib.Path(args.again)
    else:
        rules = generated(args, pathlib.Path(tempfile.mkdtemp(prefix="failover-rules-")), tally)
        folder = night(args, rules, (pathlib.Path(args.alerts) / "alertmanager.yaml").read_text())
    looked_at(args, folder, tally)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
