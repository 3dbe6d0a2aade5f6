//! The flags of `inject` and `injector`: defaults that a pod's annotations override.

use std::fmt;

use clap::{Args, ValueEnum};

use super::value::{
    ClusterName, ConfigMapName, DEFAULT_IMAGE, Image, OtlpUrl, PortName, PortNumber, Quantity,
};
use tokengauge_measure::slo::Preset;
use tokengauge_types::label::Name;
use tokengauge_types::{url::UpstreamTarget, value::DurationValue};

/// The position of the sidecar.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Mode {
    /// In front of an engine: the sidecar takes over its port, so that every request passes through it.
    Inbound,
    /// Next to an application: environment variables point its SDKs to the sidecar.
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

/// The OTLP transport: the values of `OTEL_EXPORTER_OTLP_PROTOCOL`.
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

/// The flags of `inject` and `injector`. An annotation of the same name on the pod overrides each of them.
#[derive(Args, Clone, Debug, Default)]
pub struct Settings {
    /// Put the sidecar in front of an engine (inbound) or next to an application (outbound), in every workload that
    /// does not opt out. Without this flag, only workloads with the annotation tokengauge.dev/mode get a sidecar
    #[arg(long)]
    pub mode: Option<Mode>,

    /// The sidecar's image
    #[arg(long, value_name = "IMAGE", default_value = DEFAULT_IMAGE)]
    pub image: Image,

    /// Inbound: the engine's port, by name or number [default: the only port that the containers declare]
    #[arg(long, value_name = "PORT")]
    pub port: Option<PortName>,

    /// Outbound: where to forward requests: a URL, or /PREFIX=URL for one path prefix; may be repeated [default: the
    /// providers' own APIs, each under its prefix]
    #[arg(long, value_name = "[/PREFIX=]URL", value_delimiter = ',')]
    pub upstream: Vec<UpstreamTarget>,

    /// The provider name in telemetry, such as openai or vllm [default: detected from the engine's image and command,
    /// or from the upstream's host]
    #[arg(long, value_name = "NAME", value_parser = parse_provider)]
    pub provider: Option<Name>,

    /// The preset of service level objectives for this use
    #[arg(long, value_name = "PRESET")]
    pub objectives: Option<Preset>,

    /// Scrape the engine's own metrics [default: true for inbound]
    #[arg(long, value_name = "BOOL")]
    pub engine_metrics: Option<bool>,

    /// A ConfigMap with a tokengauge.yaml, in the pod's namespace
    #[arg(long, value_name = "CONFIGMAP")]
    pub config: Option<ConfigMapName>,

    /// The sidecar's port for requests [default: 4000]
    #[arg(long, value_name = "PORT")]
    pub listen_port: Option<PortNumber>,

    /// The sidecar's port for health and metrics [default: 4001]
    #[arg(long, value_name = "PORT")]
    pub admin_port: Option<PortNumber>,

    /// Where to send telemetry; $(K8S_NODE_IP) is the node's address
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<OtlpUrl>,

    /// The OTLP transport [default: that of tokengauge run]
    #[arg(long, value_name = "PROTOCOL")]
    pub otlp_protocol: Option<OtlpProtocol>,

    /// How long open streams may continue after the pod is deleted [default: 300s]
    #[arg(long, value_name = "TIME")]
    pub drain: Option<DurationValue>,

    /// Add a native sidecar (Kubernetes 1.29 and later) instead of a plain container [default: true]
    #[arg(long, value_name = "BOOL")]
    pub native: Option<bool>,

    /// The cluster's name, exported as k8s.cluster.name
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<ClusterName>,

    /// The sidecar's CPU request [default: 50m]
    #[arg(long, value_name = "QUANTITY")]
    pub cpu_request: Option<Quantity>,

    /// The sidecar's memory request [default: 64Mi]
    #[arg(long, value_name = "QUANTITY")]
    pub memory_request: Option<Quantity>,

    /// The sidecar's memory limit [default: 256Mi]
    #[arg(long, value_name = "QUANTITY")]
    pub memory_limit: Option<Quantity>,
}

/// Parses a provider name with the rules of `--provider` of `run`.
pub(super) fn parse_provider(text: &str) -> Result<Name, String> {
    let is_valid =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    if text.is_empty() || text.len() > 63 || !text.chars().all(is_valid) {
        return Err(format!(
            "\"{text}\" is not a provider name; write at most 63 lower-case letters, digits and . _ -, such as vllm"
        ));
    }
    Name::new(text).ok_or_else(|| "the provider name is empty".to_owned())
}
