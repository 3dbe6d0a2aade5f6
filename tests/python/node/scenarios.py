"""Scenarios on the node, with their checks."""
import asyncio
import contextlib
import json
import pathlib
import re
import subprocess
import threading

import yaml

import rig
from node import shapes
from node.cluster import NAME
from node.scene import RESTRICTED, Scene, container
from node.shapes import APP, ENGINE, SIDECAR
from pod.client import Answer
from pod.collector import State
from pod.scenarios import all_complete, record_checks, telemetry_checks

CHART = pathlib.Path(__file__).resolve().parents[3] / "deploy/helm/tokengauge"
# Tokens of a stream, and seconds between two of them: 10 s, twice the delay of a drain.
LONG, GAP = 40, 0.25
SHORT = 5
KILLED = 137


def scene(name, node, pods, args, **settings):
    return contextlib.closing(Scene(name, node, pods, args, **settings))


# --- checks ----------------------------------------------------------------------------------------------------------


def termination_checks(pod, native):
    """Yields the checks of a pod that has ended."""
    sidecar, engine = (container(pod, name).get("state", {}).get("terminated", {}) for name in (SIDECAR, ENGINE))
    name = pod["metadata"]["name"]
    yield f"{name}: the sidecar exits 0", sidecar.get("exitCode") == 0, sidecar
    yield f"{name}: the engine was not killed", engine.get("exitCode", KILLED) != KILLED, engine
    restarts = [container(pod, one).get("restartCount") for one in (SIDECAR, ENGINE)]
    yield f"{name}: no container restarted", restarts == [0, 0], restarts
    if native:
        began = [container(pod, one)["state"]["terminated"]["startedAt"] for one in (SIDECAR, ENGINE)]
        yield f"{name}: the sidecar started before the engine", began == sorted(began), began
        over = [engine.get("finishedAt", ""), sidecar.get("finishedAt", "")]
        yield f"{name}: the sidecar ended after the engine", over == sorted(over), over


def hooks(one):
    """Checks that no kubelet event reports a failed hook or probe."""
    output, _ = one.kubectl("get", "events", "--output=json")
    wrong = [(event["reason"], event.get("message", "")) for event in json.loads(output or '{"items":[]}')["items"]
             if event["reason"] in ("FailedPreStopHook", "BackOff", "FailedKillPod", "OOMKilling", "ProbeWarning")]
    yield "no hook failed, and no container was restarted", bool(output) and not wrong, wrong or "kubectl printed no events"


def identities(one, pods):
    """Checks that each pod's telemetry carries the pod's identity as the API server has it."""
    resources = one.collector.resources()
    wanted = {(f"{one.name}.{pod['metadata']['name']}.{SIDECAR}", pod["metadata"]["name"], pod["metadata"]["uid"], one.name, NAME) for pod in pods}
    found = {(instance, *(about.get(f"k8s.{key}") for key in ("pod.name", "pod.uid", "namespace.name", "node.name"))) for instance, about in resources.items()}
    yield "each pod's telemetry has the pod's instance, name and uid", found == wanted, f"{found ^ wanted}"


def kernel(one, spans):
    """The proxy reads round trips from the kernel inside the pod, without privileges and under the runtime's seccomp profile."""
    streams = [answer for answer in one.answers if answer.kind == "long"]
    lacking = [answer.trace for answer in streams for kind in ("SERVER", "CLIENT")
               for found in rig.of_kind(spans.get(answer.trace, []), kind) if not found.get("tokengauge.network.rtt")]
    yield "every stream has the kernel's round-trip times, on both sides", streams and not lacking, f"{len(lacking)} lack them"


def memory(one, node, title, bound):
    """Checks the kubelet's working sets of the containers with this name. Each must be within `bound` bytes."""
    output = node.ask("GET", f"/api/v1/nodes/{NAME}/proxy/stats/summary")[2]
    found = [container["memory"].get("workingSetBytes", 0) for pod in output["pods"] if pod["podRef"]["namespace"] == one.name
             for container in pod.get("containers", []) if container["name"] == title]
    print(f"     {one.name}: working set of {title}: {', '.join(f'{size / 2**20:.1f} MiB' for size in found)}", flush=True)
    yield f"the working set of {title} is within its memory request", found and all(0 < size <= bound for size in found), found


