//! Routes: which request goes where.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::upstreams::Upstreams;
use super::{admission, backends, check_name, content, is_name, length_within, no_name, upstreams};
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::{ErrorCollector, NodeId, suggestion};
use crate::config::value::Wrong;
use crate::config::{RunArgs, raw};
use crate::forward;
use crate::route;
use crate::route::TraceHeaders;
use crate::scrape;
use tokengauge_llm::content::{Policy, Routes};
use tokengauge_llm::dialect;
use tokengauge_measure::engine::warm;
use tokengauge_types::event::{RouteFacts, Vantage};
use tokengauge_types::label::Label;
use tokengauge_types::url::{self, Target};

/// A pause that a reader notices: 30 tokens late at a modest 15 per second.
const STALL_AFTER: Duration = Duration::from_secs(2);

/// Where the shorter of common client time limits lie: whoever waited this long with nothing to see may leave.
const HUNG_AFTER: Duration = Duration::from_secs(30);

/// A sweep looks about every 250 ms; longer than an hour is no verdict on a stream.
const STALLS: RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(3_600);

/// The name of an upstream, and of the route to it, that was given as a mere URL.
const DEFAULT_NAME: &str = "default";

/// The flag that names upstreams without a file.
const FLAG: &str = "--upstream";

/// The flag that names whose they are.
const PROVIDER_FLAG: &str = "--provider";

/// What the file says.
pub(super) struct Written {
    /// The file itself, where there is one.
    pub(super) file: Option<NodeId>,
    pub(super) upstreams: Field<BTreeMap<String, Field<raw::Upstream>>>,
    pub(super) routes: Field<Vec<Field<raw::Route>>>,
}

pub(super) struct Paths {
    pub(super) upstreams: Vec<forward::Config>,
    pub(super) scrapes: Vec<scrape::Config>,
    pub(super) warm: Vec<(Label, warm::Config)>,
    pub(super) routes: Vec<route::Config>,
    /// Also of routes that are wrong in some other way, so that what refers to them is not called wrong too.
    pub(super) route_names: Vec<String>,
    pub(super) contents: Routes,
}

/// What holds for routes that do not say otherwise.
#[derive(Clone, Copy)]
pub(super) struct Defaults {
    pub(super) vantage: Vantage,
    pub(super) trace: TraceHeaders,
}

pub(super) fn resolve(
    written: Written,
    args: &RunArgs,
    defaults: Defaults,
    errors: &mut ErrorCollector,
) -> Paths {
    if args.upstream.is_empty() {
        tell_missing(&written, errors);
        tell_idle(args, errors);
    }
    let names: Vec<String> = match &written.upstreams {
        Field::Present(given) => given.value.keys().cloned().collect(),
        Field::Absent | Field::Invalid => Vec::new(),
    };
    let Upstreams { all: upstreams, scrapes, warm } = upstreams::resolve(written.upstreams, errors);
    let known = Known { names: &names, upstreams: &upstreams, defaults };
    let mut contents = Vec::new();
    let (routes, route_names) = match written.routes {
        Field::Present(given) => routes(given, known, &mut contents, errors),
        Field::Absent | Field::Invalid => only_route(known),
    };
    if !args.upstream.is_empty() {
        return from_flags(args, defaults, errors);
    }
    Paths {
        upstreams,
        scrapes,
        warm,
        routes,
        route_names,
        contents: contents.into_iter().collect(),
    }
}

/// Where no flag names an upstream, the file must say it all.
fn tell_missing(written: &Written, errors: &mut ErrorCollector) {
    let Some(file) = written.file else {
        let message = "it is not said where requests go; name an upstream, such as\n    \
                       tokengauge run --upstream https://api.openai.com";
        return errors.outside(FLAG, message);
    };
    match (&written.upstreams, &written.routes) {
        (Field::Absent, _) => errors.missing(
            file,
            "upstreams",
            "write where requests go, such as `openai: {url: https://api.openai.com}`",
        ),
        (Field::Present(upstreams), Field::Absent) if upstreams.value.len() > 1 => {
            let first = upstreams.value.keys().next().map_or("", String::as_str);
            let remedy = format!(
                "there are {} upstreams; write which request goes where, such as `- {{match: {{prefix: /{first}}}, \
                 upstream: {first}, strip: true}}`",
                upstreams.value.len(),
            );
            errors.missing(file, "routes", &remedy);
        }
        _ => {}
    }
}

