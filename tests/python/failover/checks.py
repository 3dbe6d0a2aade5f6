"""Checks of the data in the three stores."""
import collections
import dataclasses
import math
import re

from failover import panels
from failover.phases import GAP, HOSTED, OWN
from failover.scene import COLLECTOR, INTERVAL, LOCAL, NATIVE, SCRAPE, PIPELINES

# The proxy's own metrics that change without traffic: exports, scrapes, and the process itself.
RESTLESS = re.compile(r"process_|tokengauge_self_(export|scrapes|scheduling_delay|memory|cpu)|tokengauge_backend_scrape_age")
# Labels for the origin of a series. They differ by pipeline.
ORIGIN = {"job", "instance", "cluster", "namespace", "k8s_cluster_name", "k8s_namespace_name"}
# Labels that the Collector's exporter adds: other resource attributes, and the scope.
RESOURCE = re.compile(r"(service|telemetry|otel_scope|host|process|os|container)_\w+")
# The quiet interval at the end, in seconds. The latest sample in it is final, even if the very last scrapes fail on a busy machine.
QUIET = "[60s]"
# Metrics of the scrape itself, and series that rules record.
FOREIGN = re.compile(r"(up|scrape_\w+|target_info|ALERTS\w*|sloth_slo_info|.*:.*)$")


def identity(labels):
    """Returns the labels of a series without its origin, with bucket bounds as numbers."""
    kept = {key: value for key, value in labels.items() if key not in ORIGIN and not RESOURCE.fullmatch(key)}
    if "le" in kept:
        kept["le"] = float(kept["le"])
    return tuple(sorted(kept.items(), key=str))


def agreement(stores, tally, data):
    """Checks that the three pipelines give the same names, the same labels and, once traffic has stopped, the same numbers."""
    start, end = data["began"], data["ended"]
    names, keys, numbers = {}, {}, {}
    for pipeline in PIPELINES:
        keys[pipeline] = collections.defaultdict(set)
        for labels in stores[pipeline].ask("series", **{"match[]": '{job="tokengauge"}', "start": start, "end": end}):
            if not FOREIGN.match(labels["__name__"]):
                keys[pipeline][labels["__name__"]] |= {key for key, _ in identity(labels)}
        names[pipeline] = set(keys[pipeline])
        found = stores[pipeline].now('last_over_time({job="tokengauge",__name__=~".+_(total|bucket|sum|count)"}' + QUIET + ")", end)
        numbers[pipeline] = {identity(labels): value for labels, value in found
                        if not FOREIGN.match(labels["__name__"]) and not RESTLESS.match(labels["__name__"])}
    for pipeline in (COLLECTOR, NATIVE):
        tally.check(f"{pipeline}: the same metrics as {SCRAPE}", names[pipeline] == names[SCRAPE], sorted(names[pipeline] ^ names[SCRAPE]))
        odd = {name: sorted(keys[pipeline][name] ^ keys[SCRAPE][name]) for name in names[pipeline] & names[SCRAPE]
               if keys[pipeline][name] != keys[SCRAPE][name]}
        tally.check(f"{pipeline}: the same labels as {SCRAPE}", not odd, odd)
        tally.check(f"{pipeline}: the same series as {SCRAPE}, once traffic has stopped", numbers[pipeline].keys() == numbers[SCRAPE].keys(),
                    sorted(numbers[pipeline].keys() ^ numbers[SCRAPE].keys(), key=str)[:6])
        odd = [(key, value, numbers[pipeline][key]) for key, value in numbers[SCRAPE].items()
               if key in numbers[pipeline] and not math.isclose(value, numbers[pipeline][key], rel_tol=1e-9, abs_tol=1e-9)]
        tally.check(f"{pipeline}: every counter and histogram equals that of {SCRAPE}, once traffic has stopped", not odd, odd[:6])
    print(f"     {len(names[SCRAPE])} metrics; {len(numbers[SCRAPE])} counters and buckets compared", flush=True)


# Names of the expected values under normal load.
PACE, LOCAL_PACE, REQUESTS, OUTPUT, FIRST_TOKEN, FAILED = "pace", "the engine's pace", "requests", "output", "first token", "failed"
# Dashboard, panel, query, variables, and the expected value.
PANELS = (
    ("tokengauge-overview", "Request rate", "A", panels.ALL, REQUESTS),
    ("tokengauge-overview", "Total output tokens/s", "A", panels.ALL, OUTPUT),
    ("tokengauge-overview", "Output tokens/s per stream", "A", panels.ONE, PACE),
    ("tokengauge-overview", "Upstream error rate", "A", panels.ALL, FAILED),
    ("tokengauge-overview", "Proxy error rate", "A", panels.ALL, FAILED),
)


