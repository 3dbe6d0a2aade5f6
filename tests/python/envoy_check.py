#!/usr/bin/env python3
"""Sends recorded traffic through a real Envoy to `tokengauge ext-proc`, and compares what it records.

    envoy_check.py --binary FILE --shared FOLDER [--only SUBSTRING] [--verbose]

The path of most requests: client, Envoy with the filter ext_proc, `tokengauge run`, and the replay server. Both tokengauge processes observe the
same request, so that their request logs must agree. Envoy's configuration is deploy/envoy/envoy.yaml with other addresses and more routes.
"""
import argparse
import asyncio
import collections
import contextlib
import copy
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import httpx
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy" / "envoy"
ENVOY = pathlib.Path(sys.executable).parent / "envoy"
# Limits only the waiting. Much longer than a busy machine needs.
WAIT_LIMIT = 120
# Ways in which the replay server splits and encodes each recording.
VARIANTS = {
    "event": {"x-split": "event"},
    "gzip": {"x-split": "random:11", "x-encode": "gzip"},
    "zstd": {"x-split": "random:17", "x-encode": "zstd"},
}
PACED = {"x-split": "event", "x-delay-ms": "5", "x-ttfb-ms": "30"}
# Fields in which the two positions must agree.
FIELDS = (
    "outcome", "error_source", "error_type", "ending.kind", "http.status", "http.path", "http.request_bytes", "http.response_bytes", "call.complete",
    "call.labels.operation", "call.labels.stream", "call.request.model", "call.response.model", "call.response.finish_reasons", "call.response.id",
    "call.usage", "call.output.counted", "call.output.normalized", "call.output.tokens", "call.output.source", "call.choices", "parse_errors",
)
# Fields that this position cannot see.
UNSEEN = ("connection", "network", "client_backpressure")
# Bounds in seconds on the difference between the two positions, for the median and for 95 of 100 requests.
MEDIAN_BOUND, TAIL_BOUND = 0.010, 0.100
ROUNDS = 3
LARGE = 1 << 20
# Requests that are sent before the observers have to catch up.
BATCH = 20
AI_FILTER = "type.googleapis.com/envoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManager"


class Tally:
    def __init__(self, verbose):
        self.passed, self.failed, self.verbose = 0, 0, verbose

    def check(self, name, held, note=""):
        self.passed, self.failed = self.passed + bool(held), self.failed + (not held)
        if not held or self.verbose:
            print(f"{'ok  ' if held else 'FAIL'} {name}{'' if held else ': ' + str(note)[:500]}", flush=True)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what, ready, limit=WAIT_LIMIT):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        found = ready()
        if found:
            return found
        time.sleep(0.05)
    raise SystemExit(f"waited {limit} s for {what}")


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def field(record, path):
    for key in path.split("."):
        record = record.get(key) if isinstance(record, dict) else None
    return record


class RequestLog:
    """The lines of a request log so far, by trace id."""

    def __init__(self, path):
        self.path, self.at, self.records = path, 0, {}

    def get(self, trace):
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self.at)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self.at += len(line)
                    record = json.loads(line)
                    self.records[record["trace"]["trace_id"]] = record
        return self.records.get(trace)

    def wait(self, trace):
        return until(f"the record of {trace} in {self.path.name}", lambda: self.get(trace))


