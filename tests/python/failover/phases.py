"""What happens in the night, in order, and which alerts belong to it."""
import dataclasses

from failover.load import Call
from failover.scene import LOCAL

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
    # Whether it lasts until no alert fires any more.
    calms: bool = False
    why: str = ""


def hosted(change, streams=True):
    """Normal load, but for calls of the hosted models."""
    return [change(call) if call.prefix == "/hosted" and (call.stream or not streams) else call for call in NORMAL]


def faring(*fates):
    return lambda call: but(call, fates=fates)


DROP, BURN = "LLMOutputTPSDrop", "LLMErrorBudgetBurnFast"
DOWN = ("unavailable",) * 12
# Windows of six hours and more hold all of the night from its beginning on: what they say has no time.
LINGERING = ("LLMErrorBudgetBurnSlow", "LLMObjectiveTooFewEvents", "LLMWorkloadDrift", "LLMOutputTPSAnomaly")

NIGHT = (
    Phase("normal", NORMAL, 60, why="the hour that later ones are compared with"),
    Phase("longer prompts", [but(call, prompt=1200, ttft_ms=10 * call.ttft_ms) for call in NORMAL], 12, fires=("LLMTTFTDegraded",),
          why="slower to begin, and as fast as before: not the model's pace"),
    Phase("another model", [but(call, model="gpt-4-turbo", gap_ms=2.5 * call.gap_ms) if call.model == "gpt-4o" else call
                            for call in NORMAL], 12, why="slower by its nature"),
    Phase("normal again", NORMAL, 12),
    Phase("slow tokens", hosted(lambda call: but(call, gap_ms=2 * call.gap_ms)), 8, fires=(DROP,), why="the pace halves, the load does not"),
    Phase("recovery", NORMAL, 14),
    Phase("stalls", hosted(faring(None, "stall", None)), 12, fires=("LLMStreamsStalled",), may=(DROP,)),
    Phase("provider down", hosted(faring("unavailable"), streams=False), 8, fires=("LLMProviderDown", BURN), may=("LLMProviderErrors",)),
    Phase("down and slow", hosted(faring("unavailable"), streams=False) + [but(HOSTED, gap_ms=3 * GAP, tokens=20, fates=(*DOWN, None))] * 10, 8,
          fires=("LLMProviderDown", "LLMProviderErrors", DROP), inhibits=(("LLMProviderDown", DROP),)),
    # More local calls than the route lets in and lets wait, too: some are turned away by the proxy itself.
    Phase("rate limits", hosted(faring("limited", "again")) + [OWN] * 6, 10, fires=("LLMRateLimited",),
          may=(BURN, "LLMTTFTDegraded")),
    Phase("truncated and aborted", hosted(faring("cut", "abort", None)), 12, fires=("LLMStreamsTruncated",), may=(BURN,)),
    Phase("idle", [], 40, calms=True),
)
