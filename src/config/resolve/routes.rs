//! Resolves routes and upstreams, with concurrency limits and content capture.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;

use super::upstreams::{self, Upstreams};
use super::{check_length, check_name, invalid_name, is_name};
use crate::config::deserialize::{Field, Spanned};
use crate::config::errors::{ErrorCollector, NodeId, suggestion};
use crate::config::value::ByteSize;
use crate::config::{RunArgs, raw};
use crate::forward;
use crate::forward::{ConcurrencyLimit, RouteConfig, TraceHeaders};
use tokengauge_llm::content::{self, BUILT_IN_PATTERNS, CapturePolicy, Redactor};
use tokengauge_llm::dialect;
use tokengauge_telemetry::MAX_CONFIGURED;
use tokengauge_types::event::{LearnedProvider, ProxyPosition, RouteFacts};
use tokengauge_types::label::Label;
use tokengauge_types::url::{self, UpstreamTarget};

/// Name of an upstream and its route if they are defined by a flag without a path prefix.
const DEFAULT_NAME: &str = "default";

pub(super) const UPSTREAM_FLAG: &str = "--upstream";
const PROVIDER_FLAG: &str = "--provider";

/// Maximum number of redaction patterns. Each pattern scans all captured text.
const MAX_REDACT_PATTERNS: usize = 64;

/// Upstreams and the routes to them.
pub(super) struct Routing {
    pub(super) upstreams: Upstreams,
    pub(super) routes: Vec<RouteConfig>,
    /// Names of all routes, including invalid ones. A reference to an invalid route then causes no second error.
    pub(super) route_names: Vec<String>,
    pub(super) contents: content::CapturePolicies,
}

impl Routing {
    /// Returns the upstreams and metrics endpoints.
    pub(super) fn servers(&mut self) -> impl Iterator<Item = &mut forward::UpstreamConfig> {
        let scrapes = self.upstreams.scrapes.iter_mut().map(|scrape| &mut scrape.to);
        self.upstreams.all.iter_mut().chain(scrapes)
    }
}

/// Resolves routes and upstreams. If flags define upstreams, they replace those of the file. The file is checked
/// anyway. `root` is the top-level section of the file, or `None` without a file.
pub(super) fn resolve(
    file: &mut raw::File,
    root: Option<NodeId>,
    args: &RunArgs,
    errors: &mut ErrorCollector,
) -> Routing {
    if args.upstream.is_empty() {
        check_complete(file, root, errors);
        check_unused_flags(args, errors);
        return from_sections(file, errors);
    }
    from_sections(file, errors);
    apply_flags(file, args, errors);
    // Errors are ignored, because the flags have been checked. These upstreams are named after path prefixes, which
    // allow characters that other names must not have.
    from_sections(file, &mut ErrorCollector::default())
}

fn from_sections(file: &mut raw::File, errors: &mut ErrorCollector) -> Routing {
    let names: Vec<String> =
        file.upstreams.get().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let upstreams = upstreams::resolve(&mut file.upstreams, errors);
    let mut resolver = RouteResolver {
        upstreams: &upstreams.all,
        upstream_names: &names,
        position: *file.position.or_insert_default(),
        trace: *file.trace_context.or_insert_default(),
        errors,
        routes: Vec::new(),
        names: Vec::new(),
        contents: Vec::new(),
    };
    match (file.routes.as_ref(), names.as_slice()) {
        (Some(list), _) if list.value.is_empty() => {
            let message =
                "the list is empty; add a route, or remove this key if there is one upstream";
            resolver.errors.add(list.node, message);
        }
        (Some(list), _) => {
            let length = (list.value.len(), list.node);
            check_length(length, MAX_CONFIGURED, "routes", resolver.errors);
        }
        // A single upstream receives all requests.
        (None, [only]) => {
            let upstream = Field::from_value(only.clone());
            file.routes = [raw::Route { upstream, ..raw::Route::default() }].into_iter().collect();
        }
        (None, _) => resolver.names.clone_from(&names),
    }
    for written in file.routes.entries() {
        resolver.add(written);
    }
    let RouteResolver { routes, names: route_names, contents, .. } = resolver;
    let contents = contents.into_iter().collect();
    Routing { upstreams, routes, route_names, contents }
}

