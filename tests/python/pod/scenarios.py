"""What happens to pods, and what must be true afterwards."""
import contextlib
import json
import time

import rig
from pod import shapes
from pod.collector import State
from pod.http2 import STREAMS, Http2Clients
from pod.kubelet import What
from pod.scene import Scene, metric
from pod.shapes import APP, ENGINE, SIDECAR

# Long streams: tokens, and seconds between two of them. They outlast the delay of a drain by far.
LONG, GAP = 40, 0.25
SHORT = 5
# Seconds for which a drain takes everything as before: `tokengauge drain --delay`.
DELAY = 5
# Seconds that a drain may take which they outlast.
OVERDUE = 4
# A grace period that is too short for them.
GRACE = 6


def scene(name, args, node, folder, **settings):
    return contextlib.closing(Scene(name, args, node, folder, **settings))


# --- what is looked at -----------------------------------------------------------------------------------------------


def whole(answers):
    """Whether each ended by the backend's own word with every token; else which did not."""
    broken = [answer for answer in answers if not answer.whole]
    return bool(answers) and not broken, f"{len(broken)} of {len(answers)} are not, the first {broken[:1]}"


def telling(answers, telemetry):
    """Each thing that telemetry must say of these calls, all of which ended whole: `(what, held, note)`."""
    spans, processes = telemetry
    lacking = [answer for answer in answers if sorted(span.get("kind", "") for span in spans.get(answer.trace, [])) != ["SPAN_KIND_CLIENT", "SPAN_KIND_SERVER"]]
    yield "each call has its two spans", answers and not lacking, f"{len(lacking)} of {len(answers)} have not"
    client = {answer.trace: found for answer in answers for found in rig.of_kind(spans.get(answer.trace, []), "CLIENT")}
    wrong = [(answer.tokens, client.get(answer.trace)) for answer in answers
             if client.get(answer.trace, {}).get("gen_ai.usage.output_tokens") != answer.tokens or client[answer.trace].get("error.type")]
    yield "each span has the client's count of tokens and no error", not wrong, f"{len(wrong)} have not, the first {wrong[:1]}"
    tokens = sum(answer.tokens for answer in answers)
    yield from counting(processes, len(answers), {"tokengauge.outcome": "ok"}, tokens)


def counting(processes, calls, outcome, tokens):
    counted = sum(one.total("tokengauge.requests.finished", outcome) for one in processes.values())
    yield f"metrics count the calls that ended {outcome}", counted == calls, f"{counted}, not {calls}"
    for name, wanted in (("tokengauge.usage", {"tokengauge.token.kind": "output"}), ("tokengauge.tokens", {"tokengauge.token.kind": "text"})):
        counted = sum(one.total(name, wanted) for one in processes.values())
        yield f"{name} counts the tokens that clients got", counted == tokens, f"{counted}, not {tokens}"


def ended(pod, native, last):
    """Each thing that must be true of the end of a pod; `last` is the container that the sidecar outlives."""
    sidecar = pod.container(SIDECAR)
    yield "the pod ends, well within its grace period", pod.over.wait(rig.PATIENCE), story(pod)
    yield "nothing had to be killed", not [event for event in pod.events if event.what is What.KILL], story(pod)
    yield "the sidecar ran once and exits 0", sidecar.exits == [0], f"{sidecar.exits}; {tail(sidecar)}"
    if native:
        began, started = pod.when(What.STARTUP, SIDECAR), pod.when(What.STARTED, last)
        yield "the other container started after the sidecar's startup probe", began < started, f"{began} {started}"
        term, gone = pod.when(What.TERM, SIDECAR), pod.when(What.EXITED, last)
        yield "the sidecar was stopped after the other container had exited", term and gone <= term, story(pod)
    took = exit_time(pod)
    # The flush has 1.5 s. A machine with more to do than it can takes longer; the kubelet's own 2 s are rehearsed by `grace_eaten`.
    yield f"the sidecar is gone soon after SIGTERM ({took:.2f} s)", took < 10, took


