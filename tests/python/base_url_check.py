#!/usr/bin/env python3
"""Every line of docs/how-to/provider-apis.md that points a client at tokengauge, run as it stands there: with the vendor's own
client, with examples/vendors.yaml as it stands there, over TLS to the hosts that it names.

    base_url_check.py --binary target/release/tokengauge --shared ../shared [--only NAME] [--verbose]

A line is a block of code under `<!-- line: NAME -->`; base_url_lines.py says which streamed call is made with it. All of a
recorded answer must arrive, in pieces; the request must come to the vendor's own host and path; and the spans must name
the route, the provider and the operation. What the lines reach instead of the internet is internet.py. Lines for other
languages than Python are sdk_lines_check.py's. A block that names
the proxy's address and is not run is a failure, unless it stands under `<!-- not run: WHY -->`. And `tokengauge inject`
must make the routes and set the variables of the page's table.

The address is the only thing that is changed: another port. --shared names the folder with the OTLP receiver and the
recordings. Needs the packages of requirements.txt, and openssl. The last line is `N passed, N failed`; exit 0 when nothing
failed.
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
from rig import PATIENCE, Processes, Rig, Tally, forget_the_machine, free_port, of_kind, replay_backend, wait_until

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
GUIDE, CONFIGURATION = ROOT / "docs" / "how-to" / "provider-apis.md", ROOT / "examples" / "vendors.yaml"
PROXY = "127.0.0.1:4000"
BLOCK = re.compile(r"(?:^<!-- (line|not run): ([^\n]+) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Languages whose lines sdk_lines_check.py runs.
ELSEWHERE = ("js", "go")
# In the table: no variable.
NOTHING = "–"
# Programs that run at once.
AT_ONCE = 2
# The fewest pieces of text that make a stream.
PIECES = 3


def blocks(page):
    """Blocks of the page's code that name the proxy: (`line`, `not run` or None; the name or the reason; language; text)."""
    return [found.groups() for found in BLOCK.finditer(page) if PROXY in found[4]]


def chosen(line, found):
    """The shortest recording of a whole stream of text that there is of that vendor and API."""
    fitting = [one for one in found if (one.truth["provider"], one.api) == line.recorded and is_plain(one.truth)]
    return min(fitting, key=lambda one: (one.truth["n_output_events"], one.name))


def is_plain(truth):
    return (truth["framing"] in STREAMS and truth["status"] == 200 and not truth["error"] and truth["n_choices"] in (None, 0, 1)
            and truth["n_output_events"] >= PIECES and truth["output_text"] and not truth["reasoning_text"]
            and not truth["tool_calls"])


def programs(lines, page):
    """Which lines run in one program: each of those that set a variable has its own, those in code share one for each SDK."""
    found = collections.defaultdict(dict)
    for kind, name, language, text in blocks(page):
        line = lines.get(name) if kind == "line" and language not in ELSEWHERE else None
        if line:
            found[line.imports if language == "python" else name][name] = (language, text)
    return found.values()


def run(program, rig):
    """What came of each line of a program, by name."""
    environment, codes = {**os.environ, **SURROUNDINGS}, {}
    for name, (language, text) in program.items():
        codes[name] = text.replace(PROXY, f"127.0.0.1:{rig.listen}")
        if language == "sh":
            environment |= dict(setting.split("=", 1) for setting in codes[name].splitlines())
    done = subprocess.run([sys.executable, str(HERE / "base_url_lines.py")], input=json.dumps(codes), env=environment,
                          capture_output=True, text=True, timeout=PATIENCE)
    return json.loads(done.stdout) if done.returncode == 0 else dict.fromkeys(program, done.stderr[-400:])


def check_line(line, came, tally, recording):
    wanted = recording.truth["output_text"]
    tally.check(f"{line.name}: all of the answer arrives", "".join(came) == wanted, f"{came}, not {wanted}")
    tally.check(f"{line.name}: in pieces", isinstance(came, list) and len(came) >= PIECES, came)


def check_spans(lines, rig):
    """Every call has its CLIENT span, which says whose it was, and that all of it was seen."""
    def spans():
        return [span for spans in rig.telemetry.read()[0].values() for span in of_kind(spans, "CLIENT")]

    wait_until(lambda: len(spans()) >= len(lines))
    told = [(one.get("tokengauge.route"), one.get("gen_ai.provider.name"), one.get("gen_ai.operation.name"),
             one.get("tokengauge.complete")) for one in spans()]
    for line in lines:
        wanted = (line.route, line.provider, line.operation, "true")
        held = wanted in told
        rig.tally.check(f"{line.name}: its span says {wanted}", held, sorted(map(str, told)))
        if held:
            told.remove(wanted)
    rig.tally.check("nothing else is told", not told, told)


def check_page(page, tally):
    """The lines of the page are those that there are calls for, and no block is overlooked."""
    marked = [name for kind, name, language, _ in blocks(page) if kind == "line" and language not in ELSEWHERE]
    tally.check("the guide has every line once", sorted(marked) == sorted(line.name for line in LINES),
                set(marked) ^ {line.name for line in LINES})
    for kind, _, language, text in blocks(page):
        tally.check("each block that names the proxy is run, or says why it is not", kind or language == "yaml", text)


def check_inject(args, tally, page):
    """`tokengauge inject` makes the routes of the page's table and sets its variables, those on request where they are asked for."""
    rows = [[cell.strip("` ") for cell in row.strip("|").split("|")] for row in page.splitlines() if row.startswith("| `/")]
    routes = {f"{route}={upstream}" for route, upstream, _, _, _ in rows}
    usual = {variable: value for _, _, variable, value, when in rows if variable != NOTHING and when == "yes"}
    asked = {f"{route}={upstream}": (variable, value)
             for route, upstream, variable, value, when in rows if variable != NOTHING and when == "on request"}
    tally.check("the guide's table has rows of either kind", usual and asked, rows)
    made, variables = injected(args)
    tally.check("inject makes the routes of the guide", made == routes, made ^ routes)
    tally.check("inject sets the guide's variables", variables == usual, f"{variables}, not {usual}")
    _, variables = injected(args, "--upstream", ",".join(asked))
    tally.check("inject sets the guide's variables on request", variables == dict(asked.values()), f"{variables}, not {asked}")


def injected(args, *flags):
    """The routes of a sidecar, and the variables that the application beside it is given."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app"}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
    done = subprocess.run([args.binary, "inject", "--mode", "outbound", *flags], input=json.dumps(pod), capture_output=True,
                          text=True, timeout=PATIENCE, check=True)
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
            for came in pool.map(lambda program: run(program, rig), programs(lines, page)):
                for name, pieces in came.items():
                    check_line(lines[name], pieces, tally, answers[name])
        tally.check("every request comes to its vendor's host and path", not internet.missed, internet.missed)
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
    forget_the_machine()
    tally, page, began = Tally(args.verbose), GUIDE.read_text(), time.monotonic()
    check_page(page, tally)
    check_inject(args, tally, page)
    check_lines(args, tally, page)
    print(f"lines of docs/how-to/provider-apis.md: {time.monotonic() - began:.0f} s")
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
