-- One row per request: the fields of the request log that reports and dashboards use. Absent values are NULL, or '' in a
-- column of type String. Times are in seconds. docs/reference/request-log.md describes the fields.
CREATE TABLE IF NOT EXISTS tokengauge.requests
(
    started_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    service LowCardinality(String),
    instance LowCardinality(String),
    trace_id String CODEC(ZSTD(1)),
    -- 0 for plain HTTP requests, which reports leave out.
    is_call Bool,
    outcome LowCardinality(String),
    error_type LowCardinality(String),
    error_source LowCardinality(String),
    ending LowCardinality(String),
    config_hash LowCardinality(String),
    method LowCardinality(String),
    path String CODEC(ZSTD(1)),
    status Nullable(UInt16) CODEC(ZSTD(1)),
    request_bytes UInt64 CODEC(T64, ZSTD(1)),
    response_bytes UInt64 CODEC(T64, ZSTD(1)),
    user_agent String CODEC(ZSTD(1)),
    agent LowCardinality(String),
    agent_version String CODEC(ZSTD(1)),
    -- Attempts of the same operation before this request.
    resend_count Nullable(UInt32) CODEC(T64, ZSTD(1)),
    route LowCardinality(String),
    server LowCardinality(String),
    tenant LowCardinality(String),
    session String CODEC(ZSTD(1)),
    session_source LowCardinality(String),
    sub_agent String CODEC(ZSTD(1)),
    variant LowCardinality(String),
    conversation String CODEC(ZSTD(1)),
    provider LowCardinality(String),
    model LowCardinality(String),
    operation LowCardinality(String),
    stream Nullable(Bool),
    requested_model LowCardinality(String),
    response_model LowCardinality(String),
    response_id String CODEC(ZSTD(1)),
    finish_reasons Array(LowCardinality(String)),
    background Bool,
    prompt_bytes Nullable(UInt64) CODEC(T64, ZSTD(1)),
    max_tokens Nullable(UInt64) CODEC(T64, ZSTD(1)),
    queue_depth Nullable(UInt32) CODEC(T64, ZSTD(1)),
    admitted Nullable(Float64) CODEC(ZSTD(1)),
    headers Nullable(Float64) CODEC(ZSTD(1)),
    first_token Nullable(Float64) CODEC(ZSTD(1)),
    last_token Nullable(Float64) CODEC(ZSTD(1)),
    duration Nullable(Float64) CODEC(ZSTD(1)),
    client_backpressure Float64 CODEC(ZSTD(1)),
    output_tps Nullable(Float64) CODEC(ZSTD(1)),
    itl Nullable(Float64) CODEC(ZSTD(1)),
    stalls UInt32 CODEC(T64, ZSTD(1)),
    stalled Float64 CODEC(ZSTD(1)),
    -- As the provider reports them.
    usage_input Nullable(Float64) CODEC(ZSTD(1)),
    usage_output Nullable(Float64) CODEC(ZSTD(1)),
    usage_reasoning Nullable(Float64) CODEC(ZSTD(1)),
    usage_cache_read Nullable(Float64) CODEC(ZSTD(1)),
    usage_cache_write Nullable(Float64) CODEC(ZSTD(1)),
    usage_cache_write_1h Nullable(Float64) CODEC(ZSTD(1)),
    generated Nullable(Float64) CODEC(ZSTD(1)),
    cost_amount Nullable(Float64) CODEC(ZSTD(1)),
    cost_source LowCardinality(String),
    currency LowCardinality(String),
    -- In USD, as the provider or a gateway reports it.
    reported_cost Nullable(Float64) CODEC(ZSTD(1)),
    cost_parts Map(LowCardinality(String), Float64) CODEC(ZSTD(1)),
    input_length_bucket LowCardinality(String),
    output_length_bucket LowCardinality(String),
    choices Map(LowCardinality(String), UInt64) CODEC(ZSTD(1)),
    slos Map(LowCardinality(String), LowCardinality(String)) CODEC(ZSTD(1)),
    -- The figures of `tokengauge report`, which the columns above define. docs/how-to/reports.md has the definitions. An
    -- estimate replaces tokens that the provider does not report: the size of the prompt in bytes ÷ 4 for the input, and
    -- the tokens that the proxy counts for the output. An output of 0 beside generated text is not a report.
    tokens_output Nullable(Float64) DEFAULT if(usage_output > 0 OR coalesce(generated, 0) = 0, usage_output, NULL)
        CODEC(ZSTD(1)),
    tokens_output_estimated Nullable(Float64)
        DEFAULT if(tokens_output IS NULL AND generated > 0 AND (NOT background OR usage_input IS NOT NULL), generated, NULL)
        CODEC(ZSTD(1)),
    tokens_input_estimated Nullable(Float64)
        DEFAULT if(
            usage_input IS NULL AND (tokens_output IS NOT NULL OR tokens_output_estimated IS NOT NULL),
            ceil(prompt_bytes / 4),
            NULL)
        CODEC(ZSTD(1)),
    -- Rounded to 10⁻¹² of the currency, so that sums are exact in any order.
    cost Nullable(Decimal(38, 12))
        DEFAULT if(
            cost_amount IS NULL,
            NULL,
            reinterpret(
                toInt128(
                    trunc(assumeNotNull(cost_amount) * 1e12)
                    + (assumeNotNull(cost_amount) * 1e12 - trunc(assumeNotNull(cost_amount) * 1e12) >= 0.5)),
                'Decimal(38, 12)'))
        CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(started_at)
ORDER BY (tenant, model, started_at)
TTL toDateTime(started_at) + INTERVAL 30 DAY
SETTINGS ttl_only_drop_parts = 1;

-- The body of the event is a line of the request log. One call of JSONExtract parses it once.
CREATE MATERIALIZED VIEW IF NOT EXISTS tokengauge.requests_from_logs TO tokengauge.requests AS
WITH JSONExtract(Body, 'Tuple(
    time String,
    outcome String,
    error_type String,
    error_source String,
    client_backpressure Float64,
    ending Tuple(kind String),
    config Tuple(hash String),
    trace Tuple(trace_id String),
    http Tuple(
        method String, path String, status Nullable(UInt16), request_bytes UInt64, response_bytes UInt64,
        request_headers Tuple(`user-agent` String)),
    route Tuple(name String),
    identity Tuple(tenant String, session String, session_source String, sub_agent String, variant String),
    agent Tuple(name String, version String),
    attempts Tuple(resend_count Nullable(UInt32)),
    times Tuple(
        admitted Nullable(Float64), response_headers Nullable(Float64), first_token Nullable(Float64),
        last_token Nullable(Float64), end Nullable(Float64)),
    call Tuple(
        queue_depth Nullable(UInt32),
        labels Tuple(
            model String, provider String, operation String, server_address String, stream Nullable(Bool)),
        request Tuple(
            model String, conversation String, prompt_bytes Nullable(UInt64), max_tokens Nullable(UInt64),
            background Bool),
        response Tuple(model String, id String, finish_reasons Array(String)),
        length_buckets Tuple(input String, output String),
        rates Tuple(output Nullable(Float64), time_per_output_token Nullable(Float64)),
        stalls Tuple(count UInt32, total_duration Float64),
        usage Tuple(
            input Nullable(Float64), output Nullable(Float64), reasoning Nullable(Float64),
            cache_read Nullable(Float64), cache_write Nullable(Float64), cache_write_1h Nullable(Float64)),
        output Tuple(tokens Nullable(Float64)),
        reported_cost Nullable(Float64),
        cost Tuple(amount Nullable(Float64), currency String, source String, parts Map(String, Float64)),
        choices Map(String, UInt64),
        slos Map(String, String)))') AS line
SELECT
    parseDateTime64BestEffort(line.time, 9, 'UTC') AS started_at,
    ServiceName AS service,
    ResourceAttributes['service.instance.id'] AS instance,
    line.trace.trace_id AS trace_id,
    JSONHas(Body, 'call') AS is_call,
    line.outcome AS outcome,
    line.error_type AS error_type,
    line.error_source AS error_source,
    line.ending.kind AS ending,
    line.config.hash AS config_hash,
    line.http.method AS method,
    line.http.path AS path,
    line.http.status AS status,
    line.http.request_bytes AS request_bytes,
    line.http.response_bytes AS response_bytes,
    line.http.request_headers.`user-agent` AS user_agent,
    -- Without an agent in the log: the product name in user_agent, such as claude-cli.
    if(
        line.agent.name != '',
        line.agent.name,
        substring(extract(user_agent, '^(?:(?:OpenAI|Anthropic)/[A-Za-z]+|[^/ ]+)'), 1, 64)) AS agent,
    line.agent.version AS agent_version,
    line.attempts.resend_count AS resend_count,
    line.route.name AS route,
    line.call.labels.server_address AS server,
    line.identity.tenant AS tenant,
    line.identity.session AS session,
    line.identity.session_source AS session_source,
    line.identity.sub_agent AS sub_agent,
    line.identity.variant AS variant,
    line.call.request.conversation AS conversation,
    line.call.labels.provider AS provider,
    line.call.labels.model AS model,
    line.call.labels.operation AS operation,
    line.call.labels.stream AS stream,
    line.call.request.model AS requested_model,
    line.call.response.model AS response_model,
    line.call.response.id AS response_id,
    line.call.response.finish_reasons AS finish_reasons,
    line.call.request.background AS background,
    line.call.request.prompt_bytes AS prompt_bytes,
    line.call.request.max_tokens AS max_tokens,
    line.call.queue_depth AS queue_depth,
    line.times.admitted AS admitted,
    line.times.response_headers AS headers,
    line.times.first_token AS first_token,
    line.times.last_token AS last_token,
    line.times.end AS duration,
    line.client_backpressure AS client_backpressure,
    line.call.rates.output AS output_tps,
    line.call.rates.time_per_output_token AS itl,
    line.call.stalls.count AS stalls,
    line.call.stalls.total_duration AS stalled,
    line.call.usage.input AS usage_input,
    line.call.usage.output AS usage_output,
    line.call.usage.reasoning AS usage_reasoning,
    line.call.usage.cache_read AS usage_cache_read,
    line.call.usage.cache_write AS usage_cache_write,
    line.call.usage.cache_write_1h AS usage_cache_write_1h,
    line.call.output.tokens AS generated,
    line.call.cost.amount AS cost_amount,
    line.call.cost.source AS cost_source,
    line.call.cost.currency AS currency,
    line.call.reported_cost AS reported_cost,
    line.call.cost.parts AS cost_parts,
    line.call.length_buckets.input AS input_length_bucket,
    line.call.length_buckets.output AS output_length_bucket,
    line.call.choices AS choices,
    line.call.slos AS slos
FROM tokengauge.otel_logs
WHERE EventName = 'tokengauge.request';
