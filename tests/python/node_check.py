#!/usr/bin/env python3
"""Pods on a real node: what a kubelet, containerd and kube-proxy make of the image, the manifests and the chart.

    node_check.py --binary TOKENGAUGE --image ARCHIVE --tools FOLDER --helm HELM [--streams 100] [--only NAME…] [--verbose]

ARCHIVE is the image as `docker save` writes it, FOLDER has kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy,
kubelet, prometheus3 and prometheus-adapter; for the scenarios that are only played when they are named also metrics-server, keda and
prometheus-operator. They run beside etcd and containerd in namespaces of their own, and images come from nowhere else: under vLLM's
name there is a simulated engine. docs/contributing/pod-lifecycle.md says what is proven. The last line is `N passed, N failed`; exit 0 when nothing
failed, and 77 with a reason where no node can be had.
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
from rig import Tally, forget_the_machine

# Those of a group come one after the other, and the groups side by side.
GROUPS = ((scenarios.inbound, scenarios.collector_hangs), (scenarios.inbound_fallback, scenarios.without_hooks), (scenarios.chart,), (scaling.autoscaled,))
# Those that are only played when they are named, since what they take is long to build.
NAMED = ((scaling.gateway_by_adapter, keda.autoscaled_by_keda, keda.gateway_by_keda, monitored.monitored),)


def play(scenario, node, pods, args, tally):
    """One scenario; what breaks in the machinery is a failure of it."""
    began = time.monotonic()
    try:
        scenario(node, pods, args, tally)
    except (Exception, SystemExit):
        tally.check(f"{scenario.__name__}: played to its end", False, traceback.format_exc(limit=-3)[-4000:])
    print(f"     {scenario.__name__}: {time.monotonic() - began:.1f} s", flush=True)


def played(node, args, tally):
    # As a node with eight GPUs says of itself.
    status, _, said = node.ask("PATCH", f"/api/v1/nodes/{NAME}/status", [{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "8"}],
                               content="application/json-patch+json")
    assert status == 200, said
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
    forget_the_machine()
    tally = Tally(args.verbose)
    print(f"logs of a failure stay in {folder}", flush=True)
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
