#!/usr/bin/env python3
"""A pod's life without a cluster: what becomes of streams and telemetry when pods with a sidecar are deleted.

    pod_life_check.py --binary target/release/tokengauge [--network auto|loopback] [--only NAME…] [--verbose]

A small kubelet (pod/kubelet.py) starts and ends pods in the order and with the signals of the real one. 200 streams are open through the
sidecar when the pod is deleted, its engine restarted, its collector hung or its grace period used up. docs/contributing/pod-lifecycle.md says
what that proves. The last line is `N passed, N failed`; exit 0 when nothing failed.
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
from rig import Tally, forget_the_machine


def play(scenario, args, node, folder, tally):
    """One scenario; what breaks in the machinery is a failure of it."""
    began = time.monotonic()
    try:
        scenario(args, node, folder, tally)
    except (Exception, SystemExit):
        tally.check(f"{scenario.__name__}: played to its end", False, traceback.format_exc(limit=-3))
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
    forget_the_machine()
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
