//! What the user wrote → what the program runs on.
//!
//! Flags over environment (`TOKENGAUGE_*`) over file over defaults. `raw` is the file as written, [`Config`] the
//! resolved result, and the rest of the program sees nothing but the latter. Everything that is wrong is reported at
//! once, each with its line, its key and its remedy ([`ConfigErrors`]).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "desk")]
pub use acceptance::{acceptance, acceptance_schema};
#[cfg(feature = "desk")]
pub use alert_values::alert_values;
pub use errors::{ConfigError, ConfigErrors, Position};
pub use keys::{KEYS, Key, differences};
pub use load::{check, load, prices_schema, schema};
pub use run_args::RunArgs;
pub use secret::Secret;
pub use tokengauge_types::url::{Target, Url};
pub use value::Length;
pub use watcher::ConfigWatcher;

use crate::forward;
use crate::route;
use crate::route::TraceHeaders;
use crate::scrape;
use tokengauge_llm::content;
use tokengauge_llm::count::Tokenisers;
use tokengauge_measure::cost::Costs;
use tokengauge_measure::drift;
use tokengauge_measure::engine::warm;
use tokengauge_measure::slo;
use tokengauge_telemetry::request_log;
use tokengauge_types::event::Vantage;
use tokengauge_types::label;
use tokengauge_types::label::Label;

#[cfg(feature = "desk")]
mod acceptance;
#[cfg(feature = "desk")]
mod alert_values;
mod backend;
mod deserialize;
mod errors;
mod file;
mod keys;
mod load;
mod prices;
mod print;
pub mod proxy_env;
mod raw;
mod resolve;
mod run_args;
mod secret;
mod yaml;

pub mod value;
mod watcher;

/// A way to ask for an environment variable; [`environment`], or a table in tests.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A variable of the process's environment. One that is not Unicode is as good as not set.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the one home of the environment; clap reads the flags' own variables"
)]
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Everything the program is told, checked and complete.
#[derive(Clone, Debug)]
pub struct Config {
    pub listeners: Vec<tokengauge_listen::Config>,
    pub admin: Admin,
    pub upstreams: Vec<forward::Config>,
    /// Of the upstreams whose engine's own metrics are read.
    pub scrapes: Vec<scrape::Config>,
    /// Of the upstreams that are asked whether they have warmed up.
    pub warm: Vec<(Label, warm::Config)>,
    pub routes: Vec<route::Config>,
    /// The routes whose prompts and answers are captured.
    pub contents: content::Routes,
    pub objectives: Vec<slo::Objective>,
    /// Where error budgets are kept over a restart.
    pub slo_state: Option<PathBuf>,
    /// What text is counted with, by model; read already.
    pub tokenizers: Tokenisers,
    /// The headers that say whom a request is for.
    pub identity: forward::identity::Config,
    /// What their values are hashed with.
    pub identity_key: Option<Secret>,
    pub labels: label::Limits,
    /// Bytes that the observation path may hold at most, over all exchanges.
    pub observer_memory: usize,
    /// How long streams may go on after SIGTERM.
    pub drain: Duration,
    /// The vantage of routes that name none.
    pub vantage: Vantage,
    /// What becomes of trace headers on routes that do not say so.
    pub trace: TraceHeaders,
    /// Formats of trace headers, in order of precedence.
    pub propagators: Vec<forward::Propagator>,
    /// Words of `OTEL_PROPAGATORS` that are not known.
    pub ignored_propagators: Vec<String>,
    pub log: Log,
    /// Prices and budgets.
    pub costs: Costs,
    /// Where the prices were read from.
    pub prices: Option<PathBuf>,
    /// Where each exchange is logged; off where absent.
    pub request_log: Option<request_log::Config>,
    /// What the workload is compared with.
    pub drift: drift::Config,
    pub export: ExportOverrides,
}

/// The admin port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Admin {
    pub address: SocketAddr,
    /// Bearer token for everything beyond health and metrics, where the port is not on loopback.
    pub token: Option<Secret>,
    /// Where `token` was read from, unless it came from the environment.
    pub token_file: Option<PathBuf>,
}

impl Admin {
    /// Loopback: `/streams` and `/config` are for whoever is on the machine, nobody else, until a token says so.
    pub const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4001);
}

/// What the program logs about itself, on standard error.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}

/// The least severe level that is logged.
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
    clap::ValueEnum,
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

/// How a log line is written.
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
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// What the file says about export; each wins over the `OTEL_*` variable that says the same.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ExportOverrides {
    /// Of the collector, for metrics and traces alike.
    pub endpoint: Option<String>,
    pub protocol: Option<ExportProtocol>,
    pub interval: Option<Duration>,
    /// Sent with every export, in addition to `OTEL_EXPORTER_OTLP_HEADERS`.
    pub headers: Vec<(String, Secret)>,
    pub genai_names: Option<GenAiNames>,
}

/// How OTLP is spoken, in the words of `OTEL_EXPORTER_OTLP_PROTOCOL`.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema,
)]
pub enum ExportProtocol {
    #[serde(rename = "grpc")]
    Grpc,
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}

/// Which names of the standard's `gen_ai.*` metrics are written.
#[derive(
    Clone, Copy, Debug, Eq, PartialEq, serde::Deserialize, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum GenAiNames {
    /// The names of the newest standard.
    Latest,
    /// The names that came before them, which many dashboards still use.
    Legacy,
    Both,
    /// None of the family.
    Off,
}

#[cfg(test)]
mod tests;
