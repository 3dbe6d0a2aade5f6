#!/usr/bin/env python3
"""The lines of docs/how-to/provider-apis.md for Node and Go, run as they stand there with the vendors' official clients: what
base_url_check.py does for Python, and more.

    sdk_lines_check.py --binary target/release/tokengauge --shared ../shared --node FOLDER --go FOLDER [--only TEXT] [--verbose]

Every line is run twice: without tokengauge, its address turned back into the vendor's by the page's own rule, or left out
where it is a variable; and with it. Both must bring all of a recorded answer, in the same pieces, and the vendor must have
been asked the same: host, path and body. An event that brings text is followed by the next only when the client has told
its program of that text, so that nobody on the way can have kept it back. Spans must say whose call it was, its models, its
tokens and its end. Lines that are variables run with all that `tokengauge inject --mode outbound` sets at once, those on
request too.

--node is a folder with the packages of tests/node/package.json, --go one where the program of tests/gosdk is built, again
when a line or that program changes. --only takes the lines whose names contain it. The last line is `N passed, N failed`;
exit 0 when nothing failed.
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
from rig import PATIENCE, Processes, Rig, Tally, forget_the_machine, free_port, of_kind, replay_backend, wait_until
from sdk_lines import BLOCKS, GO, LINES, NODE, package

# An address of the proxy in a line of code, in its quotes.
ADDRESS = re.compile(rf'"(http://{re.escape(PROXY)}(/[^"]*)?)"')
# What Google's libraries log in with: they fetch a token for it, where clients look for who they are.
TOKENS = Page("oauth2.googleapis.com", "/token", None, json.dumps({"access_token": KEY, "expires_in": 3600, "token_type": "Bearer"}))
WHO_IS_LOGGED_IN = {"type": "authorized_user", "client_id": "app", "client_secret": KEY, "refresh_token": KEY}
ALSO = {"GOOGLE_GENERATIVE_AI_API_KEY": KEY, "AWS_REGION": "us-east-1"}
# Time for a client to tell of a piece of text before its vendor goes on, in seconds: the limit of a failure.
HEARD_WITHIN = 20


# --- the page --------------------------------------------------------------------------------------------------------

def code_of(line, page):
    """The line's block of code, or None where it is a variable."""
    found = [text for kind, name, language, text in blocks(page)
             if (kind, name, language) == ("line", line.name, BLOCKS[line.language])]
    return found[0] if found else None


def check_page(page, tally):
    """Every block of the page is run, and none is marked twice."""
    on_page = collections.Counter((name, language) for kind, name, language, _ in blocks(page)
                                  if kind == "line" and language in BLOCKS.values())
    run = {(line.name, BLOCKS[line.language]) for line in LINES}
    tally.check("every line of the guide for Node and Go is run", set(on_page) <= run, set(on_page) - run)
    tally.check("no line is there twice", max(on_page.values()) == 1, on_page.most_common(1))
    told = [text for kind, _, language, text in blocks(page) if kind is None and language in BLOCKS.values()]
    tally.check("no block for Node and Go is unmarked", not told, told)


def vendors_addresses():
    """Whom each prefix of the configuration stands for, the longest first."""
    file = yaml.safe_load(CONFIGURATION.read_text())
    of = {route["match"]["prefix"]: file["upstreams"][route["upstream"]]["url"]
          for route in file["routes"] if "prefix" in route["match"]}
    return sorted(of.items(), key=lambda pair: -len(pair[0]))


def without_proxy(path):
    """The page's rule backwards: the vendor's address for one of the proxy's; None for the proxy itself."""
    return next((url + path[len(prefix):] for prefix, url in vendors_addresses() if f"{path}/".startswith(f"{prefix}/")), None)


def addresses(code, port):
    """What stands for each address of a line's code: tokengauge's at `port`; None: the vendor's own."""
    return {whole: f"http://127.0.0.1:{port}{path}" if port else without_proxy(path) for whole, path in ADDRESS.findall(code)}


def variables(args, page, port):
    """What an application finds in its environment: what `inject` sets, and what the page has for shells, for a proxy at `port`."""
    rows = [[cell.strip("` ") for cell in row.strip("|").split("|")] for row in page.splitlines() if row.startswith("| `/")]
    asked = [f"{route}={upstream}" for route, upstream, _, _, when in rows if when == "on request"]
    found = injected(args)[1] | injected(args, "--upstream", ",".join(asked))[1]
    shell = [text for kind, name, language, text in blocks(page) if kind == "line" and language == "sh"]
    found |= dict(setting.split("=", 1) for text in shell for setting in text.splitlines())
    return {name: value.replace(PROXY, f"127.0.0.1:{port}") for name, value in found.items()}


