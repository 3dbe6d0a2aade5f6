"""What happens on the node, and what must be true afterwards."""
import asyncio
import contextlib
import json
import pathlib
import re
import subprocess
import threading
import time

import yaml

import rig
from node import shapes
from node.cluster import NAME
from node.scene import RESTRICTED, Scene, container
from node.shapes import APP, ENGINE, SIDECAR
from pod.client import Answer
from pod.collector import State
from pod.scenarios import telling, told, whole

CHART = pathlib.Path(__file__).resolve().parents[3] / "deploy/helm/tokengauge"
# Tokens, and seconds between two of them: 10 s, twice the delay of a drain.
LONG, GAP = 40, 0.25
SHORT = 5
KILLED = 137


def scene(name, node, pods, args, **settings):
    return contextlib.closing(Scene(name, node, pods, args, **settings))


# --- what is looked at -----------------------------------------------------------------------------------------------


def ended(pod, native):
    """Each thing that must be true of a pod that is over."""
    sidecar, engine = (container(pod, name).get("state", {}).get("terminated", {}) for name in (SIDECAR, ENGINE))
    name = pod["metadata"]["name"]
    yield f"{name}: the sidecar exits 0", sidecar.get("exitCode") == 0, sidecar
    yield f"{name}: the engine was not killed", engine.get("exitCode", KILLED) != KILLED, engine
    restarts = [container(pod, one).get("restartCount") for one in (SIDECAR, ENGINE)]
    yield f"{name}: nothing was started twice", restarts == [0, 0], restarts
    if native:
        began = [container(pod, one)["state"]["terminated"]["startedAt"] for one in (SIDECAR, ENGINE)]
        yield f"{name}: the sidecar began before the engine", began == sorted(began), began
        over = [engine.get("finishedAt", ""), sidecar.get("finishedAt", "")]
        yield f"{name}: and ended after it", over == sorted(over), over


def hooks(one):
    """Events of the kubelet that say that something of ours did not work."""
    said, _ = one.kubectl("get", "events", "--output=json")
    wrong = [(event["reason"], event.get("message", "")) for event in json.loads(said or '{"items":[]}')["items"]
             if event["reason"] in ("FailedPreStopHook", "BackOff", "FailedKillPod", "OOMKilling", "ProbeWarning")]
    yield "no hook failed, and nothing had to be started again", not wrong, wrong


def identities(one, pods):
    """Whether telemetry says of each pod who it is, in the API server's words."""
    resources = one.collector.resources()
    wanted = {(f"{one.name}.{pod['metadata']['name']}.{SIDECAR}", pod["metadata"]["name"], pod["metadata"]["uid"], one.name, NAME) for pod in pods}
    found = {(instance, *(about.get(f"k8s.{key}") for key in ("pod.name", "pod.uid", "namespace.name", "node.name"))) for instance, about in resources.items()}
    yield "each pod's telemetry has its own instance, name and uid", found == wanted, f"{found ^ wanted}"


def kernel(one, spans):
    """The kernel is asked for round trips from within the pod: without rights, under the runtime's seccomp profile."""
    streams = [answer for answer in one.answers if answer.kind == "long"]
    lacking = [answer.trace for answer in streams for kind in ("SERVER", "CLIENT")
               for found in rig.of_kind(spans.get(answer.trace, []), kind) if not found.get("tokengauge.network.rtt")]
    yield "the kernel tells the round trips of every stream, on both sides", streams and not lacking, f"{len(lacking)} are not told"


def memory(one, node, title, bound):
    """The working sets of the containers called so, in bytes, as the kubelet tells them; each is within `bound`."""
    said = node.ask("GET", f"/api/v1/nodes/{NAME}/proxy/stats/summary")[2]
    found = [container["memory"].get("workingSetBytes", 0) for pod in said["pods"] if pod["podRef"]["namespace"] == one.name
             for container in pod.get("containers", []) if container["name"] == title]
    print(f"     {one.name}: working set of {title}: {', '.join(f'{size / 2**20:.1f} MiB' for size in found)}", flush=True)
    yield f"the kubelet sees {title} within what it requests", found and all(0 < size <= bound for size in found), found


