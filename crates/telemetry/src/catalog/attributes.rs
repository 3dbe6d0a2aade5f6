//! Attributes of metrics and their possible values.

#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    pub key: &'static str,
    pub description: &'static str,
    pub values: Values,
}

/// The possible values of an attribute.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// A fixed list of values.
    Closed(&'static [&'static str]),
    /// Values from traffic. The cardinality limiter bounds their number.
    Gated,
    /// Values from the configuration.
    Configured,
    /// Any number, or (on spans only) any text of bounded length.
    Any,
}

use Values::{Any, Closed, Configured, Gated};

attributes! {
    /// Every attribute key of metrics.
    ALL;
    OPERATION "gen_ai.operation.name" Closed(&["chat", "text_completion", "generate_content", "transcription", "embeddings", "fetch_response", "count_tokens", "rerank", "moderation", "image_generation", "speech", "realtime"]), "Kind of call. chat, text_completion, generate_content, embeddings and fetch_response are values of the semantic conventions; the others are our own.";
    PROVIDER "gen_ai.provider.name" Gated, "Provider of the API: the value of the semantic conventions, or the name of the engine.";
    REQUEST_MODEL "gen_ai.request.model" Gated, "Model in the request.";
    RESPONSE_MODEL "gen_ai.response.model" Gated, "Model in the response. Only on metrics that are recorded at the end of a call.";
    STREAM "gen_ai.request.stream" Closed(&["true", "false"]), "Whether the response was streamed.";
    SERVER_ADDRESS "server.address" Configured, "The upstream's host.";
    SERVER_PORT "server.port" Configured, "The upstream's port.";
    ERROR_TYPE "error.type" Gated, "Kind of error: the provider's code, a status code, or an outcome. Only on errors.";
    TOKEN_MODALITY "gen_ai.token.modality" Closed(&["text", "image", "audio", "unknown"]), "Modality of the tokens, if the provider splits its counts. `unknown`: not split, or another modality (video, documents).";
    TOKEN_TYPE "gen_ai.token.type" Closed(&["input", "output"]), "Direction of the tokens.";
    MCP_METHOD "mcp.method.name" Closed(MCP_METHODS), "Method of a request or notification of the Model Context Protocol. `_OTHER`: a method that the conventions do not list.";
    MCP_PROTOCOL_VERSION "mcp.protocol.version" Closed(MCP_VERSIONS), "Version of the Model Context Protocol, from the header `MCP-Protocol-Version`, or else as client and server negotiate it. `_OTHER`: an unknown version.";
    TOOL_NAME "gen_ai.tool.name" Gated, "Tool that the operation calls.";
    PROMPT_NAME "gen_ai.prompt.name" Gated, "Prompt that the operation gets.";
    RPC_STATUS "rpc.response.status_code" Gated, "Code of the JSON-RPC error in the response. Only on errors.";
    NETWORK_PROTOCOL "network.protocol.name" Closed(&["http"]), "Protocol that carries the messages.";
    NETWORK_TRANSPORT "network.transport" Closed(&["tcp"]), "Transport that carries the messages.";
    METHOD "http.request.method" Closed(&["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE", "_OTHER"]), "The request's method.";
    STATUS "http.response.status_code" Any, "The response's status, 100 to 599.";
    SCHEME "url.scheme" Closed(&["http", "https"]), "Scheme that the client used.";
    PROTOCOL_VERSION "network.protocol.version" Closed(&["0.9", "1.0", "1.1", "2", "3"]), "HTTP version that the client used.";
    ROUTE "tokengauge.route" Configured, "Name of the route.";
    POSITION "tokengauge.position" Closed(&["inbound", "outbound", "gateway", "envoy"]), "Position of this proxy: beside the backend, beside the application, shared in between, or beside Envoy, which sends a copy. Panels select one, since each position sees the same call.";
    TENANT "tokengauge.tenant" Gated, "Tenant of the call, from the configured header. Absent if no header is configured or the request has none.";
    VARIANT "tokengauge.variant" Gated, "Variant of the call (version of a prompt or model, arm of an A/B test), from the configured header. Absent as `tokengauge.tenant`.";
    INPUT_LENGTH_BUCKET "tokengauge.input_length_bucket" Closed(LENGTHS), "Length of the prompt in tokens: as reported, else an estimate (bytes of its texts ÷ 4). Only with `cardinality_limits.length_buckets`, and if known.";
    OUTPUT_LENGTH_BUCKET "tokengauge.output_length_bucket" Closed(LENGTHS), "Length of the response in tokens (N). Only with `cardinality_limits.length_buckets`, and if known.";
    TOKEN_KIND "tokengauge.token.kind" Closed(&["prompt", "text", "reasoning", "tool", "refusal", "transcript", "uncached", "cache_read", "cache_write", "cache_write_1h", "output", "hidden"]), "Kind of the tokens. Of `tokengauge.tokens`: prompt, text, reasoning, tool, refusal, transcript. Of `tokengauge.reported_tokens`: uncached, cache_read, cache_write, cache_write_1h (together the input), output, reasoning, hidden (together the output).";
    TOKEN_SOURCE "tokengauge.token.source" Closed(&["counted", "estimated", "reported"]), "`counted`: with the model's own encoding. `estimated`: with another encoding or from bytes. `reported`: by the provider (only on `tokengauge.cost`).";
    STREAM_STATE "tokengauge.stream.state" Closed(&["waiting", "streaming", "blocked"]), "Waiting for the first token, streaming, or blocked by a client that does not read.";
    STATE "tokengauge.state" Closed(&["queued", "waiting", "streaming", "unstreamed", "running", "flowing", "stalled"]), "State of a request in flight. Of `tokengauge.backend.requests`: waiting, running. Of `tokengauge.active_streams`: flowing, stalled.";
    WINDOW "tokengauge.window" Closed(&["10s", "1m", "5m", "peak", "30m", "1h", "2h", "6h", "1d", "3d"]), "Time window. Of `tokengauge.token_throughput`: 10s, 1m, 5m, peak. Of `tokengauge.slo.burn_rate`: 5m, 30m, 1h, 2h, 6h, 1d, 3d.";
    OUTPUT_RATE_RANGE "tokengauge.output_rate_range" Closed(&["<5", "5-15", "15-30", "30-60", ">=60", "voice"]), "Range of output tokens per second. `voice` (at least 100) is counted in addition to >=60.";
    GATEWAY_USAGE "tokengauge.gateway_usage" Closed(&["equal", "different"]), "Whether the token count of a gateway equals that of this proxy.";
    UNRATED_REASON "tokengauge.unrated_reason" Closed(&["no_token", "few_tokens", "short_decode", "unobserved"]), "Why a stream has no output rate.";
    STAGE "tokengauge.stage" Closed(&["admission", "connect", "upload", "headers", "first_byte", "first_event", "first_token", "reasoning", "decode", "tail"]), "Stage between two consecutive timestamps. Of `tokengauge.requests.finished`: the stage in which the request ended.";
    BACKEND_STAGE "tokengauge.backend_stage" Closed(&["queue", "load", "prefill", "decode", "total"]), "Phase measured by the backend: waiting, loading the model, reading the prompt, generating, or all of them.";
    STALL_PHASE "tokengauge.stall_phase" Closed(&["first_token", "next_token"]), "The token that the stream has not delivered yet.";
    STALL_KIND "tokengauge.stall_kind" Closed(&["silent", "keep_alive_only"]), "What arrived during the stall: nothing, or only keep-alives, comments and events without a token.";
    COMPONENT "tokengauge.component" Closed(&["runtime", "observer"]), "Delayed component: a thread that forwards bytes, or the observer thread.";
    PRECISION "tokengauge.precision" Closed(&["exact", "upper_bound"]), "`exact`: queued here + waiting in the engine, as the engine reports. `upper_bound`: queued here + waiting for the first token, an upper bound.";
    QUEUE_LOCATION "tokengauge.queue_location" Closed(&["edge", "admission", "backend"]), "Where the call was queued: before this proxy (from `X-Request-Start` or `X-Queue-Start`), by the concurrency limit of the route, or in the backend as the backend reports.";
    LIMIT_TYPE "tokengauge.limit_type" Closed(&["requests", "tokens", "input_tokens", "output_tokens"]), "What the rate limit applies to. `tokens`: input and output together.";
    RETRY_SIGNAL "tokengauge.retry_signal" Closed(&["retry_count", "idempotency_key", "request_id"]), "How the retry was recognized: `x-stainless-retry-count` above 0; a repeated `idempotency-key`; or the `x-request-id`, path and length of a request that failed.";
    CONNECT_STAGE "tokengauge.connect_stage" Closed(&["wait", "dns", "tcp", "tls"]), "Part of getting a connection. `wait`: another request was opening the shared HTTP/2 connection, or an idle connection turned out to be closed.";
    PEER "tokengauge.peer" Closed(&["client", "upstream"]), "Peer of the connection: the client or the upstream.";
    DIRECTION "tokengauge.direction" Closed(&["request", "response"]), "Direction: from the client to the upstream, or back.";
    OUTCOME "tokengauge.outcome" Closed(&["ok", "error", "cancelled", "timeout", "truncated", "rejected"]), "Result of the request.";
    ERROR_SOURCE "tokengauge.error_source" Closed(&["none", "client", "upstream", "proxy"]), "Source of the error.";
    FINISH_REASON "tokengauge.finish_reason" Gated, "Finish reason of a choice, as the provider reports it. Absent if the choice has none.";
    CHOICE_RESULT "tokengauge.choice_result" Closed(&["complete", "empty", "refused", "filtered", "tool_json_invalid", "unfinished"]), "Result of a choice. `empty`: nothing was generated. `tool_json_invalid`: the arguments of a tool call start as a JSON object and are not valid JSON. `unfinished`: no finish reason arrived.";
    CURRENCY "tokengauge.currency" Configured, "ISO 4217 code from the price table.";
    BUDGET "tokengauge.budget_name" Configured, "Name of the budget.";
    BUDGET_UNIT "tokengauge.budget_unit" Configured, "Unit of the budget: `token`, or a currency.";
    SLO "tokengauge.slo" Configured, "Name of the objective.";
    SLI "tokengauge.sli" Closed(&["availability", "ttft", "first_visible", "output_rate", "total_rate", "stall_free", "inter_token", "duration", "tokens_above_rate", "system_rate"]), "Indicator (SLI) of the objective.";
    RESULT "tokengauge.result" Closed(&["good", "bad", "ok", "failed"]), "Of `tokengauge.slo.events`: good, bad. Of `tokengauge.self.export.requests`: ok, failed.";
    PARSE_ERROR "tokengauge.parse_error" Closed(&["oversize", "bad_frame", "bad_json", "bad_text", "bad_count", "unterminated", "gap", "encoding", "decompression_limit", "budget", "panic"]), "Kind of parse error.";
    DIMENSION "tokengauge.dimension" Closed(&["error_type", "finish_reason", "model", "provider", "tenant", "tool", "variant", "series"]), "Kind of label whose value was replaced by `other`. `series`: a combination of admitted values exceeded its limit.";
    SIGNAL "tokengauge.signal" Closed(&["logs", "metrics", "traces"]), "Exported signal.";
    DROP_REASON "tokengauge.drop_reason" Closed(&["queue_full", "failed", "rejected", "too_large", "shutdown"]), "Why items were dropped. `rejected`: the collector accepted the rest of the export. `too_large`: the item alone exceeds the limit of an export request.";
    OMISSION_REASON "tokengauge.omission_reason" Closed(&["not_understood", "truncated"]), "Why content is missing.";
    UPSTREAM "tokengauge.upstream" Configured, "Name of the upstream.";
    ENGINE "tokengauge.engine" Closed(&["vllm", "sglang", "tgi", "tensorrt_llm", "llama_cpp", "triton", "nim"]), "Engine whose metrics were read.";
    WARMUP_STATE "tokengauge.warmup_state" Closed(&["cold", "warming", "warm"]), "Warm-up state of the backend. `cold`: it has to load before it can respond. `warming`: it responds, but its latency has not settled.";
    SCRAPE_RESULT "tokengauge.scrape_result" Closed(&["ok", "unreachable", "timeout", "redirect", "http_error", "too_large", "not_metrics", "unknown_engine"]), "Result of a scrape. `not_metrics`: the response has no metrics. `unknown_engine`: no metrics of a known engine.";
    CERTIFICATE_FILE "tokengauge.certificate_file" Configured, "Path of a certificate file in the configuration.";
    CPU_MODE "cpu.mode" Closed(&["user", "system"]), "CPU time in the program itself, or in the kernel on its behalf.";
    VERSION "tokengauge.version" Any, "Version of this program.";
}

