//! Notes on the changes of an injection, and on problems that need the attention of the user.

use std::fmt;

use super::settings::Mode;

/// One change to an object, or one problem that the user should check.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ChangeNote {
    SidecarAdded {
        mode: Mode,
        native: bool,
        image: String,
    },
    /// The port name stays on the engine's container. Its number is now the sidecar's.
    NamedPortTakenOver {
        container: String,
        name: String,
        old: u16,
        new: u16,
    },
    /// Services target the sidecar by number.
    NumberedPortTakenOver {
        container: String,
        old: u16,
        new: u16,
        /// A Service of the input was changed. If false, the user has to change the Service.
        service_updated: bool,
    },
    /// A probe or hook named the port by name. It now uses the engine's number.
    HandlerPortFixed {
        container: String,
        handler: String,
        name: String,
        number: u16,
    },
    ProviderDetected {
        provider: &'static str,
        container: String,
    },
    PreStopSet {
        container: String,
    },
    PreStopKept {
        container: String,
    },
    GracePeriodRaised {
        from: Option<u64>,
        to: u64,
    },
    VariablesSet {
        container: String,
        names: Vec<&'static str>,
    },
    VariableKept {
        container: String,
        name: &'static str,
        value: Option<String>,
        prefix: &'static str,
    },
    /// The Azure client in OpenAI's SDKs also reads `OPENAI_BASE_URL` and would send its key there.
    AzureOpenAi {
        container: String,
        name: String,
    },
    /// The ConfigMap or Secret is not in the input, and `env` takes precedence over `envFrom`.
    UnknownEnvFrom {
        container: String,
        source: String,
    },
    /// Requests to 127.0.0.1 would go through this HTTP proxy.
    HttpProxy {
        container: String,
        name: String,
    },
    NoVariable {
        upstream: String,
    },
    /// The file in the ConfigMap defines the upstreams.
    ConfigMapRouting {
        config: String,
        upstream: Option<String>,
    },
    ServiceRedirected {
        port: String,
        old: u16,
        new: u16,
    },
    HeadlessService {
        service: String,
        port: u16,
    },
    /// A NetworkPolicy of the input allows the engine's port by number, but not the sidecar's.
    PolicyByNumber {
        policy: String,
        old: u16,
        new: u16,
    },
    /// An InferencePool of the input connects to the engine's port by number.
    PoolByNumber {
        pool: String,
        old: u16,
        new: u16,
    },
    /// The object had a sidecar with other settings.
    SidecarReplaced,
    SidecarRemoved,
    /// Modified after injection, so `uninject` keeps it.
    KeptModified {
        at: String,
    },
    /// Removed after injection.
    AlreadyRemoved {
        at: String,
    },
}

impl fmt::Display for ChangeNote {
    #[expect(clippy::too_many_lines, reason = "one message per variant")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SidecarAdded { mode, native, image } => {
                let kind = if *native { "native sidecar" } else { "plain container" };
                write!(f, "adds {image} as a {kind} ({mode})")
            }
            Self::NamedPortTakenOver { container, name, old, new } => write!(
                f,
                "port {name} of container {container} now points to the sidecar ({new}), which forwards to {old}; a \
                 Service outside this input that targets {old} by number bypasses the sidecar"
            ),
            Self::NumberedPortTakenOver { container, old, new, service_updated } => {
                write!(
                    f,
                    "the sidecar listens on {new} and forwards to port {old} of container {container}; "
                )?;
                if *service_updated {
                    write!(f, "the Service in this input now targets {new}")
                } else {
                    write!(f, "make sure that its Service targets {new}")
                }
            }
            Self::HandlerPortFixed { container, handler, name, number } => write!(
                f,
                "{handler} of container {container} still calls the engine: its port is {number} instead of {name}"
            ),
            Self::PreStopSet { container } => write!(
                f,
                "container {container} gets a preStop hook that waits until the sidecar has no requests in flight"
            ),
            Self::GracePeriodRaised { from, to } => {
                write!(f, "terminationGracePeriodSeconds is raised to {to}, from ")?;
                match from {
                    Some(from) => write!(f, "{from}"),
                    None => f.write_str("the default of 30"),
                }
            }
            Self::VariablesSet { container, names } => {
                write!(f, "container {container} gets {}", names.join(", "))
            }
            Self::ServiceRedirected { port, old, new } => {
                write!(f, "port {port} now targets the sidecar ({new}) instead of {old}")
            }
            Self::SidecarReplaced => {
                f.write_str("removes the existing sidecar, which has other settings")
            }
            Self::SidecarRemoved => {
                f.write_str("removes the sidecar and undoes all of its changes")
            }
            Self::ProviderDetected { provider, container } => write!(
                f,
                "container {container} looks like {provider}; if it is another engine, set the annotation \
                 tokengauge.dev/provider"
            ),
            Self::PreStopKept { container } => write!(
                f,
                "container {container} keeps its own preStop hook, and the engine stops when that hook ends; let the \
                 hook wait for GET /drained on the sidecar's admin port, or open streams may be cut off"
            ),
            Self::VariableKept { container, name, value, prefix } => {
                write!(f, "container {container} sets {name} itself")?;
                if let Some(value) = value {
                    write!(f, " ({value})")?;
                }
                let url = value.as_deref().filter(|value| value.starts_with("http"));
                write!(
                    f,
                    ", so these calls bypass the sidecar; to route them, remove the variable and set \
                     tokengauge.dev/upstream: {prefix}={}",
                    url.unwrap_or("URL")
                )
            }
            Self::AzureOpenAi { container, name } => write!(
                f,
                "container {container} sets {name}, so OPENAI_BASE_URL is not set: Azure clients read it too and would \
                 send their key to the wrong address"
            ),
            Self::UnknownEnvFrom { container, source } => write!(
                f,
                "container {container} reads variables from {source}, which is not in this input, so none is set: it \
                 could override one of {source}; to set them anyway, name the container in tokengauge.dev/containers"
            ),
            Self::HttpProxy { container, name } => write!(
                f,
                "container {container} sets {name}; add 127.0.0.1 to its NO_PROXY, or calls bypass the sidecar"
            ),
            Self::NoVariable { upstream } => write!(
                f,
                "no SDK environment variable is known for {upstream}; configure the application to call the sidecar"
            ),
            Self::ConfigMapRouting { config, upstream: Some(url) } => write!(
                f,
                "tokengauge.yaml in ConfigMap {config} defines the upstreams, their provider and the engine metrics; \
                 its upstream must be {url}"
            ),
            Self::ConfigMapRouting { config, upstream: None } => write!(
                f,
                "tokengauge.yaml in ConfigMap {config} defines the upstreams, so containers get no variables"
            ),
            Self::HeadlessService { service, port } => write!(
                f,
                "Service {service} is headless: its clients connect to port {port} of the pod directly and bypass the \
                 sidecar"
            ),
            Self::PolicyByNumber { policy, old, new } => write!(
                f,
                "NetworkPolicy {policy} allows port {old} by number; allow {new} too, or no client reaches the sidecar"
            ),
            Self::PoolByNumber { pool, old, new } => write!(
                f,
                "InferencePool {pool} connects to port {old} of the pod directly and bypasses the sidecar; change its \
                 port to {new}"
            ),
            Self::KeptModified { at } => {
                write!(f, "{at} was modified after injection and is left unchanged")
            }
            Self::AlreadyRemoved { at } => write!(f, "{at} was removed after injection"),
        }
    }
}
