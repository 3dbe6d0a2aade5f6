"""Generates requests in SQL, and measures time, memory and disk.

The distributions are like those of the simulated engine: lognormal lengths of prompts, 60 to 240 tokens per response, a time to first
token that grows with the prompt, a steady pace with 2 % variation, and a few failures and early ends.
"""

import json
import os
import resource
import subprocess
import time

import engine
import figures

BATCH = 1_000_000
# A report of a month must be faster than this.
ANSWER_SECONDS = 3.0

# Rows of requests, spread over 29 days. Each column depends only on the number of the row. There are 20 tenants with one agent each and
# four models; every fifth tenant compares two variants.
GENERATE = """
INSERT INTO tokengauge.requests
    (started_at, service, trace_id, is_call, outcome, error_source, ending, config_hash, method, path, status, request_bytes, response_bytes,
     user_agent, route, server, tenant, session, variant, provider, model, operation, stream, requested_model, response_model, response_id,
     finish_reasons, background, prompt_bytes, queue_depth, admitted, headers, first_token, last_token, duration, output_tps, itl,
     usage_input, usage_output, usage_cache_read, generated, cost_amount, cost_source, currency, cost_parts, input_length_bucket,
     output_length_bucket, choices)
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
    (0.0075 + 0.00137 * (1 + engine)) * (1 + 0.02 * randNormal(0, 1, number + 1)) AS pace
SELECT
    toDateTime64(toStartOfDay(now('UTC')), 9, 'UTC') - INTERVAL 29 DAY + toIntervalNanosecond(intDiv({first} + number, 1) * {gap}),
    'tokengauge', lower(hex(sipHash128(number + {first}))), true, result, if(result = 'error', 'upstream', 'none'), 'complete',
    'abcdef0123456789', 'POST', '/v1/chat/completions', if(result = 'error', 503, 200), prompt_tokens * 4 + 300, tokens * 180,
    ['claude-cli/2.1.86 (external, cli)', 'OpenAI/Python 2.1.0', 'opencode/1.0', 'curl/8'][1 + team % 4], 'chat', 'llm.example.com',
    concat('team-', toString(team)), concat('s-', toString(intDiv({first} + number, 40))), if(team % 5 = 0, ['a', 'b'][1 + intDiv(h, 13) % 2], ''),
    'openai', ['sim-typical', 'sim-fast', 'sim-slow', 'sim-reasoning'][1 + engine] AS m, 'chat', intDiv(h, 17) % 10 > 0, m, m,
    concat('chatcmpl-', hex(h)), if(result = 'error', [], [if(percent % 10 = 0, 'length', 'stop')]), false, prompt_tokens * 4, h % 8, 0.00001,
    first * 0.9, if(result = 'error', NULL, first), if(result = 'error', NULL, first + tokens * pace),
    if(result = 'error', 0.01, first + tokens * pace + 0.001), if(result = 'ok', 1 / pace, NULL), if(result = 'ok', pace, NULL),
    if(result = 'ok', prompt_tokens, NULL), if(result = 'ok', tokens, NULL), if(result = 'ok', intDiv(prompt_tokens, 2), NULL),
    if(result = 'error', NULL, tokens), if(result = 'error', NULL, prompt_tokens * 1e-6 + tokens * 4e-6),
    if(result = 'ok', 'reported', 'estimated'), if(result = 'error', '', 'USD'),
    if(result = 'error', map(), map('input', prompt_tokens * 1e-6, 'output', tokens * 4e-6)),
    multiIf(prompt_tokens < 128, '<128', prompt_tokens < 512, '128-512', prompt_tokens < 2048, '512-2k', prompt_tokens < 8192, '2k-8k', '8k-32k'),
    if(tokens < 128, '<128', '128-512'), if(result = 'error', map(), map('complete', 1))
FROM numbers({count})
"""


def check(base, binary, count, wrong):
    for table in ("requests", "requests_hourly"):
        base.query(f"TRUNCATE TABLE tokengauge.{table}")
    gap = 29 * 86_400 * 10**9 // count
    began = time.monotonic()
    for first in range(0, count, BATCH):
        base.query(GENERATE.format(first=first, gap=gap, count=min(BATCH, count - first)))
    inserted = time.monotonic() - began
    base.query("OPTIMIZE TABLE tokengauge.requests_hourly FINAL")
    totals = "count(), sum(cost), sum(generated), countIf(outcome = 'ok')"
    hourly = "sum(requests), sum(cost), sum(tokens_generated), sum(ok)"
    raw, sums = base.rows(f"SELECT {totals} FROM tokengauge.requests"), base.rows(f"SELECT {hourly} FROM tokengauge.requests_hourly")
    if raw != sums or int(raw[0][0]) != count:
        wrong.append(f"volume: requests have {raw} and the hourly table {sums}")
    disk = {name: int(size) for name, size in base.rows(
        "SELECT table, sum(bytes_on_disk) FROM system.parts WHERE active AND database = 'tokengauge' GROUP BY table")}
    ((hours,),) = base.rows("SELECT count() FROM tokengauge.requests_hourly")
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
        return
    report = json.loads(done.stdout)
    if report["subjects"][0]["statistics"]["requests"] != count:
        wrong.append(f"volume: the report has {report['subjects'][0]['statistics']['requests']} requests")
    is_hourly = any("hourly figures" in note for note in report.get("notes", []))
    if is_hourly != (count > 1_000_000):
        wrong.append(f"volume: notes {report.get('notes')}")
    if is_hourly and answered > ANSWER_SECONDS:
        wrong.append(f"volume: the report of a month took {answered:.1f} s")
    millions = count / 1e6
    print(
        f"volume: {count} requests inserted in {inserted:.0f} s ({count / inserted:.0f} per second); "
        f"{disk['requests'] / millions / 1e6:.1f} MB of requests and {disk['requests_hourly'] / millions / 1e6:.2f} MB of hourly figures "
        f"per million; {hours} rows in the hourly table; a month by tenant and model in {answered:.2f} s; "
        f"peak memory of engine and test {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB"
    )