class Rig:
    def __init__(self, args, stack):
        self.stack, self.binary = stack, args.binary
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="envoy-check-"))
        names = ("replay", "proxy", "proxy_admin", "ext", "ext_admin", "envoy", "waiting", "second_hop", "ai", "envoy_admin", "large", "refused")
        self.ports = {name: free_port() for name in names}
        self.logs = {name: RequestLog(self.work / f"{name}.jsonl") for name in ("ext", "proxy")}
        self.traces = 0
        self.start("replay", sys.executable, args.shared / "corpus" / "replay_server.py", "--root", args.shared / "corpus" / "dev", "--port",
                   self.ports["replay"], "--quiet")
        upstream = f"http://127.0.0.1:{self.ports['replay']}"
        self.start("proxy", self.binary, "run", "--upstream", upstream, *self.flags("proxy"))
        self.ext = self.start_ext()
        threading.Thread(target=serve_large, args=(self.ports["large"],), daemon=True).start()
        config = self.work / "envoy.yaml"
        config.write_text(yaml.safe_dump(self.envoy_config()))
        self.start("envoy", ENVOY, "-c", config, "--concurrency", "2", "--use-dynamic-base-id", "-l", "warning")
        for name in ("replay", "proxy", "ext", "envoy", "waiting", "large"):
            until(f"the port of {name}", lambda: listens(self.ports[name]))

    def flags(self, name):
        return ("--listen", f"127.0.0.1:{self.ports[name]}", "--admin", f"127.0.0.1:{self.ports[name + '_admin']}", "--request-log",
                self.logs[name].path)

    def start_ext(self):
        return self.start("ext", self.binary, "ext-proc", *self.flags("ext"))

    def start(self, name, *command):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "TOKENGAUGE_"))}
        output = (self.work / f"{name}.out").open("ab")
        process = subprocess.Popen([str(part) for part in command], stdout=output, stderr=subprocess.STDOUT, env=environment)
        self.stack.callback(stop, process)
        return process

    def output(self, name):
        return (self.work / f"{name}.out").read_text(errors="replace")

    def envoy_config(self):
        config = yaml.safe_load((DEPLOY / "envoy.yaml").read_text())
        listener, = config["static_resources"]["listeners"]
        clusters = {cluster["name"]: cluster for cluster in config["static_resources"]["clusters"]}
        place(listener["address"], self.ports["envoy"])
        place(endpoint(clusters["tokengauge"]), self.ports["ext"])
        place(endpoint(clusters["llm"]), self.ports["proxy"])
        # Envoy notices a restart quickly.
        clusters["tokengauge"]["health_checks"][0].update(interval="0.2s", no_traffic_interval="0.2s")
        http2 = clusters["tokengauge"]["typed_extension_protocol_options"]
        for name, port in (("direct", "replay"), ("large", "large"), ("refused", "refused"), ("h2", "second_hop")):
            cluster = copy.deepcopy(clusters["llm"])
            cluster["name"] = cluster["load_assignment"]["cluster_name"] = name
            place(endpoint(cluster), self.ports[port])
            if name == "h2":
                cluster["typed_extension_protocol_options"] = http2
            config["static_resources"]["clusters"].append(cluster)
        host, = manager(listener)["route_config"]["virtual_hosts"]
        chat, = host["routes"]
        # HTTP/2 to the upstream: a second listener of the same Envoy, without the filter.
        second = copy.deepcopy(listener)
        second["name"] = "second"
        place(second["address"], self.ports["second_hop"])
        manager(second)["http_filters"].pop(0)
        manager(second).pop("access_log")
        routes = [special(chat, name, {"cluster": name}) for name in ("direct", "large", "refused", "h2")]
        routes.append(special(chat, "timeout", {"cluster": "direct", "timeout": "1s"}))
        routes.append(special(chat, "idle", {"cluster": "direct", "idle_timeout": "1s"}))
        chat["match"] = {"prefix": "/", "headers": [{"name": "x-route", "present_match": True, "invert_match": True}]}
        host["routes"] = [*routes, chat]
        waiting = copy.deepcopy(listener)
        waiting["name"] = "waiting"
        place(waiting["address"], self.ports["waiting"])
        manager(waiting)["http_filters"][0]["typed_config"].update(observability_mode=False, message_timeout="5s")
        manager(waiting)["http_filters"][0]["typed_config"].pop("deferred_close_timeout")
        # Envoy's own count, for comparison.
        ai = copy.deepcopy(listener)
        ai["name"] = "ai"
        place(ai["address"], self.ports["ai"])
        filters = manager(ai)["http_filters"]
        filters[0]["typed_config"]["metadata_options"]["forwarding_namespaces"]["typed"] = ["envoy.ai.token_usage"]
        filters.insert(1, {"name": "envoy.filters.http.ai_protocol_manager", "typed_config": {"@type": AI_FILTER, "response_handling": {"token_usage": {"include_unconfigured_routes": True}}}})
        config["static_resources"]["listeners"] += [second, waiting, ai]
        config["admin"] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": self.ports["envoy_admin"]}}}
        return config

    def trace(self):
        self.traces += 1
        return f"{self.traces:032x}"

    def metric(self, name, label=""):
        try:
            text = urllib.request.urlopen(f"http://127.0.0.1:{self.ports['ext_admin']}/metrics", timeout=10).read().decode()
        except OSError:
            return None
        values = re.findall(rf"^{name}(?:\{{[^}}]*{label}[^}}]*\}})? ([0-9.e+]+)$", text, re.MULTILINE)
        return sum(map(float, values)) if values else None