def truth(data):
    """Returns the expected values at the end of the normal load, from the backends' settings and the client: value and tolerance."""
    end = data["phases"][0]["ended"]
    span = min(20, int(end - data["phases"][0]["began"]) - 5)
    ended = [one for one in data["records"] if end - span <= one["ended"] < end]
    return span, {
        PACE: (1000 / GAP, 0.05), LOCAL_PACE: (1000 / OWN.gap_ms, 0.05), REQUESTS: (len(ended) / span, 0.1),
        OUTPUT: (sum(one["output"] for one in ended) / span, 0.1), FAILED: (0, 0),
        # The tolerance includes the scheduling delay of this machine.
        FIRST_TOKEN: (HOSTED.ttft_ms / 1000, 0.2 + data["latest"] / HOSTED.ttft_ms * 1000)}


def check_truths(stores, tally, data):
    """Checks the normal load in the stores by queries of this check."""
    span, known = truth(data)
    end, window = data["phases"][0]["ended"], f"[{span}s]"
    call = 'gen_ai_request_model="gpt-4o",gen_ai_request_stream="true"'
    local = f'gen_ai_request_model="{LOCAL}"'
    live = ('sum(rate(tokengauge_tokens_total{{{0},gen_ai_token_type="output"}}{1})) / '
            'sum(rate(tokengauge_stream_active_time_seconds_total{{{0},tokengauge_stream_state="streaming"}}{1}))')
    mean = "sum(rate({0}_sum{{{1}}}{2})) / sum(rate({0}_count{{{1}}}{2}))"
    queries = (
        ("live output TPS of each stream", live.format(call, window), PACE),
        ("output TPS of ended streams", mean.format("tokengauge_request_output_token_rate_per_second", call, window), PACE),
        ("live output TPS of each of the engine's streams", live.format(local, window), LOCAL_PACE),
        ("requests each second", f"sum(rate(tokengauge_requests_finished_total{window}))", REQUESTS),
        ("output TPS of the system, counted by the proxy", f'sum(rate(tokengauge_tokens_total{{gen_ai_token_type="output"}}{window}))', OUTPUT),
        ("output TPS of the system, reported by the provider",
         f'sum(rate(tokengauge_reported_tokens_total{{tokengauge_token_kind=~"output|reasoning|hidden"}}{window}))', OUTPUT),
        ("time to first token", mean.format("tokengauge_time_to_first_token_seconds", call, window), FIRST_TOKEN),
    )
    for pipeline in PIPELINES:
        for what, query, name in queries:
            found = stores[pipeline].now(query, end)
            check_value(tally, f"{pipeline}: {what}", [value for _, value in found], known[name])


def check_value(tally, what, values, known):
    value, tolerance = known
    held = len(values) == 1 and abs(values[0] - value) <= tolerance * value
    tally.check(f"{what} is {value:.4g}, within {tolerance:.0%}", held, values)


def true_panels(check, tally, data):
    """Checks panels with known values under normal load."""
    _, known = truth(data)
    by_name = {(query.dashboard, query.panel, query.ref, choice): values for (query, choice), values in check.steady.items()}
    for uid, panel, ref, choice, name in PANELS:
        values = by_name.get((uid, panel, ref, choice), {})
        check_value(tally, f"{check.store.pipeline}: {uid} · {panel} · {ref} ({choice})", [series[-1] for series in values.values()], known[name])


def totals(stores, tally, data):
    """Checks the totals of the whole run: calls, tokens and failures."""
    records, end = data["records"], data["ended"]
    rejected = lambda one: one["status"] >= 400
    expected = {
        "calls": ("sum(last_over_time(tokengauge_requests_finished_total" + QUIET + "))", len(records)),
        "answers 503": ('sum(last_over_time(tokengauge_requests_finished_total{http_response_status_code="503"}' + QUIET + '))',
                        sum(one["status"] == 503 for one in records)),
        "answers 429": ('sum(last_over_time(tokengauge_requests_finished_total{http_response_status_code="429"}' + QUIET + '))',
                        sum(one["status"] == 429 for one in records)),
        "broken streams": ('sum(last_over_time(tokengauge_requests_finished_total{tokengauge_outcome="truncated"}' + QUIET + '))',
                           sum(one["fault"] == "cut" for one in records)),
        "aborted streams": ('sum(last_over_time(tokengauge_requests_finished_total{tokengauge_outcome="cancelled"}' + QUIET + '))',
                            sum(one["fault"] == "abort" for one in records)),
        "output tokens reported by the provider": ("sum(last_over_time(gen_ai_client_inference_usage_output_tokens_total" + QUIET + "))",
                                      sum(one["output"] for one in records if not rejected(one))),
        "input tokens reported by the provider": ("sum(last_over_time(gen_ai_client_inference_usage_input_tokens_total" + QUIET + "))",
                                     sum(one["input"] for one in records if not rejected(one))),
    }
    for pipeline in PIPELINES:
        for what, (query, truth) in expected.items():
            found = stores[pipeline].now(query, end)
            tally.check(f"{pipeline}: {what} of the whole run", [value for _, value in found] == [truth], f"{found}, not {truth}")


# Rates of activity that continues without traffic.
STEADY = re.compile(r"process_|tokengauge_self_|scrape")


