"""The example exchanges in tests/fixtures/exchanges, a backend that answers with them, and a client that sends them."""
import http.server
import socket
import struct
import threading
import zlib

STRING, AROUND = 7, 16


class Exchange:
    """A file METHOD PATH, headers and body, a line `~~~~`, and the response. tests/it/exchanges/fixture.rs describes the format."""

    def __init__(self, path):
        self.name = f"{path.parent.name}/{path.stem}"
        request, response = path.read_bytes().split(b"\n~~~~\n", 1)
        head, _, self.body = request.partition(b"\n\n")
        (self.method, self.target), self.headers = line_and_headers(head)
        head, _, answer = response.partition(b"\n\n")
        (self.status,), self.answer_headers = line_and_headers(head)
        self.form = self.answer_headers.pop("fixture", None)
        encode = {None: lambda raw: raw, "crlf": lambda raw: raw.replace(b"\n", b"\r\n"), "eventstream": event_stream}.get(self.form)
        self.answer = encode(answer) if encode else None

    def is_http(self):
        """Returns whether the response is HTTP. A WebSocket needs a client that takes part."""
        return self.answer is not None

    def send(self, port, headers):
        """Sends the request to the proxy, and returns the whole response."""
        fields = {"host": "127.0.0.1", **self.headers, **headers, "content-length": str(len(self.body)), "connection": "close"}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(f"{self.method} {self.target} HTTP/1.1\r\n{head}\r\n".encode() + self.body)
            return b"".join(iter(lambda: connection.recv(65536), b""))


def line_and_headers(head):
    first, *lines = head.decode().split("\n")
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return first.split(" "), {name.lower(): value.strip() for name, value in pairs}


def event_stream(lines):
    """Encodes AWS event-stream messages: a line `event-type {json}` each, with a leading `!` for an exception."""
    return b"".join(message(*line.split(" ", 1)) for line in lines.decode().splitlines() if " " in line)


def message(name, payload):
    is_exception = name.startswith("!")
    kind, header = ("exception", ":exception-type") if is_exception else ("event", ":event-type")
    fields = {header: name.removeprefix("!"), ":content-type": "application/json", ":message-type": kind}
    headers = b"".join(
        bytes([len(key)]) + key.encode() + bytes([STRING]) + struct.pack(">H", len(value)) + value.encode() for key, value in fields.items())
    prelude = struct.pack(">II", len(headers) + len(payload.encode()) + AROUND, len(headers))
    body = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload.encode()
    return body + struct.pack(">I", zlib.crc32(body))


class Backend:
    """Answers each request with the exchange that the header x-exchange names."""

    def __init__(self, exchanges):
        known = {exchange.name: exchange for exchange in exchanges}

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                self.rfile.read(int(self.headers.get("content-length") or 0))
                exchange = known[self.headers["x-exchange"]]
                self.send_response_only(int(exchange.status))
                for name, value in {**exchange.answer_headers, "content-length": len(exchange.answer)}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(exchange.answer)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
