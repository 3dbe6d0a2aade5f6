//! Everything that export can be told, and how the environment says it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::sampling::Sampler;

mod environment;

/// Everything that export can be told. Made by [`Config::from_env`], which is pure: who reads the environment is not
/// decided here.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Nothing is sent; `/metrics` goes on.
    pub disabled: bool,
    /// `service.name`, `service.version` and `service.instance.id` first.
    pub resource: Vec<(String, String)>,
    pub metrics: SignalConfig,
    pub traces: SignalConfig,
    pub metric_interval: Duration,
    pub temporality: Temporality,
    pub batch: BatchConfig,
    pub sampler: Sampler,
    /// The longest text of a span attribute, in characters.
    pub max_value_chars: Option<usize>,
    pub gen_ai: GenAiNames,
    pub exemplars: ExemplarFilter,
}

/// How one signal is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalConfig {
    /// Where to, complete: with the path over HTTP, with the scheme in any case. `None`: nowhere.
    pub endpoint: Option<String>,
    pub protocol: Protocol,
    pub headers: ExportHeaders,
    /// For one export with all its retries.
    pub timeout: Duration,
    pub gzip: bool,
    pub tls: TlsFiles,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Protocol {
    Grpc,
    #[default]
    HttpProtobuf,
}

/// Sent with every export. Often credentials: only the names are ever shown.
#[derive(Clone, Default, PartialEq)]
pub struct ExportHeaders(pub Vec<(String, String)>);

/// PEM files.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TlsFiles {
    /// What the collector's certificate must be signed by, in place of the system's roots.
    pub certificate: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
    pub client_certificate: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Temporality {
    #[default]
    Cumulative,
    Delta,
    LowMemory,
}

/// How spans are gathered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchConfig {
    /// The longest time for which a span waits for others.
    pub delay: Duration,
    /// Spans that wait at most; further ones are dropped and counted.
    pub queue: usize,
    /// Spans in one export at most.
    pub size: usize,
    /// For one export with all its retries.
    pub timeout: Duration,
}

/// Which names of the standard's GenAI metrics are emitted.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    PartialEq,
    serde::Deserialize,
    serde::Serialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum GenAiNames {
    /// `gen_ai.client.inference.*`.
    #[default]
    Latest,
    /// `gen_ai.client.operation.*` and `gen_ai.client.token.usage`, which most back ends read today.
    Legacy,
    Both,
    Off,
}

/// Which exchanges leave exemplars at the metrics, by the specification's words.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ExemplarFilter {
    /// Those whose traces are kept and exported.
    #[default]
    TraceBased,
    /// All, also where this process exports no traces: then the caller's may be somewhere.
    AlwaysOn,
    AlwaysOff,
}

/// A setting that was not understood and is ignored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct IgnoredSetting {
    pub variable: String,
    pub message: String,
}

impl Config {
    /// 60 s, the specification's default, is too long for an alert on tokens per second.
    pub const METRIC_INTERVAL: Duration = Duration::from_secs(10);
    /// The specification's default.
    pub const TIMEOUT: Duration = Duration::from_secs(10);

    /// Whether anything is sent over OTLP.
    pub fn sends(&self) -> bool {
        self.sends_metrics() || self.sends_traces()
    }

    pub fn sends_metrics(&self) -> bool {
        !self.disabled && self.metrics.endpoint.is_some()
    }

    pub fn sends_traces(&self) -> bool {
        !self.disabled && self.traces.endpoint.is_some()
    }

    /// What to tell the user once, at the start.
    pub fn summary(&self) -> String {
        let signal = |name: &str, signal: &SignalConfig, on: bool| match &signal.endpoint {
            Some(endpoint) if on => format!("{name} to {endpoint} ({})", signal.protocol.as_str()),
            Some(_) | None => format!("{name} nowhere"),
        };
        if self.disabled {
            return "OTLP export is off (OTEL_SDK_DISABLED); metrics are served on /metrics".into();
        }
        if !self.sends() {
            return "OTLP export is off: no endpoint is configured (OTEL_EXPORTER_OTLP_ENDPOINT); metrics are served on /metrics".into();
        }
        let metrics = signal("metrics", &self.metrics, self.sends_metrics());
        let traces = signal("traces", &self.traces, self.sends_traces());
        format!("OTLP export: {metrics}, {traces}")
    }
}

impl Default for Config {
    /// What [`Config::from_env`] makes of an empty environment.
    fn default() -> Self {
        Self::from_env(|_| None).0
    }
}

impl Default for SignalConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: Protocol::default(),
            headers: ExportHeaders::default(),
            timeout: Config::TIMEOUT,
            gzip: false,
            tls: TlsFiles::default(),
        }
    }
}

impl Default for BatchConfig {
    /// Delay and timeout are the specification's. Its queue of 2,048 and batch of 512 hold 1,024 and 256 exchanges (two
    /// spans each), which a busy gateway makes in a second; these are four times that, some 8 MB in a full queue (a span of a call takes about 1 KB).
    fn default() -> Self {
        Self {
            delay: Duration::from_secs(5),
            queue: 8_192,
            size: 2_048,
            timeout: Duration::from_secs(30),
        }
    }
}

impl Protocol {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::HttpProtobuf => "http/protobuf",
        }
    }
}

impl GenAiNames {
    pub const fn latest(self) -> bool {
        matches!(self, Self::Latest | Self::Both)
    }

    pub const fn legacy(self) -> bool {
        matches!(self, Self::Legacy | Self::Both)
    }
}

impl fmt::Debug for ExportHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl fmt::Display for IgnoredSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variable, self.message)
    }
}
