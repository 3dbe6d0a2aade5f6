"""guidellm of the vLLM project. The definitions are those of `guidellm/schemas/base/request_stats.py` in version 0.8.1."""
import json
import pathlib

from .bench import CONCURRENCY, REQUESTS, mean, median
from .rows import Observed, Row, compare_each, counted, exact, over, until

NAME = "guidellm"
LEVELS = (("mean", "mean", mean), ("p50", "median", median))
DEFINITIONS = [
    ("TTFT", "first chunk with text or reasoning − request headers written", "token − accept",
     "guidellm's value includes the event loop of the client."),
    ("TTFOT (time to first output token)", "first chunk with text − request headers written", "visible − accept", "As above."),
    ("request latency", "end of the response − request headers written", "end − accept", "As above."),
    ("ITL", "Σ (last − first) ÷ Σ (N − 1): each request counts N − 1 times",
     "`tokengauge.inter_token_latency`, recorded once for each token", "Equal. The report's ITL counts each request once."),
    ("TPOT (time per output token)", "(last − request headers written) ÷ N, including the first token",
     "none; computed from the request log as last ÷ N", "tokengauge's time per output token excludes the first token."),
    ("output TPS of a request", "N ÷ request latency", "total TPS: N ÷ (end − accept)", "Equal."),
    ("output tokens per second", "output tokens ÷ (end − start of the benchmark)", "output tokens ÷ (last end − first accept)", "Equal."),
    ("requests per second", "requests ÷ (end − start of the benchmark)", "requests ÷ (last end − first accept)", "Equal."),
]


def run(bench, model, options):
    """Returns guidellm's only benchmark."""
    target = bench.folder / "guidellm.json"
    backend = {"kind": "openai_http", "target": bench.url, "model": model, "extras": {"body": json.loads(options.extra)}}
    command = [
        # -P: the folder of the script has a module of the same name.
        str(pathlib.Path(options.venv) / "bin/python"), "-P", str(pathlib.Path(__file__).with_name("guidellm_without_torch.py")), "run",
        "--backend", json.dumps(backend), "--profile", f"kind=concurrent,streams={CONCURRENCY}",
        "--constraint", f"kind=max_requests,count={REQUESTS}", "--data", f"kind=json_file,path={bench.prompts('prompt')}",
        "--output", f"kind=json,path={target}", "--disable-console-interactive"]
    # One process sends all requests. By default, there is one for each stream, and each of them imports many packages.
    environment = {"GUIDELLM__MAX_WORKER_PROCESSES": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(bench.folder / "huggingface")}
    bench.run("guidellm", command, environment)
    document = json.loads(target.read_text())
    return document["metadata"], document["benchmarks"][0]


def observe(records, calls):
    by_id = {call.response_id: call for call in calls}
    observed = []
    for record in records:
        at = record["info"]["timings"]
        observed.append(Observed(
            by_id[record["response_id"]], record["input_metrics"]["total_tokens"], record["output_metrics"]["total_tokens"],
            at["request_start"], at["first_token_iteration"], at["first_output_token_iteration"], at["last_token_iteration"]))
    return observed


def compare(bench, model, options, tally):
    """Returns the rows, the version, and the time between client and proxy."""
    metadata, benchmark = run(bench, model, options)
    metrics, report = bench.finish()
    calls, records = bench.calls(), benchmark["requests"]["successful"]
    tally.check(f"guidellm, {model}: one call for each request", len(records) == len(calls) == REQUESTS, (len(records), len(calls)))
    observed = observe(records, calls)
    between = compare_each(tally, f"guidellm, {model}", observed)
    ours = report["statistics"]
    theirs = {name: value["successful"] for name, value in benchmark["metrics"].items() if isinstance(value, dict) and "successful" in value}
    at = lambda name, key="mean", scale=1e3: theirs[name][key] / scale
    each = {event: [(one.since_accept(event), getattr(one.call, event)) for one in observed] for event in ("first", "visible")}
    each["end"] = [(one.since_accept("last"), one.call.end) for one in observed]
    latencies = [record["inter_token_latency_ms"] / 1e3 for record in records]
    latency = list(zip(latencies, [one.call.call["rates"]["time_per_output_token"] for one in observed]))
    whole = [(one.output / one.since_accept("last"), one.call.call["rates"]["total"]) for one in observed]
    per_token = [(one.since_accept("last") / one.output, one.call.last / one.call.output) for one in observed]
    rows = [
        exact("requests", len(records), ours["requests"]),
        exact("input tokens", sum(record["prompt_tokens"] for record in records), ours["tokens"]["input"]),
        exact("output tokens", sum(record["output_tokens"] for record in records), ours["tokens"]["output"]),
        *(until(f"TTFT, {key}", at("time_to_first_token_ms", name), ours["ttft"][key], each["first"]) for key, name, _ in LEVELS),
        until("TTFOT, mean", at("time_to_first_output_token_ms"), mean([call.visible for call in calls]), each["visible"]),
        *(until(f"request latency, {key}", at("request_latency", name, 1), ours["duration"][key], each["end"]) for key, name, _ in LEVELS),
        Row("ITL, mean over tokens, of the metric", at("inter_token_latency_ms"), metrics.mean("tokengauge_inter_token_latency_seconds"), "ms", each=latency),
        *(Row(f"ITL of a request, {key}", pick(latencies), ours["itl"][key], "ms", each=latency) for key, _, pick in LEVELS),
        Row("TPOT, mean over tokens", at("time_per_output_token_ms"), sum(call.last for call in calls) / sum(call.output for call in calls), "ms", each=per_token),
        Row("output TPS of a request, mean", mean([record["output_tokens_per_second"] for record in records]), mean([rate for _, rate in whole]), "tokens/s",
            each=whole),
        over(observed, "output tokens per second", at("output_tokens_per_second", scale=1), report["throughput"]["output_tokens"], "tokens/s"),
        over(observed, "requests per second", at("requests_per_second", scale=1), report["throughput"]["requests"], "requests/s"),
        *counted(metrics, calls),
    ]
    return rows, metadata["guidellm_version"], between
