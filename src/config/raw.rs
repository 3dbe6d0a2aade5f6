//! The configuration file as it is written. What stands here is also the JSON Schema, descriptions included.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use super::backend::{Engine, Metrics, Warm};
use super::deserialize::Field;
use super::value::{Address, Amount, Currency, Length, Limit, Share, Size, Socket, Threshold};
use super::{ExportProtocol, GenAiNames, LogFormat, LogLevel};
use crate::forward::Propagator;
use crate::route::TraceHeaders;
use tokengauge_types::event::Vantage;
use tokengauge_types::url::Url;

/// Configuration of tokengauge.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["version"]))]
pub(super) struct File {
    /// The version of this format: 1.
    #[schemars(range(min = 1, max = 1))]
    pub(super) version: Field<u64>,
    /// Where clients connect.
    pub(super) listeners: Field<Vec<Field<Listener>>>,
    /// The port for health, metrics, configuration and live streams.
    pub(super) admin: Field<Admin>,
    /// Where requests go, by a name of your choice.
    pub(super) upstreams: Field<BTreeMap<String, Field<Upstream>>>,
    /// Which request goes to which upstream: a route with a host goes before one without, then the longest prefix
    /// wins. May be left out where there is one upstream.
    pub(super) routes: Field<Vec<Field<Route>>>,
    /// What is promised: each has an error budget and burn rates. An empty list is none; left out, there are defaults.
    pub(super) objectives: Field<Vec<Field<Objective>>>,
    /// Tokenisers of models whose own this program does not carry: a pattern on the model's name, in which * stands for
    /// any text, and the path of a tokenizer.json.
    pub(super) tokenizers: Field<BTreeMap<String, Field<PathBuf>>>,
    /// Where error budgets are kept over a restart; left out, each start begins anew.
    pub(super) slo_state: Field<SloState>,
    /// Whom a request is for, by its headers: what metrics, spans and budgets are told apart by. Off where left out.
    pub(super) identity: Field<Identity>,
    /// What calls cost, and whose budget pays for them. Off where left out.
    pub(super) cost: Field<Cost>,
    /// How many distinct values from outside each metric label may take; further ones are called other.
    pub(super) labels: Field<Labels>,
    /// What is exported over OTLP and where to; each key wins over the OTEL_* variable that says the same.
    pub(super) export: Field<Export>,
    /// Bounds on what the proxy itself may use.
    pub(super) limits: Field<Limits>,
    /// How long open streams may go on after SIGTERM.
    pub(super) drain: Field<Length>,
    /// Where this proxy stands: beside the backend, beside the application, or in between and shared.
    pub(super) vantage: Field<Vantage>,
    /// What becomes of trace headers on routes that do not say so themselves: they pass as they came, or the span that
    /// is sent on as the parent is the proxy's own.
    pub(super) trace: Field<TraceHeaders>,
    /// The formats of trace headers, in order of precedence. Left out, OTEL_PROPAGATORS says so, else tracecontext and
    /// baggage.
    pub(super) propagators: Field<Vec<Field<Propagator>>>,
    /// What the proxy logs about itself, on standard error.
    pub(super) log: Field<Log>,
    /// One JSON line for each exchange, with every fact and no text; off where left out.
    pub(super) request_log: Field<RequestLog>,
    /// Whether the workload changed: what the lengths of prompts and answers are compared with.
    pub(super) drift: Field<Drift>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub(super) struct Listener {
    /// IP:PORT, or unix:/path for a Unix socket.
    pub(super) address: Field<Address>,
    /// Serve TLS.
    pub(super) tls: Field<Tls>,
    /// Connections open at once; further ones wait in the kernel's backlog.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) max_connections: Field<usize>,
    /// How long a client may take from its first byte to the end of a request's head.
    pub(super) head_timeout: Field<Length>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["certificate", "key"]))]
pub(super) struct Tls {
    /// The certificate chain, a PEM file.
    pub(super) certificate: Field<PathBuf>,
    /// Its private key, a PEM file.
    pub(super) key: Field<PathBuf>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Admin {
    /// IP:PORT. Anywhere but on loopback it serves only health and metrics, unless there is a token.
    pub(super) address: Field<Socket>,
    /// A file that holds the bearer token. The variable TOKENGAUGE_ADMIN_TOKEN wins over it.
    pub(super) token_file: Field<PathBuf>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["url"]))]