# --- traffic ---------------------------------------------------------------------------------------------------------


async def repeat_streams(clients):
    """Runs one stream after the other."""
    while not clients.stopping:
        answer = await clients.stream(LONG)
        if answer.error:
            await asyncio.sleep(1)


class Traffic:
    """Keeps `streams` streams open, each on a new connection, and runs clients that keep their connection."""

    def __init__(self, one, find, streams, path="/v1/chat/completions"):
        self.one, self.long = one, one.clients(find, GAP, path)
        self.short = one.clients(find, 0.01, path)
        self.running = [one.spawn(repeat_streams(self.long)) for _ in range(streams)]
        self.running += [one.spawn(self.short.connect_repeatedly(SHORT, 0.1))] + [one.spawn(self.short.repeat_calls(SHORT, 0.2)) for _ in range(8)]
        rig.wait_until(lambda: sum(answer.kind == "long" and (answer.tokens > 0 or bool(answer.ended)) for answer in one.answers) >= streams)

    def open(self):
        return sum(answer.kind == "long" and not answer.ended for answer in self.one.answers)

    def stop(self):
        self.long.stopping = self.short.stopping = True
        for each in self.running:
            each.result(rig.WAIT_LIMIT)


def crossed(one, tally):
    """Checks the results of all clients."""
    kinds = {kind: [answer for answer in one.answers if answer.kind == kind] for kind in ("long", "new", "kept")}
    for kind, what in (("long", "the backend ends every stream"), ("new", "every new connection is served"),
                       ("kept", "clients that keep their connection lose no data")):
        if kinds[kind]:
            tally.check(f"{one.name}: {what}", *all_complete(kinds[kind]))
    return {kind: len(found) for kind, found in kinds.items()}


# --- inbound ---------------------------------------------------------------------------------------------------------


def inbound(node, pods, args, tally):
    rolled_out("inbound", True, node, pods, args, tally)


def inbound_fallback(node, pods, args, tally):
    """Runs the sidecar as a plain container, for clusters before 1.29."""
    rolled_out("inbound-fallback", False, node, pods, args, tally)


def rolled_out(name, native, node, pods, args, tally):
    """Replaces both pods of deploy/kubernetes while streams run through them, then deletes them."""
    with scene(name, node, pods, args) as one:
        output = one.apply(shapes.inbound(one.otlp, native=native))
        tally.check(f"{name}: the manifests are applied without a warning", not output, output)
        first = one.await_ready(2)
        address = one.address("vllm")
        traffic = Traffic(one, lambda: address, args.streams)
        tally.check(f"{name}: {args.streams} streams are open when the rollout starts", traffic.open() >= args.streams * 0.9, traffic.open())
        record_checks(name, tally, memory(one, node, SIDECAR, 64 * 2**20))
        one.kubectl("rollout", "restart", "deployment/vllm")
        done, wrong = one.kubectl("rollout", "status", "deployment/vllm", "--timeout=180s")
        tally.check(f"{name}: the rollout completes", done is not None, wrong)
        tally.check(f"{name}: the old pods are gone", one.wait(lambda: all(pod["metadata"]["uid"] in pods.gone for pod in first)))
        traffic.stop()
        one.kubectl("delete", "deployment", "vllm", "--wait=false")
        tally.check(f"{name}: all pods end", one.wait(lambda: not pods.alive(name)), one.describe_state())
        counts, mine = crossed(one, tally), pods.of(name)
        tally.check(f"{name}: there were four pods", len(mine) == 4, len(mine))
        for pod in mine:
            record_checks(name, tally, termination_checks(pod, native))
        record_checks(name, tally, hooks(one))
        telemetry = one.collector.telemetry()
        record_checks(name, tally, telemetry_checks(one.answers, telemetry))
        record_checks(name, tally, kernel(one, telemetry[0]))
        record_checks(name, tally, identities(one, mine))
        print(f"     {name}: {counts}, {sum(answer.retries for answer in one.answers)} retried", flush=True)


