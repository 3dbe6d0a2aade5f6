"""Compares the tables of ClickHouse with `tokengauge report` on the same lines."""

import json
import subprocess

# For each percentile, the ranks between which the t-digest's value must be.
RANKS = {"p5": (0.04, 0.06), "p50": (0.49, 0.51), "p95": (0.945, 0.955), "p99": (0.988, 0.992)}
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
    sums = totals(base)
    if sums.keys() != groups.keys():
        wrong.append(f"exact: groups {sorted(set(sums) ^ set(groups))[:4]} differ")
    for key in sums.keys() & groups.keys():
        wrong += [f"exact: {key}: {text}" for text in differences(sums[key], groups[key])]
    errors = percentiles(base, groups, wrong)
    print(f"exact: {len(groups)} groups equal; largest relative difference of a percentile: {errors}")


def totals(base):
    """Counts and sums per group, from the hourly table."""
    columns = ["sum(requests)"]
    columns += [f"sum({name})" for name in OUTCOMES]
    columns += [f"sum(tokens_{name})" for name in TOKENS]
    columns += [
        f"if(sum({name}_n) > 0, sum({name}_sum) / sum({name}_n), NULL), sum({name}_n)" for name in SPEEDS
    ]
    sql = (
        f"SELECT {', '.join(DIMENSIONS)}, {', '.join(columns)}, toJSONString(sumMap(finish)), sum(quality_n), toJSONString(sumMap(quality)),"
        " toJSONString(sumMap(if(currency = '', map(), map(toString(currency), cost_n))))"
        f" FROM tokengauge.requests_hourly GROUP BY {', '.join(DIMENSIONS)}"
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
    n = sum(map(int, finish.values()))
    if {name: int(times) / n for name, times in finish.items()} != statistics["finish"]["shares"]:
        yield f"finish is {finish}"
    shares = {name: int(times) / quality_n for name, times in quality.items()}
    if shares != {name: share for name, share in statistics["quality"]["shares"].items() if share}:
        yield f"quality is {shares}"
    costs = {currency: (int(cost_n[currency]), float(cost), float(reported)) for currency, cost, reported in row}
    if costs != {name: (cost["n"], cost["total"], cost["reported"]) for name, cost in statistics.get("cost", {}).items()}:
        yield f"cost is {costs}"


def percentiles(base, groups, wrong):
    """Compares the percentiles of the t-digest with exact ones: their rank must be near the level. Returns the largest relative
    difference of each percentile."""
    largest = dict.fromkeys(RANKS, 0.0)
    for name in SPEEDS:
        condition = "outcome = 'ok'" + (" AND stream" if name == "ttft" else "")
        column = "first_token" if name == "ttft" else name
        bounds = ", ".join(f"{low}, {high}" for low, high in RANKS.values())
        exact = base.rows(
            f"SELECT {', '.join(DIMENSIONS)}, arrayStringConcat(quantilesExactInclusive({bounds})({column}), ',') FROM tokengauge.requests"
            f" WHERE is_call AND {condition} AND {column} IS NOT NULL GROUP BY {', '.join(DIMENSIONS)}"
        )
        merged = base.rows(
            f"SELECT {', '.join(DIMENSIONS)}, arrayStringConcat(quantilesTDigestMerge(0.05, 0.5, 0.95, 0.99)({name}), ',')"
            f" FROM tokengauge.requests_hourly GROUP BY {', '.join(DIMENSIONS)}"
        )
        sketch = {tuple(row[:4]): [float(value) for value in row[4].split(",")] for row in merged}
        if len(exact) != len(groups):
            wrong.append(f"exact: {len(exact)} groups with {name} instead of {len(groups)}")
        for row in exact:
            bounds_of = [float(value) for value in row[4].split(",")]
            key = tuple(text.replace('\\"', '"') for text in row[:4])
            for place, level in enumerate(RANKS):
                found, low, high = sketch[tuple(row[:4])][place], bounds_of[2 * place], bounds_of[2 * place + 1]
                # The sketch computes with 32 bits.
                if not low * (1 - 1e-6) <= found <= high * (1 + 1e-6):
                    wrong.append(f"exact: {key} {name} {level}: {found} is not between {low} and {high}")
                expected = groups[key][name][level]
                largest[level] = max(largest[level], abs(found / expected - 1))
    return ", ".join(f"{level} {error:.2%}" for level, error in largest.items())
