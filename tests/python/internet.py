"""A replacement for the internet: an HTTP proxy that terminates TLS itself and answers for every host from a replay server's recordings.

A path that the named host does not have is a 404. A second port accepts TLS directly, for clients without proxy support. There the server
name in the TLS handshake selects the host."""
import dataclasses
import http.client
import http.server
import ssl
import subprocess
import threading

# Hop-by-hop headers.
OF_ONE_HOP = ("connection", "keep-alive", "transfer-encoding", "te", "upgrade", "content-length", "host")


@dataclasses.dataclass(frozen=True)
class Page:
    """The response of a host to a path: a recording by name, split at its events."""

    host: str
    path: str
    recording: str | None
    # A JSON response instead of a recording.
    text: str = ""


@dataclasses.dataclass(frozen=True)
class ReceivedRequest:
    """A received request. `path` includes the query."""

    method: str
    host: str
    path: str
    body: bytes


def make_certificates(folder, hosts):
    """Returns paths to a new certificate authority, to a certificate for `hosts` that it signed, and to the certificate's key."""
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    (folder / "names.txt").write_text("subjectAltName=" + ",".join(f"DNS:{host}" for host in hosts))
    openssl("req", "-x509", *new_key, "-days", "1", "-keyout", "authority.key", "-out", "authority.pem", "-subj", "/CN=nobody")
    openssl("req", *new_key, "-keyout", "hosts.key", "-out", "hosts.csr", "-subj", "/CN=hosts")
    openssl("x509", "-req", "-in", "hosts.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial",
            "-days", "1", "-extfile", "names.txt", "-out", "hosts.pem")
    return folder / "authority.pem", folder / "hosts.pem", folder / "hosts.key"


class Internet:
    """Serves `pages` until it is stopped. `missed` holds the requests without a page."""

    def __init__(self, folder, pages, replay, pace=None):
        """`pace(received, answer)` yields the pieces of a recording when they are due. None: the pieces are written as they arrive."""
        self.pages = {(page.host, page.path): page for page in pages}
        self.replay, self.pace, self.missed = replay, pace, []
        self.authority, certificate, key = make_certificates(folder, sorted({page.host for page in pages}))
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.context.sni_callback = lambda connection, name, _: setattr(connection, "wanted", name)
        self.servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Host", (kind,), {"internet": self}))
                        for kind in (Host, HostOverTls)]
        self.port, self.tls_port = (server.server_address[1] for server in self.servers)
        for server in self.servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop(self):
        for server in self.servers:
            server.shutdown()


class Host(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # The target host of the tunnel, after CONNECT.
    name, internet = None, None

    def do_CONNECT(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.flush()
        self.name = self.path.rpartition(":")[0]
        self.connection = self.internet.context.wrap_socket(self.connection, server_side=True)
        self.setup_streams()

    def setup_streams(self):
        self.rfile = self.connection.makefile("rb", -1)
        self.wfile = self.connection.makefile("wb", 0)

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        page = self.internet.pages.get((self.headers.get("host"), self.path.partition("?")[0]))
        # The TLS server name, if any, must equal the requested host.
        if page is None or self.name not in (None, page.host):
            self.internet.missed.append(f"{self.command} {self.headers.get('host')}{self.path} over {self.name}")
            self.respond(404, b"")
            return
        if page.text:
            self.respond(200, page.text.encode())
            return
        kept = {name: value for name, value in self.headers.items() if name.lower() not in OF_ONE_HOP}
        replay = http.client.HTTPConnection("127.0.0.1", self.internet.replay)
        replay.request(self.command, self.path, body, {**kept, "x-case": page.recording, "x-split": "event"})
        answer = replay.getresponse()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in OF_ONE_HOP:
                self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        received = ReceivedRequest(self.command, page.host, self.path, body)
        for piece in self.internet.pace(received, answer.read()) if self.internet.pace else iter(answer.read1, b""):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")
        replay.close()

    def respond(self, status, text):
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


class HostOverTls(Host):
    """A connection from a client that connects directly to the host over TLS."""

    def setup(self):
        self.request = self.internet.context.wrap_socket(self.request, server_side=True)
        self.name = getattr(self.request, "wanted", None)
        super().setup()