pub(super) struct Upstream {
    /// Its URL; a path in it is put before the path of each request.
    pub(super) url: Field<Url>,
    /// What is spoken to it.
    pub(super) protocol: Field<Protocol>,
    /// Whether the client's Host is sent on; else the URL's is.
    pub(super) keep_host: Field<bool>,
    /// A PEM file of further root certificates for this upstream.
    pub(super) ca_file: Field<PathBuf>,
    /// How long to wait for it.
    pub(super) timeouts: Field<Timeouts>,
    /// Idle connections that are kept to be used again.
    pub(super) pool: Field<Pool>,
    /// Where the engine behind it tells its own metrics; off where left out.
    pub(super) metrics: Field<Metrics>,
    /// When the engine behind it counts as warm; nobody asks where left out.
    pub(super) warm: Field<Warm>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Protocol {
    Http1,
    Http2,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Timeouts {
    /// DNS, TCP and TLS together.
    pub(super) connect: Field<Limit>,
    /// From the request sent to the response's head.
    pub(super) head: Field<Limit>,
    /// Between two pieces of the response's body.
    pub(super) idle: Field<Limit>,
    /// From the request's head to the response's end.
    pub(super) total: Field<Limit>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Pool {
    /// How long an idle connection is kept; keep it below the upstream's own keep-alive.
    pub(super) idle: Field<Length>,
    /// Idle connections kept at most.
    #[schemars(range(min = 0, max = 65_536))]
    pub(super) size: Field<usize>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["upstream"]))]
pub(super) struct Route {
    /// How it is called in metrics and in objectives.
    pub(super) name: Field<String>,
    /// Which requests take it; left out, all do.
    pub(super) r#match: Field<Match>,
    /// A name under upstreams.
    pub(super) upstream: Field<String>,
    /// Whether the prefix is taken off before the path is sent on.
    pub(super) strip: Field<bool>,
    /// The formats that are spoken, where they shall not be detected: a family such as openai, anthropic, google or
    /// ollama, or one API such as openai.chat for every POST.
    pub(super) dialect: Field<String>,
    /// The provider in telemetry, where it shall not be inferred: openai, azure.ai.openai, anthropic, vllm and so on.
    pub(super) provider: Field<String>,
    /// Overrides the vantage of the whole proxy.
    pub(super) vantage: Field<Vantage>,
    /// Overrides what becomes of trace headers.
    pub(super) trace: Field<TraceHeaders>,
    /// A stream that brings no token for this long after its first has stalled. Nothing is cut for it.
    pub(super) stall_after: Field<Length>,
    /// A stream that brings no first token for this long hangs. Nothing is cut for it.
    pub(super) hung_after: Field<Length>,
    /// How many of its requests are on their way at once, and what becomes of further ones. No limit, unless it says so
    /// here.
    pub(super) admission: Field<Admission>,
    /// Prompts and answers word for word, on spans. Off, unless it says otherwise here.
    pub(super) content: Field<Content>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["max_in_flight"]))]
pub(super) struct Admission {
    /// Requests that were sent on and whose answers have not ended.
    #[schemars(range(min = 1, max = 65_536))]
    pub(super) max_in_flight: Field<usize>,
    /// Further ones that wait for a place; beyond them the answer is 429.
    #[schemars(range(min = 0, max = 65_536))]
    pub(super) queue: Field<usize>,
    /// How long each of them waits at most; then the answer is 429.
    pub(super) wait: Field<Length>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["capture"]))]
