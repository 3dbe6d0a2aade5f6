"""Compares the tables of ClickHouse with `tokengauge report` on the same lines."""

import bisect
import json
import subprocess

import engine

# For each percentile, its level, and how far the rank of the t-digest's value may be from it, beside one request.
RANKS = {"p5": (0.05, 0.005), "p50": (0.5, 0.01), "p95": (0.95, 0.005), "p99": (0.99, 0.002)}
SPEEDS = ["output_tps", "ttft", "itl", "duration"]
DIMENSIONS = ["model", "route", "variant", "tenant"]
TOKENS = [
    "generated", "input", "input_estimated", "output", "output_estimated", "reasoning", "cached", "cache_written", "cache_written_1h",
]
OUTCOMES = ["ok", "error", "cancelled", "timeout", "truncated", "rejected"]


def report(binary, *arguments, env=None):
    done = subprocess.run(
        [binary, "report", *arguments, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, check=False
    )
    if done.returncode:
        raise RuntimeError(f"report {arguments} exited with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def check(base, binary, path, wrong):
    document = report(binary, path)
    groups = {tuple(group["key"].get(name, "") for name in DIMENSIONS): group["statistics"] for group in document["groups"]}
    for table in engine.ROLLUPS:
        sums = totals(base, table)
        if sums.keys() != groups.keys():
            wrong.append(f"exact: groups {sorted(set(sums) ^ set(groups))[:4]} of {table} differ")
        for key in sums.keys() & groups.keys():
            wrong += [f"exact: {table}: {key}: {text}" for text in differences(sums[key], groups[key])]
        errors = percentiles(base, table, groups, wrong)
        print(f"exact: {len(groups)} groups of {table} equal; largest error of the rank of a percentile, in groups above 1,000: {errors}")


def totals(base, table):
    """Counts and sums per group, from a table of figures."""
    columns = ["sum(requests)"]
    columns += [f"sum({name})" for name in OUTCOMES]
    columns += [f"sum(tokens_{name})" for name in TOKENS]
    columns += [
        f"if(sum({name}_n) > 0, sum({name}_sum) / sum({name}_n), NULL), sum({name}_n)" for name in SPEEDS
    ]
    sql = (
        f"SELECT {', '.join(DIMENSIONS)}, {', '.join(columns)}, toJSONString(sumMap(finish)), sum(quality_n), toJSONString(sumMap(quality)),"
        " toJSONString(sumMap(if(currency = '', map(), map(toString(currency), cost_n))))"
        f" FROM tokengauge.{table} GROUP BY {', '.join(DIMENSIONS)}"
    )
    found = {}
    for row in json.loads(base.query(sql, "JSONCompact"))["data"]:
        found[tuple(row[:4])] = row[4:]
    costs = json.loads(base.query(
        f"SELECT {', '.join(DIMENSIONS)}, currency, toString(sum(cost)), toString(sum(cost_reported))"
        f" FROM tokengauge.report(by = 'month') WHERE currency != '' GROUP BY {', '.join(DIMENSIONS)}, currency", "JSONCompact"))["data"]
    for row in costs:
        found[tuple(row[:4])].append(row[4:])
    return found


def differences(row, statistics):
    row = list(row)
    take = lambda: row.pop(0)
    number = lambda value: None if value is None else float(value)
    expected = statistics["outcomes"]
    if int(take()) != statistics["requests"]:
        yield "requests differ"
    for name in OUTCOMES:
        if int(take()) != expected.get(name, 0):
            yield f"{name} differs"
    for name in TOKENS:
        if (found := number(take())) != statistics["tokens"].get(name):
            yield f"tokens.{name} is {found} and not {statistics['tokens'].get(name)}"
    for name in SPEEDS:
        mean, n = number(take()), int(take())
        summary = statistics.get(name)
        if n != (summary["n"] if summary else 0) or summary and abs(mean / summary["mean"] - 1) > 1e-12:
            yield f"{name}: mean {mean} of {n}, and not {summary}"
    finish, quality_n, quality, cost_n = json.loads(take()), int(take()), json.loads(take()), json.loads(take())
    n, none = sum(map(int, finish.values())), {"shares": {}}
    if {name: int(times) / n for name, times in finish.items()} != statistics.get("finish", none)["shares"]:
        yield f"finish is {finish}"
    shares = {name: int(times) / quality_n for name, times in quality.items()}
    if shares != {name: share for name, share in statistics.get("quality", none)["shares"].items() if share}:
        yield f"quality is {shares}"
    costs = {currency: (int(cost_n[currency]), float(cost), float(reported)) for currency, cost, reported in row}
    if costs != {name: (cost["n"], cost["total"], cost["reported"]) for name, cost in statistics.get("cost", {}).items()}:
        yield f"cost is {costs}"


def percentiles(base, table, groups, wrong):
    """Compares the rank of each percentile of the t-digest with its level. Returns the largest differences."""
    largest = dict.fromkeys(RANKS, 0.0)
    by = ", ".join(DIMENSIONS)
    for name in SPEEDS:
        condition = "outcome = 'ok'" + (" AND stream" if name == "ttft" else "")
        column = "first_token" if name == "ttft" else name
        exact = json.loads(base.query(
            f"SELECT {by}, arraySort(groupArray(assumeNotNull({column}))) FROM tokengauge.requests"
            f" WHERE is_call AND {condition} AND {column} IS NOT NULL GROUP BY {by}", "JSONCompact"))["data"]
        sketches = json.loads(base.query(
            f"SELECT {by}, quantilesTDigestMerge(0.05, 0.5, 0.95, 0.99)({name}) FROM tokengauge.{table} GROUP BY {by}", "JSONCompact"))["data"]
        sketches = {tuple(row[:4]): row[4] for row in sketches}
        expected = {key for key, statistics in groups.items() if name in statistics}
        if {tuple(row[:4]) for row in exact} != expected:
            wrong.append(f"exact: groups with {name} differ")
        for *key, values in exact:
            for (level, (wanted, allowed)), found in zip(RANKS.items(), sketches[tuple(key)]):
                off = rank_error(values, found, wanted)
                if off > allowed + 1 / len(values):
                    wrong.append(f"exact: {key} {name} {level} of {len(values)}: {found} has a rank that is off by {off:.4f}")
                if len(values) > 1_000:
                    largest[level] = max(largest[level], off)
    return ", ".join(f"{level} {off:.3%}" for level, off in largest.items())


def rank_error(values, found, level):
    """How far the rank of `found` among the sorted values is from `level`. The sketch computes with 32 bits."""
    last = max(len(values) - 1, 1)
    low, high = bisect.bisect_left(values, found * (1 - 1e-6)) - 1, bisect.bisect_right(values, found * (1 + 1e-6))
    return max(low / last - level, level - high / last, 0.0)
