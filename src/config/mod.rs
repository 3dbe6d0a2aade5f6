//! Configuration: flags, `TOKENGAUGE_*` variables, the file and defaults, in this order of precedence.
//!
//! `raw` has the structs of the file. `resolve` combines all sources into a [`Config`]. The rest of the program uses
//! only `Config`. All errors are reported at once ([`ConfigErrors`]).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "tools")]
pub use acceptance::{acceptance, acceptance_schema};
#[cfg(feature = "tools")]
pub use alert_values::alert_values;
pub use errors::{ConfigError, ConfigErrors, Position};
pub use load::{check, load, prices_schema, schema};
pub use proxy_env::Proxies;
pub use run_args::{RunArgs, misspelt_variable};
pub use tokengauge_types::url::{UpstreamTarget, Url};
pub use value::{DurationValue, Secret};
pub use watcher::{ConfigWatcher, RESTART_KEYS, changes_requiring_restart};

use crate::forward;
use crate::forward::{RouteConfig, TraceHeaders};
use crate::scrape;
use tokengauge_listen::HeaderLimits;
use tokengauge_llm::content;
use tokengauge_llm::count::Tokenizers;
use tokengauge_measure::cost::Costs;
use tokengauge_measure::drift;
use tokengauge_measure::engine::warm;
use tokengauge_measure::slo;
use tokengauge_telemetry::config::GenAiNames;
use tokengauge_telemetry::request_log;
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label;
use tokengauge_types::label::Label;

#[cfg(feature = "tools")]
mod acceptance;
#[cfg(feature = "tools")]
mod alert_values;
mod bounded;
mod deserialize;
mod documentation;
mod errors;
mod file;
mod load;
mod prices;
mod proxy_env;
mod raw;
mod raw_logs;
mod relative_paths;
mod resolve;
mod run_args;
pub mod value;
mod watcher;
mod yaml;

/// Function that looks up an environment variable. Tests pass a table instead of the function [`environment`].
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns the value of an environment variable. `None` if the variable is not set, has no characters except spaces, or
/// is not valid Unicode.
pub fn environment(name: &str) -> Option<String> {
    variable(name).and_then(non_empty)
}

/// Returns whether a variable is set and has no characters except spaces.
pub fn is_empty_variable(name: &str) -> bool {
    variable(name).is_some_and(|value| non_empty(value).is_none())
}

/// Returns `None` for the value of a variable that counts as unset. Manifests and shells write an empty value for a
/// setting that is not set.
fn non_empty(value: String) -> Option<String> {
    (!value.trim().is_empty()).then_some(value)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only access to the environment, apart from the variables of flags, which clap reads"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The complete, validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub listeners: Vec<tokengauge_listen::Config>,
    pub admin: Admin,
    pub upstreams: Vec<forward::UpstreamConfig>,
    /// Metrics endpoints of the engines behind upstreams.
    pub scrapes: Vec<scrape::Config>,
    /// Upstreams whose warm-up is tracked.
    pub warmup: Vec<(Label, warm::Config)>,
    pub routes: Vec<RouteConfig>,
    /// Routes whose prompts and answers are captured.
    pub contents: content::CapturePolicies,
    pub slos: Vec<slo::Objective>,
    /// The file that stores error budgets across restarts.
    pub slo_state: Option<PathBuf>,
    /// Loaded tokenizers, by model.
    pub tokenizers: Tokenizers,
    /// Headers that identify tenant, session and variant.
    pub identity: forward::identity::Config,
    /// The key for hashes of tenants, sessions and variants.
    pub identity_key: Option<Secret>,
    pub cardinality_limits: label::CardinalityLimits,
    /// Maximum memory in bytes that observing all requests may use.
    pub observer_memory: usize,
    /// Maximum size of the headers of requests and responses. The listeners and the upstreams have copies.
    pub header_limits: HeaderLimits,
    /// Grace period: how long open streams may continue after SIGTERM.
    pub shutdown_grace_period: Duration,
    /// The default position of routes.
    pub position: ProxyPosition,
    /// The default handling of trace headers.
    pub trace_context: TraceHeaders,
    /// Trace header formats, in order of precedence.
    pub propagators: Vec<forward::Propagator>,
    /// Unknown words of `OTEL_PROPAGATORS`.
    pub ignored_propagators: Vec<String>,
    pub log: Log,
    /// Prices and budgets.
    pub costs: Costs,
    /// The price file.
    pub prices: Option<PathBuf>,
    /// `None` disables the request log.
    pub request_log: Option<request_log::Config>,
    pub workload_drift: drift::Config,
    pub otlp: ExportOverrides,
    /// HTTP proxies of the environment.
    pub proxies: Proxies,
    /// Warnings, for example about ignored variables.
    pub warnings: Vec<ConfigError>,
    /// The configuration in use as YAML, with all defaults, and with `***` for secrets. A file with this text results
    /// in the same configuration.
    pub yaml: String,
    resolved_file: ResolvedFile,
}

