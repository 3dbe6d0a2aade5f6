"""What must hold of what the three stores hold."""
import collections
import dataclasses
import math
import re

from failover import panels
from failover.phases import GAP, HOSTED, OWN
from failover.scene import COLLECTOR, INTERVAL, LOCAL, NATIVE, SCRAPE, WAYS

# The proxy's own that move while nothing goes through it: what is sent and scraped, and the process itself.
RESTLESS = re.compile(r"process_|tokengauge_self_(export|scrapes|delay|memory|cpu)|tokengauge_backend_scrape_age")
# Labels that say where a series is from. They differ by the way that it came.
ORIGIN = {"job", "instance", "cluster", "namespace", "k8s_cluster_name", "k8s_namespace_name"}
# What the Collector's exporter adds: the rest of the resource, and the scope.
RESOURCE = re.compile(r"(service|telemetry|otel_scope|host|process|os|container)_\w+")
# Nothing moves for longer than this at the end: whatever a store heard last in it is final, though the very last scrapes
# may have failed on a machine that was busy with something else.
QUIET = "[60s]"
# Metrics of a scrape itself, and what rules write.
FOREIGN = re.compile(r"(up|scrape_\w+|target_info|ALERTS\w*|sloth_slo_info|.*:.*)$")


def identity(labels):
    """The labels of a series but for where it is from, with bounds as numbers."""
    kept = {key: value for key, value in labels.items() if key not in ORIGIN and not RESOURCE.fullmatch(key)}
    if "le" in kept:
        kept["le"] = float(kept["le"])
    return tuple(sorted(kept.items(), key=str))


def agreement(stores, tally, night):
    """The three ways give the same names, the same labels and, once all is quiet, the same numbers."""
    start, end = night["began"], night["ended"]
    names, keys, numbers = {}, {}, {}
    for way in WAYS:
        keys[way] = collections.defaultdict(set)
        for labels in stores[way].ask("series", **{"match[]": '{job="tokengauge"}', "start": start, "end": end}):
            if not FOREIGN.match(labels["__name__"]):
                keys[way][labels["__name__"]] |= {key for key, _ in identity(labels)}
        names[way] = set(keys[way])
        found = stores[way].now('last_over_time({job="tokengauge",__name__=~".+_(total|bucket|sum|count)"}' + QUIET + ")", end)
        numbers[way] = {identity(labels): value for labels, value in found
                        if not FOREIGN.match(labels["__name__"]) and not RESTLESS.match(labels["__name__"])}
    for way in (COLLECTOR, NATIVE):
        tally.check(f"{way}: the same metrics as {SCRAPE}", names[way] == names[SCRAPE], sorted(names[way] ^ names[SCRAPE]))
        odd = {name: sorted(keys[way][name] ^ keys[SCRAPE][name]) for name in names[way] & names[SCRAPE]
               if keys[way][name] != keys[SCRAPE][name]}
        tally.check(f"{way}: the same labels as {SCRAPE}", not odd, odd)
        tally.check(f"{way}: the same series as {SCRAPE}, once all is quiet", numbers[way].keys() == numbers[SCRAPE].keys(),
                    sorted(numbers[way].keys() ^ numbers[SCRAPE].keys(), key=str)[:6])
        odd = [(key, value, numbers[way][key]) for key, value in numbers[SCRAPE].items()
               if key in numbers[way] and not math.isclose(value, numbers[way][key], rel_tol=1e-9, abs_tol=1e-9)]
        tally.check(f"{way}: every counter and histogram is that of {SCRAPE}, once all is quiet", not odd, odd[:6])
    print(f"     {len(names[SCRAPE])} metrics; {len(numbers[SCRAPE])} counters and buckets compared", flush=True)


