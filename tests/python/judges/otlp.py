"""An OTLP receiver over HTTP that keeps everything it gets."""
import http.server
import threading

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest, "/v1/logs": ExportLogsServiceRequest}


class Receiver:
    def __init__(self):
        self.spans, self.metrics, self.logs = [], {}, []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.take(REQUESTS[self.path].FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request):
        for resource in getattr(request, "resource_spans", ()):
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        for resource in getattr(request, "resource_logs", ()):
            self.logs += [log for scope in resource.scope_logs for log in scope.log_records]
        for resource in getattr(request, "resource_metrics", ()):
            # Each export has all series since the start, so the newest export of a metric is enough.
            self.metrics |= {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
