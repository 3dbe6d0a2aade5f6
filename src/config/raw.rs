//! The structs of the configuration file. Their doc comments are the descriptions in the JSON Schema.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ExportProtocol;
use super::bounded::{Bounded, BoundedInt, BoundedSize, BoundedTime, DAY, HOUR, MINUTE, SECOND};
use super::deserialize::Field;
pub(super) use super::raw_logs::{Log, RequestLog};
use super::value::{
    Address, Currency, EngineChoice, HeaderValue, ListenAddr, MoneyAmount, Ratio, ThresholdValue,
    TimeLimit,
};
use crate::forward::TraceHeaders;
use crate::forward::{Propagator, Protocol, Retry};
use tokengauge_measure::slo::{Exclusion, Preset};
use tokengauge_telemetry::config::GenAiNames;
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::url::{PathOrUrl, Url};

/// Configuration of tokengauge.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    /// The version of this format: 1, which is also the default.
    #[schemars(range(min = 1, max = 1))]
    pub(super) version: Field<u64>,
    /// Addresses that accept client connections.
    pub(super) listeners: Field<Vec<Field<Listener>>>,
    /// The port for health, metrics, configuration and live streams.
    pub(super) admin: Field<Admin>,
    /// Servers that receive the forwarded requests. Each key is a name of your choice.
    pub(super) upstreams: Field<BTreeMap<String, Field<Upstream>>>,
    /// Which requests go to which upstream. Routes with a host are tried first, and longer prefixes before shorter
    /// ones. Optional if there is one upstream.
    pub(super) routes: Field<Vec<Field<Route>>>,
    /// Service level objectives, each with an error budget and burn rates. Without this key, default SLOs apply. An
    /// empty list disables all SLOs.
    pub(super) slos: Field<Vec<Field<Slo>>>,
    /// Tokenizers of models that are not built in. Each key is a model name, in which * matches any text. Each value is
    /// the path of a tokenizer.json.
    pub(super) tokenizers: Field<BTreeMap<String, Field<PathBuf>>>,
    /// Storage of error budgets across restarts. Without this key, each start begins with full budgets.
    pub(super) slo_state: Field<SloState>,
    /// Request headers that identify tenant, session and variant, for metrics, spans and budgets. Off by default.
    pub(super) identity: Field<Identity>,
    /// Prices and budgets. Off by default.
    pub(super) cost: Field<Cost>,
    /// Maximum number of distinct values per metric label. Further values are reported as "other".
    pub(super) cardinality_limits: Field<CardinalityLimits>,
    /// OTLP export. Each key takes precedence over the OTEL_* variable of the same meaning.
    pub(super) otlp: Field<Otlp>,
    /// Resource limits of the proxy itself.
    pub(super) limits: Field<Limits>,
    /// How long open streams may continue after SIGTERM.
    // A longer grace period would let one forgotten stream block a deployment.
    pub(super) shutdown_grace_period: Field<GracePeriod>,
    /// Position of this proxy: beside the backend, beside the application, or as a shared gateway between them.
    pub(super) position: Field<ProxyPosition>,
    /// Default handling of trace headers. They are forwarded unchanged, or the trace is continued with the proxy's span
    /// as the parent.
    pub(super) trace_context: Field<TraceHeaders>,
    /// Trace header formats, in order of precedence. Defaults to OTEL_PROPAGATORS, or else tracecontext and baggage.
    pub(super) propagators: Field<Vec<Field<Propagator>>>,
    /// The proxy's own log, on standard error.
    pub(super) log: Field<Log>,
    /// One JSON line per request and its response, with all measurements and no text. Off by default.
    pub(super) request_log: Field<RequestLog>,
    /// Detection of changes in the workload. Lengths of prompts and responses are compared with a baseline.
    pub(super) workload_drift: Field<WorkloadDrift>,
}

