#!/usr/bin/env python3
"""Compares tokengauge with load generators that measure the same requests.

    judge_check.py JUDGE --binary target/release/tokengauge --venv FOLDER --encodings FOLDER [--write]

JUDGE is aiperf or guidellm. The load generator sends its requests through the proxy to `tokengauge simulate`, or with --upstream and --model to an
engine. Each request of the load generator is joined with its line in the request log. Tokens must be equal. tokengauge's times must lie
between the client's. The summary of the load generator must equal `tokengauge report` and /metrics within 1 %; times that start at the client within 1 % or
5 ms. --write replaces the judge's section of docs/explanation/agreement.md. Without --write, the section must have the shape of the new one.

--venv is the environment of the load generator, and --encodings the cache of tiktoken. The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import pathlib
import sys

from judges import aiperf, bench, guidellm, page
from rig import Tally, clear_environment

JUDGES = {"aiperf": aiperf, "guidellm": guidellm}
PAGE = pathlib.Path(__file__).parents[2] / "docs/explanation/agreement.md"


def judged(judge, model, options, tally):
    """Runs the judge once. Returns its version and the text about the run."""
    with bench.started(options.binary, options.upstream) as scene:
        rows, version, between = judge.compare(scene, model, options, tally)
    for row in rows:
        tally.check(f"{judge.NAME}, {model}: {row.quantity}", row.agrees(), f"{row.judge} and {row.ours}")
    text = page.table(["quantity", judge.NAME, "tokengauge", "difference", "of one request, by the same definition"], [row.cells() for row in rows])
    milliseconds = {name: f"{seconds * 1000:.2f} ms" for name, seconds in between.items()}
    return version, (
        f"### {judge.NAME} and `{model}`\n\n{text}\n\n"
        f"Mean time from the client's start to accept: {milliseconds['start']}. From the proxy to the client: {milliseconds['first']} for the first "
        f"token, {milliseconds['last']} for the last token.")


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("judge", choices=JUDGES)
    cli.add_argument("--binary", required=True)
    cli.add_argument("--venv", required=True)
    cli.add_argument("--encodings", required=True)
    cli.add_argument("--upstream", help="an engine's address; default: tokengauge simulate")
    cli.add_argument("--model", help="the engine's model")
    cli.add_argument("--extra", default="{}", help="JSON with further fields of each request to the engine")
    cli.add_argument("--write", action="store_true")
    cli.add_argument("--verbose", action="store_true")
    options = cli.parse_args()
    if bool(options.upstream) != bool(options.model):
        cli.error("--upstream and --model need each other")
    clear_environment()
    judge, tally, parts = JUDGES[options.judge], Tally(options.verbose), []
    for model in [options.model] if options.model else bench.MODELS:
        version, text = judged(judge, model, options, tally)
        parts.append(text)
    definitions = page.table(["quantity", judge.NAME, "tokengauge", "difference"], judge.DEFINITIONS)
    text = f"\n## {judge.NAME} {version}\n\n{definitions}\n\n" + "\n\n".join(parts) + "\n"
    print(text)
    if options.write:
        page.write(PAGE, options.judge, text)
    elif not options.upstream:
        old = page.stale(PAGE, options.judge, text)
        tally.check(f"docs/explanation/agreement.md is up to date; otherwise run `just judge {options.judge} --write`", old is None, old)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
