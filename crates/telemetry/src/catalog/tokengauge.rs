//! Our own metrics. Histogram bounds are never whole numbers: what is scraped says `le="1.0"`, and what Prometheus
//! receives over OTLP `le="1"`.

use crate::catalog::attributes::{
    AWAITED, BACKEND_STAGE, BAND, BANDED, BOUND, CALL, CHOICE, DIRECTION, ENDED, ERROR_TYPE, FAULT,
    FINISH_REASON, INDICATOR, LANE, OUTCOME, POINT, PROVIDER, REQUEST_MODEL, RESULT, ROUTE,
    SILENCE, SLO, STAGE, STATE, STATUS, STREAM_STATE, TOKEN_KIND, TOKEN_SOURCE, TOKEN_TYPE,
    UNRATED, VANTAGE, WAIT_PLACE, WINDOW,
};
use crate::catalog::{Kind, Metric, ROW, backend, cost, drift, network, quota};
use tokengauge_measure::record::Became;

/// Doubling from 5 ms to 11 min: from a cached answer's head to the longest reasoning.
const SECONDS: &[f64] = &[
    0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
    163.84, 327.68, 655.36,
];

/// Dense from 2 to 100 ms, where decode steps lie (10 to 500 tokens per second); seconds only for what hangs.
const GAPS: &[f64] = &[
    0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05,
    0.075, 0.1, 0.15, 0.25, 0.5, 1.5, 2.5, 5.5, 10.5,
];

/// Reading speed is about 5 tokens per second, speech 3 to 5 with headroom; fast inference reaches thousands.
const RATES: &[f64] = &[
    1.5, 2.5, 5.5, 7.5, 10.5, 15.5, 20.5, 30.5, 40.5, 60.5, 80.5, 100.5, 150.5, 250.5, 500.5,
    1_000.5, 2_500.5,
];

/// Powers of two, between the whole numbers: speculative decoding gives 2 to 8, batching vendors up to hundreds.
const CHUNK_TOKENS: &[f64] = &[1.5, 2.5, 4.5, 8.5, 16.5, 32.5, 64.5, 128.5, 256.5];

/// Every metric of our own.
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
    description: "Tokens as counted by this proxy. Output moves with every chunk and is never corrected; input is an estimate (bytes of the prompt's texts ÷ 4), counted when the call ends.",
    attributes: &[CALL, &[TOKEN_TYPE, TOKEN_KIND, TOKEN_SOURCE]],
    combinations: 12,
    ..ROW
};

pub static TOKENS_STANDARD: Metric = Metric {
    name: "tokengauge.tokens_standard",
    unit: "{token}",
    description: "The same output text in o200k_base, so that rates compare across vendors. Moves with every chunk.",
    attributes: &[CALL],
    ..ROW
};

pub static USAGE: Metric = Metric {
    name: "tokengauge.usage",
    unit: "{token}",
    description: "Tokens as reported by the provider, when the call ends. The kinds do not overlap. Never to be summed with tokengauge.tokens.",
    attributes: &[CALL, ENDED, &[TOKEN_KIND]],
    combinations: 6,
    ..ROW
};

pub static STREAM_TIME: Metric = Metric {
    name: "tokengauge.stream.time",
    unit: "s",
    description: "Stream-seconds gone by, while they go by. Output tokens ÷ its streaming part is the live rate per stream. The waiting part is told by route and vantage alone: nobody has vouched for the model yet.",
    attributes: &[CALL, &[STREAM_STATE]],
    combinations: 3,
    ..ROW
};

pub static STREAM_STALLS: Metric = Metric {
    name: "tokengauge.stream.stalls",
    unit: "{stall}",
    description: "Stalls, counted when they happen: no token for `stall_after` after the first one, or no first token for `hung_after` (ten times that where the request asks for reasoning) from when the request was sent whole. Time in which the client does not read, or this process does not run, is left out. Before an answer has vouched for the model it is `other`, unless another answer has.",
    attributes: &[CALL, &[AWAITED, SILENCE]],
    combinations: 4,
    ..ROW
};

pub static STREAM_STALLED: Metric = Metric {
    name: "tokengauge.stream.stalled",
    kind: Kind::Gauge,
    unit: "{stream}",
    description: "Streams that are stalled now.",
    attributes: &[LANE, &[AWAITED]],
    combinations: 2,
    ..ROW
};

pub static STREAM_IDLE: Metric = Metric {
    name: "tokengauge.stream.idle",
    kind: Kind::Gauge,
    unit: "s",
    description: "How long the longest silent of the streams in flight has brought no token, by the clock of the stalls. Absent where no token is awaited.",
    attributes: &[LANE, &[AWAITED]],
    combinations: 2,
    ..ROW
};