pub(super) type GracePeriod = BoundedTime<0, HOUR>;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub(super) struct Listener {
    /// IP:PORT, or unix:/path for a Unix socket.
    pub(super) address: Field<Address>,
    /// Serve TLS.
    pub(super) tls: Field<Tls>,
    /// Maximum number of open connections. A further connection replaces the one that has waited longest for a request.
    pub(super) max_connections: Field<BoundedInt<1, 1_000_000>>,
    /// Maximum number of requests in flight. Further requests get status 503, except those of clients with less than an
    /// equal share. Defaults to max_connections if that is set, and otherwise to 8192.
    pub(super) max_requests: Field<BoundedInt<1, 1_000_000>>,
    /// Maximum time to receive the headers of an HTTP/1 request: from the start of a connection, and later from the first
    /// byte of each request.
    // Below 100 ms, headers in two packets over a slow line would fail. Above 10 min it limits nothing.
    pub(super) request_header_timeout: Field<BoundedTime<100, { 10 * MINUTE }>>,
    /// Maximum time between two pieces of a request body. Ten times as long for gRPC and AWS event streams over HTTP/2.
    /// Responses are not limited.
    pub(super) request_body_timeout: Field<BoundedTime<100, HOUR>>,
    /// Maximum time in which a client reads nothing of a response, or of a WebSocket, that waits for it.
    // Below 100 ms, a lost packet on a slow line would end a response.
    pub(super) send_timeout: Field<BoundedTime<100, HOUR>>,
    /// Maximum time that a connection stays open without a request. Keep this value above the idle timeout of load
    /// balancers.
    pub(super) idle_timeout: Field<BoundedTime<SECOND, HOUR>>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["certificate", "key"]))]
pub(super) struct Tls {
    /// The certificate chain (PEM file).
    pub(super) certificate: Field<PathBuf>,
    /// The private key of the certificate (PEM file).
    pub(super) key: Field<PathBuf>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Admin {
    /// IP:PORT. Without a token, an address other than loopback serves only public pages, such as health and metrics.
    pub(super) address: Field<ListenAddr>,
    /// A file with the bearer token. The variable TOKENGAUGE_ADMIN_TOKEN takes precedence.
    pub(super) token_file: Field<PathBuf>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["url"]))]
