//! What was done to an object, and what its reader should know of.

use std::fmt;

use super::settings::Mode;

/// One thing that was done, or that its reader should know of.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Note {
    Sidecar {
        mode: Mode,
        native: bool,
        image: String,
    },
    /// The name stays in the engine's container; its number is the sidecar's from now on.
    TookNamedPort {
        container: String,
        name: String,
        old: u16,
        new: u16,
    },
    /// Services are led to the sidecar by its number.
    TookNumberedPort {
        container: String,
        old: u16,
        new: u16,
        seen_to: bool,
    },
    HandlerMoved {
        container: String,
        handler: String,
        name: String,
        number: u16,
    },
    ProviderGuessed {
        provider: &'static str,
        container: String,
    },
    PreStopSet {
        container: String,
    },
    PreStopKept {
        container: String,
    },
    GraceRaised {
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
    /// Azure's client in OpenAI's SDKs reads `OPENAI_BASE_URL` too, and would send its key there.
    AzureOpenAi {
        container: String,
        name: String,
    },
    /// What a ConfigMap or Secret sets is not known, and `env` would go before it.
    EnvFrom {
        container: String,
        source: String,
    },
    /// Requests to 127.0.0.1 would take the way over that proxy.
    HttpProxy {
        container: String,
        name: String,
    },
    NoVariable {
        upstream: String,
    },
    /// The file of the ConfigMap says where requests go.
    ConfigRules {
        config: String,
        upstream: Option<String>,
    },
    ServiceLed {
        port: String,
        old: u16,
        new: u16,
    },
    Headless {
        service: String,
        port: u16,
    },
    /// A NetworkPolicy of the input lets in the engine's port by number, and not the sidecar's.
    PolicyByNumber {
        policy: String,
        old: u16,
        new: u16,
    },
    /// An InferencePool of the input dials the pods' port by number, and not the sidecar's.
    PoolByNumber {
        pool: String,
        old: u16,
        new: u16,
    },
    /// It had a sidecar with other settings.
    Renewed,
    Removed,
    /// Changed by somebody after `inject`, so left.
    LeftChanged {
        at: String,
    },
    /// Removed by somebody after `inject`.
    Gone {
        at: String,
    },
}

impl Note {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Sidecar { .. } => "sidecar",
            Self::TookNamedPort { .. } => "took_named_port",
            Self::TookNumberedPort { .. } => "took_numbered_port",
            Self::HandlerMoved { .. } => "handler_moved",
            Self::ProviderGuessed { .. } => "provider_guessed",
            Self::PreStopSet { .. } => "pre_stop_set",
            Self::PreStopKept { .. } => "pre_stop_kept",
            Self::GraceRaised { .. } => "grace_raised",
            Self::VariablesSet { .. } => "variables_set",
            Self::VariableKept { .. } => "variable_kept",
            Self::AzureOpenAi { .. } => "azure_openai",
            Self::EnvFrom { .. } => "env_from",
            Self::HttpProxy { .. } => "http_proxy",
            Self::NoVariable { .. } => "no_variable",
            Self::ConfigRules { .. } => "config_rules",
            Self::ServiceLed { .. } => "service_led",
            Self::Headless { .. } => "headless",
            Self::PolicyByNumber { .. } => "policy_by_number",
            Self::PoolByNumber { .. } => "pool_by_number",
            Self::Renewed => "renewed",
            Self::Removed => "removed",
            Self::LeftChanged { .. } => "left_changed",
            Self::Gone { .. } => "gone",
        }
    }
}

