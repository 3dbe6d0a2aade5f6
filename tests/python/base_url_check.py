#!/usr/bin/env python3
"""Runs every base-URL line of docs/how-to/provider-apis.md as written, with the providers' own clients.

The proxy uses examples/vendors.yaml as written, and connects over TLS to the hosts in that file.

    base_url_check.py --binary target/release/tokengauge --shared ../shared [--only NAME] [--verbose]

A line is a code block under `<!-- line: NAME -->`. base_url_lines.py defines the streamed call for each line. The complete recorded
response must arrive, in pieces. The request must reach the provider's own host and path. The spans must name the route, the provider and
the operation. internet.py replaces the internet. sdk_lines_check.py runs the lines for languages other than Python. A block that contains
the proxy's address and does not run is a failure, unless it is under `<!-- not run: WHY -->`. `tokengauge inject` must create the routes and
set the variables of the page's table.

Only the port of the proxy's address is changed. --shared names the folder with the OTLP receiver and the recordings. Needs the packages of
requirements.txt, and openssl. The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from base_url_lines import LINES, SURROUNDINGS
from internet import Internet, Page
from recordings import STREAMS, recordings
from rig import WAIT_LIMIT, Processes, Rig, Tally, clear_environment, free_port, of_kind, replay_backend, wait_until

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
GUIDE, CONFIGURATION = ROOT / "docs" / "how-to" / "provider-apis.md", ROOT / "examples" / "vendors.yaml"
PROXY = "127.0.0.1:4000"
BLOCK = re.compile(r"(?:^<!-- (line|not run): ([^\n]+) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Languages that sdk_lines_check.py covers.
ELSEWHERE = ("js", "go")
# Marks a row of the table without a variable.
NOTHING = "–"
# The number of programs in parallel.
AT_ONCE = 2
# The minimum of text pieces in a stream.
PIECES = 3


def blocks(page):
    """Returns the code blocks that contain the proxy's address: (`line`, `not run` or None; name or reason; language; text)."""
    return [found.groups() for found in BLOCK.finditer(page) if PROXY in found[4]]


def chosen(line, found):
    """Returns the shortest recording of a complete text stream for the line's provider and API."""
    fitting = [one for one in found if (one.truth["provider"], one.api) == line.recorded and is_plain(one.truth)]
    return min(fitting, key=lambda one: (one.truth["n_output_events"], one.name))


def is_plain(truth):
    return (truth["framing"] in STREAMS and truth["status"] == 200 and not truth["error"] and truth["n_choices"] in (None, 0, 1)
            and truth["n_output_events"] >= PIECES and truth["output_text"] and not truth["reasoning_text"]
            and not truth["tool_calls"])


def programs(lines, page):
    """Groups lines by program. A line that sets a variable has its own program; lines in code share one program per SDK."""
    found = collections.defaultdict(dict)
    for kind, name, language, text in blocks(page):
        line = lines.get(name) if kind == "line" and language not in ELSEWHERE else None
        if line:
            found[line.imports if language == "python" else name][name] = (language, text)
    return found.values()


def run(program, rig):
    """Runs a program. Returns the result of each line by name."""
    environment, codes = {**os.environ, **SURROUNDINGS}, {}
    for name, (language, text) in program.items():
        codes[name] = text.replace(PROXY, f"127.0.0.1:{rig.listen}")
        if language == "sh":
            environment |= dict(setting.split("=", 1) for setting in codes[name].splitlines())
    done = subprocess.run([sys.executable, str(HERE / "base_url_lines.py")], input=json.dumps(codes), env=environment,
                          capture_output=True, text=True, timeout=WAIT_LIMIT)
    return json.loads(done.stdout) if done.returncode == 0 else dict.fromkeys(program, done.stderr[-400:])


def check_line(line, pieces, tally, recording):
    wanted = recording.truth["output_text"]
    tally.check(f"{line.name}: the response is complete", "".join(pieces) == wanted, f"{pieces}, not {wanted}")
    tally.check(f"{line.name}: the response arrives in pieces", isinstance(pieces, list) and len(pieces) >= PIECES, pieces)