pub static STALL_TIME: Metric = Metric {
    name: "tokengauge.stall.time",
    kind: Kind::Histogram,
    unit: "s",
    description: "Length of a stall, from the silence's begin, recorded when it is over.",
    attributes: &[CALL, &[AWAITED, SILENCE]],
    buckets: SECONDS,
    combinations: 4,
};

pub static THROUGHPUT: Metric = Metric {
    name: "tokengauge.throughput",
    kind: Kind::Gauge,
    unit: "{token}/s",
    description: "Tokens of all calls in a window ÷ the window; peak is the highest second of the last 5 min, of streamed tokens. Absent before the window is covered.",
    attributes: &[&[PROVIDER, REQUEST_MODEL, ROUTE, VANTAGE, TOKEN_TYPE, WINDOW]],
    combinations: 8,
    ..ROW
};

pub static OUTPUT_RATE: Metric = Metric {
    name: "tokengauge.request.output_rate",
    kind: Kind::Histogram,
    unit: "{token}/s",
    description: "Output TPS of one stream, prefill excluded: (N − n₁) ÷ (last − token − blocked), n₁ the tokens of the first token-bearing chunk.",
    attributes: &[CALL, ENDED, BANDED],
    buckets: RATES,
    ..ROW
};

pub static TOTAL_RATE: Metric = Metric {
    name: "tokengauge.request.total_rate",
    kind: Kind::Histogram,
    unit: "{token}/s",
    description: "Total TPS of one call, prefill included: N ÷ (end − accept).",
    attributes: &[CALL, ENDED, BANDED],
    buckets: RATES,
    ..ROW
};

pub static REQUEST_BAND: Metric = Metric {
    name: "tokengauge.request.band",
    unit: "{request}",
    description: "Rated streams by band of their output TPS.",
    attributes: &[CALL, ENDED, &[BAND]],
    combinations: 6,
    ..ROW
};

pub static REQUEST_UNRATED: Metric = Metric {
    name: "tokengauge.request.unrated",
    unit: "{request}",
    description: "Streams without an output TPS, by reason.",
    attributes: &[CALL, ENDED, &[UNRATED]],
    combinations: 4,
    ..ROW
};

pub static REQUEST_STAGE: Metric = Metric {
    name: "tokengauge.request.stage",
    kind: Kind::Histogram,
    unit: "s",
    description: "Length of each stage of a call that took place. The stages of one call add up to end − accept.",
    attributes: &[CALL, ENDED, &[STAGE]],
    buckets: SECONDS,
    combinations: 10,
};

pub static BACKEND_TIME: Metric = Metric {
    name: "tokengauge.backend.stage",
    kind: Kind::Histogram,
    unit: "s",
    description: "Length of a phase of a call as the backend itself reports it, in its answer's head or body. Not every backend reports, and none reports every phase.",
    attributes: &[CALL, ENDED, &[BACKEND_STAGE]],
    buckets: SECONDS,
    combinations: 5,
};

pub static TIME_TO: Metric = Metric {
    name: "tokengauge.time_to",
    kind: Kind::Histogram,
    unit: "s",
    description: "Time from accept to a clock point of a call. Time to first token is the point token.",
    attributes: &[CALL, ENDED, BANDED, &[POINT]],
    buckets: SECONDS,
    combinations: 5,
};

pub static INTER_TOKEN: Metric = Metric {
    name: "tokengauge.inter_token",
    kind: Kind::Histogram,
    unit: "s",
    description: "Inter-token latency: gap between token-bearing chunks ÷ tokens in the later one, recorded that many times.",
    attributes: &[CALL],
    buckets: GAPS,
    ..ROW
};

pub static INTER_CHUNK: Metric = Metric {
    name: "tokengauge.inter_chunk",
    kind: Kind::Histogram,
    unit: "s",
    description: "Gap between token-bearing chunks.",
    attributes: &[CALL],
    buckets: GAPS,
    ..ROW
};

pub static CHUNK_SIZE: Metric = Metric {
    name: "tokengauge.chunk_tokens",
    kind: Kind::Histogram,
    unit: "{token}",
    description: "Tokens in one token-bearing chunk: speculative decoding and batching show here.",
    attributes: &[CALL],
    buckets: CHUNK_TOKENS,
    ..ROW
};

pub static CLIENT_BLOCKED: Metric = Metric {
    name: "tokengauge.client.blocked",
    kind: Kind::Histogram,
    unit: "s",
    description: "Time of a call in which the client did not read. Taken out of decode, gaps and stream time.",
    attributes: &[CALL, ENDED],
    buckets: SECONDS,
    ..ROW
};

pub static ACTIVE_REQUESTS: Metric = Metric {
    name: "tokengauge.active_requests",
    kind: Kind::UpDownCounter,
    unit: "{request}",
    description: "Exchanges in flight.",
    attributes: &[LANE, &[STATE]],
    combinations: 4,
    ..ROW
};

