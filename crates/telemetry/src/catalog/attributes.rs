//! Attribute keys of metrics, and what their values can be.

use std::fmt;

/// One attribute key.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    pub key: &'static str,
    pub description: &'static str,
    pub values: Values,
}

/// What values an attribute can have.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// One of these.
    Closed(&'static [&'static str]),
    /// From outside, through the label gate, which bounds how many there are.
    Gated,
    /// From the configuration.
    Configured,
    /// Any: a number, or (on spans only) text of bounded length.
    Any,
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(values) => {
                let quoted: Vec<_> = values.iter().map(|value| format!("`{value}`")).collect();
                f.write_str(&quoted.join(", "))
            }
            Self::Gated => f.write_str("from outside; bounded, the rest is `other`"),
            Self::Configured => f.write_str("from the configuration"),
            Self::Any => f.write_str("any"),
        }
    }
}

macro_rules! attributes {
    ($($name:ident $key:literal $values:expr, $description:literal;)*) => {
        $(
            #[doc = $description]
            pub const $name: Attribute = Attribute { key: $key, description: $description, values: $values };
        )*
        /// Every attribute key of metrics.
        pub const ALL: &[Attribute] = &[$($name),*];
    };
}

use Values::{Any, Closed, Configured, Gated};

attributes! {
    OPERATION "gen_ai.operation.name" Closed(&["chat", "text_completion", "generate_content", "transcription", "embeddings", "fetch_response", "count_tokens", "rerank", "moderation", "image_generation", "speech", "realtime"]), "What kind of call it is: the standard's words chat, text_completion, generate_content, embeddings and fetch_response, and ours where it has none.";
    PROVIDER "gen_ai.provider.name" Gated, "Whose API it is: the standard's word, or the engine's name.";
    REQUEST_MODEL "gen_ai.request.model" Gated, "The model that was asked for.";
    RESPONSE_MODEL "gen_ai.response.model" Gated, "The model that answered; only on what is recorded at the end.";
    STREAM "gen_ai.request.stream" Closed(&["true", "false"]), "Whether the answer came as a stream.";
    SERVER_ADDRESS "server.address" Configured, "The upstream's host.";
    SERVER_PORT "server.port" Configured, "The upstream's port.";
    ERROR_TYPE "error.type" Gated, "What went wrong: the provider's code, a status code, or an outcome. Only on errors.";
    TOKEN_MODALITY "gen_ai.token.modality" Closed(&["text", "image", "audio", "unknown"]), "What the tokens stand for, where the provider splits its counts; `unknown` for what is not split, and for other matter (video, documents).";
    TOKEN_TYPE "gen_ai.token.type" Closed(&["input", "output"]), "Direction of the tokens.";
    METHOD "http.request.method" Closed(&["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE", "_OTHER"]), "The request's method.";
    STATUS "http.response.status_code" Any, "The response's status, 100 to 599.";
    SCHEME "url.scheme" Closed(&["http", "https"]), "What the client spoke.";
    PROTOCOL_VERSION "network.protocol.version" Closed(&["0.9", "1.0", "1.1", "2", "3"]), "The HTTP version that the client spoke.";
    ROUTE "tokengauge.route" Configured, "The route the exchange took.";
    VANTAGE "tokengauge.vantage" Closed(&["inbound", "outbound", "gateway"]), "Where this proxy stands: beside the backend, beside the application, or shared in between. Panels pick one, since each sees the same call.";
    TENANT "tokengauge.tenant" Gated, "On whose account the call was, by the header that the configuration names; absent where it names none or the request had none.";
    VARIANT "tokengauge.variant" Gated, "Which of several ways the call went (a prompt's or a model's version, an arm of an A/B test), by the header that the configuration names; absent as `tokengauge.tenant` is.";
    INPUT_BAND "tokengauge.input_band" Closed(LENGTHS), "How long the prompt was, in tokens: the input reported, else an estimate (bytes of its texts ÷ 4). Only with `labels.length_bands`, and where it is known.";
    OUTPUT_BAND "tokengauge.output_band" Closed(LENGTHS), "How long the answer was: N. Only with `labels.length_bands`, and where it is known.";
    TOKEN_KIND "tokengauge.token.kind" Closed(&["prompt", "text", "reasoning", "tool", "refusal", "transcript", "uncached", "cache_read", "cache_write", "output", "hidden"]), "What the tokens are. Of `tokengauge.tokens`: prompt, text, reasoning, tool, refusal, transcript. Of `tokengauge.usage`: uncached, cache_read, cache_write (together the input), output, reasoning, hidden (together the output).";
    TOKEN_SOURCE "tokengauge.token.source" Closed(&["counted", "estimated", "reported"]), "`counted` with the model's own encoding, `estimated` with another or from bytes, `reported` by the provider (of `tokengauge.cost` alone).";
    STREAM_STATE "tokengauge.stream.state" Closed(&["waiting", "streaming", "blocked"]), "waiting for the first token, streaming, or blocked by a client that does not read.";
    STATE "tokengauge.state" Closed(&["queued", "waiting", "streaming", "unstreamed", "running"]), "What an exchange in flight is doing. Of `tokengauge.backend.requests`, where the engine tells it: waiting, running.";
    WINDOW "tokengauge.window" Closed(&["10s", "1m", "5m", "peak", "30m", "1h", "2h", "6h", "1d", "3d"]), "The window looked at. Of `tokengauge.throughput`: 10s, 1m, 5m, peak. Of `tokengauge.slo.burn`: 5m, 30m, 1h, 2h, 6h, 1d, 3d.";
    BAND "tokengauge.band" Closed(&["<5", "5-15", "15-30", "30-60", ">=60", "voice"]), "Experience band by output tokens per second; `voice` (at least 100) is counted beside >=60.";
    UNRATED "tokengauge.unrated" Closed(&["no_token", "few_tokens", "short_decode", "unobserved"]), "Why a stream has no output rate.";
    STAGE "tokengauge.stage" Closed(&["admission", "connect", "upload", "headers", "first_byte", "first_event", "first_token", "thinking", "decode", "tail"]), "A gap between neighbouring clock points. Of `tokengauge.requests.finished`: the stage in which the exchange ended.";
    BACKEND_STAGE "tokengauge.backend_stage" Closed(&["queue", "load", "prefill", "decode", "total"]), "A phase by the backend's own clock: waiting, loading the model, reading the prompt, generating, all of it.";
    AWAITED "tokengauge.awaited" Closed(&["first_token", "next_token"]), "What a stream is awaited to bring.";
    SILENCE "tokengauge.silence" Closed(&["silent", "pinging"]), "What came instead of tokens when the stall was raised: nothing, or pings, comments and events without a token.";
    PART "tokengauge.part" Closed(&["runtime", "observer"]), "Whose turn was late: that of the runtime that moves the bytes, or of the thread that observes them.";
    POINT "tokengauge.point" Closed(&["head", "byte", "event", "token", "visible"]), "A clock point.";
    BOUND "tokengauge.bound" Closed(&["exact", "upper"]), "`exact`: queued here + waiting in the engine, by its own word. `upper`: queued here + awaiting their first token, an upper bound.";
    WAIT_PLACE "tokengauge.where" Closed(&["edge", "admission", "backend"]), "Where the call was held back: before it reached this proxy (by `X-Request-Start` or `X-Queue-Start`), by the route's own limit, or at the backend by the backend's own word.";
    LIMITED "tokengauge.limited" Closed(&["requests", "tokens", "input_tokens", "output_tokens"]), "What the provider limits. `tokens`: input and output together.";
    SIGN "tokengauge.sign" Closed(&["retry_count", "idempotency_key", "request_id"]), "By what a retry is known: `x-stainless-retry-count` above 0; an `idempotency-key` that was there before; the `x-request-id`, path and length of a request that did not end well.";
    CONNECT_STAGE "tokengauge.connect_stage" Closed(&["wait", "dns", "tcp", "tls"]), "A part of having a connection. `wait` is what no connecting of the exchange itself explains: another exchange was making the shared HTTP/2 connection, or an idle connection turned out closed.";
    SIDE "tokengauge.side" Closed(&["client", "upstream"]), "Whose connection: the client's to this proxy, or this proxy's to the upstream.";
    DIRECTION "tokengauge.direction" Closed(&["request", "response"]), "Which way it went: from the client to the upstream, or back.";
    OUTCOME "tokengauge.outcome" Closed(&["ok", "error", "cancelled", "timeout", "truncated", "rejected"]), "How the exchange came out.";
    FAULT "tokengauge.fault" Closed(&["none", "client", "upstream", "proxy"]), "Whose fault it was.";
    FINISH_REASON "tokengauge.finish_reason" Gated, "The provider's word for why a choice ended; `error` where one was owed and never came.";
    CHOICE "tokengauge.choice" Closed(&["complete", "empty", "refused", "filtered", "tool_json_invalid", "unfinished"]), "What became of a choice. `empty`: it generated nothing; `tool_json_invalid`: a tool's arguments begin as a JSON object and are none; `unfinished`: no finish reason came.";
    CURRENCY "tokengauge.currency" Configured, "Three letters of ISO 4217, as the table of prices has them.";
    BUDGET "tokengauge.budget_name" Configured, "The budget's name.";
    BUDGET_UNIT "tokengauge.budget_unit" Configured, "What a budget is counted in: `token`, or a currency.";
    SLO "tokengauge.slo" Configured, "The objective's name.";
    INDICATOR "tokengauge.indicator" Closed(&["availability", "time_to_first_token", "first_visible", "output_rate", "total_rate", "stall_free", "inter_token", "duration", "tokens_above_rate", "system_rate"]), "What the objective looks at.";
    RESULT "tokengauge.result" Closed(&["good", "bad", "ok", "failed"]), "Of `tokengauge.slo.events`: good, bad. Of `tokengauge.self.export.requests`: ok, failed.";
    ANOMALY "tokengauge.anomaly" Closed(&["oversize", "bad_frame", "bad_json", "bad_text", "unterminated", "gap", "encoding", "inflation", "panic"]), "What was odd in what went by.";
    DIMENSION "tokengauge.dimension" Closed(&["error_type", "finish_reason", "model", "provider", "tenant", "variant", "series"]), "Which kind of label value had to be called `other`; `series`: a combination of admitted values was one too many.";
    SIGNAL "tokengauge.signal" Closed(&["logs", "metrics", "traces"]), "Exported signal.";
    DROP_REASON "tokengauge.reason" Closed(&["queue_full", "failed", "shutdown"]), "Why it was dropped.";
    OMISSION "tokengauge.omission" Closed(&["not_understood", "truncated"]), "Why content was left out.";
    UPSTREAM "tokengauge.upstream" Configured, "The upstream's name.";
    ENGINE "tokengauge.engine" Closed(&["vllm", "sglang", "tgi", "tensorrt_llm", "llama_cpp", "triton", "nim"]), "Whose metrics were read.";
    WARM "tokengauge.warm" Closed(&["cold", "warming", "warm"]), "How warm a backend is. `cold`: it has to load before it can answer; `warming`: it answers and has not settled.";
    ASKED "tokengauge.asked" Closed(&["ok", "unreachable", "timeout", "redirect", "status", "too_large", "content", "unknown"]), "How asking an engine for its metrics ended. `content`: the answer holds no metrics; `unknown`: none of an engine that is known.";
    CPU_MODE "cpu.mode" Closed(&["user", "system"]), "Of the CPU time: in the program itself, or in the kernel on its behalf.";
    VERSION "tokengauge.version" Any, "The version of this program.";
}