# Of the normal load, by what it is called below.
PACE, LOCAL_PACE, REQUESTS, OUTPUT, FIRST_TOKEN, FAILED = "pace", "the engine's pace", "requests", "output", "first token", "failed"
# Dashboard, panel, query, variables, and the truth that it must tell.
PANELS = (
    ("tokengauge-overview", "Requests", "A", panels.ALL, REQUESTS),
    ("tokengauge-overview", "TPS of the system", "A", panels.ALL, OUTPUT),
    ("tokengauge-overview", "TPS per stream", "A", panels.ONE, PACE),
    ("tokengauge-overview", "Failed: them", "A", panels.ALL, FAILED),
    ("tokengauge-overview", "Failed: us", "A", panels.ALL, FAILED),
)


def truth(night):
    """What the backends were told to do and what the client saw, of the end of the normal load: value and tolerance."""
    end = night["phases"][0]["ended"]
    span = min(20, int(end - night["phases"][0]["began"]) - 5)
    ended = [one for one in night["records"] if end - span <= one["ended"] < end]
    return span, {
        PACE: (1000 / GAP, 0.05), LOCAL_PACE: (1000 / OWN.gap_ms, 0.05), REQUESTS: (len(ended) / span, 0.1),
        OUTPUT: (sum(one["output"] for one in ended) / span, 0.1), FAILED: (0, 0),
        # What the machine is late by is in it, too.
        FIRST_TOKEN: (HOSTED.ttft_ms / 1000, 0.2 + night["latest"] / HOSTED.ttft_ms * 1000)}


def truths(stores, tally, night):
    """What the stores say of the normal load, by queries of this check."""
    span, known = truth(night)
    end, window = night["phases"][0]["ended"], f"[{span}s]"
    call = 'gen_ai_request_model="gpt-4o",gen_ai_request_stream="true"'
    local = f'gen_ai_request_model="{LOCAL}"'
    live = ('sum(rate(tokengauge_tokens_total{{{0},gen_ai_token_type="output"}}{1})) / '
            'sum(rate(tokengauge_stream_time_seconds_total{{{0},tokengauge_stream_state="streaming"}}{1}))')
    mean = "sum(rate({0}_sum{{{1}}}{2})) / sum(rate({0}_count{{{1}}}{2}))"
    asked = (
        ("live output TPS of each stream", live.format(call, window), PACE),
        ("output TPS of ended streams", mean.format("tokengauge_request_output_rate_per_second", call, window), PACE),
        ("live output TPS of each of the engine's streams", live.format(local, window), LOCAL_PACE),
        ("requests each second", f"sum(rate(tokengauge_requests_finished_total{window}))", REQUESTS),
        ("output TPS of the system, as counted", f'sum(rate(tokengauge_tokens_total{{gen_ai_token_type="output"}}{window}))', OUTPUT),
        ("output TPS of the system, as reported",
         f'sum(rate(tokengauge_usage_total{{tokengauge_token_kind=~"output|reasoning|hidden"}}{window}))', OUTPUT),
        ("time to first token", mean.format("tokengauge_time_to_seconds", f'{call},tokengauge_point="token"', window), FIRST_TOKEN),
    )
    for way in WAYS:
        for what, query, name in asked:
            found = stores[way].now(query, end)
            told(tally, f"{way}: {what}", [value for _, value in found], known[name])


def told(tally, what, values, known):
    value, tolerance = known
    held = len(values) == 1 and abs(values[0] - value) <= tolerance * value
    tally.check(f"{what} is {value:.4g}, within {tolerance:.0%}", held, values)


def true_panels(check, tally, night):
    """What panels say of the normal load, where that is known."""
    _, known = truth(night)
    by_name = {(query.dashboard, query.panel, query.ref, choice): values for (query, choice), values in check.steady.items()}
    for uid, panel, ref, choice, name in PANELS:
        values = by_name.get((uid, panel, ref, choice), {})
        told(tally, f"{check.store.way}: {uid} · {panel} · {ref} ({choice})", [series[-1] for series in values.values()], known[name])


