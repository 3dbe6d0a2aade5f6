"""The processes of the run: two backends, the proxy, three stores, a Collector and an Alertmanager."""
import http.server
import json
import os
import pathlib
import re
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from rig import WAIT_LIMIT, Processes, free_port, wait_until

# The pipelines: Prometheus 2 scrapes the proxy; OTLP to the Collector, scraped by another Prometheus 2; OTLP into Prometheus 3.
SCRAPE, COLLECTOR, NATIVE = "scrape", "collector", "native"
PIPELINES = (SCRAPE, COLLECTOR, NATIVE)
NAMESPACE, CLUSTER = "night", "proving"
# The interval of scrapes, exports and rule evaluations, in seconds.
INTERVAL = 1
LOCAL = "meta-llama/Llama-3.1-8B-Instruct"

CONFIGURATION = """\
version: 1
listeners: [{{address: 127.0.0.1:{listen}}}]
admin: {{address: 127.0.0.1:{admin}}}
position: gateway
upstreams:
  hosted: {{url: http://127.0.0.1:{hosted}}}
  engine: {{url: http://127.0.0.1:{engine}, engine_metrics: {{scrape_interval: 1s}}, warmup: {{min_requests: 20}}}}
routes:
  - {{name: hosted, match: {{prefix: /hosted}}, upstream: hosted, strip_prefix: true, provider: openai, stall: {{inter_token_after: 1s}}}}
  - name: local
    match: {{prefix: /local}}
    upstream: engine
    strip_prefix: true
    provider: vllm
    stall: {{inter_token_after: 1s}}
    concurrency_limit: {{max_in_flight: 3, max_queue: 4, queue_timeout: 60s}}
identity:
  tenant: {{headers: [x-tenant]}}
  variant: {{headers: [x-variant]}}
cardinality_limits: {{length_buckets: true}}
workload_drift: {{sample_size: 200}}
slos:
  - {{name: availability, sli: availability, target: 99.5%}}
  - {{name: first-token, sli: ttft, threshold: 2s, target: 95%}}
  - {{name: output-rate, sli: output_rate, threshold: 10, target: 95%}}
  - {{name: stall-free, sli: stall_free, target: 90%}}
cost:
  prices: {prices}
  budgets:
    - {{name: acme-month, tenant: acme, money: {{amount: 500, currency: USD}}, window: 30d}}
    - {{name: all-day, tokens: 50000000, window: 1d}}
request_log: {{path: {log}}}
otlp: {{interval: 1s}}
"""

# Prices of this test, not of any provider.
PRICES = """\
version: 1
currency: USD
models:
  - {model: "gpt-4o*", input: 2.50, output: 10}
  - {model: "gpt-4-turbo", input: 5, output: 20}
gpus:
  - {route: local, hour: 2.49, count: 1}
"""

COLLECTOR_CONFIGURATION = """\
receivers:
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{receiver}"}}}}}}
exporters:
  prometheus:
    endpoint: 127.0.0.1:{exporter}
    metric_expiration: {expiration}s
    resource_to_telemetry_conversion: {{enabled: true}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    metrics: {{receivers: [otlp], exporters: [prometheus]}}
"""


class Splitter:
    """Sends each export of the proxy unchanged to two receivers, because the proxy has only one OTLP endpoint."""

    def __init__(self, targets):
        self.refused = []
        splitter = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name: self.headers[name] for name in ("content-type", "content-encoding") if self.headers[name]}
                for target in targets:
                    try:
                        urllib.request.urlopen(urllib.request.Request(target, body, headers), timeout=WAIT_LIMIT).close()
                    except OSError as error:
                        splitter.refused.append(f"{target}: {error} {getattr(error, 'read', bytes)()[:300]}")
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{server.server_port}/v1/metrics"
        threading.Thread(target=server.serve_forever, daemon=True).start()


class Pager:
    """Receives notifications of the Alertmanager: every alert, with the time."""

    def __init__(self):
        # (time, pipeline, alert name, firing or resolved)
        self.arrived = []
        pager = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                for alert in message["alerts"]:
                    labels = alert["labels"]
                    pager.arrived.append((time.time(), labels.get("pipeline"), labels["alertname"], alert["status"]))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()