# --- traffic ---------------------------------------------------------------------------------------------------------


async def again(clients):
    """One stream after the other."""
    while not clients.stopping:
        answer = await clients.stream(LONG)
        if answer.error:
            await asyncio.sleep(1)


class Traffic:
    """So many streams at any time, each new one on a connection of its own; and clients that keep theirs."""

    def __init__(self, one, find, streams, path="/v1/chat/completions"):
        self.one, self.long = one, one.clients(find, GAP, path)
        self.short = one.clients(find, 0.01, path)
        self.running = [one.spawn(again(self.long)) for _ in range(streams)]
        self.running += [one.spawn(self.short.keep_coming(SHORT, 0.1))] + [one.spawn(self.short.keep_asking(SHORT, 0.2)) for _ in range(8)]
        rig.wait_until(lambda: sum(answer.kind == "long" and (answer.tokens > 0 or bool(answer.ended)) for answer in one.answers) >= streams)

    def open(self):
        return sum(answer.kind == "long" and not answer.ended for answer in self.one.answers)

    def stop(self):
        self.long.stopping = self.short.stopping = True
        for each in self.running:
            each.result(rig.PATIENCE)


def crossed(one, tally):
    """What clients saw of all of it."""
    kinds = {kind: [answer for answer in one.answers if answer.kind == kind] for kind in ("long", "new", "kept")}
    for kind, what in (("long", "every stream ends by the backend's own word"), ("new", "every new connection is served"),
                       ("kept", "clients that keep their connection lose nothing")):
        if kinds[kind]:
            tally.check(f"{one.name}: {what}", *whole(kinds[kind]))
    return {kind: len(found) for kind, found in kinds.items()}


# --- inbound ---------------------------------------------------------------------------------------------------------


def inbound(node, pods, args, tally):
    rolled_out("inbound", True, node, pods, args, tally)


def inbound_fallback(node, pods, args, tally):
    """The sidecar as a plain container, for clusters before 1.29."""
    rolled_out("inbound-fallback", False, node, pods, args, tally)


def rolled_out(name, native, node, pods, args, tally):
    """Both pods of deploy/kubernetes are replaced while streams run through them, and then taken away."""
    with scene(name, node, pods, args) as one:
        said = one.apply(shapes.inbound(one.otlp, native=native))
        tally.check(f"{name}: the manifests are taken without a warning", not said, said)
        first = one.await_ready(2)
        address = one.address("vllm")
        traffic = Traffic(one, lambda: address, args.streams)
        tally.check(f"{name}: {args.streams} streams are open when the rollout begins", traffic.open() >= args.streams * 0.9, traffic.open())
        told(name, tally, memory(one, node, SIDECAR, 64 * 2**20))
        one.kubectl("rollout", "restart", "deployment/vllm")
        done, wrong = one.kubectl("rollout", "status", "deployment/vllm", "--timeout=180s")
        tally.check(f"{name}: the rollout comes to its end", done is not None, wrong)
        tally.check(f"{name}: and the pods that were there are gone", one.wait(lambda: all(pod["metadata"]["uid"] in pods.gone for pod in first)))
        traffic.stop()
        one.kubectl("delete", "deployment", "vllm", "--wait=false")
        tally.check(f"{name}: all pods end", one.wait(lambda: not pods.alive(name)), one.told())
        counts, mine = crossed(one, tally), pods.of(name)
        tally.check(f"{name}: there were four pods", len(mine) == 4, len(mine))
        for pod in mine:
            told(name, tally, ended(pod, native))
        told(name, tally, hooks(one))
        telemetry = one.collector.telemetry()
        told(name, tally, telling(one.answers, telemetry))
        told(name, tally, kernel(one, telemetry[0]))
        told(name, tally, identities(one, mine))
        print(f"     {name}: {counts}, {sum(answer.again for answer in one.answers)} asked anew", flush=True)


