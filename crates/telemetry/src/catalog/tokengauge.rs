//! Metrics that tokengauge defines.

use crate::catalog::attributes::{
    Attribute, BACKEND_STAGE, BUDGET, BUDGET_UNIT, CALL, CHOICE_RESULT, CONNECT_STAGE, CURRENCY,
    DIRECTION, ENDED, ENGINE, ERROR_SOURCE, ERROR_TYPE, FINISH_REASON, GATEWAY_USAGE,
    LENGTH_BUCKETS, LIMIT_TYPE, OUTCOME, OUTPUT_RATE_RANGE, PEER, POSITION, PRECISION, PROVIDER,
    QUEUE_LOCATION, REQUEST_MODEL, RESULT, RETRY_SIGNAL, ROUTE, ROUTE_KEY, SLI, SLO, STAGE,
    STALL_KIND, STALL_PHASE, STATE, STATUS, STREAM_STATE, TOKEN_KIND, TOKEN_SOURCE, TOKEN_TYPE,
    UNRATED_REASON, UPSTREAM, WARMUP_STATE, WINDOW,
};
use crate::catalog::buckets::{CHUNK_TOKENS, CONNECTION_TIMES, GAPS, RATES, TIMES};
use crate::catalog::state::{
    BACKENDS, BUDGETS, DRIFT, ENGINES, LIMITS, MODELS, OBJECTIVES, QUEUES, REQUEST_LIMITS, ROUTES,
    TOKEN_PRICES, UPSTREAMS, seconds, signed, throughput, zip,
};
use crate::catalog::values::{
    backend_stages, compared_tokens, connect_stages, gateway_usage, peers, queue_waits,
    rate_ranges, since_accept, token_kinds, unrated,
};
use crate::catalog::{Kind, Metric};
use tokengauge_measure::drift::Direction;
use tokengauge_measure::load::{LimitType, RequestPhase};
use tokengauge_measure::record::WarmupState;
use tokengauge_measure::slo::BURN_WINDOWS;
use tokengauge_measure::timing::{Stage, StallPhase};

/// Attributes of rate limits. They are the attributes of throughput, because rate limits arrive in response headers.
const MODEL_KEY: &[Attribute] = &[PROVIDER, REQUEST_MODEL, ROUTE, POSITION];

