//! The flags of `run`, each with its environment variable: the layers layers the file.

use std::path::PathBuf;

use clap::Args;

use super::value::{Address, Length, Socket};
use super::{LogFormat, LogLevel, Secret};
use crate::route::TraceHeaders;
use tokengauge_measure::slo::Preset;
use tokengauge_types::event::Vantage;

/// What was said on the command line or, where nothing was, in the environment.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "\
Examples:
  Before one API; then point a client at http://127.0.0.1:4000:
    tokengauge run --upstream https://api.openai.com

  Before several, told apart by path prefix:
    tokengauge run --upstream /openai=https://api.openai.com --upstream /local=http://127.0.0.1:8000

  From a file:
    tokengauge run --config tokengauge.yaml

Telemetry goes where the OTEL_EXPORTER_OTLP_ENDPOINT variable says.")]
pub struct RunArgs {
    /// Where clients connect: IP:PORT or unix:/path. May be repeated; replaces the file's listeners
    /// [default: 127.0.0.1:4000]
    #[arg(long, value_name = "ADDRESS", env = "TOKENGAUGE_LISTEN", value_delimiter = ',')]
    pub listen: Vec<Address>,

    /// Where requests go: a URL, or /PREFIX=URL for one path prefix, which is taken off. May be repeated; replaces
    /// the file's upstreams and routes
    // Kept as a secret because somebody will put credentials into the URL: `load` refuses that without echoing it,
    // clap would print the whole value.
    #[arg(
        long,
        value_name = "[/PREFIX=]URL",
        env = "TOKENGAUGE_UPSTREAM",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub upstream: Vec<Secret>,

    /// Who is behind each --upstream, as telemetry names it: openai, vllm … [default: inferred from its host]
    #[arg(long, value_name = "NAME", env = "TOKENGAUGE_PROVIDER")]
    pub provider: Option<String>,

    /// Read the metrics that the engine behind each --upstream tells at /metrics [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        env = "TOKENGAUGE_ENGINE_METRICS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub engine_metrics: Option<bool>,

    /// What it is used for: the objectives to hold it to; replaces the file's objectives
    #[arg(long, value_name = "PRESET", env = "TOKENGAUGE_OBJECTIVES")]
    pub objectives: Option<Preset>,

    /// Where health, metrics and live streams are served: IP:PORT [default: 127.0.0.1:4001]
    #[arg(long, value_name = "ADDRESS", env = "TOKENGAUGE_ADMIN")]
    pub admin: Option<Socket>,

    /// A configuration file (YAML); see `tokengauge schema` and docs/configuration.md
    #[arg(long, value_name = "FILE", env = "TOKENGAUGE_CONFIG")]
    pub config: Option<PathBuf>,

    /// Where this proxy stands: beside the backend (inbound), beside the application (outbound) or shared in between
    /// (gateway) [default: outbound]
    #[arg(long, env = "TOKENGAUGE_VANTAGE")]
    pub vantage: Option<Vantage>,

    /// What becomes of trace headers: they pass as they came, or go on with the proxy's own span as the parent
    /// [default: passthrough]
    #[arg(long, env = "TOKENGAUGE_TRACE")]
    pub trace: Option<TraceHeaders>,

    /// How long open streams may go on after SIGTERM [default: 30s]
    #[arg(long, value_name = "TIME", env = "TOKENGAUGE_DRAIN")]
    pub drain: Option<Length>,

    /// Serve TLS with this certificate chain (PEM)
    #[arg(long, value_name = "FILE", env = "TOKENGAUGE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert (PEM)
    #[arg(long, value_name = "FILE", env = "TOKENGAUGE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,

    /// The least severe level that is logged [default: info]
    #[arg(long, value_name = "LEVEL", env = "TOKENGAUGE_LOG_LEVEL")]
    pub log_level: Option<LogLevel>,

    /// How log lines are written [default: text]
    #[arg(long, value_name = "FORMAT", env = "TOKENGAUGE_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
}
