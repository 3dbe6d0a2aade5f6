//! What was written, layer over layer → what the program runs on.
//!
//! A value that is wrong is told and its default taken, so that everything else is checked as well; the result is
//! thrown away then.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::deserialize::{Field, Spanned};
use super::errors::{ErrorCollector, NodeId};
use super::value::{Length, Size};
use super::{Admin, Config, ExportOverrides, Log, RunArgs, Secret, file, proxy_env, raw};
use tokengauge_llm::count::Tokenisers;
use tokengauge_types::label;

mod admission;
mod backends;
mod content;
mod cost;
pub(super) mod drift;
mod identity;
mod indicator;
mod objectives;
mod propagators;
pub(super) mod request_log;
mod routes;
mod tokenizers;
mod upstreams;

/// Loopback: who wants to be reached from elsewhere says so.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4000);

/// What Kubernetes grants by default between SIGTERM and SIGKILL.
const DRAIN: Duration = Duration::from_secs(30);

/// Room for 5,000 streams that are each 6 KiB behind: whoever is further behind than that does not catch up.
const OBSERVER_MEMORY: usize = 32 << 20;

/// The variable that holds the admin port's bearer token. There is no flag for it: flags are seen in `ps`.
const TOKEN_VARIABLE: &str = "TOKENGAUGE_ADMIN_TOKEN";

/// The variable that holds the key by which tenants, sessions and variants are hashed.
const IDENTITY_KEY: &str = "TOKENGAUGE_IDENTITY_KEY";

/// The layers layers the file.
#[derive(Clone, Copy)]
pub(super) struct Layers<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) environment: super::Environment<'a>,
    /// Whether files that hold secrets are read; `check` may run where they are not.
    pub(super) read_secrets: bool,
    /// Tokenisers that were read before.
    pub(super) tokenizers: &'a Tokenisers,
}

/// Resolves the layers. `file` is absent where no file was named.
pub(super) fn resolve(
    file: Option<Spanned<raw::File>>,
    layers: Layers<'_>,
    errors: &mut ErrorCollector,
) -> Config {
    let args = layers.args;
    if let Some(file) = &file {
        version(file.value.version.clone(), file.node, errors);
    }
    let root = file.as_ref().map(|file| file.node);
    let file = file.map(|file| file.value).unwrap_or_default();
    let listening = match &file.listeners {
        Field::Present(given) if args.listen.is_empty() => Some(given.node),
        Field::Present(_) | Field::Absent | Field::Invalid => None,
    };
    let listeners = listeners(file.listeners, args, errors);
    let admin = admin(file.admin, layers, errors);
    tell_taken_twice(listening, &listeners, &admin, errors);
    let vantage = args.vantage.or(file.vantage.value()).unwrap_or_default();
    let written = routes::Written { file: root, upstreams: file.upstreams, routes: file.routes };
    let trace = args.trace.or(file.trace.value()).unwrap_or_default();
    let defaults = routes::Defaults { vantage, trace };
    let mut paths = routes::resolve(written, args, defaults, errors);
    let (propagators, ignored_propagators) =
        propagators::resolve(file.propagators, layers.environment, errors);
    let identity = identity::resolve(file.identity, errors);
    let known =
        objectives::Known { routes: &paths.route_names, tenants: identity.tenant.is_some() };
    let objectives = objectives::resolve(file.objectives, args.objectives, known, errors);
    proxies(&mut paths, layers, errors);
    Config {
        listeners,
        admin,
        upstreams: paths.upstreams,
        scrapes: paths.scrapes,
        warm: paths.warm,
        routes: paths.routes,
        contents: paths.contents,
        objectives,
        slo_state: objectives::state(file.slo_state, errors),
        tokenizers: tokenizers::resolve(file.tokenizers, layers.tokenizers, errors),
        prices: prices_file(&file.cost),
        costs: cost::resolve(file.cost, &paths.route_names, errors),
        identity,
        identity_key: (layers.environment)(IDENTITY_KEY)
            .filter(|key| !key.is_empty())
            .map(|key| Secret::new(&key)),
        labels: labels(file.labels, errors),
        observer_memory: observer_memory(file.limits, errors),
        drain: drain(file.drain, args, errors),
        vantage,
        trace,
        propagators,
        ignored_propagators,
        log: log(file.log, args),
        request_log: request_log::resolve(file.request_log, errors),
        drift: drift::resolve(file.drift, errors),
        export: export(file.export, errors),
    }
}

/// Where the prices are, as far as the file says so in the right way.
fn prices_file(cost: &Field<raw::Cost>) -> Option<std::path::PathBuf> {
    cost.clone().value()?.prices.value()
}

/// The proxies on the way out that the environment names: to upstreams, and to the pages of the engines behind them.
fn proxies(paths: &mut routes::Paths, layers: Layers<'_>, errors: &mut ErrorCollector) {
    let (proxy, wrong) = proxy_env::from_env(layers.environment);
    for (variable, wrong) in wrong {
        errors.outside(variable, wrong.to_string());
    }
    let pages = paths.scrapes.iter_mut().map(|scrape| &mut scrape.to);
    for to in paths.upstreams.iter_mut().chain(pages) {
        to.proxy = proxy.for_host(to.tls, &to.host, to.port);
    }
}