def totals(stores, tally, night):
    """Whole numbers of the whole night: calls, tokens and failures."""
    records, end = night["records"], night["ended"]
    rejected = lambda one: one["status"] >= 400
    expected = {
        "calls": ("sum(last_over_time(tokengauge_requests_finished_total" + QUIET + "))", len(records)),
        "answers 503": ('sum(last_over_time(tokengauge_requests_finished_total{http_response_status_code="503"}' + QUIET + '))',
                        sum(one["status"] == 503 for one in records)),
        "answers 429": ('sum(last_over_time(tokengauge_requests_finished_total{http_response_status_code="429"}' + QUIET + '))',
                        sum(one["status"] == 429 for one in records)),
        "broken streams": ('sum(last_over_time(tokengauge_requests_finished_total{tokengauge_outcome="truncated"}' + QUIET + '))',
                           sum(one["fate"] == "cut" for one in records)),
        "aborted streams": ('sum(last_over_time(tokengauge_requests_finished_total{tokengauge_outcome="cancelled"}' + QUIET + '))',
                            sum(one["fate"] == "abort" for one in records)),
        "output tokens as reported": ("sum(last_over_time(gen_ai_client_inference_usage_output_tokens_total" + QUIET + "))",
                                      sum(one["output"] for one in records if not rejected(one))),
        "input tokens as reported": ("sum(last_over_time(gen_ai_client_inference_usage_input_tokens_total" + QUIET + "))",
                                     sum(one["input"] for one in records if not rejected(one))),
    }
    for way in WAYS:
        for what, (query, truth) in expected.items():
            found = stores[way].now(query, end)
            tally.check(f"{way}: {what} of the night", [value for _, value in found] == [truth], f"{found}, not {truth}")


# Rates of what goes on while nothing goes through the proxy.
STEADY = re.compile(r"process_|tokengauge_self_|scrape")


def alike(checks, tally):
    """Every query says the same of the normal load in every store: the same series, and the same numbers but for when each
    was written down. `checks` by the way."""
    for key, told in checks[SCRAPE].steady.items():
        for way in (COLLECTOR, NATIVE):
            other = checks[way].steady.get(key, {})
            where = f"{way}: {key[0]} ({key[1]})"
            tally.check(f"{where}: the same series as {SCRAPE}", other.keys() == told.keys() or FLEETING.search(key[0].text), sorted(other.keys() ^ told.keys(), key=str)[:4])
            # What is told in events is so many of them: of one that is rare a window holds one more, or twice as many.
            rate = 60 * EVENTS / checks[SCRAPE].interval if key[0].text.startswith("60 *") else 0.05
            least = EVENTS if "increase(" in key[0].text else rate
            odd = {one: (value, other[one]) for one, value in told.items() if one in other and not near(value, other[one], least)}
            tally.check(f"{where}: numbers as {SCRAPE} has them", not odd or MOMENTARY.search(key[0].text), list(odd.items())[:3])


# Gauges of the moment, which the three ways look at in different moments; and what is rare enough to be seen by one only.
MOMENTARY = re.compile(r"active_requests|queue_depth|backend_|idle|self_|process_|stall|quota_|scrape|timestamp|time\(")


# Told for a moment only.
FLEETING = re.compile(r"quota_reset|stream_idle")


# By so many events windows of different beginnings may differ.
EVENTS = 3
# How many intervals it takes at most until a number is in a store: it is pushed, and scraped from the Collector.
LATE = 3


def near(ours, theirs, least):
    """Within a fifth, or within `least`, at any of the last instants: what moves has moved on until another store has it, and
    windows of different beginnings hold a call more or less."""
    (low, high), (lower, higher) = sorted(((min(ours), max(ours)), (min(theirs), max(theirs))))
    return lower <= high or math.isclose(high, lower, rel_tol=0.2, abs_tol=least)


