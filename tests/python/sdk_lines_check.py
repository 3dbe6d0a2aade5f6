#!/usr/bin/env python3
"""Runs the Node and Go lines of docs/how-to/provider-apis.md as written, with the providers' official clients.
base_url_check.py does the same for Python.

    sdk_lines_check.py --binary target/release/tokengauge --shared ../shared --node FOLDER --go FOLDER [--only TEXT] [--verbose]

Every line runs twice. The first run is without tokengauge: the proxy's address is turned back into the provider's by the page's rule,
or left out if the line is a variable. The second run is with tokengauge. Both runs must receive the complete recorded response, in the
same pieces. The provider must receive the same host, path and body. A simulated provider writes the next event only when the client has
reported all text before it, so buffering anywhere is detected. Spans must have the right call, models, tokens and finish reason. Lines
that are variables run with all variables that `tokengauge inject --mode outbound` sets, including optional ones.

--node is a folder with the packages of tests/node/package.json. --go is a folder where the program of tests/gosdk is built; a change of
a line or of the program rebuilds it. --only selects the lines whose names contain the text. The last line is `N passed, N failed`;
exit status 0 if nothing failed.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import importlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import yaml

from base_url_check import CONFIGURATION, GUIDE, PIECES, PROXY, ROOT, blocks, chosen, injected
from base_url_lines import KEY, SURROUNDINGS
from internet import Internet, Page
from recordings import recordings
from rig import WAIT_LIMIT, Processes, Rig, Tally, clear_environment, free_port, of_kind, replay_backend, wait_until
from sdk_lines import BLOCKS, GO, LINES, NODE, package

# An address of the proxy in a line of code, with its quotes.
ADDRESS = re.compile(rf'"(http://{re.escape(PROXY)}(/[^"]*)?)"')
# The token endpoint of Google's libraries, and the credentials with which they fetch an access token.
TOKENS = Page("oauth2.googleapis.com", "/token", None, json.dumps({"access_token": KEY, "expires_in": 3600, "token_type": "Bearer"}))
WHO_IS_LOGGED_IN = {"type": "authorized_user", "client_id": "app", "client_secret": KEY, "refresh_token": KEY}
ALSO = {"GOOGLE_GENERATIVE_AI_API_KEY": KEY, "AWS_REGION": "us-east-1"}
# Limit in seconds for a client to report a piece of text before the provider continues. Reached only on failure.
REPORT_LIMIT = 20


# --- the page --------------------------------------------------------------------------------------------------------

def code_of(line, page):
    """Returns the line's code block, or None if the line is a variable."""
    found = [text for kind, name, language, text in blocks(page)
             if (kind, name, language) == ("line", line.name, BLOCKS[line.language])]
    return found[0] if found else None


def check_page(page, tally):
    """Checks that every code block of the page runs, and that none is marked twice."""
    on_page = collections.Counter((name, language) for kind, name, language, _ in blocks(page)
                                  if kind == "line" and language in BLOCKS.values())
    run = {(line.name, BLOCKS[line.language]) for line in LINES}
    tally.check("every line of the guide for Node and Go runs", set(on_page) <= run, set(on_page) - run)
    tally.check("no line is marked twice", max(on_page.values()) == 1, on_page.most_common(1))
    unmarked = [text for kind, _, language, text in blocks(page) if kind is None and language in BLOCKS.values()]
    tally.check("no block for Node and Go is unmarked", not unmarked, unmarked)


def vendors_addresses():
    """Returns the upstream of each prefix in the configuration, longest prefix first."""
    file = yaml.safe_load(CONFIGURATION.read_text())
    of = {route["match"]["prefix"]: file["upstreams"][route["upstream"]]["url"]
          for route in file["routes"] if "prefix" in route["match"]}
    return sorted(of.items(), key=lambda pair: -len(pair[0]))


def without_proxy(path):
    """Returns the provider's address for an address of the proxy, the reverse of the page's rule. None for the proxy itself."""
    return next((url + path[len(prefix):] for prefix, url in vendors_addresses() if f"{path}/".startswith(f"{prefix}/")), None)


def addresses(code, port):
    """Returns the replacement of each address in a line's code: tokengauge's at `port`, or the provider's if `port` is None."""
    return {quoted: f"http://127.0.0.1:{port}{path}" if port else without_proxy(path) for quoted, path in ADDRESS.findall(code)}


