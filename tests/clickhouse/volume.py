"""Generates requests in SQL, and measures time, memory and disk.

A million requests are stored, to measure their size. For the figures of a month, the requests of its first day go through a
table with the engine Null, by the SQL of deploy/clickhouse. The other days get copies of the hours of this day. Single requests
of the month would need 11 GB of disk and hours.

The distributions are like those of the simulated engine: lognormal lengths of prompts, 60 to 240 tokens per response, a time to first
token that grows with the prompt, a steady pace with 2 % variation, and a few failures and early ends.
"""

import json
import os
import resource
import subprocess
import time

import engine

BATCH = 1_000_000
STORED = 1_000_000
DAYS = 29
# A report of a month must be faster than this. Other work of the machine can delay one answer, so up to three are measured.
ANSWER_SECONDS, ANSWERS = 3.0, 3

# The columns that the figures do not read.
UNREAD = (
    "trace_id, error_source, ending, method, path, status, request_bytes, response_bytes, user_agent, server, session, operation, "
    "requested_model, response_model, response_id, prompt_bytes, queue_depth, admitted, headers, last_token, cost_parts, "
    "input_length_bucket, output_length_bucket"
)

# Rows of requests, spread over 29 days. Each column depends only on the number of the row. There are 20 tenants with one agent each and
# four models; every fifth tenant compares two variants.
GENERATE = """
INSERT INTO tokengauge.{table} ({columns})
WITH
    cityHash64(number) AS h,
    (h % 10000) / 10000 AS u,
    intDiv(h, 10000) % 100 AS percent,
    multiIf(percent < 96, 'ok', percent < 97, 'error', percent < 99, 'cancelled', 'truncated') AS result,
    toUInt64(exp(6.0 + 1.1 * randNormal(0, 1, number))) + 8 AS prompt_tokens,
    60 + intDiv(h, 1000000) % 181 AS tokens,
    intDiv(h, 7) % 4 AS engine,
    intDiv(h, 11) % 20 AS team,
    0.012 + prompt_tokens * 0.0000296 + 0.02 * u AS first,
    (0.0075 + 0.00137 * (1 + engine)) * (1 + 0.02 * randNormal(0, 1, number + 1)) AS pace,
    ['sim-typical', 'sim-fast', 'sim-slow', 'sim-reasoning'][1 + engine] AS engine_name
SELECT {values}
FROM numbers({first}, {count})
"""
VALUES = {
    "started_at": "toDateTime64(toStartOfDay(now('UTC')), 9, 'UTC') - INTERVAL {days} DAY + toIntervalNanosecond(number * {gap})",
    "service": "'tokengauge'",
    "trace_id": "lower(hex(sipHash128(number)))",
    "is_call": "true",
    "outcome": "result",
    "error_source": "if(result = 'error', 'upstream', 'none')",
    "ending": "'complete'",
    "config_hash": "'abcdef0123456789'",
    "method": "'POST'",
    "path": "'/v1/chat/completions'",
    "status": "if(result = 'error', 503, 200)",
    "request_bytes": "prompt_tokens * 4 + 300",
    "response_bytes": "tokens * 180",
    "user_agent": "['claude-cli/2.1.86 (external, cli)', 'OpenAI/Python 2.1.0', 'opencode/1.0', 'curl/8'][1 + team % 4]",
    "route": "'chat'",
    "server": "'llm.example.com'",
    "tenant": "concat('team-', toString(team))",
    "session": "concat('s-', toString(intDiv(number, 40)))",
    "variant": "if(team % 5 = 0, ['a', 'b'][1 + intDiv(h, 13) % 2], '')",
    "provider": "'openai'",
    "model": "engine_name",
    "operation": "'chat'",
    "stream": "intDiv(h, 17) % 10 > 0",
    "requested_model": "engine_name",
    "response_model": "engine_name",
    "response_id": "concat('chatcmpl-', hex(h))",
    "finish_reasons": "if(result = 'error', [], [if(percent % 10 = 0, 'length', 'stop')])",
    "background": "false",
    "prompt_bytes": "prompt_tokens * 4",
    "queue_depth": "h % 8",
    "admitted": "0.00001",
    "headers": "first * 0.9",
    "first_token": "if(result = 'error', NULL, first)",
    "last_token": "if(result = 'error', NULL, first + tokens * pace)",
    "duration": "if(result = 'error', 0.01, first + tokens * pace + 0.001)",
    "output_tps": "if(result = 'ok', 1 / pace, NULL)",
    "itl": "if(result = 'ok', pace, NULL)",
    "usage_input": "if(result = 'ok', prompt_tokens, NULL)",
    "usage_output": "if(result = 'ok', tokens, NULL)",
    "usage_cache_read": "if(result = 'ok', intDiv(prompt_tokens, 2), NULL)",
    "generated": "if(result = 'error', NULL, tokens)",
    "cost_amount": "if(result = 'error', NULL, prompt_tokens * 1e-6 + tokens * 4e-6)",
    "cost_source": "if(result = 'ok', 'reported', 'estimated')",
    "currency": "if(result = 'error', '', 'USD')",
    "cost_parts": "if(result = 'error', map(), map('input', prompt_tokens * 1e-6, 'output', tokens * 4e-6))",
    "input_length_bucket":
        "multiIf(prompt_tokens < 128, '<128', prompt_tokens < 512, '128-512', prompt_tokens < 2048, '512-2k', prompt_tokens < 8192, '2k-8k', '8k-32k')",
    "output_length_bucket": "if(tokens < 128, '<128', '128-512')",
    "choices": "if(result = 'error', map(), map('complete', 1))",
}


