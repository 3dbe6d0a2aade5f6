#!/usr/bin/env python3
"""Plays incidents with known causes, and checks that the runbooks name these causes.

    runbooks_check.py --binary target/release/tokengauge [--verbose]

Each incident has its own proxies in front of `tokengauge simulate`, and its own `job` in one real Prometheus with the generated rules. Calls are
healthy for an hour, and then have the cause for ten minutes. All durations are divided (`--divide`), in the rules and in the queries alike, so that the
hour takes three minutes. Then the walk reads each runbook like a reader: it evaluates the page's own queries in their order, reads the table of causes from
top to bottom, and stops at the first row that matches. That row must name the cause that was played.
Needs prometheus on the path. The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import asyncio
import itertools
import json
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

from rig import WAIT_LIMIT, Processes, Tally, clear_environment, free_port, wait_until

PAGES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "runbooks"
# Seconds. A busy machine does not answer a scrape within half a second.
SCRAPE = 1
# Minutes of the played time.
HEALTHY, INCIDENT = 65, 12
BACKEND = "prefill-ms=20,prefill-us-per-token=30,step-ms=12,batch-ms=0.2,tokens=15-25,usage=never,jitter=0"
CHECK_STEPS = 3


class Incident:
    """A cause, the way to play it, and the cause that each runbook must name."""

    def __init__(self, job, expected, rate=4.0, replicas=1, backend=BACKEND, load=1.0, headers=None, client=None, link=None, later=None):
        """Calls per second and process are `rate`, and during the incident `load` times as many, with `headers` and the behaviour `client`. `link` changes the
        way to the backend, and `later` is the backend's options during the incident. Only the last replica has the cause."""
        self.job, self.expected, self.rate, self.replicas, self.backend, self.load = job, expected, rate, replicas, backend, load
        self.headers, self.client, self.link, self.later = headers or {}, client, link, later


INCIDENTS = (
    Incident("slow-decode", {"LLMOutputTPSDrop": "Slow decode", "LLMQueueGrowing": "Slow decode", "LLMErrorBudgetBurnFast": "Slow streams"},
             headers={"gap-us": 48000}),
    Incident("slow-prefill", {"LLMTTFTDegraded": "Slow prefill", "LLMQueueGrowing": "Slow prefill", "LLMErrorBudgetBurnFast": "Late first tokens"},
             headers={"ttft-us": 1200000}),
    Incident("more-load", {"LLMOutputTPSDrop": "More load", "LLMTTFTDegraded": "More load", "LLMQueueGrowing": "More load"}, load=3.5,
             backend=BACKEND.replace("batch-ms=0.2", "batch-ms=6")),
    Incident("queue", {"LLMTTFTDegraded": "Backend queue", "LLMQueueGrowing": "Lost engine capacity"}, later="slots=1"),
    Incident("one-replica", {"LLMOutputTPSDrop": "One replica", "LLMTTFTDegraded": "One replica", "LLMQueueGrowing": "One replica",
                             "LLMReplicaDeviating": "One replica"}, replicas=3, rate=3.0,
             backend=f"{BACKEND},slots=4", headers={"gap-us": 60000, "ttft-us": 1500000}),
    Incident("one-replica-fails", {"LLMProviderErrors": "One replica", "LLMReplicaDeviating": "One replica"}, replicas=3, rate=3.0, headers={"status": 503}),
    Incident("slow-network", {"LLMTTFTDegraded": "Network"}, link="slow"),
    Incident("no-network", {"LLMProviderErrors": "Network", "LLMProviderDown": "Network", "LLMErrorBudgetBurnFast": "Failed calls"}, link="closed"),
    Incident("provider-5xx", {"LLMProviderErrors": "Provider incident", "LLMProviderDown": "Provider incident", "LLMErrorBudgetBurnFast": "Failed calls"},
             headers={"status": 503}),
    Incident("slow-client", {"LLMTTFTDegraded": "Slow client"}, client="uploads slowly"),
    Incident("impatient-client", {"LLMRequestsCancelled": "Client timeout too short"}, headers={"ttft-us": 150000}, client="leaves after 0.1 s, every second"),
    Incident("hung-backend", {"LLMRequestsCancelled": "Hung backend"}, headers={"ttft-us": 60000000}, client="leaves after 0.5 s"),
)