fn version(version: Field<u64>, file: NodeId, errors: &mut ErrorCollector) {
    let version = version.required(errors, file, "version", "write `version: 1` at the top");
    if let Some(Spanned { value, node }) = version
        && value != 1
    {
        errors.at(node, format!("version {value} is not known; this program reads version 1"));
    }
}

fn listeners(
    written: Field<Vec<Field<raw::Listener>>>,
    args: &RunArgs,
    errors: &mut ErrorCollector,
) -> Vec<tokengauge_listen::Config> {
    let mut listeners = match written {
        Field::Present(Spanned { value, node }) => {
            if value.is_empty() {
                errors.at(
                    node,
                    format!("no listener is left; add one, or remove the key for {LISTEN}"),
                );
            }
            let given = value.into_iter().filter_map(Field::spanned);
            given.filter_map(|written| listener(written, errors)).collect()
        }
        Field::Absent | Field::Invalid => {
            vec![tokengauge_listen::Config::at(tokengauge_listen::Address::Tcp(LISTEN))]
        }
    };
    if !args.listen.is_empty() {
        let flags = args.listen.iter();
        listeners = flags.map(|address| tokengauge_listen::Config::at(address.0.clone())).collect();
    }
    match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            let tls = tokengauge_listen::Tls { certificate: certificate.clone(), key: key.clone() };
            let over_tcp = |listener: &&mut tokengauge_listen::Config| {
                matches!(listener.address, tokengauge_listen::Address::Tcp(_))
            };
            for listener in listeners.iter_mut().filter(over_tcp) {
                listener.tls = Some(tls.clone());
            }
        }
        (Some(_), None) => errors.outside("--tls-cert", "there is no key to it; add --tls-key"),
        (None, Some(_)) => {
            errors.outside("--tls-key", "there is no certificate to it; add --tls-cert")
        }
        (None, None) => {}
    }
    listeners
}

fn listener(
    written: Spanned<raw::Listener>,
    errors: &mut ErrorCollector,
) -> Option<tokengauge_listen::Config> {
    let Spanned { value, node } = written;
    let tls = value.tls.spanned().and_then(|tls| {
        let remedy = "name a PEM file";
        let certificate = tls.value.certificate.required(errors, tls.node, "certificate", remedy);
        let key = tls.value.key.required(errors, tls.node, "key", remedy);
        Some(tokengauge_listen::Tls { certificate: certificate?.value, key: key?.value })
    });
    let max_connections = within(value.max_connections, 1..=1_000_000, errors)
        .unwrap_or(tokengauge_listen::Config::MAX_CONNECTIONS);
    let head_timeout = length_within(value.head_timeout, HEAD_TIMEOUTS, errors)
        .unwrap_or(tokengauge_listen::Config::HEAD_TIMEOUT);
    let remedy = "write where to listen, such as `address: 127.0.0.1:4000`";
    let address = value.address.required(errors, node, "address", remedy)?;
    Some(tokengauge_listen::Config { address: address.value.0, tls, max_connections, head_timeout })
}

/// Below the lower one heads that come in two packets over a slow line would fail; layers the upper one it bounds
/// nothing.
const HEAD_TIMEOUTS: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(600);

/// `listening`: where the file says so.
fn tell_taken_twice(
    listening: Option<NodeId>,
    listeners: &[tokengauge_listen::Config],
    admin: &Admin,
    errors: &mut ErrorCollector,
) {
    let Some(message) = address_taken_twice(listeners, admin) else {
        return;
    };
    match listening {
        Some(node) => errors.at(node, message),
        None => errors.outside("--listen", message),
    }
}

/// Said of the first address that is; a port of 0 is another one each time.
fn address_taken_twice(listeners: &[tokengauge_listen::Config], admin: &Admin) -> Option<String> {
    let ephemeral = |address: &tokengauge_listen::Address| matches!(address, tokengauge_listen::Address::Tcp(tcp) if tcp.port() == 0);
    let admin = tokengauge_listen::Address::Tcp(admin.address);
    let mut taken = vec![&admin];
    for listener in listeners {
        let address = &listener.address;
        if taken.contains(&address) && !ephemeral(address) {
            return Some(format!(
                "{} is taken twice, by two listeners or by one and the admin port; give each its own",
                super::value::Address(address.clone())
            ));
        }
        taken.push(address);
    }
    None
}

fn admin(written: Field<raw::Admin>, layers: Layers<'_>, errors: &mut ErrorCollector) -> Admin {
    let written = written.value().unwrap_or_default();
    let address = layers.args.admin.or(written.address.value());
    let mut admin = Admin {
        address: address.map_or(Admin::ADDRESS, |socket| socket.0),
        token: None,
        token_file: None,
    };
    if let Some(token) = (layers.environment)(TOKEN_VARIABLE) {
        if !file::is_token(&token) {
            let message = format!("this is no bearer token; {}", file::TOKEN_REMEDY);
            errors.outside(TOKEN_VARIABLE, message);
        }
        admin.token = Some(Secret::new(&token));
    } else if let Some(Spanned { value, node }) = written.token_file.spanned() {
        if layers.read_secrets {
            match file::token(&value) {
                Ok(token) => admin.token = Some(token),
                Err(message) => errors.at(node, message),
            }
        }
        admin.token_file = Some(value);
    }
    admin
}

