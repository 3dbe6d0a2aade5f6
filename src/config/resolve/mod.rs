//! Combines flags, environment, file and defaults into a [`Config`].
//!
//! An invalid value is reported and replaced by its default, so that the other checks can continue. After any error,
//! the caller discards the result.

use std::time::Duration;

use super::deserialize::{Field, Spanned};
use super::errors::{ErrorCollector, NodeId};
use super::value::ByteSize;
use super::{
    Config, Environment, ExportOverrides, Log, ResolvedFile, RunArgs, Secret, file, proxy_env, raw,
};
use crate::forward::Propagator;
use tokengauge_listen::HeaderLimits;
use tokengauge_llm::count::Tokenizers;
use tokengauge_telemetry::request_log;
use tokengauge_types::label::{self, Label};

mod cost;
mod drift;
mod identity;
mod listeners;
mod loops;
mod objectives;
mod routes;
mod tokenizers;
mod upstreams;

pub(super) use drift::KEYWORDS as DRIFT_BASELINES;

/// Default grace period for open streams at shutdown, equal to the default time of Kubernetes between SIGTERM and
/// SIGKILL.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Default memory limit for observing requests. Half of it is for bytes that wait for the observer: three times the
/// data of half a second at 100,000 chunks of 300 bytes per second. The other half is for parsers: 1,000 concurrent
/// gzip streams. With 5,000 open streams, the process stays below 256 MiB, the memory limit of a sidecar.
const OBSERVER_MEMORY: ByteSize = ByteSize(96 << 20);

/// Environment variable with the key for hashes of tenants, sessions and variants.
const IDENTITY_KEY_VARIABLE: &str = "TOKENGAUGE_IDENTITY_KEY";

/// Value of `request_log.path` for standard output. A file with this name must be written as `./stdout`.
pub(super) const STDOUT: &str = "stdout";

/// Maximum length of a name in bytes, so that a dashboard's legend can show the name.
const MAX_NAME: usize = 64;

/// The sources that take precedence over the file, and settings of the caller.
#[derive(Clone, Copy)]
pub(super) struct Layers<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) environment: Environment<'a>,
    /// Whether to read files with secrets. False for `check`, because it may run on a machine without these files.
    pub(super) read_secrets: bool,
    /// Tokenizers that are loaded already.
    pub(super) tokenizers: &'a Tokenizers,
}

/// Combines all sources. `file` is `None` if no file was given. Also writes each resulting value to the structs of
/// `file`, so that the printed configuration contains it.
pub(super) fn resolve(
    file: Option<Spanned<raw::File>>,
    layers: Layers<'_>,
    errors: &mut ErrorCollector,
) -> Config {
    let Layers { args, environment, .. } = layers;
    let root = file.as_ref().map(|file| file.node);
    let mut file = file.map(|file| file.value).unwrap_or_default();
    check_version(&mut file.version, errors);
    let (listeners, admin) = listeners::resolve(&mut file, layers, errors);
    let position = file.position.merge(args.position);
    let trace_context = file.trace_context.merge(args.trace_context);
    let mut routing = routes::resolve(&mut file, root, args, errors);
    let proxies = proxy_env::from_env(environment, errors);
    for server in routing.servers() {
        server.proxy = proxies.for_host(server.tls, &server.host, server.port);
    }
    let is_flag = !args.upstream.is_empty();
    loops::check(&file, is_flag, &routing.upstreams.all, &listeners, errors);
    if layers.read_secrets {
        digest_certificates(&mut routing, errors);
    }
    let (propagators, ignored_propagators) =
        propagators(&mut file.propagators, environment, errors);
    let identity = identity::resolve(&mut file.identity, errors);
    let known =
        objectives::Known { routes: &routing.route_names, has_tenants: identity.tenant.is_some() };
    let limits = file.limits.or_insert_default();
    let mut config = Config {
        listeners,
        admin,
        position,
        trace_context,
        propagators,
        ignored_propagators,
        log: log(file.log.or_insert_default(), args),
        slos: objectives::resolve(&mut file.slos, args.slos, known, errors),
        slo_state: objectives::state(&file.slo_state, errors),
        tokenizers: tokenizers::resolve(&mut file.tokenizers, layers.tokenizers, errors),
        prices: file.cost.get().and_then(|cost| cost.prices.get().cloned()),
        costs: cost::resolve(&mut file.cost, &routing.route_names, errors),
        upstreams: routing.upstreams.all,
        scrapes: routing.upstreams.scrapes,
        warmup: routing.upstreams.warm,
        routes: routing.routes,
        contents: routing.contents,
        identity,
        identity_key: environment(IDENTITY_KEY_VARIABLE).map(|key| Secret::new(&key)),
        cardinality_limits: cardinality_limits(file.cardinality_limits.or_insert_default()),
        observer_memory: limits.observer_memory.or(OBSERVER_MEMORY).0,
        header_limits: header_limits(limits),
        shutdown_grace_period: grace_period(&mut file.shutdown_grace_period, args, errors),
        request_log: request_log(&mut file.request_log, args, errors),
        workload_drift: drift::resolve(file.workload_drift.or_insert_default(), errors),
        otlp: otlp(file.otlp.or_insert_default(), errors),
        proxies,
        warnings: Vec::new(),
        yaml: String::new(),
        resolved_file: ResolvedFile::default(),
    };
    config.set_header_limits(config.header_limits);
    config.set_resolved_file(file);
    config
}

