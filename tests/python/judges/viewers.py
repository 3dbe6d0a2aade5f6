"""Where viewers of traces look for the model, tokens, cost and session of a span that follows the GenAI conventions.

Each quantity has the attributes that the viewer reads, in its order. The lists are from the viewers' source:

* Langfuse: packages/shared/src/server/otel/OtelIngestionProcessor.ts (extractModelName, extractUsageDetails, extractCostDetails, extractSessionId)
* Phoenix: src/phoenix/trace/gen_ai/conversion.py, which converts a span to OpenInference
* OpenLIT: src/client/src/constants/traces.ts (TraceMapping)
"""

INPUT, OUTPUT = ["gen_ai.usage.input_tokens"], ["gen_ai.usage.output_tokens"]
CACHE_READ = ["gen_ai.usage.cache_read.input_tokens"]
# The value of each quantity on our span.
OURS = {
    "model": ("gen_ai.request.model",),
    "input tokens": ("gen_ai.usage.input_tokens",),
    "output tokens": ("gen_ai.usage.output_tokens",),
    "cache reads": ("gen_ai.usage.cache_read.input_tokens",),
    "cache writes": ("gen_ai.usage.cache_write.input_tokens",),
    "cost": ("tokengauge.cost.amount",),
    "session": ("tokengauge.session",),
}
VIEWERS = {
    "Langfuse": {
        "model": ["langfuse.observation.model.name", "gen_ai.response.model", "ai.model.id", "gen_ai.request.model", "llm.response.model", "llm.model_name"],
        "input tokens": INPUT, "output tokens": OUTPUT, "cache reads": CACHE_READ,
        # Every attribute below gen_ai.usage. is shown under the rest of its name.
        "cache writes": ["gen_ai.usage.cache_write.input_tokens"],
        "cost": ["langfuse.observation.cost_details", "gen_ai.usage.cost"],
        "session": ["langfuse.session.id", "session.id", "gen_ai.conversation.id"],
    },
    "Phoenix": {
        "model": ["gen_ai.request.model"],
        "input tokens": INPUT, "output tokens": OUTPUT, "cache reads": CACHE_READ,
        "cache writes": ["gen_ai.usage.cache_creation.input_tokens"],
        "cost": [],
        "session": ["gen_ai.conversation.id"],
    },
    "OpenLIT": {
        "model": ["gen_ai.request.model"],
        "input tokens": INPUT, "output tokens": OUTPUT, "cache reads": [], "cache writes": [],
        "cost": ["gen_ai.usage.cost"],
        "session": [],
    },
}
# What is missing in a viewer, and why.
MISSING = {
    ("Langfuse", "cost"): "Langfuse reads `usage.cost` below `gen_ai`, which is not in the conventions. It computes the cost with its own prices.",
    ("Phoenix", "cache writes"): "Phoenix reads the name before version 0.1.0 of the conventions, `usage.cache_creation.input_tokens` below `gen_ai`.",
    ("Phoenix", "cost"): "Phoenix computes the cost with its own prices.",
    ("OpenLIT", "cache reads"): "OpenLIT has no such column.",
    ("OpenLIT", "cache writes"): "OpenLIT has no such column.",
    ("OpenLIT", "cost"): "OpenLIT reads `usage.cost` below `gen_ai`, which is not in the conventions.",
    ("OpenLIT", "session"): "OpenLIT has no such column.",
}


def first(attributes, keys):
    return next((attributes[key] for key in keys if attributes.get(key) is not None), None)


def compare(spans, tally):
    """Compares each viewer's reading of the spans with ours. `spans` are the attributes of CLIENT spans. Returns the rows of the table."""
    rows = []
    for viewer, mapping in VIEWERS.items():
        for quantity, ours in OURS.items():
            present = [span for span in spans if first(span, ours) is not None]
            shown = [span for span in present if first(span, mapping[quantity]) is not None]
            missing = MISSING.get((viewer, quantity))
            tally.check(f"{viewer}: a span has the {quantity}", bool(present))
            tally.check(f"{viewer}: {quantity} {'has no place' if missing else 'of every span is shown'}", len(shown) == (0 if missing else len(present)),
                        f"{len(shown)} of {len(present)}")
            # A viewer that prefers the requested model shows another model if the provider answers with a more exact name.
            if quantity != "model":
                wrong = [span for span in shown if first(span, mapping[quantity]) != first(span, ours)]
                tally.check(f"{viewer}: {quantity} is ours", not wrong, wrong[:1])
            attribute = next((f"`{key}`" for key in mapping[quantity] if any(key in span for span in shown)), "–")
            rows.append([viewer, quantity, attribute, missing or ""])
    return rows
