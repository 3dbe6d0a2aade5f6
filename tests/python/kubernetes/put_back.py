"""Puts live objects back into the cluster as `inject` advises, and checks the statements of docs/how-to/kubernetes.md on other ways."""
import json
import pathlib
import re
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]

POD = {"containers": [{"name": "app", "image": "registry.example/app:1"}]}
ALONE = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone"}, "spec": POD}
ONCE = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": {"spec": {**POD, "restartPolicy": "Never"}}}}


class PutBackCheck:
    """`kubectl(*args, given=None)` returns the output, or None on failure, and the error output. `check` counts results."""

    def __init__(self, binary, kubectl, check, namespace):
        self.binary, self.run_kubectl, self.check, self.namespace = binary, kubectl, check, namespace

    def kubectl(self, *args, given=None):
        return self.run_kubectl("-n", self.namespace, *args, given=given)

    def tokengauge(self, text, *args):
        done = subprocess.run([self.binary, *args, "-"], input=text, capture_output=True, text=True)
        return done.stdout, done.stderr

    def changed(self, name, *args):
        """Returns the changed output of `kubectl get`, and the hints for the user."""
        return self.tokengauge(self.kubectl("get", name, "-o", "yaml")[0], *args)

    def put(self, what, *way, given, refused=None):
        """Checks that the object is accepted, or rejected with this message."""
        written, error = self.kubectl(*way, "-f", "-", given=given)
        held = written is not None if refused is None else written is None and refused in error
        self.check(held, f"{what}: {' '.join(way)} is {'rejected' if refused else 'accepted'}", error or written)

    def holds(self, what, name, **wanted):
        spec = json.loads(self.kubectl("get", name, "-o", "json")[0])["spec"]
        pod = spec.get("template", {}).get("spec", spec)
        has = {"sidecars": len(pod.get("initContainers", [])), "replicas": spec.get("replicas")}
        self.check(all(has[key] == value for key, value in wanted.items()), f"{what}: it has {wanted}", has)

    def created(self):
        """`kubectl apply` does not remove fields that it did not add."""
        app = (ROOT / "deploy/kubernetes/outbound/workload.yaml").read_text()
        name = deployment_of(app)
        self.put("a created application", "create", given=app)
        made, hints = self.changed(name, "inject", "--mode", "outbound")
        self.check("apply with `kubectl replace -f -`" in hints, "a created application: the hint is replace", hints)
        self.put("with a sidecar", "replace", given=made)
        made, hints = self.changed(name, "uninject")
        self.check("apply with `kubectl replace -f -`" in hints, "a sidecar added by replace: the hint is replace", hints)
        self.put("without it", "apply", given=made)
        self.holds("apply did not remove the sidecar", name, sidecars=1)

    def applied(self):
        """Changes applied objects. An object that is put back from its live state loses more fields in a later apply."""
        engine = (ROOT / "deploy/kubernetes/inbound/workload.yaml").read_text()
        name = deployment_of(engine)
        # A manifest omits fields that an autoscaler sets.
        engine, left_out = re.subn(r"^  replicas: \d+\n", "", engine, flags=re.M)
        assert left_out == 1
        self.put("an engine", "apply", given=engine)
        self.kubectl("scale", name, "--replicas=5")
        manifest = lambda: self.kubectl("apply", "view-last-applied", name, "-o", "yaml")[0]
        _, hints = self.changed(name, "inject", "--mode", "inbound")
        self.check("view-last-applied" in hints, "an applied engine: the hint is the manifest", hints)
        for command, sidecars in ((["inject", "--mode", "inbound"], 1), (["uninject"], 0)):
            made, hints = self.tokengauge(manifest(), *command)
            self.check("from a cluster" not in hints, f"{command[0]}: the applied configuration is a manifest", hints)
            self.put(f"{command[0]} of the applied configuration", "apply", given=made)
            self.holds(f"{command[0]} of the applied configuration", name, sidecars=sidecars, replicas=5)
        self.put("with a sidecar", "replace", given=self.changed(name, "inject", "--mode", "inbound")[0])
        _, hints = self.changed(name, "uninject")
        self.check("apply with `kubectl replace -f -`" in hints, "the annotation that replace writes is not a manifest", hints)
        self.put("the manifest again", "apply", given=engine)
        self.holds("the manifest again, after a replace", name, sidecars=0, replicas=1)

    def fixed(self):
        """Pods and Jobs are immutable."""
        self.put("a pod", "create", given=json.dumps(ALONE))
        made, hints = self.changed("pod/alone", "inject", "--mode", "outbound")
        self.check("kubectl replace --force" in hints, "a pod: the hint is replace --force", hints)
        self.put("a pod", "replace", given=made, refused="may not add or remove containers")
        self.put("a pod", "replace", "--force", given=made)
        self.holds("a recreated pod", "pod/alone", sidecars=1)
        self.put("a Job", "create", given=json.dumps(ONCE))
        made, hints = self.changed("job/once", "inject", "--mode", "outbound")
        self.check("inject the Job's manifest" in hints, "a Job: the hint is the manifest", hints)
        self.put("a Job", "replace", given=made, refused="field is immutable")
        self.put("a Job", "replace", "--force", given=made, refused="`selector` not auto-generated")
        self.check(self.kubectl("get", "job/once")[0] is None, "a Job after replace --force is gone")
        self.put("a Job's manifest", "apply", given=self.tokengauge(json.dumps(ONCE), "inject", "--mode", "outbound")[0])
        self.holds("a Job from its manifest", "job/once", sidecars=1)


def deployment_of(text):
    return next(f"deployment/{it['metadata']['name']}" for it in yaml.safe_load_all(text) if it and it["kind"] == "Deployment")


def check_put_back(binary, kubectl, check, namespace):
    rehearsal = PutBackCheck(binary, kubectl, check, namespace)
    rehearsal.created()
    rehearsal.applied()
    rehearsal.fixed()
