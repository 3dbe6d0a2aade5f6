#!/usr/bin/env python3
"""The queries of deploy/autoscaling, each asked of Prometheus' own engine: `promtool test rules` on tests/autoscaling.

    autoscaling_check.py

Where a case says FILE#NAME, the query of that name is put: of a ScaledObject a trigger's, of prometheus-adapter's rules that
of the metric `as` NAME, with what the adapter puts into its marks when the autoscaler asks about namespace `llm`. Every
query must be asked by a case. Exit 0 when all hold.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).parents[2]
RECIPES = ROOT / "deploy" / "autoscaling"
NAMED = re.compile(r"[a-z-]+\.yaml#[a-z_]+")
CASES = ROOT / "tests" / "autoscaling" / "cases.yaml"


def of_adapter(config):
    """Its queries by the names under which metrics are had, asked for all pods of the namespace, or for the namespace."""
    for rule in config["rules"] + config["externalRules"]:
        marks = {"LabelMatchers": 'namespace="llm"', "GroupBy": "namespace,pod"}
        query = rule["metricsQuery"]
        for mark, value in marks.items():
            query = query.replace(f"<<.{mark}>>", value)
        yield rule["name"]["as"], query


def queries():
    found = {}
    for file in sorted(RECIPES.glob("*.yaml")):
        for thing in yaml.safe_load_all(file.read_text()):
            if thing["kind"] == "ScaledObject":
                for trigger in thing["spec"]["triggers"]:
                    if "query" in trigger["metadata"]:
                        found[f"{file.name}#{trigger['name']}"] = trigger["metadata"]["query"]
            elif thing["kind"] == "ConfigMap":
                for name, query in of_adapter(yaml.safe_load(thing["data"]["config.yaml"])):
                    found[f"{file.name}#{name}"] = query
    return found


def main():
    known, asked = queries(), set()
    cases = yaml.safe_load(CASES.read_text())
    for case in cases["tests"]:
        for one in case["promql_expr_test"]:
            asked.update(NAMED.findall(one["expr"]))
            one["expr"] = NAMED.sub(lambda name: f"({known[name[0]]})", one["expr"])
    if forgotten := known.keys() - asked:
        sys.exit(f"no case asks {', '.join(sorted(forgotten))}")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "cases.yaml"
        file.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "15s", **cases}, sort_keys=False))
        ended = subprocess.run(["promtool", "test", "rules", str(file)], check=False)
    if ended.returncode == 0:
        print(f"{len(known)} queries in {len(cases['tests'])} cases hold")
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
