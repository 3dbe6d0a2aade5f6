"""Runs `tokengauge top` in terminals of two sizes against the demo: every view, a killed process, `--once`, `--json`."""

import argparse
import json
import re
import socket
import subprocess
import time
import unicodedata
import uuid

SIZES = [(80, 24), (160, 50)]
VIEWS = [(2, "sim-typical"), (3, "PHASE"), (4, "SLO"), (5, "SESSION|no session"), (1, "Last 60 seconds")]
DEADLINE_SECONDS = 60


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def width(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


class Terminal:
    """A terminal of tmux that runs one command."""

    def __init__(self, command, columns, lines):
        self.socket = f"top-{uuid.uuid4().hex[:8]}"
        self.columns = columns
        self.tmux("new-session", "-d", "-x", str(columns), "-y", str(lines), f"{command}; echo status=$?; sleep 600")

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-L", self.socket, *arguments], check=True, capture_output=True, text=True).stdout

    def press(self, key):
        self.tmux("send-keys", key)

    def wait_for(self, pattern):
        """Returns the screen as soon as it matches the pattern."""
        end = time.monotonic() + DEADLINE_SECONDS
        while True:
            screen = self.tmux("capture-pane", "-p")
            if re.search(pattern, screen):
                return screen
            assert time.monotonic() < end, f"no {pattern!r} in:\n{screen}"
            time.sleep(0.2)

    def close(self):
        subprocess.run(["tmux", "-L", self.socket, "kill-server"], check=False, capture_output=True)


def check_views(terminal):
    terminal.wait_for(r"Requests +[0-9]")
    for key, heading in VIEWS:
        terminal.press(str(key))
        screen = terminal.wait_for(heading)
        for line in screen.splitlines():
            assert width(line) <= terminal.columns, f"wider than {terminal.columns}: {line}"
    terminal.press("?")
    terminal.wait_for("choose a view")
    terminal.press("?")
    print(f"ok   {terminal.columns} columns: all views\n{terminal.wait_for('Last 60 seconds')}")


def output(*command):
    """Returns the output of a command. On a busy machine, the observer can be late, and the process answers 503."""
    end = time.monotonic() + DEADLINE_SECONDS
    while True:
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        if result.returncode == 0:
            return result.stdout
        is_busy = "status 503" in result.stderr and time.monotonic() < end
        assert is_busy, f"{result.returncode}: {result.stdout}{result.stderr}"


def check_output(binary, address):
    once = output(binary, "top", "--admin", address, "--once")
    assert re.search(r"Requests +[0-9]", once) and "\x1b" not in once, once
    document = json.loads(output(binary, "top", "--admin", address, "--json"))
    assert document["now"]["requests_per_second"] > 0 and document["models"], document
    print("ok   --once and --json")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--binary", required=True)
    binary = arguments.parse_args().binary
    address = f"127.0.0.1:{free_port()}"
    demo = subprocess.Popen(
        [binary, "demo", "--listen", "127.0.0.1:0", "--admin", address, "--clients", "8"], stdout=subprocess.DEVNULL
    )
    terminals = []
    try:
        for columns, lines in SIZES:
            terminals.append(Terminal(f"{binary} top --admin {address}", columns, lines))
        for terminal in terminals:
            check_views(terminal)
        check_output(binary, address)
        demo.kill()
        for terminal in terminals:
            terminal.wait_for(r"(?s)UNREACHABLE .*since \d\d:\d\d:\d\d UTC")
            terminal.press("q")
            terminal.wait_for("status=0")
        print("ok   a killed process is unreachable, and q quits")
    finally:
        demo.kill()
        demo.wait()
        for terminal in terminals:
            terminal.close()


main()