class Store:
    """The HTTP API of one Prometheus."""

    def __init__(self, pipeline, port):
        self.pipeline, self.port = pipeline, port

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}"
        request = urllib.request.Request(url, urllib.parse.urlencode(query, doseq=True).encode()) if query else url
        try:
            with urllib.request.urlopen(request, timeout=WAIT_LIMIT) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{self.pipeline} on {query}: {error.read().decode()[:500]}") from error

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=WAIT_LIMIT):
                return True
        except OSError:
            return False

    def now(self, query, at):
        """Runs an instant query. Returns labels and value of each series."""
        found = self.ask("query", query=query, time=at)
        if found["resultType"] == "scalar":
            return [({}, float(found["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in found["result"]]

    def range(self, query, start, end, step):
        found = self.ask("query_range", query=query, start=start, end=end, step=step)
        return [(one["metric"], [(at, float(value)) for at, value in one["values"]]) for one in found["result"]]

    def alerts(self):
        """Returns the state of each pending or firing alert by name."""
        states = {}
        for alert in self.ask("alerts")["alerts"]:
            name = alert["labels"]["alertname"]
            states[name] = "firing" if "firing" in (alert["state"], states.get(name)) else alert["state"]
        return states


class Stores(Processes):
    """Three stores on `folder`. Without `scene` they serve the old data, and nothing writes to them."""

    def __init__(self, args, folder, scene=None):
        super().__init__("stores")
        self.folder, self.args = pathlib.Path(folder), args
        self.stores = {pipeline: Store(pipeline, free_port()) for pipeline in PIPELINES}
        for pipeline, store in self.stores.items():
            (self.folder / f"{pipeline}.yml").write_text(json.dumps(scene.watching(pipeline) if scene else {}))
            program = str(pathlib.Path(args.tools) / "prometheus3") if pipeline == NATIVE else "prometheus"
            command = [program, f"--config.file={self.folder / pipeline}.yml", f"--storage.tsdb.path={self.folder / pipeline}",
                       f"--web.listen-address=127.0.0.1:{store.port}", f"--query.lookback-delta={args.lookback}s",
                       "--storage.tsdb.retention.time=10y"]
            if scene:
                command += [f"--rules.alert.resend-delay={2 * INTERVAL}s", "--rules.alert.for-grace-period=0s"]
                command += ["--web.enable-otlp-receiver"] if pipeline == NATIVE else []
            self.start(pipeline, command, store.port)
            # It listens before it has replayed its write-ahead log.
            if not wait_until(store.ready):
                self.stop()
                raise SystemExit(f"{pipeline} did not become ready; see {self.folder}")


class Scene(Processes):
    """All processes of the run."""

    def __init__(self, args, rules, routing):
        super().__init__("night")
        self.args, self.rules, self.pager = args, rules, Pager()
        ports = ("hosted", "engine", "listen", "admin", "receiver", "exporter", "alertmanager")
        self.ports = {name: free_port() for name in ports}
        self.alertmanager(routing)
        self.stores = Stores(args, self.folder, self)
        native = self.stores.stores[NATIVE].port
        self.splitter = Splitter([f"http://127.0.0.1:{self.ports['receiver']}/v1/metrics",
                                  f"http://127.0.0.1:{native}/api/v1/otlp/v1/metrics"])
        self.collector()
        self.backends()
        self.proxy()

    def backends(self):
        hosted = [f"{model}:jitter=0,requests-per-minute=6000" for model in ("gpt-4o", "gpt-4o-mini", "gpt-4-turbo")]
        for name, models in (("hosted", hosted), ("engine", [f"{LOCAL}:jitter=0,slots=2,prefix-hits=0.3"])):
            command = [self.args.binary, "simulate", "--listen", f"127.0.0.1:{self.ports[name]}"]
            self.start(name, command + [part for model in models for part in ("--model", model)], self.ports[name])

    def proxy(self):
        prices, configuration = self.folder / "prices.yaml", self.folder / "tokengauge.yaml"
        prices.write_text(PRICES)
        configuration.write_text(CONFIGURATION.format(prices=prices, log=self.folder / "requests.jsonl", **self.ports))
        self.start("proxy", [self.args.binary, "run", "--config", str(configuration)], self.ports["listen"], {
            **os.environ, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": self.splitter.address, "OTEL_TRACES_EXPORTER": "none",
            "OTEL_RESOURCE_ATTRIBUTES": f"k8s.namespace.name={NAMESPACE},k8s.cluster.name={CLUSTER}"})

    def collector(self):
        configuration = self.folder / "collector.yaml"
        # The Collector must drop an ended series as soon as a store marks it stale.
        configuration.write_text(COLLECTOR_CONFIGURATION.format(expiration=self.args.lookback, **self.ports))
        program = str(pathlib.Path(self.args.tools) / "otelcol")
        self.start("otelcol", [program, "--config", str(configuration)], self.ports["receiver"])

    def alertmanager(self, routing):
        """Starts the Alertmanager with the example's routing and inhibition, one receiver for all routes, and divided durations."""
        configuration = self.folder / "alertmanager.yml"
        configuration.write_text(rerouted(routing, self.pager.address, self.args.divide))
        subprocess.run(["amtool", "check-config", str(configuration)], check=True, capture_output=True)
        port = self.ports["alertmanager"]
        self.start("alertmanager", [
            "prometheus-alertmanager", f"--config.file={configuration}", f"--storage.path={self.folder / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="], port)

    def watching(self, pipeline):
        """Returns the configuration of the store."""
        scraped = {SCRAPE: self.ports["admin"], COLLECTOR: self.ports["exporter"]}.get(pipeline)
        configuration = {
            "global": {"scrape_interval": f"{INTERVAL}s", "evaluation_interval": f"{INTERVAL}s", "external_labels": {"pipeline": pipeline}},
            "rule_files": [str(path) for path in sorted(self.rules.glob("*.rules.yaml"))],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{self.ports['alertmanager']}"]}]}]},
        }
        if pipeline == NATIVE:
            configuration["otlp"] = {"promote_resource_attributes": ["k8s.namespace.name", "k8s.cluster.name"]}
            return configuration
        labels = {"namespace": NAMESPACE, "cluster": CLUSTER} if pipeline == SCRAPE else {}
        configuration["scrape_configs"] = [{
            "job_name": "tokengauge", "honor_labels": pipeline == COLLECTOR,
            "static_configs": [{"targets": [f"127.0.0.1:{scraped}"], "labels": labels}]}]
        return configuration

    def held(self):
        """Returns the state of every alert at the Alertmanager: (pipeline, name) → active, suppressed or unprocessed, and the inhibitors."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['alertmanager']}/api/v2/alerts", timeout=WAIT_LIMIT) as answer:
            alerts = json.load(answer)
        names = {alert["fingerprint"]: alert["labels"]["alertname"] for alert in alerts}
        return [(alert["labels"].get("pipeline"), alert["labels"]["alertname"], alert["status"]["state"],
                 sorted({names.get(one, one) for one in alert["status"]["inhibitedBy"]})) for alert in alerts]

    def stop(self):
        super().stop()
        self.stores.stop()


def rerouted(routing, address, divide):
    """Returns an Alertmanager file with one webhook for every receiver, and the durations of its routes divided."""
    head, _, receivers = routing.partition("\nreceivers:")
    names = re.findall(r"^\s*- name: *(\S+)", receivers.partition("\ninhibit_rules:")[0], re.M)
    rest = re.search(r"^(inhibit_rules|time_intervals|templates):.*", receivers, re.M | re.S)
    head = re.sub(r"^(\s*(?:group_wait|group_interval|repeat_interval): *)(\S+)",
                  lambda found: f"{found[1]}{max(int(seconds(found[2]) * 1000 / divide), 100)}ms", head, flags=re.M)
    hook = f"webhook_configs: [{{url: '{address}', send_resolved: true}}]"
    listed = "".join(f"\n  - {{name: {name}, {hook}}}" for name in names)
    return f"{head}\nreceivers:{listed}\n{rest[0] if rest else ''}"


def seconds(text):
    """Returns a Prometheus duration such as `1h30m` in seconds."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)(ms|[smhdwy])", text))