pub(super) struct Upstream {
    /// URL of the upstream. A path in the URL is prepended to the path of each request.
    pub(super) url: Field<Url>,
    /// HTTP version of connections to this upstream.
    pub(super) protocol: Field<Protocol>,
    /// Whether to forward the client's Host header instead of the URL's host.
    pub(super) preserve_host: Field<bool>,
    /// Additional root certificates for this upstream (PEM file).
    pub(super) ca_file: Field<PathBuf>,
    /// Time limits of a request.
    pub(super) timeouts: Field<Timeouts>,
    /// Idle connections that are kept for reuse.
    pub(super) pool: Field<Pool>,
    /// The metrics endpoint of the engine behind this upstream. Not scraped by default.
    pub(super) engine_metrics: Field<EngineMetrics>,
    /// When the engine behind this upstream counts as warm. Without this key, warm-up is not tracked.
    pub(super) warmup: Field<Warmup>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Timeouts {
    /// Maximum time for DNS, TCP and TLS together.
    pub(super) connect: Field<TimeLimit>,
    /// Maximum time from the start of sending the request to the response headers.
    pub(super) response_header: Field<TimeLimit>,
    /// Maximum time between two chunks of the response body.
    pub(super) idle: Field<TimeLimit>,
    /// Maximum time from the request headers to the end of the response.
    pub(super) total: Field<TimeLimit>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Pool {
    /// Maximum time that an idle connection is kept. Keep this value below the keep-alive timeout of the upstream.
    // After 5 min every server has closed the connection.
    pub(super) idle_timeout: Field<BoundedTime<0, { 5 * MINUTE }>>,
    /// Maximum number of idle connections.
    pub(super) max_idle_connections: Field<BoundedInt<0, 65_536>>,
    /// Which requests are sent again if a reused connection ends before the response begins: safe, always or never.
    pub(super) retry: Field<Retry>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EngineMetrics {
    /// A path on the upstream's host, or a URL.
    pub(super) url: Field<PathOrUrl>,
    /// Name of the engine. By default, the names of the metrics identify the engine.
    pub(super) engine: Field<EngineChoice>,
    /// Scrape interval.
    // Engines do not update their numbers more often than once per second. Queues change within 5 min.
    pub(super) scrape_interval: Field<BoundedTime<SECOND, { 5 * MINUTE }>>,
    /// Maximum time for a complete response.
    // Below 100 ms, 1 MB over a slow line always fails. A page older than a minute does not describe the present.
    pub(super) scrape_timeout: Field<BoundedTime<100, MINUTE>>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Warmup {
    /// Time without requests after which the engine must warm up again.
    // A second without traffic is not idleness. No cache is kept for longer than a day.
    pub(super) idle_timeout: Field<BoundedTime<SECOND, DAY>>,
    /// Number of successful responses after which the engine counts as warm.
    pub(super) min_requests: Field<BoundedInt<0, 1_000>>,
    /// Time after the engine's start during which the engine counts as warming up. 0s disables this rule.
    pub(super) startup_grace: Field<BoundedTime<0, HOUR>>,
    /// A response marks a cold start if it reports a longer model load time than this value.
    // Looking up a loaded model takes some time as well. No model takes an hour to load.
    pub(super) cold_load_threshold: Field<BoundedTime<1, HOUR>>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["upstream"]))]
pub(super) struct Route {
    /// Name in metrics and SLOs.
    pub(super) name: Field<String>,
    /// Which requests take this route. Without this key, all requests match.
    pub(super) r#match: Field<Match>,
    /// The name of an entry under upstreams.
    pub(super) upstream: Field<String>,
    /// Whether to strip match.prefix from the path before the request is forwarded.
    pub(super) strip_prefix: Field<bool>,
    /// The API format: a family such as openai, anthropic, google or ollama, or one API such as openai.chat for every
    /// POST. By default, the format is detected.
    pub(super) api_format: Field<String>,
    /// The provider in telemetry, such as openai, azure.ai.openai, anthropic or vllm. Inferred by default.
    pub(super) provider: Field<String>,
    /// Overrides the global position.
    pub(super) position: Field<ProxyPosition>,
    /// Overrides the global handling of trace headers.
    pub(super) trace_context: Field<TraceHeaders>,
    /// When a stream counts as stalled. The proxy does not abort stalled streams.
    pub(super) stall: Field<Stall>,
    /// Concurrency limit of this route. Unlimited by default.
    pub(super) concurrency_limit: Field<ConcurrencyLimit>,
    /// Capture of prompts and answers on spans. Off by default.
    pub(super) content: Field<Content>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Stall {
    /// A stream counts as stalled if no first token arrives within this time after the end of the request. Ten times as
    /// long if the request asks for reasoning.
    pub(super) first_token_after: Field<StallThreshold>,
    /// A stream counts as stalled if no further token arrives within this time after a token.
    pub(super) inter_token_after: Field<StallThreshold>,
}

/// At least 250 ms, the interval of the search for stalled streams. A threshold above 1 hour has no use.
pub(super) type StallThreshold = BoundedTime<250, HOUR>;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["max_in_flight"]))]
pub(super) struct ConcurrencyLimit {
    /// Maximum number of concurrent requests. A request counts until the end of its response.
    // A process has at most 65,536 ports towards one upstream.
    pub(super) max_in_flight: Field<BoundedInt<1, 65_536>>,
    /// Maximum number of queued requests. Further requests are rejected with status 429.
    // Each queued request holds a connection and up to 64 KiB of its body.
    pub(super) max_queue: Field<BoundedInt<0, 65_536>>,
    /// Maximum time in the queue. Then, the request is rejected with status 429.
    // Below 10 ms use `max_queue: 0`. After 10 min every client has disconnected.
    pub(super) queue_timeout: Field<BoundedTime<10, { 10 * MINUTE }>>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["capture"]))]
