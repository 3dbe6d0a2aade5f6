"""Load generator of the local stack: streamed chat requests through the proxy, of which some are slow, stalled or failed.

    load.py [BASE_URL] [CALLS_PER_SECOND] [MIX]

MIX is `mixed` (the default) or a key of TREATMENTS, which then applies to every request. Arrivals are an open-loop Poisson
process: they do not wait for responses. The script needs only the standard library and runs until it is stopped.
"""

import http.client
import json
import random
import sys
import threading
import time
import urllib.parse

# Weight in the mix, request headers for the simulated backend (`tokengauge simulate --help`), and seconds after which the
# client disconnects.
TREATMENTS = {
    "well": (88, {}, None),
    "slow": (3, {"x-simulate-gap-us": "90000"}, None),
    "late": (2, {"x-simulate-ttft-us": "2500000"}, None),
    "stalled": (2, {"x-simulate-stall-after": "20", "x-simulate-stall-ms": "4000"}, None),
    "left": (2, {}, 0.4),
    "cut": (1, {"x-simulate-cut-after": "15"}, None),
    "limited": (1, {"x-simulate-status": "429"}, None),
    "failed": (1, {"x-simulate-status": "503"}, None),
}
MODELS = {"sim-typical": 5, "sim-fast": 3, "sim-slow": 1, "sim-reasoning": 1, "gpt-4o-mini": 1}
TENANTS = {"acme": 3, "globex": 1}
VARIANTS = {"a": 1, "b": 1}
MOST_IN_FLIGHT = 64


def pick(weights):
    return random.choices(list(weights), weights=weights.values())[0]


def call(base, treatment, room):
    """Sends one streamed chat request and reads the response until it ends or the client disconnects."""
    _, headers, leaves = TREATMENTS[treatment]
    words = random.choice((20, 200, 1500))
    body = {
        "model": pick(MODELS),
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "Tell me about rivers. " * (words // 4)}],
    }
    headers = {
        **headers,
        "content-type": "application/json",
        "x-tenant": pick(TENANTS),
        "x-variant": pick(VARIANTS),
    }
    try:
        connection = http.client.HTTPConnection(base.hostname, base.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        ends = None if leaves is None else time.monotonic() + leaves
        while answer.read1(65536):
            if ends is not None and time.monotonic() > ends:
                break
        connection.close()
    except (OSError, http.client.HTTPException):
        pass  # the proxy reports the failure
    finally:
        room.release()


def main():
    base = urllib.parse.urlsplit(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:4000")
    rate = float(sys.argv[2]) if len(sys.argv) > 2 else 4.0
    mix = sys.argv[3] if len(sys.argv) > 3 else "mixed"
    weights = {name: it[0] for name, it in TREATMENTS.items()} if mix == "mixed" else {mix: 1}
    room = threading.Semaphore(MOST_IN_FLIGHT)
    while True:
        time.sleep(random.expovariate(rate))
        if room.acquire(blocking=False):
            threading.Thread(target=call, args=(base, pick(weights), room), daemon=True).start()


if __name__ == "__main__":
    main()
