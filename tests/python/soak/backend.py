"""A backend that answers in every format, and breaks its responses as a request asks."""
import asyncio
import fcntl
import random
import socket
import struct
import termios

from .formats import BY_NAME

# What a request can ask for in `x-fault`. The first group ends before the response headers, so the client gets 502 or 504.
NO_RESPONSE = ("reset_before", "close_before", "garbage", "hang")
TRUNCATED = ("reset_middle", "close_middle", "bad_chunk", "short_length")
STATUS = ("424", "429", "498", "500", "503")
WHOLE = ("close_after", "long_length", "early", "many_headers")
MANY_HEADERS = b"".join(b"x-soak-%d: value\r\n" % number for number in range(150))
FAULTS = NO_RESPONSE + TRUNCATED + STATUS + WHOLE
REFUSAL = b'{"error":{"message":"no","type":"server_error"}}'


async def reset(writer):
    """Closes the connection with RST when the peer's kernel has everything that was written. A reset discards the rest."""
    connection = writer.get_extra_info("socket")
    for _ in range(1000):
        unsent = writer.transport.get_write_buffer_size()
        unacknowledged = struct.unpack("i", fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, b"\0" * 4))[0]
        if not unsent and not unacknowledged:
            break
        await asyncio.sleep(0.001)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def chunk(piece):
    return b"%x\r\n%s\r\n" % (len(piece), piece)


class Backend:
    """`unread`: requests whose connection ended before the backend had read them."""

    def __init__(self):
        self.server, self.address, self.answered = None, None, 0

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=512)
        self.address = self.server.sockets[0].getsockname()

    async def serve(self, reader, writer):
        try:
            while await self.answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, reader, writer):
        """Answers one request. Returns whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        fault, seed = headers.get("x-fault", ""), int(headers["x-seed"])
        if fault != "early":
            await reader.readexactly(int(headers.get("content-length", 0)))
        if fault == "hang":
            await reader.read()
            return False
        if fault == "reset_before":
            await reset(writer)
            return False
        if fault == "close_before":
            return False
        if fault == "garbage":
            writer.write(b"\x00\x01 this is not HTTP\r\n\r\n")
            return False
        self.answered += 1
        if fault in STATUS:
            writer.write(b"HTTP/1.1 %s X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (fault.encode(), len(REFUSAL), REFUSAL))
            await writer.drain()
            return True
        response, _ = BY_NAME[headers["x-format"]].response(headers["x-model"], seed)
        await self.write(writer, response, fault, random.Random(seed))
        if fault == "early":
            await reader.readexactly(int(headers.get("content-length", 0)))
        return fault not in ("close_after", *TRUNCATED)

    async def write(self, writer, response, fault, chance):
        body = b"".join(response.pieces)
        framing = b"transfer-encoding: chunked"
        if fault in ("long_length", "short_length"):
            framing = b"content-length: %d" % (len(body) + (10 if fault == "short_length" else 0))
        extra = MANY_HEADERS if fault == "many_headers" else b""
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\n%s%s\r\n\r\n" % (response.media.encode(), extra, framing))
        half = len(response.pieces) // 2
        pieces = list(response.pieces)
        if fault == "long_length":
            # Arrives together with the end of the response, so that no client can take it for the next response.
            pieces[-1] += b"surplus"
        pause = chance.choice((0, 0, 0.001, 0.01))
        for number, piece in enumerate(pieces):
            if fault in ("reset_middle", "close_middle", "bad_chunk") and number == half:
                if fault == "bad_chunk":
                    writer.write(b"zz\r\n")
                await writer.drain()
                if fault == "reset_middle":
                    await reset(writer)
                return
            writer.write(piece if b"length" in framing else chunk(piece))
            await writer.drain()
            if pause:
                await asyncio.sleep(pause * chance.random())
        if b"length" not in framing:
            writer.write(b"0\r\n\r\n")
        if fault == "close_after":
            # At once: if the event loop ran first, the next request could be on its way, and no proxy could tell whether
            # it was read.
            writer.write_eof()
        await writer.drain()
