"""An engine that lets its streams end when it gets SIGTERM.

    patient.py --port PORT -- COMMAND…

Runs the command, which serves the numbers of an engine at /metrics of that port, and stops it once it runs nothing.
"""
import argparse
import signal
import subprocess
import time
import urllib.request


def running(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        return sum(float(line.rsplit(b" ", 1)[1]) for line in page if line.startswith(b"vllm:num_requests_running"))


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--port", type=int, required=True)
    cli.add_argument("command", nargs="+")
    args = cli.parse_args()
    # It dies with this process, however that ends.
    engine = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *args.command])
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    while engine.poll() is None:
        time.sleep(0.05)
        if asked and running(args.port) == 0:
            engine.kill()


if __name__ == "__main__":
    main()