class Link:
    """A TCP relay to the backend. `slow` lets the kernel drop SYNs for nearly half of the time, which clients repeat after 1 s. `closed` refuses connections."""

    # Seconds of each phase of `slow`. A SYN that the first phase drops is repeated in the second one.
    DROPPING, OPEN = 0.9, 1.1

    def __init__(self, target, loop):
        self.target, self.loop, self.mode = target, loop, "healthy"
        # The event loop alone does not keep a task alive.
        self.relays = set()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def change(self, mode):
        self.mode = mode
        if mode == "closed":
            # `shutdown` wakes the thread that accepts.
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()

    def accept(self):
        while self.mode != "closed":
            if self.mode == "slow":
                self.drop_for(self.DROPPING)
            self.accept_for(self.OPEN)

    def accept_for(self, seconds):
        until = time.monotonic() + seconds
        try:
            while (left := until - time.monotonic()) > 0:
                if select.select([self.listener], [], [], left)[0]:
                    connection, _ = self.listener.accept()
                    self.loop.call_soon_threadsafe(self.start_relay, connection)
        except (OSError, ValueError):
            self.mode = "closed"  # The listener was closed.

    def drop_for(self, seconds):
        """Fills the queue of connections that wait for `accept`."""
        self.listener.listen(0)
        fillers = [socket.socket() for _ in range(2)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self.port))
        time.sleep(seconds)
        for filler in fillers:
            filler.close()

    def start_relay(self, connection):
        relay = self.loop.create_task(self.relay(connection))
        self.relays.add(relay)
        relay.add_done_callback(self.relays.discard)

    async def relay(self, connection):
        try:
            near, far = await asyncio.gather(asyncio.open_connection(sock=connection), asyncio.open_connection("127.0.0.1", self.target))
        except OSError:
            connection.close()
            return
        await asyncio.gather(pump(near[0], far[1]), pump(far[0], near[1]))


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


