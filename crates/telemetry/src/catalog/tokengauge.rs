//! Metrics of tokengauge. Histogram bounds are never integers: a scrape has `le="1.0"`, and Prometheus writes `le="1"`
//! for OTLP.

use crate::catalog::attributes::{
    AWAITED, BACKEND_STAGE, BAND, BANDED, BOUND, CALL, CHOICE, DIRECTION, ENDED, ERROR_TYPE, FAULT,
    FINISH_REASON, INDICATOR, LANE, OUTCOME, POINT, PROVIDER, REQUEST_MODEL, RESULT, ROUTE,
    SILENCE, SLO, STAGE, STATE, STATUS, STREAM_STATE, TOKEN_KIND, TOKEN_SOURCE, TOKEN_TYPE,
    UNRATED, VANTAGE, WAIT_PLACE, WINDOW,
};
use crate::catalog::{Kind, Metric, ROW, backend, cost, drift, network, quota};
use tokengauge_measure::record::ChoiceStatus;

/// Buckets that double from 5 ms (headers of a cached response) to 11 min (the longest reasoning).
const SECONDS: &[f64] = &[
    0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
    163.84, 327.68, 655.36,
];

/// Buckets that are dense from 2 to 100 ms, the range of decode steps (10 to 500 tokens per second). Buckets of seconds
/// are for stalls only.
const GAPS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05,
    0.075, 0.1, 0.15, 0.25, 0.5, 1.5, 2.5, 5.5, 10.5,
];

/// Buckets from speech (3 to 5 tokens per second) and reading (about 5) to fast inference (thousands).
const RATES: &[f64] = &[
    1.5, 2.5, 5.5, 7.5, 10.5, 15.5, 20.5, 30.5, 40.5, 60.5, 80.5, 100.5, 150.5, 250.5, 500.5,
    1_000.5, 2_500.5,
];

/// Buckets half a step above powers of two. Speculative decoding yields 2 to 8 tokens per chunk, and providers that
/// batch chunks yield up to hundreds.
const CHUNK_TOKENS: &[f64] = &[1.5, 2.5, 4.5, 8.5, 16.5, 32.5, 64.5, 128.5, 256.5];

/// All metrics of tokengauge except those in `health`.
pub static ALL: &[&Metric] = &[
    &TOKENS,
    &TOKENS_STANDARD,
    &USAGE,
    &STREAM_TIME,
    &STREAM_STALLS,
    &STREAM_STALLED,
    &STREAM_IDLE,
    &STALL_TIME,
    &THROUGHPUT,
    &OUTPUT_RATE,
    &TOTAL_RATE,
    &REQUEST_BAND,
    &REQUEST_UNRATED,
    &REQUEST_STAGE,
    &BACKEND_TIME,
    &TIME_TO,
    &INTER_TOKEN,
    &INTER_CHUNK,
    &CHUNK_SIZE,
    &CLIENT_BLOCKED,
    &network::CONNECT_TIME,
    &network::RTT,
    &network::RETRANSMITS,
    &ACTIVE_REQUESTS,
    &QUEUE_DEPTH,
    &QUEUE_WAIT,
    &backend::REQUESTS,
    &backend::KV_CACHE,
    &backend::PREFIX_CACHE,
    &backend::SCRAPE_AGE,
    &backend::WARM_STATE,
    &quota::QUOTA_REQUESTS_REMAINING,
    &quota::QUOTA_REQUESTS_LIMIT,
    &quota::QUOTA_TOKENS_REMAINING,
    &quota::QUOTA_TOKENS_LIMIT,
    &quota::QUOTA_RESET,
    &quota::CLIENT_RETRIES,
    &WEBSOCKET_MESSAGES,
    &REQUESTS_STARTED,
    &REQUESTS_FINISHED,
    &CHOICES_FINISHED,
    &cost::COST,
    &cost::UNPRICED,
    &cost::TOKEN_PRICE,
    &cost::BUDGET_USED,
    &cost::BUDGET_LIMIT,
    &cost::BUDGET_WINDOW,
    &SLO_EVENTS,
    &SLO_OBJECTIVE,
    &SLO_THRESHOLD,
    &SLO_RATE_THRESHOLD,
    &SLO_BUDGET,
    &SLO_BURN,
    &SLO_COVERED,
    &SLO_EXHAUSTION,
    &drift::COUNTED,
    &drift::REPORTED,
    &drift::WORKLOAD,
];

