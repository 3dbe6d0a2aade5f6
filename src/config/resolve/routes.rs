//! CapturePolicies: which requests go to which upstream, with concurrency limits and content capture.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use super::upstreams::{self, Upstreams, default_scrape};
use super::{check_name, invalid_name, is_name};
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::{ErrorCollector, NodeId, suggestion};
use crate::config::value::{ByteSize, ValueError};
use crate::config::{RunArgs, raw};
use crate::forward;
use crate::route::{self, ConcurrencyLimit, TraceHeaders};
use crate::scrape;
use tokengauge_llm::content::{self, BUILT_IN_PATTERNS, CapturePolicy, Redactor};
use tokengauge_llm::dialect;
use tokengauge_measure::engine::warm;
use tokengauge_types::event::{ProxyPosition, RouteFacts};
use tokengauge_types::label::Label;
use tokengauge_types::url::{self, UpstreamTarget};

/// A pause that a reader notices: 30 tokens late at a modest 15 tokens per second.
const STALL_AFTER: Duration = Duration::from_secs(2);

/// The shorter of common client timeouts.
const HUNG_AFTER: Duration = Duration::from_secs(30);

/// The name of an upstream without a prefix that a flag names, and of its route.
const DEFAULT_NAME: &str = "default";

const UPSTREAM_FLAG: &str = "--upstream";
const PROVIDER_FLAG: &str = "--provider";

/// Each pattern scans all captured text.
const MAX_REDACT_PATTERNS: usize = 64;

/// The parts of the file that define routes.
pub(super) struct Written {
    /// The root node, if there is a file.
    pub(super) file: Option<NodeId>,
    pub(super) upstreams: Field<BTreeMap<String, Field<raw::Upstream>>>,
    pub(super) routes: Field<Vec<Field<raw::Route>>>,
}

/// Settings of routes that do not override them.
#[derive(Clone, Copy)]
pub(super) struct Defaults {
    pub(super) vantage: ProxyPosition,
    pub(super) trace: TraceHeaders,
}

/// Upstreams and the routes to them.
pub(super) struct Routing {
    pub(super) upstreams: Vec<forward::Config>,
    pub(super) scrapes: Vec<scrape::Config>,
    pub(super) warm: Vec<(Label, warm::Config)>,
    pub(super) routes: Vec<route::Config>,
    /// Includes invalid routes, so that a reference to one of them is not reported as well.
    pub(super) route_names: Vec<String>,
    pub(super) contents: content::CapturePolicies,
}

/// Upstreams of flags replace those of the file, which are checked nevertheless.
pub(super) fn resolve(
    written: Written,
    args: &RunArgs,
    defaults: Defaults,
    errors: &mut ErrorCollector,
) -> Routing {
    if args.upstream.is_empty() {
        check_complete(&written, errors);
        check_unused_flags(args, errors);
    }
    let names: Vec<String> = match &written.upstreams {
        Field::Present(upstreams) => upstreams.value.keys().cloned().collect(),
        Field::Absent | Field::Invalid => Vec::new(),
    };
    let Upstreams { all: upstreams, scrapes, warm } = upstreams::resolve(written.upstreams, errors);
    let known = KnownUpstreams { names: &names, valid: &upstreams };
    let mut resolver = RouteResolver {
        known,
        defaults,
        errors,
        routes: Vec::new(),
        names: Vec::new(),
        contents: Vec::new(),
    };
    match written.routes {
        Field::Present(list) => resolver.add_all(list),
        Field::Absent | Field::Invalid => resolver.add_default(),
    }
    let RouteResolver { routes, names: route_names, contents, errors, .. } = resolver;
    if !args.upstream.is_empty() {
        return from_flags(args, defaults, errors);
    }
    let contents = contents.into_iter().collect();
    Routing { upstreams, scrapes, warm, routes, route_names, contents }
}

/// Without upstreams from flags, the file has to define upstreams and, if there are several, routes.
fn check_complete(written: &Written, errors: &mut ErrorCollector) {
    let Some(file) = written.file else {
        let message = "no upstream is configured; name one, such as\n    \
                       tokengauge run --upstream https://api.openai.com";
        return errors.add_outside_file(UPSTREAM_FLAG, message);
    };
    match (&written.upstreams, &written.routes) {
        (Field::Absent, _) => {
            let hint = "add an upstream, such as `openai: {url: https://api.openai.com}`";
            errors.add_missing(file, "upstreams", hint);
        }
        (Field::Present(upstreams), Field::Absent) if upstreams.value.len() > 1 => {
            let first = upstreams.value.keys().next().map_or("", String::as_str);
            let hint = format!(
                "there are {} upstreams; add routes, such as `- {{match: {{prefix: /{first}}}, upstream: {first}, \
                 strip: true}}`",
                upstreams.value.len(),
            );
            errors.add_missing(file, "routes", &hint);
        }
        _ => {}
    }
}