# --- streams in lockstep ---------------------------------------------------------------------------------------------

def text_of_events(events, text):
    """How much of the text of an answer has come with each of its events: the strings in them that it is made of."""
    def strings(value):
        if isinstance(value, str):
            yield value
        elif isinstance(value, (dict, list)):
            for one in value.values() if isinstance(value, dict) else value:
                yield from strings(one)

    came, counts = 0, []
    for event in events:
        inner = event[event.find(b"{"):event.rfind(b"}") + 1]
        found = [one for one in strings(json.loads(inner) if inner else {}) if one and text.startswith(one, came)]
        came += max(map(len, found), default=0)
        counts.append(came)
    if came != len(text):
        raise SystemExit(f"of {len(text)} characters of a recording's text {came} are found in its events")
    return counts


class Lockstep:
    """Vendors that write an event when the client has told of all text before it. `asked` is what they were asked."""

    def __init__(self, runs, split):
        self.runs, self.split = runs, split
        self.heard, self.kept_back, self.asked = collections.Counter(), [], collections.defaultdict(list)
        self.told = threading.Condition()

    def hear(self, run, piece):
        with self.told:
            self.heard[run.model] += len(piece)
            self.told.notify_all()

    def pieces(self, asked, answer):
        [run] = [run for run in self.runs if run.model in asked.path or run.model.encode() in asked.body]
        truth = run.recording.truth
        self.asked[run.model].append(asked)
        events = self.split(answer, truth["framing"])
        for event, came in zip(events, text_of_events(events, truth["output_text"])):
            yield event
            with self.told:
                if not self.told.wait_for(lambda: run.line.lags or self.heard[run.model] >= came, HEARD_WITHIN):
                    self.kept_back.append(f"{run.line.title}: {self.heard[run.model]} of {came} characters")
                    self.heard[run.model] = len(truth["output_text"])


class Run:
    """A line, the code of the page, and what came of it, by whether tokengauge stood between."""

    def __init__(self, number, line, page, recording):
        self.line, self.recording, self.code = line, recording, code_of(line, page)
        # By which its requests and spans are known.
        self.model = f"of-the-caller-{number:02}"
        self.came, self.raised = {False: [], True: []}, {}

    def path(self):
        return self.line.path.format(model=self.model)


# --- programs --------------------------------------------------------------------------------------------------------

def node_program(args):
    """Beside its packages, where Node looks for them."""
    program = pathlib.Path(args.node) / "base_url_lines.mjs"
    shutil.copy(ROOT / "tests" / "node" / program.name, program)
    return ["node", str(program.resolve())]


def go_program(args, page):
    """Built where what it is made of has changed."""
    folder = pathlib.Path(args.go).resolve()
    sources = {path.name: path.read_text() for path in (ROOT / "tests" / "gosdk").iterdir()} | go_sources(page)
    made_from = hashlib.sha256(json.dumps(sources, sort_keys=True).encode()).hexdigest()
    program, mark = folder / "program", folder / "made-from.txt"
    if not (program.exists() and mark.exists() and mark.read_text() == made_from):
        print("building the lines for Go", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in sources.items():
            (folder / name).write_text(text)
        subprocess.run(["go", "build", "-mod=readonly", "-buildvcs=false", "-ldflags=-s -w", "-o", program.name, "."], cwd=folder, check=True,
                       env={**os.environ, "GOWORK": "off"})
        mark.write_text(made_from)
    return [str(program)]


def go_sources(page):
    """The lines for Go as files beside main.go, one for each package."""
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
    """A program with its lines, and what it is told."""
    code_in = lambda run: addresses(run.code, port if through else None) if run.code else {}
    if language == GO:
        known = {whole: actual for run in runs for whole, actual in code_in(run).items()}
        told = {"addresses": known, "lines": [{"name": run.line.name, "model": run.model} for run in runs]}
    else:
        told = [{"name": run.line.name, "model": run.model, "code": with_addresses(run.code, code_in(run))} for run in runs]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, json.dumps(told)


def with_addresses(code, known):
    """The code of a line for Node; None where it names the proxy itself, and there is none."""
    if code is None or None in known.values():
        return None
    return ADDRESS.sub(lambda found: json.dumps(known[found[1]]), code)


def run_program(language, command, runs, through, environment, port, lockstep):
    """Runs the lines one after the other, and writes down what comes of each as it comes."""
    process, told = start(language, command, runs, through, environment, port)
    of, errors = {run.line.name: run for run in runs}, []
    drain = threading.Thread(target=lambda: errors.append(process.stderr.read()))
    drain.start()
    process.stdin.write(told)
    process.stdin.close()
    for row in process.stdout:
        if not row.startswith('{"name"'):
            continue  # a client's own
        said = json.loads(row)
        run = of[said["name"]]
        if "piece" in said:
            run.came[through].append(said["piece"])
            lockstep.hear(run, said["piece"])
        else:
            run.raised[through] = said["raised"]
    process.wait(PATIENCE)
    drain.join()
    for run in runs:
        run.raised.setdefault(through, f"the program ended before it, with {process.returncode}: {''.join(errors)[-600:]}")


def run_all(programs, runs, through, environment, settings, port, lockstep):
    """All lines of both languages, those that are variables apart from those in code: a variable speaks to every client."""
    jobs = []
    for language, command in programs.items():
        for in_code in (True, False):
            some = [run for run in runs if run.line.language == language and bool(run.code) == in_code]
            more = settings if through and not in_code else {}
            # Node's programs find the internet otherwise, and some clients in them would find it twice.
            mine = {name: value for name, value in environment.items() if language == GO or name != "https_proxy"}
            if some:
                jobs.append((language, command, some, through, {**mine, **more}, port, lockstep))
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(run_program, *job) for job in jobs]:
            done.result()


