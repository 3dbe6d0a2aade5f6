"""Clients that inspect each byte: whether the backend completed a stream, and how many tokens arrived.

The check uses them, and so does the application inside a pod (app.py). Therefore this module imports nothing from this package.
"""
import asyncio
import dataclasses
import itertools
import json
import random
import time

PATH = "/v1/chat/completions"
# The parent span of each call.
CALLER = "00000000000000aa"
# Limits only the waiting.
WAIT_LIMIT = 60


@dataclasses.dataclass
class Answer:
    """One call as the client observed it. Times are of the monotonic clock, in seconds."""

    trace: str
    wanted: int
    kind: str
    began: float
    sent: float = 0.0
    ended: float = 0.0
    status: int = 0
    # Text deltas, one token each, and the token count that the backend reported.
    tokens: int = 0
    reported_tokens: int | None = None
    # Whether `data: [DONE]` and the last chunk of the body arrived.
    done: bool = False
    terminal: bool = False
    error: str = ""
    # The host that served the call.
    host: str = ""
    # Retries after a kept connection closed before the first byte of the response.
    retries: int = 0

    @property
    def is_complete(self):
        return self.status == 200 and self.done and self.terminal and self.tokens == self.reported_tokens == self.wanted


class Connection:
    """A connection to one address. It stays open as long as both sides keep it open."""

    def __init__(self, reader, writer):
        self.reader, self.writer, self.used, self.last = reader, writer, False, False
        self.host = writer.get_extra_info("peername")[0]

    @property
    def usable(self):
        """Whether the connection can be reused. Like the providers' clients, it is not reused after an end of stream was read."""
        return not (self.last or self.reader.at_eof() or self.writer.transport.is_closing())

    async def ask(self, answer, path, headers, keep):
        """Sends one call and reads the complete response. Raises the socket's errors."""
        body = json.dumps({"model": "sim-typical", "stream": True, "stream_options": {"include_usage": True},
                           "messages": [{"role": "user", "content": "How long does a pod live?"}]}).encode()
        lines = {"host": "pod", "content-type": "application/json", "content-length": len(body), "traceparent": f"00-{answer.trace}-{CALLER}-01",
                 "x-simulate-tokens": answer.wanted, "x-simulate-chunk-tokens": 1, "connection": "keep-alive" if keep else "close", **headers}
        self.used, answer.host, answer.sent = True, self.host, time.monotonic()
        self.writer.write(f"POST {path} HTTP/1.1\r\n".encode() + b"".join(f"{name}: {value}\r\n".encode() for name, value in lines.items()) + b"\r\n" + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        answer.status = int(head.split(None, 2)[1])
        self.last = "\r\nconnection: close" in head
        if "\r\ntransfer-encoding: chunked" not in head:
            length = int(head.split("\r\ncontent-length:")[1].split("\r\n")[0])
            await self.reader.readexactly(length)
            return
        rest = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            rest += (await self.reader.readexactly(size + 2))[:-2]
            *events, rest = rest.split(b"\n\n")
            for event in events:
                take(answer, event)
        answer.terminal = await self.reader.readexactly(2) == b"\r\n"

    def close(self):
        self.writer.close()


def take(answer, event):
    if event == b"data: [DONE]":
        answer.done = True
    elif event.startswith(b"data: "):
        data = json.loads(event[6:])
        answer.tokens += sum(bool(choice["delta"].get("content")) for choice in data["choices"])
        if data.get("usage"):
            answer.reported_tokens = data["usage"]["completion_tokens"]


class Clients:
    """Sends calls, each with its own trace id. `find()` returns `(host, port)` for a new connection.

    If `find()` returns None, no pod is available, and the call waits."""

    def __init__(self, find, path=PATH, gap=0.05, answers=None):
        self.find, self.path, self.gap, self.answers, self.numbers = find, path, gap, [] if answers is None else answers, itertools.count(1)
        self.seed, self.stopping = random.getrandbits(64), False

    def answer(self, wanted, kind):
        answer = Answer(f"{self.seed:016x}{next(self.numbers):016x}", wanted, kind, time.monotonic())
        self.answers.append(answer)
        return answer

    @property
    def headers(self):
        return {"x-simulate-gap-us": int(self.gap * 1e6), "x-simulate-ttft-us": 50000}

    async def connect(self):
        while (found := self.find()) is None:
            if self.stopping:
                raise ConnectionRefusedError("no pod is available")
            await asyncio.sleep(0.02)
        return Connection(*await asyncio.open_connection(*found))

    async def stream(self, wanted, kind="long"):
        """Sends one call on a new connection."""
        answer, connection = self.answer(wanted, kind), None
        try:
            connection = await self.connect()
            await connection.ask(answer, self.path, self.headers, keep=False)
        except (OSError, EOFError, ValueError) as error:
            answer.error = repr(error)[:200]
        finally:
            answer.ended = time.monotonic()
            if connection:
                connection.close()
        return answer

    async def repeat_calls(self, wanted, pause):
        """Sends short calls one after the other. Reuses the connection while it is usable."""
        connection = None
        while not self.stopping:
            answer = self.answer(wanted, "kept")
            try:
                connection = await self.call_on_kept(answer, connection)
            except (OSError, EOFError, ValueError) as error:
                answer.error, connection = repr(error)[:200], None
            answer.ended = time.monotonic()
            await asyncio.sleep(pause)
        if connection:
            connection.close()

    async def call_on_kept(self, answer, connection):
        while True:
            if not (connection and connection.usable):
                if connection:
                    connection.close()
                connection = await self.connect()
            reused = connection.used
            try:
                await connection.ask(answer, self.path, self.headers, keep=True)
                return connection
            except (OSError, EOFError):
                connection.close()
                # RFC 9112 §9.3.1: a kept connection may close at any time. Without a byte of the response the client retries.
                if not reused or answer.status:
                    raise
                connection, answer.retries = None, answer.retries + 1

    async def connect_repeatedly(self, wanted, every):
        """Sends a short call on a new connection every `every` seconds."""
        tasks = []
        while not self.stopping:
            tasks.append(asyncio.create_task(self.stream(wanted, "new")))
            await asyncio.sleep(every)
        await asyncio.gather(*tasks)