class Play(Processes):
    """The processes of all incidents, and the load on them."""

    def __init__(self, args, incidents):
        super().__init__("runbooks")
        self.incidents = incidents
        self.args, self.calls, self.running = args, set(), {}
        self.loop = asyncio.new_event_loop()
        self.links, self.proxies, targets = {}, {}, []
        for incident in self.incidents:
            ports = [self.proxy(incident, number) for number in range(incident.replicas)]
            self.proxies[incident.job] = ports
            targets.append({"targets": [f"127.0.0.1:{admin}" for _, admin in ports], "labels": {"job": incident.job}})
        self.start_prometheus(targets)

    def proxy(self, incident, number):
        """Starts a proxy and its backend. Returns the ports of the proxy."""
        backend, listen, admin = free_port(), free_port(), free_port()
        name = f"{incident.job}-{number}"
        self.start(f"{name}-backend", [self.args.binary, "simulate", "--listen", f"127.0.0.1:{backend}", "--model", f"m:{incident.backend}"], backend)
        upstream = backend
        if incident.link:
            self.links[incident.job] = Link(backend, self.loop)
            upstream = self.links[incident.job].port
        self.configure(name, upstream, backend)
        self.running[name] = self.start(name, [self.args.binary, "run", "--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}",
                                               "--config", str(self.folder / f"{name}.yaml")], listen)
        return listen, admin

    def configure(self, name, upstream, engine):
        # JSON is YAML. Without idle connections, each call shows the way to the backend.
        text = json.dumps({
            "version": 1, "upstreams": {"engine": {
                "url": f"http://127.0.0.1:{upstream}", "pool": {"max_idle_connections": 0},
                "engine_metrics": {"url": f"http://127.0.0.1:{engine}/metrics", "scrape_interval": "1s"}}},
            "slos": [{"name": "served", "sli": "availability", "target": "99%"},
                     {"name": "early", "sli": "ttft", "threshold": "500ms", "target": "95%"},
                     {"name": "fast", "sli": "output_rate", "threshold": 30, "target": "95%"}]})
        (self.folder / f"{name}.yaml").write_text(text)

    def start_prometheus(self, targets):
        rules = self.folder / "rules"
        subprocess.run([self.args.binary, "alerts", "--divide-durations", str(self.args.divide), "--out", str(rules)], check=True, stdout=subprocess.DEVNULL)
        (self.folder / "prometheus.json").write_text(json.dumps({
            "global": {"scrape_interval": f"{SCRAPE}s", "scrape_timeout": f"{SCRAPE}s"},
            "rule_files": [str(rules / "*.rules.yaml")], "scrape_configs": [{"job_name": "all", "static_configs": targets}]}))
        self.prometheus = free_port()
        self.start("prometheus", [
            "prometheus", f"--config.file={self.folder / 'prometheus.json'}", f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.prometheus}", "--query.lookback-delta=10s"], self.prometheus)

    def ask(self, path, **query):
        url = f"http://127.0.0.1:{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=WAIT_LIMIT) as answer:
            return json.load(answer)["data"]

    async def run(self):
        """Plays all incidents. Returns the time of their end."""
        ends = time.monotonic() + HEALTHY * 60 / self.args.divide
        done = ends + INCIDENT * 60 / self.args.divide
        loads = [self.load(incident, number, ports[0], ends, done) for incident in self.incidents
                 for number, ports in enumerate(self.proxies[incident.job])]
        change = asyncio.create_task(self.change(ends))
        await asyncio.gather(*loads)
        await change
        end = time.time()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return end

    async def change(self, at):
        await asyncio.sleep(at - time.monotonic())
        for incident in self.incidents:
            if incident.link:
                self.links[incident.job].change(incident.link)
            if incident.later:
                backend = free_port()
                await asyncio.to_thread(self.start, f"{incident.job}-later", [
                    self.args.binary, "simulate", "--listen", f"127.0.0.1:{backend}", "--model", f"m:{incident.backend},{incident.later}"], backend)
                self.configure(f"{incident.job}-0", backend, backend)
                self.running[f"{incident.job}-0"].send_signal(signal.SIGHUP)

    async def load(self, incident, number, port, ends, done):
        for count in itertools.count():
            now = time.monotonic()
            if now > done:
                return
            ill = now > ends and number == incident.replicas - 1
            call = asyncio.create_task(self.call(port, incident.headers if ill else {}, incident.client if ill else None, count))
            self.calls.add(call)
            call.add_done_callback(self.calls.discard)
            # An even pace with a little variation, so that processes do not stay in step.
            pause = 1 / (incident.rate * (incident.load if ill else 1))
            await asyncio.sleep(pause * (0.9 + 0.02 * (count * 7 % 11)))

    async def call(self, port, headers, client, count):
        body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Describe the sea in a few words. " * 4}]}).encode()
        lines = "".join(f"x-simulate-{key}: {value}\r\n" for key, value in headers.items())
        head = (f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n{lines}"
                f"content-length: {len(body)}\r\n\r\n").encode()
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head)
            if client == "uploads slowly":
                await asyncio.sleep(0.6)
            writer.write(body)
            every_second = client and "every second" in client
            if client and client.startswith("leaves") and not (every_second and count % 2):
                await asyncio.sleep(0.5 if "0.5" in client else 0.1)
            else:
                await reader.read(-1)
        except OSError:
            pass  # Some incidents break connections.
        finally:
            if writer:
                writer.close()