def check(base, binary, count, wrong):
    base.truncate()
    stored(base, min(count, STORED), wrong)
    base.truncate()
    base.query("CREATE TABLE tokengauge.generated AS tokengauge.requests ENGINE = Null")
    (view,) = [text for text in engine.statements(os.path.join(engine.FOLDER, "003_requests_hourly.sql")) if "MATERIALIZED VIEW" in text]
    view = view.replace("requests_hourly_from_requests", "requests_hourly_from_generated").replace("FROM tokengauge.requests AS", "FROM tokengauge.generated AS")
    base.query(view)
    count = count // DAYS * DAYS
    columns = [name for name in VALUES if name not in UNREAD.split(", ")]
    inserted = generate(base, "generated", columns, count // DAYS, days=1)
    base.query("OPTIMIZE TABLE tokengauge.requests_hourly FINAL")
    base.query("OPTIMIZE TABLE tokengauge.requests_daily FINAL")
    # Of one day, because copies of the same figures need little space.
    size = disk(base)
    began = time.monotonic()
    shifted = ", ".join(f"{name} + toIntervalDay(day) AS {name}" for name in ("hour", "first_start", "last_end"))
    base.query(
        f"INSERT INTO tokengauge.requests_hourly SELECT * EXCEPT day REPLACE ({shifted}) "
        f"FROM (SELECT *, arrayJoin(range(1, {DAYS})) AS day FROM tokengauge.requests_hourly)")
    copied = time.monotonic() - began
    for table in engine.ROLLUPS:
        base.query(f"OPTIMIZE TABLE tokengauge.{table} FINAL")
    totals = [base.rows(f"SELECT sum(requests), sum(cost), sum(tokens_generated), sum(ok) FROM tokengauge.{table}") for table in engine.ROLLUPS]
    if totals[0] != totals[1] or int(totals[0][0][0]) != count:
        wrong.append(f"volume: the tables of figures have {totals}")
    rows = [int(base.rows(f"SELECT count() FROM tokengauge.{table}")[0][0]) for table in engine.ROLLUPS]
    answered = ask(base, binary, count, wrong)
    for _ in range(1, ANSWERS):
        answered = answered if answered <= ANSWER_SECONDS else min(answered, ask(base, binary, count, wrong))
    if answered > ANSWER_SECONDS:
        wrong.append(f"volume: the report of a month took {answered:.1f} s")
    base.query("TRUNCATE TABLE tokengauge.requests_daily")
    from_hours = ask(base, binary, count, wrong)
    print(
        f"volume: {count // DAYS} requests of a day generated in {inserted:.0f} s ({count // DAYS / inserted:.0f} per second), "
        f"and copied to {DAYS} days in {copied:.0f} s; "
        + ", ".join(f"{table}: {size[table] / (count // DAYS):.2f} MB per million and {n} rows" for table, n in zip(engine.ROLLUPS, rows))
        + f"; a month by tenant and model in {answered:.2f} s, and in {from_hours:.2f} s without daily figures; "
        f"peak memory of engine and test {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB"
    )


def generate(base, table, columns, count, days=DAYS):
    """Inserts requests, spread over the first days of the month. Returns the time that the engine took in seconds."""
    gap = days * 86_400 * 10**9 // count
    values = ", ".join(VALUES[name].format(gap=gap, days=DAYS) for name in columns)
    began = time.monotonic()
    for first in range(0, count, BATCH):
        size = min(BATCH, count - first)
        base.query(GENERATE.format(table=table, columns=", ".join(columns), values=values, first=first, count=size))
    return time.monotonic() - began


def stored(base, count, wrong):
    """Stores single requests. The figures have the same sums."""
    inserted = generate(base, "requests", list(VALUES), count)
    sums = base.rows("SELECT count(), sum(cost), sum(generated), countIf(outcome = 'ok') FROM tokengauge.requests")
    for table in engine.ROLLUPS:
        found = base.rows(f"SELECT sum(requests), sum(cost), sum(tokens_generated), sum(ok) FROM tokengauge.{table}")
        if found != sums or int(sums[0][0]) != count:
            wrong.append(f"volume: requests have {sums} and {table} {found}")
    print(f"volume: {count} requests stored in {inserted:.0f} s ({count / inserted:.0f} per second); {disk(base)['requests'] / count:.1f} MB per million")


def disk(base):
    """Bytes of each table."""
    sizes = base.rows("SELECT table, sum(bytes_on_disk) FROM system.parts WHERE active AND database = 'tokengauge' GROUP BY table")
    return {name: int(size) for name, size in sizes}


def ask(base, binary, count, wrong):
    """Asks for a report of the month. Returns the time of the answer in seconds."""
    server = base.serve()
    secrets = {**os.environ, "CLICKHOUSE_USER": engine.USER, "CLICKHOUSE_PASSWORD": engine.PASSWORD}
    # Without an --until, the current hour would be part of the answer.
    command = [binary, "report", "--clickhouse", f"http://{server.address}", "--since", "30d", "--by", "tenant,model", "--format", "json"]
    began = time.monotonic()
    done = subprocess.run(command, env=secrets, capture_output=True, text=True, check=False)
    answered = time.monotonic() - began
    server.shutdown()
    if done.returncode:
        wrong.append(f"volume: report exited with {done.returncode}: {done.stderr}")
        return answered
    report = json.loads(done.stdout)
    if report["subjects"][0]["statistics"]["requests"] != count:
        wrong.append(f"volume: the report has {report['subjects'][0]['statistics']['requests']} requests")
    if not any("hourly figures" in note for note in report.get("notes", [])):
        wrong.append(f"volume: notes {report.get('notes')}")
    return answered