/// Length ranges in tokens, where k is 1,024.
const LENGTHS: &[&str] = &["<128", "128-512", "512-2k", "2k-8k", "8k-32k", ">=32k"];

/// Methods of the Model Context Protocol that the semantic conventions list. The last value stands for all others.
pub const MCP_METHODS: &[&str] = &[
    "completion/complete",
    "elicitation/create",
    "initialize",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/initialized",
    "notifications/message",
    "notifications/progress",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/roots/list_changed",
    "notifications/subscriptions/acknowledged",
    "notifications/tools/list_changed",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "roots/list",
    "sampling/createMessage",
    "server/discover",
    "subscriptions/listen",
    "tools/call",
    "tools/list",
    OTHER_WORD,
];

/// Versions of the Model Context Protocol. The last value stands for all others.
pub const MCP_VERSIONS: &[&str] =
    &["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", OTHER_WORD];

/// The value of the semantic conventions for values that are not listed.
const OTHER_WORD: &str = "_OTHER";

/// Returns `text` if it is one of the `known` values, or else `_OTHER`.
pub fn known_word(known: &'static [&'static str], text: &str) -> &'static str {
    known.iter().find(|word| **word == text).copied().unwrap_or(OTHER_WORD)
}

/// Attributes of operations of the Model Context Protocol, for client and server.
pub const MCP_OPERATION: &[Attribute] =
    &[MCP_METHOD, TOOL_NAME, PROMPT_NAME, RPC_STATUS, NETWORK_TRANSPORT];

