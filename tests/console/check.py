"""Tests of the web console in Chromium.

    python tests/console/check.py --axe node_modules/axe-core/axe.min.js [NAME…]
    python tests/console/check.py --address http://127.0.0.1:4001/       against a process with traffic

Without --address, the pages show the mock of `mock.mjs`. No test may cause a dialog, an error of a script, a violation of
the Content-Security-Policy or a request to another host.
"""

import argparse
import pathlib
import sys
import time
import traceback

import behaviour
import values
from browser import Browser, Mock

# With the mock in the incident, with the mock without traffic, and with mocks of their own.
INCIDENT = {
    "now": values.now, "charts": values.charts, "streams": values.streams, "requests": values.requests, "sessions": values.sessions, "slos": values.slos, "compare": values.compare,
    "capacity": values.capacity, "deep-links": behaviour.deep_links, "keyboard": behaviour.keyboard, "narrow": behaviour.narrow, "motion": behaviour.motion,
}
IDLE = {"unknown": values.unknown}
OWN = {
    "crowd": behaviour.crowd, "reconnect": behaviour.reconnect, "token": behaviour.token, "viewers": behaviour.viewers, "hidden": behaviour.hidden, "hostile": behaviour.hostile, "prefix": behaviour.prefix,
}


def run(browser, name, test):
    """Returns whether a test passed."""
    began = time.monotonic()
    failure = None
    try:
        test()
    except Exception:  # noqa: BLE001: the other tests still run
        failure = traceback.format_exc()
    problems = browser.finish()
    passed = failure is None and not problems
    print(f"{'ok  ' if passed else 'FAIL'} {name} ({time.monotonic() - began:.1f} s)", flush=True)
    for line in [failure, *problems]:
        if line:
            print(f"  {line}", flush=True)
    return passed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", help="admin port of a process with traffic")
    parser.add_argument("--axe", type=pathlib.Path, help="axe.min.js of axe-core")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    browser = Browser()
    results = []

    def wanted(name):
        return not arguments.names or name in arguments.names

    if arguments.address:
        address = arguments.address.rstrip("/") + "/"
        results.append(run(browser, "real-process", lambda: values.real_process(browser, address)))
    else:
        with Mock() as mock:
            for name, test in INCIDENT.items():
                if wanted(name):
                    results.append(run(browser, name, lambda test=test: test(browser, mock)))
            if arguments.axe and wanted("axe"):
                source = arguments.axe.read_text()
                results.append(run(browser, "axe", lambda: behaviour.axe(browser, mock, source)))
        with Mock("--scenario", "idle") as mock:
            for name, test in IDLE.items():
                if wanted(name):
                    results.append(run(browser, name, lambda test=test: test(browser, mock)))
        for name, test in OWN.items():
            if wanted(name):
                results.append(run(browser, name, lambda test=test: test(browser, None)))
    browser.close()
    if not results:
        sys.exit(f"no test is named {' or '.join(arguments.names)}")
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
