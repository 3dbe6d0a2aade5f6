#!/usr/bin/env python3
"""Evaluates the queries of deploy/autoscaling with Prometheus' own engine: `promtool test rules` on tests/autoscaling.

    autoscaling_check.py

FILE#NAME in a case stands for the query of that name: a trigger of a ScaledObject, or in prometheus-adapter's rules the metric `as` NAME.
The placeholders of an adapter query are filled as for an autoscaler in namespace `llm`. Every query must occur in a case. Exit status 0 if
all cases pass.
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
    """Returns the queries by metric name, for all pods of the namespace or for the namespace itself."""
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
    known, used = queries(), set()
    cases = yaml.safe_load(CASES.read_text())
    for case in cases["tests"]:
        for one in case["promql_expr_test"]:
            used.update(NAMED.findall(one["expr"]))
            one["expr"] = NAMED.sub(lambda name: f"({known[name[0]]})", one["expr"])
    if forgotten := known.keys() - used:
        sys.exit(f"no case uses {', '.join(sorted(forgotten))}")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "cases.yaml"
        file.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "15s", **cases}, sort_keys=False))
        ended = subprocess.run(["promtool", "test", "rules", str(file)], check=False)
    if ended.returncode == 0:
        print(f"{len(known)} queries in {len(cases['tests'])} cases pass")
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
