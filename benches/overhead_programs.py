"""The programs that the overhead benchmark starts: backend, OTLP receiver, and one process of each proxy."""
import json
import os
import pathlib
import shutil
import socket
import string
import subprocess
import tempfile
import time
import urllib.request

CONFIGURATIONS = pathlib.Path(__file__).parent / "peers"
# The configuration file and the arguments of each peer. All have two worker threads or processes.
PEERS = {
    "nginx": ("nginx.conf", ["-p", "$folder", "-c", "$config", "-g", "daemon off;"]),
    "haproxy": ("haproxy.cfg", ["-db", "-f", "$config"]),
    "envoy": ("envoy.yaml", ["--concurrency", "2", "--disable-hot-restart", "-l", "error", "-c", "$config"]),
}
# Envoy with its own AI filter, and with a copy of the traffic to `tokengauge ext-proc`. Measured only if they are named.
ENVOY_WITH = ("envoy-ai", "envoy-ext-proc")
# What client and upstream speak. `without` lists the peers that cannot speak it.
SETUPS = {
    "http1": {"http2_clients": False, "tls": False, "http2": False, "without": ()},
    "http2-clients": {"http2_clients": True, "tls": False, "http2": False, "without": ENVOY_WITH},
    "tls": {"http2_clients": False, "tls": True, "http2": False, "without": ENVOY_WITH},
    "tls-http2": {"http2_clients": False, "tls": True, "http2": True, "without": ("nginx", *ENVOY_WITH)},
}
ENVOY_TLS = """\
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          sni: localhost
          common_tls_context:
            validation_context: {{ trusted_ca: {{ filename: {certificate} }} }}
            alpn_protocols: [{protocol}]
"""
ENVOY_HTTP2 = """\
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
"""
# As in deploy/envoy/envoy.yaml.
EXT_PROC = """\
                  - name: envoy.filters.http.ext_proc
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
                      grpc_service: { envoy_grpc: { cluster_name: tokengauge } }
                      observability_mode: true
                      failure_mode_allow: true
                      deferred_close_timeout: 2s
                      processing_mode:
                        request_header_mode: SEND
                        request_body_mode: STREAMED
                        request_trailer_mode: SEND
                        response_header_mode: SEND
                        response_body_mode: STREAMED
                        response_trailer_mode: SEND
                      request_attributes: [xds.route_name, xds.cluster_name, source.address, request.protocol]
                      response_attributes: [response.flags, response.code_details]
"""
ACCESS_LOG = """\
                access_log:
                  - name: envoy.access_loggers.http_grpc
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig
                      common_config:
                        log_name: tokengauge
                        transport_api_version: V3
                        grpc_service: { envoy_grpc: { cluster_name: tokengauge } }
                        buffer_flush_interval: 0.5s
"""
EXT_PROC_CLUSTER = """\
    - name: tokengauge
      type: STATIC
      connect_timeout: 10s
      circuit_breakers: { thresholds: [{ max_connections: 16000, max_pending_requests: 16000, max_requests: 16000 }] }
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
      load_assignment:
        cluster_name: tokengauge
        endpoints:
          - lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: $PORT } } } }]
"""
AI_FILTER = """\
                  - name: envoy.filters.http.ai_protocol_manager
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManager
                      response_handling: { token_usage: { include_unconfigured_routes: true } }
"""


def installed_peers():
    """Returns the peers that are measured unless others are named."""
    return [name for name in PEERS if shutil.which(name)]


def is_installed(name):
    return bool(shutil.which("envoy" if name in ENVOY_WITH else name))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def text(port, path):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10).read().decode()


