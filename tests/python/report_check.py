#!/usr/bin/env python3
"""Compares `tokengauge report` with figures that this script computes independently, on a log of a million lines.

Writes a log, which depends only on --seed, and runs the program on it. Then reads the log with Python's JSON reader and computes tables,
steady state and comparison by the definitions in docs/how-to/reports.md. Also measures the program: more than 300 MB of memory or
two minutes of CPU time are a failure.

    tests/python/report_check.py --binary target/release/tokengauge [--lines 1000000]

Only the standard library is used, and no code of the program.
"""

import argparse
import collections
import gzip
import json
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time

MEMORY = 300 * 1024 * 1024
# Three times what a slow machine under load needs. A run that takes longer uses another algorithm.
CPU_SECONDS = 120
ORIGIN = 1_767_261_600  # 2026-01-01T10:00:00Z
BANDS = [(128, "<128"), (512, "128-512"), (2048, "512-2k"), (8192, "2k-8k"), (32768, "8k-32k"), (math.inf, ">=32k")]
METRICS = ["output_tps", "ttft", "itl", "duration"]
LEVELS = {"p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99}
QUALITIES = ["complete", "empty", "refused", "filtered", "tool_json_invalid", "unfinished"]

# As long as a real log line, with fields that the report does not read.
LINE = (
    '{"time":"%s","request_number":%d,"route":{"name":"%s","position":"gateway","server_address":"llm.example.com",'
    '"server_port":443,"stripped_prefix_bytes":3,"inter_token_stall_after":2.0,"first_token_stall_after":30.0,"provider":"openai"},"trace":{"trace_id":'
    '"%032x","server_span_id":"%016x","client_span_id":"%016x"},"http":{"method":"POST","path":"/v1/chat/completions",'
    '"scheme":"https","version":"1.1","proxy_response":false,"request_bytes":18234,"response_bytes":40211,'
    '"request_headers":{"content-type":"application/json","user-agent":"OpenAI/Python 2.1.0"},"response_headers":'
    '{"content-type":"text/event-stream; charset=utf-8","x-request-id":"req_0123456789abcdef"},"host":"127.0.0.1:4000",'
    '"status":200,"client_address":"10.0.0.1:52114"},"times":{"admitted":0.0000021,"request_headers_sent":0.000312,"request_sent":0.000419,'
    '"response_headers":0.0612,"first_byte":0.0613,"first_event":0.0614%s,"end":%r},"stages":{"admission":0.0000021,"connect":0.0003099,'
    '"upload":0.000107,"headers":0.060781,"first_byte":0.0001,"first_event":0.0001,"decode":1.5,"tail":0.0002},'
    '"outcome":"%s","ending":{"kind":"complete"},"error_source":"none","client_backpressure":0.0,"identity":{"tenant":"tenant-%d",'
    '"variant":"%s","session":"session-%d"},"connection":{"reused":true},"call":{"complete":"true","queue_depth":12,'
    '"request":{"prompt_bytes":17011,"tools":false,"max_tokens":2048,"model":"%s","stream":true,"temperature":0.7},'
    '"response":{"streamed":true,"finish_reasons":["%s"],"id":"chatcmpl-0123456789","model":"%s"},"labels":{"model":'
    '"%s","operation":"chat","provider":"openai","route":"%s","server_address":"llm.example.com","server_port":443,'
    '"stream":%s,"position":"gateway"},"rates":{%s},"slos":{"ttft":"good","output_tps":"good"},"output":{"tokens":'
    '%d,"counted":%d,"counted_in_first_chunk":1,"hidden_reasoning":0,"source":"reported","counted_source":"counted","tokenizer":'
    '"o200k_base"},"usage":{"input":%d,"output":%d,"cache_read":%d%s},"choices":{"%s":1}%s}}\n'
)


def stamp(nanos):
    seconds, nanos = divmod(nanos, 10**9)
    days, rest = divmod(seconds, 86_400)
    return "2026-01-%02dT%02d:%02d:%02d.%09dZ" % (days - 20_454 + 1, rest // 3600, rest // 60 % 60, rest % 60, nanos)


def write(folder, lines, seed):
    """Writes the log, with invalid lines among the valid ones. The last lines are compressed in a separate file."""
    rng = random.Random(seed)
    chance = rng.random
    paths = [os.path.join(folder, "requests.jsonl"), os.path.join(folder, "requests.jsonl.1.gz")]
    packed_from = lines - lines // 100
    # The log covers 2.8 hours for any number of lines.
    gap = 10_000 * 10**9 // lines
    with open(paths[0], "w") as plain, gzip.open(paths[1], "wt", compresslevel=1) as packed:
        for n in range(lines):
            out = plain if n < packed_from else packed
            if n % 50_000 == 7:
                out.write('{"time":"2026-01-01T1\n' if n % 100_000 == 7 else "no json at all\n")
                continue
            if n % 1_000 == 11:
                out.write('{"time":"2026-01-01T10:00:00Z","outcome":"ok","times":{"end":0.1},"http":{"path":"/"}}\n')
                continue
            variant = "a" if chance() < 0.5 else "b"
            model = ("gpt-4o", "gpt-4o-mini", 'llama \\"3\\"')[int(chance() * 3)]
            cold = 4.0 if n < lines // 20 else 1.0
            # Long prompts are more common in b, so that only a comparison of similar requests is correct.
            long = chance() < (0.2 if variant == "a" else 0.6)
            inputs = int(600 + chance() * 4_000) if long else int(20 + chance() * 300)
            outputs = int(20 + chance() * chance() * 800)
            rate = (40 + 20 * chance()) * (0.95 if variant == "b" else 1.0)
            first = round((0.05 + inputs / 10_000 + 0.1 * chance()) * cold, 6)
            last = round(first + (outputs - 1) / rate, 6)
            draw = chance()
            outcome = "ok" if draw < 0.96 else "error" if draw < 0.975 else "cancelled" if draw < 0.99 else "truncated"
            stream = chance() < 0.9
            points = ',"first_token":%r,"last_token":%r' % (first, last) if outcome != "error" else ""
            rates = '"output":%r,"time_per_output_token":%r' % (rate, 1 / rate) if stream and outcome != "error" else ""
            start = ORIGIN * 10**9 + n * gap + int(chance() * gap)
            quality = "complete" if chance() < 0.97 else "empty"
            cost = ',"cost":{"amount":%r,"currency":"%s","source":"%s"}' % (
                outputs * 1e-5,
                "USD" if model[0] == "g" else "EUR",
                "estimated" if n % 10 == 4 else "reported",
            )
            route = "main" if chance() < 0.8 else "side"
            out.write(
                LINE
                % (
                    stamp(start), n, route, n, n, n, points, last + 0.001, outcome, int(chance() * 5), variant,
                    n // 20, model, "stop" if chance() < 0.9 else "length", model, model, route,
                    "true" if stream else "false", rates, outputs, outputs, inputs, outputs,
                    inputs // 2, ',"reasoning":%d' % (outputs // 4) if n % 3 == 0 else "", quality,
                    cost if n % 2 == 0 else "",
                )
            )
    return paths


def opened(path):
    return gzip.open(path, "rt") if path.endswith(".gz") else open(path)


def read(paths):
    """Reads the fields that the definitions need, and counts the lines of each kind."""
    rows, counts = [], collections.Counter()
    for path in paths:
        with opened(path) as log:
            for text in log:
                counts["read"] += 1
                try:
                    line = json.loads(text)
                except ValueError:
                    counts["unreadable"] += 1
                    continue
                call = line.get("call")
                if call is None:
                    counts["plain"] += 1
                    continue
                counts["calls"] += 1
                rows.append(row(line, call))
    return rows, counts


def row(line, call):
    day = int(line["time"][8:10])
    clock = line["time"][11:-1]
    seconds, nanos = clock.split(".")
    hour, minute, second = map(int, seconds.split(":"))
    start = (((20_454 + day - 1) * 24 + hour) * 60 + minute) * 60 + second
    points, usage, ok = line["times"], call["usage"], line["outcome"] == "ok"
    streams = call["labels"]["stream"]
    cost = call.get("cost")
    return {
        "start": start * 10**9 + int(nanos),
        "end": points["end"],
        "first": points.get("first_token"),
        "last": points.get("last_token"),
        "outcome": line["outcome"],
        "key": (call["labels"]["model"], line["route"]["name"], line["identity"]["variant"], line["identity"]["tenant"]),
        "variant": line["identity"]["variant"],
        "output_tps": call["rates"].get("output") if ok else None,
        "itl": call["rates"].get("time_per_output_token") if ok else None,
        "ttft": points.get("first_token") if ok and streams else None,
        "duration": points["end"] if ok else None,
        "tokens": {
            "generated": call["output"]["tokens"],
            "input": usage["input"],
            "output": usage["output"],
            "reasoning": usage.get("reasoning"),
            "cached": usage["cache_read"],
        },
        "cost": (cost["currency"], cost["amount"], cost["source"]) if cost else None,
        "finish": next(iter(call["response"].get("finish_reasons", [])), None),
        "quality": next(iter(call["choices"])),
        "bands": (band(usage["input"]), band(call["output"]["tokens"])),
    }


def band(tokens):
    return next(name for above, name in BANDS if tokens < above)


# --- steady state by its definition ----------------------------------------------------------------------------------


def mser5(series):
    means = [sum(series[i : i + 5]) / 5 for i in range(0, len(series) - len(series) % 5, 5)]
    half = len(means) // 2
    best = None
    for cut in range(half + 1):
        rest = means[cut:]
        centre = sum(rest) / len(rest)
        error = sum((x - centre) ** 2 for x in rest) / len(rest) ** 2
        if best is None or error < best[0]:
            best = (error, cut)
    return None if best[1] == half else best[1] * 5


def window(rows):
    """Returns start and end in nanoseconds, or `None` without a steady state."""
    nanos = lambda row, seconds: row["start"] + round(seconds * 1e9)
    begin = min(row["start"] for row in rows)
    end = max(nanos(row, row["end"]) for row in rows)
    count = min(max(len(rows) // 10, 100), 500) // 5 * 5
    width = -(-(end - begin) // count)
    tokens, firsts = [0.0] * count, [[] for _ in range(count)]
    for row in rows:
        at = nanos(row, row["first"] or 0.0)
        to = nanos(row, row["last"]) if row["last"] is not None else nanos(row, row["end"])
        spread(tokens, (at - begin) / width, (to - begin) / width, row["tokens"]["generated"])
        if row["outcome"] == "ok":
            firsts[(row["start"] - begin) // width].append(row["first"] if row["first"] is not None else row["end"])
    tail = mser5(tokens[::-1])
    head = mser5(tokens[: count - tail])
    seen = [(place, sum(values) / len(values)) for place, values in enumerate(firsts[: count - tail]) if values]
    late = mser5([mean for _, mean in seen])
    if None in (tail, head, late):
        return None
    late = seen[late][0] if late else 0
    return begin + max(head, late) * width, begin + (count - tail) * width if tail else math.inf, end


def spread(slices, begin, end, amount):
    """Distributes an amount over slices in proportion to the time in each."""
    first, last = int(begin), min(int(end), len(slices) - 1)
    if first >= last:
        slices[min(first, last)] += amount
        return
    for place in range(first, last + 1):
        upper = end if place == last else place + 1
        slices[place] += amount * (upper - max(begin, place)) / (end - begin)


class Window:
    """The times at which the requests start that the speed figures cover."""

    def __init__(self, begin, until):
        self.begin, self.until = begin, until

    def __contains__(self, start):
        return self.begin <= start < self.until


# --- tables -----------------------------------------------------------------------------------------------------------


def percentile(ascending, level):
    place = (len(ascending) - 1) * level
    low = math.floor(place)
    high = min(low + 1, len(ascending) - 1)
    return ascending[low] * (1 - (place - low)) + ascending[high] * (place - low)


def summary(values):
    if not values:
        return None
    ascending = sorted(values)
    result = {name: percentile(ascending, level) for name, level in LEVELS.items()}
    return {"n": len(values), "mean": math.fsum(values) / len(values), **result}


def statistics(rows, counted):
    """Returns the totals of `rows`, and the speed figures of those among them that started in the window."""
    outcomes = collections.Counter(row["outcome"] for row in rows)
    judged = len(rows) - outcomes["cancelled"]
    result = {"requests": len(rows), "outcomes": dict(outcomes)}
    if judged:
        result["error_rate"] = (outcomes["error"] + outcomes["truncated"]) / judged
    for metric in METRICS:
        found = summary([row[metric] for row in rows if row["start"] in counted and row[metric] is not None])
        if found:
            result[metric] = found
    result["tokens"] = {}
    for kind in ("generated", "input", "output", "reasoning", "cached"):
        known = [row["tokens"][kind] for row in rows if row["tokens"][kind] is not None]
        if known:
            result["tokens"][kind] = sum(known)
    money = collections.defaultdict(list)
    for row in rows:
        if row["cost"]:
            money[row["cost"][0]].append((*row["cost"][1:], row["tokens"]["generated"]))
    if money:
        result["cost"] = {}
    for currency, costs in money.items():
        total = math.fsum(cost for cost, _, _ in costs)
        reported = math.fsum(cost for cost, source, _ in costs if source == "reported")
        result["cost"][currency] = {
            "n": len(costs),
            "total": total,
            "reported": reported,
            "reported_share": reported / total,
            "mean": total / len(costs),
            "per_million_tokens": total / sum(tokens for *_, tokens in costs) * 1e6,
        }
    ended = [row for row in rows if row["outcome"] != "cancelled"]
    finishes = collections.Counter(row["finish"] for row in ended)
    result["finish"] = {"n": len(ended), "shares": {name: times / len(ended) for name, times in finishes.items()}}
    held = collections.Counter(row["quality"] for row in ended)
    result["quality"] = {"n": len(ended), "shares": {name: held[name] / len(ended) for name in QUALITIES}}
    return result


# --- comparison -------------------------------------------------------------------------------------------------------


def compared(rows, metric, share=False):
    """Returns the weighted mean and quantiles of both sides, and the standard error of the difference of the means."""
    strata = collections.defaultdict(lambda: ([], []))
    for row in rows:
        if share:
            if row["outcome"] != "cancelled":
                strata[row["bands"][0]]["ab".index(row["variant"])].append(float(row["outcome"] != "ok"))
        elif row[metric] is not None:
            strata[row["bands"]]["ab".index(row["variant"])].append(row[metric])
    matched = {key: sides for key, sides in strata.items() if min(map(len, sides)) >= 5}
    everything = sum(len(side) for sides in matched.values() for side in sides)
    result, variance = [], 0.0
    for side in (0, 1):
        weighted, mean = [], 0.0
        for sides in matched.values():
            values = sides[side]
            weight = (len(sides[0]) + len(sides[1])) / everything
            centre = math.fsum(values) / len(values)
            mean += weight * centre
            variance += weight**2 * math.fsum((x - centre) ** 2 for x in values) / len(values) ** 2
            weighted += [(value, weight / len(values)) for value in values]
        weighted.sort()
        figures = {"mean": mean}
        for name, level in LEVELS.items():
            reached = 0.0
            for value, weight in weighted:
                reached += weight
                if reached >= level - 1e-9:
                    figures[name] = value
                    break
        result.append(figures)
    counts = [sum(len(sides[side]) for sides in matched.values()) for side in (0, 1)]
    return result, counts, math.sqrt(variance)


# --- agreement --------------------------------------------------------------------------------------------------------

wrong = []
checked = 0


def same(where, found, expected, tolerance=1e-9):
    global checked
    checked += 1
    if isinstance(expected, dict):
        if not isinstance(found, dict) or set(found) != set(expected):
            wrong.append(f"{where}: has {found if not isinstance(found, dict) else sorted(found)}, expected {sorted(expected)}")
            return
        for name in expected:
            same(f"{where}.{name}", found[name], expected[name], tolerance)
    elif isinstance(expected, float):
        if found is None or not math.isclose(found, expected, rel_tol=tolerance, abs_tol=1e-12):
            wrong.append(f"{where}: {found!r}, expected {expected!r}")
    elif found != expected:
        wrong.append(f"{where}: {found!r}, expected {expected!r}")


def check(result, rows, counts):
    for name in ("read", "calls", "plain", "unreadable"):
        same(f"lines.{name}", result["lines"][name], counts[name])
    found = window(rows)
    shown = result["runs"][0]["window"]
    same("window.steady", shown["steady"], found is not None)
    begin, until, end = found or (0, math.inf, 0)
    counted = [row for row in rows if begin <= row["start"] < until]
    same("window.counted", shown["counted"], len(counted))
    same("window.cut_before", shown["cut_before"], sum(row["start"] < begin for row in rows))
    same("window.cut_after", shown["cut_after"], sum(row["start"] >= until for row in rows))
    print(f"steady state: {shown['from']} to {shown['to']}, {shown['cut_before']} cut before, {shown['cut_after']} after")
    in_window = Window(begin, until)
    subjects = {subject["name"]: subject for subject in result["subjects"]}
    for name, chosen in (
        ("all", rows),
        ("A", [row for row in rows if row["variant"] == "a"]),
        ("B", [row for row in rows if row["variant"] == "b"]),
    ):
        same(f"subjects.{name}", subjects[name]["statistics"], statistics(chosen, in_window))
    if found:
        length = (min(until, end) - begin) / 1e9
        same("throughput", subjects["all"]["throughput"]["requests"], len(counted) / length)
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["key"]].append(row)
    names = ("model", "route", "variant", "tenant")
    shown = {tuple(group["key"].get(name) for name in names): group["statistics"] for group in result["groups"]}
    same("groups", sorted(shown), sorted(groups))
    for key, chosen in groups.items():
        same(f"group {key}", shown.get(key), statistics(chosen, in_window))
    measures = {measure["measure"]: measure for measure in result["comparison"]["measures"]}
    for metric in (*METRICS, "error_rate"):
        share = metric == "error_rate"
        agree(measures[metric], metric, *compared(rows if share else counted, metric, share))


def agree(measure, metric, sides, counts, error):
    same(f"{metric}.n", [measure["n_a"], measure["n_b"]], counts)
    for statistic in measure["statistics"]:
        name = statistic["statistic"]
        for side, figures in zip("ab", sides):
            same(f"{metric}.{name}.{side}", statistic[side], figures[name], 1e-7)
        same(f"{metric}.{name}.difference", statistic["difference"]["value"], sides[1][name] - sides[0][name], 1e-6)
    # The interval of a mean is known without resampling: 1.96 standard errors on each side.
    shown = measure["statistics"][0]["difference"]
    width = (shown["high"] - shown["low"]) / (2 * 1.959964 * error)
    if not 0.9 < width < 1.1:
        wrong.append(f"{metric}: the interval is {width:.2f} times as wide as in theory")
    print(f"{metric}: B − A = {shown['value']:.6g}, {shown['low']:.6g} … {shown['high']:.6g}; {width:.3f} of the theoretical width")


def measured(binary, arguments):
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([binary, "report", *arguments], stdout=subprocess.PIPE, check=False)
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"tokengauge report exited with status {done.returncode}")
    # In KiB on Linux, in bytes on macOS. The maximum over all children so far.
    memory = after.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    # Unlike the time that passes, CPU time hardly depends on other programs.
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{' '.join(arguments[2:]) or 'tables'}: {took:.2f} s, {cpu:.2f} s of CPU time, {memory / 1e6:.0f} MB at most")
    if memory > MEMORY:
        wrong.append(f"{memory / 1e6:.0f} MB of memory, {MEMORY / 1e6:.0f} allowed")
    if cpu > CPU_SECONDS:
        wrong.append(f"{cpu:.1f} s of CPU time, {CPU_SECONDS} allowed")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = write(folder, options.lines, options.seed)
        print(f"{options.lines} lines, {sum(map(os.path.getsize, paths)) / 1e6:.0f} MB on disk")
        measured(options.binary, paths)
        compare = ["--compare", "variant=a,variant=b", "--format", "json"]
        result = json.loads(measured(options.binary, [*paths, *compare]))
        check(result, *read(paths))
    for problem in wrong[:40]:
        print(f"WRONG {problem}")
    print(f"{checked} figures compared, {len(wrong)} differ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