def check_spans(lines, rig):
    """Checks that every call has one complete CLIENT span with the right route, provider and operation."""
    def spans():
        return [span for spans in rig.telemetry.read()[0].values() for span in of_kind(spans, "CLIENT")]

    wait_until(lambda: len(spans()) >= len(lines))
    span_attributes = [(one.get("tokengauge.route"), one.get("gen_ai.provider.name"), one.get("gen_ai.operation.name"),
             one.get("tokengauge.complete")) for one in spans()]
    for line in lines:
        wanted = (line.route, line.provider, line.operation, "true")
        held = wanted in span_attributes
        rig.tally.check(f"{line.name}: its span has {wanted}", held, sorted(map(str, span_attributes)))
        if held:
            span_attributes.remove(wanted)
    rig.tally.check("no other spans are exported", not span_attributes, span_attributes)


def check_page(page, tally):
    """Checks that the page and LINES have the same lines, and that no block is missed."""
    marked = [name for kind, name, language, _ in blocks(page) if kind == "line" and language not in ELSEWHERE]
    tally.check("every line is in the guide exactly once", sorted(marked) == sorted(line.name for line in LINES),
                set(marked) ^ {line.name for line in LINES})
    for kind, _, language, text in blocks(page):
        tally.check("each block with the proxy's address runs, or gives a reason not to", kind or language == "yaml", text)


def check_inject(args, tally, page):
    """Checks that `tokengauge inject` creates the routes and sets the variables of the page's table, including variables on request."""
    rows = [[cell.strip("` ") for cell in row.strip("|").split("|")] for row in page.splitlines() if row.startswith("| `/")]
    routes = {f"{route}={upstream}" for route, upstream, _, _, _ in rows}
    usual = {variable: value for _, _, variable, value, when in rows if variable != NOTHING and when == "yes"}
    on_request = {f"{route}={upstream}": (variable, value)
             for route, upstream, variable, value, when in rows if variable != NOTHING and when == "on request"}
    tally.check("the guide's table has default rows and rows on request", usual and on_request, rows)
    made, variables = injected(args)
    tally.check("inject creates the routes of the guide", made == routes, made ^ routes)
    tally.check("inject sets the guide's variables", variables == usual, f"{variables}, not {usual}")
    _, variables = injected(args, "--upstream", ",".join(on_request))
    tally.check("inject sets the guide's variables on request", variables == dict(on_request.values()), f"{variables}, not {on_request}")


def injected(args, *flags):
    """Returns the routes of a sidecar, and the variables of its application."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app"}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
    done = subprocess.run([args.binary, "inject", "--image", "registry.example/tokengauge:test", "--mode", "outbound", *flags], input=json.dumps(pod), capture_output=True,
                          text=True, timeout=WAIT_LIMIT, check=True)
    spec = json.loads(done.stdout)["spec"]
    [app], [sidecar] = ([{one["name"]: one.get("value") for one in container.get("env", [])} for container in containers]
                        for containers in (spec["containers"], spec["initContainers"]))
    return set(sidecar["TOKENGAUGE_UPSTREAM"].split(",")), app


def check_lines(args, tally, page):
    lines = {line.name: line for line in LINES if args.only in line.name}
    found = recordings(args.shared)
    answers = {name: chosen(line, found) for name, line in lines.items()}
    pages = {Page(line.host, line.path, answers[line.name].name) for line in lines.values()}
    replay, port = Processes("replay"), free_port()
    replay.start("replay", [part.format(port=port) for part in replay_backend(args.shared)], port)
    internet = Internet(replay.folder, pages, port)
    way_out = f"http://127.0.0.1:{internet.port}"
    rig = Rig(args, tally, "lines", environment={"https_proxy": way_out, "SSL_CERT_FILE": str(internet.authority)},
              configuration=lambda rig: f"listeners: [{{address: 127.0.0.1:{rig.listen}}}]\n{CONFIGURATION.read_text()}")
    try:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for results in pool.map(lambda program: run(program, rig), programs(lines, page)):
                for name, pieces in results.items():
                    check_line(lines[name], pieces, tally, answers[name])
        tally.check("every request reaches its provider's host and path", not internet.missed, internet.missed)
        check_spans(lines.values(), rig)
        rig.end()
    finally:
        rig.stop()
        internet.stop()
        replay.stop()


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--shared", required=True)
    cli.add_argument("--only", default="")
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    clear_environment()
    tally, page, began = Tally(args.verbose), GUIDE.read_text(), time.monotonic()
    check_page(page, tally)
    check_inject(args, tally, page)
    check_lines(args, tally, page)
    print(f"lines of docs/how-to/provider-apis.md: {time.monotonic() - began:.0f} s")
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