def stop(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def manager(listener):
    return listener["filter_chains"][0]["filters"][0]["typed_config"]


def endpoint(cluster):
    return cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]


def place(address, port):
    address["socket_address"]["port_value"] = port


def special(chat, name, changes):
    """A route for requests with this value of x-route."""
    route = copy.deepcopy(chat)
    route["name"] = name
    route["match"] = {"prefix": "/", "headers": [{"name": "x-route", "string_match": {"exact": name}}]}
    route["route"].update(changes)
    return route


def serve_large(port):
    """Serves a stream whose first event has more than 1 MiB."""
    text = json.dumps({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {"content": "word " * (LARGE // 5)}, "finish_reason": "stop"}]})
    usage = json.dumps({"id": "c1", "model": "m", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}})
    body = f"data: {text}\n\ndata: {usage}\n\ndata: [DONE]\n\n".encode()

    async def answer(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1]))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body))
                writer.write(body)
                await writer.drain()

    async def serve():
        server = await asyncio.start_server(answer, "127.0.0.1", port)
        await server.serve_forever()

    asyncio.run(serve())


def headers_of(request, trace, extra):
    skip = ("host", "content-length", "accept-encoding", "connection")
    headers = [(name, value) for name, value in request.get("headers", []) if name.lower() not in skip]
    return [*headers, ("accept-encoding", extra.get("x-encode", "identity")), ("traceparent", f"00-{trace}-00000000000000aa-01"), *extra.items()]


def target(request):
    path = request["path"] + (f"?{request['query']}" if request.get("query") else "")
    return path.replace("<", "%3C").replace(">", "%3E")  # marks of a scrubber, no characters of a request target


