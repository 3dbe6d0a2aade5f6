"""A browser that records what no page of the console may do, and processes to show in it."""

import json
import pathlib
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request

from playwright.sync_api import sync_playwright

FOLDER = pathlib.Path(__file__).parent
CHROMIUM = "/usr/bin/chromium"
VIEWS = ["now", "charts", "streams", "requests", "sessions", "slos", "compare", "engines", "limits", "cost"]
# The page reports violations of its Content-Security-Policy by itself.
RECORD_VIOLATIONS = """
  window.violations = [];
  document.addEventListener('securitypolicyviolation', (event) => window.violations.push(`${event.violatedDirective}: ${event.blockedURI}`));
"""


class Mock:
    """The mock of the admin port, with the incident that the console shows."""

    def __init__(self, *arguments):
        command = ["node", str(FOLDER / "mock.mjs"), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), self.address

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def act(self, action):
        urllib.request.urlopen(urllib.request.Request(f"{self.address}mock/{action}", method="POST"), timeout=10)

    def state(self):
        return fetch_json(f"{self.address}mock/state")


class Reports:
    """Reads the live events beside the page, to compare both at the same sequence number."""

    def __init__(self, address):
        self.now = {}
        self.response = urllib.request.urlopen(f"{address}api/v1/live", timeout=30)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for line in self.response:
                if line.startswith(b"data:"):
                    report = json.loads(line[5:])
                    if "now" in report:
                        self.now[report["sequence"]] = report["now"]
        except (OSError, ValueError, AttributeError):
            # The test closed the connection.
            pass

    def close(self):
        self.response.close()


class History:
    """The intervals that a mock has reported, to compare a page with the interval that it shows."""

    def __init__(self, mock):
        self.mock = mock
        self.groups = {}
        self.update()

    def update(self):
        for group in self.mock.state()["snapshot"]["history"]["groups"]:
            known = self.groups.setdefault(group["id"], {**group, "intervals": {}})
            known["intervals"].update({number: values for number, values in group["intervals"]})

    def intervals(self, first, last, model=None):
        """The values of all groups, or those of a model, in a range of interval numbers."""
        groups = [group for group in self.groups.values() if model in (None, group["model"])]
        return [values for group in groups for number, values in group["intervals"].items() if first <= number <= last]

    def compare(self, page, read, check):
        """Reads the page, and checks what it shows against the history up to the interval that it shows."""

        def same():
            interval = int(page.get_attribute("main", "data-interval"))
            shown = read()
            assert int(page.get_attribute("main", "data-interval")) == interval, "the page has changed meanwhile"
            self.update()
            check(shown, interval)

        eventually(same)


def fetch_json(address, token=None):
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as response:
        return json.load(response)


class Browser:
    """Chromium. `problems` lists dialogs, script errors, violations of the policy and requests to other hosts."""

    def __init__(self):
        self.playwright = sync_playwright().start()
        self.chromium = self.playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        self.problems = []
        self.pages = []

    def close(self):
        self.chromium.close()
        self.playwright.stop()

    def open(self, address, width=1600, height=1000, scheme="dark"):
        context = self.chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.add_init_script(RECORD_VIOLATIONS)
        host = urllib.parse.urlsplit(address).netloc
        page.on("pageerror", lambda error: self.problems.append(f"error of a script: {error}"))
        page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.check_host(request.url, host))
        page.on("console", self.check_message)
        page.goto(address)
        self.pages.append(page)
        return page

    def check_host(self, address, host):
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("data", "blob") and parts.netloc != host:
            self.problems.append(f"request to another host: {address}")

    def check_message(self, message):
        if re.search(r"Content Security Policy|Refused to", message.text):
            self.problems.append(f"console: {message.text}")

    def finish(self):
        """Closes the pages of a test and returns what they did wrong."""
        for page in self.pages:
            self.problems += [f"policy: {entry}" for entry in page.evaluate("window.violations")]
            page.context.close()
        problems, self.problems, self.pages = self.problems, [], []
        return problems


def show(page, view, **parameters):
    """Opens a view of the console by its hash."""
    present = {key: value for key, value in parameters.items() if value is not None}
    query = urllib.parse.urlencode(present)
    page.evaluate("hash => { location.hash = hash }", f"#{view}{'?' + query if query else ''}")
    page.wait_for_selector(f"main.view-{view}")
    page.wait_for_timeout(120)


def wait_live(page):
    page.wait_for_selector(".live-mark.live")


def eventually(check, seconds=30.0):
    """Repeats a check of values that move each second, until it passes."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.15)