def collector_hangs(node, pods, args, tally):
    """The collector hangs. Streams continue, the pod ends in time, and the log reports the lost telemetry."""
    name = "collector-hangs"
    with scene(name, node, pods, args, state=State.HANGS) as one:
        one.apply(shapes.inbound(one.otlp, replicas=1))
        pod = one.await_ready(1)[0]
        address = one.address("vllm")
        log = followed(node, one, pod, SIDECAR)
        streams = one.open_streams(one.clients(lambda: address, GAP), args.streams, LONG)
        one.kubectl("delete", "deployment", "vllm", "--wait=false")
        answers = [stream.result(rig.WAIT_LIMIT) for stream in streams]
        tally.check(f"{name}: the backend ends every stream", *all_complete(answers))
        tally.check(f"{name}: the pod ends", one.wait(lambda: not pods.alive(name)), one.describe_state())
        record_checks(name, tally, termination_checks(pods.of(name)[0], True))
        lines = [line for line in log() if line.get("message") == "telemetry was lost"]
        lost = [(line["level"], line["spans"], line["last_metrics_delivered"]) for line in lines]
        tally.check(f"{name}: the log reports the lost telemetry", lost == [("WARN", 2 * len(answers), False)], lost)


def followed(node, one, pod, name):
    """Follows a container's log until it ends. Returns a function that waits for the end and returns the lines."""
    process = subprocess.Popen(["kubectl", "--kubeconfig", str(node.kubeconfig), "--namespace", one.name, "logs", "--follow", pod["metadata"]["name"],
                                f"--container={name}"], stdout=subprocess.PIPE, text=True)
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True)
    reader.start()

    def over():
        reader.join(rig.WAIT_LIMIT)
        process.kill()
        for line in lines:
            with contextlib.suppress(ValueError):
                yield json.loads(line)

    return over


def without_hooks(node, pods, args, tally):
    """Control without hooks: the engine gets SIGTERM at once, streams are cut, and the checks detect it."""
    name = "without-hooks"
    with scene(name, node, pods, args) as one:
        one.apply(shapes.inbound(one.otlp, replicas=1, hooks=False))
        one.await_ready(1)
        address = one.address("vllm")
        streams = one.open_streams(one.clients(lambda: address, GAP), args.streams, 10 * LONG)
        one.kubectl("delete", "deployment", "vllm", "--wait=false")
        answers = [stream.result(rig.WAIT_LIMIT) for stream in streams]
        tally.check(f"{name}: the check detects that every stream is cut", bool(answers) and not any(answer.is_complete for answer in answers), sum(answer.is_complete for answer in answers))
        tally.check(f"{name}: the pod ends", one.wait(lambda: not pods.alive(name)), one.describe_state())
        _, processes = one.collector.telemetry()
        cut = {fault: sum(process.total("tokengauge.requests.finished", {"tokengauge.error_source": fault}) for process in processes.values())
               for fault in ("upstream", "proxy", "client", "none")}
        # The proxy may begin its own shutdown before it reads the upstream's reset.
        tally.check(f"{name}: telemetry attributes every cut stream to the upstream or the proxy", cut["upstream"] + cut["proxy"] == len(answers), cut)


# --- the chart -------------------------------------------------------------------------------------------------------


