"""Connection, access, hostile names, accessibility, deep links, size and speed."""

import os
import urllib.parse

from browser import Mock, VIEWS, eventually, show, wait_live

# CPU time of the page's main thread. It depends less on other load of the machine than wall time does.
FRAME_CPU_MS = 40
REPORT_CPU_MS = 150
LATE_FRAME_MS = 100
ROWS_IN_DOCUMENT = 80
# Scrolls by `step` pixels per frame for 4 s and returns the times between frames.
SCROLL = """(step) => new Promise((done) => {
    const list = document.querySelector('.virtual');
    const frames = [];
    let last = performance.now();
    const end = last + 4000;
    const next = (now) => {
        frames.push(now - last);
        last = now;
        list.scrollTop = (list.scrollTop + step) % (list.scrollHeight - list.clientHeight);
        if (now < end) requestAnimationFrame(next);
        else done(frames);
    };
    requestAnimationFrame(next);
})"""


def crowd(browser, _):
    """5,000 streams scroll smoothly: few rows in the document, little work per frame and per report."""
    with Mock("--streams", "5000") as mock:
        page = browser.open(f"{mock.address}#streams")
        wait_live(page)
        page.wait_for_selector(".row.stream")
        page.wait_for_timeout(1500)
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})

        def measure(step):
            def cpu_ms():
                metrics = session.send("Performance.getMetrics")["metrics"]
                return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration") * 1000

            before, sequence = cpu_ms(), int(page.get_attribute("main", "data-sequence"))
            frames = page.evaluate(SCROLL, step)
            return cpu_ms() - before, frames, int(page.get_attribute("main", "data-sequence")) - sequence

        still, _, reports = measure(0)
        moving, frames, _ = measure(240)
        per_report, per_frame = still / max(1, reports), max(0, moving - still) / len(frames)
        late = sum(frame > LATE_FRAME_MS for frame in frames)
        rows = page.locator(".row.stream").count()
        busy = os.getloadavg()[0] > (os.cpu_count() or 1)
        print(f"  5,000 streams: {per_frame:.1f} ms of CPU per frame, {per_report:.0f} ms per report, {rows} rows in the document")
        print(f"  {late} of {len(frames)} frames above {LATE_FRAME_MS} ms{' while other programs use the processors' if busy else ''}")
        assert "of" not in page.inner_text(".filter-count") and int(page.inner_text(".filter-count").split()[0]) >= 5000
        assert rows <= ROWS_IN_DOCUMENT, rows
        assert per_frame <= FRAME_CPU_MS and per_report <= REPORT_CPU_MS, (per_frame, per_report)
        assert busy or late <= len(frames) * 0.02, (late, len(frames))


def reconnect(browser, _):
    with Mock() as mock:
        page = browser.open(f"{mock.address}#now", width=400, height=850)
        wait_live(page)
        mock.act("cut?seconds=5")
        page.wait_for_selector(".banner.warning")
        eventually(lambda: _contains(page, ".banner.warning", "No data for 3 s"))
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.inner_text(".live-mark") == "not live"
        wait_live(page)
        assert "without data" in page.inner_text(".banner.note")
        page.wait_for_timeout(1500)
        mock.act("restart?seconds=11")
        eventually(lambda: _restarted(page), 40)
        show(page, "charts")
        # The values of the former process stay, and the time between the processes is a gap.
        eventually(lambda: _contains(page, ".note.gap", "No data from"), 15)
        assert page.locator(".chart canvas").count() >= 5


def _contains(page, selector, text):
    assert text in page.inner_text(selector), page.inner_text(selector)


def _restarted(page):
    # The process has been up for seconds, not for hours.
    assert " s" in page.inner_text(".process") and " h" not in page.inner_text(".process"), page.inner_text(".process")