def variables(args, page, port):
    """Returns an application's environment with a proxy at `port`: the variables of `inject` and the page's shell variables."""
    rows = [[cell.strip("` ") for cell in row.strip("|").split("|")] for row in page.splitlines() if row.startswith("| `/")]
    on_request = [f"{route}={upstream}" for route, upstream, _, _, when in rows if when == "on request"]
    found = injected(args)[1] | injected(args, "--upstream", ",".join(on_request))[1]
    shell = [text for kind, name, language, text in blocks(page) if kind == "line" and language == "sh"]
    found |= dict(setting.split("=", 1) for text in shell for setting in text.splitlines())
    return {name: value.replace(PROXY, f"127.0.0.1:{port}") for name, value in found.items()}


# --- streams in lockstep ---------------------------------------------------------------------------------------------

def text_of_events(events, text):
    """Returns how many characters of the response text each event completes. The text is made of strings in the events."""
    def strings(value):
        if isinstance(value, str):
            yield value
        elif isinstance(value, (dict, list)):
            for one in value.values() if isinstance(value, dict) else value:
                yield from strings(one)

    found_chars, counts = 0, []
    for event in events:
        inner = event[event.find(b"{"):event.rfind(b"}") + 1]
        found = [one for one in strings(json.loads(inner) if inner else {}) if one and text.startswith(one, found_chars)]
        found_chars += max(map(len, found), default=0)
        counts.append(found_chars)
    if found_chars != len(text):
        raise SystemExit(f"only {found_chars} of {len(text)} characters of a recording's text are found in its events")
    return counts


class Lockstep:
    """Providers that write an event only when the client has reported all text before it. `requests` holds the received requests."""

    def __init__(self, runs, split):
        self.runs, self.split = runs, split
        self.received_chars, self.kept_back, self.requests = collections.Counter(), [], collections.defaultdict(list)
        self.progress = threading.Condition()

    def record_piece(self, run, piece):
        with self.progress:
            self.received_chars[run.model] += len(piece)
            self.progress.notify_all()

    def pieces(self, request, answer):
        [run] = [run for run in self.runs if run.model in request.path or run.model.encode() in request.body]
        truth = run.recording.truth
        self.requests[run.model].append(request)
        events = self.split(answer, truth["framing"])
        for event, expected in zip(events, text_of_events(events, truth["output_text"])):
            yield event
            with self.progress:
                if not self.progress.wait_for(lambda: run.line.lags or self.received_chars[run.model] >= expected, REPORT_LIMIT):
                    self.kept_back.append(f"{run.line.title}: {self.received_chars[run.model]} of {expected} characters")
                    self.received_chars[run.model] = len(truth["output_text"])


class Run:
    """A line, its code on the page, and its results, keyed by whether tokengauge was in between."""

    def __init__(self, number, line, page, recording):
        self.line, self.recording, self.code = line, recording, code_of(line, page)
        # Identifies the run's requests and spans.
        self.model = f"of-the-caller-{number:02}"
        self.pieces, self.raised = {False: [], True: []}, {}

    def path(self):
        return self.line.path.format(model=self.model)


# --- programs --------------------------------------------------------------------------------------------------------

def node_program(args):
    """Writes the program next to its packages, where Node looks for them."""
    program = pathlib.Path(args.node) / "base_url_lines.mjs"
    shutil.copy(ROOT / "tests" / "node" / program.name, program)
    return ["node", str(program.resolve())]


