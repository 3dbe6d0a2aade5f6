//! The sections of the configuration file. The doc comment of a key is its description in the JSON Schema, and the type
//! of a key has its range and its default.
//!
//! Each section checks its values, and converts them to the configuration of the module that uses them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::errors::{ErrorCollector, NodeId, suggestion};
use super::spanned::{List, Map};
use super::value::FilePath;
use super::{Environment, RunArgs};
use crate::forward::{Propagator, TraceHeaders};
use tokengauge_llm::count::Tokenizers;
use tokengauge_types::bounded::{Bounded, HOUR, SECOND, Time};
use tokengauge_types::event::ProxyPosition;
use tokengauge_types::label::{CardinalityLimits, Label};

pub mod console;
pub mod content;
pub mod cost;
pub mod drift;
pub mod identity;
pub mod listeners;
pub mod routes;
pub mod slos;
pub mod telemetry;
pub mod tokenizers;
pub mod upstreams;

/// Maximum length of a name in bytes, so that a dashboard's legend can show the name.
const MAX_NAME: usize = 64;

/// Configuration of tokengauge.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Version of the format. Default: the newest.
    #[schemars(range(min = 1, max = 1))]
    pub version: Version,
    /// Addresses that accept client connections.
    pub listeners: Option<List<listeners::Listener>>,
    /// The port for health, metrics, configuration and live streams.
    pub admin: listeners::Admin,
    /// The console on the admin port: live values, 15 minutes of history, and notable requests.
    pub console: console::Console,
    /// Servers that receive the forwarded requests. Each key is a name of your choice.
    pub upstreams: Option<Map<upstreams::Upstream>>,
    /// Which requests go to which upstream. Routes with a host are tried first, and longer prefixes before shorter
    /// ones. Optional if there is one upstream.
    pub routes: Option<List<routes::Route>>,
    /// Service level objectives, each with an error budget and burn rates. Without this key, default SLOs apply. An
    /// empty list disables all SLOs.
    pub slos: Option<List<slos::Slo>>,
    /// `tokenizer.json` of the models that match the pattern (Hugging Face `tokenizers`: BPE, Unigram, WordPiece,
    /// WordLevel). Read again at each reload.
    pub tokenizers: Map<FilePath>,
    /// Storage of error budgets across restarts. Without this key, each start begins with full budgets.
    pub slo_state: Option<slos::SloState>,
    /// Request headers that identify tenant, session and variant, for metrics, spans and budgets. Off by default.
    pub identity: identity::Identity,
    /// Prices and budgets. Off by default.
    pub cost: cost::Cost,
    /// Maximum number of distinct values per metric label. Further values are reported as "other".
    pub cardinality_limits: CardinalityLimits,
    /// Amount of metrics.
    pub telemetry: telemetry::Telemetry,
    /// OTLP export. Each key takes precedence over the OTEL_* variable of the same meaning.
    pub otlp: telemetry::Otlp,
    /// Resource limits of the proxy itself.
    pub limits: telemetry::Limits,
    /// How long open streams may continue after SIGTERM. Flag `--shutdown-grace-period`.
    // A longer grace period would let one forgotten stream block a deployment. The default is the default time of
    // Kubernetes between SIGTERM and SIGKILL.
    pub shutdown_grace_period: GracePeriod,
    /// Position of the proxy: `inbound` beside the backend, `outbound` beside the application, `gateway` shared in
    /// between. Flag `--position`.
    pub position: ProxyPosition,
    /// `passthrough`: trace headers are forwarded unchanged. `continue`: the parent that is forwarded is the CLIENT
    /// span of this proxy, with its own sampling decision. Flag `--trace-context`.
    pub trace_context: TraceHeaders,
    /// Trace header formats in order of precedence: `tracecontext`, `baggage`, `b3`, `b3multi`; see [trace
    /// headers](#trace-headers). Default: `OTEL_PROPAGATORS`, else `tracecontext` and `baggage`.
    pub propagators: Option<List<Propagator>>,
    /// The proxy's own log, on standard error.
    pub log: telemetry::Log,
    /// One JSON line per request and its response, with all measurements and no text. Off by default.
    pub request_log: Option<telemetry::RequestLog>,
    /// Detection of changes in the workload. Lengths of prompts and responses are compared with a baseline.
    pub workload_drift: drift::WorkloadDrift,
}

