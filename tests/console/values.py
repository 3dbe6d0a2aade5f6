"""Each view shows the values of the process."""

import re

from browser import History, Reports, eventually, fetch_json, show, wait_live
from statistics_reference import median_interval, merge, quantile

# Position of a value in `now` of the snapshot, for each tile of the view Now. The first number is the big one.
TILES = {
    "requests_per_second": lambda now: now["requests_per_second"],
    "error_share": lambda now: now["error_share"] and sum(now["error_share"].values()),
    "output_tokens_per_second": lambda now: now["output_tokens_per_second"],
    "stream_output_tokens_per_second": lambda now: (now["stream_output_tokens_per_second"] or {}).get("p50"),
    "time_to_first_token_seconds": lambda now: (now["time_to_first_token_seconds"] or {}).get("p95"),
    "inter_token_latency_seconds": lambda now: (now["inter_token_latency_seconds"] or {}).get("p95"),
    "in_flight": lambda now: now["in_flight"],
    "queue_depth": lambda now: now["queue_depth"],
    "stalled": lambda now: now["stalled"],
    "worst_burn_rate": lambda now: (now["worst_burn_rate"] or {}).get("burn_rate"),
    "cost_per_hour": lambda now: (now["cost_per_hour"] or {}).get("amount"),
}


def number_of(text):
    """The seconds, share or number in a text of the console."""
    match = re.search(r"(-?[\d,.]+) ?(ms|µs|s|min|%)?", text)
    assert match, text
    scale = {"ms": 1e-3, "µs": 1e-6, "%": 1e-2, "min": 60}.get(match[2], 1)
    return float(match[1].replace(",", "")) * scale


def close(shown, wanted, tolerance=0.006):
    return abs(shown - wanted) <= tolerance * abs(wanted) + 1e-9


def tile_values(page):
    """Text and value of each tile, and the sequence number of the report that the page shows."""
    return page.evaluate("""() => [Number(document.querySelector('main').dataset.sequence), Object.fromEntries([...document.querySelectorAll('.tile')].map((tile) => {
        const value = tile.querySelector('.big');
        return [tile.dataset.tile, { text: value.textContent, raw: value.dataset.value ?? null }];
    }))]""")


def check_tiles(page, address):
    """Compares each tile with the report that the page shows."""
    reports = Reports(address)

    def same():
        sequence, tiles = tile_values(page)
        assert sequence in reports.now, f"the page shows report {sequence}; seen: {sorted(reports.now)[-3:]}"
        for tile, shown in tiles.items():
            wanted = TILES[tile](reports.now[sequence])
            if wanted is None:
                assert shown["text"].startswith("–"), (tile, shown)
            else:
                assert shown["raw"] is not None and close(float(shown["raw"]), wanted, 1e-9), (tile, shown, wanted)
                assert close(number_of(shown["text"].replace("≈ ", "")), wanted), (tile, shown, wanted)
        # Without a price, there is no tile for the cost.
        assert TILES.keys() - tiles.keys() <= {"cost_per_hour"}, tiles.keys()

    eventually(same, 15)
    reports.close()


def now(browser, mock):
    page = browser.open(mock.address)
    wait_live(page)
    check_tiles(page, mock.address)
    conditions = mock.state()["snapshot"]["conditions"]
    assert page.locator(".condition").count() == len(conditions)
    for index, condition in enumerate(conditions):
        row = page.locator(".condition").nth(index)
        assert condition["text"].split(":")[0] in row.inner_text()
        assert condition["severity"] in row.inner_text()
        links = row.locator("a").evaluate_all("links => links.map((link) => link.getAttribute('href'))")
        assert f"runbooks/{condition['runbook']}" in links, links
        assert any(href.startswith(f"#{condition['view']}") for href in links), links
    assert page.locator(".tile.critical").evaluate_all("tiles => tiles.map((tile) => tile.dataset.tile)") == ["time_to_first_token_seconds", "stalled", "worst_burn_rate"]
    # The process keeps the history, so that a page that was just opened shows it.
    line = page.locator('.tile[data-tile="worst_burn_rate"] .spark').get_attribute("aria-label")
    assert line.startswith("Burn rate, worst: up to 8,"), line

    history = History(mock)

    def read_models():
        rows = page.locator("tr[data-model]").evaluate_all("rows => rows.map((row) => [row.dataset.model, row.querySelector('td [data-value]').dataset.value])")
        return {model: float(value) for model, value in rows}

    def check_models(shown, last):
        assert set(shown) == {group["model"] for group in history.groups.values()}
        for model, value in shown.items():
            wanted = quantile(merge(values.get("ttft") for values in history.intervals(last - 11, last, model)), 0.95)
            assert close(value, wanted, 1e-6), (model, value, wanted)

    history.compare(page, read_models, check_models)
    assert "≈" in page.locator('tr[data-model="mistral-large"]').inner_text(), "estimated tokens are not marked"
    assert "≈" not in page.locator('tr[data-model="gpt-4o"]').inner_text()
    page.click('.tile[data-tile="error_share"] .info-button')
    assert "upstream" in page.inner_text(".popover") and page.get_attribute(".popover a", "href") == "stats"


