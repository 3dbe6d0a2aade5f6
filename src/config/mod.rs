//! Configuration: flags, `TOKENGAUGE_*` variables, the file and defaults, in this order of precedence.
//!
//! `section` has the structs of the file. `resolve` combines all sources into a [`Config`]. The rest of the program uses
//! only `Config`. All errors are reported at once ([`ConfigErrors`]).

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "tools")]
pub use acceptance::{acceptance, acceptance_schema};
#[cfg(feature = "tools")]
pub use alert_values::alert_values;
pub(crate) use documentation::configuration_page;
pub use errors::{ConfigError, ConfigErrors, Position};
pub use load::{check, load, prices_schema, schema};
pub use proxy_env::Proxies;
pub use run_args::{RunArgs, misspelt_variable};
pub use section::listeners::Protocol;
pub use section::telemetry::{Log, Otlp};
pub use section::{File, RESTART_KEYS, ReferencedFiles};
pub use tokengauge_types::url::{UpstreamTarget, Url};
pub use value::{DurationValue, Secret};
pub use watcher::ConfigWatcher;

use crate::forward;
use crate::forward::RouteConfig;
use crate::scrape;
use tokengauge_llm::content;
use tokengauge_llm::count::Tokenizers;
use tokengauge_measure::cost::Costs;
use tokengauge_measure::drift;
use tokengauge_measure::engine::warm;
use tokengauge_measure::slo;
use tokengauge_telemetry::request_log;
use tokengauge_types::event::RouteFacts;
use tokengauge_types::label::Label;

#[cfg(feature = "tools")]
mod acceptance;
#[cfg(feature = "tools")]
mod alert_values;
mod deserialize;
mod documentation;
mod errors;
mod file;
mod load;
mod loops;
mod proxy_env;
mod referenced_files;
mod relative_paths;
mod resolve;
mod run_args;
mod section;
mod spanned;
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
    /// The values of all keys, with flags, environment variables and defaults.
    pub file: File,
    pub listeners: Vec<tokengauge_listen::ListenerConfig>,
    pub upstreams: Vec<forward::UpstreamConfig>,
    /// Metrics endpoints of the engines behind upstreams.
    pub scrapes: Vec<scrape::ScrapeConfig>,
    /// Upstreams whose warm-up is tracked.
    pub warmup: Vec<(Label, warm::WarmupConfig)>,
    pub routes: Vec<RouteConfig>,
    /// Settings of routes of Envoy, by the name of the route or the cluster.
    pub envoy_routes: Vec<Arc<RouteFacts>>,
    /// Routes whose prompts and answers are captured.
    pub contents: content::CapturePolicies,
    pub slos: Vec<slo::Objective>,
    /// Loaded tokenizers, by model.
    pub tokenizers: Tokenizers,
    /// Headers that identify tenant, session and variant.
    pub identity: forward::identity::IdentityConfig,
    /// The key for hashes of tenants, sessions and variants.
    pub identity_key: Option<Secret>,
    /// Unknown words of `OTEL_PROPAGATORS`.
    pub ignored_propagators: Vec<String>,
    /// Prices and budgets.
    pub costs: Costs,
    /// `None` disables the request log.
    pub request_log: Option<request_log::RequestLogConfig>,
    pub workload_drift: drift::DriftConfig,
    /// HTTP proxies of the environment.
    pub proxies: Proxies,
    /// Warnings, for example about ignored variables.
    pub warnings: Vec<ConfigError>,
    /// [`file`](Self::file) as YAML, with `***` for secrets. A file with this text results in the same configuration.
    pub yaml: String,
}

impl Config {
    /// Copies the limits of headers to listeners and upstreams, and prints the file.
    fn apply_limits(&mut self) {
        let limits = self.file.limits.headers();
        self.listeners.iter_mut().for_each(|listener| listener.headers = limits);
        self.upstreams.iter_mut().for_each(|upstream| upstream.header_limits = limits);
        // Serialization cannot fail for plain structs, maps, strings and numbers.
        self.yaml = serde_saphyr::to_string(&self.file).unwrap_or_default();
    }

    /// The file that stores error budgets across restarts.
    pub fn slo_state(&self) -> Option<&PathBuf> {
        self.file.slo_state.as_ref()?.path.as_ref().map(|path| &path.0)
    }

    /// Returns the protocol of each of the [`listeners`](Self::listeners).
    pub fn protocols(&self) -> Vec<Protocol> {
        let listeners = self.file.listeners.iter().flat_map(|list| list.iter());
        listeners.map(|listener| listener.value.protocol.unwrap_or(Protocol::Http)).collect()
    }

    /// Returns the settings of all observed routes.
    pub fn observed_routes(&self) -> impl Iterator<Item = &Arc<RouteFacts>> {
        let forwarded = self.routes.iter().filter(|route| route.observed);
        forwarded.map(|route| &route.facts).chain(&self.envoy_routes)
    }

    /// Trace header formats, in order of precedence.
    pub fn propagators(&self) -> Vec<forward::Propagator> {
        self.file.propagators.iter().flat_map(|list| list.iter()).map(|it| it.value).collect()
    }

    /// Returns this configuration as a reload applies it to a process that was started with `running`: the
    /// [`RESTART_KEYS`] keep the values of `running`.
    pub fn as_applied_to(mut self, running: &Self) -> Self {
        self.file.keep_restart_keys(&running.file);
        self.listeners.clone_from(&running.listeners);
        self.apply_limits();
        self
    }

    /// Returns the first 16 hexadecimal digits of the SHA-256 of [`yaml`](Self::yaml). Equal settings have equal
    /// fingerprints.
    pub fn fingerprint(&self) -> String {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.yaml.as_bytes());
        digest.as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
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
