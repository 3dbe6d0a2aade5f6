//! Routes, with concurrency limits and content capture, and the flags that define upstreams.

use std::net::Ipv6Addr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::content::{Content, capture_policy};
use super::listeners::Protocol;
use super::upstreams::{EngineMetrics, Upstream, Upstreams};
use super::{File, check_length, check_name, invalid_name, is_name};
use crate::config::RunArgs;
use crate::config::errors::{ErrorCollector, NodeId, suggestion};
use crate::config::spanned::{Map, Spanned};
use crate::forward::{self, RouteConfig, TraceHeaders, UpstreamConfig};
use tokengauge_llm::content::{CapturePolicies, CapturePolicy};
use tokengauge_llm::dialect;
use tokengauge_telemetry::MAX_CONFIGURED;
use tokengauge_types::bounded::{HOUR, Int, MINUTE, Time, millis};
use tokengauge_types::event::{ProxyPosition, RouteFacts};
use tokengauge_types::label::Label;
use tokengauge_types::url::{self, UpstreamTarget};

/// Name of an upstream and its route if they are defined by a flag without a path prefix.
const DEFAULT_NAME: &str = "default";

pub const UPSTREAM_FLAG: &str = "--upstream";
const PROVIDER_FLAG: &str = "--provider";

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["upstream"]))]
pub struct Route {
    /// Name in metrics and SLOs; must be unique. Default: the name of the upstream. At most 512 routes.
    pub name: Option<String>,
    /// Which requests take this route. Without this key, all requests match.
    pub r#match: Match,
    /// Name of an entry of `upstreams`. Required, except for [routes of Envoy](../how-to/envoy.md#settings-of-a-route).
    pub upstream: Option<String>,
    /// Whether to remove the prefix before the path is forwarded.
    pub strip_prefix: bool,
    /// API format, such as `openai`. Default: detected by path and content.
    pub api_format: Option<String>,
    /// `gen_ai.provider.name` in telemetry, such as `openai`, `azure.ai.openai`, `anthropic` or `vllm`. Default:
    /// inferred from the host. Flag `--provider`, for the route to each `--upstream`.
    pub provider: Option<String>,
    /// Overrides `position` for this route.
    pub position: Option<ProxyPosition>,
    /// Overrides `trace_context` for this route.
    pub trace_context: Option<TraceHeaders>,
    /// Whether requests of this route are observed. With `false`, they are forwarded but appear in no metric except
    /// `tokengauge.self.requests.not_observed`, and in no span, log line or SLO. For [health
    /// checks](../FAQ.md#how-do-i-leave-out-health-checks).
    pub observe: Observe,
    /// When a stream counts as stalled. The proxy does not abort stalled streams.
    pub stall: Stall,
    /// Concurrency limit of this route. Unlimited by default.
    pub concurrency_limit: Option<ConcurrencyLimit>,
    /// Capture of prompts and answers on spans. Off by default.
    pub content: Option<Content>,
}

/// Whether requests are observed. True by default.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Observe(bool);

impl Default for Observe {
    fn default() -> Self {
        Self(true)
    }
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Match {
    /// `Host` of the request without port; `"*.example.com"` (quoted) matches any subdomain.
    pub host: Option<String>,
    /// Path prefix in whole segments: `/v1` matches `/v1` and `/v1/chat`, not `/v10`.
    pub prefix: Option<String>,
}

// At least 250 ms, the interval of the search for stalled streams. A threshold above 1 hour has no use.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stall {
    /// A stream without a token for this long after the first token is [stalled](../explanation/definitions.md#stalls).
    /// The stream is not aborted.
    pub inter_token_after: Time<250, HOUR, { millis(RouteFacts::INTER_TOKEN_AFTER) }>,
    /// The same before the first token, measured from the last byte of the request. Ten times as long if the request
    /// asks for reasoning.
    pub first_token_after: Time<250, HOUR, { millis(RouteFacts::FIRST_TOKEN_AFTER) }>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["max_in_flight"]))]
