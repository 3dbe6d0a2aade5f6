"""The phases of the run, in order, and the alerts that each one causes."""
import dataclasses

from failover.load import Call
from failover.scene import LOCAL

# Milliseconds per token, and until the first token.
GAP, FIRST = 20, 150
HOSTED = Call("/hosted", "gpt-4o", GAP, FIRST, 60)
SMALL = Call("/hosted", "gpt-4o-mini", GAP / 2, FIRST, 100, tenant="globex", variant="B")
# Of four concurrent requests, one waits in the proxy, one in the engine, and two are processed.
OWN = Call("/local", LOCAL, 25, 100, 50)
NON_STREAMING = Call("/hosted", "gpt-4o", 5, 50, 40, stream=False)

but = dataclasses.replace
NORMAL = [*[HOSTED] * 3, but(HOSTED, tenant="globex"), but(HOSTED, variant="B"), SMALL, SMALL, *[OWN] * 4, NON_STREAMING]


@dataclasses.dataclass(frozen=True)
class Phase:
    """One phase. It lasts `least` minutes of rule time, and then until its alerts fire."""

    name: str
    calls: list
    least: float
    # Alerts that must fire in every store before the phase ends, and alerts that may fire.
    fires: tuple = ()
    may: tuple = ()
    # Pairs of alerts: the first inhibits the second at the Alertmanager.
    inhibits: tuple = ()
    # Whether the phase lasts until no alert fires.
    calms: bool = False
    why: str = ""


def hosted(change, streams=True):
    """Returns the normal load with changed calls of the hosted models."""
    return [change(call) if call.prefix == "/hosted" and (call.stream or not streams) else call for call in NORMAL]


def with_faults(*faults):
    return lambda call: but(call, faults=faults)


# The run has no week of history, so a halved token rate warns and does not page.
DROP, BURN, FAILING = "LLMOutputTPSAnomaly", "LLMErrorBudgetBurnFast", "LLMModelFailing"
DOWN = ("unavailable",) * 12
# Windows of six hours or more cover the whole run, so these alerts may fire late.
LINGERING = ("LLMErrorBudgetBurnSlow", "LLMSLOTooFewEvents", "LLMWorkloadDrift", "LLMOutputTPSAnomaly")

PHASES = (
    Phase("normal", NORMAL, 60, why="the baseline for later phases"),
    Phase("longer prompts", [but(call, prompt=1200, ttft_ms=10 * call.ttft_ms) for call in NORMAL], 12, fires=("LLMTTFTDegraded",),
          why="a slower first token at an unchanged token rate"),
    Phase("another model", [but(call, model="gpt-4-turbo", gap_ms=2.5 * call.gap_ms) if call.model == "gpt-4o" else call
                            for call in NORMAL], 12, why="a slower model"),
    Phase("normal again", NORMAL, 12),
    Phase("slow tokens", hosted(lambda call: but(call, gap_ms=2 * call.gap_ms)), 8, fires=(DROP,), why="the token rate halves, the load does not"),
    Phase("recovery", NORMAL, 14),
    Phase("stalls", hosted(with_faults(None, "stall", None)), 12, fires=("LLMStreamsStalled",), may=(DROP, "LLMModelStalled")),
    Phase("provider down", hosted(with_faults("unavailable"), streams=False), 8, fires=("LLMProviderDown", BURN), may=("LLMProviderErrors", FAILING)),
    Phase("down and slow", hosted(with_faults("unavailable"), streams=False) + [but(HOSTED, gap_ms=3 * GAP, tokens=20, faults=(*DOWN, None))] * 10, 8,
          fires=("LLMProviderDown", "LLMProviderErrors", DROP), may=(FAILING,), inhibits=(("LLMProviderDown", DROP),)),
    # More local calls than the concurrency limit and its queue allow. The proxy itself rejects some.
    Phase("rate limits", hosted(with_faults("limited", "again")) + [OWN] * 6, 10, fires=("LLMRateLimited",),
          may=(BURN, "LLMTTFTDegraded")),
    Phase("truncated and aborted", hosted(with_faults("cut", "abort", None)), 12, fires=("LLMStreamsTruncated",), may=(BURN, FAILING)),
    Phase("idle", [], 40, calms=True),
)
