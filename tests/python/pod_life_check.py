#!/usr/bin/env python3
"""The life of a pod without a cluster: streams and telemetry must survive the deletion of pods with a sidecar.

    pod_life_check.py --binary target/release/tokengauge [--network auto|loopback] [--only NAME…] [--verbose]

A small kubelet (pod/kubelet.py) starts and ends pods in the order and with the signals of the real one. 200 streams run through the
sidecar while its pod is deleted, its engine restarts, its collector hangs or its grace period expires.
docs/contributing/pod-lifecycle.md explains what this proves. The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import concurrent.futures
import pathlib
import sys
import tempfile
import threading
import time
import traceback

from pod import scenarios
from pod.network import network
from rig import Tally, clear_environment


def play(scenario, args, node, folder, tally):
    """Runs one scenario. An exception in the test harness counts as a failure of the scenario."""
    began = time.monotonic()
    try:
        scenario(args, node, folder, tally)
    except (Exception, SystemExit):
        tally.check(f"{scenario.__name__}: runs to its end", False, traceback.format_exc(limit=-3))
    print(f"     {scenario.__name__}: {time.monotonic() - began:.1f} s", flush=True)


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("--binary", required=True)
    cli.add_argument("--network", choices=("auto", "loopback"), default="auto")
    cli.add_argument("--only", nargs="+", metavar="NAME", help=" ".join(one.__name__ for one in scenarios.ALL))
    cli.add_argument("--streams", type=int, default=200)
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    args.binary = str(pathlib.Path(args.binary).resolve())
    node = network(args.network)
    clear_environment()
    folder, tally = pathlib.Path(tempfile.mkdtemp(prefix="pod-life-")), Tally(args.verbose)
    print(f"pods run in {node.name}; logs in {folder}", flush=True)
    wanted = [one for one in scenarios.ALL if not args.only or one.__name__ in args.only]
    with concurrent.futures.ThreadPoolExecutor(2 if node.apart else 1) as pool:
        list(pool.map(lambda one: play(one, args, node, folder, tally), wanted))
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed or not wanted else 0


if __name__ == "__main__":
    threading.stack_size(256 * 1024)
    sys.exit(main())