@dataclasses.dataclass(frozen=True)
class MayBeEmpty:
    """A panel, or one query of it, that shows nothing in the night, and why."""

    dashboard: str
    panel: str
    why: str
    query: str = ""
    # With which variables; with both where it is not said.
    choice: str = ""
    # Whether it is another machine's to show something.
    depends: bool = False

    def fits(self, query, choice):
        return bool(self.choice in ("", choice) and re.fullmatch(self.dashboard, query.dashboard) and re.fullmatch(self.panel, query.panel)
                    and re.search(self.query, query.text))


class PanelCheck:
    """Every panel of every dashboard in one store."""

    def __init__(self, store, night, tally, interval, exceptions):
        self.store, self.night, self.tally, self.interval, self.exceptions = store, night, tally, interval, exceptions
        self.used = set()
        # What each query said in the last instants of the normal load: the values of each series that was there at its end.
        self.steady = {}

    def all(self, dashboards):
        loaded = [phase for phase in self.night["phases"] if phase["name"] != "idle"]
        busy, idle = [phase["ended"] for phase in loaded], self.night["ended"]
        for dashboard in dashboards.values():
            for choice in (panels.ALL, panels.ONE):
                variables = panels.Variables(dashboard, self.store, busy[0], busy[-1] - self.night["began"], choice, self.interval)
                self.tally.check(f"{self.store.way}: every variable of {dashboard['uid']} finds values", not variables.without,
                                 variables.without)
                for query in panels.queries(dashboard):
                    self.one(query, variables, choice, busy, idle)
                self.tables(dashboard, variables, busy[-1])

    def tables(self, dashboard, variables, at):
        """Grafana makes one row of what has the same labels: a query with one more has rows of its own."""
        for panel in (one for one in panels.panels(dashboard) if one["type"] == "table"):
            found = {target["refId"]: self.store.now(variables.fill(target["expr"]), at) for target in panel["targets"]}
            names = {ref: sorted({key for labels, _ in series for key in labels if key != "__name__"}) for ref, series in found.items() if series}
            self.tally.check(f"{self.store.way}: the columns of {dashboard['uid']} · {panel['title']} have the same labels",
                             len({tuple(one) for one in names.values()}) == 1, names)

    def one(self, query, variables, choice, busy, idle):
        where = f"{self.store.way}: {query} ({choice})"
        text = variables.fill(query.text)
        unknown = variables.unknown(query.text)
        if unknown:
            self.tally.check(f"{where}: its variables are there", False, unknown)
            return
        try:
            points = [point for _, series in self.store.range(text, self.night["began"], busy[-1], 5) for point in series]
            at_ends = [value for at in (busy if query.instant else ()) for _, value in self.store.now(text, at)]
            quiet = self.store.now(text, idle)
        except ValueError as error:
            self.tally.check(f"{where}: it can be asked", False, error)
            return
        last = self.store.range(text, busy[0] - LATE * INTERVAL, busy[0], INTERVAL)
        self.steady[query, choice] = {identity(labels): [value for _, value in series] for labels, series in last if series[-1][0] > busy[0] - INTERVAL / 2}
        values = [value for _, value in points] + at_ends
        odd = [value for value in [*values, *(value for _, value in quiet)] if math.isnan(value) or math.isinf(value)]
        self.tally.check(f"{where}: never NaN or infinite", not odd, f"{len(odd)} of {len(values)}: {text}")
        excused = next((rule for rule in self.exceptions if rule.fits(query, choice)), None)
        shown = bool(at_ends if query.instant else points)
        if excused is None:
            self.tally.check(f"{where}: not empty under load", shown, text)
        else:
            self.used.add((excused, shown))
        if "$__rate_interval" in query.text and not STEADY.search(query.text):
            moving = [(labels, value) for labels, value in quiet if abs(value) > 1e-9]
            self.tally.check(f"{where}: empty or 0 when idle", not moving, (moving[:3], text))