fn labels(written: Field<raw::Labels>, errors: &mut ErrorCollector) -> label::Limits {
    // Series multiply: more than 1,000 of one label is more than any backend wants of one process.
    const RANGE: RangeInclusive<usize> = 1..=1_000;
    let written = written.value().unwrap_or_default();
    let usual = label::Limits::default();
    let mut limit =
        |field: Field<usize>, usual: usize| within(field, RANGE, errors).unwrap_or(usual);
    label::Limits {
        error_types: limit(written.error_types, usual.error_types),
        finish_reasons: limit(written.finish_reasons, usual.finish_reasons),
        models: limit(written.models, usual.models),
        providers: limit(written.providers, usual.providers),
        tenants: limit(written.tenants, usual.tenants),
        variants: limit(written.variants, usual.variants),
        length_bands: written.length_bands.value().unwrap_or(usual.length_bands),
    }
}

fn observer_memory(written: Field<raw::Limits>, errors: &mut ErrorCollector) -> usize {
    // One full shard at least; the most that anybody would call a sidecar.
    let range = Size(1 << 20)..=Size(4 << 30);
    let written = written.value().unwrap_or_default();
    within(written.observer_memory, range, errors).map_or(OBSERVER_MEMORY, |size| size.0)
}

/// Longer, and a deployment hangs on one forgotten stream.
const LONGEST_DRAIN: Duration = Duration::from_secs(3_600);

fn drain(written: Field<Length>, args: &RunArgs, errors: &mut ErrorCollector) -> Duration {
    let range = Duration::ZERO..=LONGEST_DRAIN;
    let written = length_within(written, range.clone(), errors);
    if let Some(flag) = args.drain {
        if !range.contains(&flag.0) {
            errors.outside(
                "--drain",
                outside_of(flag, &(Length(*range.start())..=Length(*range.end()))),
            );
        }
        return flag.0;
    }
    written.unwrap_or(DRAIN)
}

fn log(written: Field<raw::Log>, args: &RunArgs) -> Log {
    let written = written.value().unwrap_or_default();
    Log {
        level: args.log_level.or(written.level.value()).unwrap_or_default(),
        format: args.log_format.or(written.format.value()).unwrap_or_default(),
    }
}

fn export(written: Field<raw::Export>, errors: &mut ErrorCollector) -> ExportOverrides {
    // Faster, and export costs more than what it tells; slower, and 5 min windows have no points.
    let intervals = Duration::from_secs(1)..=Duration::from_secs(300);
    let written = written.value().unwrap_or_default();
    ExportOverrides {
        endpoint: written.endpoint.value().map(|url| url.to_string()),
        protocol: written.protocol.value(),
        interval: length_within(written.interval, intervals, errors),
        headers: headers(written.headers, errors),
        genai_names: written.genai_names.value(),
    }
}

fn headers(
    written: Field<BTreeMap<String, Field<raw::HeaderValue>>>,
    errors: &mut ErrorCollector,
) -> Vec<(String, Secret)> {
    let mut headers = Vec::new();
    for (name, value) in written.value().unwrap_or_default() {
        let Some(Spanned { value, node }) = value.spanned() else {
            continue;
        };
        if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            errors.at(node, "this is no name of a header; write a name such as x-api-key");
        }
        headers.push((name, value.0));
    }
    headers
}

/// The value, if it was written; told where it lies outside `range`.
fn within<T: Copy + fmt::Display + PartialOrd>(
    field: Field<T>,
    range: RangeInclusive<T>,
    errors: &mut ErrorCollector,
) -> Option<T> {
    let Spanned { value, node } = field.spanned()?;
    if !range.contains(&value) {
        errors.at(node, outside_of(value, &range));
    }
    Some(value)
}

fn length_within(
    field: Field<Length>,
    range: RangeInclusive<Duration>,
    errors: &mut ErrorCollector,
) -> Option<Duration> {
    let range = Length(*range.start())..=Length(*range.end());
    within(field, range, errors).map(|length| length.0)
}

fn outside_of<T: fmt::Display>(value: T, range: &RangeInclusive<T>) -> String {
    format!(
        "{value} lies outside of what is sensible; write a value from {} to {}",
        range.start(),
        range.end()
    )
}

/// Tells a name that could not stand in a query or a URL as it is.
fn check_name(name: &str, node: NodeId, errors: &mut ErrorCollector) {
    if !is_name(name) {
        errors.at(node, no_name(name));
    }
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(fits)
}

fn no_name(name: &str) -> String {
    format!("\"{name}\" is no name; write up to {LONGEST_NAME} letters, digits, -, _, . and /")
}

/// What fits a legend of a dashboard.
const LONGEST_NAME: usize = 64;