def collector_hangs(node, pods, args, tally):
    """Streams go on, the end comes in time, and the log says what was lost."""
    name = "collector-hangs"
    with scene(name, node, pods, args, state=State.HANGS) as one:
        one.apply(shapes.inbound(one.otlp, replicas=1))
        pod = one.await_ready(1)[0]
        address = one.address("vllm")
        log = followed(node, one, pod, SIDECAR)
        streams = one.open_streams(one.clients(lambda: address, GAP), args.streams, LONG)
        one.kubectl("delete", "deployment", "vllm", "--wait=false")
        answers = [stream.result(rig.PATIENCE) for stream in streams]
        tally.check(f"{name}: every stream ends by the backend's own word", *whole(answers))
        tally.check(f"{name}: the pod ends", one.wait(lambda: not pods.alive(name)), one.told())
        told(name, tally, ended(pods.of(name)[0], True))
        lines = [line for line in log() if line.get("message") == "telemetry was lost"]
        lost = [(line["level"], line["spans"], line["last_metrics_delivered"]) for line in lines]
        tally.check(f"{name}: the log says what was lost", lost == [("WARN", 2 * len(answers), False)], lost)


def followed(node, one, pod, name):
    """Reads a container's log until it ends; gives back what waits for that and returns its lines."""
    process = subprocess.Popen(["kubectl", "--kubeconfig", str(node.kubeconfig), "--namespace", one.name, "logs", "--follow", pod["metadata"]["name"],
                                f"--container={name}"], stdout=subprocess.PIPE, text=True)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True)
    reader.start()

    def over():
        reader.join(rig.PATIENCE)
        process.kill()
        for line in lines:
            with contextlib.suppress(ValueError):
                yield json.loads(line)

    return over


def without_hooks(node, pods, args, tally):
    """The control: the engine gets SIGTERM at once, streams are cut, and the check sees it."""
    name = "without-hooks"
    with scene(name, node, pods, args) as one:
        one.apply(shapes.inbound(one.otlp, replicas=1, hooks=False))
        one.await_ready(1)
        address = one.address("vllm")
        streams = one.open_streams(one.clients(lambda: address, GAP), args.streams, 10 * LONG)
        one.kubectl("delete", "deployment", "vllm", "--wait=false")
        answers = [stream.result(rig.PATIENCE) for stream in streams]
        tally.check(f"{name}: the check sees that every stream is cut", not any(answer.whole for answer in answers), sum(answer.whole for answer in answers))
        tally.check(f"{name}: the pod ends", one.wait(lambda: not pods.alive(name)), one.told())
        _, processes = one.collector.telemetry()
        cut = {fault: sum(process.total("tokengauge.requests.finished", {"tokengauge.fault": fault}) for process in processes.values())
               for fault in ("upstream", "proxy", "client", "none")}
        # The proxy's own end, which comes as soon as the engine is gone, may overtake the news of that.
        tally.check(f"{name}: telemetry tells whose fault each was", cut["upstream"] + cut["proxy"] == len(answers), cut)


# --- the chart -------------------------------------------------------------------------------------------------------


