"""Sends the traffic of a proxy through the Collector's clickhouseexporter into the engine."""

import concurrent.futures
import json
import os
import random
import re
import urllib.error
import urllib.request

import engine
import figures
import rig

CALLS = 300
LOGS_ONLY = {"OTEL_LOGS_EXPORTER": "otlp", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
CONFIGURATION = os.path.join(os.path.dirname(__file__), "../../deploy/clickhouse/collector.yaml")
PRICES = os.path.join(os.path.dirname(__file__), "../../examples/prices/flat.yaml")


def check(base, binary, otelcol, folder, wrong):
    base.truncate()
    server = base.serve()
    processes = rig.Processes("clickhouse")
    backend, listen, receiver, grpc = (rig.free_port() for _ in range(4))
    log = os.path.join(folder, "proxy.jsonl")
    settings = {
        "receivers::otlp::protocols::http::endpoint": f"127.0.0.1:{receiver}",
        "receivers::otlp::protocols::grpc::endpoint": f"127.0.0.1:{grpc}",
        "exporters::clickhouse::endpoint": f"http://{server.address}?compress=none",
        "exporters::clickhouse::sending_queue::batch::flush_timeout": "1s",
        # After a timeout, the Collector would repeat the batch, and the engine would have these requests twice.
        "exporters::clickhouse::timeout": f"{rig.WAIT_LIMIT}s",
        "extensions::file_storage/queue::directory": os.path.join(folder, "queue"),
        "service::telemetry::metrics::level": "none",
    }
    command = [otelcol, "--config", CONFIGURATION]
    for key, value in settings.items():
        command += ["--config", f"yaml:{key}: {value}"]
    secrets = {"CLICKHOUSE_USER": engine.USER, "CLICKHOUSE_PASSWORD": engine.PASSWORD}
    try:
        processes.start("collector", command, receiver, {**os.environ, **secrets})
        models = ["--model", "sim-fast:step-ms=1,batch-ms=0,prefill-ms=2", "--model", "m:step-ms=1,tokens=5-40,fail=0.1,status=503"]
        processes.start("backend", [binary, "simulate", "--listen", f"127.0.0.1:{backend}", *models], backend)
        configuration = os.path.join(folder, "proxy.yaml")
        with open(configuration, "w") as file:
            file.write(CONFIG.format(listen=listen, admin=rig.free_port(), backend=backend, log=log, receiver=receiver, prices=PRICES))
        proxy = processes.start("proxy", [binary, "run", "--config", configuration], listen, {**os.environ, **LOGS_ONLY})
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: call(listen, number), range(CALLS)))
        proxy.terminate()
        proxy.wait(rig.WAIT_LIMIT)
        with open(log) as file:
            written = sum(1 for _ in file)
        lost = losses(processes.folder / "proxy.log")
        count = lambda: int(base.rows("SELECT count() FROM tokengauge.requests")[0][0])
        rig.wait_until(lambda: count() >= written)
    finally:
        processes.stop()
        server.shutdown()
    inserts = [parameters for parameters, _ in server.requests if "query" in parameters]
    print(f"collector: {written} requests in the log, {lost} lost at shutdown, {count()} in ClickHouse, {len(inserts)} inserts")
    if not inserts or count() != written or written + lost != CALLS:
        wrong.append(f"collector: {count()} requests and {len(inserts)} inserts; see {processes.folder}")
        return
    figures.check(base, binary, log, wrong)
    # Each line that ClickHouse returns has the same fields as the line of the log, as far as the report reads them.
    with open(log) as file:
        expected = sorted(json.dumps(pruned(json.loads(line)), sort_keys=True) for line in file)
    found = base.query("SELECT line FROM tokengauge.request_lines").decode().splitlines()
    found = sorted(json.dumps(pruned(json.loads(line)), sort_keys=True) for line in found)
    different = [(a, b) for a, b in zip(expected, found) if a != b]
    if different:
        wrong.append(f"collector: {len(different)} lines differ, such as {different[0][0]} and {different[0][1]}")


def losses(path):
    """The number of requests without a line in the request log, from the last line of the proxy's own log."""
    with open(path) as file:
        last = [line for line in file if "log_lines_dropped=" in line][-1]
    found = dict(re.findall(r"(requests_unrecorded|log_lines_dropped)=(\d+)", last))
    return sum(map(int, found.values()))


CONFIG = """version: 1
listeners: [{{address: "127.0.0.1:{listen}"}}]
admin: {{address: "127.0.0.1:{admin}"}}
upstreams: {{backend: {{url: "http://127.0.0.1:{backend}"}}}}
routes: [{{name: chat, upstream: backend, provider: openai}}]
identity: {{tenant: {{headers: [x-tenant]}}, session: {{headers: [x-session]}}, variant: {{headers: [x-variant]}}}}
cost: {{prices: "{prices}"}}
request_log: {{path: "{log}"}}
otlp: {{endpoint: "http://127.0.0.1:{receiver}", protocol: http/protobuf}}
"""


def call(port, number):
    """A call of the simulated engine: streams, plain responses, errors, requests that leave early, and requests that are no call."""
    draw = random.Random(number).random()
    body = {"model": "m" if draw < 0.5 else "sim-fast", "messages": [{"role": "user", "content": 'a "question" ' * (number % 40)}]}
    if draw > 0.2:
        body |= {"stream": True, "stream_options": {"include_usage": draw > 0.3}}
    path = "/v1/chat/completions" if number % 50 else "/health"
    headers = {
        "content-type": "application/json", "x-tenant": f"team-{number % 3}", "x-session": f"s/{number % 20}",
        "x-variant": "ab"[number % 2], "user-agent": ["claude-cli/2.1.86 (external, cli)", "own <agent>/1"][number % 2],
    }
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=rig.WAIT_LIMIT) as answer:
            answer.read(200 if number % 10 == 3 else None)
    except urllib.error.HTTPError as error:
        error.read()


def pruned(value):
    """The fields that the report reads, without those that are absent."""
    call = value.get("call")
    kept = {
        "time": value["time"], "outcome": value["outcome"], "error_type": value.get("error_type"),
        "times": {name: value["times"].get(name) for name in ("first_token", "last_token", "end")},
        "route": value["route"]["name"], "identity": {k: v for k, v in value.get("identity", {}).items() if v},
        "config": value["config"]["hash"],
    }
    if call:
        kept["call"] = {
            "labels": {name: call["labels"].get(name) for name in ("model", "provider", "operation", "server_address", "stream")},
            "request": [call["request"].get("conversation"), call["request"].get("prompt_bytes"), bool(call["request"].get("background"))],
            "finish": call["response"].get("finish_reasons") or [], "choices": call.get("choices"),
            "buckets": {name: found for name, found in call.get("length_buckets", {}).items() if found},
            "rates": [call["rates"].get("output"), call["rates"].get("time_per_output_token")],
            "usage": [call.get("usage", {}).get(name) for name in ("input", "output", "reasoning", "cache_read", "cache_write", "cache_write_1h")],
            "tokens": call.get("output", {}).get("tokens"), "cost": call.get("cost"),
        }
    return numbers(kept)


def numbers(value):
    """1 and 1.0 are equal numbers of the log."""
    if isinstance(value, dict):
        return {name: numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [numbers(inner) for inner in value]
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