def send(port, request, trace, extra, leave_after=None):
    """Returns status and body. With `leave_after`, closes the connection after so many bytes of the body (0: before the head)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = request.get("body")
    body = body.encode() if isinstance(body, str) else body
    connection.putrequest(request["method"], target(request), skip_accept_encoding=True)
    for name, value in headers_of(request, trace, extra):
        connection.putheader(name, value)
    if body is not None:
        connection.putheader("content-length", str(len(body)))
    connection.endheaders(body)
    if leave_after == 0:
        time.sleep(0.3)
        connection.close()
        return None, b""
    response = connection.getresponse()
    data = b""
    with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
        while piece := response.read1(65536):
            data += piece
            if leave_after is not None and len(data) >= leave_after:
                connection.sock.shutdown(socket.SHUT_RDWR)
                break
    connection.close()
    return response.status, data


def differences(one, other):
    return {name: (field(one, name), field(other, name)) for name in FIELDS if field(one, name) != field(other, name)}


def load(shared, only):
    cases = []
    for folder in sorted((shared / "corpus" / "dev").iterdir()):
        if folder.is_dir() and only in folder.name:
            cases.append((folder.name, json.loads((folder / "request.json").read_text()), json.loads((folder / "truth.json").read_text())))
    return cases


def replay(rig, tally, cases):
    """Every recording in every variant."""
    sent = []
    for name, request, _ in cases:
        for variant, extra in VARIANTS.items():
            trace = rig.trace()
            status, _ = send(rig.ports["envoy"], request, trace, {**extra, "x-case": name})
            sent.append((name, variant, trace, status))
            # On a busy machine, an observer that falls far behind counts only the results of requests.
            if len(sent) % BATCH == 0:
                rig.logs["ext"].wait(trace), rig.logs["proxy"].wait(trace)
    for name, variant, trace, status in sent:
        envoy, proxy = rig.logs["ext"].wait(trace), rig.logs["proxy"].wait(trace)
        found = differences(envoy, proxy)
        tally.check(f"{name} [{variant}] as the proxy records it", not found, found)
        tally.check(f"{name} [{variant}] position and route", (envoy["route"]["position"], envoy["route"]["name"], envoy["route"]["server_address"])
                    == ("envoy", "chat", "llm"), envoy["route"])
        unseen = [path for path in UNSEEN if field(envoy, path) not in (None, 0)]
        tally.check(f"{name} [{variant}] nothing that this position cannot see", not unseen, unseen)
        tally.check(f"{name} [{variant}] status", status == envoy["http"]["status"], status)


def timing(rig, tally, cases):
    """Times of both positions on the same streams. Other programs only make the differences larger, so the best of three rounds counts."""
    streams = [case for case in cases if case[2].get("stream_requested") and case[2]["status"] < 400][::4][:40]
    for _ in range(ROUNDS):
        found = [(what, statistics.median(values), sorted(values)[int(len(values) * 0.95) - 1]) for what, values in deviations(rig, streams).items()]
        for what, median, tail in found:
            print(f"{what}: {len(streams)} streams, difference to the proxy: median {median * 1e3:.2f} ms, 95th percentile {tail * 1e3:.2f} ms")
        if all(median < MEDIAN_BOUND and tail < TAIL_BOUND for _, median, tail in found):
            break
    tally.check("both times were compared", len(found) == 2, found)
    for what, median, tail in found:
        tally.check(f"{what}: median below {MEDIAN_BOUND} s", median < MEDIAN_BOUND, median)
        tally.check(f"{what}: 95th percentile below {TAIL_BOUND} s", tail < TAIL_BOUND, tail)


def deviations(rig, streams):
    """Absolute differences between both positions, by quantity."""
    traces = []
    for name, request, _ in streams:
        trace = rig.trace()
        send(rig.ports["envoy"], request, trace, {**PACED, "x-case": name})
        traces.append(trace)
    found = collections.defaultdict(list)
    for trace in traces:
        envoy, proxy = rig.logs["ext"].wait(trace), rig.logs["proxy"].wait(trace)
        for what, path in (("time to first token", "times.first_token"), ("decode time", "stages.decode")):
            values = [field(record, path) for record in (envoy, proxy)]
            if None not in values:
                found[what].append(abs(values[0] - values[1]))
    return found


def http2(rig, tally, cases):
    with httpx.Client(http1=False, http2=True, timeout=60) as client:
        for name, request, _ in cases[::20]:
            trace = rig.trace()
            headers = headers_of(request, trace, {"x-split": "event", "x-case": name, "x-route": "h2"})
            address = f"http://127.0.0.1:{rig.ports['envoy']}{target(request)}"
            client.request(request["method"], address, headers=headers, content=request.get("body"))
            envoy, proxy = rig.logs["ext"].wait(trace), rig.logs["proxy"].wait(trace)
            found = differences(envoy, proxy)
            tally.check(f"HTTP/2 on both sides: {name}", not found and envoy["http"]["version"] == "2", found or envoy["http"]["version"])


def stream_case(cases):
    """A stream of chat completions with many events."""
    fits = [case for case in cases if case[2]["api"] == "openai.chat" and case[2]["framing"] == "sse" and case[2].get("finish_reasons")]
    return max(fits, key=lambda case: len(case[2].get("output_text") or ""))


def aborts(rig, tally, cases):
    name, request, _ = stream_case(cases)
    slow = {"x-case": name, "x-split": "event", "x-delay-ms": "20"}
    client, upstream = ("cancelled", "client", "client_gone"), "upstream"
    ways = [
        ("client leaves before the head", {"x-head-delay-ms": "1500"}, "direct", 0, (*client, None)),
        ("client leaves before the first event", {"x-stall-after": "1:2000"}, "direct", 1, (*client, 200)),
        ("client leaves in the stream", {}, "direct", 400, (*client, 200)),
        ("upstream closes in the stream", {"x-abort-after": "400"}, "direct", None, ("truncated", upstream, "upstream_truncated", 200)),
        ("upstream resets in the stream", {"x-abort-after": "400:rst"}, "direct", None, ("truncated", upstream, "upstream_truncated", 200)),
        ("upstream refuses the connection", {}, "refused", None, ("error", upstream, "upstream_connect", 503)),
        ("timeout before the head", {"x-head-delay-ms": "1500"}, "timeout", None, ("timeout", upstream, "timeout_total", 504)),
        ("timeout in the stream", {"x-delay-ms": "200"}, "timeout", None, ("timeout", upstream, "timeout_total", 200)),
        ("no byte in the stream for the idle timeout", {"x-stall-after": "400:3000"}, "idle", None, ("timeout", upstream, "timeout_idle", 200)),
        ("no route", {}, "nowhere", None, ("rejected", "client", "no_route", 404)),
    ]
    expected = {}
    for what, extra, route, leave_after, wanted in ways:
        trace = rig.trace()
        send(rig.ports["envoy"], request, trace, {**slow, **extra, "x-route": route}, leave_after)
        expected[trace] = (what, wanted)
    for trace, (what, wanted) in expected.items():
        record = rig.logs["ext"].wait(trace)
        found = (record["outcome"], record["error_source"], record.get("error_type"), field(record, "http.status"))
        tally.check(what, found == wanted, f"{found} instead of {wanted}")
    tally.check("every abort is explained", rig.metric("tokengauge_self_envoy_unknown_ends_total") == 0)


def large_events(rig, tally, _):
    request = {"method": "POST", "path": "/v1/chat/completions", "headers": [("content-type", "application/json")],
               "body": json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "word " * (LARGE // 5)}]})}
    trace = rig.trace()
    status, body = send(rig.ports["envoy"], request, trace, {"x-route": "large"})
    record = rig.logs["ext"].wait(trace)
    tally.check("1 MiB event: delivered", status == 200 and len(body) > LARGE, (status, len(body)))
    found = (record["outcome"], field(record, "call.complete"), field(record, "call.usage.output"), record["http"]["response_bytes"],
             record["http"]["request_bytes"])
    tally.check("1 MiB event: recorded", found == ("ok", "true", 7, len(body), len(request["body"])), found)


def own_count_of_envoy(rig, tally, cases):
    """Envoy's AI filter reports its token count, which is compared."""
    fits = [case for case in cases if case[2]["api"] == "openai.chat" and case[2]["status"] == 200 and (case[2].get("usage") or {}).get("output_tokens")]
    for name, request, _ in fits[:12]:
        trace = rig.trace()
        send(rig.ports["ai"], request, trace, {"x-split": "event", "x-case": name})
        found = differences(rig.logs["ext"].wait(trace), rig.logs["proxy"].wait(trace))
        tally.check(f"with Envoy's AI filter: {name}", not found, found)
    counts = {word: rig.metric("tokengauge_gateway_usage_calls_total", f'tokengauge_gateway_usage="{word}"') or 0 for word in ("equal", "different")}
    print(f"Envoy's AI filter: {counts['equal']:.0f} of {len(fits[:12])} calls counted equally, {counts['different']:.0f} differently")
    tally.check("Envoy's AI filter: its counts are compared", counts["equal"] > 0, counts)
    tally.check("Envoy's AI filter: no difference in plain chat completions", counts["different"] == 0, counts)