pub static TOKENS: Metric = Metric {
    name: "tokengauge.tokens",
    unit: "{token}",
    description: "Tokens as counted by this proxy. Output increases with every chunk and is never corrected. Input is an estimate (bytes of the prompt's texts ÷ 4), counted when the call ends.",
    attributes: &[CALL, &[TOKEN_TYPE, TOKEN_KIND, TOKEN_SOURCE]],
    combinations: 12,
    ..ROW
};

pub static TOKENS_STANDARD: Metric = Metric {
    name: "tokengauge.tokens_standard",
    unit: "{token}",
    description: "The same output text in o200k_base, so that rates are comparable across providers. Increases with every chunk.",
    attributes: &[CALL],
    ..ROW
};

pub static USAGE: Metric = Metric {
    name: "tokengauge.usage",
    unit: "{token}",
    description: "Tokens as reported by the provider, counted when the call ends. The kinds do not overlap. Do not sum with tokengauge.tokens.",
    attributes: &[CALL, ENDED, &[TOKEN_KIND]],
    combinations: 6,
    ..ROW
};

pub static STREAM_TIME: Metric = Metric {
    name: "tokengauge.stream.time",
    unit: "s",
    description: "Stream-seconds, counted while they pass. Output tokens ÷ the streaming part is the live rate per stream. The waiting part has only route and position: the model label is omitted until the upstream accepts it.",
    attributes: &[CALL, &[STREAM_STATE]],
    combinations: 3,
    ..ROW
};

pub static STREAM_STALLS: Metric = Metric {
    name: "tokengauge.stream.stalls",
    unit: "{stall}",
    description: "Stalls, counted when they start: no token for `stall_after` after the first one, or no first token for `hung_after` after the request was sent (ten times that if the request asks for reasoning). Time in which the client does not read, or this process does not run, is excluded. The model is `other` until the upstream has accepted it.",
    attributes: &[CALL, &[AWAITED, SILENCE]],
    combinations: 4,
    ..ROW
};

pub static STREAM_STALLED: Metric = Metric {
    name: "tokengauge.stream.stalled",
    kind: Kind::Gauge,
    unit: "{stream}",
    description: "Streams that are stalled.",
    attributes: &[LANE, &[AWAITED]],
    combinations: 2,
    ..ROW
};

pub static STREAM_IDLE: Metric = Metric {
    name: "tokengauge.stream.idle",
    kind: Kind::Gauge,
    unit: "s",
    description: "Longest time without a token among the streams in flight, measured as for stalls. Absent without a stream that waits for a token.",
    attributes: &[LANE, &[AWAITED]],
    combinations: 2,
    ..ROW
};

pub static STALL_TIME: Metric = Metric {
    name: "tokengauge.stall.time",
    kind: Kind::Histogram,
    unit: "s",
    description: "Length of a stall, from the last token, recorded when it ends.",
    attributes: &[CALL, &[AWAITED, SILENCE]],
    buckets: SECONDS,
    combinations: 4,
};

pub static THROUGHPUT: Metric = Metric {
    name: "tokengauge.throughput",
    kind: Kind::Gauge,
    unit: "{token}/s",
    description: "Tokens of all calls in a window ÷ the window. peak: the highest second of the last 5 min, streamed tokens only. Absent until the window is covered.",
    attributes: &[&[PROVIDER, REQUEST_MODEL, ROUTE, VANTAGE, TOKEN_TYPE, WINDOW]],
    combinations: 8,
    ..ROW
};

pub static OUTPUT_RATE: Metric = Metric {
    name: "tokengauge.request.output_rate",
    kind: Kind::Histogram,
    unit: "{token}/s",
    description: "Output tokens per second of one stream, excluding prefill: (N − n₁) ÷ (last − token − blocked), where n₁ is the number of tokens in the first chunk with a token.",
    attributes: &[CALL, ENDED, BANDED],
    buckets: RATES,
    ..ROW
};

