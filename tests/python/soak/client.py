"""Clients that compare every byte of a response with what the backend wrote."""
import asyncio
import dataclasses
import random

from .backend import FAULTS, NO_RESPONSE, REFUSAL, STATUS, TRUNCATED

LIMIT = 60


@dataclasses.dataclass
class Totals:
    """What all clients sent and received."""

    # Requests that got a response, and requests without a response: the proxy may not have read them.
    sent: int = 0
    unknown: int = 0
    whole: int = 0
    broken: int = 0
    aborted: int = 0
    # Output tokens of the complete responses, by model.
    tokens: dict = dataclasses.field(default_factory=dict)
    problems: list = dataclasses.field(default_factory=list)

    def problem(self, text):
        if len(self.problems) < 50:
            self.problems.append(text)


class Client:
    """Sends one request after another on a connection that it keeps. One of seven requests asks for a fault, and one of nine is aborted."""

    def __init__(self, address, formats, totals, seed):
        self.address, self.formats, self.totals = address, formats, totals
        self.chance, self.connection = random.Random(seed), None

    async def run(self, until):
        while not until():
            kind, fault = self.chance.choice(self.formats), ""
            if self.chance.random() < 1 / 7:
                fault = self.chance.choice(FAULTS)
            aborts = not fault and kind.media != "application/json" and self.chance.random() < 1 / 9
            try:
                await asyncio.wait_for(self.request(kind, fault, aborts), LIMIT)
            except TimeoutError:
                self.lost(f"{kind.name} {fault}: no end after {LIMIT} s")
            except (OSError, asyncio.IncompleteReadError, ValueError) as error:
                self.lost(f"{kind.name} {fault}: {error!r}")
            await asyncio.sleep(self.chance.random() * 0.05)
        self.close()

    def lost(self, problem):
        self.totals.unknown += 1
        self.totals.problem(problem)
        self.close()

    def close(self):
        if self.connection:
            self.connection[1].close()
            self.connection = None

    async def request(self, kind, fault, aborts):
        seed = self.chance.randrange(1 << 30)
        # Only complete responses are counted for the model itself, so that their sum is known.
        model = kind.model if not fault and not aborts else f"{kind.model}-broken"
        response, tokens = kind.response(model, seed)
        expected, body = b"".join(response.pieces), kind.body(model)
        if self.connection is None or self.connection[0].at_eof():
            self.close()
            self.connection = await asyncio.open_connection(*self.address, limit=1 << 20)
        reader, writer = self.connection
        lines = [f"POST {kind.path.replace('{model}', model)} HTTP/1.1", "host: soak", "content-type: application/json", f"content-length: {len(body)}",
                 f"x-format: {kind.name}", f"x-model: {model}", f"x-seed: {seed}"] + ([f"x-fault: {fault}"] if fault else [])
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        status, received, is_complete = await self.read(reader, len(expected) // 2 if aborts else None)
        self.totals.sent += 1
        name = f"{kind.name} {fault or ('aborted' if aborts else '')}"
        if aborts:
            self.close()
            self.totals.aborted += 1
            self.expect(status == 200 and expected.startswith(received), f"{name}: bytes differ")
        elif fault in NO_RESPONSE:
            self.totals.broken += 1
            self.expect(status in (502, 504), f"{name}: status {status}")
        elif fault in STATUS:
            self.totals.broken += 1
            self.expect(status == int(fault) and received == REFUSAL, f"{name}: status {status}")
        elif fault in TRUNCATED:
            self.totals.broken += 1
            # Everything that the backend wrote arrives, and the end is not a clean one.
            pieces = response.pieces if fault == "short_length" else response.pieces[: len(response.pieces) // 2]
            self.expect(received == b"".join(pieces), f"{name}: {len(received)} of {len(b''.join(pieces))} bytes")
            self.expect(not is_complete, f"{name}: the response looks complete")
            self.close()
        else:
            self.totals.whole += 1
            self.expect(status == 200 and is_complete and received == expected, f"{name}: status {status}, {len(received)} of {len(expected)} bytes")
            if not fault:
                self.totals.tokens[model] = self.totals.tokens.get(model, 0) + tokens

    def expect(self, held, problem):
        if not held:
            self.totals.problem(problem)

    async def read(self, reader, stop_after):
        """Returns the status, the bytes of the body, and whether the response ended as HTTP requires."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = int(head.split(" ", 2)[1])
        slow = self.chance.random() < 0.1
        received = b""
        try:
            if "transfer-encoding: chunked" in head:
                while size := int(await reader.readuntil(b"\r\n"), 16):
                    received += await self.take(reader, size, slow)
                    await reader.readexactly(2)
                    if stop_after is not None and len(received) >= stop_after:
                        return status, received, False
                await reader.readexactly(2)
            else:
                length = int(head.split("content-length: ")[1].split("\r\n")[0])
                received = await self.take(reader, length, slow)
        except asyncio.IncompleteReadError as error:
            return status, received + (error.partial if "content-length" in head else b""), False
        except OSError:
            return status, received, False
        if "connection: close" in head:
            self.close()
        return status, received, True

    async def take(self, reader, size, slow):
        if slow:
            await asyncio.sleep(0.005)
        return await reader.readexactly(size)
