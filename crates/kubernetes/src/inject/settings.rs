//! What the command line says of the sidecar: the defaults that a pod's own annotations go before.

use std::fmt;

use clap::{Args, ValueEnum};

use super::value::{ClusterName, ConfigMapName, Image, OtlpUrl, PortName, PortNumber, Quantity};
use tokengauge_measure::slo::Preset;
use tokengauge_types::label::Name;
use tokengauge_types::{url::Target, value::Length};

/// On which side of the call the sidecar stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Mode {
    /// Beside an engine: takes over its port, so that every request passes through.
    Inbound,
    /// Beside an application: its SDKs are pointed at the sidecar by their environment variables.
    Outbound,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How telemetry is sent; the values of `OTEL_EXPORTER_OTLP_PROTOCOL`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum OtlpProtocol {
    #[value(name = "grpc")]
    Grpc,
    #[value(name = "http/protobuf")]
    HttpProtobuf,
}

impl OtlpProtocol {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::HttpProtobuf => "http/protobuf",
        }
    }
}

/// The image of the sidecar, where nothing else is said.
pub const IMAGE: &str = "ghcr.io/example/tokengauge:0.1.0";

/// The flags of `inject` and `injector`. An annotation of the same name on the pod goes before each of them.
#[derive(Args, Clone, Debug, Default)]
pub struct Settings {
    /// Beside an engine (inbound) or beside an application (outbound): for every workload that does not opt out. Without
    /// it only those that ask for it by the annotation tokengauge.dev/mode get a sidecar
    #[arg(long)]
    pub mode: Option<Mode>,

    /// The sidecar's image
    #[arg(long, value_name = "IMAGE", default_value = IMAGE)]
    pub image: Image,

    /// Inbound: the engine's port, by name or number [default: the only one that the only container declares]
    #[arg(long, value_name = "PORT")]
    pub port: Option<PortName>,

    /// Outbound: where requests go: a URL, or /PREFIX=URL for one path prefix; may be repeated [default: the vendors'
    /// own APIs, each under its prefix]
    #[arg(long, value_name = "[/PREFIX=]URL", value_delimiter = ',')]
    pub upstream: Vec<Target>,

    /// Who answers, as telemetry names it: openai, vllm … [default: guessed from the engine's image and command, or
    /// from the upstream's host]
    #[arg(long, value_name = "NAME", value_parser = provider)]
    pub provider: Option<Name>,

    /// What it is used for: the objectives to hold it to
    #[arg(long, value_name = "PRESET")]
    pub objectives: Option<Preset>,

    /// Read the engine's own metrics [default: true for inbound]
    #[arg(long, value_name = "BOOL")]
    pub engine_metrics: Option<bool>,

    /// A ConfigMap that holds a tokengauge.yaml, in the namespace of the pod
    #[arg(long, value_name = "CONFIGMAP")]
    pub config: Option<ConfigMapName>,

    /// The sidecar's port for requests [default: 4000]
    #[arg(long, value_name = "PORT")]
    pub listen_port: Option<PortNumber>,

    /// The sidecar's port for health and metrics [default: 4001]
    #[arg(long, value_name = "PORT")]
    pub admin_port: Option<PortNumber>,

    /// Where telemetry goes; $(K8S_NODE_IP) in it is the node's address
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<OtlpUrl>,

    /// How telemetry is sent [default: what tokengauge does without it]
    #[arg(long, value_name = "PROTOCOL")]
    pub otlp_protocol: Option<OtlpProtocol>,

    /// How long open streams may go on when the pod is deleted [default: 300s]
    #[arg(long, value_name = "TIME")]
    pub drain: Option<Length>,

    /// A native sidecar (Kubernetes 1.29 and later), or a plain container beside the others [default: true]
    #[arg(long, value_name = "BOOL")]
    pub native: Option<bool>,

    /// The cluster's name, told as k8s.cluster.name
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<ClusterName>,

    /// CPU that is set aside for the sidecar [default: 50m]
    #[arg(long, value_name = "QUANTITY")]
    pub cpu_request: Option<Quantity>,

    /// Memory that is set aside for the sidecar [default: 64Mi]
    #[arg(long, value_name = "QUANTITY")]
    pub memory_request: Option<Quantity>,

    /// The most memory that the sidecar may have [default: 256Mi]
    #[arg(long, value_name = "QUANTITY")]
    pub memory_limit: Option<Quantity>,
}

/// The name of a provider: what `--provider` of `run` takes.
pub(super) fn provider(text: &str) -> Result<Name, String> {
    let fits =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    if text.is_empty() || text.len() > 63 || !text.chars().all(fits) {
        return Err(format!(
            "\"{text}\" is no provider's name; write small letters, digits and . _ - (at most 63), such as vllm"
        ));
    }
    Name::new(text).ok_or_else(|| "the provider's name is empty".to_owned())
}