impl fmt::Display for Note {
    #[expect(clippy::too_many_lines, reason = "a text for each variant, and nothing else")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sidecar { mode, native, image } => {
                let kind = if *native { "native sidecar" } else { "plain container" };
                write!(f, "adds {image} as a {kind}, {mode}")
            }
            Self::TookNamedPort { container, name, old, new } => write!(
                f,
                "port {name} of container {container} now leads to the sidecar ({new}), which passes on to {old}; Services \
             that say {old} by number, and are not in this input, would lead past it"
            ),
            Self::TookNumberedPort { container, old, new, seen_to: false } => write!(
                f,
                "the sidecar listens on {new} and passes on to {old} of container {container}; the Service in this input \
             is led to {new}"
            ),
            Self::TookNumberedPort { container, old, new, seen_to: true } => write!(
                f,
                "the sidecar listens on {new} and passes on to {old} of container {container}; that its Service leads to \
             {new} is yours to see to"
            ),
            Self::HandlerMoved { container, handler, name, number } => write!(
                f,
                "{handler} of container {container} stays on the engine: port {number} instead of {name}"
            ),
            Self::PreStopSet { container } => write!(
                f,
                "container {container} gets a preStop that waits until the sidecar has no request in flight"
            ),
            Self::GraceRaised { from: None, to } => {
                write!(f, "terminationGracePeriodSeconds is {to} instead of the default (30)")
            }
            Self::GraceRaised { from: Some(from), to } => {
                write!(f, "terminationGracePeriodSeconds is {to} instead of {from}")
            }
            Self::VariablesSet { container, names } => {
                write!(f, "container {container} gets {}", names.join(", "))
            }
            Self::ServiceLed { port, old, new } => {
                write!(f, "port {port} leads to the sidecar ({new}) instead of {old}")
            }
            Self::Renewed => f.write_str("takes back the sidecar that it had, which was another"),
            Self::Removed => f.write_str("takes back what inject did"),
            Self::ProviderGuessed { provider, container } => write!(
                f,
                "takes container {container} for {provider}; if it is another, say so by the annotation tokengauge.dev/provider"
            ),
            Self::PreStopKept { container } => write!(
                f,
                "container {container} has a preStop of its own, which stays: the engine is stopped when that ends; let it \
             wait for GET /drained on the sidecar's admin port, or open streams may be cut"
            ),
            Self::VariableKept { container, name, value, prefix } => {
                write!(f, "container {container} sets {name} itself")?;
                if let Some(value) = value {
                    write!(f, " ({value})")?;
                }
                let url = value.as_deref().filter(|value| value.starts_with("http"));
                write!(
                    f,
                    ": left alone, so these calls pass by the sidecar; to route them, take the variable out and say \
                 tokengauge.dev/upstream: {prefix}={}",
                    url.unwrap_or("URL")
                )
            }
            Self::AzureOpenAi { container, name } => write!(
                f,
                "container {container} sets {name}: OPENAI_BASE_URL is not set, since clients for Azure read it too, and would \
             send their key to the wrong address"
            ),
            Self::EnvFrom { container, source } => write!(
                f,
                "container {container} reads variables from {source}, which is not in this input: none is set, since one \
             of ours would go before one there; name the container in tokengauge.dev/containers to set them anyway"
            ),
            Self::HttpProxy { container, name } => write!(
                f,
                "container {container} sets {name}: see that its NO_PROXY has 127.0.0.1, or calls pass by the sidecar"
            ),
            Self::NoVariable { upstream } => write!(
                f,
                "no SDK's variable is known for {upstream}: point the application at the sidecar yourself"
            ),
            Self::ConfigRules { config, upstream: Some(url) } => write!(
                f,
                "where requests go is said by tokengauge.yaml in ConfigMap {config}, with their provider and the engine's \
                 metrics: its upstream must be {url}"
            ),
            Self::ConfigRules { config, upstream: None } => write!(
                f,
                "where requests go is said by tokengauge.yaml in ConfigMap {config}: no variables are set in containers"
            ),
            Self::Headless { service, port } => write!(
                f,
                "Service {service} is headless: its clients dial port {port} of the pod itself, past the sidecar"
            ),
            Self::PolicyByNumber { policy, old, new } => write!(
                f,
                "NetworkPolicy {policy} lets in port {old} by number: let in {new}, or nobody reaches the sidecar"
            ),
            Self::PoolByNumber { pool, old, new } => write!(
                f,
                "InferencePool {pool} dials port {old} of the pod itself, past the sidecar: give it {new}"
            ),
            Self::LeftChanged { at } => {
                write!(f, "{at} was changed since `inject`, so it is left as it is")
            }
            Self::Gone { at } => write!(f, "{at} was taken out since `inject`"),
        }
    }
}