/// The structs behind [`Config::yaml`]. `Debug` omits them, because `yaml` has the same content.
#[derive(Clone, Default)]
struct ResolvedFile(Box<raw::File>);

impl fmt::Debug for ResolvedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResolvedFile")
    }
}

impl Config {
    /// Sets the limits of headers, and their copies in listeners and upstreams.
    fn set_header_limits(&mut self, limits: HeaderLimits) {
        self.header_limits = limits;
        for listener in &mut self.listeners {
            listener.headers = limits;
            // The routes answer and record requests beyond the limits.
            listener.marks_large_headers = true;
        }
        for upstream in &mut self.upstreams {
            upstream.header_limits = limits;
        }
    }

    fn set_resolved_file(&mut self, file: raw::File) {
        // Serialization cannot fail for plain structs, maps, strings and numbers.
        self.yaml = serde_saphyr::to_string(&file).unwrap_or_default();
        self.resolved_file = ResolvedFile(Box::new(file));
    }

    /// Returns this configuration as a reload applies it to a process that was started with `running`: the
    /// [`RESTART_KEYS`] keep the values of `running`.
    pub fn as_applied_to(mut self, running: &Self) -> Self {
        self.listeners.clone_from(&running.listeners);
        self.admin.clone_from(&running.admin);
        self.slo_state.clone_from(&running.slo_state);
        self.cardinality_limits = running.cardinality_limits;
        self.otlp.clone_from(&running.otlp);
        self.observer_memory = running.observer_memory;
        self.set_header_limits(running.header_limits);
        self.propagators.clone_from(&running.propagators);
        self.ignored_propagators.clone_from(&running.ignored_propagators);
        self.log = running.log;
        let started = (*running.resolved_file.0).clone();
        let new = std::mem::take(&mut *self.resolved_file.0);
        self.set_resolved_file(raw::File {
            listeners: started.listeners,
            admin: started.admin,
            slo_state: started.slo_state,
            cardinality_limits: started.cardinality_limits,
            otlp: started.otlp,
            limits: started.limits,
            propagators: started.propagators,
            log: started.log,
            ..new
        });
        self
    }

    /// Returns the first 16 hexadecimal digits of the SHA-256 of [`yaml`](Self::yaml). Equal settings have equal
    /// fingerprints.
    pub fn fingerprint(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.yaml.as_bytes());
        digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The admin port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Admin {
    pub address: SocketAddr,
    /// Bearer token for the protected pages of the admin port, such as `/config`. Without a token, these pages are
    /// served only on loopback.
    pub token: Option<Secret>,
    /// The file that contains `token`. `None` if an environment variable contains the token.
    pub token_file: Option<PathBuf>,
}

impl Admin {
    /// Default address of the admin port. On this loopback address, other machines cannot read `/streams` and
    /// `/config`.
    pub const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4001);
}

/// The program's own log, on standard error.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}

/// The least severe level that is logged.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// The format of a log line.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, Deserialize, Serialize, JsonSchema, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// Settings of the key `otlp`. Each one takes precedence over the `OTEL_*` variable with the same meaning.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ExportOverrides {
    /// The collector's URL, for metrics and traces.
    pub endpoint: Option<String>,
    pub protocol: Option<ExportProtocol>,
    pub interval: Option<Duration>,
    /// Headers of every export. The headers of `OTEL_EXPORTER_OTLP_HEADERS` are sent, too.
    pub headers: Vec<(String, Secret)>,
    pub genai_names: Option<GenAiNames>,
}

/// The OTLP protocol, with the values of `OTEL_EXPORTER_OTLP_PROTOCOL`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Deserialize, Serialize, JsonSchema)]
pub enum ExportProtocol {
    #[serde(rename = "grpc")]
    Grpc,
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}

#[cfg(test)]
mod tests;
