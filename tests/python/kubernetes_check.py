#!/usr/bin/env python3
"""Checks manifests against the schemas of Kubernetes, the *restricted* pod security standard, and rules beyond schemas.

    kubernetes_check.py [--from 1.28] [--sidecars] FILE…
    kubernetes_check.py --self-test

Each document is validated in strict mode against every version from `--from` to the newest one of kubernetes-validate. Custom resources are
validated against our own schemas. Every pod template must meet the standard. --sidecars is for test files: only the sidecars in injected pods
must meet the standard, and unknown custom resources are ignored. The self-test breaks each rule in turn, and each rule must report its violation.
The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import copy
import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml
from kubernetes_validate import utils

from kubernetes import beyond, broken_pods, crds, restricted

OURS = "tokengauge"
INJECTED = "tokengauge.dev/injected"
# Built-in API groups have no dot or this suffix. All others are custom resources.
BUILT_IN = ".k8s.io"
TEMPLATES = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "PodTemplate": ("template",),
    "Pod": (),
}


def versions(oldest):
    """Returns the versions to validate against, oldest first."""
    known = {tuple(map(int, version.split("-")[0].split(".")[:2])) for version in utils.all_versions()}
    wanted = [version for version in sorted(known) if version >= tuple(map(int, oldest.split(".")))]
    return [f"{major}.{minor}" for major, minor in wanted]


def objects(document):
    """Returns the objects of a document, with lists expanded."""
    if document.get("kind", "").endswith("List") and "items" in document:
        for item in document["items"]:
            yield from objects(item)
    else:
        yield document


def pod(thing):
    """Returns the pod that an object creates, or nothing."""
    path = TEMPLATES.get(thing.get("kind"))
    if path is None:
        return None
    for key in path:
        thing = thing[key]
    return thing


def custom(thing):
    """Whether the object is a custom resource."""
    version = thing.get("apiVersion", "")
    group = version.split("/")[0] if "/" in version else ""
    return "." in group and not group.endswith(BUILT_IN)


def against_schemas(thing, wanted):
    version, kind = thing.get("apiVersion", ""), thing.get("kind", "")
    if custom(thing):
        ours = crds.schema(version, kind)
        if ours is None:
            return [f"no schema of {kind} in {version}: add one to tests/python/kubernetes/crds.py"]
        errors = jsonschema.Draft202012Validator(ours).iter_errors(thing)
        return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]
    wrong = []
    for one in wanted:
        try:
            kubernetes_validate.validate(thing, one, strict=True)
        except kubernetes_validate.ValidationError as error:
            where = ".".join(str(step) for step in error.path)
            wrong.append(f"Kubernetes {one}: {where}: {error.message[:300]}")
        except kubernetes_validate.SchemaNotFoundError:
            wrong.append(f"Kubernetes {one} has no {kind} in {version}")
    return wrong


def only_ours(template):
    """Returns the pod with only our sidecar, which must not depend on the pod's settings. Empty without an injected sidecar."""
    cut = {"metadata": {}, "spec": {}}
    if INJECTED in ((template.get("metadata") or {}).get("annotations") or {}):
        for kind in restricted.CONTAINERS:
            cut["spec"][kind] = [it for it in template["spec"].get(kind) or [] if it.get("name") == OURS]
    return cut


def wrong_with(thing, wanted, sidecars):
    foreign = sidecars and custom(thing) and crds.schema(thing["apiVersion"], thing["kind"]) is None
    wrong = [] if foreign else against_schemas(thing, wanted)
    template = pod(thing)
    if template is not None:
        judged = only_ours(template) if sidecars else template
        wrong += [f"restricted, {rule}: {where}" for rule, where in restricted.broken(judged)]
        wrong += [f"{rule}: {where}" for rule, where in beyond.broken(template)]
    return wrong


