"""An OTLP/HTTP collector whose state changes every few seconds."""
import asyncio
import itertools

STATES = ("accepts", "unavailable", "hangs", "rejects", "gone", "accepts", "closes")


class Collector:
    """`exports` counts the accepted requests, and `seen` the states in which a request arrived."""

    def __init__(self):
        self.state, self.exports, self.seen, self.address, self.server = "accepts", 0, set(), None, None

    async def start(self, port=0):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", port)
        self.address = self.server.sockets[0].getsockname()

    async def flap(self, seconds):
        for state in itertools.cycle(STATES):
            if state == "gone":
                self.server.close()
            elif self.state == "gone":
                await self.start(self.address[1])
            self.state = state
            await asyncio.sleep(seconds)

    async def serve(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
                state = self.state
                self.seen.add(state)
                if state == "hangs":
                    await asyncio.sleep(3)
                    return
                if state in ("closes", "gone"):
                    return
                status = {"unavailable": 503, "rejects": 400}.get(state, 200)
                self.exports += status == 200
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n".encode())
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
