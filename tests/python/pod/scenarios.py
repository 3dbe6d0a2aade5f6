"""Scenarios in the life of a pod, with their checks."""
import contextlib
import json
import time

import rig
from pod import shapes
from pod.collector import State
from pod.http2 import STREAMS, Http2Clients
from pod.kubelet import EventKind
from pod.scene import Scene, metric
from pod.shapes import APP, ENGINE, SIDECAR

# Long streams: tokens, and seconds between two of them. They last much longer than the delay of a drain.
LONG, GAP = 40, 0.25
SHORT = 5
# Seconds for which a draining proxy still accepts new connections: `tokengauge drain --delay`.
DELAY = 5
# A drain limit in seconds that is shorter than the streams.
OVERDUE = 4
# A grace period in seconds that is shorter than the streams.
GRACE = 6


def scene(name, args, node, folder, **settings):
    return contextlib.closing(Scene(name, args, node, folder, **settings))


# --- checks ----------------------------------------------------------------------------------------------------------


def all_complete(answers):
    """Returns whether the backend completed every stream with all tokens, and a note on the ones that are incomplete."""
    broken = [answer for answer in answers if not answer.is_complete]
    return bool(answers) and not broken, f"{len(broken)} of {len(answers)} are incomplete, the first {broken[:1]}"


def telemetry_checks(answers, telemetry):
    """Yields the telemetry checks of these complete calls: `(what, held, note)`."""
    spans, processes = telemetry
    lacking = [answer for answer in answers if sorted(span.get("kind", "") for span in spans.get(answer.trace, [])) != ["SPAN_KIND_CLIENT", "SPAN_KIND_SERVER"]]
    yield "each call has its two spans", answers and not lacking, f"{len(lacking)} of {len(answers)} lack them"
    client = {answer.trace: found for answer in answers for found in rig.of_kind(spans.get(answer.trace, []), "CLIENT")}
    wrong = [(answer.tokens, client.get(answer.trace)) for answer in answers
             if client.get(answer.trace, {}).get("gen_ai.usage.output_tokens") != answer.tokens or client[answer.trace].get("error.type")]
    yield "each span has the client's count of tokens and no error", not wrong, f"{len(wrong)} are wrong, the first {wrong[:1]}"
    tokens = sum(answer.tokens for answer in answers)
    yield from count_checks(processes, len(answers), {"tokengauge.outcome": "ok"}, tokens)


def count_checks(processes, calls, outcome, tokens):
    counted = sum(one.total("tokengauge.requests.finished", outcome) for one in processes.values())
    yield f"metrics count the calls with outcome {outcome}", counted == calls, f"{counted}, not {calls}"
    for name, wanted in (("tokengauge.reported_tokens", {"tokengauge.token.kind": "output"}), ("tokengauge.tokens", {"tokengauge.token.kind": "text"})):
        counted = sum(one.total(name, wanted) for one in processes.values())
        yield f"{name} counts the tokens that clients received", counted == tokens, f"{counted}, not {tokens}"


def termination_checks(pod, native, last):
    """Yields the checks of a pod's termination. `last` is the container that the sidecar must outlive."""
    sidecar = pod.container(SIDECAR)
    yield "the pod ends well within its grace period", pod.over.wait(rig.WAIT_LIMIT), story(pod)
    yield "no container was killed", not [event for event in pod.events if event.what is EventKind.KILL], story(pod)
    yield "the sidecar ran once and exits 0", sidecar.exits == [0], f"{sidecar.exits}; {tail(sidecar)}"
    if native:
        began, started = pod.when(EventKind.STARTUP, SIDECAR), pod.when(EventKind.STARTED, last)
        yield "the other container started after the sidecar's startup probe", began < started, f"{began} {started}"
        term, gone = pod.when(EventKind.TERM, SIDECAR), pod.when(EventKind.EXITED, last)
        yield "the sidecar was stopped after the other container had exited", term and gone <= term, story(pod)
    took = exit_time(pod)
    # The flush limit is 1.5 s, but a busy machine may take longer. `grace_eaten` tests the kubelet's own limit of 2 s.
    yield f"the sidecar exits soon after SIGTERM ({took:.2f} s)", took < 10, took


