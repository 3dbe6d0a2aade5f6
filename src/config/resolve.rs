//! Combines flags, environment, file and defaults into a [`Config`].
//!
//! An invalid value is reported and replaced by its default, so that the other checks can continue. After any error,
//! the caller discards the result.

use super::errors::{ErrorCollector, NodeId};
use super::section::routes::Routing;
use super::section::telemetry::{RequestLog, resolve_propagators};
use super::section::{
    File, GracePeriod, Layers, ReferencedFiles, cost, drift, identity, listeners, routes, slos,
    tokenizers,
};
use super::{Config, RunArgs, Secret, file, loops, proxy_env};
use tokengauge_llm::count::Tokenizers;

/// Environment variable with the key for hashes of tenants, sessions and variants.
const IDENTITY_KEY_VARIABLE: &str = "TOKENGAUGE_IDENTITY_KEY";

/// Combines all sources. `written` is `None` if no file was given. The [`Config::file`] has all resulting values, so
/// that the printed configuration contains them.
pub(super) fn resolve(
    written: Option<File>,
    layers: Layers<'_>,
    errors: &mut ErrorCollector,
) -> Config {
    let Layers { args, environment, .. } = layers;
    let has_file = written.is_some();
    let mut file = written.unwrap_or_default();
    apply_flags(&mut file, args, errors);
    let listeners = listeners::resolve(&mut file, layers, errors);
    let serves = routes::Serves::of(&file);
    let mut routing = routes::resolve(&mut file, has_file, args, serves, errors);
    let proxies = proxy_env::from_env(environment, errors);
    for server in routing.servers() {
        server.proxy = proxies.for_host(server.tls, &server.host, server.port);
    }
    loops::check(!args.upstream.is_empty(), &routing.upstreams.all, &listeners, errors);
    let reads_files = layers.files != ReferencedFiles::Skip;
    if layers.files == ReferencedFiles::Load {
        digest_certificates(&mut routing, errors);
    }
    let identity = identity::resolve(&mut file.identity, errors);
    let known =
        slos::Known { routes: &routing.route_names, has_tenants: identity.tenant.is_some() };
    file.console.check(errors);
    file.otlp.check(errors);
    if let Some(state) = &file.slo_state {
        state.check(errors);
    }
    let mut config = Config {
        listeners,
        ignored_propagators: resolve_propagators(&mut file.propagators, environment, errors),
        slos: slos::resolve(&mut file.slos, args.slos, known, errors),
        tokenizers: match reads_files {
            true => tokenizers::resolve(&file.tokenizers, layers.tokenizers, errors),
            false => Tokenizers::default(),
        },
        costs: cost::resolve(&mut file.cost, &routing.route_names, reads_files, errors),
        upstreams: routing.upstreams.all,
        scrapes: routing.upstreams.scrapes,
        warmup: routing.upstreams.warm,
        routes: routing.routes,
        envoy_routes: routing.envoy_routes,
        contents: routing.contents,
        identity,
        identity_key: environment(IDENTITY_KEY_VARIABLE).map(|key| Secret::new(&key)),
        request_log: RequestLog::resolve(&mut file.request_log, args, errors),
        workload_drift: drift::resolve(&file.workload_drift, reads_files, errors),
        proxies,
        warnings: Vec::new(),
        yaml: String::new(),
        file,
    };
    config.apply_limits();
    config
}

/// Replaces values of the file by those of flags.
fn apply_flags(file: &mut File, args: &RunArgs, errors: &mut ErrorCollector) {
    file.position = args.position.unwrap_or(file.position);
    file.trace_context = args.trace_context.unwrap_or(file.trace_context);
    file.log.level = args.log_level.unwrap_or(file.log.level);
    file.log.format = args.log_format.unwrap_or(file.log.format);
    match args.shutdown_grace_period.map(GracePeriod::new) {
        Some(Ok(flag)) => file.shutdown_grace_period = flag,
        Some(Err(message)) => errors.add_outside_file("--shutdown-grace-period", message),
        None => {}
    }
}

/// Adds the digest of its certificate file to each upstream, so that a changed file counts as a changed upstream.
fn digest_certificates(routing: &mut Routing, errors: &mut ErrorCollector) {
    for server in routing.servers() {
        let digest = server.ca_file.as_deref().map(file::digest);
        if let Some(Err(message)) = &digest
            && message == file::NOT_A_FILE
        {
            let key = format!("upstreams.{}.ca_file", server.name);
            errors.add_key(NodeId::ROOT, &key, message);
        }
        // A file that cannot be read is an error of the upstream, when it is set up.
        server.ca_digest = digest.and_then(Result::ok);
    }
}
