#!/usr/bin/env python3
"""Checks that every recording passes, except recordings whose truth this project considers wrong.

    replay_verdict.py REPORT... DISAGREEMENTS

replay_check.py --report writes a REPORT. A recording passes if it passes in all of them. DISAGREEMENTS lists recordings, their checks that may
fail, and the reason. Exit status 0 if exactly the listed checks failed. A disagreement that no longer occurs must be removed from the list.
"""
import json
import sys

# Checks that do not concern a single recording. They fail if a recording's request was never counted.
OF_THE_RUN = {"requests.finished counts every exchange"}


def main():
    *reports, disagreements = sys.argv[1:]
    report = [row for path in reports for row in json.load(open(path))]
    known = {entry["case"]: entry for entry in json.load(open(disagreements))}
    failed, played = {}, set()
    run_failed = set()
    for row in report:
        if row["case"] == "-":
            if not row["held"]:
                run_failed.add(row["check"])
            continue
        played.add(row["case"])
        if not row["held"]:
            failed.setdefault(row["case"], {}).setdefault(row["check"], set()).add(f"[{row['variant']}] {row['note']}")
    wrong = 0
    for case, checks in sorted(failed.items()):
        allowed = known.get(case, {}).get("checks", [])
        for check, notes in sorted(checks.items()):
            if check not in allowed:
                wrong += 1
                print(f"FAIL {case}: {check}: {sorted(notes)[0][:300]}")
    for case, entry in sorted(known.items()):
        if case in played and case not in failed:
            wrong += 1
            print(f"FAIL {case} passes now: remove it from the list of disagreements")
        elif case in failed:
            print(f"disagreement {case}: {entry['why']}")
    unanswered = any(entry.get("unanswered") for case, entry in known.items() if case in failed)
    for check in sorted(run_failed):
        if check not in OF_THE_RUN or not unanswered:
            wrong += 1
            print(f"FAIL of the run: {check}")
    right = len(played) - len(failed)
    print(f"{right} of {len(played)} recordings pass, {len(set(failed) & set(known))} disagreements")
    print(f"{right} passed, {wrong} failed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