pub static TOTAL_RATE: Metric = Metric {
    name: "tokengauge.request.total_rate",
    kind: Kind::Histogram,
    unit: "{token}/s",
    description: "Output tokens per second of one call, including prefill: N ÷ (end − accept).",
    attributes: &[CALL, ENDED, BANDED],
    buckets: RATES,
    ..ROW
};

pub static REQUEST_BAND: Metric = Metric {
    name: "tokengauge.request.band",
    unit: "{request}",
    description: "Streams by range of their output tokens per second.",
    attributes: &[CALL, ENDED, &[BAND]],
    combinations: 6,
    ..ROW
};

pub static REQUEST_UNRATED: Metric = Metric {
    name: "tokengauge.request.unrated",
    unit: "{request}",
    description: "Streams without an output rate, by reason.",
    attributes: &[CALL, ENDED, &[UNRATED]],
    combinations: 4,
    ..ROW
};

pub static REQUEST_STAGE: Metric = Metric {
    name: "tokengauge.request.stage",
    kind: Kind::Histogram,
    unit: "s",
    description: "Length of each stage of a call. The stages of one call add up to end − accept.",
    attributes: &[CALL, ENDED, &[STAGE]],
    buckets: SECONDS,
    combinations: 10,
};

pub static BACKEND_TIME: Metric = Metric {
    name: "tokengauge.backend.stage",
    kind: Kind::Histogram,
    unit: "s",
    description: "Length of a phase of a call as the backend reports it in response headers or body. Not all backends report phases, and none reports all of them.",
    attributes: &[CALL, ENDED, &[BACKEND_STAGE]],
    buckets: SECONDS,
    combinations: 5,
};

pub static TIME_TO: Metric = Metric {
    name: "tokengauge.time_to",
    kind: Kind::Histogram,
    unit: "s",
    description: "Time from accept to a timestamp of a call. Time to first token is the point token.",
    attributes: &[CALL, ENDED, BANDED, &[POINT]],
    buckets: SECONDS,
    combinations: 5,
};

pub static INTER_TOKEN: Metric = Metric {
    name: "tokengauge.inter_token",
    kind: Kind::Histogram,
    unit: "s",
    description: "Inter-token latency: gap between chunks with tokens ÷ tokens in the later one, recorded once per token.",
    attributes: &[CALL],
    buckets: GAPS,
    ..ROW
};

pub static INTER_CHUNK: Metric = Metric {
    name: "tokengauge.inter_chunk",
    kind: Kind::Histogram,
    unit: "s",
    description: "Gap between chunks with tokens.",
    attributes: &[CALL],
    buckets: GAPS,
    ..ROW
};

pub static CHUNK_SIZE: Metric = Metric {
    name: "tokengauge.chunk_tokens",
    kind: Kind::Histogram,
    unit: "{token}",
    description: "Tokens per chunk. Shows speculative decoding and batching.",
    attributes: &[CALL],
    buckets: CHUNK_TOKENS,
    ..ROW
};

pub static CLIENT_BLOCKED: Metric = Metric {
    name: "tokengauge.client.blocked",
    kind: Kind::Histogram,
    unit: "s",
    description: "Time of a call in which the client did not read. Excluded from decode, gaps and stream time.",
    attributes: &[CALL, ENDED],
    buckets: SECONDS,
    ..ROW
};

pub static ACTIVE_REQUESTS: Metric = Metric {
    name: "tokengauge.active_requests",
    kind: Kind::UpDownCounter,
    unit: "{request}",
    description: "Requests in flight.",
    attributes: &[LANE, &[STATE]],
    combinations: 4,
    ..ROW
};

pub static QUEUE_DEPTH: Metric = Metric {
    name: "tokengauge.queue.depth",
    kind: Kind::Gauge,
    unit: "{request}",
    description: "Queue length that a new request finds. Exact if the engine reports its waiting requests and no other route leads to it: those + requests queued here. Otherwise requests queued here + streams waiting for the first token: an upper bound, since it includes prefill.",
    attributes: &[LANE, &[BOUND]],
    combinations: 2,
    ..ROW
};

pub static QUEUE_WAIT: Metric = Metric {
    name: "tokengauge.queue.wait",
    kind: Kind::Histogram,
    unit: "s",
    description: "Time that a call was queued, by place. `admission` is admit − accept, of every admitted call. The other two are recorded only if reported; unreported waits have no series.",
    attributes: &[CALL, ENDED, &[WAIT_PLACE]],
    buckets: SECONDS,
    combinations: 3,
};