/// Bands of lengths in tokens; k is 1,024.
const LENGTHS: &[&str] = &["<128", "128-512", "512-2k", "2k-8k", "8k-32k", ">=32k"];

/// What tells calls of a known API apart.
pub const CALL: &[Attribute] = &[
    OPERATION,
    PROVIDER,
    REQUEST_MODEL,
    STREAM,
    SERVER_ADDRESS,
    SERVER_PORT,
    ROUTE,
    VANTAGE,
    TENANT,
    VARIANT,
];

/// What tells ended calls apart.
pub const ENDED: &[Attribute] = &[RESPONSE_MODEL];

/// What tells the rates and times of ended calls apart where the configuration asks.
pub const BANDED: &[Attribute] = &[INPUT_BAND, OUTPUT_BAND];

/// What is known of an exchange when it begins.
pub const LANE: &[Attribute] = &[ROUTE, VANTAGE];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Component;
    use tokengauge_llm::dialect::{Operation, TextKind};
    use tokengauge_llm::frame::Anomaly;
    use tokengauge_measure::engine::{Asked, Engine};
    use tokengauge_measure::load::{Bound, Limited, Sign, State};
    use tokengauge_measure::record::{Became, LengthBand, Outcome, Warm};
    use tokengauge_measure::slo::{BURN_WINDOWS, Indicator};
    use tokengauge_measure::timing::{Awaited, Band, Silence, Stage, Unrated};
    use tokengauge_types::event::{ConnectStage, ErrorSource, ProxyPosition};
    use tokengauge_types::label::Dimension;

    fn closed(attribute: Attribute) -> Vec<&'static str> {
        match attribute.values {
            Closed(values) => values.to_vec(),
            Gated | Configured | Any => panic!("{} is not closed", attribute.key),
        }
    }

    #[test]
    fn closed_lists_are_the_words_of_their_enums() {
        assert_eq!(closed(OPERATION), Operation::ALL.map(Operation::as_str));
        assert_eq!(closed(VANTAGE), ProxyPosition::ALL.map(ProxyPosition::as_str));
        assert_eq!(closed(STATE)[..4], State::ALL.map(State::as_str));
        assert_eq!(closed(BOUND), Bound::ALL.map(Bound::as_str));
        assert_eq!(closed(ENGINE), Engine::ALL.map(Engine::as_str));
        assert_eq!(closed(WARM), Warm::ALL.map(Warm::as_str));
        assert_eq!(closed(ASKED), Asked::ALL.map(Asked::as_str));
        assert_eq!(closed(LIMITED), Limited::ALL.map(Limited::as_str));
        assert_eq!(closed(SIGN), Sign::ALL.map(Sign::as_str));
        assert_eq!(closed(UNRATED), Unrated::ALL.map(Unrated::as_str));
        assert_eq!(closed(AWAITED), Awaited::ALL.map(Awaited::as_str));
        assert_eq!(closed(SILENCE), Silence::ALL.map(Silence::as_str));
        assert_eq!(closed(PART), Component::ALL.map(Component::as_str));
        assert_eq!(closed(STAGE), Stage::ALL.map(Stage::as_str));
        assert_eq!(closed(CONNECT_STAGE), ConnectStage::ALL.map(ConnectStage::as_str));
        assert_eq!(closed(OUTCOME), Outcome::ALL.map(Outcome::as_str));
        assert_eq!(closed(FAULT), ErrorSource::ALL.map(ErrorSource::as_str));
        assert_eq!(closed(ANOMALY), Anomaly::ALL.map(Anomaly::as_str));
        assert_eq!(closed(DIMENSION)[..6], Dimension::ALL.map(Dimension::as_str));
        assert_eq!(closed(INPUT_BAND), LengthBand::ALL.map(LengthBand::as_str));
        assert_eq!(closed(CHOICE), Became::ALL.map(Became::as_str));
        assert_eq!(closed(BAND)[..5], Band::ALL.map(Band::as_str));
        assert_eq!(closed(TOKEN_KIND)[1..6], TextKind::ALL.map(TextKind::as_str));
        assert_eq!(closed(INDICATOR), Indicator::WORDS);
        for (window, _) in BURN_WINDOWS {
            assert!(closed(WINDOW).contains(&window));
        }
    }
}
