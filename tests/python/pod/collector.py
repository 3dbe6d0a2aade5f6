"""A collector on the node that receives OTLP over HTTP/protobuf, in a healthy or faulty state."""
import collections
import enum
import gzip
import http.server
import pathlib
import socket
import threading
import time

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

import rig


class State(enum.Enum):
    TAKES = "accepts everything"
    HANGS = "accepts and never answers"
    GONE = "does not listen"


class Collector:
    """Keeps received exports undecoded until they are read, so that receiving is cheap. `state` may change at any time, except from GONE."""

    def __init__(self, host, state):
        self.state, self.bodies, self.lock = state, [], threading.Lock()
        if state is State.GONE:
            # A bound port that does not listen. No other process can take it.
            self.socket = socket.socket()
            self.socket.bind((host, 0))
            self.address = self.socket.getsockname()
            return
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                while collector.state is State.HANGS:
                    time.sleep(0.1)
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                with collector.lock:
                    collector.bodies.append((time.monotonic(), self.path, body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self.server.daemon_threads = True
        self.address = self.server.server_address
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def taken(self):
        """Returns the received traces and metrics as OTLP JSON."""
        with self.lock:
            bodies = list(self.bodies)
        for _, path, body in bodies:
            kind = traces.ExportTraceServiceRequest if path.endswith("/traces") else metrics.ExportMetricsServiceRequest
            yield MessageToDict(kind.FromString(body))

    def telemetry(self):
        """Returns spans by trace, and the latest metrics of each process by its `service.instance.id`."""
        spans, processes = collections.defaultdict(list), collections.defaultdict(lambda: rig.Telemetry(pathlib.Path("/nonexistent")))
        for body in self.taken():
            for kind in ("resourceSpans", "resourceMetrics"):
                for resource in body.get(kind, []):
                    instance = rig.attributes(resource["resource"]).get("service.instance.id")
                    processes[instance].take({kind: [resource]})
        for received in processes.values():
            for trace, found in received.spans.items():
                spans[trace] += found
        return spans, processes

    def resources(self):
        """Returns the resource attributes of each process that sent metrics, by its `service.instance.id`."""
        found = [rig.attributes(resource["resource"]) for body in self.taken() for resource in body.get("resourceMetrics", [])]
        return {one.get("service.instance.id"): one for one in found}

    def close(self):
        if self.state is State.GONE:
            self.socket.close()
        else:
            self.server.shutdown()
            self.server.server_close()