def chart(node, pods, args, tally):
    """The gateway and the injector as Helm installs them; `helm test`; a rollout of the gateway; a Job that the injector gives a sidecar."""
    with scene("gateway", node, pods, args) as one:
        vendor = shapes.vendor(node, args.binary, 9000)
        values = node.folder / "values.yaml"
        values.write_text(yaml.safe_dump(shapes.chart(vendor, one.otlp)))
        done, wrong = helm(node, args, "install", "tokengauge", str(CHART), "--values", str(values), "--wait", "--timeout=180s")
        tally.check("chart: helm installs it, and waits until all is ready", done, wrong or one.told())
        done, wrong = helm(node, args, "test", "tokengauge", "--timeout=90s")
        tally.check("chart: helm test passes", done, wrong + one.told())
        first = gateways(pods)
        address = one.address("tokengauge")
        traffic = Traffic(one, lambda: address, args.streams)
        told("chart", tally, memory(one, node, "tokengauge", 128 * 2**20))
        one.kubectl("rollout", "restart", "deployment/tokengauge")
        done, wrong = one.kubectl("rollout", "status", "deployment/tokengauge", "--timeout=180s")
        tally.check("chart: the gateway's rollout comes to its end", done is not None, wrong)
        tally.check("chart: and the pods that were there are gone", one.wait(lambda: all(pod["metadata"]["uid"] in pods.gone for pod in first)))
        evicted(one, node, pods, tally)
        traffic.stop()
        job(node, pods, args, tally, vendor)
        done, wrong = helm(node, args, "uninstall", "tokengauge", "--wait")
        tally.check("chart: helm uninstalls it", done, wrong)
        tally.check("chart: its pods end", one.wait(lambda: not pods.alive("gateway", "tokengauge-")), one.told())
        counts = crossed(one, tally)
        told("chart", tally, hooks(one))
        told("chart", tally, telling(one.answers, one.collector.telemetry()))
        print(f"     chart: {counts}, {sum(answer.again for answer in one.answers)} asked anew", flush=True)


def gateways(pods):
    return [pod for pod in pods.alive("gateway", "tokengauge-") if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "gateway"]


def evicted(one, node, pods, tally):
    """As a node is drained: one pod goes, and the other may not before there are two again."""
    allowed = lambda: one.kubectl("get", "poddisruptionbudget", "tokengauge", "--output=jsonpath={.status.disruptionsAllowed}")[0] == "1"
    tally.check("chart: one of the gateway's pods may be evicted", one.wait(allowed), one.told())
    names = [pod["metadata"]["name"] for pod in gateways(pods)]
    ask = lambda name: node.create(f"/api/v1/namespaces/gateway/pods/{name}/eviction", {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "gateway"}})[0]
    answers = [ask(name) for name in names]
    tally.check("chart: one is, and the budget keeps the other", answers == [201, 429], answers)
    gone = lambda: names[0] not in [pod["metadata"]["name"] for pod in gateways(pods)]
    tally.check("chart: it ends, and then the other may go", one.wait(lambda: gone() and allowed()), one.told())


def helm(node, args, *command):
    done = subprocess.run([args.helm, "--kubeconfig", str(node.kubeconfig), "--namespace", "gateway", *command], capture_output=True, text=True)
    return done.returncode == 0, done.stderr + done.stdout


def job(node, pods, args, tally, vendor):
    """It completes, though its sidecar would go on for ever, and nothing of its telemetry is missing."""
    with scene("jobs", node, pods, args, labels={**RESTRICTED, "tokengauge.dev/inject": "enabled"}) as one:
        said = one.apply(shapes.job(vendor, one.otlp))
        tally.check("job: it is taken without a warning", not said, said)
        done, wrong = one.kubectl("wait", "--for=condition=complete", "job/batch", "--timeout=90s")
        tally.check("job: it completes", done is not None, wrong if done else wrong + one.told())
        log, wrong = one.kubectl("logs", "job/batch", f"--container={APP}")
        calls = [tuple(map(int, found)) for found in re.findall(r"^call (\d+) (\d+) (\d+)$", log or "", re.M)]
        answers = [Answer(f"{number:032x}", shapes.JOB_TOKENS, "job", 0, status=200, tokens=tokens, told=tokens, done=finished == 1, terminal=True)
                   for number, tokens, finished in calls]
        tally.check("job: every stream ends by the vendor's own word", len(answers) == shapes.JOB_CALLS and whole(answers)[0], f"{whole(answers)} {wrong}")
        pod = pods.of("jobs")[0]
        sidecar, app = (container(pod, name).get("state", {}).get("terminated", {}) for name in (SIDECAR, APP))
        tally.check("job: the injector gave it a sidecar, which exits 0", sidecar.get("exitCode") == 0, pod["status"])
        over = [app.get("finishedAt", ""), sidecar.get("finishedAt", "")]
        tally.check("job: and ends after the application", over == sorted(over), over)
        told("job", tally, telling(answers, one.collector.telemetry()))