def charts(browser, mock):
    page = browser.open(f"{mock.address}#charts")
    wait_live(page)
    page.wait_for_selector(".chart canvas")
    assert page.locator(".chart").evaluate_all("charts => charts.map((chart) => chart.dataset.chart)") == ["ttft", "errors", "rate", "queue", "tokens", "itl", "stages"]

    history = History(mock)

    def legend(chart):
        return dict(page.locator(f'.chart[data-chart="{chart}"] .u-series').evaluate_all("""series => series.slice(1).map((one) => [
            one.querySelector('.u-label').textContent, one.querySelector('.u-value').textContent])"""))

    def check_latest(shown, last):
        end = (last + 1) // 3 * 3 - 1
        intervals = history.intervals(end - 2, end, "llama-3.3-70b-instruct")
        ttft, tokens = (number_of(legend["llama-3.3-70b-instruct"]) for legend in shown)
        assert close(ttft, quantile(merge(values.get("ttft") for values in intervals), 0.95)), (shown, end)
        assert close(tokens, sum(values.get("output_tokens", 0) for values in intervals) / 15), (shown, end)

    history.compare(page, lambda: (legend("ttft"), legend("tokens")), check_latest)
    for label in ("provider", "route", "tenant"):
        page.click(f'.segmented button:text-is("{label}")')
        page.wait_for_function("label => location.hash.includes(`by=${label}`)", arg=label)
    assert "agents" in page.inner_text(".legend")
    # A drag zooms all charts; the hash keeps the zoom.
    place = page.locator('.chart[data-chart="errors"] .u-over').bounding_box()
    page.mouse.move(place["x"] + place["width"] * 0.8, place["y"] + 60)
    page.mouse.down()
    page.mouse.move(place["x"] + place["width"] * 0.97, place["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_function("location.hash.includes('from=')")
    page.wait_for_timeout(200)

    # A short time has one point per interval. Without a cursor, the legend follows the reports.
    page.mouse.move(5, 5)

    def check_fine(shown, last):
        wanted = sum(values.get("output_tokens", 0) for values in history.intervals(last, last)) / 5
        assert close(sum(number_of(text) for text in shown.values()), wanted, 0.01), (shown, wanted)

    history.compare(page, lambda: legend("tokens"), check_fine)
    page.wait_for_timeout(5500)
    history.compare(page, lambda: legend("tokens"), check_fine)
    # A click on an instant lists the requests that ended then.
    page.mouse.click(place["x"] + place["width"] * 0.5, place["y"] + 60)
    page.wait_for_selector(".ended-at tr.selectable")
    at = int(page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('at')"))
    wanted = fetch_json(f"{mock.address}api/v1/requests?ended_from_unix_ms={at - 5000}&ended_to_unix_ms={at + 5000}")["items"]
    shown = page.locator(".ended-at tr.selectable").evaluate_all("rows => rows.map((row) => Number(row.dataset.id))")
    assert sorted(shown) == sorted(request["id"] for request in wanted) and shown, (len(shown), len(wanted))


def streams(browser, mock):
    page = browser.open(f"{mock.address}#streams")
    wait_live(page)

    def same():
        wanted = mock.state()["snapshot"]["streams"]
        rows = page.locator(".row.stream").evaluate_all("rows => rows.map((row) => [Number(row.dataset.id), row.querySelector('.phase').textContent])")
        assert sorted(row[0] for row in rows) == sorted(stream["request_number"] for stream in wanted)
        stalled = sum(stream["stalled"] for stream in wanted)
        assert stalled >= 3 and [row[1] for row in rows[:stalled]] == ["stalled"] * stalled, rows
        assert "stalled" not in [row[1] for row in rows[stalled:]]
        words = {"stalled", "client is slow", "queued", "waiting", "streaming"}
        assert {row[1] for row in rows} <= words, rows

    eventually(same)
    page.keyboard.press("/")
    page.keyboard.type("mistral stalled")
    page.keyboard.press("Escape")
    eventually(lambda: _rows_are(page, lambda texts: texts and all("mistral" in text for text in texts)))
    page.keyboard.press("j")
    page.wait_for_function("location.hash.includes('sel=')")
    assert page.locator('.row.stream[aria-selected="true"]').count() == 1 and page.locator("aside.detail").count() == 1
    first = page.evaluate("location.hash")
    page.keyboard.press("j")
    assert page.evaluate("location.hash") != first
    page.keyboard.press("k")
    assert page.evaluate("location.hash") == first
    page.keyboard.press("p")
    page.wait_for_selector(".paused")
    frozen = page.locator(".row.stream").first.locator(".num").nth(2).inner_text()
    page.wait_for_timeout(2200)
    assert page.locator(".row.stream").first.locator(".num").nth(2).inner_text() == frozen, "a paused list moves"


def _rows_are(page, check):
    texts = page.locator(".row.stream").all_inner_texts()
    assert check(texts), texts


def requests(browser, mock):
    page = browser.open(f"{mock.address}#requests?list=stalled")
    wait_live(page)
    snapshot = mock.state()["snapshot"]["requests"]
    chosen = snapshot["items"][str(snapshot["stalled"][0])]
    show(page, "requests", list="stalled", sel=chosen["id"])
    page.wait_for_selector(f'[data-request="{chosen["id"]}"]')
    detail = page.locator("article.detail")
    stages = [name for name, seconds in chosen["stages"].items() if seconds > 0]
    assert detail.locator(".waterfall-bar").count() == len(stages) + len(chosen["stalls"])
    assert detail.locator("path.chunk").get_attribute("d").count("M") == len(chosen["chunks_seconds"])
    text = detail.inner_text()
    for wanted in (chosen["model"], chosen["route"], chosen["outcome"], chosen["trace_id"], f"{chosen['tokens']['output']['count']:,}"):
        assert str(wanted) in text, (wanted, text)
    assert close(number_of(detail.locator('[data-metric="duration_seconds"]').inner_text()), chosen["duration_seconds"])
    assert detail.locator("a", has_text="Open the trace").get_attribute("href").endswith(chosen["trace_id"])
    for name in ("slowest", "failed", "stalled", "most expensive"):
        page.click(f'.segmented button:has-text("{name}")')
        key = name.replace(" ", "_")
        eventually(lambda key=key: _same_ids(page, mock.state()["snapshot"]["requests"][key]))


def _same_ids(page, wanted):
    shown = page.locator("tr.selectable").evaluate_all("rows => rows.map((row) => Number(row.dataset.id))")
    assert shown == wanted, (shown[:5], wanted[:5])


def sessions(browser, mock):
    page = browser.open(f"{mock.address}#sessions")
    wait_live(page)

    def same():
        for session in mock.state()["snapshot"]["sessions"]:
            cells = page.locator(f'tr[data-id="{session["id"]}"]').inner_text()
            assert f"{session['calls']}" in cells and f"{session['input_tokens']:,}" in cells, cells
            assert close(number_of(re.search(r"[\d.]+ %", cells)[0]), session["cached_input_tokens"] / session["input_tokens"]), cells

    eventually(same)
    page.click('tr[data-id="session-3"]')
    page.wait_for_selector(".call")

    def calls():
        session = next(session for session in mock.state()["snapshot"]["sessions"] if session["id"] == "session-3")
        assert page.locator(".call").count() == len(session["requests"])

    eventually(calls)


def slos(browser, mock):
    page = browser.open(f"{mock.address}#slos")
    wait_live(page)
    for slo in mock.state()["snapshot"]["slos"]:
        card = page.locator(f'[data-slo="{slo["name"]}"]')
        remaining = card.locator('[data-metric="error_budget_remaining"]').first
        assert close(number_of(remaining.inner_text()), slo["error_budget_remaining"]), remaining.inner_text()
        rates = card.locator('[data-metric="burn_rate"]').all_inner_texts()
        assert len(rates) == len(slo["burn_rate"])
        for shown, wanted in zip(rates, slo["burn_rate"].values()):
            assert shown.startswith("–") if wanted is None else close(number_of(shown), wanted), (shown, wanted)
        text = card.inner_text()
        assert "30 d" in text and "covered" in text
        for row in slo["consumed_by"]:
            assert row["model"] in text and f"{row['bad']}" in text
        for row in slo["excluded_by"]:
            assert card.locator(f'td[title="{row["reason"]}"]').count() == 1, row


def compare(browser, mock):
    page = browser.open(f"{mock.address}#compare")
    wait_live(page)
    page.wait_for_selector(".empty")
    assert "Choose A and B" in page.inner_text(".empty")
    show(page, "compare", a="gpt-4o", b="gpt-4o")
    assert "Choose A and B" in page.inner_text(".empty"), "A equals B"
    show(page, "compare")
    page.select_option('select[data-side="a"]', "gpt-4o")
    assert page.locator('select[data-side="b"] option:text-is("gpt-4o")').get_attribute("disabled") is not None
    page.select_option('select[data-side="b"]', "llama-3.3-70b-instruct")
    page.wait_for_selector(".dist")

    history = History(mock)

    def read():
        rows = page.locator("[data-measure] tr[data-side]")
        return rows.evaluate_all("""rows => rows.map((row) => [row.closest('[data-measure]').dataset.measure, row.dataset.side,
            ...[...row.querySelectorAll('td')].map((cell) => cell.textContent)])""")

    def check(shown, last):
        assert len(shown) == 4, shown
        for measure, side, median, interval, streams in shown:
            model = {"a": "gpt-4o", "b": "llama-3.3-70b-instruct"}[side]
            buckets = merge(values.get(measure) for values in history.intervals(last - 179, last, model))
            low, high = (number_of(part) for part in interval.split(" to "))
            wanted = median_interval(buckets)
            assert close(number_of(median), quantile(buckets, 0.5)), (measure, model, median)
            assert close(low, wanted[0]) and close(high, wanted[1]), (measure, model, interval, wanted)
            assert int(streams.replace(",", "")) == sum(buckets.values()), (measure, model)

    history.compare(page, read, check)


def capacity(browser, mock):
    page = browser.open(f"{mock.address}#engines")
    wait_live(page)
    snapshot = mock.state()["snapshot"]
    engine = snapshot["engines"][0]
    assert f"{engine['running']}" in page.inner_text("tbody") and "98 %" in page.inner_text("tbody")
    show(page, "limits")
    used = page.locator('[data-metric="rate_limit_used"]').evaluate_all("cells => cells.map((cell) => Number(cell.dataset.value))")
    assert used == sorted((limit["used_share"] for limit in snapshot["rate_limits"]), reverse=True)
    assert "near" in page.locator("tbody tr").first.inner_text()
    show(page, "cost")

    history = History(mock)

    def check_cost(shown, last):
        wanted = sum(values.get("cost", 0) for values in history.intervals(last - 179, last, "gpt-4o"))
        assert close(number_of(shown), wanted, 0.001), (shown, wanted)

    history.compare(page, lambda: page.locator("tbody tr", has_text="gpt-4o").first.locator("td").first.inner_text(), check_cost)


def unknown(browser, mock):
    """Without traffic, values are unknown: never 0, never red. Views without content are hidden."""
    page = browser.open(mock.address)
    wait_live(page)
    check_tiles(page, mock.address)
    assert "No traffic yet" in page.inner_text("main")
    for tile in ("error_share", "time_to_first_token_seconds", "worst_burn_rate"):
        value = page.locator(f'.tile[data-tile="{tile}"] .unknown').first
        assert value.get_attribute("title").startswith("Unknown: "), tile
    assert page.locator('.tile[data-tile="cost_per_hour"]').count() == 0, "no price"
    assert page.locator(".tile.critical, .tile.warning, .bad").count() == 0
    views = page.locator("nav a").all_inner_texts()
    assert views == ["Now", "Charts", "Streams", "Requests", "Sessions", "SLOs", "Compare"], views
    for view, text in (("charts", "No traffic"), ("requests", "No request ended"), ("sessions", "No request names a session"), ("slos", "No SLO"), ("streams", "No request is in flight")):
        show(page, view)
        assert text in page.inner_text("main"), view


def gauges(stats):
    routes = stats["routes"]
    open_requests = sum(sum(route["in_flight"].values()) for route in routes)
    return open_requests, sum(route["queue_depth"] for route in routes), sum(route["stalled"] for route in routes)


def real_process(browser, address):
    """Against a process with traffic: the tiles equal the snapshot, and the gauges equal /stats within a tick."""
    page = browser.open(address)
    wait_live(page)
    check_tiles(page, address)

    # Requests come and go between two reports, so each value shown has to lie among those of /stats around it.
    samples, shown = [], []
    for _ in range(40):
        samples.append(gauges(fetch_json(f"{address}stats")))
        shown.append([float(tile_values(page)[1][tile]["raw"]) for tile in ("in_flight", "queue_depth", "stalled")])
        page.wait_for_timeout(100)
    for index, name in enumerate(("in_flight", "queue_depth", "stalled")):
        low, high = min(sample[index] for sample in samples), max(sample[index] for sample in samples)
        spread = max(1, high - low)
        values = sorted(row[index] for row in shown)
        assert low - spread <= values[len(values) // 2] <= high + spread, (name, values, low, high)

    def throughput():
        wanted = fetch_json(f"{address}stats")["total"]["throughput_tokens_per_second"]["output"]["1m"]
        shown = float(tile_values(page)[1]["output_tokens_per_second"]["raw"])
        assert wanted is None or close(shown, wanted, 0.1), (shown, wanted)

    eventually(throughput)
    for view in ("charts", "streams", "requests", "sessions", "slos", "compare"):
        show(page, view)
        page.wait_for_timeout(300)
        assert page.inner_text("main").strip(), view