def changed(path, value):
    """Returns the good pod with one change. None removes the field."""
    made = copy.deepcopy(broken_pods.GOOD)
    at = made
    for key in path[:-1]:
        at = at[key] if isinstance(key, int) else at.setdefault(key, {})
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return made


def self_test(wanted):
    """Returns violations that the checks miss, and false reports."""
    failed = [f"the good pod: {one}" for one in wrong_with(broken_pods.GOOD, wanted, False)]
    for rules, cases in ((restricted, broken_pods.RESTRICTED), (beyond, broken_pods.BEYOND)):
        untried = {rule.__name__ for rule in rules.RULES}
        for rule, path, value in cases:
            untried.discard(rule)
            found = {name for name, _ in rules.broken(changed(path, value))}
            if found != {rule}:
                failed.append(f"{rule}: {path} = {value!r} violates {sorted(found)}")
        failed += [f"no broken pod tests {rule}" for rule in sorted(untried)]
    misspelt = changed(("spec", "containers", 0, "imagePullPolicies"), "Always")
    if not against_schemas(misspelt, wanted):
        failed.append("a misspelt key was not found")
    if not against_schemas(broken_pods.GOOD, ["1.27"]):
        failed.append("Kubernetes 1.27 accepted a sidecar among init containers")
    monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": {"name": "a"}}
    for port, right in (("tokengauge", True), ("tokengauge-admin", False)):
        monitor["spec"] = {"selector": {}, "podMetricsEndpoints": [{"port": port}]}
        if (not against_schemas(monitor, wanted)) != right:
            failed.append(f"a PodMonitor with port {port}")
    service = {"kind": "Service", "spec": {"selector": {"app": "a"}, "ports": [{"port": 80, "targetPort": "http"}]}}
    labelled = changed(("metadata", "labels"), {"app": "a"})
    for target, right in (("http", True), (8000, True), ("htpp", False), ("tokengauge", False)):
        service["spec"]["ports"][0]["targetPort"] = target
        if (not list(beyond.services([(service, None), (labelled, labelled)]))) != right:
            failed.append(f"a Service with the target {target}")
    beside = changed(("metadata", "annotations"), {INJECTED: "{}"})
    beside["spec"]["initContainers"][0]["name"] = OURS
    beside["spec"]["initContainers"][0]["securityContext"] = {"allowPrivilegeEscalation": False}
    if not wrong_with(beside, wanted, True):
        failed.append("an injected sidecar that depends on the pod's security context")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--from", dest="oldest", default="1.28", help="the oldest version of Kubernetes (default: 1.28)")
    parser.add_argument("--sidecars", action="store_true", help="check only injected sidecars against the standard")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    wanted = versions(args.oldest)
    if args.self_test:
        failed = self_test(wanted)
        print(*failed, sep="\n", end="\n" if failed else "")
        count = len(broken_pods.RESTRICTED) + len(broken_pods.BEYOND)
        print(f"self-test: {count} broken pods, {len(failed)} failed")
        sys.exit(1 if failed else 0)
    if not args.files:
        parser.error("no file given")
    passed = failed = sidecars = 0
    for file in args.files:
        documents = [it for it in yaml.safe_load_all(file.read_text()) if it is not None]
        if not documents:
            print(f"{file}: contains no document")
            failed += 1
        things = [(one, pod(one)) for document in documents for one in objects(document)]
        astray = list(beyond.services(things))
        for thing, template in things:
            sidecars += template is not None and any(only_ours(template)["spec"].values())
            wrong = wrong_with(thing, wanted, args.sidecars)
            wrong += [what for service, what in astray if service is thing]
            failed, passed = (failed + 1, passed) if wrong else (failed, passed + 1)
            for one in wrong:
                print(f"{file}: {thing.get('kind')} {(thing.get('metadata') or {}).get('name')}: {one}")
    if args.sidecars:
        print(f"{sidecars} pods with a sidecar")
        failed += sidecars == 0
    print(f"Kubernetes {wanted[0]} to {wanted[-1]}: {passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