def go_program(args, page):
    """Builds the program if its sources changed."""
    folder = pathlib.Path(args.go).resolve()
    sources = {path.name: path.read_text() for path in (ROOT / "tests" / "gosdk").iterdir()} | go_sources(page)
    made_from = hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()
    program, mark = folder / "program", folder / "made-from.txt"
    if not (program.exists() and mark.exists() and mark.read_text() == made_from):
        print("building the Go lines", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in sources.items():
            (folder / name).write_text(text)
        subprocess.run(["go", "build", "-mod=readonly", "-buildvcs=false", "-ldflags=-s -w", "-o", program.name, "."], cwd=folder, check=True,
                       env={**os.environ, "GOWORK": "off"})
        mark.write_text(made_from)
    return [str(program)]


def go_sources(page):
    """Returns the Go lines as files next to main.go, one per package."""
    files = collections.defaultdict(list)
    for line in LINES:
        if line.language == GO:
            code = ADDRESS.sub(lambda found: f"address({found[0]})", code_of(line, page) or "")
            of, call = package(line)
            files[of].append(go_call(line, of, call, code))
    return {f"lines_{of.name}.go": "\n".join(
        ["package main", "", "import (", *(f'\t"{one}"' for one in ("os", *of.imports)), ")", "", "var _ = os.Getenv", "",
         "func init() {", *calls, "}", ""]) for of, calls in files.items()}


def go_call(line, of, call, code):
    code = code.rstrip() or of.default
    inner = "\n".join(f"\t\t{row}" for row in code.splitlines())
    return f'\tcalls["{line.name}"] = {call}(func() {of.makes} {{\n{inner}\n\t\treturn client{of.ending}\n\t}})'


def start(language, command, runs, through, environment, port):
    """Starts a program with its lines and their input."""
    code_in = lambda run: addresses(run.code, port if through else None) if run.code else {}
    if language == GO:
        known = {quoted: actual for run in runs for quoted, actual in code_in(run).items()}
        program_input = {"addresses": known, "lines": [{"name": run.line.name, "model": run.model} for run in runs]}
    else:
        program_input = [{"name": run.line.name, "model": run.model, "code": with_addresses(run.code, code_in(run))} for run in runs]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, json.dumps(program_input)


def with_addresses(code, known):
    """Returns the code of a Node line. None if the code names the proxy itself and no proxy is running."""
    if code is None or None in known.values():
        return None
    return ADDRESS.sub(lambda found: json.dumps(known[found[1]]), code)


def run_program(language, command, runs, through, environment, port, lockstep):
    """Runs the lines one after the other, and records each result as it arrives."""
    process, program_input = start(language, command, runs, through, environment, port)
    of, errors = {run.line.name: run for run in runs}, []
    drain = threading.Thread(target=lambda: errors.append(process.stderr.read()))
    drain.start()
    process.stdin.write(program_input)
    process.stdin.close()
    for row in process.stdout:
        if not row.startswith('{"name"'):
            continue  # printed by a client library
        row_data = json.loads(row)
        run = of[row_data["name"]]
        if "piece" in row_data:
            run.pieces[through].append(row_data["piece"])
            lockstep.record_piece(run, row_data["piece"])
        else:
            run.raised[through] = row_data["raised"]
    process.wait(WAIT_LIMIT)
    drain.join()
    for run in runs:
        run.raised.setdefault(through, f"the program ended before this line, with status {process.returncode}: {''.join(errors)[-600:]}")


def run_all(programs, runs, through, environment, settings, port, lockstep):
    """Runs all lines of both languages. Lines that are variables run separately from code lines: a variable affects every client."""
    jobs = []
    for language, command in programs.items():
        for in_code in (True, False):
            some = [run for run in runs if run.line.language == language and bool(run.code) == in_code]
            more = settings if through and not in_code else {}
            # Node programs reach the internet by another mechanism. Some clients would apply both.
            mine = {name: value for name, value in environment.items() if language == GO or name != "https_proxy"}
            if some:
                jobs.append((language, command, some, through, {**mine, **more}, port, lockstep))
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(run_program, *job) for job in jobs]:
            done.result()


# --- results ---------------------------------------------------------------------------------------------------------

def check_answers(runs, tally, direct, proxied):
    for run in runs:
        title, wanted = run.line.title, run.recording.truth["output_text"]
        for through, how in ((False, "without the proxy"), (True, "through the proxy")):
            pieces = run.pieces[through]
            tally.check(f"{title}: {how}, the client raises no error", run.raised[through] is None, run.raised[through])
            tally.check(f"{title}: {how}, the response is complete", "".join(pieces) == wanted, f"{pieces}, not {wanted}")
        tally.check(f"{title}: the response arrives in the same pieces", len(run.pieces[True]) >= PIECES and run.pieces[True] == run.pieces[False],
                    f"{run.pieces[True]}, not {run.pieces[False]}")
        received = [lockstep.requests[run.model] for lockstep in (direct, proxied)]
        tally.check(f"{title}: the provider receives one request, identical in both runs", len(received[0]) == 1 and received[0] == received[1],
                    f"{received[1]}, not {received[0]}")
    for lockstep, how in ((direct, "without the proxy"), (proxied, "through the proxy")):
        tally.check(f"{how}, every piece arrives before the next is written", not lockstep.kept_back, lockstep.kept_back)