def exit_time(pod):
    term, gone = pod.when(EventKind.TERM, SIDECAR), pod.when(EventKind.EXITED, SIDECAR)
    return gone - term if term and gone else float("inf")


def story(pod):
    """Returns the events of the pod, in order."""
    first = pod.events[0].at
    return "; ".join(f"{event.at - first:.1f} s {event.container}: {event.what.value} {event.detail}".rstrip() for event in pod.events)


def tail(container):
    return container.log.read_text(errors="replace")[-600:]


def log_lines(container):
    """Returns the log lines of the sidecar."""
    for line in container.log.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def record_checks(name, tally, verdicts):
    for what, held, note in verdicts:
        tally.check(f"{name}: {what}", held, note)


# --- inbound ---------------------------------------------------------------------------------------------------------


def drained(one, spec, tally, native=True, rollout=False, exec_takes=0):
    """Deletes a pod while streams, new connections and kept connections use it. Returns the pod and its calls.

    In a `rollout` another pod is ready before the deletion."""
    pod = one.pod(spec, "llm-0")
    pod.exec_takes = exec_takes
    running = []
    pod.observers[EventKind.TERM, ENGINE].append(lambda: running.append(metric(f"http://{pod.sandbox.address}:{shapes.BEHIND}", "vllm:num_requests_running")))
    if rollout:
        one.pod(spec, "llm-1")
    rig.wait_until(lambda: len(one.service.endpoints()) == len(one.pods))
    streams = one.open_streams(pod, one.args.streams, LONG, GAP)
    # In a rollout each client keeps a connection to one of two pods. With 16 clients, all of them choose the other pod once in 65,536 runs.
    others = [one.spawn(one.clients.connect_repeatedly(SHORT, 0.1))] + [one.spawn(one.clients.repeat_calls(SHORT, 0.4)) for _ in range(16)]
    rig.wait_until(lambda: sum(answer.kind == "kept" and answer.is_complete and answer.host == pod.sandbox.address for answer in one.clients.answers) > 4)
    open_then = sum(not answer.ended for answer in one.clients.answers if answer.kind == "long")
    tally.check(f"{one.name}: {one.args.streams} streams are open when the pod is deleted", open_then == one.args.streams, open_then)
    pod.delete()
    # Clients on nodes whose kube-proxy has not seen the deletion yet.
    unaware = one.to(pod, 0.05)
    others += [one.spawn(unaware.stream(SHORT, "new")) for _ in range(10)]
    # New connections arrive until the endpoint is removed. Kept connections stay until the drain closes them.
    rig.wait_until(lambda: pod not in one.service.endpoints() and time.monotonic() > pod.deleted_at + DELAY + 1)
    time.sleep(1)
    one.clients.stopping = True
    for each in streams + others:
        each.result(rig.WAIT_LIMIT)
    calls = [answer for answer in one.clients.answers if (rollout or answer.host == pod.sandbox.address) and not excused(answer, pod)]
    late = [answer for answer in calls if answer.kind == "new" and answer.began > pod.deleted_at and answer.host == pod.sandbox.address]
    tally.check(f"{one.name}: every stream is complete", *all_complete([answer for answer in calls if answer.kind == "long"]))
    tally.check(f"{one.name}: new connections are served while the endpoint is listed", *all_complete(late))
    tally.check(f"{one.name}: clients that keep their connection lose no data", *all_complete([answer for answer in calls if answer.kind == "kept"]))
    pod.over.wait(rig.WAIT_LIMIT)
    tally.check(f"{one.name}: the engine was stopped when it ran no request", running == [0], running)
    record_checks(one.name, tally, termination_checks(pod, native, ENGINE))
    counts = {kind: sum(answer.kind == kind for answer in calls) for kind in ("long", "new", "kept")}
    print(f"     {one.name}: {counts}, {len(late)} new after the deletion, {sum(answer.retries for answer in calls)} retried, "
          f"{len([1 for answer in one.clients.answers if excused(answer, pod)])} excused, pod gone after {pod.events[-1].at - pod.deleted_at:.1f} s", flush=True)
    return pod, calls


