//! Defines the configuration of telemetry and its defaults.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::proxy::Proxy;
use crate::sampling::Sampler;
use tokengauge_types::label_enum;
use tokengauge_types::url::bare;

mod endpoint;
mod environment;

/// The configuration of telemetry. [`TelemetryConfig::from_env`] builds the configuration from environment variables, which it
/// reads through a function that the caller passes.
#[derive(Clone, Debug, PartialEq)]
pub struct TelemetryConfig {
    /// Whether all OTLP exports are disabled. `/metrics` is still served.
    pub disabled: bool,
    /// Resource attributes, which identify this process. The first ones are `service.name`, `service.version` and
    /// `service.instance.id`.
    pub resource: Vec<(String, String)>,
    pub logs: SignalConfig,
    pub metrics: SignalConfig,
    pub traces: SignalConfig,
    pub metric_interval: Duration,
    pub temporality: Temporality,
    pub span_batch: BatchConfig,
    pub log_batch: BatchConfig,
    pub sampler: Sampler,
    /// Maximum length of a span attribute, in characters.
    pub max_value_chars: Option<usize>,
    pub gen_ai: GenAiNames,
    pub profile: Profile,
    pub exemplars: ExemplarFilter,
    /// Maximum size in bytes of one export request, before compression.
    pub max_request_bytes: usize,
}

label_enum! {
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Signal {
        Logs = "logs",
        Metrics = "metrics",
        Traces = "traces",
    }
}

/// Export settings of one signal.
#[derive(Clone, Debug, PartialEq)]
pub struct SignalConfig {
    /// URL of the collector without credentials. For HTTP, the URL includes the path. `None` if the signal is not
    /// exported. Messages use [`shown_endpoint`](Self::shown_endpoint) instead, because a query can contain an API key.
    pub endpoint: Option<String>,
    pub protocol: Protocol,
    pub headers: ExportHeaders,
    /// Time limit of one export with all its retries.
    pub timeout: Duration,
    pub gzip: bool,
    pub tls: TlsFiles,
    /// The proxy through which the collector is reached. `None` means a direct connection.
    pub proxy: Option<Proxy>,
}

label_enum! {
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub enum Protocol {
        Grpc = "grpc",
        #[default]
        HttpProtobuf = "http/protobuf",
    }
}

/// HTTP headers for each export. `Debug` prints only their names, because the values often contain credentials.
#[derive(Clone, Default, PartialEq)]
pub struct ExportHeaders(pub Vec<(String, String)>);

/// Paths of PEM files for TLS to the collector.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TlsFiles {
    /// CA certificates that replace the system's trusted roots.
    pub certificate: Option<PathBuf>,
    pub client_key: Option<PathBuf>,
    pub client_certificate: Option<PathBuf>,
}

label_enum! {
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub enum Temporality {
        #[default]
        Cumulative = "cumulative",
        Delta = "delta",
        LowMemory = "lowmemory",
    }
}

/// How spans or log records are combined into exports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchConfig {
    /// Maximum time that an item waits for other items.
    pub delay: Duration,
    /// Maximum number of queued items. Beyond this number, new items are dropped and counted.
    pub queue: usize,
    /// Maximum number of items in one export.
    pub size: usize,
    /// Time limit of one export with all its retries.
    pub timeout: Duration,
}

label_enum! {
    /// Which set of names the metrics of the GenAI semantic conventions have.
    #[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum GenAiNames {
        /// `gen_ai.client.inference.*`.
        #[default]
        Latest = "latest",
        /// `gen_ai.client.operation.*` and `gen_ai.client.token.usage`, which most back ends read today.
        Legacy = "legacy",
        Both = "both",
        Off = "off",
    }
}

label_enum! {
    /// How many metrics, labels and buckets are exported, in ascending order.
    #[derive(
        Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
    )]
    #[serde(rename_all = "lowercase")]
    pub enum Profile {
        /// A tenth of the series: fewer histograms with fewer buckets, and tenant and variant only on counters of
        /// finished calls.
        Lean = "lean",
        #[default]
        Full = "full",
    }
}

/// Which metrics of the catalog are exported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MetricSelection {
    pub gen_ai: GenAiNames,
    pub profile: Profile,
}

label_enum! {
    /// Which requests create exemplars. The variants have the names of the OpenTelemetry specification.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub enum ExemplarFilter {
        /// Requests whose traces are sampled and exported.
        #[default]
        TraceBased = "trace_based",
        /// All requests, even if this process exports no traces. Their traces may still exist, because another process
        /// may export them.
        AlwaysOn = "always_on",
        AlwaysOff = "always_off",
    }
}

/// A setting that is invalid or ambiguous.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SettingWarning {
    pub variable: String,
    pub message: String,
    /// Whether the value is ignored. If `false`, the value is used as `message` describes.
    pub is_ignored: bool,
}

