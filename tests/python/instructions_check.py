#!/usr/bin/env python3
"""Compares the instructions per chunk and per request with the committed baseline.

    instructions_check.py --bench PATH/instructions [--baseline benches/instructions.json] [--write]

--bench is the built bench `instructions` of crates/observe. valgrind counts the instructions of two runs with different numbers of repetitions; the
difference is the cost of the repetitions, without start and set-up. It does not depend on the load of the machine, but a little on the CPU (which
vector instructions libraries choose) and on the compiler. Exit status 1 if a case differs from the baseline by more than the room: if it is more
expensive, find out why; if it is cheaper, write a new baseline with --write.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys

# Cases, with the smaller number of repetitions and the case whose cost is not part of this one. The larger number is three times the smaller one.
CASES = {
    "make-chunk": (2000, None),
    "tee": (2000, "make-chunk"),
    "frame": (2000, "make-chunk"),
    "parse": (2000, "make-chunk"),
    "count": (2000, None),
    "chunk": (2000, "make-chunk"),
    "open-close": (200, None),
    "json": (200, None),
    "prompt": (20, None),
}
# Allowed relative difference.
ROOM = 0.05


def instructions(bench, case, count):
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(bench), case, str(count)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    return int(re.search(r"Collected : (\d+)", output).group(1))


def measure(bench):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = {(case, count): pool.submit(instructions, bench, case, count) for case, (few, _) in CASES.items() for count in (few, 3 * few)}
    each = {case: (runs[case, 3 * few].result() - runs[case, few].result()) / (2 * few) for case, (few, _) in CASES.items()}
    return {case: round(each[case] - each.get(base, 0)) for case, (_, base) in CASES.items() if case != "make-chunk"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--baseline", default="benches/instructions.json")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    found = measure(args.bench)
    path = pathlib.Path(args.baseline)
    if args.write:
        path.write_text(json.dumps(found, indent=2) + "\n")
    baseline = json.loads(path.read_text())
    failed = 0
    for case in sorted(found.keys() | baseline.keys()):
        new, old = found.get(case), baseline.get(case)
        held = bool(new and old) and abs(new - old) <= ROOM * old
        failed += not held
        print(f"{'' if held else 'FAIL '}{case}: {new} instructions, baseline {old}")
    print(f"{len(found) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
