//! Flags of the commands `inject` and `injector`. The flags are defaults that the annotations of a pod
//! override.

use std::str::FromStr;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};

use tokengauge_measure::slo::Preset;
use tokengauge_types::url::{UpstreamTarget, Url};
use tokengauge_types::value::DurationValue;

use super::quantity;

/// Names of all annotations that users may set, without the prefix `tokengauge.dev/`. The annotation `injected` is not
/// in the list, because only the program writes it.
pub(super) const ANNOTATIONS: [&str; 21] = [
    "inject",
    "mode",
    "upstream",
    "port",
    "provider",
    "slos",
    "engine-metrics",
    "config",
    "image",
    "listen-port",
    "admin-port",
    "otlp-endpoint",
    "otlp-protocol",
    "shutdown-grace-period",
    "native",
    "run-as-user",
    "cpu-request",
    "cpu-limit",
    "memory-request",
    "memory-limit",
    "containers",
];

/// The position of the sidecar.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Mode {
    /// In front of an engine: the sidecar takes over its port, so that every request passes through it.
    Inbound,
    /// Next to an application: environment variables point its SDKs to the sidecar.
    Outbound,
}

/// The OTLP transport: the values of `OTEL_EXPORTER_OTLP_PROTOCOL`.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum OtlpProtocol {
    #[value(name = "grpc")]
    Grpc,
    #[value(name = "http/protobuf")]
    HttpProtobuf,
}

/// User of the sidecar's process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RunAsUser {
    /// A user id above 0, because the sidecar must not run as root. The group has the same id.
    Id(i64),
    /// The platform assigns the user and the group.
    Assigned,
}

impl RunAsUser {
    /// User and group of the image.
    pub(super) const IMAGE: Self = Self::Id(65_532);
}

impl FromStr for RunAsUser {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::Assigned);
        }
        // The API server accepts ids up to 2^31 - 1.
        let id = text.parse::<i32>().ok().filter(|id| *id > 0);
        id.map(|id| Self::Id(id.into())).ok_or_else(|| {
            format!("\"{text}\" is not a user id; write a number from 1 to 2147483647, or none")
        })
    }
}

/// The flags of `inject` and `injector`. An annotation of the same name on the pod overrides each of them.
#[derive(Args, Clone, Debug, Default)]
pub struct Settings {
    /// Put the sidecar in front of an engine (inbound) or next to an application (outbound), in every workload that
    /// does not opt out. Without this flag, only workloads with the annotation tokengauge.dev/mode get a sidecar
    #[arg(long)]
    pub mode: Option<Mode>,

    /// The sidecar's image. Required, unless each pod names one with the annotation tokengauge.dev/image
    #[arg(long, value_name = "IMAGE", value_parser = parse_image, env = "TOKENGAUGE_IMAGE")]
    pub image: Option<String>,

    /// Inbound: the engine's port, by name or number [default: the only port that the containers declare]
    #[arg(long, value_name = "PORT", value_parser = parse_container_port)]
    pub port: Option<String>,

    /// For outbound sidecars, forward requests to this URL. With /PREFIX=URL, forward only requests below this path
    /// prefix. May be repeated [default: the providers' own APIs, each under its prefix]
    #[arg(long, value_name = "[/PREFIX=]URL", value_delimiter = ',')]
    pub upstream: Vec<UpstreamTarget>,

    /// The provider name in telemetry, such as openai or vllm [default: detected from the engine's image and command,
    /// or from the upstream's host]
    #[arg(long, value_name = "NAME", value_parser = parse_provider)]
    pub provider: Option<String>,

    /// The preset of service level objectives for this use
    #[arg(long, value_name = "PRESET")]
    pub slos: Option<Preset>,

    /// Scrape the engine's own metrics [default: true for inbound]
    #[arg(long, value_name = "BOOL")]
    pub engine_metrics: Option<bool>,

    /// A ConfigMap with a tokengauge.yaml, in the pod's namespace
    #[arg(long, value_name = "CONFIGMAP", value_parser = parse_config_map)]
    pub config: Option<String>,

    /// The sidecar's port for requests [default: 4000]
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    pub listen_port: Option<u16>,

    /// The sidecar's port for health and metrics [default: 4001]
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    pub admin_port: Option<u16>,

    /// Where to send telemetry; $(K8S_NODE_IP) is the node's address
    #[arg(long, value_name = "URL", value_parser = parse_otlp_url)]
    pub otlp_endpoint: Option<String>,

    /// The OTLP transport [default: that of tokengauge run]
    #[arg(long, value_name = "PROTOCOL")]
    pub otlp_protocol: Option<OtlpProtocol>,

    /// How long open streams may continue after the pod is deleted [default: 300s]
    #[arg(long, value_name = "TIME")]
    pub shutdown_grace_period: Option<DurationValue>,

    /// Add a native sidecar (Kubernetes 1.29 and later) instead of a plain container [default: true]
    #[arg(long, value_name = "BOOL")]
    pub native: Option<bool>,

    /// The cluster's name, exported as k8s.cluster.name
    #[arg(long, value_name = "NAME", value_parser = parse_cluster)]
    pub cluster: Option<String>,

    /// The sidecar's user id. With none, the platform assigns the user, as OpenShift's security context constraint
    /// restricted-v2 requires [default: 65532; none in a namespace of OpenShift]
    #[arg(long, value_name = "UID|none")]
    pub run_as_user: Option<RunAsUser>,