class Book:
    """The queries and the table of causes of a runbook."""

    def __init__(self, name):
        text = (PAGES / f"{name}.md").read_text()
        section = lambda title: text.split(f"\n## {title}\n")[1].split("\n## ")[0]
        self.checks = {}
        for step in re.split(r"^(?=\d+\. )", section("Check"), flags=re.M)[1:]:
            number = int(step.split(".")[0])
            self.checks[number] = [re.sub(r"^   ", "", query, flags=re.M) for query in re.findall(r"```promql\n(.*?)```", step, re.S)]
        rows = [line.strip("| ").split(" | ") for line in section("Causes").splitlines() if line.startswith("| ")]
        self.rows = [(check, result, re.search(r"\*\*(.+?)\*\*", cause)[1]) for check, result, cause, *_ in rows[1:]]

    def walk(self, evaluate):
        """Returns the cause of the first row that matches, and the rows up to it with their results."""
        read, has_data = [], False
        for check, result, cause in self.rows:
            number, ordinal = re.fullmatch(r"(\d)(?:, (first|second) query)?", check).groups()
            queries = self.checks[int(number)]
            if not queries:
                continue  # a command to run, not a query
            found = evaluate(queries[ordinal == "second"])
            has_data |= bool(found)
            read.append(f"{check} {result}: {shorten(found)}")
            # Without any data, the last row would match, too.
            if matches(result, found) and (has_data or result != "otherwise"):
                return cause, int(number), read
        return None, 0, read


def shorten(found):
    return ", ".join(f"{'/'.join(v for k, v in labels.items() if k not in ('job', 'tokengauge_route', 'gen_ai_request_model'))} {value:.3g}".strip()
                     for labels, value in found[:4]) or "–"


def matches(result, found):
    """Returns whether the results of a query satisfy the cell `result` of a table of causes."""
    if result == "otherwise":
        return True
    if result == "no result":
        return not found
    cell = re.fullmatch(r"((?:`[^`]+`(?:, )?)*) ?(?:(above|below) ([0-9.]+))?", result)
    if not cell or not result:
        raise SystemExit(f"a table of causes has a result that no reader can compare: {result!r}")
    names = re.findall(r"`([^`]+)`", cell[1])
    values = [value for labels, value in found if not names or set(names) & set(labels.values())]
    if cell[2]:
        values = [value for value in values if (value > float(cell[3])) == (cell[2] == "above")]
    return bool(values)


def divided(query, by):
    """Divides the durations of a query."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    millis = lambda found: f"{found[1]}{round(int(found[2]) * units[found[3]] * 1000 / by)}ms"
    return re.sub(r"(\[|offset )(\d+)([smhd])\b", millis, query)


def narrowed(query, names, job):
    """Adds the label `job` to every selector, as the runbooks ask for."""
    word = re.compile(r"(?<![\w:\"])([a-zA-Z_:][\w:]*)(\{)?")
    def add(found):
        if found[1] not in names:
            return found[0]
        return f'{found[1]}{{job="{job}"' + (", " if found[2] else "}")
    return word.sub(add, query)


def check(play, tally, end):
    names = set(play.ask("label/__name__/values"))
    for incident in play.incidents:
        def evaluate(query):
            query = narrowed(divided(query, play.args.divide), names, incident.job)
            found = play.ask("query", query=query, time=end)["result"]
            return [(one["metric"], float(one["value"][1])) for one in found if one["value"][1] != "NaN"]
        for name, expected in incident.expected.items():
            cause, step, read = Book(name).walk(evaluate)
            tally.check(f"{name} names {expected!r} for {incident.job}", cause == expected and step <= CHECK_STEPS, f"{cause!r}; " + "; ".join(read))


def main():
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--binary", required=True)
    cli.add_argument("--divide", type=int, default=20, help="divisor of all durations")
    cli.add_argument("--only", nargs="+", choices=[incident.job for incident in INCIDENTS], help="play only these incidents")
    cli.add_argument("--verbose", action="store_true")
    args = cli.parse_args()
    clear_environment()
    tally = Tally(args.verbose)
    play = Play(args, [incident for incident in INCIDENTS if not args.only or incident.job in args.only])
    try:
        end = play.loop.run_until_complete(play.run())
        up = {one["metric"]["job"] for one in play.ask("query", query="max_over_time(up[10s]) == 1", time=end)["result"]}
        tally.check("Prometheus scrapes every proxy", up == {incident.job for incident in play.incidents}, up)
        check(play, tally, end)
    finally:
        play.stop()
    print(f"{tally.passed} passed, {tally.failed} failed")
    sys.exit(tally.failed > 0)


if __name__ == "__main__":
    main()
