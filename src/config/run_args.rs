//! The flags of `run`, and their environment variables. Flags and variables take precedence over the file.

use std::path::PathBuf;

use clap::Args;

use super::configuration_page;
use super::errors::similar;
use super::value::{Address, DurationValue, ListenAddr};
use super::{LogFormat, LogLevel, Secret};
use crate::forward::TraceHeaders;
use tokengauge_measure::slo::Preset;
use tokengauge_telemetry::request_log::Destination;
use tokengauge_types::event::ProxyPosition;

/// Settings from the command line or else the environment.
#[derive(Args, Clone, Debug, Default)]
pub struct RunArgs {
    /// Listen on this address: IP:PORT, localhost:PORT or unix:/path. May be repeated; replaces the file's listeners
    /// [default: 127.0.0.1:4000]
    #[arg(long, value_name = "ADDRESS", env = "TOKENGAUGE_LISTEN", value_delimiter = ',')]
    pub listen: Vec<Address>,

    /// Forward requests to this URL. With /PREFIX=URL, forward only requests below this path prefix, and strip the
    /// prefix. May be repeated; replaces the file's upstreams and routes
    // A secret, because users may put credentials into the URL. `load` rejects them without printing the value; clap
    // would print it.
    #[arg(
        long,
        value_name = "[/PREFIX=]URL",
        env = "TOKENGAUGE_UPSTREAM",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub upstream: Vec<Secret>,

    /// Set the provider of each --upstream in telemetry: openai, vllm … [default: inferred from its host]
    #[arg(long, value_name = "NAME", env = "TOKENGAUGE_PROVIDER")]
    pub provider: Option<String>,

    /// Scrape /metrics of the engine behind each --upstream [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        env = "TOKENGAUGE_ENGINE_METRICS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub engine_metrics: Option<bool>,

    /// Use the SLOs of a preset, by kind of use; replaces the file's SLOs
    #[arg(long, value_name = "PRESET", env = "TOKENGAUGE_SLOS")]
    pub slos: Option<Preset>,

    /// Serve health, metrics and live streams on this address: IP:PORT or localhost:PORT [default: 127.0.0.1:4001]
    #[arg(long, value_name = "ADDRESS", env = "TOKENGAUGE_ADMIN")]
    pub admin: Option<ListenAddr>,

    /// Read this configuration file (YAML)
    #[arg(
        long,
        value_name = "FILE",
        env = "TOKENGAUGE_CONFIG",
        help = concat!("Read this configuration file (YAML); see ", configuration_page!())
    )]
    pub config: Option<PathBuf>,

    /// Set the position of this proxy: beside the backend (inbound), beside the application (outbound) or shared in
    /// between (gateway) [default: outbound]
    #[arg(long, env = "TOKENGAUGE_POSITION")]
    pub position: Option<ProxyPosition>,

    /// Pass trace headers through unchanged, or continue the trace with the proxy's own span as the parent
    /// [default: passthrough]
    #[arg(long, env = "TOKENGAUGE_TRACE_CONTEXT")]
    pub trace_context: Option<TraceHeaders>,

    /// Let open streams continue for this long after SIGTERM [default: 30s]
    #[arg(long, value_name = "TIME", env = "TOKENGAUGE_SHUTDOWN_GRACE_PERIOD")]
    pub shutdown_grace_period: Option<DurationValue>,

    /// Write a line of JSON per request to this file, or to standard output for `stdout` [default: off]
    #[arg(long, value_name = "PATH", env = "TOKENGAUGE_REQUEST_LOG")]
    pub request_log: Option<Destination>,

    /// Serve TLS with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", env = "TOKENGAUGE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,

    /// Use this private key for --tls-cert (PEM)
    #[arg(long, value_name = "FILE", env = "TOKENGAUGE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,

    /// Log this level and more severe ones [default: info]
    #[arg(long, value_name = "LEVEL", env = "TOKENGAUGE_LOG_LEVEL")]
    pub log_level: Option<LogLevel>,

    /// Write log lines in this format [default: text]
    #[arg(long, value_name = "FORMAT", env = "TOKENGAUGE_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Whether the command is `ext-proc`: listeners without a protocol serve Envoy.
    #[arg(skip)]
    pub ext_proc: bool,
}

/// Variables of `run` that have no flag.
const OTHER_VARIABLES: [&str; 5] = [
    "TOKENGAUGE_ADMIN_TOKEN",
    "TOKENGAUGE_GEN_AI_NAMES",
    "TOKENGAUGE_IDENTITY_KEY",
    "TOKENGAUGE_KEEP_UNSAMPLED_FAILURES",
    "TOKENGAUGE_OTLP_MAX_REQUEST_BYTES",
];

/// Returns the variable that `name` was probably meant to be. `None` if `name` is a variable of `run`, or if it differs
/// from all of them by more than two letters. Kubernetes sets names such as `TOKENGAUGE_SERVICE_HOST` and
/// `TOKENGAUGE_TLS_PORT` for Services called `tokengauge` and `tokengauge-tls`, so names that end in `_PORT` are ignored.
pub fn misspelt_variable(name: &str) -> Option<String> {
    let command = RunArgs::augment_args(clap::Command::new("run"));
    let flags = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    let known: Vec<&str> = flags.chain(OTHER_VARIABLES).collect();
    if known.contains(&name) || name.ends_with("_PORT") {
        return None;
    }
    let name = name.strip_prefix("TOKENGAUGE_")?;
    let known = known.iter().filter_map(|known| known.strip_prefix("TOKENGAUGE_"));
    similar(name, known, 2).map(|similar| format!("TOKENGAUGE_{similar}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_variables_with_a_typo_and_no_others() {
        let meant = |name| misspelt_variable(name).unwrap_or_default();
        assert_eq!(meant("TOKENGAUGE_LISTN"), "TOKENGAUGE_LISTEN");
        assert_eq!(meant("TOKENGAUGE_UPSTREAMS"), "TOKENGAUGE_UPSTREAM");
        assert_eq!(meant("TOKENGAUGE_ADMIN_TOKNE"), "TOKENGAUGE_ADMIN_TOKEN");
        for other in [
            "TOKENGAUGE_LISTEN",
            "TOKENGAUGE_ADMIN_TOKEN",
            "TOKENGAUGE_PORT",
            "TOKENGAUGE_SERVICE_HOST",
            "TOKENGAUGE_TLS_PORT",
            "LISTN",
        ] {
            assert_eq!(meant(other), "", "{other}");
        }
    }
}
