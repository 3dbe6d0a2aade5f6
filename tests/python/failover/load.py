"""Calls of known pace through the proxy, and what became of each."""
import asyncio
import dataclasses
import itertools
import json
import re
import threading
import time

# A worker whose call failed at once does not ask again sooner than this.
LEAST_TURN = 0.25
PROMPT = "Why is the night sky dark? "
USAGE = re.compile(rb'"(prompt|completion)_tokens":(\d+)')


@dataclasses.dataclass(frozen=True)
class Call:
    """What a worker asks for, again and again."""

    prefix: str
    model: str
    gap_ms: float
    ttft_ms: float
    tokens: int
    tenant: str = "acme"
    variant: str = "A"
    prompt: int = 20
    stream: bool = True
    # What befalls one call after the other: None, or a fault of `FAULTS`.
    fates: tuple = (None,)

    def request(self, fate):
        body = {"model": self.model, "stream": self.stream, "messages": [{"role": "user", "content": PROMPT * self.prompt}]}
        if self.stream:
            body["stream_options"] = {"include_usage": True}
        body = json.dumps(body).encode()
        headers = {
            "host": "night", "connection": "close", "content-type": "application/json", "content-length": len(body),
            "x-tenant": self.tenant, "x-variant": self.variant, "x-simulate-tokens": self.tokens, "x-simulate-chunk-tokens": 1,
            "x-simulate-gap-us": int(self.gap_ms * 1000), "x-simulate-ttft-us": int(self.ttft_ms * 1000), **FAULTS[fate]}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {self.prefix}/v1/chat/completions HTTP/1.1\r\n{lines}\r\n".encode() + body


# Each with the headers that bring it about. `abort` is the client's own doing.
FAULTS = {
    None: {},
    "abort": {},
    "stall": {"x-simulate-stall-after": 5, "x-simulate-stall-ms": 4000},
    "unavailable": {"x-simulate-status": 503},
    "limited": {"x-simulate-status": 429},
    # Not a fault, but what follows one: OpenAI's clients say so.
    "again": {"x-stainless-retry-count": 1},
    "cut": {"x-simulate-cut-after": 10},
}


@dataclasses.dataclass
class Record:
    """One call, as the client saw it. Times are of the wall clock, in seconds."""

    prefix: str
    model: str
    stream: bool
    variant: str
    fate: str | None
    began: float
    ended: float
    status: int
    input: int
    output: int


class Load:
    """Workers on a thread of their own, each with one call at a time."""

    def __init__(self, port):
        self.port, self.records, self.failed = port, [], []
        self.loop = asyncio.new_event_loop()
        # The tasks that ask, each with what tells it to stop; and those that have been told.
        self.workers, self.leaving = [], []
        # How late a sleep of this process ended at most: what the machine made of it.
        self.latest = 0.0
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def change(self, calls):
        """Lets one worker for each of `calls` begin, after the earlier ones have ended the calls in their hands."""
        asyncio.run_coroutine_threadsafe(self.turn_over(calls), self.loop).result()

    async def turn_over(self, calls):
        for task, stopping in self.workers:
            stopping.set()
            self.leaving.append(task)
        self.workers = []
        for number, call in enumerate(calls):
            stopping = asyncio.Event()
            self.workers.append((asyncio.create_task(self.work(call, stopping, number / max(len(calls), 1))), stopping))
        if not calls:
            await asyncio.gather(*self.leaving)

    async def work(self, call, stopping, offset):
        await asyncio.sleep(offset * 0.3)
        for fate in itertools.cycle(call.fates):
            if stopping.is_set():
                return
            began = time.time()
            try:
                record = await self.ask(call, fate, began)
                self.records.append(record)
            except (OSError, ValueError, asyncio.IncompleteReadError) as error:
                self.failed.append(f"{call.model} {fate}: {error!r}")
            rest = max(LEAST_TURN - (time.time() - began), 0.02)
            asleep = time.monotonic()
            await asyncio.sleep(rest)
            self.latest = max(self.latest, time.monotonic() - asleep - rest)

    async def ask(self, call, fate, began):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(call.request(fate))
            head = await reader.readuntil(b"\r\n\r\n")
            status, tail = int(head.split(None, 2)[1]), b""
            seen = 0
            while piece := await reader.read(65536):
                seen += piece.count(b"data: ")
                tail = (tail + piece)[-4096:]
                if fate == "abort" and seen > call.tokens // 2:
                    writer.transport.abort()
                    break
        finally:
            writer.close()
        told = {kind.decode(): int(count) for kind, count in USAGE.findall(tail)}
        return Record(call.prefix, call.model, call.stream, call.variant, fate, began, time.time(), status,
                      told.get("prompt", 0), told.get("completion", 0))

    def stop(self):
        self.change([])