pub static WEBSOCKET_MESSAGES: Metric = Metric {
    name: "tokengauge.websocket.messages",
    unit: "{message}",
    description: "WebSocket messages of any API, counted as they pass. Control frames such as pings are excluded.",
    attributes: &[LANE, &[DIRECTION]],
    combinations: 2,
    ..ROW
};

pub static REQUESTS_STARTED: Metric = Metric {
    name: "tokengauge.requests.started",
    unit: "{request}",
    description: "Requests started, including plain HTTP.",
    attributes: &[LANE],
    ..ROW
};

pub static REQUESTS_FINISHED: Metric = Metric {
    name: "tokengauge.requests.finished",
    unit: "{request}",
    description: "Requests finished, including plain HTTP (without gen_ai attributes).",
    attributes: &[CALL, &[OUTCOME, ERROR_TYPE, STATUS, STAGE, FAULT]],
    // Outcomes × error sources × with or without `error.type`, after all other combinations have reached their limit.
    combinations: 48,
    ..ROW
};

pub static CHOICES_FINISHED: Metric = Metric {
    name: "tokengauge.choices.finished",
    unit: "{choice}",
    description: "Finished choices by finish reason and result. Shows whether speed costs quality.",
    attributes: &[CALL, ENDED, &[FINISH_REASON, CHOICE]],
    combinations: ChoiceStatus::ALL.len(),
    ..ROW
};

pub static SLO_EVENTS: Metric = Metric {
    name: "tokengauge.slo.events",
    unit: "{event}",
    description: "Requests that count for an objective; tokens for `tokens_above_rate`, minutes for `system_rate`. Alert rules need only this metric.",
    attributes: &[&[SLO, INDICATOR, RESULT]],
    combinations: 2,
    ..ROW
};

pub static SLO_OBJECTIVE: Metric = Metric {
    name: "tokengauge.slo.objective",
    kind: Kind::Gauge,
    unit: "1",
    description: "SLO target (ratio).",
    attributes: &[&[SLO, INDICATOR]],
    ..ROW
};

pub static SLO_THRESHOLD: Metric = Metric {
    name: "tokengauge.slo.threshold",
    kind: Kind::Gauge,
    unit: "s",
    description: "Time threshold of an objective on time: requests up to it are good.",
    attributes: &[&[SLO, INDICATOR]],
    ..ROW
};

pub static SLO_RATE_THRESHOLD: Metric = Metric {
    name: "tokengauge.slo.rate_threshold",
    kind: Kind::Gauge,
    unit: "{token}/s",
    description: "Rate threshold of an objective on rates: requests, or minutes of the system, from it on are good.",
    attributes: &[&[SLO, INDICATOR]],
    ..ROW
};

pub static SLO_BUDGET: Metric = Metric {
    name: "tokengauge.slo.budget",
    kind: Kind::Gauge,
    unit: "1",
    description: "Remaining ratio of the error budget: 1 is untouched, 0 is spent, negative is overspent. Absent without events.",
    attributes: &[&[SLO, INDICATOR]],
    ..ROW
};

pub static SLO_BURN: Metric = Metric {
    name: "tokengauge.slo.burn",
    kind: Kind::Gauge,
    unit: "1",
    description: "Burn rate: ratio of bad events in the window ÷ (1 − objective). Absent until the window is covered, and without events.",
    attributes: &[&[SLO, INDICATOR, WINDOW]],
    combinations: 7,
    ..ROW
};

pub static SLO_COVERED: Metric = Metric {
    name: "tokengauge.slo.covered",
    kind: Kind::Gauge,
    unit: "s",
    description: "Observed part of the objective's window.",
    attributes: &[&[SLO, INDICATOR]],
    ..ROW
};

pub static SLO_EXHAUSTION: Metric = Metric {
    name: "tokengauge.slo.exhaustion",
    kind: Kind::Gauge,
    unit: "s",
    description: "Time until the error budget is spent at the burn rate of the last hour. Absent if it does not run out.",
    attributes: &[&[SLO, INDICATOR]],
    ..ROW
};