/// Flags that say more of what `--upstream` names, where it names nothing.
fn tell_idle(args: &RunArgs, errors: &mut ErrorCollector) {
    if args.provider.is_some() {
        let message = "it is for what --upstream names, and that names nothing; write `provider` in the file's routes";
        errors.outside(PROVIDER_FLAG, message);
    }
    if args.engine_metrics == Some(true) {
        let message = "it is for what --upstream names, and that names nothing; write `metrics: {}` in the file's upstreams";
        errors.outside("--engine-metrics", message);
    }
}

/// What a route may refer to.
#[derive(Clone, Copy)]
struct Known<'a> {
    names: &'a [String],
    /// Without those that are wrong.
    upstreams: &'a [forward::Config],
    defaults: Defaults,
}

impl<'a> Known<'a> {
    fn upstream(self, name: &str) -> Option<&'a forward::Config> {
        self.upstreams.iter().find(|upstream| upstream.name.as_str() == name)
    }
}

fn routes(
    written: Spanned<Vec<Field<raw::Route>>>,
    known: Known<'_>,
    contents: &mut Vec<(Label, Policy)>,
    errors: &mut ErrorCollector,
) -> (Vec<route::Config>, Vec<String>) {
    if written.value.is_empty() {
        errors.at(
            written.node,
            "no route is left; add one, or remove the key where there is one upstream",
        );
    }
    let mut routes: Vec<route::Config> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for written in written.value.into_iter().filter_map(Field::spanned) {
        let node = written.node;
        let name = name_of(&written, &names, errors);
        let matched = matched(written.value.r#match.clone(), errors);
        let same = |other: &route::Config| (&other.host, &other.prefix) == (&matched.0, &matched.1);
        if let Some(other) = routes.iter().find(|other| same(other)) {
            let message = format!(
                "route \"{}\" matches the same requests, so this one is never taken; remove one or tell them apart by match",
                other.facts.name
            );
            errors.at(node, message);
        }
        names.push(name.clone());
        let captured = content::resolve(written.value.content.clone(), errors);
        contents.extend(captured.map(|policy| (Label::known(&name), policy)));
        routes.extend(route(&name, written, matched, known, errors));
    }
    (routes, names)
}

/// A route's own name, or its upstream's.
fn name_of(written: &Spanned<raw::Route>, taken: &[String], errors: &mut ErrorCollector) -> String {
    let own = written.value.name.clone().spanned();
    let (name, node) = match (own, written.value.upstream.clone().spanned()) {
        (Some(own), _) => {
            check_name(&own.value, own.node, errors);
            (own.value, own.node)
        }
        (None, Some(upstream)) => (upstream.value, written.node),
        (None, None) => return String::new(),
    };
    if taken.contains(&name) {
        errors
            .at(node, format!("a second route is called \"{name}\"; give this one another `name`"));
    }
    name
}

/// Host and prefix.
fn matched(written: Field<raw::Match>, errors: &mut ErrorCollector) -> (Option<String>, String) {
    let written = written.value().unwrap_or_default();
    let host = written.host.spanned().map(|Spanned { value, node }| {
        let host = value.to_ascii_lowercase();
        if !is_host(&host) {
            let message = format!(
                "\"{value}\" is no host; write a name without scheme, port or path, such as llm.example.com or \
                 \"*.example.com\""
            );
            errors.at(node, message);
        }
        host
    });
    let prefix = written.prefix.spanned().map(|Spanned { value, node }| {
        url::prefix(&value).unwrap_or_else(|wrong: Wrong| {
            errors.at(node, wrong.to_string());
            value
        })
    });
    (host, prefix.unwrap_or_default())
}

fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    // As clients write it in Host: in brackets.
    let address = url::bare(host) != host && url::bare(host).parse::<Ipv6Addr>().is_ok();
    let label = |label: &str| {
        !label.is_empty()
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    address || name.split('.').all(label)
}

fn check_dialect(dialect: &str, node: NodeId, errors: &mut ErrorCollector) {
    if dialect::is_hint(dialect) {
        return;
    }
    let families = dialect::Family::ALL.iter().map(|family| family.as_str());
    let apis = dialect::Api::ALL.iter().map(|api| api.as_str());
    let near = suggestion(dialect, families.chain(apis));
    errors.at(node, format!("no dialect is called {dialect:?}; {near}"));
}

fn route(
    name: &str,
    written: Spanned<raw::Route>,
    (host, prefix): (Option<String>, String),
    known: Known<'_>,
    errors: &mut ErrorCollector,
) -> Option<route::Config> {
    let Spanned { value, node } = written;
    let strip = value.strip.spanned();
    if let Some(Spanned { value: true, node }) = strip
        && prefix.is_empty()
    {
        errors.at(node, "there is no prefix to take off; write match.prefix, or remove this key");
    }
    let strip = strip.is_some_and(|strip| strip.value);
    let stall_after = length_within(value.stall_after, STALLS, errors).unwrap_or(STALL_AFTER);
    let hung_after = length_within(value.hung_after, STALLS, errors).unwrap_or(HUNG_AFTER);
    if let Field::Present(provider) = &value.provider {
        check_name(&provider.value, provider.node, errors);
    }
    if let Field::Present(dialect) = &value.dialect {
        check_dialect(&dialect.value, dialect.node, errors);
    }
    let admission = admission::resolve(value.admission, errors);
    let upstream = upstream_of(value.upstream, node, known, errors)?;
    Some(route::Config {
        facts: Arc::new(RouteFacts {
            name: Label::known(name),
            vantage: value.vantage.value().unwrap_or(known.defaults.vantage),
            server_address: Label::known(&upstream.host),
            server_port: upstream.port,
            provider: value.provider.value().map(|name| Label::known(&name)),
            dialect: value.dialect.value().map(|name| Label::known(&name)),
            stripped: if strip { prefix.len() } else { 0 },
            base_path: Label::known(&upstream.base_path),
            stall_after,
            hung_after,
        }),
        host,
        prefix,
        strip,
        upstream: upstream.name.clone(),
        trace: value.trace.value().unwrap_or(known.defaults.trace),
        admission,
    })
}

fn upstream_of<'k>(
    written: Field<String>,
    route: NodeId,
    known: Known<'k>,
    errors: &mut ErrorCollector,
) -> Option<&'k forward::Config> {
    let remedy = "write the name of one under `upstreams`";
    let Spanned { value, node } = written.required(errors, route, "upstream", remedy)?;
    if !known.names.contains(&value) {
        let near = suggestion(&value, known.names.iter().map(String::as_str));
        errors.at(node, format!("there is no upstream \"{value}\"; {near}"));
    }
    known.upstream(&value)
}

