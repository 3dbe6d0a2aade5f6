"""Checks of alerts, in the stores and at the Alertmanager."""
import collections
import math

from failover.phases import LINGERING, PHASES
from failover.scene import INTERVAL, PIPELINES

# The alert whose delay is measured.
DROP = "LLMOutputTPSAnomaly"


def alerts(stores, tally, data):
    """Checks that each alert is pending, firing and resolved in every store, in its phase and in no other."""
    for pipeline in PIPELINES:
        spans = histories(stores[pipeline], data)
        arrived = {(name, status) for _, by, name, status in data["arrived"] if by == pipeline}
        silenced = {(name, first) for by, name, first in data["silenced"] if by == pipeline}
        for phase, seen in zip(PHASES, data["phases"]):
            for name in phase.fires:
                in_it = [one for one in firing(spans, name) if one[1] <= seen["ended"] + INTERVAL and one[2] >= seen["began"]]
                tally.check(f"{pipeline}: {name} fires in '{phase.name}'", in_it, spans.get(name))
            for first, second in phase.inhibits:
                tally.check(f"{pipeline}: {first} silences {second} at the Alertmanager", (second, first) in silenced, silenced)
        causes(spans, tally, data, pipeline)
        for name in sorted({name for phase in PHASES for name in phase.fires}):
            tally.check(f"{pipeline}: {name} arrives at the Alertmanager", (name, "firing") in arrived, sorted(arrived))
            if name in LINGERING:
                continue
            over = [one[2] for one in firing(spans, name)]
            tally.check(f"{pipeline}: {name} is resolved before the run ends", over and over[-1] < data["ended"] - 2 * INTERVAL, spans.get(name))
            tally.check(f"{pipeline}: the Alertmanager reports that {name} is resolved", (name, "resolved") in arrived, sorted(arrived))


def causes(spans, tally, data, pipeline):
    """Checks that an alert starts firing only in a phase that allows it, or in the next one. Alert windows outlast a phase."""
    allowed = collections.defaultdict(set)
    for earlier, phase in zip((None, *PHASES), PHASES):
        for cause in (earlier, phase):
            allowed[phase.name] |= {*cause.fires, *cause.may} if cause else set()
    for name in spans:
        for _, since, _ in firing(spans, name):
            phase = next((one["name"] for one in reversed(data["phases"]) if one["began"] <= since), "before")
            tally.check(f"{pipeline}: {name} does not fire without a cause", name in LINGERING or name in allowed[phase],
                        f"it started in '{phase}', {since - data['began']:.0f} s after the start")


def page_delay(stores, tally, data):
    """Measures the delay from the drop of the token rate to the alert, in minutes of rule time. The alert is pending for 15 min."""
    slow = next(phase for phase in data["phases"] if DROP in next(one.fires for one in PHASES if one.name == phase["name"]))
    for pipeline in PIPELINES:
        history = histories(stores[pipeline], data).get(DROP, [])
        at = {state: min((one[1] for one in history if one[0] == state and one[1] >= slow["began"]), default=math.inf)
              for state in ("pending", "firing")}
        late = (at["firing"] - slow["began"]) * data["divide"] / 60
        # Delays outside the rule: streams in flight, a scrape, an export, an evaluation, and a busy machine.
        limit = 20 + (STREAM + 3 * INTERVAL + data["latest"]) * data["divide"] / 60
        tally.check(f"{pipeline}: {DROP} is pending before it fires", at["pending"] <= at["firing"], history)
        tally.check(f"{pipeline}: TPS halved alerts within 20 min of rule time", late <= limit, f"{late:.1f} min")
        print(f"     {pipeline}: alerted {late:.1f} min of rule time after the token rate halved", flush=True)


# The duration of a stream of the load, in seconds. A running stream keeps its old token rate.
STREAM = 1.5


def firing(spans, name):
    return [one for one in spans.get(name, ()) if one[0] == "firing"]


def histories(store, data):
    """Returns the states of each alert in order: (state, since, until)."""
    found = store.range("max by (alertname, alertstate) (ALERTS)", data["began"], data["ended"], INTERVAL)
    spans = collections.defaultdict(list)
    for labels, points in found:
        name, state = labels["alertname"], labels["alertstate"]
        since, last = points[0][0], points[0][0]
        for at, _ in points:
            if at - last > 3 * INTERVAL:
                spans[name].append((state, since, last))
                since = at
            last = at
        spans[name].append((state, since, last))
    return {name: sorted(history, key=lambda one: one[1]) for name, history in spans.items()}