fn log(log: &mut raw::Log, args: &RunArgs) -> Log {
    Log { level: log.level.merge(args.log_level), format: log.format.merge(args.log_format) }
}

fn header_limits(limits: &mut raw::Limits) -> HeaderLimits {
    HeaderLimits {
        max_lines: limits.header_lines.or(HeaderLimits::MAX_LINES),
        max_bytes: limits.header_size.or(ByteSize(HeaderLimits::MAX_BYTES)).0,
    }
}

/// Adds the digest of its certificate file to each upstream, so that a changed file counts as a changed upstream.
fn digest_certificates(routing: &mut routes::Routing, errors: &mut ErrorCollector) {
    for server in routing.servers() {
        let digest = server.ca_file.as_deref().map(file::digest);
        if let Some(Err(message)) = &digest
            && message == file::NOT_A_FILE
        {
            errors.add_outside_file(&format!("upstreams.{}.ca_file", server.name), message);
        }
        // A file that cannot be read is an error of the upstream, when it is set up.
        server.ca_digest = digest.and_then(Result::ok);
    }
}

/// Checks the key `version` of a file. Without this key, the newest version applies.
pub(super) fn check_version(version: &mut Field<u64>, errors: &mut ErrorCollector) {
    if let Some(Spanned { value, node }) = version.as_ref()
        && *value != 1
    {
        errors.add(*node, format!("unsupported version {value}; this release reads version 1"));
    }
    version.or_insert(1);
}

fn grace_period(
    written: &mut Field<raw::GracePeriod>,
    args: &RunArgs,
    errors: &mut ErrorCollector,
) -> Duration {
    match args.shutdown_grace_period.map(raw::GracePeriod::new) {
        Some(Ok(flag)) => *written = Field::from_value(flag),
        Some(Err(message)) => errors.add_outside_file("--shutdown-grace-period", message),
        None => {}
    }
    written.or_time(GRACE_PERIOD)
}

fn cardinality_limits(written: &mut raw::CardinalityLimits) -> label::CardinalityLimits {
    let default = label::CardinalityLimits::default();
    label::CardinalityLimits {
        error_types: written.error_types.or(default.error_types),
        finish_reasons: written.finish_reasons.or(default.finish_reasons),
        models: written.models.or(default.models),
        providers: written.providers.or(default.providers),
        tenants: written.tenants.or(default.tenants),
        variants: written.variants.or(default.variants),
        length_buckets: *written.length_buckets.or_insert(default.length_buckets),
    }
}