/// Without routes everything goes to the only upstream.
fn only_route(known: Known<'_>) -> (Vec<route::Config>, Vec<String>) {
    let [name] = known.names else {
        return (Vec::new(), known.names.to_vec());
    };
    let route =
        known.upstream(name).map(|upstream| everything(upstream, None, None, known.defaults));
    (route.into_iter().collect(), vec![name.clone()])
}

/// A route to `upstream`, called like it, for everything below `prefix`.
fn everything(
    upstream: &forward::Config,
    prefix: Option<String>,
    provider: Option<Label>,
    defaults: Defaults,
) -> route::Config {
    let prefix = prefix.unwrap_or_default();
    route::Config {
        facts: Arc::new(RouteFacts {
            name: upstream.name.clone(),
            vantage: defaults.vantage,
            server_address: Label::known(&upstream.host),
            server_port: upstream.port,
            provider,
            dialect: None,
            stripped: prefix.len(),
            base_path: Label::known(&upstream.base_path),
            stall_after: STALL_AFTER,
            hung_after: HUNG_AFTER,
        }),
        host: None,
        strip: !prefix.is_empty(),
        prefix,
        upstream: upstream.name.clone(),
        trace: defaults.trace,
        admission: None,
    }
}

fn from_flags(args: &RunArgs, defaults: Defaults, errors: &mut ErrorCollector) -> Paths {
    let provider = args.provider.as_deref().map(|name| {
        if !is_name(name) {
            errors.outside(PROVIDER_FLAG, no_name(name));
        }
        Label::known(name)
    });
    let mut upstreams: Vec<forward::Config> = Vec::new();
    let mut routes = Vec::new();
    for flag in &args.upstream {
        let Target { prefix, url } = match flag.expose().parse() {
            Ok(target) => target,
            Err(wrong) => {
                let wrong: Wrong = wrong;
                errors.outside(FLAG, wrong.to_string());
                continue;
            }
        };
        let name = prefix.as_deref().map_or(DEFAULT_NAME, |prefix| prefix.trim_start_matches('/'));
        if upstreams.iter().any(|other| other.name.as_str() == name) {
            let message = format!(
                "two lead to the route \"{name}\"; give each its own prefix (only one may have none)"
            );
            errors.outside(FLAG, message);
        }
        let upstream = upstreams::at(name, url);
        routes.push(everything(&upstream, prefix, provider.clone(), defaults));
        upstreams.push(upstream);
    }
    let route_names = upstreams.iter().map(|upstream| upstream.name.to_string()).collect();
    let asked = upstreams.iter().filter(|_| args.engine_metrics == Some(true));
    let scrapes = asked.map(|upstream| backends::usual_scrape(upstream, None));
    Paths {
        scrapes: scrapes.collect(),
        upstreams,
        warm: Vec::new(),
        routes,
        route_names,
        contents: Routes::default(),
    }
}