pub(super) struct Content {
    /// Whether to capture prompts and answers.
    pub(super) capture: Field<bool>,
    /// Maximum number of captured bytes, for the request body and for the text of the response each.
    // Less than 1 KiB is not a sentence. More than 2 × 1 MiB exceeds what collectors accept at a time.
    pub(super) max_bytes: Field<BoundedSize<{ 1 << 10 }, { 1 << 20 }>>,
    /// Patterns of text that is removed before content is captured: names of built-in patterns, or regular expressions
    /// between slashes.
    pub(super) redact: Field<Vec<Field<String>>>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Match {
    /// The Host header without its port. "*.example.com" matches any subdomain.
    pub(super) host: Field<String>,
    /// Start of the path, in whole segments: /v1 matches /v1/chat, but not /v10.
    pub(super) prefix: Field<String>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Slo {
    /// Several SLOs for one kind of use, such as chat. The keys name, target, window, scope, warmup and exclude apply
    /// to all of them. Other keys are not allowed.
    pub(super) preset: Field<Preset>,
    /// Name in metrics and alerts. With preset, the names of its SLOs start with this name.
    pub(super) name: Field<String>,
    /// The criterion for a good request.
    pub(super) sli: Field<Sli>,
    /// Maximum good time for ttft, first_visible, inter_token and duration. Minimum good rate in tokens per second for
    /// output_rate, total_rate, tokens_above_rate and system_rate.
    pub(super) threshold: Field<ThresholdValue>,
    /// Minimum number of streams in flight for system_rate. A minute with fewer streams does not count.
    pub(super) min_streams: Field<Count>,
    /// Requests with fewer output tokens do not count.
    pub(super) min_output_tokens: Field<Count>,
    /// SLO target: the ratio of good requests, such as 99.5% or 0.995.
    pub(super) target: Field<Ratio>,
    /// The rolling window of the budget, 1h to 90d.
    pub(super) window: Field<BudgetWindow>,
    /// Time after the start of the proxy. Requests that start within this time do not count.
    // A backend that is not warm after a day does not become warm.
    pub(super) warmup: Field<BoundedTime<0, DAY>>,
    /// Failure classes that do not count as bad.
    pub(super) exclude: Field<Vec<Field<Exclusion>>>,
    /// Which requests count. Without this key, all requests count.
    pub(super) scope: Field<Scope>,
}

/// At most 1,000,000, because no response has more tokens and no system more streams in flight.
pub(super) type Count = Bounded<u32, 1, 1_000_000>;

/// The range that the calculation of error budgets supports.
pub(super) type BudgetWindow = BoundedTime<HOUR, { 90 * DAY }>;

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sli {
    Availability,
    Ttft,
    FirstVisible,
    OutputRate,
    TotalRate,
    StallFree,
    InterToken,
    Duration,
    TokensAboveRate,
    SystemRate,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Scope {
    /// The name of a route.
    pub(super) route: Field<String>,
    /// A model name, in which * matches any text.
    pub(super) model: Field<String>,
    /// A tenant, in which * matches any text. Requests without a tenant do not count.
    pub(super) tenant: Field<String>,
    /// The operation: chat, text_completion, embeddings and so on.
    pub(super) operation: Field<String>,
    /// Only streams, or only non-streaming responses.
    pub(super) stream: Field<bool>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path"]))]
pub(super) struct SloState {
    /// A file. Each process needs its own.
    pub(super) path: Field<PathBuf>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Identity {
    /// The customer or team that a request belongs to.
    pub(super) tenant: Field<Source>,
    /// The conversation or run that a request belongs to. Recorded on spans and in the request log, never in metrics.
    pub(super) session: Field<Source>,
    /// The variant of the request: a prompt version, a model version, or an arm of an A/B test.
    pub(super) variant: Field<Source>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["headers"]))]
pub(super) struct Source {
    /// Names of headers. The first header that is present is used.
    pub(super) headers: Field<Vec<Field<String>>>,
    /// Whether to replace the value by its hash. Required if the header holds a credential.
    pub(super) hash: Field<bool>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Cost {
    /// The price file.
    pub(super) prices: Field<PathBuf>,
    /// Usage budgets. Usage is counted, never enforced.
    pub(super) budgets: Field<Vec<Field<Budget>>>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub(super) struct Budget {
    /// Name in metrics and alerts.
    pub(super) name: Field<String>,
    /// A tenant, in which * matches any text. Without this key, all tenants count.
    pub(super) tenant: Field<String>,
    /// The name of a route. Without this key, all routes count.
    pub(super) route: Field<String>,
    /// The requested model, in which * matches any text. Without this key, all models count.
    pub(super) model: Field<String>,
    /// Money to spend within the window.
    pub(super) money: Field<Money>,
    /// Tokens to use within the window, input plus output.
    #[schemars(range(min = 1))]
    pub(super) tokens: Field<u64>,
    /// The rolling window, 1h to 90d.
    pub(super) window: Field<BudgetWindow>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["amount", "currency"]))]
pub(super) struct Money {
    /// The amount.
    pub(super) amount: Field<MoneyAmount>,
    /// ISO 4217 code. Only requests with a price in this currency count.
    pub(super) currency: Field<Currency>,
}

/// At most 1,000 values of one label. The values of all labels multiply, and more would overload a backend.
type LabelLimit = BoundedInt<1, 1_000>;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CardinalityLimits {
    /// Models.
    pub(super) models: Field<LabelLimit>,
    /// Providers.
    pub(super) providers: Field<LabelLimit>,
    /// Finish reasons.
    pub(super) finish_reasons: Field<LabelLimit>,
    /// Error types.
    pub(super) error_types: Field<LabelLimit>,
    /// Tenants.
    pub(super) tenants: Field<LabelLimit>,
    /// Variants.
    pub(super) variants: Field<LabelLimit>,
    /// Whether rates and latencies also have labels for the length of prompt and response.
    pub(super) length_buckets: Field<bool>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Otlp {
    /// The collector's URL, for metrics and traces.
    pub(super) endpoint: Field<Url>,
    /// The OTLP protocol.
    pub(super) protocol: Field<ExportProtocol>,
    /// The interval of metric exports.
    // Below 1 s the cost of exports outweighs their use. Above 5 min, 5-minute windows have no points.
    pub(super) interval: Field<BoundedTime<SECOND, { 5 * MINUTE }>>,
    /// Additional headers of each export. For secrets, use OTEL_EXPORTER_OTLP_HEADERS: files have many readers.
    pub(super) headers: Field<BTreeMap<String, Field<HeaderValue>>>,
    /// Which names of the standard gen_ai.* metrics are exported.
    pub(super) genai_names: Field<GenAiNames>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    /// Maximum memory for observing all requests together. One half is for bytes that wait to be parsed, and the other
    /// half for the parsers. Above the limit, bytes are forwarded unobserved.
    // At least one full shard. 4 GiB is more than a sidecar ever has.
    pub(super) observer_memory: Field<BoundedSize<{ 1 << 20 }, { 4 << 30 }>>,
    /// Maximum number of header lines of a request or a response.
    pub(super) header_lines: Field<BoundedInt<50, 2_000>>,
    /// Maximum size of the headers of a request or a response.
    // Most servers accept 8 KiB. The buffers of an HTTP/1 connection grow with the limit.
    pub(super) header_size: Field<BoundedSize<{ 8 << 10 }, { 1 << 20 }>>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WorkloadDrift {
    /// The baseline: first, yesterday, off, or a file that was saved from /drift of the admin port.
    pub(super) baseline: Field<PathBuf>,
    /// Number of recent requests per model and route that are compared, and number of requests in the baseline first.
    pub(super) sample_size: Field<BoundedInt<200, 10_000>>,
}
