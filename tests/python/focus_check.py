#!/usr/bin/env python3
"""Checks `tokengauge report --format focus` with the validator of the FinOps Foundation (PyPI focus-validator).

Writes a small request log, and compares the sum of each cost column with the cost in the JSON report. Then validates the output against
FOCUS 1.2. Every rule that the validator applies must pass, except one alternative that does not apply.

    tests/python/focus_check.py --binary target/release/tokengauge --venv FOLDER
"""

import argparse
import collections
import csv
import decimal
import glob
import io
import json
import os
import re
import subprocess
import sys
import tempfile

VERSION = "1.2.0.1"
# Of two alternative rules, the validator reports the one that does not apply as a failure. The log has no invoices, so
# InvoiceId is empty, as the other rule InvoiceId-C-004-C demands.
ALTERNATIVES = {"InvoiceId-C-005-C"}
COSTS = ["BilledCost", "ContractedCost", "EffectiveCost", "ListCost"]


def line(hour, tenant, model, source, parts):
    usage = {"input": 1_000, "cache_read": 400, "output": 50, "reasoning": 20} if source == "reported" else {}
    return {
        "time": f"2026-10-31T{hour:02}:15:00Z",
        "outcome": "ok" if source == "reported" else "cancelled",
        "times": {"end": 1},
        "identity": {"tenant": tenant},
        "call": {
            "labels": {"model": model, "provider": "openai", "stream": False},
            "request": {"prompt_bytes": 4_000},
            "usage": usage,
            "output": {"tokens": 30, "counted": 30},
            "cost": {"amount": sum(parts.values()), "currency": "USD", "source": source, "parts": parts},
        },
    }


def log():
    """Amounts that binary fractions cannot represent, in several hours, of both sources and with a fixed price."""
    for hour in range(24):
        for tenant in ("team-a", "team,b", "=team"):
            yield line(hour, tenant, "gpt-5.4", "reported", {"input": 0.0012, "cache_read": 0.0001, "output": 0.0003, "reasoning": 0.0001})
            yield line(hour, tenant, "gpt-5.4-mini", "estimated", {"input": 1 / 3_000, "output": 1 / 7_000, "request": 0.01})


def report(binary, path, form):
    done = subprocess.run([binary, "report", path, "--format", form], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def check_sums(rows, expected, wrong):
    for column in COSTS:
        sums = collections.defaultdict(decimal.Decimal)
        for row in rows:
            sums[row["BillingCurrency"]] += decimal.Decimal(row[column])
        found = {currency: float(amount) for currency, amount in sums.items()}
        if found != expected:
            wrong.append(f"{column}: {found}, and the report has {expected}")


def check_rules(path, venv, wrong):
    """Runs the validator in its folder, because it opens its list of currencies by a relative path."""
    (folder,) = glob.glob(os.path.join(venv, "lib/python3*/site-packages"))
    command = [os.path.join(venv, "bin/focus-validator"), "--data-file", path, "--validate-version", VERSION, "--block-download", "--show-violations"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    totals = re.search(r"Total: (\d+) \| Pass: (\d+) \| Fail: (\d+)", done.stdout)
    if totals is None or int(totals[2]) == 0:
        sys.exit(f"the validator gave no result:\n{done.stdout[-2_000:]}")
    print(totals[0])
    failed = [text for text in done.stdout.splitlines() if ": FAIL" in text]
    wrong += [text for text in failed if not any(rule in text for rule in ALTERNATIVES)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--venv", required=True)
    options = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "requests.jsonl")
        with open(path, "w") as out:
            out.writelines(json.dumps(entry) + "\n" for entry in log())
        costs = json.loads(report(options.binary, path, "json"))["subjects"][0]["statistics"]["cost"]
        output = report(options.binary, path, "focus")
        rows = list(csv.DictReader(io.StringIO(output)))
        check_sums(rows, {currency: cost["total"] for currency, cost in costs.items()}, wrong)
        written = os.path.join(folder, "focus.csv")
        with open(written, "w", newline="") as out:
            out.write(output)
        check_rules(written, os.path.realpath(options.venv), wrong)
    for problem in wrong:
        print(f"WRONG {problem}")
    print(f"{len(rows)} rows, {len(wrong)} problems")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