def chart(node, pods, args, tally):
    """Installs the gateway and the injector with Helm, runs `helm test`, rolls the gateway out, and runs a Job with an injected sidecar."""
    with scene("gateway", node, pods, args) as one:
        vendor = shapes.vendor(node, args.binary, 9000)
        values = node.folder / "values.yaml"
        values.write_text(yaml.safe_dump(shapes.chart(vendor, one.otlp)))
        done, wrong = helm(node, args, "install", "tokengauge", str(CHART), "--values", str(values), "--wait", "--timeout=180s")
        tally.check("chart: helm installs the chart and waits until it is ready", done, wrong or one.describe_state())
        done, wrong = helm(node, args, "test", "tokengauge", "--timeout=90s")
        tally.check("chart: helm test passes", done, wrong + one.describe_state())
        first = gateways(pods)
        address = one.address("tokengauge")
        traffic = Traffic(one, lambda: address, args.streams)
        record_checks("chart", tally, memory(one, node, "tokengauge", 128 * 2**20))
        one.kubectl("rollout", "restart", "deployment/tokengauge")
        done, wrong = one.kubectl("rollout", "status", "deployment/tokengauge", "--timeout=180s")
        tally.check("chart: the gateway's rollout completes", done is not None, wrong)
        tally.check("chart: the old pods are gone", one.wait(lambda: all(pod["metadata"]["uid"] in pods.gone for pod in first)))
        evicted(one, node, pods, tally)
        traffic.stop()
        job(node, pods, args, tally, vendor)
        done, wrong = helm(node, args, "uninstall", "tokengauge", "--wait")
        tally.check("chart: helm uninstalls the chart", done, wrong)
        tally.check("chart: its pods end", one.wait(lambda: not pods.alive("gateway", "tokengauge-")), one.describe_state())
        counts = crossed(one, tally)
        record_checks("chart", tally, hooks(one))
        record_checks("chart", tally, telemetry_checks(one.answers, one.collector.telemetry()))
        print(f"     chart: {counts}, {sum(answer.retries for answer in one.answers)} retried", flush=True)


def gateways(pods):
    return [pod for pod in pods.alive("gateway", "tokengauge-") if pod["metadata"]["labels"].get("app.kubernetes.io/component") == "gateway"]


def evicted(one, node, pods, tally):
    """Drains a node: one pod is evicted, and the budget protects the other until two are ready again."""
    allowed = lambda: one.kubectl("get", "poddisruptionbudget", "tokengauge", "--output=jsonpath={.status.disruptionsAllowed}")[0] == "1"
    tally.check("chart: one of the gateway's pods may be evicted", one.wait(allowed), one.describe_state())
    names = [pod["metadata"]["name"] for pod in gateways(pods)]
    ask = lambda name: node.create(f"/api/v1/namespaces/gateway/pods/{name}/eviction", {
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "gateway"}})[0]
    answers = [ask(name) for name in names]
    tally.check("chart: one is evicted, and the budget protects the other", answers == [201, 429], answers)
    gone = lambda: names[0] not in [pod["metadata"]["name"] for pod in gateways(pods)]
    tally.check("chart: the evicted pod ends, and then the other may be evicted", one.wait(lambda: gone() and allowed()), one.describe_state())


def helm(node, args, *command):
    done = subprocess.run([args.helm, "--kubeconfig", str(node.kubeconfig), "--namespace", "gateway", *command], capture_output=True, text=True)
    return done.returncode == 0, done.stderr + done.stdout


def job(node, pods, args, tally, vendor):
    """The Job completes although its sidecar never exits by itself, and its telemetry is complete."""
    with scene("jobs", node, pods, args, labels={**RESTRICTED, "tokengauge.dev/inject": "enabled"}) as one:
        output = one.apply(shapes.job(vendor, one.otlp))
        tally.check("job: the Job is applied without a warning", not output, output)
        done, wrong = one.kubectl("wait", "--for=condition=complete", "job/batch", "--timeout=90s")
        tally.check("job: the Job completes", done is not None, wrong if done else wrong + one.describe_state())
        log, wrong = one.kubectl("logs", "job/batch", f"--container={APP}")
        calls = [tuple(map(int, found)) for found in re.findall(r"^call (\d+) (\d+) (\d+)$", log or "", re.M)]
        answers = [Answer(f"{number:032x}", shapes.JOB_TOKENS, "job", 0, status=200, tokens=tokens, reported_tokens=tokens, done=finished == 1, terminal=True)
                   for number, tokens, finished in calls]
        tally.check("job: the provider ends every stream", len(answers) == shapes.JOB_CALLS and all_complete(answers)[0], f"{all_complete(answers)} {wrong}")
        pod = pods.of("jobs")[0]
        sidecar, app = (container(pod, name).get("state", {}).get("terminated", {}) for name in (SIDECAR, APP))
        tally.check("job: the injector added a sidecar, which exits 0", sidecar.get("exitCode") == 0, pod["status"])
        over = [app.get("finishedAt", ""), sidecar.get("finishedAt", "")]
        tally.check("job: the sidecar ends after the application", over == sorted(over), over)
        record_checks("job", tally, telemetry_checks(answers, one.collector.telemetry()))