def compare_queries(checks, tally):
    """Checks that every query gives the same series and numbers under normal load in every store, except for sampling times.

    `checks` maps each pipeline to its PanelCheck."""
    for key, reference in checks[SCRAPE].steady.items():
        for pipeline in (COLLECTOR, NATIVE):
            other = checks[pipeline].steady.get(key, {})
            where = f"{pipeline}: {key[0]} ({key[1]})"
            tally.check(f"{where}: the same series as {SCRAPE}", other.keys() == reference.keys() or FLEETING.search(key[0].text), sorted(other.keys() ^ reference.keys(), key=str)[:4])
            # Event counts are integers. For a rare event one window may hold one event more, or twice as many.
            rate = 60 * EVENTS / checks[SCRAPE].interval if key[0].text.startswith("60 *") else 0.05
            least = EVENTS if "increase(" in key[0].text else rate
            odd = {one: (value, other[one]) for one, value in reference.items() if one in other and not near(value, other[one], least)}
            tally.check(f"{where}: the same numbers as {SCRAPE}", not odd or MOMENTARY.search(key[0].text), list(odd.items())[:3])


# Instantaneous gauges, which each pipeline samples at another time, and events so rare that only one pipeline may see them.
MOMENTARY = re.compile(r"active_requests|queue_depth|backend_|idle|self_|process_|stall|rate_limit_|scrape|timestamp|time\(")


# Series that exist only for a moment.
FLEETING = re.compile(r"rate_limit_reset|stream_max_idle_time")


# Windows with different start times may differ by this number of events.
EVENTS = 3
# The maximum of intervals until a number is stored: one for the push, one for the scrape of the Collector.
LATE = 3


def near(ours, theirs, least):
    """Returns whether values agree within a fifth, or within `least`, at any of the last instants.

    Stores sample at different times, and windows with different start times may differ by a call."""
    (low, high), (lower, higher) = sorted(((min(ours), max(ours)), (min(theirs), max(theirs))))
    return lower <= high or math.isclose(high, lower, rel_tol=0.2, abs_tol=least)


@dataclasses.dataclass(frozen=True)
class MayBeEmpty:
    """A panel, or one of its queries, that is expected to be empty in this run, and the reason."""

    dashboard: str
    panel: str
    why: str
    query: str = ""
    # The choice of variables; empty means both.
    choice: str = ""
    # Whether the result depends on the machine.
    depends: bool = False

    def fits(self, query, choice):
        return bool(self.choice in ("", choice) and re.fullmatch(self.dashboard, query.dashboard) and re.fullmatch(self.panel, query.panel)
                    and re.search(self.query, query.text))


class PanelCheck:
    """Checks every panel of every dashboard in one store."""

    def __init__(self, store, data, tally, interval, exceptions):
        self.store, self.data, self.tally, self.interval, self.exceptions = store, data, tally, interval, exceptions
        self.used = set()
        # Results of each query at the last instants of the normal load: the values of each series that existed at its end.
        self.steady = {}

    def all(self, dashboards):
        loaded = [phase for phase in self.data["phases"] if phase["name"] != "idle"]
        busy, idle = [phase["ended"] for phase in loaded], self.data["ended"]
        for dashboard in dashboards.values():
            for choice in (panels.ALL, panels.ONE):
                variables = panels.Variables(dashboard, self.store, busy[0], busy[-1] - self.data["began"], choice, self.interval)
                self.tally.check(f"{self.store.pipeline}: every variable of {dashboard['uid']} has values", not variables.without,
                                 variables.without)
                for query in panels.queries(dashboard):
                    self.one(query, variables, choice, busy, idle)
                self.tables(dashboard, variables, busy[-1])

    def tables(self, dashboard, variables, at):
        """Checks the label sets of tables. Grafana merges rows with equal labels; a query with an extra label would add its own rows."""
        for panel in (one for one in panels.panels(dashboard) if one["type"] == "table"):
            found = {target["refId"]: self.store.now(variables.fill(target["expr"]), at) for target in panel["targets"]}
            names = {ref: sorted({key for labels, _ in series for key in labels if key != "__name__"}) for ref, series in found.items() if series}
            self.tally.check(f"{self.store.pipeline}: the columns of {dashboard['uid']} · {panel['title']} have the same labels",
                             len({tuple(one) for one in names.values()}) == 1, names)

    def one(self, query, variables, choice, busy, idle):
        where = f"{self.store.pipeline}: {query} ({choice})"
        text = variables.fill(query.text)
        unknown = variables.unknown(query.text)
        if unknown:
            self.tally.check(f"{where}: all variables are defined", False, unknown)
            return
        try:
            points = [point for _, series in self.store.range(text, self.data["began"], busy[-1], 5) for point in series]
            at_ends = [value for at in (busy if query.instant else ()) for _, value in self.store.now(text, at)]
            quiet = self.store.now(text, idle)
        except ValueError as error:
            self.tally.check(f"{where}: the query is valid", False, error)
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