def exit_time(pod):
    term, gone = pod.when(What.TERM, SIDECAR), pod.when(What.EXITED, SIDECAR)
    return gone - term if term and gone else float("inf")


def story(pod):
    """What happened to the pod, in order."""
    first = pod.events[0].at
    return "; ".join(f"{event.at - first:.1f} s {event.container}: {event.what.value} {event.detail}".rstrip() for event in pod.events)


def tail(container):
    return container.log.read_text(errors="replace")[-600:]


def log_lines(container):
    """What the sidecar logged, line by line."""
    for line in container.log.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def told(name, tally, verdicts):
    for what, held, note in verdicts:
        tally.check(f"{name}: {what}", held, note)


# --- inbound ---------------------------------------------------------------------------------------------------------


def drained(one, spec, tally, native=True, rollout=False, exec_takes=0):
    """Streams, new connections and kept ones through a pod that is deleted in the middle; gives back the pod and its calls. In a
    `rollout` there is another pod, which is ready by then."""
    pod = one.pod(spec, "llm-0")
    pod.exec_takes = exec_takes
    running = []
    pod.observers[What.TERM, ENGINE].append(lambda: running.append(metric(f"http://{pod.sandbox.address}:{shapes.BEHIND}", "vllm:num_requests_running")))
    if rollout:
        one.pod(spec, "llm-1")
    rig.wait_until(lambda: len(one.service.endpoints()) == len(one.pods))
    streams = one.open_streams(pod, one.args.streams, LONG, GAP)
    others = [one.spawn(one.clients.keep_coming(SHORT, 0.1))] + [one.spawn(one.clients.keep_asking(SHORT, 0.2)) for _ in range(8)]
    rig.wait_until(lambda: sum(answer.kind == "kept" and answer.whole and answer.host == pod.sandbox.address for answer in one.clients.answers) > 4)
    open_then = sum(not answer.ended for answer in one.clients.answers if answer.kind == "long")
    tally.check(f"{one.name}: {one.args.streams} streams are open when the pod is deleted", open_then == one.args.streams, open_then)
    pod.delete()
    # From nodes that have not heard of it yet.
    unaware = one.to(pod, 0.05)
    others += [one.spawn(unaware.stream(SHORT, "new")) for _ in range(10)]
    # Those that come and go do so until nobody is sent here any more, and those that keep a connection until it was to end.
    rig.wait_until(lambda: pod not in one.service.endpoints() and time.monotonic() > pod.deleted_at + DELAY + 1)
    time.sleep(1)
    one.clients.stopping = True
    for each in streams + others:
        each.result(rig.PATIENCE)
    calls = [answer for answer in one.clients.answers if (rollout or answer.host == pod.sandbox.address) and not excused(answer, pod)]
    late = [answer for answer in calls if answer.kind == "new" and answer.began > pod.deleted_at and answer.host == pod.sandbox.address]
    tally.check(f"{one.name}: every stream ends whole", *whole([answer for answer in calls if answer.kind == "long"]))
    tally.check(f"{one.name}: connections that come while the endpoint is listed are served", *whole(late))
    tally.check(f"{one.name}: clients that keep their connection lose nothing", *whole([answer for answer in calls if answer.kind == "kept"]))
    pod.over.wait(rig.PATIENCE)
    tally.check(f"{one.name}: the engine was stopped when nothing ran in it", running == [0], running)
    told(one.name, tally, ended(pod, native, ENGINE))
    counts = {kind: sum(answer.kind == kind for answer in calls) for kind in ("long", "new", "kept")}
    print(f"     {one.name}: {counts}, {len(late)} new after the deletion, {sum(answer.again for answer in calls)} asked anew, "
          f"{len([1 for answer in one.clients.answers if excused(answer, pod)])} excused, pod gone after {pod.events[-1].at - pod.deleted_at:.1f} s", flush=True)
    return pod, calls