# --- what came -------------------------------------------------------------------------------------------------------

def check_answers(runs, tally, direct, proxied):
    for run in runs:
        title, wanted = run.line.title, run.recording.truth["output_text"]
        for through, how in ((False, "without the proxy"), (True, "through the proxy")):
            came = run.came[through]
            tally.check(f"{title}: {how}, nothing is raised", run.raised[through] is None, run.raised[through])
            tally.check(f"{title}: {how}, all of the answer arrives", "".join(came) == wanted, f"{came}, not {wanted}")
        tally.check(f"{title}: in the same pieces", len(run.came[True]) >= PIECES and run.came[True] == run.came[False],
                    f"{run.came[True]}, not {run.came[False]}")
        asked = [lockstep.asked[run.model] for lockstep in (direct, proxied)]
        tally.check(f"{title}: the vendor is asked once, and the same", len(asked[0]) == 1 and asked[0] == asked[1],
                    f"{asked[1]}, not {asked[0]}")
    for lockstep, how in ((direct, "without the proxy"), (proxied, "through the proxy")):
        tally.check(f"{how}, every piece is there before the next is written", not lockstep.kept_back, lockstep.kept_back)


def check_spans(runs, rig, judge):
    """Every call has its CLIENT span, which is right in all that is known of it."""
    def spans():
        return [span for spans in rig.telemetry.read()[0].values() for span in of_kind(spans, "CLIENT")]

    wait_until(lambda: sum("gen_ai.request.model" in span for span in spans()) >= len(runs))
    told = {run.model: [span for span in spans() if span.get("gen_ai.request.model") == run.model] for run in runs}
    for run in runs:
        title, vendor, found = run.line.title, run.line.vendor, told[run.model]
        rig.tally.check(f"{title}: it has one span, of its model", len(found) == 1, f"{len(found)} of {len(spans())}")
        for span in found:
            for key, wanted in (("tokengauge.route", vendor.route), ("gen_ai.provider.name", vendor.provider),
                                ("gen_ai.operation.name", run.line.operation), ("tokengauge.outcome", "ok"),
                                ("tokengauge.complete", "true")):
                rig.tally.check(f"{title}: {key}", span.get(key) == wanted, f"{span.get(key)}, not {wanted}")
            for what, held, note in of_recording(run.recording.truth, span, judge):
                rig.tally.check(f"{title}: {what}", held, note)
    others = len(spans()) - sum(map(len, told.values()))
    rig.tally.check("nothing else is told", not others, spans())


def of_recording(truth, span, judge):
    """What a span must say of the answer: tokens, its model and its end."""
    if truth["model_answered"]:
        yield "the answer's model", span.get("gen_ai.response.model") == truth["model_answered"], span
    reasons = span.get("gen_ai.response.finish_reasons", [])
    yield "how it ended", judge.same_reasons(reasons, truth["finish_reasons"] or []), f"{reasons}, not {truth['finish_reasons']}"
    for key, wanted in judge.expected_usage(truth).items():
        if wanted:
            yield key, span.get(key) == wanted, f"{span.get(key)}, not {wanted}"
    source = "reported" if truth["usage"] else "counted"
    yield f"the tokens are {source}", span.get("tokengauge.token.source") == source, span.get("tokengauge.token.source")


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
        tally.check("every request comes to its vendor's host and path", not internet.missed, internet.missed)
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
    forget_the_machine()
    tally, page, began = Tally(args.verbose), GUIDE.read_text(), time.monotonic()
    check_page(page, tally)
    check_lines(args, tally, page)
    print(f"lines of docs/how-to/provider-apis.md for Node and Go: {time.monotonic() - began:.0f} s")
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