metrics! {
    /// All metrics of tokengauge except those in `health`.
    ALL;
    TOKENS "tokengauge.tokens" Counter "{token}" by [CALL] split [TOKEN_TYPE, TOKEN_KIND, TOKEN_SOURCE] times 12 usually [6, 6],
        "Tokens as counted by this proxy. Output increases with every chunk and is never corrected. Input is an estimate (bytes of the prompt's texts ÷ 4), counted when the call ends.";
    NORMALIZED_TOKENS "tokengauge.normalized_tokens" Counter "{token}" by [CALL],
        "The same output text in o200k_base, so that rates are comparable across providers. Increases with every chunk.";
    REPORTED_TOKENS "tokengauge.reported_tokens" Counter "{token}" by [CALL, ENDED] split [TOKEN_KIND],
        "Tokens as reported by the provider, counted when the call ends. The kinds do not overlap. Do not sum with tokengauge.tokens.",
        finished!(each |_, call| Some(token_kinds(call?.usage.as_ref()?, call?.output.as_ref())));
    STREAM_ACTIVE_TIME "tokengauge.stream.active_time" Counter "s" by [CALL] split [STREAM_STATE] usually [0, 3],
        "Stream-seconds, counted while they pass. Output tokens ÷ the streaming part is the live rate per stream. The streaming part ends at the provider's final event. The waiting part has only route and position: the model label is omitted until the upstream accepts it.";
    STREAM_STALLS "tokengauge.stream.stalls" Counter "{stall}" by [CALL] split [STALL_PHASE, STALL_KIND] usually [0, 4],
        "Stalls, counted when they start: no token for `stall.inter_token_after` after the first one, or no first token for `stall.first_token_after` after the request was sent (ten times that if the request asks for reasoning). Time in which the client does not read, or this process does not run, is excluded. The model is `other` until the upstream has accepted it.";
    STREAM_STALLED "tokengauge.stream.stalled" Gauge "{stream}" by [ROUTE_KEY] split [STALL_PHASE],
        "Streams that are stalled.",
        state!(ROUTES, each |route| Some(zip(StallPhase::ALL.map(StallPhase::as_str), route.stalled_streams.map(|it| Some(it.stalled)))));
    ACTIVE_STREAMS "tokengauge.active_streams" UpDownCounter "{stream}" by [MODEL_KEY] split [STATE],
        "Streams in flight that await a token, by model: flowing, or stalled as in tokengauge.stream.stalled. Without streams of models that the upstream has not accepted yet.",
        state!(MODELS, each |model| Some([("flowing", signed(model.streams.flowing)), ("stalled", signed(model.streams.stalled))]));
    STREAM_MAX_IDLE_TIME "tokengauge.stream.max_idle_time" Gauge "s" by [ROUTE_KEY] split [STALL_PHASE],
        "Longest time without a token among the streams in flight, measured as for stalls. Absent without a stream that waits for a token.",
        state!(ROUTES, each |route| Some(zip(StallPhase::ALL.map(StallPhase::as_str), route.stalled_streams.map(|it| it.longest.map(seconds)))));
    STALL_DURATION "tokengauge.stall.duration" Histogram "s" by [CALL] split [STALL_PHASE, STALL_KIND] buckets TIMES usually [0, 1] profile Full,
        "Length of a stall, from the last token, recorded when it ends.";
    TOKEN_THROUGHPUT "tokengauge.token_throughput" Gauge "{token}/s" by [MODEL_KEY] split [TOKEN_TYPE, WINDOW],
        "Tokens of all calls in a window ÷ the window. peak: the highest second of the last 5 min, output only. Absent until the window is covered. Input is known at the end of a call and counts at its prefill: a window shorter than the calls misses it.",
        state!(MODELS, each |model| Some(throughput(model)));
    OUTPUT_TOKEN_RATE "tokengauge.request.output_token_rate" Histogram "{token}/s" by [CALL, ENDED, LENGTH_BUCKETS] buckets RATES usually [0, 1],
        "Output tokens per second of one stream, excluding prefill: (N − n₁) ÷ (last − token − blocked), where n₁ is the number of tokens in the first chunk with a token.",
        finished!(|_, call| call?.rates.output);
    TOTAL_TOKEN_RATE "tokengauge.request.total_token_rate" Histogram "{token}/s" by [CALL, ENDED, LENGTH_BUCKETS] buckets RATES profile Full,
        "Output tokens per second of one call, including prefill: N ÷ (end − accept).",
        finished!(|_, call| call?.rates.total);
    REQUESTS_RATED "tokengauge.requests.rated" Counter "{request}" by [CALL, ENDED] split [OUTPUT_RATE_RANGE] usually [0, 6] profile Full,
        "Streams by range of their output tokens per second.",
        finished!(each |_, call| Some(rate_ranges(call?.rates.output?)));
    REQUESTS_UNRATED "tokengauge.requests.unrated" Counter "{request}" by [CALL, ENDED] split [UNRATED_REASON] usually [0, 4] profile Full,
        "Streams without an output rate, by reason.",
        finished!(each |_, call| Some(unrated(call?.rates.unrated?)));
    REQUEST_STAGE_DURATION "tokengauge.request.stage.duration" Histogram "s" by [CALL, ENDED] split [STAGE] buckets TIMES usually [6, 10] profile Full,
        "Length of each stage of a call. The stages of one call add up to end − accept.",
        finished!(each |record, _| Some(Stage::ALL.map(|stage| (stage.as_str(), record.stages.get(stage)))));
    BACKEND_STAGE_DURATION "tokengauge.backend.stage.duration" Histogram "s" by [CALL, ENDED] split [BACKEND_STAGE] buckets TIMES usually [3, 3] profile Full,
        "Length of a phase of a call as the backend reports it in response headers or body. Not all backends report phases, and none reports all of them.",
        finished!(each |_, call| Some(backend_stages(&call?.timings?)));
    TIME_TO_HEADERS "tokengauge.time_to_headers" Histogram "s" by [CALL, ENDED, LENGTH_BUCKETS] buckets TIMES profile Full,
        "Time until the response headers arrived: head − accept.",
        finished!(|record, _| since_accept(record, record.timestamps.head));
    TIME_TO_FIRST_BYTE "tokengauge.time_to_first_byte" Histogram "s" by [CALL, ENDED, LENGTH_BUCKETS] buckets TIMES profile Full,
        "Time until the first byte of the response body: byte − accept.",
        finished!(|record, _| since_accept(record, record.timestamps.byte));
    TIME_TO_FIRST_EVENT "tokengauge.time_to_first_event" Histogram "s" by [CALL, ENDED, LENGTH_BUCKETS] buckets TIMES usually [0, 1] profile Full,
        "Time until the first event of a stream, with or without a token: event − accept. Streams only.",
        finished!(|record, _| since_accept(record, record.timestamps.event));
    TIME_TO_FIRST_TOKEN "tokengauge.time_to_first_token" Histogram "s" by [CALL, ENDED, LENGTH_BUCKETS] buckets TIMES usually [0, 1],
        "Time to first token (TTFT) as the client sees it: token − accept. Streams only.",
        finished!(|record, _| since_accept(record, record.timestamps.token));
    TIME_TO_FIRST_VISIBLE_TOKEN "tokengauge.time_to_first_visible_token" Histogram "s" by [CALL, ENDED, LENGTH_BUCKETS] buckets TIMES usually [0, 1] profile Full,
        "Time until the first token that a user sees, after any reasoning: visible − accept. Streams only.",
        finished!(|record, _| since_accept(record, record.timestamps.visible));
    INTER_TOKEN_LATENCY "tokengauge.inter_token_latency" Histogram "s" by [CALL] buckets GAPS usually [0, 1],
        "Inter-token latency: gap between chunks with tokens ÷ tokens in the later one, recorded once per token.";
    INTER_CHUNK_LATENCY "tokengauge.inter_chunk_latency" Histogram "s" by [CALL] buckets GAPS usually [0, 1] profile Full,
        "Gap between chunks with text.";
    TOKENS_PER_CHUNK "tokengauge.tokens_per_chunk" Histogram "{token}" by [CALL] buckets CHUNK_TOKENS usually [0, 1] profile Full,
        "Tokens per chunk with text. Shows speculative decoding and batching. 0 if the text only lengthens the last token.";
    CLIENT_BACKPRESSURE "tokengauge.client.backpressure.duration" Histogram "s" by [CALL, ENDED] buckets TIMES profile Full,
        "Time of a call in which the client did not read. Excluded from decode, gaps and stream time.",
        finished!(|record, _| Some(record.blocked).filter(|time| !time.is_zero()));
    CONNECT_STAGE_DURATION "tokengauge.connect.stage.duration" Histogram "s" by [ROUTE_KEY] split [CONNECT_STAGE] buckets CONNECTION_TIMES profile Full,
        "Length of each part of getting a connection to the upstream, for every request. The parts of one request add up to at most its stage connect; the rest is work of this proxy.",
        finished!(each |record, _| Some(connect_stages(record.connected.as_ref()?)));
    RTT "tokengauge.network.rtt" Histogram "s" by [ROUTE_KEY] split [PEER] buckets CONNECTION_TIMES profile Full,
        "Smoothed TCP round-trip time of a connection as the kernel last reported it during a request. The remote end may be a proxy. A connection that several requests use gives a sample to each. Linux only; absent for Unix sockets.",
        finished!(each |record, _| Some(peers(record, |connection| connection.rtt)));
    RETRANSMITS "tokengauge.network.retransmits" Counter "{segment}" by [ROUTE_KEY] split [PEER],
        "TCP segments that this host retransmitted on the connections of requests, counted once, when a request ends. Retransmits of the remote end are not visible. Linux only; absent for Unix sockets.",
        finished!(each |record, _| Some(peers(record, |connection| Some(u64::from(connection.retransmits)))));
    ACTIVE_REQUESTS "tokengauge.active_requests" UpDownCounter "{request}" by [ROUTE_KEY] split [STATE],
        "Requests in flight.",
        state!(ROUTES, each |route| Some(zip(RequestPhase::ALL.map(RequestPhase::as_str), route.active.map(signed))));
    QUEUE_DEPTH "tokengauge.queue.depth" Gauge "{request}" by [ROUTE_KEY, &[PRECISION]] times 2,
        "Queue length that a new request finds. Exact if the engine reports its waiting requests and no other route leads to it: those + requests queued here. Otherwise requests queued here + streams waiting for the first token: an upper bound, since it includes prefill.",
        state!(QUEUES, |route| Some(route.queue_depth()));
    QUEUE_WAIT "tokengauge.queue.wait" Histogram "s" by [CALL, ENDED] split [QUEUE_LOCATION] buckets TIMES usually [1, 1] profile Full,
        "Time that a call was queued, by place. `admission` is admit − accept, of every admitted call. The other two are recorded only if reported; unreported waits have no series.",
        finished!(each |record, call| Some(queue_waits(record, call?)));
    BACKEND_REQUESTS "tokengauge.backend.requests" Gauge "{request}" by [&[UPSTREAM, ENGINE]] split [STATE],
        "Requests in the engine as it reports them, from any client: waiting and running. Summed over its models and ranks. Absent if not reported, or if the last scrape is older than three intervals.",
        state!(ENGINES, each |engine| Some([("waiting", engine.waiting), ("running", engine.running)]));
    KV_CACHE "tokengauge.backend.kv_cache.utilization" Gauge "1" by [&[UPSTREAM, ENGINE]],
        "Used ratio of the engine's KV cache, 0 to 1, as it reports. The fullest of several caches. Absent as above.",
        state!(ENGINES, |engine| engine.kv_cache);
    PREFIX_CACHE "tokengauge.backend.prefix_cache.hit_ratio" Gauge "1" by [&[UPSTREAM, ENGINE]],
        "Hit ratio of the engine's prefix cache, 0 to 1: hits ÷ queries between the last two scrapes, else the ratio that the engine reports. Absent as above, and without queries.",
        state!(ENGINES, |engine| engine.prefix_cache);
    SCRAPE_AGE "tokengauge.backend.scrape.age" Gauge "s" by [&[UPSTREAM, ENGINE]],
        "Time since the last successful scrape of the engine's metrics. Absent before the first one.",
        state!(ENGINES, |engine| engine.scrape_age);
    BACKEND_WARMUP_STATE "tokengauge.backend.warmup_state" Gauge "{backend}" by [&[UPSTREAM]] split [WARMUP_STATE],
        "1 for the current warm-up state of the backend, 0 for the others.",
        state!(BACKENDS, each |backend| backend.warm.map(|warm| WarmupState::ALL.map(|state| (state.as_str(), Some(u64::from(state == warm))))));
    UPSTREAM_STALE "tokengauge.upstream.stale_connections" Counter "{connection}" by [&[UPSTREAM]],
        "Pooled connections that the upstream had closed before they were reused.",
        state!(UPSTREAMS, |upstream| Some(upstream.stale));
    UPSTREAM_RETRIES "tokengauge.upstream.retries" Counter "{request}" by [&[UPSTREAM]],
        "Requests that this proxy sent a second time, on a new connection, because a reused connection ended before any byte of the response.",
        state!(UPSTREAMS, |upstream| Some(upstream.retries));
    RATE_LIMIT_REQUESTS_REMAINING "tokengauge.rate_limit.requests.remaining" Gauge "{request}" by [MODEL_KEY],
        "Remaining requests of the account, from the rate-limit headers of the latest response. Exported until the reset, for one to five minutes. Absent without such headers.",
        state!(REQUEST_LIMITS, |limit| limit.allowance.remaining);
    RATE_LIMIT_REQUESTS_LIMIT "tokengauge.rate_limit.requests.limit" Gauge "{request}" by [MODEL_KEY],
        "Request limit of the account in the provider's window. Exported as above.",
        state!(REQUEST_LIMITS, |limit| limit.allowance.limit);
    RATE_LIMIT_TOKENS_REMAINING "tokengauge.rate_limit.tokens.remaining" Gauge "{token}" by [MODEL_KEY, &[LIMIT_TYPE]] times 3,
        "Remaining tokens of the account. Exported as above. Some providers limit input and output separately.",
        state!(LIMITS, |limit| limit.allowance.remaining.filter(|_| limit.limited != LimitType::Requests));
    RATE_LIMIT_TOKENS_LIMIT "tokengauge.rate_limit.tokens.limit" Gauge "{token}" by [MODEL_KEY, &[LIMIT_TYPE]] times 3,
        "Token limit of the account in the provider's window. Exported as above.",
        state!(LIMITS, |limit| limit.allowance.limit.filter(|_| limit.limited != LimitType::Requests));
    RATE_LIMIT_RESET "tokengauge.rate_limit.reset" Gauge "s" by [MODEL_KEY, &[LIMIT_TYPE]] times 4,
        "Time until the limit is fully restored, as the provider reports. Absent afterwards.",
        state!(LIMITS, |limit| limit.allowance.reset.map(seconds));
    CLIENT_RETRIES "tokengauge.client.retries" Counter "{request}" by [ROUTE_KEY] split [RETRY_SIGNAL],
        "Requests that repeat an earlier one of the last ten minutes, including plain HTTP. Each is counted once, when it starts, by the first signal that is present.";
    WEBSOCKET_MESSAGES "tokengauge.websocket.messages" Counter "{message}" by [ROUTE_KEY] split [DIRECTION],
        "WebSocket messages of any API, counted as they pass. Control frames such as pings are excluded.";
    REQUESTS_STARTED "tokengauge.requests.started" Counter "{request}" by [ROUTE_KEY],
        "Requests started, including plain HTTP.";
    // Outcomes × error sources × with or without `error.type`, after all other combinations have reached their limit.
    REQUESTS_FINISHED "tokengauge.requests.finished" Counter "{request}"
        by [CALL, &[OUTCOME, ERROR_TYPE, STATUS, STAGE, ERROR_SOURCE]] times 48 usually [1, 1],
        "Requests finished, including plain HTTP (without gen_ai attributes).",
        finished!(|_, _| Some(1_u64));
    CHOICES_FINISHED "tokengauge.choices.finished" Counter "{choice}"
        by [CALL, ENDED, &[FINISH_REASON, CHOICE_RESULT]] times 6 usually [1, 1],
        "Finished choices by finish reason and result. Shows whether speed costs quality.",
        finished!(|_, _| Some(1_u64));
    COST "tokengauge.cost" Counter "{currency}" by [CALL, ENDED, &[CURRENCY, TOKEN_SOURCE]] times 4 usually [1, 1],
        "Cost of calls by the price table, recorded when they end. `reported` if the provider reported the tokens, else `estimated`. Do not sum across currencies.",
        finished!(|_, call| Some(call?.cost.as_ref()?.amount));
    REPORTED_COST "tokengauge.reported_cost" Counter "{USD}" by [CALL, ENDED],
        "Cost of calls in US dollars as the provider or a gateway reports it, recorded when they end. Absent without such a report. Never add it to `tokengauge.cost`, which is the same cost by the price table.",
        finished!(|_, call| call?.reported_cost());
    REQUESTS_COST_MISMATCH "tokengauge.requests.cost_mismatch" Counter "{request}" by [CALL, ENDED],
        "Calls whose reported cost and cost by the price table differ by more than 1 % and 0.00001 USD. Absent until a call has both, in US dollars.",
        finished!(|_, call| call?.is_cost_disputed().map(u64::from));
    REQUESTS_UNPRICED "tokengauge.requests.unpriced" Counter "{request}" by [CALL],
        "Calls that used tokens without a price in the table. Absent without a price table.";
    COST_PER_MILLION_TOKENS "tokengauge.cost_per_million_output_tokens" Gauge "{currency}" by [&[ROUTE, CURRENCY]],
        "Cost of a million output tokens on hardware paid by the hour: price per hour ÷ 3,600 × 10⁶ ÷ output tokens per second over 5 min. Absent while nothing is generated, and until the window is covered.",
        state!(TOKEN_PRICES, |price| Some(price.amount));
    BUDGET_USED "tokengauge.budget.used" Counter "{unit}" by [&[BUDGET, BUDGET_UNIT]],
        "Amount that calls took from a budget since the start, in the unit of the budget: tokens (input and output), or money.";
    BUDGET_LIMIT "tokengauge.budget.limit" Gauge "{unit}" by [&[BUDGET, BUDGET_UNIT]],
        "Limit of a budget in its window.",
        state!(BUDGETS, |budget| Some(budget.limit));
    BUDGET_WINDOW "tokengauge.budget.window" Gauge "s" by [&[BUDGET, BUDGET_UNIT]],
        "Window of a budget. A calendar month is exported as its mean length, 2,629,746 s.",
        state!(BUDGETS, |budget| Some(seconds(budget.window)));
    SLO_EVENTS "tokengauge.slo.events" Counter "{event}" by [&[SLO, SLI]] split [RESULT],
        "Requests that count for an objective; tokens for `tokens_above_rate`, minutes for `system_rate`. Alert rules need only this metric.",
        state!(OBJECTIVES, each |slo| Some([("good", Some(slo.good)), ("bad", Some(slo.bad))]));
    SLO_OBJECTIVE "tokengauge.slo.objective" Gauge "1" by [&[SLO, SLI]],
        "SLO target (ratio).",
        state!(OBJECTIVES, |slo| Some(slo.objective.target));
    SLO_THRESHOLD "tokengauge.slo.threshold" Gauge "s" by [&[SLO, SLI]],
        "Time threshold of an objective on time: requests up to it are good.",
        state!(OBJECTIVES, |slo| slo.objective.indicator.longest().map(seconds));
    SLO_RATE_THRESHOLD "tokengauge.slo.rate_threshold" Gauge "{token}/s" by [&[SLO, SLI]],
        "Rate threshold of an objective on rates: requests, or minutes of the system, from it on are good.",
        state!(OBJECTIVES, |slo| slo.objective.indicator.lowest());
    SLO_WINDOW "tokengauge.slo.window" Gauge "s" by [&[SLO, SLI]],
        "Rolling window of an objective.",
        state!(OBJECTIVES, |slo| Some(seconds(slo.objective.window)));
    SLO_ERROR_BUDGET "tokengauge.slo.error_budget.remaining" Gauge "1" by [&[SLO, SLI]],
        "Remaining ratio of the error budget: 1 − bad ÷ ((1 − objective) × events expected in the window, at the rate of its observed part). 1 is untouched, 0 is spent, negative is overspent. Absent without events.",
        state!(OBJECTIVES, |slo| slo.budget);
    SLO_BURN_RATE "tokengauge.slo.burn_rate" Gauge "1" by [&[SLO, SLI]] split [WINDOW],
        "Burn rate: ratio of bad events in the window ÷ (1 − objective). Absent until the window is covered, and without events.",
        state!(OBJECTIVES, each |slo| Some(zip(BURN_WINDOWS.map(|(window, _)| window), slo.burn)));
    SLO_WINDOW_COVERAGE "tokengauge.slo.window_coverage" Gauge "s" by [&[SLO, SLI]],
        "Observed part of the objective's window.",
        state!(OBJECTIVES, |slo| Some(seconds(slo.covered)));
    SLO_TIME_TO_EXHAUSTION "tokengauge.slo.time_to_exhaustion" Gauge "s" by [&[SLO, SLI]],
        "Time until the error budget is spent at the burn rate of the last hour or its observed part. Absent if it does not run out.",
        state!(OBJECTIVES, |slo| slo.exhaustion.map(seconds));
    TOKEN_MISMATCH_COUNTED "tokengauge.token_mismatch.counted" Counter "{token}" by [CALL, ENDED],
        "Output tokens as counted here, for calls where reported and counted tokens should agree: complete, the model's own encoding, no tools, nothing hidden.",
        finished!(|record, call| Some(compared_tokens(record, call)?.counted));
    TOKEN_MISMATCH_REPORTED "tokengauge.token_mismatch.reported" Counter "{token}" by [CALL, ENDED],
        "Output tokens as reported, for the same calls as tokengauge.token_mismatch.counted.",
        finished!(|record, call| Some(compared_tokens(record, call)?.reported));
    GATEWAY_USAGE_CALLS "tokengauge.gateway_usage.calls" Counter "{call}" by [CALL, ENDED] split [GATEWAY_USAGE],
        "Complete calls for which a gateway in the path reported its own token count, such as Envoy's AI filter, by whether input and output equal what the provider reported here, or else what was counted. Absent without such a gateway.",
        finished!(each |record, call| gateway_usage(record, call?));
    WORKLOAD_DRIFT "tokengauge.workload_drift" Gauge "1" by [MODEL_KEY] split [TOKEN_TYPE],
        "Population stability index of the lengths of prompts (estimated from bytes) or responses (counted) against a baseline: Σ (p − q) × ln(p ÷ q) over the deciles of the baseline, with the ratios p of the latest calls and q of the baseline. 0: unchanged; from 0.1: slight change; from 0.25: large change. Absent with fewer than 200 calls on either side.",
        state!(DRIFT, each |model| Some(zip(Direction::ALL.map(Direction::as_str), model.lengths.map(|it| it.index))));
}