/// Replaces the upstreams and routes of the file with those that the flags define.
fn apply_flags(file: &mut raw::File, args: &RunArgs, errors: &mut ErrorCollector) {
    if let Some(name) = args.provider.as_deref().filter(|name| !is_name(name)) {
        errors.add_outside_file(PROVIDER_FLAG, invalid_name(name));
    }
    let mut upstreams = BTreeMap::new();
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
        let name = name.to_owned();
        routes.push(raw::Route {
            upstream: Field::from_value(name.clone()),
            strip_prefix: Field::from_value(prefix.is_some()),
            r#match: Field::from_value(raw::Match { host: Field::Absent, prefix: prefix.into() }),
            provider: args.provider.clone().into(),
            ..raw::Route::default()
        });
        let metrics = args.engine_metrics.filter(|scrape| *scrape);
        let upstream = raw::Upstream {
            url: Field::from_value(url),
            engine_metrics: metrics.map(|_| raw::EngineMetrics::default()).into(),
            ..raw::Upstream::default()
        };
        if upstreams.insert(name.clone(), Field::from_value(upstream)).is_some() {
            let hint = "give each upstream its own prefix (only one may have none)";
            let message = format!("two upstreams for the route \"{name}\"; {hint}");
            errors.add_outside_file(UPSTREAM_FLAG, message);
        }
    }
    file.upstreams = Field::from_value(upstreams);
    file.routes = routes.into_iter().collect();
}

/// Checks that the file defines an upstream, and routes if there are several upstreams. Not called if flags define
/// upstreams.
fn check_complete(file: &raw::File, root: Option<NodeId>, errors: &mut ErrorCollector) {
    let Some(root) = root else {
        let message = "no upstream is configured; name one, such as\n    \
                       tokengauge run --upstream https://api.openai.com";
        return errors.add_outside_file(UPSTREAM_FLAG, message);
    };
    match (&file.upstreams, &file.routes) {
        (Field::Absent, _) => {
            let hint = "add an upstream, such as `openai: {url: https://api.openai.com}`";
            errors.add_missing(root, "upstreams", hint);
        }
        (Field::Present(upstreams), Field::Absent) if upstreams.value.len() > 1 => {
            let first = upstreams.value.keys().next().map_or("", String::as_str);
            let hint = format!(
                "there are {} upstreams; add routes, such as `- {{match: {{prefix: /{first}}}, upstream: {first}, \
                 strip_prefix: true}}`",
                upstreams.value.len(),
            );
            errors.add_missing(root, "routes", &hint);
        }
        _ => {}
    }
}

/// Reports flags that have no effect, because `--upstream` is not set.
fn check_unused_flags(args: &RunArgs, errors: &mut ErrorCollector) {
    let mut add = |flag, key| {
        let message = format!("requires {UPSTREAM_FLAG}; for upstreams of the file, write {key}");
        errors.add_outside_file(flag, message);
    };
    if args.provider.is_some() {
        add(PROVIDER_FLAG, "`provider` in routes");
    }
    if args.engine_metrics == Some(true) {
        add("--engine-metrics", "`engine_metrics: {}` in upstreams");
    }
}

struct RouteResolver<'a> {
    upstreams: &'a [forward::UpstreamConfig],
    /// Names of all upstreams, including invalid ones.
    upstream_names: &'a [String],
    /// Default for routes that do not set this value.
    position: ProxyPosition,
    /// Default for routes that do not set this value.
    trace: TraceHeaders,
    errors: &'a mut ErrorCollector,
    routes: Vec<RouteConfig>,
    names: Vec<String>,
    contents: Vec<(Label, CapturePolicy)>,
}

