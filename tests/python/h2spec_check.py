#!/usr/bin/env python3
"""Runs the generic, http2 and hpack suites of h2spec against the proxy's listener, with and without TLS.

    h2spec_check.py --binary target/release/tokengauge --h2spec target/tools/h2spec [--verbose]

The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import subprocess
import sys
import xml.etree.ElementTree

from rig import Processes, Tally, clear_environment, free_port

SUITES = ("generic", "http2", "hpack")
# A listener without TLS also serves HTTP/1.1, so bytes that are no HTTP/2 preface are an HTTP/1.1 request. The proxy answers 400 and closes
# the connection. h2spec expects no answer.
EXCEPTIONS = {"plain": {"Sends invalid connection preface"}, "TLS": set()}
# h2spec takes the frames of a response for the reaction to its error where the response is faster. A case therefore fails only if it fails in
# every run.
RUNS = 3


def certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                    "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")], check=True, stderr=subprocess.DEVNULL)
    return ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]


def run(args, tally, name):
    processes = Processes(f"h2spec-{name}")
    backend, listen = free_port(), free_port()
    tls = certificate(processes.folder) if name == "TLS" else []
    report = processes.folder / "report.xml"
    try:
        processes.start("backend", [args.binary, "simulate", "--listen", f"127.0.0.1:{backend}"], backend)
        processes.start("proxy", [args.binary, "run", "--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{free_port()}",
                                  "--upstream", f"http://127.0.0.1:{backend}", *tls], listen)
        command = [args.h2spec, *SUITES, "--host", "localhost" if tls else "127.0.0.1", "--port", str(listen), "--junit-report", str(report),
                   "--timeout", "5", *(["--tls", "--insecure"] if tls else [])]
        runs = [failures(command, report) for _ in range(RUNS)]
    finally:
        processes.stop()
    cases = sorted(set.union(*(set(one) for one in runs)))
    tally.check(f"{name}: h2spec ran all cases", len(cases) > 140, f"{len(cases)} cases")
    for case in cases:
        failed = all(one[case] for one in runs)
        expected = case[1] in EXCEPTIONS[name]
        tally.check(f"{name}: {case[0]}: {case[1]}", failed == expected, "passes, but is listed as an exception" if expected else "fails")


def failures(command, report):
    """Runs h2spec. Returns whether each case failed, by section and title."""
    subprocess.run(command, stdout=subprocess.DEVNULL, timeout=600)
    found = {}
    for number, case in enumerate(xml.etree.ElementTree.parse(report).iter("testcase")):
        # Two cases of a section can have the same title.
        found[case.get("package"), case.get("classname"), number] = any(case.find(kind) is not None for kind in ("failure", "error"))
    return found


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--h2spec", required=True)
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    clear_environment()
    tally = Tally(args.verbose)
    for name in EXCEPTIONS:
        run(args, tally, name)
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
