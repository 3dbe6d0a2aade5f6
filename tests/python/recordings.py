"""The recorded responses, each with its truth and the request that it answered."""
import dataclasses
import json
import pathlib

# Framings of streams.
STREAMS = ("sse", "ndjson", "json-array", "aws-eventstream")
# The `error.type` of a truncated response.
CUT = "truncated"


@dataclasses.dataclass(frozen=True)
class Recording:
    """A recorded response, its truth, and the request that it answered."""

    name: str
    truth: dict
    body: dict
    query: str

    @property
    def api(self):
        return self.truth["api"]

    @property
    def model(self):
        return self.truth["model_requested"] or "none"

    @property
    def stream(self):
        return bool(self.truth["stream_requested"])

    @property
    def failed(self):
        return self.truth["status"] >= 400 or bool(self.truth.get("error"))

    @property
    def cut(self):
        return self.truth["status"] < 400 and (self.truth.get("error") or {}).get("type") == CUT

    def without(self, *keys):
        return {key: value for key, value in self.body.items() if key not in keys}


def recordings(shared):
    """Returns every recording, in order."""
    found = []
    for folder in sorted(path for path in (pathlib.Path(shared) / "corpus" / "dev").iterdir() if path.is_dir()):
        request = json.loads((folder / "request.json").read_text())
        try:
            body = json.loads(request["body"] or "{}")
        except json.JSONDecodeError:
            body = {}  # a form
        truth = amended(json.loads((folder / "truth.json").read_text()))
        found.append(Recording(folder.name, truth, body, request.get("query") or ""))
    return found


def amended(truth):
    """Adds facts to the truth that the recording itself contains."""
    usage, raw = truth.get("usage") or {}, truth.get("usage_raw_last") or {}
    # Prompt tokens of built-in tools in an interaction. They are part of the total and of the input.
    if truth["api"] == "gemini.interactions" and raw.get("total_tool_use_tokens"):
        usage["tool_use_prompt_tokens"] = raw["total_tool_use_tokens"]
    # Newer responses of Cohere report reasoning tokens.
    if truth["api"].startswith("cohere.") and (raw.get("tokens") or {}).get("reasoning_tokens"):
        usage["reasoning_tokens"] = raw["tokens"]["reasoning_tokens"]
    # Anthropic bills the sum of these iterations. The recorded truth is the usage of the last one.
    billed = [it for it in raw.get("iterations") or [] if it["type"] in ("compaction", "message")]
    if any(it["type"] == "compaction" for it in billed):
        for kind in ("input_tokens", "output_tokens"):
            usage[kind] = sum(it[kind] for it in billed)
    # A part that exceeds the whole is no report, and the output is then counted.
    if (usage.get("reasoning_tokens") or 0) > (usage.get("output_tokens") or 0) and usage.get("output_includes_reasoning"):
        usage["reasoning_tokens"] = None
        truth["contradictory"] = True
    # Google ends every stream with a finish reason or an error of a known type, unless the prompt was blocked. A stream without either was
    # truncated.
    is_google, is_stream = truth["provider"] in ("gemini", "vertex"), truth["framing"] in STREAMS
    if is_google and is_stream and not (truth["finish_reasons"] or (truth.get("error") or {}).get("type") or "prompt_blocked" in truth["oddities"]):
        truth["error"] = {"type": CUT}
    return truth