/// Defines the top-level keys whose changes take effect only at the next start.
macro_rules! restart_keys {
    ($($key:ident),+) => {
        pub const RESTART_KEYS: [&str; [$(stringify!($key)),+].len()] = [$(stringify!($key)),+];

        impl File {
            /// Replaces the values of the [`RESTART_KEYS`] by those of `running`.
            pub fn keep_restart_keys(&mut self, running: &Self) {
                $(self.$key.clone_from(&running.$key);)+
            }

            /// Returns the [`RESTART_KEYS`] whose values differ.
            pub fn changed_restart_keys(&self, other: &Self) -> Vec<&'static str> {
                let mut changed = Vec::new();
                $(if self.$key != other.$key { changed.push(stringify!($key)); })+
                changed
            }
        }
    };
}

restart_keys!(
    listeners,
    admin,
    console,
    slo_state,
    cardinality_limits,
    telemetry,
    otlp,
    limits,
    propagators,
    log
);

pub type GracePeriod = Time<0, HOUR, { 30 * SECOND }>;

/// At most 1,000,000, because no response has more tokens and no system more streams in flight.
pub type Count = Bounded<u32, 1, 1_000_000>;

/// The version of a file format. Without this key, the newest version applies.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(try_from = "u64")]
#[schemars(inline)]
pub struct Version(u64);

impl Default for Version {
    fn default() -> Self {
        Self(1)
    }
}

impl TryFrom<u64> for Version {
    type Error = String;

    fn try_from(version: u64) -> Result<Self, String> {
        match version {
            1 => Ok(Self(version)),
            _ => Err(format!("unsupported version {version}; this release reads version 1")),
        }
    }
}

/// The sources that take precedence over the file, and settings of the caller.
#[derive(Clone, Copy)]
pub struct Layers<'a> {
    pub args: &'a RunArgs,
    pub environment: Environment<'a>,
    pub files: ReferencedFiles,
    /// Tokenizers that are loaded already.
    pub tokenizers: &'a Tokenizers,
}

/// Whether the files that the configuration names are read: certificates, tokens, tokenizers, prices and baselines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReferencedFiles {
    /// Loads the files for the proxy.
    Load,
    /// Loads the files, and verifies the certificates.
    Verify,
    /// Does not read the files, for machines that do not have them.
    Skip,
}

/// Reports a name that is empty, too long, or needs escaping in a query or a URL.
fn check_name(name: &str, (node, key): (NodeId, &str), errors: &mut ErrorCollector) {
    if !is_name(name) {
        errors.add_key(node, key, invalid_name(name));
    }
}

fn is_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_allowed)
}

fn invalid_name(name: &str) -> String {
    format!("\"{name}\" is not a valid name; use up to {MAX_NAME} letters, digits, -, _, . and /")
}

/// Reports a list with more than `max` entries.
fn check_length(
    length: usize,
    max: usize,
    what: &str,
    (node, key): (NodeId, &str),
    errors: &mut ErrorCollector,
) {
    if length > max {
        errors.add_key(node, key, format!("there are {length} {what}; write at most {max}"));
    }
}

/// Returns the label of the route. Reports an error if the route does not exist.
fn route(
    written: &Option<String>,
    (node, key): (NodeId, &str),
    routes: &[String],
    errors: &mut ErrorCollector,
) -> Option<Label> {
    let name = written.as_ref()?;
    if !routes.contains(name) {
        let hint = suggestion(name, routes.iter().map(String::as_str));
        errors.add_key(node, key, format!("no route named \"{name}\"; {hint}"));
    }
    Some(Label::from_trusted(name))
}