class Programs:
    """The running programs of one setup. `proxies` has the port and the process of each proxy by its name, in the order of the table."""

    def __init__(self, setup, args):
        self.args, self.setup, self.started, self.proxies, self.beside = args, SETUPS[setup], [], {}, {}
        self.directory = tempfile.TemporaryDirectory(prefix="overhead-")
        self.folder = pathlib.Path(self.directory.name)
        self.certificate = self.folder / "certificate.pem"
        self.plain, self.tls, self.tls_http2, self.sink, self.admin = (free_port() for _ in range(5))
        self.upstream = (self.tls_http2 if self.setup["http2"] else self.tls) if self.setup["tls"] else self.plain
        self.scheme = "https" if self.setup["tls"] else "http"

    def __enter__(self):
        lab, listen = self.args.lab, "127.0.0.1:"
        try:
            self.start("backend", [lab, "backend", "--listen", f"{listen}{self.plain}", "--tls", f"{listen}{self.tls}", "--tls-http2",
                                   f"{listen}{self.tls_http2}", "--certificate", self.certificate], [self.plain, self.tls, self.tls_http2])
            self.start("sink", [lab, "sink", "--listen", f"{listen}{self.sink}"], [self.sink])
            port = free_port()
            clients = ["--http2-clients"] if self.setup["http2_clients"] else []
            self.proxy("relay", port, [lab, "relay", "--listen", f"{listen}{port}", *clients, *self.target(self.upstream, self.setup["http2"], self.scheme)])
            for name in self.args.peers:
                if name not in self.setup["without"]:
                    self.peer(name)
            if self.args.before:
                self.tokengauge("before", self.args.before, free_port())
            self.tokengauge("tokengauge", self.args.binary, self.admin)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.started:
            process.terminate()
        for process in self.started:
            process.wait()
        self.directory.cleanup()

    def target(self, port, http2, scheme):
        """Returns the arguments of the program `overhead` that name a server."""
        arguments = ["--url", f"{scheme}://127.0.0.1:{port}", *(["--http2"] if http2 else [])]
        return arguments + (["--certificate", self.certificate] if scheme == "https" else [])

    def address(self, name):
        """Returns the arguments of a client of the proxy `name`, or of the backend for `direct`."""
        if name == "direct":
            return self.target(self.upstream, self.setup["http2"], self.scheme)
        port, process = self.proxies[name]
        beside = ["--beside", str(self.beside[name].pid)] if name in self.beside else []
        return [*self.target(port, self.setup["http2_clients"], "http"), "--process", str(process.pid), *beside]

    def tokengauge(self, name, binary, admin):
        port, config = free_port(), self.folder / f"{name}.yaml"
        upstream = {"url": f"{self.scheme}://localhost:{self.upstream}" if self.setup["tls"] else f"http://127.0.0.1:{self.upstream}"}
        if self.setup["tls"]:
            upstream |= {"ca_file": str(self.certificate)}
        if self.setup["http2"]:
            upstream |= {"protocol": "http2"}
        # JSON is YAML.
        config.write_text(json.dumps({"version": 1, "upstreams": {"model": upstream}}))
        listen = ["--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"]
        self.proxy(name, port, [binary, "run", "--config", config, *listen], self.export(), [admin])

    def export(self):
        """Returns the environment in which tokengauge exports metrics and spans."""
        return dict(os.environ, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{self.sink}", OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
                    OTEL_TRACES_SAMPLER=self.args.sampler)

    def peer(self, name):
        program = "envoy" if name in ENVOY_WITH else name
        template, arguments = PEERS[program]
        port, config = free_port(), self.folder / f"{name}-{template}"
        http2, tls, upstream_http2 = self.setup["http2_clients"], self.setup["tls"], self.setup["http2"]
        protocol = "h2" if upstream_http2 else "http/1.1"
        names = {"folder": self.folder, "config": config, "listen": port, "upstream": self.upstream, "scheme": self.scheme, "certificate": self.certificate}
        names["http2"] = {"nginx": " http2", "haproxy": " proto h2", "envoy": ""}[program] if http2 else ""
        names["tls"] = ""
        if tls and name == "haproxy":
            names["tls"] = f" ssl verify required verifyhost localhost ca-file {self.certificate} alpn {protocol}"
        if tls and name == "envoy":
            names["tls"] = ENVOY_TLS.format(certificate=self.certificate, protocol=protocol) + (ENVOY_HTTP2 if upstream_http2 else "")
        names |= {"request_id": "false", "access_log": "", "filters": AI_FILTER if name == "envoy-ai" else "", "clusters": ""}
        if name == "envoy-ext-proc":
            names |= {"request_id": "true", "access_log": ACCESS_LOG, "filters": EXT_PROC, "clusters": self.ext_proc(name)}
        config.write_text(string.Template((CONFIGURATIONS / template).read_text()).safe_substitute(names))
        self.proxy(name, port, [program, *(string.Template(it).substitute(names) for it in arguments)])

    def ext_proc(self, name):
        """Starts tokengauge beside Envoy. Returns the configuration of Envoy's cluster."""
        port, admin = free_port(), free_port()
        command = [self.args.binary, "ext-proc", "--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"]
        self.beside[name] = self.start(f"{name}-tokengauge", command, [port, admin], self.export())
        return EXT_PROC_CLUSTER.replace("$PORT", str(port))

    def proxy(self, name, port, command, env=None, others=()):
        self.proxies[name] = (port, self.start(name, command, [port, *others], env))

    def start(self, name, command, ports, env=None):
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(list(map(str, command)), env=env, cwd=self.folder, stdout=output, stderr=output)
        self.started.append(process)
        for port in ports:
            self.wait(process, name, port, log)
        return process

    def wait(self, process, name, port, log):
        for _ in range(400):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if process.poll() is not None:
                break
            time.sleep(0.025)
        raise SystemExit(f"{name} does not listen on {port}:\n{log.read_text(errors='replace')[-2000:]}")

    def measure(self, command, arguments):
        """Runs a command of the program `overhead`, and returns its report."""
        run = subprocess.run([str(self.args.lab), command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if run.returncode:
            raise SystemExit(f"overhead {command} {' '.join(map(str, arguments))}: {run.stderr.decode(errors='replace')[-2000:]}")
        return json.loads(run.stdout)