/// Reports flags that qualify `--upstream` if that flag is not set.
fn check_unused_flags(args: &RunArgs, errors: &mut ErrorCollector) {
    let mut add = |flag, key| {
        let message = format!("requires {UPSTREAM_FLAG}; for upstreams of the file, write {key}");
        errors.add_outside_file(flag, message);
    };
    if args.provider.is_some() {
        add(PROVIDER_FLAG, "`provider` in routes");
    }
    if args.engine_metrics == Some(true) {
        add("--engine-metrics", "`metrics: {}` in upstreams");
    }
}

/// The upstreams that a route may refer to.
#[derive(Clone, Copy)]
struct KnownUpstreams<'a> {
    names: &'a [String],
    valid: &'a [forward::Config],
}

impl<'a> KnownUpstreams<'a> {
    fn get(self, name: &str) -> Option<&'a forward::Config> {
        self.valid.iter().find(|upstream| upstream.name.as_str() == name)
    }
}

struct RouteResolver<'a> {
    known: KnownUpstreams<'a>,
    defaults: Defaults,
    errors: &'a mut ErrorCollector,
    routes: Vec<route::Config>,
    names: Vec<String>,
    contents: Vec<(Label, CapturePolicy)>,
}

impl<'a> RouteResolver<'a> {
    fn add_all(&mut self, written: Spanned<Vec<Field<raw::Route>>>) {
        if written.value.is_empty() {
            let message =
                "the list is empty; add a route, or remove this key if there is one upstream";
            self.errors.add(written.node, message);
        }
        for written in written.value.into_iter().filter_map(Field::spanned) {
            let name = self.name(&written);
            let conditions = self.conditions(written.value.r#match.clone());
            let is_same = |other: &&route::Config| {
                (&other.host, &other.prefix) == (&conditions.0, &conditions.1)
            };
            if let Some(other) = self.routes.iter().find(is_same) {
                let message = format!(
                    "route \"{}\" matches the same requests, so this one is never used; remove it or change its match",
                    other.facts.name
                );
                self.errors.add(written.node, message);
            }
            self.names.push(name.clone());
            let policy = capture_policy(written.value.content.clone(), self.errors);
            self.contents.extend(policy.map(|policy| (Label::known(&name), policy)));
            let route = self.route(&name, written, conditions);
            self.routes.extend(route);
        }
    }

    /// Without routes, a single upstream receives all requests.
    fn add_default(&mut self) {
        self.names = self.known.names.to_vec();
        if let [name] = self.known.names
            && let Some(upstream) = self.known.get(name)
        {
            self.routes.push(default_route(upstream, None, None, self.defaults));
        }
    }

    /// The route's own name, or that of its upstream.
    fn name(&mut self, written: &Spanned<raw::Route>) -> String {
        let own = written.value.name.clone().spanned();
        let (name, node) = match (own, written.value.upstream.clone().spanned()) {
            (Some(own), _) => {
                check_name(&own.value, own.node, self.errors);
                (own.value, own.node)
            }
            (None, Some(upstream)) => (upstream.value, written.node),
            (None, None) => return String::new(),
        };
        if self.names.contains(&name) {
            let message = format!("duplicate route name \"{name}\"; set a different `name`");
            self.errors.add(node, message);
        }
        name
    }

    /// Host and prefix.
    fn conditions(&mut self, written: Field<raw::Match>) -> (Option<String>, String) {
        let written = written.or_default();
        let host = written.host.spanned().map(|Spanned { value, node }| {
            let host = value.to_ascii_lowercase();
            if !is_host(&host) {
                let message = format!(
                    "\"{value}\" is not a host; write a name without scheme, port or path, such as llm.example.com or \
                     \"*.example.com\""
                );
                self.errors.add(node, message);
            }
            host
        });
        let prefix = written.prefix.spanned().map(|Spanned { value, node }| {
            url::prefix(&value).unwrap_or_else(|error: ValueError| {
                self.errors.add(node, error.to_string());
                value
            })
        });
        (host, prefix.unwrap_or_default())
    }

    fn route(
        &mut self,
        name: &str,
        written: Spanned<raw::Route>,
        (host, prefix): (Option<String>, String),
    ) -> Option<route::Config> {
        let Spanned { value, node } = written;
        let strip = value.strip.spanned();
        if let Some(Spanned { value: true, node }) = strip
            && prefix.is_empty()
        {
            let message = "no prefix to strip; add match.prefix, or remove this key";
            self.errors.add(node, message);
        }
        let strip = strip.is_some_and(|strip| strip.value);
        if let Field::Present(provider) = &value.provider {
            check_name(&provider.value, provider.node, self.errors);
        }
        if let Field::Present(dialect) = &value.dialect {
            check_dialect(&dialect.value, dialect.node, self.errors);
        }
        let admission = admission(value.admission, self.errors);
        let upstream = self.upstream(value.upstream, node)?;
        let label = |field: Field<String>| field.value().map(|name| Label::known(&name));
        Some(route::Config {
            facts: Arc::new(RouteFacts {
                name: Label::known(name),
                vantage: value.vantage.value().unwrap_or(self.defaults.vantage),
                provider: label(value.provider),
                dialect: label(value.dialect),
                stripped: if strip { prefix.len() } else { 0 },
                stall_after: value.stall_after.duration().unwrap_or(STALL_AFTER),
                hung_after: value.hung_after.duration().unwrap_or(HUNG_AFTER),
                ..default_facts(upstream, self.defaults)
            }),
            host,
            prefix,
            strip,
            upstream: upstream.name.clone(),
            trace: value.trace.value().unwrap_or(self.defaults.trace),
            admission,
        })
    }

    fn upstream(&mut self, written: Field<String>, route: NodeId) -> Option<&'a forward::Config> {
        let hint = "write the name of an entry under `upstreams`";
        let Spanned { value, node } = written.required(self.errors, route, "upstream", hint)?;
        if !self.known.names.contains(&value) {
            let hint = suggestion(&value, self.known.names.iter().map(String::as_str));
            self.errors.add(node, format!("no upstream named \"{value}\"; {hint}"));
        }
        self.known.get(&value)
    }
}

fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    // Clients write IPv6 addresses in the Host header in brackets.
    let is_ipv6 = url::bare(host) != host && url::bare(host).parse::<Ipv6Addr>().is_ok();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    is_ipv6 || name.split('.').all(|label| !label.is_empty() && label.chars().all(is_allowed))
}

fn check_dialect(dialect: &str, node: NodeId, errors: &mut ErrorCollector) {
    if dialect::is_hint(dialect) {
        return;
    }
    let families = dialect::Family::ALL.iter().map(|family| family.as_str());
    let apis = dialect::Api::ALL.iter().map(|api| api.as_str());
    let hint = suggestion(dialect, families.chain(apis));
    errors.add(node, format!("unknown dialect \"{dialect}\"; {hint}"));
}

/// `None` if the route has no concurrency limit.
fn admission(
    written: Field<raw::Admission>,
    errors: &mut ErrorCollector,
) -> Option<ConcurrencyLimit> {
    let Spanned { value, node } = written.spanned()?;
    let hint = "write the maximum number of concurrent requests, or remove `admission`";
    let max_in_flight = value.max_in_flight.required(errors, node, "max_in_flight", hint)?;
    Some(ConcurrencyLimit {
        max_in_flight: max_in_flight.value.get(),
        max_queue: value.queue.or(ConcurrencyLimit::DEFAULT_MAX_QUEUE),
        queue_timeout: value.wait.duration().unwrap_or(ConcurrencyLimit::DEFAULT_QUEUE_TIMEOUT),
    })
}

/// `None` if the route captures nothing.
fn capture_policy(
    written: Field<raw::Content>,
    errors: &mut ErrorCollector,
) -> Option<CapturePolicy> {
    let Spanned { value, node } = written.spanned()?;
    let hint = "write `capture: true`, or remove `content`";
    let capture = value.capture.required(errors, node, "capture", hint);
    let redact = redactor(value.redact, errors);
    let max_bytes = value.max_bytes.or(ByteSize(CapturePolicy::MAX_BYTES)).0;
    capture?.value.then_some(CapturePolicy { max_bytes, redact: redact? })
}