def token(browser, _):
    with Mock("--token", "secret-of-the-test") as mock:
        page = browser.open(f"{mock.address}#streams?model=gpt-4o")
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        page.wait_for_selector(".problem")
        assert "wrong" in page.inner_text(".problem")
        page.fill("#token", "secret-of-the-test")
        page.keyboard.press("Enter")
        wait_live(page)
        assert page.locator("main.view-streams").count() == 1, "the deep link is lost"
        stored = page.evaluate("[location.href, document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.documentElement.outerHTML].join()")
        assert "secret-of-the-test" not in stored
        show(page, "charts", at=1)
        page.wait_for_selector(".ended-at .empty")
        assert "could not be loaded" not in page.inner_text(".ended-at"), "the list was requested without the token"
        mock.act("token?value=another")
        page.wait_for_selector(".problem")
        assert "no longer accepted" in page.inner_text(".problem")
        assert mock.process.poll() is None


def viewers(browser, _):
    with Mock("--viewers", "0") as mock:
        page = browser.open(mock.address)
        page.wait_for_selector("text=All viewer places are taken")
        assert "0 viewers are connected" in page.inner_text("main")
        mock.act("viewers?limit=1")
        page.click("text=Try again")
        wait_live(page)


def hidden(browser, _):
    """A hidden tab closes its connection, and opens it again when it is shown."""
    with Mock() as mock:
        page = browser.open(mock.address)
        wait_live(page)
        assert mock.state()["viewers"] == 1
        change = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); }"
        page.evaluate(change, True)
        eventually(lambda: _viewers(mock, 0))
        page.wait_for_timeout(1500)
        _viewers(mock, 0)
        page.evaluate(change, False)
        eventually(lambda: _viewers(mock, 1))
        wait_live(page)


def _viewers(mock, count):
    assert mock.state()["viewers"] == count, mock.state()["viewers"]


def hostile(browser, _):
    """Names with markup, control characters and 10 kB are text, in each view and width."""
    with Mock("--hostile") as mock:
        for width in (1600, 400):
            page = browser.open(mock.address, width=width)
            wait_live(page)
            names = [group["model"] for group in mock.state()["snapshot"]["history"]["groups"]]
            for view in VIEWS:
                parameters = {"a": names[0], "b": names[1]} if view == "compare" else {}
                show(page, view, **parameters)
                injected = page.evaluate("""() => document.querySelectorAll('body script, body img, #app [onerror], #app [onload], #app iframe, #app object').length""")
                assert injected == 0, (view, injected)
                text = page.inner_text("main")
                if view not in ("engines", "slos", "sessions", "compare"):
                    assert "<img src=x onerror=alert(1)>" in text, (view, text[:300])
                assert not any(character in text for character in "\x00\x1b\u202e\u200b"), view
                wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, f"{view} is {wide} px too wide at {width} px"
            show(page, "charts", model=names[2])
            assert page.locator(".chip").count() == 1 and page.locator(".chip").bounding_box()["width"] <= 400
            show(page, "charts", at=1, model=names[0])
            page.wait_for_selector(".ended-at .empty")


def axe(browser, mock, source):
    """No serious or critical violation of WCAG AA, in each view and scheme."""
    # Colours depend on the scheme; all other rules do not.
    rules = {"dark": "'wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'", "light": "'color-contrast'"}
    found = []

    def scan(page, name):
        if not page.evaluate("'axe' in window"):
            page.evaluate(f"{source}; undefined")
        for violation in page.evaluate(f"axe.run(document, {{ runOnly: [{rules[scheme]}], resultTypes: ['violations'] }})")["violations"]:
            if violation["impact"] in ("serious", "critical"):
                found.append(f"{name}: {violation['id']}: {[node['html'][:160] for node in violation['nodes'][:3]]}")

    for scheme in ("dark", "light"):
        page = browser.open(mock.address, scheme=scheme)
        wait_live(page)
        for view in VIEWS:
            parameters = {"compare": {"a": "gpt-4o", "b": "mistral-large"}, "sessions": {"sel": "session-3"}}.get(view, {})
            show(page, view, **parameters)
            scan(page, f"{view}, {scheme}")
        page.keyboard.press("?")
        page.wait_for_selector("[role=dialog]")
        scan(page, f"help, {scheme}")
        with Mock("--token", "secret") as locked:
            page = browser.open(locked.address, scheme=scheme)
            page.wait_for_selector("#token")
            scan(page, f"login, {scheme}")
    assert not found, "\n".join(found)


