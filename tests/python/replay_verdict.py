#!/usr/bin/env python3
"""Is every recording right, but for those of which this project holds that their truth is wrong?

    replay_verdict.py REPORT... DISAGREEMENTS

A REPORT is what replay_check.py --report wrote; a recording is right if it is in all of them. DISAGREEMENTS names recordings, the checks of them that may fail, and why.
Exit 0 when what failed is exactly what is named there: a disagreement that is gone must go from the list, too.
"""
import json
import sys

# These say nothing of one recording; they fail where a recording's exchange never came to be.
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
            print(f"FAIL {case} is right now: take it from the list of disagreements")
        elif case in failed:
            print(f"disagreement {case}: {entry['why']}")
    unanswered = any(entry.get("unanswered") for case, entry in known.items() if case in failed)
    for check in sorted(run_failed):
        if check not in OF_THE_RUN or not unanswered:
            wrong += 1
            print(f"FAIL of the run: {check}")
    right = len(played) - len(failed)
    print(f"{right} of {len(played)} recordings wholly right, {len(set(failed) & set(known))} disagreements")
    print(f"{right} passed, {wrong} failed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
