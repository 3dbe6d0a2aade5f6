"""Calls with a known token rate through the proxy, and their results."""
import asyncio
import dataclasses
import itertools
import json
import re
import threading
import time

# The minimum delay in seconds before a worker retries after an immediate failure.
LEAST_TURN = 0.25
PROMPT = "Why is the night sky dark? "
USAGE = re.compile(rb'"(prompt|completion)_tokens":(\d+)')


@dataclasses.dataclass(frozen=True)
class Call:
    """A call that a worker repeats."""

    prefix: str
    model: str
    gap_ms: float
    ttft_ms: float
    tokens: int
    tenant: str = "acme"
    variant: str = "A"
    prompt: int = 20
    stream: bool = True
    # The faults of consecutive calls: None, or a key of `FAULTS`.
    faults: tuple = (None,)

    def request(self, fault):
        body = {"model": self.model, "stream": self.stream, "messages": [{"role": "user", "content": PROMPT * self.prompt}]}
        if self.stream:
            body["stream_options"] = {"include_usage": True}
        body = json.dumps(body).encode()
        headers = {
            "host": "night", "connection": "close", "content-type": "application/json", "content-length": len(body),
            "x-tenant": self.tenant, "x-variant": self.variant, "x-simulate-tokens": self.tokens, "x-simulate-chunk-tokens": 1,
            "x-simulate-gap-us": int(self.gap_ms * 1000), "x-simulate-ttft-us": int(self.ttft_ms * 1000), **FAULTS[fault]}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {self.prefix}/v1/chat/completions HTTP/1.1\r\n{lines}\r\n".encode() + body


# The request headers that cause each fault. The client itself performs `abort`.
FAULTS = {
    None: {},
    "abort": {},
    "stall": {"x-simulate-stall-after": 5, "x-simulate-stall-ms": 4000},
    "unavailable": {"x-simulate-status": 503},
    "limited": {"x-simulate-status": 429},
    # Not a fault: the header that OpenAI's clients send with a retry.
    "again": {"x-stainless-retry-count": 1},
    "cut": {"x-simulate-cut-after": 10},
}


@dataclasses.dataclass
class Record:
    """One call as the client observed it. Times are of the wall clock, in seconds."""

    prefix: str
    model: str
    stream: bool
    variant: str
    fault: str | None
    began: float
    ended: float
    status: int
    input: int
    output: int


class Load:
    """Workers on a separate thread, each with one call at a time."""

    def __init__(self, port):
        self.port, self.records, self.failed = port, [], []
        self.loop = asyncio.new_event_loop()
        # The running tasks with their stop events, and the tasks whose stop event is set.
        self.workers, self.leaving = [], []
        # The maximum delay of a sleep in this process. It measures how busy the machine is.
        self.latest = 0.0
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def change(self, calls):
        """Starts one worker for each of `calls`. Earlier workers finish their current call."""
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
        for fault in itertools.cycle(call.faults):
            if stopping.is_set():
                return
            began = time.time()
            try:
                record = await self.ask(call, fault, began)
                self.records.append(record)
            except (OSError, ValueError, asyncio.IncompleteReadError) as error:
                self.failed.append(f"{call.model} {fault}: {error!r}")
            rest = max(LEAST_TURN - (time.time() - began), 0.02)
            asleep = time.monotonic()
            await asyncio.sleep(rest)
            self.latest = max(self.latest, time.monotonic() - asleep - rest)

    async def ask(self, call, fault, began):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(call.request(fault))
            head = await reader.readuntil(b"\r\n\r\n")
            status, tail = int(head.split(None, 2)[1]), b""
            seen = 0
            while piece := await reader.read(65536):
                seen += piece.count(b"data: ")
                tail = (tail + piece)[-4096:]
                if fault == "abort" and seen > call.tokens // 2:
                    writer.transport.abort()
                    break
        finally:
            writer.close()
        usage = {kind.decode(): int(count) for kind, count in USAGE.findall(tail)}
        return Record(call.prefix, call.model, call.stream, call.variant, fault, began, time.time(), status,
                      usage.get("prompt", 0), usage.get("completion", 0))

    def stop(self):
        self.change([])