fn redactor(written: Field<Vec<Field<String>>>, errors: &mut ErrorCollector) -> Option<Redactor> {
    let Some(Spanned { value, node }) = written.spanned() else {
        return Redactor::new(&[Redactor::USUAL.to_owned()]).ok();
    };
    let entries: Vec<Spanned<String>> = value.into_iter().filter_map(Field::spanned).collect();
    if entries.len() > MAX_REDACT_PATTERNS {
        let count = entries.len();
        errors
            .add(node, format!("there are {count} patterns; write at most {MAX_REDACT_PATTERNS}"));
    }
    let texts: Vec<String> = entries.iter().map(|entry| entry.value.clone()).collect();
    match Redactor::new(&texts) {
        Ok(redactor) => Some(redactor),
        Err((index, problem)) => {
            let node = entries.get(index).map_or(node, |entry| entry.node);
            errors.add(node, redact_error(&problem));
            None
        }
    }
}

fn redact_error(problem: &content::PatternError) -> String {
    let hint = match problem {
        content::PatternError::Unknown(name) => {
            let hint = suggestion(name, BUILT_IN_PATTERNS.iter().map(|(name, _)| *name));
            format!("{hint}, or write a regular expression between slashes")
        }
        content::PatternError::Pattern(_) => {
            "back-references, look-around and large expressions are not supported".to_owned()
        }
        content::PatternError::FitsNothing => {
            "write an expression that matches at least one character".to_owned()
        }
    };
    format!("{problem}; {hint}")
}

/// The facts of a route to `upstream` that sets nothing.
fn default_facts(upstream: &forward::Config, defaults: Defaults) -> RouteFacts {
    RouteFacts {
        name: upstream.name.clone(),
        vantage: defaults.vantage,
        server_address: Label::known(&upstream.host),
        server_port: upstream.port,
        provider: None,
        dialect: None,
        stripped: 0,
        base_path: Label::known(&upstream.base_path),
        stall_after: STALL_AFTER,
        hung_after: HUNG_AFTER,
    }
}

/// A route with the upstream's name, for all requests below `prefix`.
fn default_route(
    upstream: &forward::Config,
    prefix: Option<String>,
    provider: Option<Label>,
    defaults: Defaults,
) -> route::Config {
    let prefix = prefix.unwrap_or_default();
    let facts = default_facts(upstream, defaults);
    route::Config {
        facts: Arc::new(RouteFacts { provider, stripped: prefix.len(), ..facts }),
        host: None,
        strip: !prefix.is_empty(),
        prefix,
        upstream: upstream.name.clone(),
        trace: defaults.trace,
        admission: None,
    }
}

fn from_flags(args: &RunArgs, defaults: Defaults, errors: &mut ErrorCollector) -> Routing {
    let provider = args.provider.as_deref().map(|name| {
        if !is_name(name) {
            errors.add_outside_file(PROVIDER_FLAG, invalid_name(name));
        }
        Label::known(name)
    });
    let mut upstreams: Vec<forward::Config> = Vec::new();
    let mut routes = Vec::new();
    for flag in &args.upstream {
        let UpstreamTarget { prefix, url } = match flag.expose().parse::<UpstreamTarget>() {
            Ok(target) => target,
            Err(error) => {
                errors.add_outside_file(UPSTREAM_FLAG, error.to_string());
                continue;
            }
        };
        let name = prefix.as_deref().map_or(DEFAULT_NAME, |prefix| prefix.trim_start_matches('/'));
        if upstreams.iter().any(|other| other.name.as_str() == name) {
            let hint = "give each upstream its own prefix (only one may have none)";
            let message = format!("two upstreams for the route \"{name}\"; {hint}");
            errors.add_outside_file(UPSTREAM_FLAG, message);
        }
        let upstream = upstreams::with_defaults(name, url);
        routes.push(default_route(&upstream, prefix, provider.clone(), defaults));
        upstreams.push(upstream);
    }
    let scraped = upstreams.iter().filter(|_| args.engine_metrics == Some(true));
    Routing {
        scrapes: scraped.map(|upstream| default_scrape(upstream, None)).collect(),
        route_names: upstreams.iter().map(|upstream| upstream.name.to_string()).collect(),
        upstreams,
        warm: Vec::new(),
        routes,
        contents: content::CapturePolicies::default(),
    }
}