impl TelemetryConfig {
    /// Default interval between metric exports. OpenTelemetry's default of 60 s is too long for alerts on tokens per
    /// second.
    pub const METRIC_INTERVAL: Duration = Duration::from_secs(10);
    /// Default time limit of an export. OpenTelemetry has the same default.
    pub const TIMEOUT: Duration = Duration::from_secs(10);
    /// Default limit of the size of an export request. gRPC servers accept 4 MiB by default, among them the
    /// OpenTelemetry Collector. A larger request is rejected as a whole, and each later one, too.
    pub const MAX_REQUEST_BYTES: usize = 3 << 20;
    /// Lowest limit of the size of an export request. The resource attributes and a span must fit.
    pub const MIN_REQUEST_BYTES: usize = 16 << 10;

    /// Returns which metrics are exported. The lean profile has no metrics of the GenAI conventions.
    pub const fn selection(&self) -> MetricSelection {
        let gen_ai = match self.profile {
            Profile::Lean => GenAiNames::Off,
            Profile::Full => self.gen_ai,
        };
        MetricSelection { gen_ai, profile: self.profile }
    }

    /// Returns whether any signal is exported over OTLP.
    pub fn sends_any(&self) -> bool {
        Signal::ALL.into_iter().any(|signal| self.sends(signal))
    }

    pub fn sends(&self, signal: Signal) -> bool {
        self.exported(signal).is_some()
    }

    /// Returns the export settings of a signal, or `None` if the signal is not exported.
    pub fn exported(&self, signal: Signal) -> Option<&SignalConfig> {
        let config = match signal {
            Signal::Logs => &self.logs,
            Signal::Metrics => &self.metrics,
            Signal::Traces => &self.traces,
        };
        (!self.disabled && config.endpoint.is_some()).then_some(config)
    }

    /// Returns the certificate and key files of all exported signals.
    pub fn tls_files(&self) -> impl Iterator<Item = &PathBuf> {
        let exported = Signal::ALL.into_iter().filter_map(|signal| self.exported(signal));
        exported.flat_map(|signal| signal.tls.paths())
    }

    /// Describes the destination of each signal in one line, for the log.
    pub fn summary(&self) -> String {
        if self.disabled {
            return "OTLP export is off (OTEL_SDK_DISABLED); metrics are served on /metrics".into();
        }
        if !self.sends_any() {
            return "OTLP export is off: no endpoint is configured (OTEL_EXPORTER_OTLP_ENDPOINT); metrics are served on /metrics".into();
        }
        let signal = |name: &str, signal: &SignalConfig| match signal.shown_endpoint() {
            Some(endpoint) => {
                let through = signal.proxy.as_ref().map_or_else(String::new, |proxy| {
                    format!(" through {}:{}", proxy.host, proxy.port)
                });
                format!("{name} to {endpoint}{through} ({})", signal.protocol.as_str())
            }
            None => format!("{name} nowhere"),
        };
        let mut summary = format!(
            "OTLP export: {}, {}",
            signal("metrics", &self.metrics),
            signal("traces", &self.traces)
        );
        if self.sends(Signal::Logs) {
            summary = format!("{summary}, {}", signal("logs", &self.logs));
        }
        summary
    }
}

impl Default for TelemetryConfig {
    /// Returns the configuration for an environment without variables.
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
            timeout: TelemetryConfig::TIMEOUT,
            gzip: false,
            tls: TlsFiles::default(),
            proxy: None,
        }
    }
}

impl TlsFiles {
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.certificate, &self.client_key, &self.client_certificate].into_iter().flatten()
    }
}

impl SignalConfig {
    /// Returns whether the collector is reached over TLS.
    pub fn uses_tls(&self) -> bool {
        self.endpoint.as_deref().is_some_and(|url| url.starts_with("https://"))
    }

    /// Returns the host and the port of the collector. An IPv6 address has no brackets.
    pub fn host_and_port(&self) -> Option<(String, u16)> {
        let uri: http::Uri = self.endpoint.as_deref()?.parse().ok()?;
        let port = uri.port_u16().unwrap_or(if self.uses_tls() { 443 } else { 80 });
        Some((bare(uri.host()?).to_owned(), port))
    }

    /// Returns the endpoint for messages: `***` replaces its query.
    pub fn shown_endpoint(&self) -> Option<String> {
        self.endpoint.as_deref().map(endpoint::without_query)
    }
}

impl BatchConfig {
    /// Defaults for spans. Delay and timeout are those of the OpenTelemetry specification, queue and batch size four
    /// times larger. The specification's queue of 2,048 spans holds 1,024 requests, which a busy gateway reaches in a
    /// second. The full queue takes about 8 MB, because the span of a call has about 1 KB.
    pub const SPANS: Self = Self {
        delay: Duration::from_secs(5),
        queue: 8_192,
        size: 2_048,
        timeout: Duration::from_secs(30),
    };

    /// Defaults for log records. The OpenTelemetry specification has the same defaults.
    pub const LOGS: Self = Self {
        delay: Duration::from_secs(1),
        queue: 2_048,
        size: 512,
        timeout: Duration::from_secs(30),
    };
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

impl fmt::Display for SettingWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variable, self.message)
    }
}