    /// The sidecar's CPU request [default: 50m, or the CPU limit]
    #[arg(long, value_name = "QUANTITY", value_parser = parse_quantity)]
    pub cpu_request: Option<String>,

    /// The sidecar's CPU limit. Pods of the class Guaranteed and quotas on limits.cpu need one [default: none]
    #[arg(long, value_name = "QUANTITY", value_parser = parse_quantity)]
    pub cpu_limit: Option<String>,

    /// The sidecar's memory request [default: 64Mi]
    #[arg(long, value_name = "QUANTITY", value_parser = parse_quantity)]
    pub memory_request: Option<String>,

    /// The sidecar's memory limit [default: 256Mi]
    #[arg(long, value_name = "QUANTITY", value_parser = parse_quantity)]
    pub memory_limit: Option<String>,

    /// Annotations that pods must not set, such as image,config: a pod that sets one gets no sidecar
    #[arg(long, value_name = "ANNOTATION", value_delimiter = ',', hide_possible_values = true,
        value_parser = PossibleValuesParser::new(ANNOTATIONS))]
    pub pin: Vec<String>,
}

/// Returns the name of an enum value, as written in flags and annotations.
#[expect(clippy::needless_pass_by_value, reason = "choices are small and mapped over")]
pub(super) fn choice_name<T: ValueEnum>(choice: T) -> String {
    choice.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Returns `text` if `is_valid` is true. Otherwise, returns an error message with the expected form.
fn checked(text: &str, is_valid: bool, expected: &str, hint: &str) -> Result<String, String> {
    if is_valid {
        return Ok(text.to_owned());
    }
    Err(format!("\"{text}\" is not {expected}; {hint}"))
}

/// Parses a provider name, with the same rules as the flag `--provider` of `tokengauge run`.
pub(super) fn parse_provider(text: &str) -> Result<String, String> {
    let is_allowed =
        |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
    let is_valid = (1..=63).contains(&text.len()) && text.chars().all(is_allowed);
    let hint = "write at most 63 lower-case letters, digits and . _ -, such as vllm";
    checked(text, is_valid, "a provider name", hint)
}

/// Parses an image reference: `[host[:port]/]path[:tag][@digest]`.
pub(super) fn parse_image(text: &str) -> Result<String, String> {
    let is_allowed =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@');
    let is_edge = |c: char| c.is_ascii_alphanumeric();
    let is_valid = text.starts_with(is_edge)
        && text.ends_with(is_edge)
        && text.len() <= 512
        && text.chars().all(is_allowed)
        && !text.contains("//");
    let hint = "write host/path:tag, such as registry.example.com/tokengauge:0.1.0";
    checked(text, is_valid, "an image reference", hint)
}

fn is_label(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Parses the name of a ConfigMap: a DNS subdomain.
pub(super) fn parse_config_map(text: &str) -> Result<String, String> {
    let mut labels = text.split('.');
    let is_valid = text.len() <= 253 && labels.all(|label| !label.is_empty() && is_label(label));
    checked(text, is_valid, "a ConfigMap name", "write lower-case letters, digits, - and .")
}

/// Parses a cluster name. Rejects characters that would need escaping in the variable `OTEL_RESOURCE_ATTRIBUTES`.
fn parse_cluster(text: &str) -> Result<String, String> {
    let is_allowed =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
    let is_valid = (1..=255).contains(&text.len()) && text.chars().all(is_allowed);
    let hint = "write at most 255 letters, digits and . _ - / :";
    checked(text, is_valid, "a cluster name", hint)
}

/// Parses the URL of an OpenTelemetry collector. The host may be `$(K8S_NODE_IP)`, which Kubernetes replaces with the
/// address of the node. The result has brackets around this variable, because the address can be an IPv6 address;
/// `tokengauge run` ignores brackets around an IPv4 address.
pub(super) fn parse_otlp_url(text: &str) -> Result<String, String> {
    let text = &text.replacen("://$(K8S_NODE_IP)", "://[$(K8S_NODE_IP)]", 1);
    let plain = text.replacen("://[$(K8S_NODE_IP)]", "://192.0.2.1", 1);
    // The error does not repeat the text, because a URL may contain credentials.
    plain.parse::<Url>().map_err(|error| error.to_string())?;
    let hint = "only the variable $(K8S_NODE_IP) is allowed, and only as the host";
    checked(text, !plain.contains("$("), "a URL", hint)
}

/// Parses a Kubernetes quantity, such as `50m`, `64Mi`, `0.5` or `1e3`.
pub(super) fn parse_quantity(text: &str) -> Result<String, String> {
    let is_valid = quantity::amount(text).is_some_and(|amount| amount > 0.0);
    let hint = "write a number and a unit, such as 50m of CPU or 64Mi of memory";
    checked(text, is_valid, "a quantity above zero", hint)
}

/// Parses a port number from 1 to 65535.
pub(super) fn parse_port(text: &str) -> Result<u16, String> {
    let number = text.parse().unwrap_or_default();
    checked(text, number != 0, "a port", "write a number from 1 to 65535").map(|_| number)
}

/// Parses the name or number of a port that a container declares.
pub(super) fn parse_container_port(text: &str) -> Result<String, String> {
    if text.chars().all(|c| c.is_ascii_digit()) {
        return parse_port(text).map(|number| number.to_string());
    }
    let hint = "write its number, or its name (at most 15 lower-case letters, digits and -)";
    checked(text, text.len() <= 15 && is_label(text), "a container port", hint)
}
