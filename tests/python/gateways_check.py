#!/usr/bin/env python3
"""Checks that a real API server with the custom resource definitions of Istio, Envoy Gateway and kgateway accepts the examples in deploy/envoy.

    gateways_check.py --apiserver KUBE_APISERVER --definitions FOLDER

The server refuses unknown fields, wrong types, and values that a rule of a definition forbids. No controller runs. Needs root; exit status 77 without
namespaces.
"""
import argparse
import copy
import pathlib
import sys
import tempfile

import yaml

from kubernetes.control_plane import SERVER, ControlPlane, until
from namespaces import NETWORK, enter, loopback

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "deploy/envoy"
FILES = ("istio.yaml", "envoy-gateway.yaml", "kgateway.yaml")


def refused(cluster, document):
    """Returns the server's error for an object, or an empty text if it accepts the object."""
    out, wrong = cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", given=yaml.safe_dump(document))
    return "" if out else wrong.strip() or "no output"


def misspelt(document):
    """Returns the object with the first key of its specification misspelt."""
    wrong = copy.deepcopy(document)
    key = next(iter(wrong["spec"]))
    wrong["spec"][f"{key}x"] = wrong["spec"].pop(key)
    return wrong


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--apiserver", required=True, type=pathlib.Path)
    cli.add_argument("--definitions", required=True, type=pathlib.Path)
    args = cli.parse_args()
    apiserver, definitions = args.apiserver.resolve(), args.definitions.resolve()
    enter(NETWORK)
    loopback(SERVER)
    passed, failed = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        cluster = ControlPlane(pathlib.Path(folder), str(apiserver))
        try:
            cluster.await_ready()
            out, wrong = cluster.kubectl("create", "-f", str(definitions))
            if not out:
                raise SystemExit(f"the definitions are refused: {wrong}")
            documents = [document for name in FILES for document in yaml.safe_load_all((EXAMPLES / name).read_text())]
            for namespace in sorted({document["metadata"]["namespace"] for document in documents}):
                cluster.kubectl("create", "namespace", namespace)
            for document in documents:
                title = f"{document['kind']} of {document['apiVersion']}"
                # A definition takes a moment until the server knows it.
                until(lambda: not refused(cluster, document), 15)
                for what, error in (("is accepted", refused(cluster, document)), ("is refused with a misspelt key", not refused(cluster, misspelt(document)))):
                    passed, failed = passed + (not error), failed + bool(error)
                    print(f"{'FAIL' if error else 'ok  '} {title} {what}{f': {error}' if error else ''}")
        finally:
            cluster.stop()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