def deep_links(browser, mock):
    """The hash restores view, filter, order, selection and zoom, and interactions change it."""
    snapshot = mock.state()["snapshot"]
    stalled = next(stream for stream in snapshot["streams"] if stream["stalled"])
    page = browser.open(f"{mock.address}#streams?model=mistral-large&phase=stalled&sort=-age&sel={stalled['request_number']}")
    wait_live(page)
    page.wait_for_selector('.row.stream[aria-selected="true"]')
    assert int(page.locator('.row.stream[aria-selected="true"]').get_attribute("data-id")) == stalled["request_number"]
    assert page.locator('[aria-sort="ascending"]').inner_text().startswith("age")
    assert "mistral-large" in page.inner_text(".chip")
    page.click(".chip")
    assert "model=" not in page.evaluate("location.hash")

    at = snapshot["at_unix_ms"] - 60_000
    window = {"from": at / 1000 - 60, "to": at / 1000 + 30}
    query = urllib.parse.urlencode({"by": "provider", "p": "50", "provider": "openai", "at": at, **window})
    page = browser.open(f"{mock.address}#charts?{query}")
    wait_live(page)
    page.wait_for_selector(".ended-at tr.selectable")
    assert page.locator('.segmented [aria-pressed="true"]').all_inner_texts() == ["provider", "p50"]
    assert page.locator(".legend li").all_inner_texts() == ["openai"]
    assert page.locator(".chip").count() == 2

    chosen = snapshot["requests"]["failed"][3]
    page = browser.open(f"{mock.address}#requests?list=failed&sel={chosen}")
    wait_live(page)
    page.wait_for_selector(f'[data-request="{chosen}"]')
    page = browser.open(f"{mock.address}#compare?by=provider&a=openai&b=vllm")
    wait_live(page)
    page.wait_for_selector(".dist")
    # Back and forward walk through the views.
    page.keyboard.press("3")
    page.wait_for_selector("main.view-streams")
    page.go_back()
    page.wait_for_selector("main.view-compare .dist")


def keyboard(browser, mock):
    page = browser.open(mock.address)
    wait_live(page)
    for key, view in zip("1234567890", VIEWS):
        page.keyboard.press(key)
        page.wait_for_selector(f"main.view-{view}")
    page.keyboard.press("?")
    page.wait_for_selector("[role=dialog]")
    page.keyboard.press("Escape")
    page.wait_for_selector("[role=dialog]", state="detached")
    page.keyboard.press("4")
    page.wait_for_selector("main.view-requests")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"


def narrow(browser, mock):
    """Nothing is wider than a phone, and the first screen names the worst condition."""
    page = browser.open(mock.address, width=400, height=850)
    wait_live(page)
    box = page.locator(".condition").first.bounding_box()
    assert box["y"] + box["height"] < 850
    for view in VIEWS:
        show(page, view, **({"a": "gpt-4o", "b": "mistral-large"} if view == "compare" else {}))
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{view} is {wide} px too wide"


def prefix(browser, _):
    """All addresses are relative, so the console works below a path."""
    with Mock("--prefix", "/some/prefix/") as mock:
        page = browser.open(mock.address)
        wait_live(page)
        assert page.locator(".tile").count() == 11
        page.wait_for_selector("nav")
        colour = page.evaluate("getComputedStyle(document.querySelector('header')).position")
        assert colour == "sticky", "the style sheet is missing"


def motion(browser, mock):
    context = browser.chromium.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(mock.address)
    wait_live(page)
    assert page.evaluate("getComputedStyle(document.querySelector('.dot')).animationName") == "none"
    context.close()