fn otlp(written: &mut raw::Otlp, errors: &mut ErrorCollector) -> ExportOverrides {
    let mut headers = Vec::new();
    if let Some(list) = written.headers.spanned_mut() {
        list.value.retain(|_, value| matches!(value, Field::Present(_)));
        for (name, value) in &list.value {
            if let Some(Spanned { value, node }) = value.as_ref() {
                if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
                    errors.add(*node, "not a valid header name; write a name such as x-api-key");
                }
                headers.push((name.clone(), value.0.clone()));
            }
        }
    }
    if headers.is_empty() {
        written.headers = Field::Absent;
    }
    ExportOverrides {
        endpoint: written.endpoint.get().map(ToString::to_string),
        protocol: written.protocol.value(),
        interval: written.interval.value().map(|interval| interval.get().0),
        headers,
        genai_names: written.genai_names.value(),
    }
}

fn request_log(
    written: &mut Field<raw::RequestLog>,
    args: &RunArgs,
    errors: &mut ErrorCollector,
) -> Option<request_log::Config> {
    if let Some(flag) = &args.request_log {
        written.or_insert_default().path = Field::from_value(flag.clone());
    }
    let Spanned { value, node } = written.spanned_mut()?;
    let hint = "write the path of a file, or stdout";
    let path = value.path.required(errors, *node, "path", hint)?.value.clone();
    let rotate = value.rotate.or_insert_default();
    let default = request_log::Rotation::default();
    let default_size = ByteSize(usize::try_from(default.size).unwrap_or(usize::MAX));
    Some(request_log::Config {
        destination: if path.as_os_str() == STDOUT {
            request_log::Destination::Stdout
        } else {
            request_log::Destination::File(path)
        },
        rotate: request_log::Rotation {
            size: rotate.size.or(default_size).0 as u64,
            keep: rotate.max_files.or(default.keep),
        },
    })
}

/// Returns the trace header formats, and the unknown values of `OTEL_PROPAGATORS`. The file takes precedence over the
/// variable.
fn propagators(
    written: &mut Field<Vec<Field<Propagator>>>,
    environment: Environment<'_>,
    errors: &mut ErrorCollector,
) -> (Vec<Propagator>, Vec<String>) {
    let mut ignored = Vec::new();
    if written.as_ref().is_none() {
        let variable = environment("OTEL_PROPAGATORS");
        let propagators = variable.map(|list| parse_propagators(&list, &mut ignored));
        *written =
            propagators.unwrap_or_else(|| Propagator::DEFAULT.to_vec()).into_iter().collect();
    }
    let mut propagators = Vec::new();
    for Spanned { value, node } in written.entries() {
        if propagators.contains(value) {
            errors.add(*node, format!("{} is listed twice; remove one", value.as_str()));
        }
        propagators.push(*value);
    }
    (propagators, ignored)
}

/// Parses `OTEL_PROPAGATORS`. Unknown words are ignored, as the OpenTelemetry specification demands, and added to
/// `ignored` for the log.
fn parse_propagators(list: &str, ignored: &mut Vec<String>) -> Vec<Propagator> {
    let mut propagators = Vec::new();
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let matches = |propagator: &Propagator| propagator.as_str().eq_ignore_ascii_case(word);
        match Propagator::ALL.into_iter().find(matches) {
            Some(propagator) if propagators.contains(&propagator) => {}
            Some(propagator) => propagators.push(propagator),
            // The OpenTelemetry specification uses `none` for an empty list.
            None if word.eq_ignore_ascii_case("none") => {}
            None => ignored.push(word.to_owned()),
        }
    }
    propagators
}

/// Reports a name that is empty, too long, or needs escaping in a query or a URL.
fn check_name(name: &str, node: NodeId, errors: &mut ErrorCollector) {
    if !is_name(name) {
        errors.add(node, invalid_name(name));
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
fn check_length(list: (usize, NodeId), max: usize, what: &str, errors: &mut ErrorCollector) {
    let (length, node) = list;
    if length > max {
        errors.add(node, format!("there are {length} {what}; write at most {max}"));
    }
}

/// Returns the label of the route. Reports an error if the route does not exist.
fn route(written: &Field<String>, routes: &[String], errors: &mut ErrorCollector) -> Option<Label> {
    let Spanned { value, node } = written.as_ref()?;
    if !routes.contains(value) {
        let hint = super::errors::suggestion(value, routes.iter().map(String::as_str));
        errors.add(*node, format!("no route named \"{value}\"; {hint}"));
    }
    Some(Label::from_trusted(value))
}