pub struct ConcurrencyLimit {
    /// Maximum concurrent requests of this route in this process; see [queues](../explanation/queues.md). Required with
    /// `concurrency_limit`.
    // A process has at most 65,536 ports towards one upstream.
    pub max_in_flight: Option<Int<1, 65_536>>,
    /// Maximum queued requests. Further ones get 429 at once.
    // Each queued request holds a connection and up to 64 KiB of its body.
    pub max_queue: Int<0, 65_536, { forward::ConcurrencyLimit::DEFAULT_MAX_QUEUE as u64 }>,
    /// Maximum time in the queue; then the response is 429.
    // Below 10 ms use `max_queue: 0`. After 10 min every client has disconnected.
    pub queue_timeout:
        Time<10, { 10 * MINUTE }, { millis(forward::ConcurrencyLimit::DEFAULT_QUEUE_TIMEOUT) }>,
}

/// Upstreams and the routes to them.
pub struct Routing {
    pub upstreams: Upstreams,
    pub routes: Vec<RouteConfig>,
    /// Names of all routes, including invalid ones. A reference to an invalid route then causes no second error.
    pub route_names: Vec<String>,
    pub contents: CapturePolicies,
    /// Routes without an upstream: settings for routes of Envoy.
    pub envoy_routes: Vec<Arc<RouteFacts>>,
}

/// What the listeners serve.
#[derive(Clone, Copy, Debug)]
pub struct Serves {
    /// Whether a listener forwards requests.
    http: bool,
    /// Whether a listener receives copies from Envoy.
    ext_proc: bool,
}

impl Serves {
    /// Reads the resolved listeners of `file`.
    pub fn of(file: &File) -> Self {
        let has = |protocol| {
            let listeners = file.listeners.iter().flat_map(|list| list.iter());
            listeners.into_iter().any(|listener| listener.value.protocol == Some(protocol))
        };
        // Without a valid listener, the routes are checked like those of a proxy.
        let ext_proc = has(Protocol::ExtProc);
        Self { http: has(Protocol::Http) || !ext_proc, ext_proc }
    }
}

impl Routing {
    /// Returns the upstreams and metrics endpoints.
    pub fn servers(&mut self) -> impl Iterator<Item = &mut UpstreamConfig> {
        let scrapes = self.upstreams.scrapes.iter_mut().map(|scrape| &mut scrape.to);
        self.upstreams.all.iter_mut().chain(scrapes)
    }
}

/// Resolves routes and upstreams. If flags define upstreams, they replace those of the file. The file is checked
/// anyway.
pub fn resolve(
    file: &mut File,
    has_file: bool,
    args: &RunArgs,
    serves: Serves,
    errors: &mut ErrorCollector,
) -> Routing {
    if args.upstream.is_empty() {
        if serves.http {
            check_complete(file, has_file, errors);
        }
        check_unused_flags(args, errors);
        return from_sections(file, serves, errors);
    }
    if !serves.http {
        let message = "no listener forwards requests; remove the flag, or add a listener with `protocol: http`";
        errors.add_outside_file(UPSTREAM_FLAG, message);
    }
    from_sections(file, serves, errors);
    apply_flags(file, args, errors);
    // Errors are ignored, because the flags have been checked. These upstreams are named after path prefixes, which
    // allow characters that other names must not have.
    from_sections(file, serves, &mut ErrorCollector::default())
}

