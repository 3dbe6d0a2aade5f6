"""A ClickHouse engine inside this process (PyPI chdb), and an HTTP front that answers like a ClickHouse server.

The front implements what clients of this repository use: queries in the body or in `query`, and inserts in the format Native.
"""

import base64
import glob
import http.server
import os
import ssl
import struct
import sys
import tempfile
import threading
import urllib.parse

from chdb import session

FOLDER = os.path.join(os.path.dirname(__file__), "../../deploy/clickhouse")
ROLLUPS = ["requests_hourly", "requests_daily"]
USER, PASSWORD = "reporter", "s3cret-of-the-test"


def statements(path):
    """The statements of an SQL file, without comments. No statement has a semicolon in a text."""
    with open(path) as file:
        text = "\n".join(line for line in file.read().split("\n") if not line.strip().startswith("--"))
    return [statement.strip() for statement in text.split(";") if statement.strip()]


def files():
    return sorted(glob.glob(os.path.join(FOLDER, "[0-9]*.sql")))


class Engine:
    """An engine with its data in a temporary folder. It answers one query at a time."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.session = session.Session(os.path.join(self.folder.name, "data"))
        self.lock = threading.Lock()

    def query(self, sql, form="TSVRaw"):
        with self.lock:
            return self.session.query(sql, form).bytes() or b""

    def rows(self, sql):
        """The result as lists of texts."""
        return [line.split("\t") for line in self.query(sql).decode().splitlines()]

    def apply(self, paths):
        for path in paths:
            for statement in statements(path):
                self.query(statement)

    def truncate(self):
        for table in ("requests", *ROLLUPS):
            self.query(f"TRUNCATE TABLE tokengauge.{table}")

    def insert_native(self, insert, body):
        """Inserts a body in the format Native: the columns in the order of the statement."""
        with tempfile.NamedTemporaryFile(dir=self.folder.name, suffix=".native") as file:
            file.write(body)
            file.flush()
            columns = insert[insert.index("(") + 1 : insert.rindex(")")]
            head = insert[: insert.rindex(")") + 1]
            self.query(f"{head} SELECT {columns} FROM file('{file.name}', 'Native')")

    def insert_events(self, bodies, service="tokengauge"):
        """Inserts lines of a request log as the Collector's exporter does: the JSON text of the body in the column Body."""
        with tempfile.NamedTemporaryFile("w", dir=self.folder.name, suffix=".txt") as file:
            file.writelines(bodies)
            file.flush()
            self.query(
                f"INSERT INTO tokengauge.otel_logs (Timestamp, ServiceName, Body, EventName)"
                f" SELECT now64(9), '{service}', line, 'tokengauge.request' FROM file('{file.name}', 'LineAsString')"
            )

    def serve(self, port=0, tls=None):
        """Serves over HTTP, or over HTTPS with the context `tls`."""
        server = Server(("127.0.0.1", port), Handler)
        server.engine = self
        server.requests = []
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        # A client that does not trust the certificate ends the connection.
        if not isinstance(sys.exc_info()[1], ssl.SSLError):
            super().handle_error(request, client_address)

    @property
    def address(self):
        return f"127.0.0.1:{self.server_address[1]}"


def hello(version):
    """The answer to a client's first query, in the format Native of the revision that the client asks for. Its revision 0 makes
    the client read later answers in the oldest form, which chdb writes."""

    def text(value):
        return bytes([len(value)]) + value.encode()

    columns = [("String", text("chdb")), ("String", text(version)), ("UInt32", struct.pack("<I", 0)), ("String", text("UTC"))]
    out = b"\x01\x00\x02\xff\xff\xff\xff\x00" + bytes([len(columns), 1])
    for place, (kind, value) in enumerate(columns):
        out += text(f"c{place}") + text(kind) + b"\x00" + value
    return out


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def user(self):
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            return tuple(base64.b64decode(value).decode().split(":", 1))
        return self.headers.get("X-ClickHouse-User"), self.headers.get("X-ClickHouse-Key")

    def answer(self, status, body, kind="text/plain"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        parameters = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        body = self.body()
        self.server.requests.append((parameters, len(body)))
        if self.user() != (USER, PASSWORD):
            return self.answer(403, b"Code: 516. DB::Exception: reporter: Authentication failed")
        sql = parameters.get("query")
        engine = self.server.engine
        try:
            if sql is not None:
                engine.insert_native(sql, body)
                return self.answer(200, b"")
            sql = body.decode()
            if "displayName()" in sql:
                (version,) = engine.rows("SELECT version()")[0]
                return self.answer(200, hello(version), "application/octet-stream")
            settings = {name: value for name, value in parameters.items() if name.startswith("max_")}
            settings = ", ".join(f"{name} = {int(value)}" for name, value in settings.items())
            if settings:
                sql += f" SETTINGS {settings}"
            return self.answer(200, engine.query(sql, parameters.get("default_format", "TSVRaw")))
        except Exception as error:
            return self.answer(500, str(error).encode())
