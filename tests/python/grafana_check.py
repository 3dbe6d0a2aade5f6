#!/usr/bin/env python3
"""Checks dashboards against Grafana's own types: every key and value must be one that Grafana knows.

    grafana_check.py dashboards/*.json

Grafana publishes the types of dashboards, panels and queries for each version (grafana-foundation-sdk, generated from the schemas in
Grafana's source). Each file is parsed into these types and written again. A key without a field, or a value that is read as another type,
is lost and fails. Run this script with each version whose types are on the Python path. The last line is `N passed, N failed`; exit status
0 if nothing failed.
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

# Fields that the types lack and Grafana reads.
KNOWN = {
    # The fields of an annotation depend on its data source. These are Prometheus'.
    r"\.annotations\.list\[\]\.(expr|step|tagKeys|textFormat|titleFormat|useValueForTime)",
    # A new dashboard has the id null, which the types omit.
    r"\.id",
    # An empty value means all.
    r"\.templating\.list\[\]\.allValue",
    # An xy chart: Grafana before 11.1 reads one form, later versions the other. Each ignores the other form.
    r"\.panels\[\]\.options\.(dims|mapping)",
    # The text of a variable's query in the editor.
    r"\.templating\.list\[\]\.definition",
}


def lost(ours, theirs, at=""):
    """Returns the paths whose value in `ours` is missing or different in `theirs`."""
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
    """Returns the parts of a dashboard that Grafana's types do not know."""
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(copy.deepcopy(dashboard))))
    for path in lost(dashboard, again):
        if not any(re.fullmatch(known, re.sub(r"\[\d+\]", "[]", path)) for known in KNOWN):
            yield path


def panels(dashboard):
    """Returns every panel with its place in the file."""
    for number, panel in enumerate(dashboard["panels"]):
        yield f".panels[{number}]", panel


def misspelt(dashboard):
    """Returns copies with one mistake each, and the path of the mistake. They prove that the types reject unknown fields."""
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