def waiting_filter(rig, tally, cases):
    before = rig.metric("tokengauge_self_envoy_answered_messages_total")
    tally.check("observability mode: no message is answered", before == 0, before)
    for name, request, _ in cases[::25]:
        trace = rig.trace()
        status, _ = send(rig.ports["waiting"], request, trace, {"x-split": "event", "x-case": name})
        envoy, proxy = rig.logs["ext"].wait(trace), rig.logs["proxy"].wait(trace)
        found = differences(envoy, proxy)
        tally.check(f"observability mode off: {name}", not found and status == envoy["http"]["status"], found or status)
    tally.check("observability mode off: counted", (rig.metric("tokengauge_self_envoy_answered_messages_total") or 0) > 0)
    warnings = rig.output("ext").count("observability_mode")
    tally.check("observability mode off: one warning", warnings == 1, warnings)


def restart(rig, tally, cases):
    """Requests go on while tokengauge is killed and started again, and the gap is counted."""
    name, request, _ = stream_case(cases)
    results = {}

    def long_stream():
        results["long"] = send(rig.ports["envoy"], request, rig.trace(), {"x-case": name, "x-split": "event", "x-stall-after": "400:5000"})

    whole = send(rig.ports["envoy"], request, rig.trace(), {"x-case": name, "x-split": "event"})
    thread = threading.Thread(target=long_stream)
    thread.start()
    time.sleep(0.7)
    rig.ext.send_signal(signal.SIGKILL)
    rig.ext.wait()
    results["down"] = send(rig.ports["envoy"], request, rig.trace(), {"x-case": name, "x-split": "event"})
    rig.ext = rig.start_ext()
    until("the port of ext", lambda: listens(rig.ports["ext"]))
    observed = until("an observed request after the restart", lambda: probe(rig, request, name))
    thread.join()
    for what in ("long", "down"):
        tally.check(f"restart: the response is complete ({what})", results[what] == whole, results[what][0])
    tally.check("restart: requests are observed again", observed["outcome"] == "ok", observed["outcome"])
    count = until("the count of the gap", lambda: rig.metric("tokengauge_self_envoy_unobserved_requests_total"), 30)
    tally.check("restart: the gap is counted", count >= 1, count)


