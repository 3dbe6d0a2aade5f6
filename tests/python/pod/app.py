"""The application in a pod with an outbound sidecar. It opens streams from the provider at OPENAI_BASE_URL.

    app.py --streams 200 --tokens 80 --out FILE [--on-term drain|die|ignore]

The application exits when all streams have ended. On SIGTERM it finishes its streams, dies, or ignores the signal. FILE holds the result
of each stream.
"""
import argparse
import asyncio
import dataclasses
import json
import os
import signal
import urllib.parse

from client import Clients


async def work(args):
    base = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
    clients = Clients(lambda: (base.hostname, base.port), f"{base.path}/chat/completions", args.gap)
    loop, dying = asyncio.get_running_loop(), asyncio.Event()
    if args.on_term == "die":
        loop.add_signal_handler(signal.SIGTERM, dying.set)
    else:
        # `drain` and `ignore` continue. With `ignore` the streams last longer than the pod's grace period.
        loop.add_signal_handler(signal.SIGTERM, lambda: None)
    tasks = [asyncio.create_task(clients.stream(args.tokens)) for _ in range(args.streams)]
    if args.short:
        tasks += [asyncio.create_task(again(clients, args.short)) for _ in range(4)]
    ended = asyncio.gather(*tasks)
    await asyncio.wait([ended, asyncio.create_task(dying.wait())], return_when=asyncio.FIRST_COMPLETED)
    # Write the file before the process exits, so that readers find it complete.
    tell(args.out, clients)
    if dying.is_set():
        os._exit(0)


async def again(clients, count):
    for _ in range(count):
        await clients.stream(5, "short")


def tell(path, clients):
    with open(path + ".part", "w") as file:
        json.dump([dataclasses.asdict(answer) for answer in clients.answers], file)
    os.rename(path + ".part", path)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--streams", type=int, default=200)
    cli.add_argument("--tokens", type=int, default=80)
    cli.add_argument("--short", type=int, default=0, help="number of short calls per worker, one after the other, on four workers")
    cli.add_argument("--gap", type=float, default=0.1, help="seconds between tokens")
    cli.add_argument("--out", required=True)
    cli.add_argument("--on-term", choices=("drain", "die", "ignore"), default="drain")
    asyncio.run(work(cli.parse_args()))


if __name__ == "__main__":
    main()
