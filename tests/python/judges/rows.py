"""Rows of the comparison: two values of one quantity, and the largest difference that is accepted."""
import dataclasses

from .bench import mean, median

# The limit of the comparison. Token counts must be equal.
RELATIVE = 0.01
# The event is later for the client than for the proxy: the kernel and the client's event loop are between both.
FLOOR = 0.005
# The clocks of both sides are the same one, but each side reads it after the event.
CLOCK = 0.001


@dataclasses.dataclass
class Row:
    """One quantity of the whole run. `each` has the judge's and tokengauge's value of each request, by tokengauge's definition."""

    quantity: str
    judge: float
    ours: float
    unit: str
    relative: float = RELATIVE
    # Seconds.
    absolute: float = 0.0
    each: list | None = None

    def agrees(self):
        pairs = self.each or [(self.judge, self.ours)]
        # The median, because a busy machine delays single reads of the load generator.
        return abs(median([judge - ours for judge, ours in pairs])) <= max(self.relative * median([abs(ours) for _, ours in pairs]), self.absolute)

    def cells(self):
        each = percent(median([judge / ours for judge, ours in self.each])) if self.each else ""
        difference = "equal" if self.judge == self.ours else percent(self.judge / self.ours)
        return [self.quantity, shown(self.judge, self.unit), shown(self.ours, self.unit), difference, each]


def percent(ratio):
    return f"{(ratio - 1) * 100:+.2f} %"


def exact(quantity, judge, ours):
    return Row(quantity, judge, ours, "", relative=0.0)


def until(quantity, judge, ours, each):
    """A time until an event. The judge's clock starts at the client, and in `each` at accept."""
    return Row(quantity, judge, ours, "ms", absolute=FLOOR, each=each)


def shown(value, unit):
    if unit == "ms":
        return f"{value * 1000:,.2f} ms"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}{' ' + unit if unit else ''}"


@dataclasses.dataclass
class Observed:
    """One request as the judge measured it. Times are seconds since 1970."""

    call: object
    input: int
    output: int
    start: float
    first: float
    visible: float
    last: float

    def since_accept(self, event):
        """Returns the time from accept to the event as the client saw it."""
        return getattr(self, event) - self.call.accept

    def nested(self):
        """Returns whether tokengauge's times lie between the judge's: after the client's start, and before what the client read."""
        call = self.call
        pairs = [(call.first, self.first), (call.visible, self.visible), (call.last, self.last)]
        return self.start <= call.accept + CLOCK and all(call.accept + ours <= judge + CLOCK for ours, judge in pairs)


def over(observed, quantity, judge, ours, unit):
    """A number per second of the whole run. The judge's run begins at the first start of the client, and in `each` at the first accept."""
    end = max(one.last for one in observed)
    ratio = (end - min(one.start for one in observed)) / (end - min(one.call.accept for one in observed))
    return Row(quantity, judge, ours, unit, each=[(judge * ratio, ours)])


def compare_each(tally, name, observed):
    """Checks each request. Returns the times between client and proxy."""
    tally.check(f"{name}: every request has the same input tokens", all(one.input == one.call.input for one in observed))
    tally.check(f"{name}: every request has the same output tokens", all(one.output == one.call.output for one in observed))
    outside = [vars(one) for one in observed if not one.nested()]
    tally.check(f"{name}: the times of every request lie between the client's", not outside, outside[:1])
    return {
        "start": mean([one.call.accept - one.start for one in observed]),
        "first": mean([one.first - one.call.accept - one.call.first for one in observed]),
        "last": mean([one.last - one.call.accept - one.call.last for one in observed]),
    }


def counted(metrics, calls):
    """Compares the metrics with the request log."""
    tokens, latency = "tokengauge_reported_tokens_total", "tokengauge_inter_token_latency_seconds"
    uncached = metrics.total(tokens, 'kind="uncached"') + metrics.total(tokens, 'kind="cache_read"')
    output = sum(metrics.total(tokens, f'kind="{kind}"') for kind in ("output", "reasoning", "hidden"))
    decode = sum(call.last - call.first - call.blocked for call in calls)
    return [
        exact("input tokens, metric and log", uncached, sum(call.input for call in calls)),
        exact("output tokens, metric and log", output, sum(call.output for call in calls)),
        Row("sum of inter-token latencies, metric and log", metrics.total(f"{latency}_sum"), decode, "s", relative=0.001),
    ]