fn from_sections(file: &mut File, serves: Serves, errors: &mut ErrorCollector) -> Routing {
    let upstreams = super::upstreams::resolve(&mut file.upstreams, errors);
    let names: Vec<String> = file.upstreams.iter().flat_map(|map| map.names()).cloned().collect();
    let mut resolver = RouteResolver {
        upstreams: &upstreams.all,
        upstream_names: &names,
        position: file.position,
        trace_context: file.trace_context,
        serves,
        errors,
        routes: Vec::new(),
        envoy_routes: Vec::new(),
        names: Vec::new(),
        contents: Vec::new(),
    };
    match (file.routes.as_ref(), names.as_slice()) {
        (Some(list), _) => {
            let at = (NodeId::ROOT, "routes");
            if list.written_len() == 0 {
                let message =
                    "the list is empty; add a route, or remove this key if there is one upstream";
                resolver.errors.add_key(at.0, at.1, message);
            }
            check_length(list.written_len(), MAX_CONFIGURED, "routes", at, resolver.errors);
        }
        // A single upstream receives all requests.
        (None, [only]) => {
            let route = Route { upstream: Some(only.clone()), ..Route::default() };
            file.routes = Some([route].into_iter().collect());
        }
        (None, _) => resolver.names.clone_from(&names),
    }
    for route in file.routes.iter_mut().flat_map(|list| list.iter_mut()) {
        resolver.add(route);
    }
    let RouteResolver { routes, envoy_routes, names: route_names, contents, .. } = resolver;
    let contents = contents.into_iter().collect();
    Routing { upstreams, routes, route_names, contents, envoy_routes }
}

/// Replaces the upstreams and routes of the file with those that the flags define.
fn apply_flags(file: &mut File, args: &RunArgs, errors: &mut ErrorCollector) {
    if let Some(name) = args.provider.as_deref().filter(|name| !is_name(name)) {
        errors.add_outside_file(PROVIDER_FLAG, invalid_name(name));
    }
    let mut upstreams = Map::default();
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
        routes.push(Route {
            upstream: Some(name.clone()),
            strip_prefix: prefix.is_some(),
            r#match: Match { host: None, prefix },
            provider: args.provider.clone(),
            ..Route::default()
        });
        let engine_metrics = (args.engine_metrics == Some(true)).then(EngineMetrics::default);
        let upstream = Upstream { url: Some(url), engine_metrics, ..Upstream::default() };
        if upstreams.insert(name.clone(), upstream.into()).is_some() {
            let hint = "give each upstream its own prefix (only one may have none)";
            let message = format!("two upstreams for the route \"{name}\"; {hint}");
            errors.add_outside_file(UPSTREAM_FLAG, message);
        }
    }
    file.upstreams = Some(upstreams);
    file.routes = Some(routes.into_iter().collect());
}

