"""What must hold of the alerts of the night: in the stores, and at the Alertmanager."""
import collections
import math

from failover.phases import LINGERING, NIGHT
from failover.scene import INTERVAL, WAYS

# The alert that is timed.
DROP = "LLMOutputTPSDrop"


def alerts(stores, tally, night):
    """Each alert is pending, firing and over in every store, in its phase and in no other."""
    for way in WAYS:
        spans = histories(stores[way], night)
        arrived = {(name, status) for _, by, name, status in night["arrived"] if by == way}
        silenced = {(name, first) for by, name, first in night["silenced"] if by == way}
        for phase, seen in zip(NIGHT, night["phases"]):
            for name in phase.fires:
                in_it = [one for one in firing(spans, name) if one[1] <= seen["ended"] + INTERVAL and one[2] >= seen["began"]]
                tally.check(f"{way}: {name} fires in '{phase.name}'", in_it, spans.get(name))
            for first, second in phase.inhibits:
                tally.check(f"{way}: {first} silences {second} at the Alertmanager", (second, first) in silenced, silenced)
        causes(spans, tally, night, way)
        for name in sorted({name for phase in NIGHT for name in phase.fires}):
            tally.check(f"{way}: {name} reaches the Alertmanager", (name, "firing") in arrived, sorted(arrived))
            if name in LINGERING:
                continue
            over = [one[2] for one in firing(spans, name)]
            tally.check(f"{way}: {name} is over before the night is", over and over[-1] < night["ended"] - 2 * INTERVAL, spans.get(name))
            tally.check(f"{way}: it is told that {name} is over", (name, "resolved") in arrived, sorted(arrived))


def causes(spans, tally, night, way):
    """No alert begins to fire but in a phase that says so, or in the next: windows are longer than a phase is sharp."""
    allowed = collections.defaultdict(set)
    for earlier, phase in zip((None, *NIGHT), NIGHT):
        for cause in (earlier, phase):
            allowed[phase.name] |= {*cause.fires, *cause.may} if cause else set()
    for name in spans:
        for _, since, _ in firing(spans, name):
            phase = next((one["name"] for one in reversed(night["phases"]) if one["began"] <= since), "before")
            tally.check(f"{way}: {name} does not fire without a cause", name in LINGERING or name in allowed[phase],
                        f"it began to in '{phase}', {since - night['began']:.0f} s into the night")


def promptness(stores, tally, night):
    """From the fall of the pace to the page, in minutes as the rules count them."""
    slow = next(phase for phase in night["phases"] if DROP in next(one.fires for one in NIGHT if one.name == phase["name"]))
    for way in WAYS:
        history = histories(stores[way], night).get(DROP, [])
        at = {state: min((one[1] for one in history if one[0] == state and one[1] >= slow["began"]), default=math.inf)
              for state in ("pending", "firing")}
        late = (at["firing"] - slow["began"]) * night["divide"] / 60
        # Of no rule's doing: streams that were under way, a scrape, an export, an evaluation, and a machine that is late.
        patience = 5 + (STREAM + 3 * INTERVAL + night["latest"]) * night["divide"] / 60
        tally.check(f"{way}: {DROP} is pending before it fires", at["pending"] <= at["firing"], history)
        tally.check(f"{way}: TPS halved pages within 5 min of rule time", late <= patience, f"{late:.1f} min")
        print(f"     {way}: paged {late:.1f} min of rule time after the pace halved", flush=True)


# How long a stream of the load takes, in seconds: one that had begun goes on at its old pace.
STREAM = 1.5


def firing(spans, name):
    return [one for one in spans.get(name, ()) if one[0] == "firing"]


def histories(store, night):
    """Of each alert its states in order: (state, since, until)."""
    found = store.range("max by (alertname, alertstate) (ALERTS)", night["began"], night["ended"], INTERVAL)
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
