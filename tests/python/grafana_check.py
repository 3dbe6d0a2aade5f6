#!/usr/bin/env python3
"""Dashboards against Grafana's own types: whatever they say must be something that Grafana knows.

    grafana_check.py dashboards/*.json

Grafana publishes the types of its dashboards, panels and queries for each of its versions (grafana-foundation-sdk, made from
the schemas in Grafana's source). Each file is read into these types and written again: a key that Grafana has no field
for, or a value that it takes for something else, does not come back, and fails. Run it with each version that has types on
the path. The last line is `N passed, N failed`; exit 0 when nothing failed.
"""
import argparse
import copy
import json
import pathlib
import re
import sys

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

# What the types leave out and Grafana reads all the same.
KNOWN = {
    # Which fields an annotation has depends on its data source: these are those of Prometheus'.
    r"\.annotations\.list\[\]\.(expr|step|tagKeys|textFormat|titleFormat|useValueForTime)",
    # Of a new dashboard: null, which is left out.
    r"\.id",
    # Nothing is all.
    r"\.templating\.list\[\]\.allValue",
    # Of a chart of points: Grafana before 11.1 reads the one, from 11.1 on the other, and each leaves the other's alone.
    r"\.panels\[\]\.options\.(dims|mapping)",
    # What the editor shows of a variable's query.
    r"\.templating\.list\[\]\.definition",
}


def lost(ours, theirs, at=""):
    """The paths of what is in `ours` and not, or not as it was, in `theirs`."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from lost(value, theirs[key], f"{at}.{key}")
            else:
                yield f"{at}.{key}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs)):
            yield from lost(one, other, f"{at}[{number}]")
    elif ours != theirs:
        yield at


def unknown(dashboard):
    """What Grafana's types do not know of a dashboard."""
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(copy.deepcopy(dashboard))))
    for path in lost(dashboard, again):
        if not any(re.fullmatch(known, re.sub(r"\[\d+\]", "[]", path)) for known in KNOWN):
            yield path


def panels(dashboard):
    """Every panel, with its place in the file."""
    for number, panel in enumerate(dashboard["panels"]):
        yield f".panels[{number}]", panel


def misspelt(dashboard):
    """Copies with one mistake each, and the path at which it must be found: were the types to take anything, nothing
    would be known."""
    for at, panel in panels(dashboard):
        if panel["type"] in ("row", "text"):
            continue
        number = int(re.search(r"\d+", at)[0])
        for field in ("options", "fieldConfig.defaults", "fieldConfig.defaults.custom", "targets[0]"):
            copied = copy.deepcopy(dashboard)
            place = copied["panels"][number]
            for name in re.findall(r"[^.\[\]]+", field):
                place = place[int(name) if name.isdigit() else name]
            if not place:
                continue
            place["misspelt"] = True
            yield copied, f"{at}.{field}.misspelt"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dashboards", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    plugins.register_default_plugins()
    passed = failed = 0

    def check(right, what):
        nonlocal passed, failed
        passed, failed = passed + bool(right), failed + (not right)
        if not right:
            print(f"FAILED {what}")

    for file in args.dashboards:
        dashboard = json.loads(file.read_text())
        paths = list(unknown(dashboard))
        check(not paths, f"{file.name}: Grafana does not know {', '.join(paths[:20])}")
        for copied, path in misspelt(dashboard):
            check(path in unknown(copied), f"{file.name}: {path} was not found")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
