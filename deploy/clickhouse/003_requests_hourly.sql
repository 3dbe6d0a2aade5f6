-- Calls per hour. A month of a hundred million calls is a few hundred thousand rows. Sums are exact. Percentiles are
-- t-digests, over successful calls only.
CREATE TABLE IF NOT EXISTS tokengauge.requests_hourly
(
    hour DateTime('UTC') CODEC(DoubleDelta, ZSTD(1)),
    tenant LowCardinality(String),
    model LowCardinality(String),
    provider LowCardinality(String),
    route LowCardinality(String),
    agent LowCardinality(String),
    variant LowCardinality(String),
    -- Of the cost; '' for calls without a cost.
    currency LowCardinality(String),
    requests SimpleAggregateFunction(sum, UInt64),
    ok SimpleAggregateFunction(sum, UInt64),
    error SimpleAggregateFunction(sum, UInt64),
    cancelled SimpleAggregateFunction(sum, UInt64),
    timeout SimpleAggregateFunction(sum, UInt64),
    truncated SimpleAggregateFunction(sum, UInt64),
    rejected SimpleAggregateFunction(sum, UInt64),
    tokens_input SimpleAggregateFunction(sum, Nullable(Float64)),
    tokens_input_estimated SimpleAggregateFunction(sum, Nullable(Float64)),
    tokens_output SimpleAggregateFunction(sum, Nullable(Float64)),
    tokens_output_estimated SimpleAggregateFunction(sum, Nullable(Float64)),
    tokens_generated SimpleAggregateFunction(sum, Nullable(Float64)),
    tokens_reasoning SimpleAggregateFunction(sum, Nullable(Float64)),
    tokens_cached SimpleAggregateFunction(sum, Nullable(Float64)),
    tokens_cache_written SimpleAggregateFunction(sum, Nullable(Float64)),
    tokens_cache_written_1h SimpleAggregateFunction(sum, Nullable(Float64)),
    cost_n SimpleAggregateFunction(sum, UInt64),
    cost SimpleAggregateFunction(sum, Nullable(Decimal(38, 12))),
    -- The part of the cost from tokens that the provider reported.
    cost_reported SimpleAggregateFunction(sum, Nullable(Decimal(38, 12))),
    cost_tokens SimpleAggregateFunction(sum, Float64),
    -- Number of calls with each finish reason of the first choice, and with each result of a choice. Cancelled calls have
    -- none.
    finish SimpleAggregateFunction(sumMap, Map(String, UInt64)),
    quality_n SimpleAggregateFunction(sum, UInt64),
    quality SimpleAggregateFunction(sumMap, Map(String, UInt64)),
    configurations SimpleAggregateFunction(groupUniqArrayArray, Array(String)),
    first_start SimpleAggregateFunction(min, DateTime64(9, 'UTC')),
    last_end SimpleAggregateFunction(max, DateTime64(9, 'UTC')),
    ttft_n SimpleAggregateFunction(sum, UInt64),
    ttft_sum SimpleAggregateFunction(sum, Nullable(Float64)),
    ttft AggregateFunction(quantilesTDigest(0.05, 0.5, 0.95, 0.99), Nullable(Float64)),
    itl_n SimpleAggregateFunction(sum, UInt64),
    itl_sum SimpleAggregateFunction(sum, Nullable(Float64)),
    itl AggregateFunction(quantilesTDigest(0.05, 0.5, 0.95, 0.99), Nullable(Float64)),
    output_tps_n SimpleAggregateFunction(sum, UInt64),
    output_tps_sum SimpleAggregateFunction(sum, Nullable(Float64)),
    output_tps AggregateFunction(quantilesTDigest(0.05, 0.5, 0.95, 0.99), Nullable(Float64)),
    duration_n SimpleAggregateFunction(sum, UInt64),
    duration_sum SimpleAggregateFunction(sum, Nullable(Float64)),
    duration AggregateFunction(quantilesTDigest(0.05, 0.5, 0.95, 0.99), Nullable(Float64))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(hour)
ORDER BY (tenant, model, provider, route, agent, variant, currency, hour)
TTL hour + INTERVAL 25 MONTH
SETTINGS ttl_only_drop_parts = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS tokengauge.requests_hourly_from_requests TO tokengauge.requests_hourly AS
WITH
    outcome = 'ok' AS is_ok,
    if(is_ok AND stream, r.first_token, NULL) AS ok_ttft,
    if(is_ok, r.itl, NULL) AS ok_itl,
    if(is_ok, r.output_tps, NULL) AS ok_output_tps,
    if(is_ok, r.duration, NULL) AS ok_duration,
    outcome != 'cancelled' AND notEmpty(finish_reasons) AS is_finished,
    outcome != 'cancelled' AND notEmpty(choices) AS is_judged,
    mapFilter((name, times) -> times > 0 AND is_judged, choices) AS results,
    mapFilter((name, times) -> name != 'complete' OR length(results) = 1, results) AS qualities
SELECT
    toStartOfHour(started_at) AS hour,
    tenant,
    model,
    provider,
    route,
    -- Clients choose the agent. Any other name is `other`, so that a client cannot fill the table.
    multiIf(
        r.agent IN (
            '', 'claude-cli', 'codex_cli_rs', 'opencode', 'GeminiCLI', 'OpenAI/Python', 'OpenAI/JS', 'Anthropic/Python',
            'Anthropic/JS', 'litellm', 'python-httpx', 'python-requests', 'curl'),
        r.agent,
        'other') AS agent,
    variant,
    currency,
    count() AS requests,
    countIf(outcome = 'ok') AS ok,
    countIf(outcome = 'error') AS error,
    countIf(outcome = 'cancelled') AS cancelled,
    countIf(outcome = 'timeout') AS timeout,
    countIf(outcome = 'truncated') AS truncated,
    countIf(outcome = 'rejected') AS rejected,
    sum(usage_input) AS tokens_input,
    sum(r.tokens_input_estimated) AS tokens_input_estimated,
    sum(r.tokens_output) AS tokens_output,
    sum(r.tokens_output_estimated) AS tokens_output_estimated,
    sum(generated) AS tokens_generated,
    sum(usage_reasoning) AS tokens_reasoning,
    sum(usage_cache_read) AS tokens_cached,
    sum(usage_cache_write) AS tokens_cache_written,
    sum(usage_cache_write_1h) AS tokens_cache_written_1h,
    count(r.cost) AS cost_n,
    sum(r.cost) AS cost,
    sumIf(r.cost, cost_source = 'reported') AS cost_reported,
    sumIf(coalesce(generated, 0), r.cost IS NOT NULL) AS cost_tokens,
    sumMap(mapFromArrays(
        if(is_finished, [toString(finish_reasons[1])], []), if(is_finished, [toUInt64(1)], []))) AS finish,
    countIf(is_judged) AS quality_n,
    sumMap(mapFromArrays(
        arrayMap(name -> toString(name), mapKeys(qualities)), arrayMap(name -> toUInt64(1), mapKeys(qualities)))) AS quality,
    groupUniqArrayIf(16)(toString(config_hash), config_hash != '') AS configurations,
    min(started_at) AS first_start,
    max(addNanoseconds(started_at, toInt64(round(coalesce(r.duration, 0) * 1e9)))) AS last_end,
    count(ok_ttft) AS ttft_n,
    sum(ok_ttft) AS ttft_sum,
    quantilesTDigestState(0.05, 0.5, 0.95, 0.99)(ok_ttft) AS ttft,
    count(ok_itl) AS itl_n,
    sum(ok_itl) AS itl_sum,
    quantilesTDigestState(0.05, 0.5, 0.95, 0.99)(ok_itl) AS itl,
    count(ok_output_tps) AS output_tps_n,
    sum(ok_output_tps) AS output_tps_sum,
    quantilesTDigestState(0.05, 0.5, 0.95, 0.99)(ok_output_tps) AS output_tps,
    count(ok_duration) AS duration_n,
    sum(ok_duration) AS duration_sum,
    quantilesTDigestState(0.05, 0.5, 0.95, 0.99)(ok_duration) AS duration
FROM tokengauge.requests AS r
WHERE is_call AND outcome IN ('ok', 'error', 'cancelled', 'timeout', 'truncated', 'rejected')
GROUP BY hour, tenant, model, provider, route, agent, variant, currency;