pub static QUEUE_DEPTH: Metric = Metric {
    name: "tokengauge.queue.depth",
    kind: Kind::Gauge,
    unit: "{request}",
    description: "The queue that a request finds. Exact where the engine behind the route says how many wait in it and no other route leads there: those + what is held back here. Else streams held back here or awaiting their first token: an upper bound, since it includes prefill.",
    attributes: &[LANE, &[BOUND]],
    combinations: 2,
    ..ROW
};

pub static QUEUE_WAIT: Metric = Metric {
    name: "tokengauge.queue.wait",
    kind: Kind::Histogram,
    unit: "s",
    description: "Time for which a call was held back, by where. `admission` is admit − accept, of every call that was let in; the other two are told where somebody says so, and a time that nobody knows is not 0.",
    attributes: &[CALL, ENDED, &[WAIT_PLACE]],
    buckets: SECONDS,
    combinations: 3,
};

pub static WEBSOCKET_MESSAGES: Metric = Metric {
    name: "tokengauge.websocket.messages",
    unit: "{message}",
    description: "Messages over WebSockets, of any API and of none. Moves while they go by; pings and the like are no messages.",
    attributes: &[LANE, &[DIRECTION]],
    combinations: 2,
    ..ROW
};

pub static REQUESTS_STARTED: Metric = Metric {
    name: "tokengauge.requests.started",
    unit: "{request}",
    description: "Exchanges begun, plain HTTP too.",
    attributes: &[LANE],
    ..ROW
};

pub static REQUESTS_FINISHED: Metric = Metric {
    name: "tokengauge.requests.finished",
    unit: "{request}",
    description: "Exchanges ended, plain HTTP too (then without gen_ai attributes).",
    attributes: &[CALL, &[OUTCOME, ERROR_TYPE, STATUS, STAGE, FAULT]],
    // Outcomes × faults × with or without `error.type`, where all other combinations are used up.
    combinations: 48,
    ..ROW
};

pub static CHOICES_FINISHED: Metric = Metric {
    name: "tokengauge.choices.finished",
    unit: "{choice}",
    description: "Choices ended, by finish reason and by what became of them: speed gained must not be quality lost.",
    attributes: &[CALL, ENDED, &[FINISH_REASON, CHOICE]],
    combinations: Became::ALL.len(),
    ..ROW
};

pub static SLO_EVENTS: Metric = Metric {
    name: "tokengauge.slo.events",
    unit: "{event}",
    description: "Exchanges that count for an objective; tokens of `tokens_above_rate`, minutes of `system_rate`. Alert rules need only these.",
    attributes: &[&[SLO, INDICATOR, RESULT]],
    combinations: 2,
    ..ROW
};

pub static SLO_OBJECTIVE: Metric = Metric {
    name: "tokengauge.slo.objective",
    kind: Kind::Gauge,
    unit: "1",
    description: "The share that shall be good.",
    attributes: &[&[SLO, INDICATOR]],
    ..ROW
};

pub static SLO_THRESHOLD: Metric = Metric {
    name: "tokengauge.slo.threshold",
    kind: Kind::Gauge,
    unit: "s",
    description: "The time within which an exchange is good, for objectives on time.",
    attributes: &[&[SLO, INDICATOR]],
    ..ROW
};

pub static SLO_RATE_THRESHOLD: Metric = Metric {
    name: "tokengauge.slo.rate_threshold",
    kind: Kind::Gauge,
    unit: "{token}/s",
    description: "The rate from which an exchange is good, or a minute of the system, for objectives on rates.",
    attributes: &[&[SLO, INDICATOR]],
    ..ROW
};

pub static SLO_BUDGET: Metric = Metric {
    name: "tokengauge.slo.budget",
    kind: Kind::Gauge,
    unit: "1",
    description: "Share of the error budget that is left: 1 untouched, 0 spent, below 0 overspent. Absent without events.",
    attributes: &[&[SLO, INDICATOR]],
    ..ROW
};

pub static SLO_BURN: Metric = Metric {
    name: "tokengauge.slo.burn",
    kind: Kind::Gauge,
    unit: "1",
    description: "Burn rate: share of bad events in the window ÷ (1 − objective). Absent before the window is covered, and without events.",
    attributes: &[&[SLO, INDICATOR, WINDOW]],
    combinations: 7,
    ..ROW
};

pub static SLO_COVERED: Metric = Metric {
    name: "tokengauge.slo.covered",
    kind: Kind::Gauge,
    unit: "s",
    description: "How much of the objective's window has been observed.",
    attributes: &[&[SLO, INDICATOR]],
    ..ROW
};

pub static SLO_EXHAUSTION: Metric = Metric {
    name: "tokengauge.slo.exhaustion",
    kind: Kind::Gauge,
    unit: "s",
    description: "Time until the budget is spent if it burns on as in the last hour. Absent where it will not be.",
    attributes: &[&[SLO, INDICATOR]],
    ..ROW
};