def excused(answer, pod):
    """On a machine with too much to do, a client may come by its connection while the endpoint is listed and write its request seconds
    later, when the drain closes what is idle. No client is to be blamed for that, nor the proxy."""
    return answer.host == pod.sandbox.address and not answer.status and answer.sent > pod.deleted_at + DELAY - 1


def inbound_native(args, node, folder, tally):
    """A rollout: another pod has come when this one is deleted."""
    with scene("inbound_native", args, node, folder) as one:
        _, calls = drained(one, shapes.inbound(one.otlp), tally, rollout=node.apart)
        for other in one.pods[1:]:
            other.delete()
            other.over.wait(rig.PATIENCE)
        told(one.name, tally, telling(calls, one.collector.telemetry()))


def inbound_fallback(args, node, folder, tally):
    """The sidecar as a plain container, on a node that takes a second to run a hook's command: the other hook has come before."""
    with scene("inbound_fallback", args, node, folder) as one:
        _, calls = drained(one, shapes.inbound(one.otlp, native=False), tally, native=False, exec_takes=1)
        told(one.name, tally, telling(calls, one.collector.telemetry()))


def inbound_http2(args, node, folder, tally):
    """The rollout with clients over HTTP/2, as gateways speak it: several streams on each connection."""
    with scene("inbound_http2", args, node, folder, clients=Http2Clients) as one:
        pod, calls = drained(one, shapes.inbound(one.otlp), tally, rollout=node.apart)
        here = [link for clients in one.everyone for link in clients.links if link.host == pod.sandbox.address]
        shared = [link for link in here if link.most > 1]
        tally.check("inbound_http2: streams share connections", len(shared) == -(-args.streams // STREAMS), len(shared))
        tally.check("inbound_http2: the clients of each are told by GOAWAY that nothing is wrong", all(link.goaways and not any(link.goaways) for link in shared),
                    [link.goaways for link in shared])
        last = {answer.host for answer in sorted((answer for answer in calls if answer.kind == "kept"), key=lambda answer: answer.began)[-8:]}
        tally.check("inbound_http2: those who keep asking have gone elsewhere", pod.sandbox.address not in last or not node.apart, last)
        for other in one.pods[1:]:
            other.delete()
            other.over.wait(rig.PATIENCE)
        told(one.name, tally, telling(calls, one.collector.telemetry()))


def inbound_overdue(args, node, folder, tally):
    """Streams outlast the time that the drain may take: the engine gets SIGTERM with the rest of the grace period left, in which it lets
    them end. With a native sidecar, and with a plain container."""
    with scene("inbound_overdue", args, node, folder) as one:
        kinds = (True, False) if node.apart else (True,)
        pods = [one.pod(shapes.inbound(one.otlp, native=native, engine_is="patient", drain=OVERDUE), f"llm-{number}") for number, native in enumerate(kinds)]
        share = args.streams // len(pods)
        running = {pod: [] for pod in pods}
        for pod, seen in running.items():
            engine = f"http://{pod.sandbox.address}:{shapes.BEHIND}"
            pod.observers[What.TERM, ENGINE].append(lambda engine=engine, seen=seen: seen.append(metric(engine, "vllm:num_requests_running")))
        streams = [stream for pod in pods for stream in one.open_streams(pod, share, LONG, GAP)]
        for pod in pods:
            pod.delete()
        answers = [stream.result(rig.PATIENCE) for stream in streams]
        for native, pod in zip(kinds, pods):
            name = f"inbound_overdue, {'native' if native else 'plain'}"
            tally.check(f"{name}: the engine gets SIGTERM while its streams run", running[pod] == [share], f"{running[pod]}; {story(pod)}")
            tally.check(f"{name}: every stream ends whole", *whole([answer for answer in answers if answer.host == pod.sandbox.address]))
            told(name, tally, ended(pod, native, ENGINE))
            left = next((int(event.detail.split()[0]) for event in pod.events if (event.what, event.container) == (What.TERM, ENGINE)), 0)
            tally.check(f"{name}: there are more than the last 2 s left to the engine", left > 2, story(pod))
        told(one.name, tally, telling(answers, one.collector.telemetry()))


def collector_hangs(args, node, folder, tally):
    without_collector("collector_hangs", State.HANGS, args, node, folder, tally)


def collector_gone(args, node, folder, tally):
    without_collector("collector_gone", State.GONE, args, node, folder, tally)


def without_collector(name, state, args, node, folder, tally):
    """Streams go on, the end comes in time, and the log says what was lost."""
    with scene(name, args, node, folder, state=state) as one:
        pod, calls = drained(one, shapes.inbound(one.otlp), tally, rollout=node.apart)
        lines = [line for line in log_lines(pod.container(SIDECAR)) if line["message"] == "telemetry was lost"]
        lost = [(line["level"], line["spans"], line["last_metrics_delivered"]) for line in lines]
        wanted = [("WARN", 2 * sum(answer.host == pod.sandbox.address for answer in calls), False)]
        tally.check(f"{name}: the log says how many spans were lost, and that the last metrics were", lost == wanted, f"{lost}, not {wanted}")


def without_hooks(args, node, folder, tally):
    """The control: the engine gets SIGTERM at once, streams are cut, and the check sees it."""
    with scene("without_hooks", args, node, folder) as one:
        pod = one.pod(shapes.inbound(one.otlp, hooks=False), "llm-0")
        streams = one.open_streams(pod, args.streams, 4 * LONG, GAP)
        pod.delete()
        answers = [stream.result(rig.PATIENCE) for stream in streams]
        pod.over.wait(rig.PATIENCE)
        tally.check("without_hooks: the check sees that streams are cut", not whole(answers)[0], "all are whole")
        tally.check("without_hooks: it sees every one of them", not any(answer.whole for answer in answers), sum(answer.whole for answer in answers))
        # They are told as the upstream's fault, but for those that the proxy's own end overtook: it comes as soon as the engine is gone.
        _, processes = one.collector.telemetry()
        cut = {fault: sum(process.total("tokengauge.requests.finished", {"tokengauge.fault": fault}) for process in processes.values())
               for fault in ("upstream", "proxy", "client", "none")}
        tally.check("without_hooks: telemetry tells whose fault it was", cut["upstream"] and cut["upstream"] + cut["proxy"] == args.streams, cut)


def inbound_eaten(args, node, folder, tally):
    """Streams outlast the grace period, and the engine ignores SIGTERM: streams cannot be saved, telemetry can."""
    with scene("inbound_eaten", args, node, folder) as one:
        pod = one.pod(shapes.inbound(one.otlp, grace=GRACE, engine_is="stubborn"), "llm-0")
        streams = one.open_streams(pod, args.streams, 10 * LONG, GAP)
        pod.delete()
        answers = [stream.result(rig.PATIENCE) for stream in streams]
        pod.over.wait(rig.PATIENCE)
        tally.check("inbound_eaten: streams were cut", not any(answer.whole for answer in answers), sum(answer.whole for answer in answers))
        tally.check("inbound_eaten: the sidecar needed no SIGKILL", pod.container(SIDECAR).exits == [0], story(pod))
        spans, processes = one.collector.telemetry()
        counted = sum(process.total("tokengauge.requests.finished") for process in processes.values())
        tally.check("inbound_eaten: metrics count every call", counted == args.streams, counted)
        missing = [answer for answer in answers if len(spans.get(answer.trace, [])) != 2]
        tally.check("inbound_eaten: the spans of all have arrived", not missing, f"{len(missing)} have not")


def engine_restarted(args, node, folder, tally):
    """The engine alone is restarted, by its liveness probe: its hook waits for a drain that nobody asks for, until it is told so."""
    with scene("engine_restarted", args, node, folder) as one:
        alive = one.folder / "alive"
        alive.touch()
        pod = one.pod(shapes.inbound(one.otlp, alive=str(alive)), "llm-0")
        streams = one.open_streams(pod, args.streams, 4 * LONG, GAP)
        alive.unlink()
        answers = [stream.result(rig.PATIENCE) for stream in streams]
        alive.touch()
        engine, sidecar = pod.container(ENGINE), pod.container(SIDECAR)
        tally.check("engine_restarted: the engine runs again", rig.wait_until(lambda: pod.ready and engine.restarts == 1), story(pod))
        waited = pod.when(What.PRESTOPPED, ENGINE) - pod.when(What.PRESTOP, ENGINE)
        tally.check(f"engine_restarted: its hook waited, and not for ever ({waited:.1f} s)", 2.5 < waited < 40, waited)
        tally.check("engine_restarted: the sidecar lives on", not sidecar.exits and sidecar.ready, sidecar.exits)
        tally.check("engine_restarted: streams were cut", not any(answer.whole for answer in answers), sum(answer.whole for answer in answers))
        after = one.spawn(one.clients.stream(SHORT, "after")).result(rig.PATIENCE)
        tally.check("engine_restarted: the next call is answered", after.whole, after)
        pod.delete()
        pod.over.wait(rig.PATIENCE)
        spans, processes = one.collector.telemetry()
        cut = sum(process.total("tokengauge.requests.finished", {"tokengauge.fault": "upstream"}) for process in processes.values())
        tally.check("engine_restarted: what was cut is told as the upstream's fault", cut == args.streams, cut)
        tally.check("engine_restarted: every call has its spans", all(answer.trace in spans for answer in [*answers, after]))


# --- outbound --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def outbound(name, args, node, folder, tally, on_term, native=True, tokens=LONG, short=6, grace=None):
    """An application whose pod is deleted while its streams are open; gives back scene and pod when the pod is over."""
    with scene(name, args, node, folder) as one:
        line = ["--streams", str(args.streams), "--tokens", str(tokens), "--gap", str(GAP), "--short", str(short), "--out", one.out, "--on-term", on_term]
        vendor = one.vendor()
        pod = one.pod(shapes.outbound(one.otlp, vendor, line, native, grace), "app-0", served=False)
        rig.wait_until(lambda: metric(vendor, "vllm:num_requests_running") >= args.streams)
        # Time for some tokens of each.
        time.sleep(1)
        running = metric(vendor, "vllm:num_requests_running")
        tally.check(f"{name}: {args.streams} streams are open when the pod is deleted", running >= args.streams, running)
        pod.delete()
        pod.over.wait(rig.PATIENCE)
        yield one, pod


def outbound_native(args, node, folder, tally):
    """The application takes its streams to their end."""
    with outbound("outbound_native", args, node, folder, tally, "drain") as (one, pod):
        drained_app(one, pod, tally, True)


def outbound_fallback(args, node, folder, tally):
    """The sidecar is a plain container: its hook waits until the application asks nothing any more."""
    with outbound("outbound_fallback", args, node, folder, tally, "drain", native=False) as (one, pod):
        drained_app(one, pod, tally, False)


def drained_app(one, pod, tally, native):
    calls = one.by_app()
    tally.check(f"{one.name}: every stream ends whole", *whole(calls))
    told(one.name, tally, ended(pod, native, APP))
    told(one.name, tally, telling(calls, one.collector.telemetry()))


def outbound_dying(args, node, folder, tally):
    """The application dies with its streams: they are told as its own leaving."""
    with outbound("outbound_dying", args, node, folder, tally, "die", tokens=4 * LONG) as (one, pod):
        left(one, pod, tally, one.by_app())
        told(one.name, tally, ended(pod, True, APP))


def outcomes(processes):
    """How many calls ended well, and how many did not because somebody went. The sidecar is stopped as soon as the application is gone, so
    either may be the first to let go: `cancelled` by the application, `truncated` by the sidecar."""
    count = lambda outcome: sum(process.total("tokengauge.requests.finished", {"tokengauge.outcome": outcome}) for process in processes.values())
    return count("ok"), count("cancelled") + count("truncated")


def left(one, pod, tally, calls):
    """What telemetry must say where the application left its long streams."""
    spans, processes = one.collector.telemetry()
    done = [answer for answer in calls if answer.ended and answer.whole]
    good, cut = outcomes(processes)
    # A short call may be on its way when the application dies: then the proxy knows it, or has finished it.
    tally.check(f"{one.name}: its open streams are counted as cut", one.args.streams <= cut <= len(calls) - len(done), f"{cut}, {len(calls)} in all")
    tally.check(f"{one.name}: every call is counted", len(done) + one.args.streams <= good + cut <= len(calls), f"{good} + {cut}, {len(calls)}, {len(done)} done")
    missing = [answer for answer in calls if (answer.kind == "long" or answer.whole) and len(spans.get(answer.trace, [])) != 2]
    tally.check(f"{one.name}: the spans of all have arrived", calls and not missing, f"{len(missing)} of {len(calls)} have not")


def grace_eaten(args, node, folder, tally):
    """The application takes no notice of SIGTERM and is killed when the grace period is over; the sidecar has 2 s from then on."""
    with outbound("grace_eaten", args, node, folder, tally, "ignore", tokens=10 * LONG, short=2, grace=GRACE) as (one, pod):
        killed = [event.container for event in pod.events if event.what is What.KILL]
        tally.check("grace_eaten: the application was killed", APP in killed, story(pod))
        given = next((event.detail for event in pod.events if (event.what, event.container) == (What.TERM, SIDECAR)), None)
        tally.check("grace_eaten: the sidecar was given 2 s", given == "2 s", given)
        tally.check(f"grace_eaten: it needed no SIGKILL ({exit_time(pod):.2f} s)", SIDECAR not in killed and pod.container(SIDECAR).exits == [0], story(pod))
        _, processes = one.collector.telemetry()
        good, cut = outcomes(processes)
        tally.check("grace_eaten: telemetry of every call arrived", (good, cut) == (4 * 2, args.streams), (good, cut))
        spans, _ = one.collector.telemetry()
        tally.check("grace_eaten: and every span", len(spans) == args.streams + 4 * 2, len(spans))


def sidecar_killed(args, node, folder, tally):
    """The control: a sidecar that is killed instead of stopped loses telemetry, and the check sees it."""
    with scene("sidecar_killed", args, node, folder) as one:
        line = ["--streams", str(args.streams), "--tokens", "10", "--gap", "0.05", "--out", one.out]
        vendor = one.vendor()
        pod = one.pod(shapes.outbound(one.otlp, vendor, line), "app-0", served=False)
        pod.observers[What.TERM, SIDECAR].append(lambda: pod.container(SIDECAR).process.kill())
        pod.over.wait(rig.PATIENCE)
        calls = one.by_app()
        tally.check("sidecar_killed: every stream ended whole", *whole(calls))
        missed = [what for what, held, _ in telling(calls, one.collector.telemetry()) if not held]
        tally.check("sidecar_killed: the check sees that telemetry is missing", len(missed) == 5, f"seen are only {missed}")


def job(args, node, folder, tally):
    """The main container completes, and the pod with it, nobody having deleted it."""
    with scene("job", args, node, folder) as one:
        line = ["--streams", str(args.streams), "--tokens", "40", "--gap", "0.05", "--short", "10", "--out", one.out]
        pod = one.pod(shapes.outbound(one.otlp, one.vendor(), line), "job-0", served=False)
        tally.check("job: the pod ends by itself", pod.over.wait(rig.PATIENCE), story(pod))
        tally.check("job: the main container completed", pod.container(APP).exits == [0], pod.container(APP).exits)
        drained_app(one, pod, tally, True)


# Long ones first: two play at a time.
ALL = (inbound_fallback, inbound_native, inbound_http2, collector_hangs, collector_gone, outbound_fallback, engine_restarted, inbound_overdue,
       outbound_native, inbound_eaten, grace_eaten,
       without_hooks, outbound_dying, job, sidecar_killed)
