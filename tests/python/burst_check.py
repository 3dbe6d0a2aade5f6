#!/usr/bin/env python3
"""Checks that the proxy returns the memory of a burst to the system.

    burst_check.py --binary target/release/tokengauge [--requests 2500] [--verbose]

A burst of requests waits for an upstream that answers all of them at the same time. Afterwards a few requests a second
pass, as in any service. The resident memory must then fall: of the memory that the burst took, at most a quarter may
stay. The last line is `N passed, N failed`; exit status 0 if nothing failed.
"""
import argparse
import asyncio
import json
import pathlib
import resource
import subprocess
import sys
import tempfile

from rig import Tally, clear_environment, free_port

CONFIGURATION = """version: 1
listeners: [{{address: "127.0.0.1:{listen}"}}]
admin: {{address: "127.0.0.1:{admin}"}}
upstreams: {{backend: {{url: "http://127.0.0.1:{backend}"}}}}
routes: [{{upstream: backend}}]
"""
PROMPT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 4_000}]}).encode()
REQUEST = (b"POST /v1/chat/completions HTTP/1.1\r\nhost: backend\r\ncontent-type: application/json\r\n"
           b"content-length: %d\r\nconnection: close\r\n\r\n" % len(PROMPT)) + PROMPT
ANSWER = json.dumps({"object": "chat.completion", "model": "m", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "y" * 2_000}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 500, "completion_tokens": 250, "total_tokens": 750}}).encode()
RESPONSE = (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)) + ANSWER
# Requests a second after the burst, and the time in seconds in which memory must fall.
CALM_RATE, CALM_TIME = 10, 30


class Backend:
    """Answers requests while `open_gate` is set."""

    def __init__(self):
        self.open_gate, self.waiting = asyncio.Event(), 0

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length: "))
                await reader.readexactly(length)
                self.waiting += 1
                await self.open_gate.wait()
                self.waiting -= 1
                writer.write(RESPONSE)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def call(port):
    """Sends one request, and returns whether the whole response arrived."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    response = await reader.read(-1)
    writer.close()
    return response.endswith(ANSWER)


def resident(process):
    """Returns the resident memory of a process in MB."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1_024


async def wait_for(reached, limit=300):
    for _ in range(limit * 10):
        if reached():
            return True
        await asyncio.sleep(0.1)
    return False


async def calm(listen, seconds):
    for _ in range(int(seconds * CALM_RATE)):
        await call(listen)
        await asyncio.sleep(1 / CALM_RATE)


async def check(arguments, tally, folder):
    backend = Backend()
    server = await asyncio.start_server(backend.serve, "127.0.0.1", 0, backlog=4_096)
    listen, admin = free_port(), free_port()
    port = server.sockets[0].getsockname()[1]
    file = folder / "tokengauge.yaml"
    file.write_text(CONFIGURATION.format(listen=listen, admin=admin, backend=port))
    process = subprocess.Popen([arguments.binary, "run", "--config", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await asyncio.sleep(2)
        backend.open_gate.set()
        await calm(listen, 5)
        before = resident(process)
        backend.open_gate.clear()
        burst = [asyncio.create_task(call(listen)) for _ in range(arguments.requests)]
        all_wait = await wait_for(lambda: backend.waiting == arguments.requests)
        tally.check("all requests wait for the upstream", all_wait, backend.waiting)
        during = resident(process)
        backend.open_gate.set()
        answered = sum(await asyncio.gather(*burst))
        tally.check("all requests are answered", answered == arguments.requests, answered)
        for _ in range(CALM_TIME):
            await calm(listen, 1)
            after = resident(process)
            if after - before <= (during - before) / 4:
                break
        figures = f"{before:.0f} MB before, {during:.0f} MB during, {after:.0f} MB after"
        print(f"{arguments.requests} waiting requests: {figures}; {(during - before) * 1_024 / arguments.requests:.1f} KiB each")
        tally.check("the memory returns to the system", after - before <= (during - before) / 4, figures)
    finally:
        process.kill()
        process.wait()
        server.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--requests", type=int, default=2_500)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    clear_environment()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    tally = Tally(arguments.verbose)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(arguments, tally, pathlib.Path(folder)))
    print(f"{tally.passed} passed, {tally.failed} failed")
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    main()
