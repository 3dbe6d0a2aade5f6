"""NVIDIA's AIPerf. The definitions are those of `aiperf/metrics/types` in version 0.13.0."""
import json
import pathlib

from .bench import CONCURRENCY, REQUESTS, mean
from .rows import Observed, Row, compare_each, counted, exact, over, until

NAME = "AIPerf"
LEVELS = (("mean", "avg"), ("p50", "p50"))
DEFINITIONS = [
    ("time to first token", "first chunk with text or reasoning − start of the request", "token − accept",
     "AIPerf's value includes connecting and sending the request, and the event loops of the client."),
    ("time to first output token", "first chunk with text − start of the request", "visible − accept", "As above."),
    ("request latency", "last chunk with text or reasoning − start of the request", "end − accept",
     "tokengauge's duration includes the final events of the stream."),
    ("inter-token latency of a request", "(request latency − TTFT) ÷ (OSL − 1)", "(last − token − blocked) ÷ (N − 1)",
     "Equal. With `--per-chunk-usage`, AIPerf subtracts the tokens of the first chunk instead of 1."),
    ("inter-chunk latency", "gap between chunks with text or reasoning", "gap between chunks with text",
     "In tokengauge, reasoning is text too."),
    ("output TPS per user", "1 ÷ inter-token latency = (OSL − 1) ÷ (last − first)", "output TPS: (N − n₁) ÷ (last − token − blocked)",
     "Equal if the first chunk has one token. Else AIPerf's value is higher by (N − 1) ÷ (N − n₁)."),
    ("end-to-end output TPS", "OSL ÷ request latency", "total TPS: N ÷ (end − accept)", "Differs by TTFT and request latency."),
    ("output throughput", "Σ OSL ÷ (last response − first request)", "output tokens ÷ (last end − first accept)", "Equal."),
    ("request throughput", "requests ÷ (last response − first request)", "requests ÷ (last end − first accept)", "Equal."),
    ("OSL", "tokens of the received text, counted by AIPerf with o200k_base", "counted output tokens",
     "Two implementations of the same encoding."),
]


def run(bench, model, options):
    """Returns AIPerf's summary, and its requests with their calls in the request log."""
    folder = bench.folder / "aiperf"
    command = [
        str(pathlib.Path(options.venv) / "bin/aiperf"), "profile", "--model", model, "--url", bench.url,
        "--endpoint-type", "chat", "--streaming", "--tokenizer", "builtin", "--concurrency", str(CONCURRENCY),
        "--request-count", str(REQUESTS), "--input-file", str(bench.prompts("text")), "--custom-dataset-type", "single_turn",
        "--dataset-sampling-strategy", "sequential", "--export-level", "records", "--ui", "none", "--no-gpu-telemetry", "--no-server-metrics",
        "--artifact-dir", str(folder)]
    if options.upstream:
        # The engine counts with its own vocabulary.
        command += ["--use-server-token-count", "--extra-inputs", options.extra]
    bench.run("aiperf", command, {"TIKTOKEN_CACHE_DIR": options.encodings})
    summary = json.loads((folder / "profile_export_aiperf.json").read_text())
    records = [json.loads(line) for line in (folder / "profile_export.jsonl").read_text().splitlines()]
    return summary, records


def observe(records, calls):
    by_id = {call.request_id: call for call in calls}
    observed = []
    for record in records:
        value = {name: one["value"] for name, one in record["metrics"].items()}
        start = record["metadata"]["request_start_ns"] / 1e9
        observed.append(Observed(
            by_id[record["metadata"]["x_request_id"]], value["usage_prompt_tokens"], value["usage_completion_tokens"], start,
            start + value["time_to_first_token"] / 1e3, start + value["time_to_first_output_token"] / 1e3, start + value["request_latency"] / 1e3))
    return observed


def compare(bench, model, options, tally):
    """Returns the rows, the version, and the time between client and proxy."""
    summary, records = run(bench, model, options)
    metrics, report = bench.finish()
    calls = bench.calls()
    tally.check(f"AIPerf, {model}: one call for each request", len(records) == len(calls) == REQUESTS, (len(records), len(calls)))
    observed = observe(records, calls)
    between = compare_each(tally, f"AIPerf, {model}", observed)
    ours, at = report["statistics"], lambda name, key="avg", scale=1e3: summary[name][key] / scale
    each = {event: [(one.since_accept(event), getattr(one.call, event)) for one in observed] for event in ("first", "visible")}
    each["end"] = [(one.since_accept("last"), one.call.end) for one in observed]
    one_chunk = [(one.call.counted - one.call.first_chunk) / (one.call.counted - 1) for one in observed]
    per_request = lambda name, scale=1e3: [record["metrics"][name]["value"] / scale for record in records]
    paired = lambda name, scale, ours: list(zip(per_request(name, scale), [ours(one.call) for one in observed]))
    latency = paired("inter_token_latency", 1e3, lambda call: call.call["rates"]["time_per_output_token"])
    chunks = [(mean(record["metrics"]["inter_chunk_latency"]["value"]) / 1e3,
               (one.call.last - one.call.first) / len(record["metrics"]["inter_chunk_latency"]["value"])) for record, one in zip(records, observed)]
    user = paired("output_token_throughput_per_user", 1, lambda call: call.call["rates"]["output"])
    whole = [(one.output / one.since_accept("last"), one.call.call["rates"]["total"]) for one in observed]
    rows = [
        exact("requests", summary["request_count"]["avg"], ours["requests"]),
        exact("input tokens", summary["total_usage_prompt_tokens"]["avg"], ours["tokens"]["input"]),
        exact("output tokens", summary["total_usage_completion_tokens"]["avg"], ours["tokens"]["output"]),
        exact("output tokens, OSL", summary["total_osl"]["avg"], sum(call.output if options.upstream else call.counted for call in calls)),
        *(until(f"time to first token, {key}", at("time_to_first_token", name), ours["ttft"][key], each["first"]) for key, name in LEVELS),
        until("time to first output token, mean", at("time_to_first_output_token"), mean([call.visible for call in calls]), each["visible"]),
        *(until(f"request latency, {key}", at("request_latency", name), ours["duration"][key], each["end"]) for key, name in LEVELS),
        *(Row(f"inter-token latency, {key}", at("inter_token_latency", name), ours["itl"][key], "ms", each=latency) for key, name in LEVELS),
        Row("inter-chunk latency, mean, of the metric", at("inter_chunk_latency"), metrics.mean("tokengauge_inter_chunk_latency_seconds"), "ms", each=chunks),
        exact("inter-chunk latency, number of gaps", summary["inter_chunk_latency"]["count"], metrics.total("tokengauge_inter_chunk_latency_seconds_count")),
        Row("output TPS per user, mean", at("output_token_throughput_per_user", scale=1), ours["output_tps"]["mean"], "tokens/s",
            each=[(judge * factor, rate) for (judge, rate), factor in zip(user, one_chunk)]),
        Row("end-to-end output TPS, mean", at("e2e_output_token_throughput", scale=1), mean([rate for _, rate in whole]), "tokens/s", each=whole),
        over(observed, "output throughput", at("output_token_throughput", scale=1), report["throughput"]["output_tokens"], "tokens/s"),
        over(observed, "request throughput", at("request_throughput", scale=1), report["throughput"]["requests"], "requests/s"),
        *counted(metrics, calls),
    ]
    return rows, summary["aiperf_version"], between