/// Checks that the file defines an upstream, and routes if there are several upstreams. Not called if flags define
/// upstreams.
fn check_complete(file: &File, has_file: bool, errors: &mut ErrorCollector) {
    if !has_file {
        let message = "no upstream is configured; name one, such as\n    \
                       tokengauge run --upstream https://api.openai.com";
        return errors.add_outside_file(UPSTREAM_FLAG, message);
    }
    let hint = "add an upstream, such as `openai: {url: https://api.openai.com}`";
    let Some(upstreams) = errors.required(&file.upstreams, (NodeId::ROOT, "upstreams"), hint)
    else {
        return;
    };
    let names: Vec<&String> = upstreams.names().collect();
    if let [first, _, ..] = names.as_slice() {
        let hint = format!(
            "there are {} upstreams; add routes, such as `- {{match: {{prefix: /{first}}}, upstream: {first}, \
             strip_prefix: true}}`",
            names.len(),
        );
        errors.required(&file.routes, (NodeId::ROOT, "routes"), &hint);
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
    upstreams: &'a [UpstreamConfig],
    /// Names of all upstreams, including invalid ones.
    upstream_names: &'a [String],
    position: ProxyPosition,
    trace_context: TraceHeaders,
    serves: Serves,
    errors: &'a mut ErrorCollector,
    routes: Vec<RouteConfig>,
    envoy_routes: Vec<Arc<RouteFacts>>,
    names: Vec<String>,
    contents: Vec<(Label, CapturePolicy)>,
}

impl<'a> RouteResolver<'a> {
    fn add(&mut self, Spanned { value, node }: &mut Spanned<Route>) {
        let name = self.name(value, *node);
        if value.upstream.is_none() && value.name.is_some() && self.serves.ext_proc {
            return self.add_of_envoy(name, value, *node);
        }
        self.check_match(&mut value.r#match, *node);
        let Match { host, prefix } = value.r#match.clone();
        let prefix = prefix.unwrap_or_default();
        let is_same = |other: &&RouteConfig| (&other.host, &other.prefix) == (&host, &prefix);
        if let Some(other) = self.routes.iter().find(is_same) {
            let message = format!(
                "route \"{}\" matches the same requests, so this one is never used; remove it or change its match",
                other.facts.name
            );
            self.errors.add(*node, message);
        }
        self.names.push(name.clone());
        let policy = capture_policy(&mut value.content, *node, self.errors);
        self.contents.extend(policy.map(|policy| (Label::from_trusted(&name), policy)));
        let route = self.route(name, value, *node);
        self.routes.extend(route);
    }

    /// Adds the settings of a route of Envoy. It has no upstream and no match, because Envoy chooses the route.
    fn add_of_envoy(&mut self, name: String, value: &mut Route, node: NodeId) {
        let ignored = [
            (value.r#match.host.is_some() || value.r#match.prefix.is_some(), "match"),
            (value.strip_prefix, "strip_prefix"),
            (value.concurrency_limit.is_some(), "concurrency_limit"),
            (value.trace_context.is_some(), "trace_context"),
            (value.position.is_some(), "position"),
            (!value.observe.0, "observe"),
        ];
        for (_, key) in ignored.iter().filter(|(is_set, _)| *is_set) {
            let message = "Envoy chooses and forwards the requests of a route without `upstream`; remove this key";
            self.errors.add_key(node, key, message);
        }
        self.names.push(name.clone());
        let policy = capture_policy(&mut value.content, node, self.errors);
        self.contents.extend(policy.map(|policy| (Label::from_trusted(&name), policy)));
        self.check_labels(value, node);
        let mut facts = facts(&name, value);
        facts.position = ProxyPosition::Envoy;
        self.envoy_routes.push(Arc::new(facts));
        value.name = Some(name);
    }

    /// Returns the configured name of the route. Without one, returns the name of the upstream.
    fn name(&mut self, route: &Route, node: NodeId) -> String {
        let (name, key) = match (&route.name, &route.upstream) {
            (Some(name), _) => (name, "name"),
            (None, Some(upstream)) => (upstream, ""),
            (None, None) => return String::new(),
        };
        if route.name.is_some() {
            check_name(name, (node, key), self.errors);
        }
        if self.names.contains(name) {
            let message = format!("duplicate route name \"{name}\"; set a different `name`");
            self.errors.add_key(node, key, message);
        }
        name.clone()
    }

    /// Checks the host and the prefix, and writes them in the form in which they are compared.
    fn check_match(&mut self, Match { host, prefix }: &mut Match, node: NodeId) {
        if let Some(host) = host {
            let lower = host.to_ascii_lowercase();
            if !is_host(&lower) {
                let message = format!(
                    "\"{host}\" is not a host; write a name without scheme, port or path, such as llm.example.com or \
                     \"*.example.com\""
                );
                self.errors.add_key(node, "match.host", message);
            }
            *host = lower;
        }
        if let Some(text) = prefix {
            match url::prefix(text) {
                Ok(valid) => *prefix = Some(valid).filter(|valid| !valid.is_empty()),
                Err(error) => self.errors.add_key(node, "match.prefix", error.to_string()),
            }
        }
    }

    fn route(&mut self, name: String, value: &mut Route, node: NodeId) -> Option<RouteConfig> {
        let prefix = value.r#match.prefix.clone().unwrap_or_default();
        if value.strip_prefix && prefix.is_empty() {
            let message = "no prefix to strip; add match.prefix, or remove this key";
            self.errors.add_key(node, "strip_prefix", message);
        }
        self.check_labels(value, node);
        let admission = admission(value.concurrency_limit.as_ref(), node, self.errors);
        let upstream = self.upstream(&value.upstream, node)?;
        let facts = RouteFacts {
            position: *value.position.get_or_insert(self.position),
            server_address: Label::from_trusted(&upstream.host),
            server_port: upstream.port,
            stripped: if value.strip_prefix { prefix.len() } else { 0 },
            base_path: Label::from_trusted(&upstream.base_path),
            ..facts(&name, value)
        };
        value.name = Some(name);
        Some(RouteConfig {
            facts: Arc::new(facts),
            host: value.r#match.host.clone(),
            prefix,
            strip: value.strip_prefix,
            upstream: upstream.name.clone(),
            trace: *value.trace_context.get_or_insert(self.trace_context),
            observed: value.observe.0,
            admission,
        })
    }

    fn check_labels(&mut self, value: &Route, node: NodeId) {
        if let Some(provider) = &value.provider {
            check_name(provider, (node, "provider"), self.errors);
        }
        if let Some(dialect) = value.api_format.as_ref().filter(|name| !dialect::is_hint(name)) {
            self.errors.add_key(node, "api_format", unknown_dialect(dialect));
        }
    }

    fn upstream(&mut self, name: &Option<String>, route: NodeId) -> Option<&'a UpstreamConfig> {
        let hint = "write the name of an entry under `upstreams`";
        let name = self.errors.required(name, (route, "upstream"), hint)?;
        if !self.upstream_names.contains(name) {
            let hint = suggestion(name, self.upstream_names.iter().map(String::as_str));
            let message = format!("no upstream named \"{name}\"; {hint}");
            self.errors.add_key(route, "upstream", message);
        }
        self.upstreams.iter().find(|upstream| upstream.name.as_str() == name)
    }
}

/// Returns the settings of a route that do not depend on its upstream.
fn facts(name: &str, value: &Route) -> RouteFacts {
    let label = |name: &Option<String>| name.as_deref().map(Label::from_trusted);
    RouteFacts {
        provider: label(&value.provider),
        dialect: label(&value.api_format),
        inter_token_after: value.stall.inter_token_after.get(),
        first_token_after: value.stall.first_token_after.get(),
        ..RouteFacts::for_upstream(name, name, 0)
    }
}

fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    // The brackets are checked, because clients write IPv6 addresses in brackets in the `Host` header.
    let is_ipv6 = url::bare(host) != host && url::bare(host).parse::<Ipv6Addr>().is_ok();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    is_ipv6 || name.split('.').all(|label| !label.is_empty() && label.chars().all(is_allowed))
}

fn unknown_dialect(dialect: &str) -> String {
    let families = dialect::Family::ALL.iter().map(|family| family.as_str());
    let apis = dialect::Api::ALL.iter().map(|api| api.as_str());
    let hint = suggestion(dialect, families.chain(apis));
    format!("unknown API format \"{dialect}\"; {hint}")
}

/// Resolves the concurrency limit. Returns `None` if the route has no limit.
fn admission(
    written: Option<&ConcurrencyLimit>,
    route: NodeId,
    errors: &mut ErrorCollector,
) -> Option<forward::ConcurrencyLimit> {
    let limit = written?;
    let hint = "write the maximum number of concurrent requests, or remove `concurrency_limit`";
    let key = (route, "concurrency_limit.max_in_flight");
    Some(forward::ConcurrencyLimit {
        max_in_flight: errors.required(&limit.max_in_flight, key, hint)?.get(),
        max_queue: limit.max_queue.get(),
        queue_timeout: limit.queue_timeout.get(),
    })
}