def probe(rig, request, name):
    """Sends a request. Returns its record, or None if Envoy did not send a copy."""
    trace = rig.trace()
    send(rig.ports["envoy"], request, trace, {"x-case": name, "x-split": "event"})
    end = time.monotonic() + 2
    while time.monotonic() < end and not rig.logs["ext"].get(trace):
        time.sleep(0.05)
    return rig.logs["ext"].get(trace)


def drain(rig, tally, cases):
    """SIGTERM lets the open stream end, and exits with 0."""
    name, request, _ = stream_case(cases)
    _, whole = send(rig.ports["envoy"], request, rig.trace(), {"x-case": name, "x-split": "event"})
    trace = rig.trace()
    # The pause is near the end, so that the observer has little left to parse when the process stops.
    stall = {"x-case": name, "x-split": "event", "x-stall-after": f"{len(whole) - 400}:1500"}
    thread = threading.Thread(target=send, args=(rig.ports["envoy"], request, trace, stall))
    thread.start()
    time.sleep(0.7)
    rig.ext.send_signal(signal.SIGTERM)
    code = rig.ext.wait(60)
    thread.join()
    record = rig.logs["ext"].get(trace)
    tally.check("SIGTERM: exit status 0", code == 0, code)
    tally.check("SIGTERM: the open stream is recorded to its end", record and (record["outcome"], field(record, "call.complete")) == ("ok", "true"), record)


def examples(tally):
    for path in sorted(DEPLOY.glob("*.yaml")):
        documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
        tally.check(f"{path.name} is YAML", bool(documents))
        if any("static_resources" in document for document in documents):
            found = subprocess.run([ENVOY, "--mode", "validate", "-c", path, "--use-dynamic-base-id"], capture_output=True, text=True)
            tally.check(f"Envoy accepts {path.name}", found.returncode == 0, found.stderr[-400:])


def messages(tally):
    """Compares crates/envoy/src/proto.rs with the descriptors of Envoy's messages."""
    from envoy.config.core.v3 import base_pb2
    from envoy.data.accesslog.v3 import accesslog_pb2
    from envoy.service.accesslog.v3 import als_pb2
    from envoy.service.ext_proc.v3 import external_processor_pb2

    known = {}
    for module in (base_pb2, accesslog_pb2, als_pb2, external_processor_pb2):
        for message in module.DESCRIPTOR.message_types_by_name.values():
            for each in (message, *message.nested_types):
                known[each.name.lower()] = {item.name: item.number for item in each.fields}
    source = (ROOT / "crates" / "envoy" / "src" / "proto.rs").read_text()
    fields = 0
    for struct, body in re.findall(r"pub struct (\w+) \{(.*?)\n?\}", source, re.DOTALL):
        for tag, name in re.findall(r'tag = "(\d+)"\)\]\s*pub (\w+):', body):
            fields += 1
            tally.check(f"field {struct}.{name}", known.get(struct.lower(), {}).get(name) == int(tag), tag)
    for tag, variant in re.findall(r'#\[prost\(message, tag = "(\d+)"\)\]\s*(\w+)\(', source):
        fields += 1
        name = re.sub(r"(?<!^)([A-Z])", r"_\1", variant).lower()
        tally.check(f"part {name}", known["processingrequest"].get(name) == int(tag), tag)
        answer = re.search(rf"Self::{variant}\(_\) => (\d+)", source)[1]
        tally.check(f"answer to {name}", known["processingresponse"].get(name) == int(answer), answer)
    tally.check("all fields were found", fields == source.count("tag = "), fields)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--binary", required=True, type=pathlib.Path)
    cli.add_argument("--shared", required=True, type=lambda path: pathlib.Path(path).resolve())
    cli.add_argument("--only", default="")
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    tally = Tally(args.verbose)
    examples(tally)
    messages(tally)
    all_cases = load(args.shared, "")
    with contextlib.ExitStack() as stack:
        rig = Rig(args, stack)
        until("Envoy's connection to tokengauge", lambda: probe(rig, all_cases[0][1], all_cases[0][0]))
        replay(rig, tally, [case for case in all_cases if args.only in case[0]])
        for part in (timing, http2, aborts, large_events, own_count_of_envoy, waiting_filter, restart, drain):
            began = time.monotonic()
            part(rig, tally, all_cases)
            print(f"{part.__name__}: {time.monotonic() - began:.1f} s", flush=True)
        if tally.failed:
            print(f"logs in {rig.work}")
        else:
            shutil.rmtree(rig.work, ignore_errors=True)
    print(f"{tally.passed} passed, {tally.failed} failed")
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    main()
