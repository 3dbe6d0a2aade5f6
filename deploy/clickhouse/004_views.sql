-- The figures of `tokengauge report` from the hourly table, with the names of its CSV output, by 'hour', 'day' or 'month':
-- SELECT tenant, sum(cost) FROM tokengauge.report(by = 'month') WHERE time = '2026-10-01' GROUP BY tenant
CREATE VIEW IF NOT EXISTS tokengauge.report AS
SELECT
    multiIf(
        {by:String} = 'month', toDateTime(toStartOfMonth(hour), 'UTC'),
        {by:String} = 'day', toStartOfDay(hour),
        hour) AS time,
    tenant,
    model,
    provider,
    route,
    agent,
    variant,
    currency,
    sum(h.requests) AS requests,
    sum(h.ok) AS ok,
    sum(h.error) AS error,
    sum(h.cancelled) AS cancelled,
    sum(h.timeout) AS timeout,
    sum(h.truncated) AS truncated,
    sum(h.rejected) AS rejected,
    if(requests > cancelled, (error + timeout + truncated + rejected) / (requests - cancelled), NULL) AS error_rate,
    sum(h.tokens_input) AS tokens_input,
    sum(h.tokens_input_estimated) AS tokens_input_estimated,
    sum(h.tokens_output) AS tokens_output,
    sum(h.tokens_output_estimated) AS tokens_output_estimated,
    sum(h.tokens_generated) AS tokens_generated,
    sum(h.tokens_reasoning) AS tokens_reasoning,
    sum(h.tokens_cached) AS tokens_cached,
    sum(h.tokens_cache_written) AS tokens_cache_written,
    sum(h.tokens_cache_written_1h) AS tokens_cache_written_1h,
    sum(h.cost) AS cost,
    sum(h.cost_reported) AS cost_reported,
    sum(output_tps_sum) / sum(h.output_tps_n) AS output_tps_mean,
    quantilesTDigestMerge(0.05, 0.5, 0.95, 0.99)(h.output_tps) AS output_tps,
    sum(ttft_sum) / sum(h.ttft_n) AS ttft_mean,
    quantilesTDigestMerge(0.05, 0.5, 0.95, 0.99)(h.ttft) AS ttft,
    sum(itl_sum) / sum(h.itl_n) AS itl_mean,
    quantilesTDigestMerge(0.05, 0.5, 0.95, 0.99)(h.itl) AS itl,
    sum(duration_sum) / sum(h.duration_n) AS duration_mean,
    quantilesTDigestMerge(0.05, 0.5, 0.95, 0.99)(h.duration) AS duration
FROM tokengauge.requests_hourly AS h
GROUP BY time, tenant, model, provider, route, agent, variant, currency;

-- One row per session and currency. A session is the identity of the request, or the conversation in the request.
CREATE VIEW IF NOT EXISTS tokengauge.sessions AS
SELECT
    if(r.session != '', r.session, r.conversation) AS session,
    any(r.tenant) AS tenant,
    any(r.agent) AS agent,
    currency,
    min(started_at) AS first,
    max(started_at) AS last,
    count() AS requests,
    countIf(outcome NOT IN ('ok', 'cancelled')) AS errors,
    groupUniqArray(10)(model) AS models,
    sum(usage_input) AS tokens_input,
    sum(usage_cache_read) AS tokens_cached,
    sum(generated) AS tokens_generated,
    sum(r.cost) AS cost,
    sumIf(r.cost, cost_source = 'reported') AS cost_reported
FROM tokengauge.requests AS r
WHERE is_call AND session != ''
GROUP BY session, currency;

-- Each request as a line of the request log, with the fields that `tokengauge report` reads.
CREATE VIEW IF NOT EXISTS tokengauge.request_lines AS
WITH
    toJSONString(CAST(
        tuple(
            concat(replaceOne(toString(started_at), ' ', 'T'), 'Z'),
            outcome,
            nullIf(error_type, ''),
            tuple(first_token, last_token, duration),
            tuple(nullIf(route, '')),
            tuple(
                nullIf(tenant, ''), nullIf(session, ''), nullIf(session_source, ''), nullIf(sub_agent, ''), nullIf(variant, '')),
            tuple(nullIf(agent, ''), nullIf(agent_version, '')),
            tuple(resend_count),
            tuple(nullIf(config_hash, ''))),
        'Tuple(
            time String, outcome String, error_type Nullable(String),
            times Tuple(first_token Nullable(Float64), last_token Nullable(Float64), end Nullable(Float64)),
            route Tuple(name Nullable(String)),
            identity Tuple(
                tenant Nullable(String), session Nullable(String), session_source Nullable(String), sub_agent Nullable(String),
                variant Nullable(String)),
            agent Tuple(name Nullable(String), version Nullable(String)),
            attempts Tuple(resend_count Nullable(UInt32)),
            config Tuple(hash Nullable(String)))')) AS request_part,
    toJSONString(CAST(
        tuple(
            tuple(
                nullIf(model, ''), nullIf(provider, ''), nullIf(operation, ''), nullIf(server, ''), stream),
            tuple(nullIf(conversation, ''), prompt_bytes, background),
            tuple(finish_reasons),
            tuple(nullIf(input_length_bucket, ''), nullIf(output_length_bucket, '')),
            tuple(output_tps, itl),
            tuple(usage_input, usage_output, usage_reasoning, usage_cache_read, usage_cache_write, usage_cache_write_1h),
            tuple(generated),
            reported_cost),
        'Tuple(
            labels Tuple(
                model Nullable(String), provider Nullable(String), operation Nullable(String),
                server_address Nullable(String), stream Nullable(Bool)),
            request Tuple(conversation Nullable(String), prompt_bytes Nullable(Float64), background Bool),
            response Tuple(finish_reasons Array(String)),
            length_buckets Tuple(input Nullable(String), output Nullable(String)),
            rates Tuple(output Nullable(Float64), time_per_output_token Nullable(Float64)),
            usage Tuple(
                input Nullable(Float64), output Nullable(Float64), reasoning Nullable(Float64),
                cache_read Nullable(Float64), cache_write Nullable(Float64), cache_write_1h Nullable(Float64)),
            output Tuple(tokens Nullable(Float64)),
            reported_cost Nullable(Float64))')) AS call_part,
    toJSONString(CAST(
        tuple(assumeNotNull(cost_amount), currency, cost_source),
        'Tuple(amount Float64, currency String, source String)')) AS cost_part,
    -- The JSON text of an object, without its last brace, so that members can follow.
    json -> substring(json, 1, length(json) - 1) AS open
SELECT
    *,
    multiIf(
        NOT is_call, request_part,
        concat(
            open(request_part), ',"call":', open(call_part),
            if(notEmpty(choices), concat(',"choices":', toJSONString(CAST(choices, 'Map(String, UInt32)'))), ''),
            multiIf(
                cost_amount IS NULL, '',
                notEmpty(cost_parts), concat(',"cost":', open(cost_part), ',"parts":', toJSONString(cost_parts), '}'),
                concat(',"cost":', cost_part)),
            '}}')) AS line
FROM tokengauge.requests;