pub(super) struct Content {
    /// Whether they are captured.
    pub(super) capture: Field<bool>,
    /// Bytes that are kept of a request's body, and as many of an answer's text.
    pub(super) max_bytes: Field<Size>,
    /// What is removed before anything is kept: names of patterns, and regular expressions between two slashes.
    pub(super) redact: Field<Vec<Field<String>>>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Match {
    /// The Host without its port; "*.example.com" is any subdomain.
    pub(super) host: Field<String>,
    /// The beginning of the path, in whole segments.
    pub(super) prefix: Field<String>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Objective {
    /// Several objectives at once, by what the system is used for. Where it stands, name, target, window, scope, warmup
    /// and exclude hold for all of them, and no indicator may stand beside it.
    pub(super) preset: Field<Preset>,
    /// How it is called in metrics and alerts; of a preset, what its objectives' names begin with.
    pub(super) name: Field<String>,
    /// What makes an exchange good.
    pub(super) indicator: Field<Indicator>,
    /// The longest good time (ttft, first_visible, inter_token, duration) or the lowest good rate in tokens per second
    /// (output_rate, total_rate, tokens_above_rate, system_rate).
    pub(super) threshold: Field<Threshold>,
    /// A minute counts for system_rate while at least so many streams are in flight.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) min_streams: Field<u64>,
    /// An exchange with fewer output tokens has no verdict on its rate.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) min_output_tokens: Field<u64>,
    /// The share of exchanges that shall be good: 99.5% or 0.995.
    pub(super) target: Field<Share>,
    /// The rolling window of the budget, 1h to 90d.
    pub(super) window: Field<Length>,
    /// Exchanges that begin within this time after the start count for nothing.
    pub(super) warmup: Field<Length>,
    /// Failures that are held against nobody.
    pub(super) exclude: Field<Vec<Field<Exclusion>>>,
    /// Which exchanges count; left out, all do.
    pub(super) scope: Field<Scope>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Preset {
    Chat,
    Voice,
    Code,
    Batch,
    Agent,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Exclusion {
    RateLimited,
    Overload,
    Shutdown,
    Warming,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Indicator {
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
    /// A model's name, in which * stands for any text.
    pub(super) model: Field<String>,
    /// A tenant, in which * stands for any text; exchanges that name none are left out.
    pub(super) tenant: Field<String>,
    /// What kind of call it is: chat, text_completion, embeddings and so on.
    pub(super) operation: Field<String>,
    /// Only streams, or only what is none.
    pub(super) stream: Field<bool>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path"]))]
pub(super) struct SloState {
    /// A file of its own for each process.
    pub(super) path: Field<PathBuf>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Identity {
    /// On whose account a request is: a customer, a team.
    pub(super) tenant: Field<Source>,
    /// The conversation or run that it is a part of; on spans and in the request log, never in metrics.
    pub(super) session: Field<Source>,
    /// Which of several ways it went: a prompt's or a model's version, an arm of an A/B test.
    pub(super) variant: Field<Source>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["headers"]))]
pub(super) struct Source {
    /// The headers that may say it; the first one that is there does.
    pub(super) headers: Field<Vec<Field<String>>>,
    /// Whether the value is replaced by its hash; required where the header holds a credential.
    pub(super) hash: Field<bool>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Cost {
    /// The file of prices.
    pub(super) prices: Field<PathBuf>,
    /// What may be used, and by whose calls. Counted, never enforced.
    pub(super) budgets: Field<Vec<Field<Budget>>>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name"]))]
pub(super) struct Budget {
    /// How it is called in metrics and alerts.
    pub(super) name: Field<String>,
    /// A pattern on the tenant, in which * stands for any text; left out, everybody's calls.
    pub(super) tenant: Field<String>,
    /// The name of a route; left out, all.
    pub(super) route: Field<String>,
    /// A pattern on the model that was asked for; left out, all.
    pub(super) model: Field<String>,
    /// Money that may be spent in the window.
    pub(super) money: Field<Money>,
    /// Tokens that may be used in the window, input and output.
    #[schemars(range(min = 1))]
    pub(super) tokens: Field<u64>,
    /// The rolling window, 1h to 90d.
    pub(super) window: Field<Length>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["amount", "currency"]))]
pub(super) struct Money {
    /// How much.
    pub(super) amount: Field<Amount>,
    /// Three letters of ISO 4217; only calls with a price in this currency count.
    pub(super) currency: Field<Currency>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Labels {
    /// Models.
    #[schemars(range(min = 1, max = 1_000))]
    pub(super) models: Field<usize>,
    /// Providers.
    #[schemars(range(min = 1, max = 1_000))]
    pub(super) providers: Field<usize>,
    /// Finish reasons.
    #[schemars(range(min = 1, max = 1_000))]
    pub(super) finish_reasons: Field<usize>,
    /// Error types.
    #[schemars(range(min = 1, max = 1_000))]
    pub(super) error_types: Field<usize>,
    /// Tenants.
    #[schemars(range(min = 1, max = 1_000))]
    pub(super) tenants: Field<usize>,
    /// Variants.
    #[schemars(range(min = 1, max = 1_000))]
    pub(super) variants: Field<usize>,
    /// Whether rates and times are told apart by bands of the lengths of prompt and answer too.
    pub(super) length_bands: Field<bool>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Export {
    /// The collector's URL, for metrics and traces alike.
    pub(super) endpoint: Field<Url>,
    /// How OTLP is spoken.
    pub(super) protocol: Field<ExportProtocol>,
    /// How often metrics are sent.
    pub(super) interval: Field<Length>,
    /// Sent with every export. Better in OTEL_EXPORTER_OTLP_HEADERS where they are secret: files are read by many.
    pub(super) headers: Field<BTreeMap<String, Field<HeaderValue>>>,
    /// Which names of the standard's gen_ai.* metrics are written.
    pub(super) genai_names: Field<GenAiNames>,
}

/// The value of a header: always taken for a secret.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[serde(transparent)]
#[schemars(inline)]
pub(super) struct HeaderValue(#[schemars(with = "String")] pub(super) super::Secret);

impl<'de> Deserialize<'de> for HeaderValue {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // Not echoed: half of a key is still a leak.
        http::HeaderValue::from_str(&text).map_err(|_| {
            serde::de::Error::custom(
                "this cannot be the value of a header; write it on one line, in ASCII",
            )
        })?;
        Ok(Self(super::Secret::new(&text)))
    }
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    /// Memory of the observation path over all exchanges; beyond it whole exchanges go unobserved, and flow on.
    pub(super) observer_memory: Field<Size>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Log {
    /// The least severe level that is logged.
    pub(super) level: Field<LogLevel>,
    /// How a line is written.
    pub(super) format: Field<LogFormat>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path"]))]
pub(super) struct RequestLog {
    /// A file, or stdout.
    pub(super) path: Field<PathBuf>,
    /// When a file is put aside.
    pub(super) rotate: Field<Rotation>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Rotation {
    /// A file grows up to this size, then it is put aside and another begun.
    pub(super) size: Field<Size>,
    /// How many that were put aside are kept: path.1 is the youngest.
    #[schemars(range(min = 0, max = 1_000))]
    pub(super) keep: Field<usize>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Drift {
    /// first, yesterday, off, or a file that was saved from /drift of the admin port.
    pub(super) baseline: Field<PathBuf>,
    /// How many of the latest exchanges of a flow are compared with it, and how many the baseline first is made of.
    #[schemars(range(min = 200, max = 10_000))]
    pub(super) exchanges: Field<usize>,
}
