"""Clients over HTTP/2 with prior knowledge, like gateways and gRPC libraries: many streams on each connection."""
import asyncio
import collections
import itertools
import json
import time

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset

from pod.client import CALLER, Clients, take

# Long streams per connection.
STREAMS = 10
GOAWAY = 7


class Unprocessed(OSError):
    """The server did not process this stream. The client may retry (RFC 9113 §8.7)."""


class Link:
    """One connection. `last` is the last stream that the server accepts after GOAWAY, or None before GOAWAY."""

    def __init__(self, reader, writer):
        self.reader, self.writer, self.rest = reader, writer, b""
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.host = writer.get_extra_info("peername")[0]
        self.open_streams, self.last, self.closed = {}, None, False
        # The error codes of received GOAWAYs, and the maximum of concurrent streams so far.
        self.goaways, self.most = [], 0
        self.h2.initiate_connection()
        self.flush()
        self.pump = asyncio.create_task(self.read())

    @classmethod
    async def open(cls, address):
        return cls(*await asyncio.open_connection(*address))

    @property
    def usable(self):
        return self.last is None and not self.closed

    def flush(self):
        if not self.closed:
            self.writer.write(self.h2.data_to_send())

    async def ask(self, answer, path, headers):
        """Sends one call on its own stream. Raises an error if there is no complete response."""
        body = json.dumps({"model": "sim-typical", "stream": True, "stream_options": {"include_usage": True},
                           "messages": [{"role": "user", "content": "How long does a pod live?"}]}).encode()
        lines = {":method": "POST", ":scheme": "http", ":authority": "pod", ":path": path, "content-type": "application/json",
                 "content-length": len(body), "traceparent": f"00-{answer.trace}-{CALLER}-01", "x-simulate-tokens": answer.wanted,
                 "x-simulate-chunk-tokens": 1, **headers}
        stream = self.h2.get_next_available_stream_id()
        ended = asyncio.get_running_loop().create_future()
        self.open_streams[stream] = (answer, collections.deque([b""], 1), ended)
        self.most = max(self.most, len(self.open_streams))
        answer.host, answer.sent = self.host, time.monotonic()
        self.h2.send_headers(stream, [(name, str(value)) for name, value in lines.items()])
        self.h2.send_data(stream, body, end_stream=True)
        self.flush()
        await ended

    async def read(self):
        problem = "the connection ended"
        try:
            while data := await self.reader.read(65536):
                self.rest += data
                self.take_frames()
                self.flush()
        except OSError as error:
            problem = repr(error)
        self.closed = True
        self.writer.close()
        self.give_up(lambda stream: True, lambda stream: ConnectionResetError(f"{problem}, in the middle of stream {stream}"))

    def take_frames(self):
        # h2 treats a GOAWAY as the end of all streams, which is wrong. Remove the frame before h2 reads it.
        while len(self.rest) >= 9 and len(self.rest) >= (end := 9 + int.from_bytes(self.rest[:3])):
            frame, self.rest = self.rest[:end], self.rest[end:]
            if frame[3] == GOAWAY:
                self.last = int.from_bytes(frame[9:13]) & 0x7FFFFFFF
                self.goaways.append(int.from_bytes(frame[13:17]))
                self.give_up(lambda stream: stream > self.last, lambda _: Unprocessed("not begun"))
                continue
            for event in self.h2.receive_data(frame):
                self.took(event)

    def took(self, event):
        if not (found := self.open_streams.get(getattr(event, "stream_id", None))):
            return
        answer, rest, ended = found
        match event:
            case ResponseReceived():
                answer.status = int(dict(event.headers)[":status"])
            case DataReceived():
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                *events, last = (rest[0] + event.data).split(b"\n\n")
                rest.append(last)
                for one in events:
                    take(answer, one)
            case StreamEnded():
                answer.terminal = True
                self.open_streams.pop(event.stream_id)
                ended.set_result(None)
            case StreamReset():
                refused = event.error_code == ErrorCodes.REFUSED_STREAM
                self.open_streams.pop(event.stream_id)
                ended.set_exception(Unprocessed("refused") if refused else ConnectionResetError(f"reset: {event.error_code!r}"))

    def give_up(self, which, problem):
        for stream in [stream for stream in self.open_streams if which(stream)]:
            _, _, ended = self.open_streams.pop(stream)
            ended.set_exception(problem(stream))

    async def close(self):
        self.closed = True
        self.pump.cancel()
        self.writer.close()


class Http2Clients(Clients):
    """The same calls as `Clients`. Long streams share connections, and each new call has its own.

    A repeating caller keeps its connection until the server sends GOAWAY."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.links, self.shared, self.opening = [], None, asyncio.Lock()
        self.places = itertools.count()

    async def link(self):
        while (found := self.find()) is None:
            if self.stopping:
                raise ConnectionRefusedError("no pod is available")
            await asyncio.sleep(0.02)
        self.links.append(await Link.open(found))
        return self.links[-1]

    async def share(self):
        async with self.opening:
            if next(self.places) % STREAMS == 0 or not self.shared.usable:
                self.shared = await self.link()
            return self.shared

    async def stream(self, wanted, kind="long"):
        answer = self.answer(wanted, kind)
        try:
            link = await (self.share() if kind == "long" else self.link())
            await self.ask(answer, link)
        except (OSError, ValueError) as error:
            answer.error = repr(error)[:200]
        answer.ended = time.monotonic()
        if kind != "long" and not answer.error:
            await link.close()
        return answer

    async def repeat_calls(self, wanted, pause):
        link = None
        while not self.stopping:
            answer = self.answer(wanted, "kept")
            try:
                link = await self.ask(answer, link)
            except (OSError, ValueError) as error:
                answer.error, link = repr(error)[:200], None
            answer.ended = time.monotonic()
            await asyncio.sleep(pause)

    async def ask(self, answer, link):
        """Sends the call on `link`, or on a new connection if `link` accepts no more streams. Returns the connection that answered."""
        while True:
            if not (link and link.usable):
                link = await self.link()
            try:
                await link.ask(answer, self.path, self.headers)
                return link
            except Unprocessed:
                answer.retries += 1