/// Attributes of operations and sessions of the Model Context Protocol.
pub const MCP: &[Attribute] =
    &[MCP_PROTOCOL_VERSION, NETWORK_PROTOCOL, ERROR_TYPE, ROUTE, POSITION];

/// Attributes of calls of a known API.
pub const CALL: &[Attribute] = &[
    OPERATION,
    PROVIDER,
    REQUEST_MODEL,
    STREAM,
    SERVER_ADDRESS,
    SERVER_PORT,
    ROUTE,
    POSITION,
    TENANT,
    VARIANT,
];

/// Further attributes of finished calls.
pub const ENDED: &[Attribute] = &[RESPONSE_MODEL];

/// The length range of the prompt, and that of the response. If length buckets are enabled, the metrics for rates and
/// times of finished calls have these attributes.
pub const LENGTH_BUCKETS: &[Attribute] = &[INPUT_LENGTH_BUCKET, OUTPUT_LENGTH_BUCKET];

/// Attributes that are known when a request starts.
pub const ROUTE_KEY: &[Attribute] = &[ROUTE, POSITION];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Component;
    use crate::catalog::values::GATEWAY_USAGE_RESULTS;
    use tokengauge_llm::dialect::{Operation, TextKind};
    use tokengauge_llm::frame::ParseError;
    use tokengauge_measure::engine::{Engine, ScrapeResult};
    use tokengauge_measure::load::{LimitType, Precision, RequestPhase, RetrySignal};
    use tokengauge_measure::record::{ChoiceStatus, LengthBucket, Outcome, WarmupState};
    use tokengauge_measure::slo::{BURN_WINDOWS, SliKind};
    use tokengauge_measure::timing::{OutputRateRange, Stage, StallKind, StallPhase, Unrated};
    use tokengauge_types::event::{ConnectStage, ErrorSource, ProxyPosition};
    use tokengauge_types::label::Dimension;

    fn closed(attribute: Attribute) -> Vec<&'static str> {
        match attribute.values {
            Closed(values) => values.to_vec(),
            Gated | Configured | Any => panic!("{} is not closed", attribute.key),
        }
    }

    #[test]
    fn closed_values_match_their_enums() {
        assert_eq!(closed(OPERATION), Operation::ALL.map(Operation::as_str));
        assert_eq!(closed(POSITION), ProxyPosition::ALL.map(ProxyPosition::as_str));
        assert_eq!(closed(STATE)[..4], RequestPhase::ALL.map(RequestPhase::as_str));
        assert_eq!(closed(PRECISION), Precision::ALL.map(Precision::as_str));
        assert_eq!(closed(ENGINE), Engine::ALL.map(Engine::as_str));
        assert_eq!(closed(WARMUP_STATE), WarmupState::ALL.map(WarmupState::as_str));
        assert_eq!(closed(SCRAPE_RESULT), ScrapeResult::ALL.map(ScrapeResult::as_str));
        assert_eq!(closed(LIMIT_TYPE), LimitType::ALL.map(LimitType::as_str));
        assert_eq!(closed(RETRY_SIGNAL), RetrySignal::ALL.map(RetrySignal::as_str));
        assert_eq!(closed(GATEWAY_USAGE), GATEWAY_USAGE_RESULTS);
        assert_eq!(closed(UNRATED_REASON), Unrated::ALL.map(Unrated::as_str));
        assert_eq!(closed(STALL_PHASE), StallPhase::ALL.map(StallPhase::as_str));
        assert_eq!(closed(STALL_KIND), StallKind::ALL.map(StallKind::as_str));
        assert_eq!(closed(COMPONENT), Component::ALL.map(Component::as_str));
        assert_eq!(closed(STAGE), Stage::ALL.map(Stage::as_str));
        assert_eq!(closed(CONNECT_STAGE), ConnectStage::ALL.map(ConnectStage::as_str));
        assert_eq!(closed(OUTCOME), Outcome::ALL.map(Outcome::as_str));
        assert_eq!(closed(ERROR_SOURCE), ErrorSource::ALL.map(ErrorSource::as_str));
        assert_eq!(closed(PARSE_ERROR), ParseError::ALL.map(ParseError::as_str));
        assert_eq!(closed(DIMENSION)[..7], Dimension::ALL.map(Dimension::as_str));
        assert_eq!(closed(INPUT_LENGTH_BUCKET), LengthBucket::ALL.map(LengthBucket::as_str));
        assert_eq!(closed(CHOICE_RESULT), ChoiceStatus::ALL.map(ChoiceStatus::as_str));
        assert_eq!(
            closed(OUTPUT_RATE_RANGE)[..5],
            OutputRateRange::ALL.map(OutputRateRange::as_str)
        );
        assert_eq!(closed(TOKEN_KIND)[1..6], TextKind::ALL.map(TextKind::as_str));
        assert_eq!(closed(SLI), SliKind::ALL.map(SliKind::as_str));
        for (window, _) in BURN_WINDOWS {
            assert!(closed(WINDOW).contains(&window));
        }
    }
}
