"""What happens in the night, in order, and which alerts belong to it."""
import dataclasses

from night.load import Call
from night.scene import LOCAL

# Milliseconds per token, and until the first one.
GAP, FIRST = 20, 150
HOSTED = Call("/hosted", "gpt-4o", GAP, FIRST, 60)
SMALL = Call("/hosted", "gpt-4o-mini", GAP / 2, FIRST, 100, tenant="globex", variant="B")
# Of four at once one waits in the proxy, one in the engine, and two are worked on.
OWN = Call("/local", LOCAL, 25, 100, 50)
WHOLE = Call("/hosted", "gpt-4o", 5, 50, 40, stream=False)

but = dataclasses.replace
NORMAL = [*[HOSTED] * 3, but(HOSTED, tenant="globex"), but(HOSTED, variant="B"), SMALL, SMALL, *[OWN] * 4, WHOLE]


@dataclasses.dataclass(frozen=True)
class Phase:
    """One part of the night. It lasts `least` rule minutes, and as long after that as its alerts take."""

    name: str
    calls: list
    least: float
    # Alerts that must be firing in every store before it is over, and that may.
    fires: tuple = ()
    may: tuple = ()
    # Pairs of alerts: the first silences the second at the Alertmanager.
    inhibits: tuple = ()
    why: str = ""


def faulty(*fates):
    """Normal load of the hosted models in which calls fare so, in turn."""
    return [but(call, fates=fates) if call.stream and call.prefix == "/hosted" else call for call in NORMAL]


def slowed(calls, factor):
    return [but(call, gap_ms=call.gap_ms * factor) if call.stream and call.prefix == "/hosted" else call for call in calls]


# Windows of a day and longer hold all of the night from its beginning on: what they say has no time.
LINGERING = ("LLMErrorBudgetBurnSlow", "LLMObjectiveTooFewEvents", "LLMWorkloadDrift", "LLMCostSpike", "LLMBudgetForecastExceeded")

NIGHT = (
    Phase("normal", NORMAL, 65, why="the hour that later ones are compared with"),
    Phase("longer prompts", [but(call, prompt=1200, ttft_ms=4 * call.ttft_ms) for call in NORMAL], 12,
          may=("LLMTTFTDegraded",), why="slower to begin, and as fast as before: not the model's pace"),
    Phase("another model", [but(call, model="gpt-4-turbo", gap_ms=2.5 * call.gap_ms) if call.model == "gpt-4o" else call
                            for call in NORMAL], 12, may=("LLMTTFTDegraded",), why="a slower model by its own choice"),
    Phase("normal again", NORMAL, 14),
    Phase("slow tokens", slowed(NORMAL, 2), 8, fires=("LLMOutputTPSDrop",), may=("LLMOutputTPSAnomaly",)),
    Phase("recovery", NORMAL, 16, may=("LLMOutputTPSDrop", "LLMOutputTPSAnomaly")),
    Phase("stalls", faulty(None, "stall", None), 12, fires=("LLMStreamsStalled",), may=("LLMOutputTPSDrop", "LLMOutputTPSAnomaly")),
    Phase("provider down", faulty("unavailable", "unavailable", "unavailable", "unavailable", None), 10,
          fires=("LLMProviderDown", "LLMErrorBudgetBurnFast")),
    Phase("down and slow", slowed(faulty("unavailable", "unavailable", None), 3), 8,
          fires=("LLMProviderErrors", "LLMOutputTPSDrop"), inhibits=(("LLMProviderDown", "LLMOutputTPSDrop"),)),
    Phase("rate limits", faulty("limited", None), 10, fires=("LLMRateLimited",)),
    Phase("truncated and aborted", faulty("cut", "abort", None), 12, fires=("LLMStreamsTruncated",)),
    Phase("idle", [], 40),
)