impl<'a> RouteResolver<'a> {
    fn add(&mut self, written: &mut Spanned<raw::Route>) {
        let name = self.name(written);
        let (host, prefix) = self.conditions(&mut written.value.r#match);
        let is_same = |other: &&RouteConfig| (&other.host, &other.prefix) == (&host, &prefix);
        if let Some(other) = self.routes.iter().find(is_same) {
            let message = format!(
                "route \"{}\" matches the same requests, so this one is never used; remove it or change its match",
                other.facts.name
            );
            self.errors.add(written.node, message);
        }
        self.names.push(name.clone());
        let policy = capture_policy(&mut written.value.content, self.errors);
        self.contents.extend(policy.map(|policy| (Label::from_trusted(&name), policy)));
        let route = self.route(name, written, host, prefix);
        self.routes.extend(route);
    }

    /// Returns the configured name of the route. Without one, returns the name of the upstream.
    fn name(&mut self, written: &Spanned<raw::Route>) -> String {
        let (name, node) = match (written.value.name.as_ref(), written.value.upstream.get()) {
            (Some(Spanned { value, node }), _) => {
                check_name(value, *node, self.errors);
                (value, *node)
            }
            (None, Some(upstream)) => (upstream, written.node),
            (None, None) => return String::new(),
        };
        if self.names.contains(name) {
            let message = format!("duplicate route name \"{name}\"; set a different `name`");
            self.errors.add(node, message);
        }
        name.clone()
    }

    /// Returns the host and prefix to match.
    fn conditions(&mut self, written: &mut Field<raw::Match>) -> (Option<String>, String) {
        let raw::Match { host, prefix } = written.or_insert_default();
        if let Some(Spanned { value, node }) = host.spanned_mut() {
            let lower = value.to_ascii_lowercase();
            if !is_host(&lower) {
                let message = format!(
                    "\"{value}\" is not a host; write a name without scheme, port or path, such as llm.example.com or \
                     \"*.example.com\""
                );
                self.errors.add(*node, message);
            }
            *value = lower;
        }
        if let Some(Spanned { value, node }) = prefix.spanned_mut() {
            match url::prefix(value) {
                Ok(valid) => *value = valid,
                Err(error) => self.errors.add(*node, error.to_string()),
            }
        }
        let conditions = (host.get().cloned(), prefix.get().cloned().unwrap_or_default());
        if conditions.1.is_empty() {
            *prefix = Field::Absent;
        }
        if conditions == (None, String::new()) {
            *written = Field::Absent;
        }
        conditions
    }

    fn route(
        &mut self,
        name: String,
        written: &mut Spanned<raw::Route>,
        host: Option<String>,
        prefix: String,
    ) -> Option<RouteConfig> {
        let Spanned { value, node } = written;
        if let Some(Spanned { value: true, node }) = value.strip_prefix.as_ref()
            && prefix.is_empty()
        {
            let message = "no prefix to strip; add match.prefix, or remove this key";
            self.errors.add(*node, message);
        }
        let strip = *value.strip_prefix.or_insert_default();
        if let Some(provider) = value.provider.as_ref() {
            check_name(&provider.value, provider.node, self.errors);
        }
        if let Some(dialect) = value.api_format.as_ref() {
            check_dialect(&dialect.value, dialect.node, self.errors);
        }
        let admission = admission(&mut value.concurrency_limit, self.errors);
        let upstream = self.upstream(&value.upstream, *node)?;
        let stall = value.stall.or_insert_default();
        let label = |field: &Field<String>| field.get().map(|name| Label::from_trusted(name));
        let facts = RouteFacts {
            name: Label::from_trusted(&name),
            position: *value.position.or_insert(self.position),
            server_address: Label::from_trusted(&upstream.host),
            server_port: upstream.port,
            provider: label(&value.provider),
            learned_provider: LearnedProvider::default(),
            dialect: label(&value.api_format),
            stripped: if strip { prefix.len() } else { 0 },
            base_path: Label::from_trusted(&upstream.base_path),
            inter_token_after: stall.inter_token_after.or_time(RouteFacts::INTER_TOKEN_AFTER),
            first_token_after: stall.first_token_after.or_time(RouteFacts::FIRST_TOKEN_AFTER),
        };
        value.name = Field::from_value(name);
        Some(RouteConfig {
            facts: Arc::new(facts),
            host,
            prefix,
            strip,
            upstream: upstream.name.clone(),
            trace: *value.trace_context.or_insert(self.trace),
            admission,
        })
    }

    fn upstream(
        &mut self,
        written: &Field<String>,
        route: NodeId,
    ) -> Option<&'a forward::UpstreamConfig> {
        let hint = "write the name of an entry under `upstreams`";
        let Spanned { value, node } = written.required(self.errors, route, "upstream", hint)?;
        if !self.upstream_names.contains(value) {
            let hint = suggestion(value, self.upstream_names.iter().map(String::as_str));
            self.errors.add(*node, format!("no upstream named \"{value}\"; {hint}"));
        }
        self.upstreams.iter().find(|upstream| upstream.name.as_str() == value)
    }
}

fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    // The brackets are checked, because clients write IPv6 addresses in brackets in the `Host` header.
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
    errors.add(node, format!("unknown API format \"{dialect}\"; {hint}"));
}

/// Resolves the concurrency limit. Returns `None` if the route has no limit.
fn admission(
    written: &mut Field<raw::ConcurrencyLimit>,
    errors: &mut ErrorCollector,
) -> Option<ConcurrencyLimit> {
    let Spanned { value, node } = written.spanned_mut()?;
    let hint = "write the maximum number of concurrent requests, or remove `concurrency_limit`";
    let max_in_flight = value.max_in_flight.required(errors, *node, "max_in_flight", hint)?;
    Some(ConcurrencyLimit {
        max_in_flight: max_in_flight.value.get(),
        max_queue: value.max_queue.or(ConcurrencyLimit::DEFAULT_MAX_QUEUE),
        queue_timeout: value.queue_timeout.or_time(ConcurrencyLimit::DEFAULT_QUEUE_TIMEOUT),
    })
}

/// `None` if the route captures nothing.
fn capture_policy(
    written: &mut Field<raw::Content>,
    errors: &mut ErrorCollector,
) -> Option<CapturePolicy> {
    let Spanned { value, node } = written.spanned_mut()?;
    let hint = "write `capture: true`, or remove `content`";
    let capture = value.capture.required(errors, *node, "capture", hint).copied();
    let redact = redactor(&mut value.redact, errors);
    let max_bytes = value.max_bytes.or(ByteSize(CapturePolicy::MAX_BYTES)).0;
    if !capture?.value {
        *written = Field::Absent;
        return None;
    }
    Some(CapturePolicy { max_bytes, redact: redact? })
}

fn redactor(
    written: &mut Field<Vec<Field<String>>>,
    errors: &mut ErrorCollector,
) -> Option<Redactor> {
    written.or_insert(vec![Field::from_value(Redactor::DEFAULT_PATTERNS.to_owned())]);
    let list = written.as_ref().map(|list| list.node)?;
    let entries = written.entries().map(|entry| (entry.value.clone(), entry.node));
    let (texts, nodes): (Vec<String>, Vec<NodeId>) = entries.unzip();
    check_length((texts.len(), list), MAX_REDACT_PATTERNS, "patterns", errors);
    let redactor = Redactor::new(&texts).map_err(|(index, problem)| {
        errors.add(nodes.get(index).copied().unwrap_or(list), redact_error(&problem));
    });
    redactor.ok()
}

fn redact_error(problem: &content::PatternError) -> String {
    let hint = match problem {
        content::PatternError::Unknown(name) => {
            let hint = suggestion(name, BUILT_IN_PATTERNS.iter().map(|(name, _)| *name));
            format!("write a regular expression between slashes, or a built-in name; {hint}")
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
