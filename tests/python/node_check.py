#!/usr/bin/env python3
"""Runs pods on a real node: kubelet, containerd and kube-proxy with the image, the manifests and the chart.

    node_check.py --binary TOKENGAUGE --image ARCHIVE --tools FOLDER --helm HELM [--streams 100] [--only NAME…] [--verbose]

ARCHIVE is the image in the format of `docker save`. FOLDER holds kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy,
kubelet, prometheus3 and prometheus-adapter. Scenarios that run only with --only also need metrics-server, keda and prometheus-operator.
The servers run with etcd and containerd in their own namespaces, without access to a registry. vLLM's image is a simulated engine.
docs/contributing/pod-lifecycle.md explains what this proves. The last line is `N passed, N failed`; exit status 0 if nothing failed, 77 with
a reason if this machine cannot run a node.
"""
import argparse
import concurrent.futures
import pathlib
import sys
import threading
import time
import traceback

from node import keda, monitored, scaling, scenarios, shapes
from node.cluster import NAME, Node, inside
from node.scene import Pods
from rig import Tally, clear_environment

# Scenarios of one group run one after the other. The groups run in parallel.
GROUPS = ((scenarios.inbound, scenarios.collector_hangs), (scenarios.inbound_fallback, scenarios.without_hooks), (scenarios.chart,), (scaling.autoscaled,))
# Scenarios that run only with --only, because their tools take long to build.
NAMED = ((scaling.gateway_by_adapter, keda.autoscaled_by_keda, keda.gateway_by_keda, monitored.monitored),)


def play(scenario, node, pods, args, tally):
    """Runs one scenario. An exception in the test harness counts as a failure of the scenario."""
    began = time.monotonic()
    try:
        scenario(node, pods, args, tally)
    except (Exception, SystemExit):
        tally.check(f"{scenario.__name__}: runs to its end", False, traceback.format_exc(limit=-3)[-4000:])
    print(f"     {scenario.__name__}: {time.monotonic() - began:.1f} s", flush=True)


def played(node, args, tally):
    # Capacity of a node with eight GPUs.
    status, _, output = node.ask("PATCH", f"/api/v1/nodes/{NAME}/status", [{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "8"}],
                               content="application/json-patch+json")
    assert status == 200, output
    shapes.load(node, args.binary, args.image)
    pods = Pods(node)
    groups = [[one for one in group if one.__name__ in args.only] for group in GROUPS + NAMED] if args.only else GROUPS
    with concurrent.futures.ThreadPoolExecutor(len(groups)) as pool:
        list(pool.map(lambda group: [play(one, node, pods, args, tally) for one in group], groups))
    return any(groups)


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("binary", "image", "tools", "helm"):
        cli.add_argument(f"--{name}", required=True)
    cli.add_argument("--streams", type=int, default=100)
    cli.add_argument("--only", nargs="+", metavar="NAME", help=" ".join(one.__name__ for group in GROUPS + NAMED for one in group))
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    for name in ("binary", "image", "tools", "helm"):
        setattr(args, name, str(pathlib.Path(getattr(args, name)).resolve()))
    folder = inside()
    clear_environment()
    tally = Tally(args.verbose)
    print(f"logs are kept after a failure in {folder}", flush=True)
    node = Node(folder, pathlib.Path(args.tools))
    try:
        some = played(node, args, tally)
    finally:
        node.stop()
    print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed or not some else 0


if __name__ == "__main__":
    threading.stack_size(256 * 1024)
    sys.exit(main())