def check_spans(runs, rig, judge):
    """Checks that every call has one CLIENT span with the expected attributes."""
    def spans():
        return [span for spans in rig.telemetry.read()[0].values() for span in of_kind(spans, "CLIENT")]

    wait_until(lambda: sum("gen_ai.request.model" in span for span in spans()) >= len(runs))
    spans_by_model = {run.model: [span for span in spans() if span.get("gen_ai.request.model") == run.model] for run in runs}
    for run in runs:
        title, vendor, found = run.line.title, run.line.vendor, spans_by_model[run.model]
        rig.tally.check(f"{title}: one span with the requested model", len(found) == 1, f"{len(found)} of {len(spans())}")
        for span in found:
            for key, wanted in (("tokengauge.route", vendor.route), ("gen_ai.provider.name", vendor.provider),
                                ("gen_ai.operation.name", run.line.operation), ("tokengauge.outcome", "ok"),
                                ("tokengauge.complete", "true")):
                rig.tally.check(f"{title}: {key}", span.get(key) == wanted, f"{span.get(key)}, not {wanted}")
            for what, held, note in of_recording(run.recording.truth, span, judge):
                rig.tally.check(f"{title}: {what}", held, note)
    others = len(spans()) - sum(map(len, spans_by_model.values()))
    rig.tally.check("no other spans are exported", not others, spans())


def of_recording(truth, span, judge):
    """Yields the checks of a response's span: tokens, response model and finish reasons."""
    if truth["model_answered"]:
        yield "the answer's model", span.get("gen_ai.response.model") == truth["model_answered"], span
    reasons = span.get("gen_ai.response.finish_reasons", [])
    yield "the finish reasons", judge.same_reasons(reasons, truth["finish_reasons"] or []), f"{reasons}, not {truth['finish_reasons']}"
    for key, wanted in judge.expected_usage(truth).items():
        if wanted:
            yield key, span.get(key) == wanted, f"{span.get(key)}, not {wanted}"
    source = "reported" if truth["usage"] else "counted"
    yield f"the token source is {source}", span.get("tokengauge.token.source") == source, span.get("tokengauge.token.source")


def check_lines(args, tally, page):
    sys.path[:0] = [str(pathlib.Path(args.shared) / "corpus"), str(pathlib.Path(args.shared) / "tools")]
    split, judge = importlib.import_module("replay_server").split_events, importlib.import_module("replay_check")
    found, lines = recordings(args.shared), [line for line in LINES if args.only in line.title]
    runs = [Run(number, line, page, chosen(line, found)) for number, line in enumerate(lines)]
    make = {NODE: lambda: node_program(args), GO: lambda: go_program(args, page)}
    programs = {language: make[language]() for language in make if any(line.language == language for line in lines)}
    replay, port = Processes("replay"), free_port()
    replay.start("replay", [part.format(port=port) for part in replay_backend(args.shared)], port)
    internet = Internet(replay.folder, {TOKENS, *(Page(run.line.vendor.host, run.path(), run.recording.name) for run in runs)}, port)
    way_out, login = f"http://127.0.0.1:{internet.port}", replay.folder / "login.json"
    login.write_text(json.dumps(WHO_IS_LOGGED_IN))
    environment = {**os.environ, **SURROUNDINGS, **ALSO, "GOOGLE_APPLICATION_CREDENTIALS": str(login), "https_proxy": way_out,
                   "INTERNET": str(internet.tls_port), "SSL_CERT_FILE": str(internet.authority), "NODE_EXTRA_CA_CERTS": str(internet.authority)}
    rig = Rig(args, tally, "sdks", environment={"https_proxy": way_out, "SSL_CERT_FILE": str(internet.authority)},
              configuration=lambda rig: f"listeners: [{{address: 127.0.0.1:{rig.listen}}}]\n{CONFIGURATION.read_text()}")
    try:
        locksteps = {}
        for through in (False, True):
            locksteps[through] = Lockstep(runs, split)
            internet.pace = locksteps[through].pieces
            run_all(programs, runs, through, environment, variables(args, page, rig.listen), rig.listen, locksteps[through])
        check_answers(runs, tally, locksteps[False], locksteps[True])
        tally.check("every request reaches its provider's host and path", not internet.missed, internet.missed)
        check_spans(runs, rig, judge)
        rig.end()
    finally:
        rig.stop()
        internet.stop()
        replay.stop()


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--shared", required=True)
    cli.add_argument("--node", required=True)
    cli.add_argument("--go", required=True)
    cli.add_argument("--only", default="")
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    clear_environment()
    tally, page, began = Tally(args.verbose), GUIDE.read_text(), time.monotonic()
    check_page(page, tally)
    check_lines(args, tally, page)
    print(f"Node and Go lines of docs/how-to/provider-apis.md: {time.monotonic() - began:.0f} s")
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
