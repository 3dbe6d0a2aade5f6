"""An engine wrapper that lets running streams end after SIGTERM.

    patient.py --port PORT -- COMMAND…

Runs the command, which serves engine metrics at /metrics of that port. After SIGTERM the wrapper stops the command once no request runs.
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
    # Kill the command if this process dies for any reason.
    engine = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *args.command])
    stop_requests = []
    signal.signal(signal.SIGTERM, lambda *_: stop_requests.append(True))
    while engine.poll() is None:
        time.sleep(0.05)
        if stop_requests and running(args.port) == 0:
            engine.kill()


if __name__ == "__main__":
    main()