def excused(answer, pod):
    """Excuses a race on an overloaded machine: a client connects while the endpoint is listed, but sends its request seconds later.

    By then the drain closes idle connections. Neither the client nor the proxy is at fault."""
    return answer.host == pod.sandbox.address and not answer.status and answer.sent > pod.deleted_at + DELAY - 1


def inbound_native(args, node, folder, tally):
    """A rollout: another pod is ready before this one is deleted."""
    with scene("inbound_native", args, node, folder) as one:
        _, calls = drained(one, shapes.inbound(one.otlp), tally, rollout=node.apart)
        for other in one.pods[1:]:
            other.delete()
            other.over.wait(rig.WAIT_LIMIT)
        record_checks(one.name, tally, telemetry_checks(calls, one.collector.telemetry()))


def inbound_fallback(args, node, folder, tally):
    """The sidecar is a plain container, on a node that takes a second to start a hook's command. The other container's hook starts first."""
    with scene("inbound_fallback", args, node, folder) as one:
        _, calls = drained(one, shapes.inbound(one.otlp, native=False), tally, native=False, exec_takes=1)
        record_checks(one.name, tally, telemetry_checks(calls, one.collector.telemetry()))


def inbound_http2(args, node, folder, tally):
    """A rollout with clients over HTTP/2, like gateways: several streams on each connection."""
    with scene("inbound_http2", args, node, folder, clients=Http2Clients) as one:
        pod, calls = drained(one, shapes.inbound(one.otlp), tally, rollout=node.apart)
        here = [link for clients in one.everyone for link in clients.links if link.host == pod.sandbox.address]
        shared = [link for link in here if link.most > 1]
        tally.check("inbound_http2: streams share connections", len(shared) == -(-args.streams // STREAMS), len(shared))
        tally.check("inbound_http2: each connection receives GOAWAY without an error", all(link.goaways and not any(link.goaways) for link in shared),
                    [link.goaways for link in shared])
        last = {answer.host for answer in sorted((answer for answer in calls if answer.kind == "kept"), key=lambda answer: answer.began)[-8:]}
        tally.check("inbound_http2: repeating clients have moved to the other pod", pod.sandbox.address not in last or not node.apart, last)
        for other in one.pods[1:]:
            other.delete()
            other.over.wait(rig.WAIT_LIMIT)
        record_checks(one.name, tally, telemetry_checks(calls, one.collector.telemetry()))


def inbound_overdue(args, node, folder, tally):
    """Streams outlast the drain limit. The engine gets SIGTERM with the rest of the grace period left, and finishes its streams.

    Covers a native sidecar and a plain container."""
    with scene("inbound_overdue", args, node, folder) as one:
        kinds = (True, False) if node.apart else (True,)
        pods = [one.pod(shapes.inbound(one.otlp, native=native, engine_is="patient", drain=OVERDUE), f"llm-{number}") for number, native in enumerate(kinds)]
        share = args.streams // len(pods)
        running = {pod: [] for pod in pods}
        for pod, seen in running.items():
            engine = f"http://{pod.sandbox.address}:{shapes.BEHIND}"
            pod.observers[EventKind.TERM, ENGINE].append(lambda engine=engine, seen=seen: seen.append(metric(engine, "vllm:num_requests_running")))
        streams = [stream for pod in pods for stream in one.open_streams(pod, share, LONG, GAP)]
        for pod in pods:
            pod.delete()
        answers = [stream.result(rig.WAIT_LIMIT) for stream in streams]
        for native, pod in zip(kinds, pods):
            name = f"inbound_overdue, {'native' if native else 'plain'}"
            tally.check(f"{name}: the engine gets SIGTERM while its streams run", running[pod] == [share], f"{running[pod]}; {story(pod)}")
            tally.check(f"{name}: every stream is complete", *all_complete([answer for answer in answers if answer.host == pod.sandbox.address]))
            record_checks(name, tally, termination_checks(pod, native, ENGINE))
            left = next((int(event.detail.split()[0]) for event in pod.events if (event.what, event.container) == (EventKind.TERM, ENGINE)), 0)
            tally.check(f"{name}: the engine has more than the minimum grace period of 2 s", left > 2, story(pod))
        record_checks(one.name, tally, telemetry_checks(answers, one.collector.telemetry()))


def collector_hangs(args, node, folder, tally):
    without_collector("collector_hangs", State.HANGS, args, node, folder, tally)


def collector_gone(args, node, folder, tally):
    without_collector("collector_gone", State.GONE, args, node, folder, tally)


def without_collector(name, state, args, node, folder, tally):
    """The collector fails. Streams continue, the pod ends in time, and the log reports the lost telemetry."""
    with scene(name, args, node, folder, state=state) as one:
        pod, calls = drained(one, shapes.inbound(one.otlp), tally, rollout=node.apart)
        lines = [line for line in log_lines(pod.container(SIDECAR)) if line["message"] == "telemetry was lost"]
        lost = [(line["level"], line["spans"], line["last_metrics_delivered"]) for line in lines]
        wanted = [("WARN", 2 * sum(answer.host == pod.sandbox.address for answer in calls), False)]
        tally.check(f"{name}: the log reports the number of lost spans, and that the last metrics were lost", lost == wanted, f"{lost}, not {wanted}")


def without_hooks(args, node, folder, tally):
    """Control without hooks: the engine gets SIGTERM at once, streams are cut, and the checks detect it."""
    with scene("without_hooks", args, node, folder) as one:
        pod = one.pod(shapes.inbound(one.otlp, hooks=False), "llm-0")
        streams = one.open_streams(pod, args.streams, 4 * LONG, GAP)
        pod.delete()
        answers = [stream.result(rig.WAIT_LIMIT) for stream in streams]
        pod.over.wait(rig.WAIT_LIMIT)
        tally.check("without_hooks: the check detects cut streams", not all_complete(answers)[0], "all are complete")
        tally.check("without_hooks: the check detects every cut stream", bool(answers) and not any(answer.is_complete for answer in answers), sum(answer.is_complete for answer in answers))
        # Telemetry attributes them to the upstream. The proxy stops right after the engine, so some may be attributed to the proxy.
        _, processes = one.collector.telemetry()
        cut = {fault: sum(process.total("tokengauge.requests.finished", {"tokengauge.error_source": fault}) for process in processes.values())
               for fault in ("upstream", "proxy", "client", "none")}
        tally.check("without_hooks: telemetry attributes every cut stream to the upstream or the proxy", cut["upstream"] and cut["upstream"] + cut["proxy"] == args.streams, cut)


def inbound_eaten(args, node, folder, tally):
    """Streams outlast the grace period, and the engine ignores SIGTERM. The streams are lost, but telemetry must not be."""
    with scene("inbound_eaten", args, node, folder) as one:
        pod = one.pod(shapes.inbound(one.otlp, grace=GRACE, engine_is="stubborn"), "llm-0")
        streams = one.open_streams(pod, args.streams, 10 * LONG, GAP)
        pod.delete()
        answers = [stream.result(rig.WAIT_LIMIT) for stream in streams]
        pod.over.wait(rig.WAIT_LIMIT)
        tally.check("inbound_eaten: streams were cut", bool(answers) and not any(answer.is_complete for answer in answers), sum(answer.is_complete for answer in answers))
        tally.check("inbound_eaten: the sidecar exits without SIGKILL", pod.container(SIDECAR).exits == [0], story(pod))
        spans, processes = one.collector.telemetry()
        counted = sum(process.total("tokengauge.requests.finished") for process in processes.values())
        tally.check("inbound_eaten: metrics count every call", counted == args.streams, counted)
        missing = [answer for answer in answers if len(spans.get(answer.trace, [])) != 2]
        tally.check("inbound_eaten: the spans of all calls have arrived", not missing, f"{len(missing)} are missing")


def engine_restarted(args, node, folder, tally):
    """A liveness probe restarts the engine alone. Its preStop hook waits for a drain that does not come, until its limit."""
    with scene("engine_restarted", args, node, folder) as one:
        alive = one.folder / "alive"
        alive.touch()
        pod = one.pod(shapes.inbound(one.otlp, alive=str(alive)), "llm-0")
        streams = one.open_streams(pod, args.streams, 4 * LONG, GAP)
        alive.unlink()
        answers = [stream.result(rig.WAIT_LIMIT) for stream in streams]
        alive.touch()
        engine, sidecar = pod.container(ENGINE), pod.container(SIDECAR)
        tally.check("engine_restarted: the engine runs again", rig.wait_until(lambda: pod.ready and engine.restarts == 1), story(pod))
        waited = pod.when(EventKind.PRESTOPPED, ENGINE) - pod.when(EventKind.PRESTOP, ENGINE)
        tally.check(f"engine_restarted: the engine's hook waited for a limited time ({waited:.1f} s)", 2.5 < waited < 40, waited)
        tally.check("engine_restarted: the sidecar keeps running", not sidecar.exits and sidecar.ready, sidecar.exits)
        tally.check("engine_restarted: streams were cut", bool(answers) and not any(answer.is_complete for answer in answers), sum(answer.is_complete for answer in answers))
        after = one.spawn(one.clients.stream(SHORT, "after")).result(rig.WAIT_LIMIT)
        tally.check("engine_restarted: the next call succeeds", after.is_complete, after)
        pod.delete()
        pod.over.wait(rig.WAIT_LIMIT)
        spans, processes = one.collector.telemetry()
        cut = sum(process.total("tokengauge.requests.finished", {"tokengauge.error_source": "upstream"}) for process in processes.values())
        tally.check("engine_restarted: cut streams are attributed to the upstream", cut == args.streams, cut)
        tally.check("engine_restarted: every call has its spans", all(answer.trace in spans for answer in [*answers, after]))


# --- outbound --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def outbound(name, args, node, folder, tally, on_term, native=True, tokens=LONG, short=6, grace=None):
    """Deletes the pod of an application whose streams are open. Returns scene and pod when the pod has ended."""
    with scene(name, args, node, folder) as one:
        line = ["--streams", str(args.streams), "--tokens", str(tokens), "--gap", str(GAP), "--short", str(short), "--out", one.out, "--on-term", on_term]
        vendor = one.vendor()
        pod = one.pod(shapes.outbound(one.otlp, vendor, line, native, grace), "app-0", served=False)
        rig.wait_until(lambda: metric(vendor, "vllm:num_requests_running") >= args.streams)
        # Enough time for a few tokens of each stream.
        time.sleep(1)
        running = metric(vendor, "vllm:num_requests_running")
        tally.check(f"{name}: {args.streams} streams are open when the pod is deleted", running >= args.streams, running)
        pod.delete()
        pod.over.wait(rig.WAIT_LIMIT)
        yield one, pod


def outbound_native(args, node, folder, tally):
    """The application finishes its streams."""
    with outbound("outbound_native", args, node, folder, tally, "drain") as (one, pod):
        drained_app(one, pod, tally, True)


def outbound_fallback(args, node, folder, tally):
    """The sidecar is a plain container. Its hook waits until the application sends no more requests."""
    with outbound("outbound_fallback", args, node, folder, tally, "drain", native=False) as (one, pod):
        drained_app(one, pod, tally, False)


def drained_app(one, pod, tally, native):
    calls = one.by_app()
    tally.check(f"{one.name}: every stream is complete", *all_complete(calls))
    record_checks(one.name, tally, termination_checks(pod, native, APP))
    record_checks(one.name, tally, telemetry_checks(calls, one.collector.telemetry()))


def outbound_dying(args, node, folder, tally):
    """The application dies with its streams. They are recorded as aborted by the client."""
    with outbound("outbound_dying", args, node, folder, tally, "die", tokens=4 * LONG) as (one, pod):
        left(one, pod, tally, one.by_app())
        record_checks(one.name, tally, termination_checks(pod, True, APP))


def outcomes(processes):
    """Returns how many calls succeeded, and how many were cut by a shutdown.

    The sidecar is stopped as soon as the application is gone. Either side may close first: `cancelled` by the application, `truncated` by
    the sidecar."""
    count = lambda outcome: sum(process.total("tokengauge.requests.finished", {"tokengauge.outcome": outcome}) for process in processes.values())
    return count("ok"), count("cancelled") + count("truncated")


def left(one, pod, tally, calls):
    """Checks the telemetry after the application left its long streams."""
    spans, processes = one.collector.telemetry()
    done = [answer for answer in calls if answer.ended and answer.is_complete]
    good, cut = outcomes(processes)
    # A short call may be in flight when the application dies. The proxy then records the call as cut or as finished.
    tally.check(f"{one.name}: open streams are counted as cut", one.args.streams <= cut <= len(calls) - len(done), f"{cut}, {len(calls)} in all")
    tally.check(f"{one.name}: every call is counted", len(done) + one.args.streams <= good + cut <= len(calls), f"{good} + {cut}, {len(calls)}, {len(done)} done")
    missing = [answer for answer in calls if (answer.kind == "long" or answer.is_complete) and len(spans.get(answer.trace, [])) != 2]
    tally.check(f"{one.name}: the spans of all calls have arrived", calls and not missing, f"{len(missing)} of {len(calls)} are missing")


def grace_eaten(args, node, folder, tally):
    """The application ignores SIGTERM and is killed after the grace period. The sidecar then has 2 s."""
    with outbound("grace_eaten", args, node, folder, tally, "ignore", tokens=10 * LONG, short=2, grace=GRACE) as (one, pod):
        killed = [event.container for event in pod.events if event.what is EventKind.KILL]
        tally.check("grace_eaten: the application was killed", APP in killed, story(pod))
        given = next((event.detail for event in pod.events if (event.what, event.container) == (EventKind.TERM, SIDECAR)), None)
        tally.check("grace_eaten: the sidecar was given 2 s", given == "2 s", given)
        tally.check(f"grace_eaten: the sidecar exits without SIGKILL ({exit_time(pod):.2f} s)", SIDECAR not in killed and pod.container(SIDECAR).exits == [0], story(pod))
        _, processes = one.collector.telemetry()
        good, cut = outcomes(processes)
        tally.check("grace_eaten: metrics of every call arrived", (good, cut) == (4 * 2, args.streams), (good, cut))
        spans, _ = one.collector.telemetry()
        tally.check("grace_eaten: every span arrived", len(spans) == args.streams + 4 * 2, len(spans))


def sidecar_killed(args, node, folder, tally):
    """Control: a sidecar that is killed instead of stopped loses telemetry, and the check detects it."""
    with scene("sidecar_killed", args, node, folder) as one:
        line = ["--streams", str(args.streams), "--tokens", "10", "--gap", "0.05", "--out", one.out]
        vendor = one.vendor()
        pod = one.pod(shapes.outbound(one.otlp, vendor, line), "app-0", served=False)
        pod.observers[EventKind.TERM, SIDECAR].append(lambda: pod.container(SIDECAR).process.kill())
        pod.over.wait(rig.WAIT_LIMIT)
        calls = one.by_app()
        tally.check("sidecar_killed: every stream is complete", *all_complete(calls))
        missed = [what for what, held, _ in telemetry_checks(calls, one.collector.telemetry()) if not held]
        tally.check("sidecar_killed: the check detects missing telemetry", len(missed) == 5, f"detected only {missed}")


def job(args, node, folder, tally):
    """The main container completes, and the pod ends without a deletion."""
    with scene("job", args, node, folder) as one:
        line = ["--streams", str(args.streams), "--tokens", "40", "--gap", "0.05", "--short", "10", "--out", one.out]
        pod = one.pod(shapes.outbound(one.otlp, one.vendor(), line), "job-0", served=False)
        tally.check("job: the pod ends by itself", pod.over.wait(rig.WAIT_LIMIT), story(pod))
        tally.check("job: the main container completed", pod.container(APP).exits == [0], pod.container(APP).exits)
        drained_app(one, pod, tally, True)


# Long scenarios first: two run at a time.
ALL = (inbound_fallback, inbound_native, inbound_http2, collector_hangs, collector_gone, outbound_fallback, engine_restarted, inbound_overdue,
       outbound_native, inbound_eaten, grace_eaten,
       without_hooks, outbound_dying, job, sidecar_killed)
