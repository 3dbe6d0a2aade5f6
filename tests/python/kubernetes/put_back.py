"""What runs goes back to the cluster as `inject` tells it, and what docs/how-to/kubernetes.md says of the other ways is so."""
import json
import pathlib
import re
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]

POD = {"containers": [{"name": "app", "image": "registry.example/app:1"}]}
ALONE = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone"}, "spec": POD}
ONCE = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}, "spec": {"template": {"spec": {**POD, "restartPolicy": "Never"}}}}


class Rehearsal:
    """`kubectl(*args, given=None)` returns what was written, or None where it failed, and what was said; `check` keeps the score."""

    def __init__(self, binary, kubectl, check, namespace):
        self.binary, self.asked, self.check, self.namespace = binary, kubectl, check, namespace

    def kubectl(self, *args, given=None):
        return self.asked("-n", self.namespace, *args, given=given)

    def tokengauge(self, text, *args):
        done = subprocess.run([self.binary, *args, "-"], input=text, capture_output=True, text=True)
        return done.stdout, done.stderr

    def changed(self, name, *args):
        """What `kubectl get` prints, changed, and what was told of it."""
        return self.tokengauge(self.kubectl("get", name, "-o", "yaml")[0], *args)

    def put(self, what, *way, given, refused=None):
        """It is taken, or refused with these words."""
        written, said = self.kubectl(*way, "-f", "-", given=given)
        held = written is not None if refused is None else written is None and refused in said
        self.check(held, f"{what}: {' '.join(way)} is {'refused' if refused else 'taken'}", said or written)

    def holds(self, what, name, **wanted):
        spec = json.loads(self.kubectl("get", name, "-o", "json")[0])["spec"]
        pod = spec.get("template", {}).get("spec", spec)
        has = {"sidecars": len(pod.get("initContainers", [])), "replicas": spec.get("replicas")}
        self.check(all(has[key] == value for key, value in wanted.items()), f"{what}: it has {wanted}", has)

    def created(self):
        """`kubectl apply` does not take out what it has not put in."""
        app = (ROOT / "deploy/kubernetes/outbound/workload.yaml").read_text()
        name = deployment_of(app)
        self.put("a created application", "create", given=app)
        made, told = self.changed(name, "inject", "--mode", "outbound")
        self.check("apply with `kubectl replace -f -`" in told, "a created application: replace is advised", told)
        self.put("with a sidecar", "replace", given=made)
        made, told = self.changed(name, "uninject")
        self.check("apply with `kubectl replace -f -`" in told, "a sidecar that was put in by replace: replace is advised", told)
        self.put("without it", "apply", given=made)
        self.holds("apply has not taken it out", name, sidecars=1)

    def applied(self):
        """What was applied is changed there; put back from what runs, a later apply takes out more."""
        engine = (ROOT / "deploy/kubernetes/inbound/workload.yaml").read_text()
        name = deployment_of(engine)
        # What an autoscaler is to set is not in a manifest.
        engine, left_out = re.subn(r"^  replicas: \d+\n", "", engine, flags=re.M)
        assert left_out == 1
        self.put("an engine", "apply", given=engine)
        self.kubectl("scale", name, "--replicas=5")
        manifest = lambda: self.kubectl("apply", "view-last-applied", name, "-o", "yaml")[0]
        _, told = self.changed(name, "inject", "--mode", "inbound")
        self.check("view-last-applied" in told, "an applied engine: its manifest is advised", told)
        for command, sidecars in ((["inject", "--mode", "inbound"], 1), (["uninject"], 0)):
            made, told = self.tokengauge(manifest(), *command)
            self.check("from a cluster" not in told, f"{command[0]}: what was applied is a manifest", told)
            self.put(f"{command[0]} of what was applied", "apply", given=made)
            self.holds(f"{command[0]} of what was applied", name, sidecars=sidecars, replicas=5)
        self.put("with a sidecar", "replace", given=self.changed(name, "inject", "--mode", "inbound")[0])
        _, told = self.changed(name, "uninject")
        self.check("apply with `kubectl replace -f -`" in told, "what replace has written into the annotation is no manifest", told)
        self.put("the manifest again", "apply", given=engine)
        self.holds("the manifest again, after a replace", name, sidecars=0, replicas=1)

    def fixed(self):
        """Pods and Jobs are not changed as they are."""
        self.put("a pod", "create", given=json.dumps(ALONE))
        made, told = self.changed("pod/alone", "inject", "--mode", "outbound")
        self.check("kubectl replace --force" in told, "a pod: replace --force is advised", told)
        self.put("a pod", "replace", given=made, refused="may not add or remove containers")
        self.put("a pod", "replace", "--force", given=made)
        self.holds("a pod, made anew", "pod/alone", sidecars=1)
        self.put("a Job", "create", given=json.dumps(ONCE))
        made, told = self.changed("job/once", "inject", "--mode", "outbound")
        self.check("inject the Job's manifest" in told, "a Job: its manifest is advised", told)
        self.put("a Job", "replace", given=made, refused="field is immutable")
        self.put("a Job", "replace", "--force", given=made, refused="`selector` not auto-generated")
        self.check(self.kubectl("get", "job/once")[0] is None, "a Job that was forced is gone")
        self.put("a Job's manifest", "apply", given=self.tokengauge(json.dumps(ONCE), "inject", "--mode", "outbound")[0])
        self.holds("a Job, made from its manifest", "job/once", sidecars=1)


def deployment_of(text):
    return next(f"deployment/{it['metadata']['name']}" for it in yaml.safe_load_all(text) if it and it["kind"] == "Deployment")


def rehearse(binary, kubectl, check, namespace):
    rehearsal = Rehearsal(binary, kubectl, check, namespace)
    rehearsal.created()
    rehearsal.applied()
    rehearsal.fixed()
