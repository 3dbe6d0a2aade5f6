//! The routes and upstreams of the proxy, and the search for the route of a request.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use clap::ValueEnum;
use http::{Request, Version, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::identity::Identity;
use super::limiter::{ConcurrencyLimit, ConcurrencyLimiter, Permit};
use super::upstream::Upstream;
use super::{SetupError, UpstreamConfig};
use tokengauge_telemetry::UpstreamCounts;
use tokengauge_types::event::{RejectReason, RouteFacts};
use tokengauge_types::label::Label;

/// Configuration of one route. An exact host precedes a pattern such as `*.example.com`, and a pattern precedes no
/// host. Among equals, the longest prefix applies.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    pub facts: Arc<RouteFacts>,
    /// Host name to match, in lower case and without a port. `*.example.com` matches any subdomain; `None` matches any
    /// host.
    pub host: Option<String>,
    /// Path prefix to match. `/v1` matches `/v1` and `/v1/chat`, but not `/v1beta`. An empty prefix matches any path.
    pub prefix: String,
    /// Whether `prefix` is removed before the path is forwarded.
    pub strip: bool,
    /// The name of the upstream.
    pub upstream: Label,
    pub trace: TraceHeaders,
    /// Whether requests are observed. If false, they are forwarded and only counted as not observed.
    pub observed: bool,
    /// Unlimited if `None`.
    pub admission: Option<ConcurrencyLimit>,
}

/// What happens to the trace headers of a request.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum TraceHeaders {
    /// Trace headers are forwarded unchanged.
    #[default]
    Passthrough,
    /// The proxy's span becomes the parent in the trace headers.
    Continue,
}

/// All routes, the most specific first.
#[derive(Debug)]
pub struct RouteMatcher(Vec<(Host, RouteConfig)>);

#[derive(Debug, thiserror::Error, Eq, PartialEq)]
pub enum RouteError {
    #[error("route {0}: the prefix must be empty or start with '/'")]
    Prefix(Label),
    #[error("route {0}: the host must be a name without port and path, or '*.' and a name")]
    Host(Label),
    #[error("route {0} never matches: route {1} has the same host and prefix")]
    Duplicate(Label, Label),
}

impl RouteMatcher {
    pub fn new(routes: Vec<RouteConfig>) -> Result<Self, RouteError> {
        let mut compiled: Vec<(Host, RouteConfig)> = Vec::with_capacity(routes.len());
        for mut route in routes {
            let name = route.facts.name.clone();
            if !route.prefix.is_empty() && !route.prefix.starts_with('/') {
                return Err(RouteError::Prefix(name));
            }
            route.prefix.truncate(route.prefix.trim_end_matches('/').len());
            let Some(host) = Host::new(route.host.as_deref()) else {
                return Err(RouteError::Host(name));
            };
            let is_twin = |(known, other): &&(Host, RouteConfig)| {
                *known == host && other.prefix == route.prefix
            };
            if let Some((_, twin)) = compiled.iter().find(is_twin) {
                return Err(RouteError::Duplicate(name, twin.facts.name.clone()));
            }
            compiled.push((host, route));
        }
        compiled.sort_by_key(|(host, route)| Reverse((host.rank(), route.prefix.len())));
        Ok(Self(compiled))
    }

    /// Returns the route of a request. `host` may contain a port. `path` must not contain a query.
    pub fn find(&self, host: Option<&str>, path: &str) -> Option<&RouteConfig> {
        let host = host.map(without_port);
        let mut routes = self.0.iter();
        let found = routes.find(|(known, route)| known.matches(host) && route.matches_path(path));
        found.map(|(_, route)| route)
    }

    pub fn routes(&self) -> impl Iterator<Item = &RouteConfig> {
        self.0.iter().map(|(_, route)| route)
    }
}

impl RouteConfig {
    /// Returns the length of the path prefix to strip, in bytes.
    pub const fn stripped(&self) -> usize {
        if self.strip { self.prefix.len() } else { 0 }
    }

    fn matches_path(&self, path: &str) -> bool {
        self.prefix.is_empty()
            || path
                .strip_prefix(self.prefix.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

#[derive(Debug, Eq, PartialEq)]
enum Host {
    Any,
    /// Matches any subdomain. The text is the suffix, such as `.example.com`.
    Below(String),
    Exactly(String),
}

impl Host {
    fn new(host: Option<&str>) -> Option<Self> {
        let Some(host) = host else {
            return Some(Self::Any);
        };
        let below = host.strip_prefix('*');
        let name = below.map_or(host, |rest| rest.strip_prefix('.').unwrap_or_default());
        if name.is_empty() || name.contains(['/', '*']) || without_port(name) != name {
            return None;
        }
        Some(match below {
            Some(suffix) => Self::Below(suffix.to_ascii_lowercase()),
            None => Self::Exactly(host.to_ascii_lowercase()),
        })
    }

    /// Rank of the host pattern. Routes with a higher rank are tried first.
    fn rank(&self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Below(_) => 1,
            Self::Exactly(_) => 2,
        }
    }

    fn matches(&self, host: Option<&str>) -> bool {
        match (self, host) {
            (Self::Any, _) => true,
            (Self::Exactly(name), Some(host)) => name.eq_ignore_ascii_case(host),
            (Self::Below(suffix), Some(host)) => host
                .len()
                .checked_sub(suffix.len())
                .filter(|at| *at > 0)
                .and_then(|at| host.get(at..))
                .is_some_and(|end| end.eq_ignore_ascii_case(suffix)),
            (Self::Below(_) | Self::Exactly(_), None) => false,
        }
    }
}

/// Removes the port from a host such as `[::1]:80` or `example.com:80`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => {
            if name.contains(':') && !name.ends_with(']') {
                host
            } else {
                name
            }
        }
        _ => host,
    }
}

/// All routes with their upstreams and limiters. A reload replaces the whole table at once, so that no route is without
/// its upstream.
#[derive(Debug)]
pub struct RouteTable {
    routes: RouteMatcher,
    upstreams: HashMap<Label, Arc<Upstream>>,
    /// Concurrency limiters by route name. Routes without a limit have no entry.
    limiters: HashMap<Label, Arc<ConcurrencyLimiter>>,
    identity: Identity,
}

/// Where a request is sent, and under which limits.
#[derive(Debug)]
pub struct Destination {
    pub(super) upstream: Arc<Upstream>,
    /// Length in bytes of the path prefix to strip.
    pub(super) stripped: usize,
    /// The concurrency limiter. `None` if the route has no limit.
    pub(super) limiter: Option<Arc<ConcurrencyLimiter>>,
    /// The permit of the limiter. `None` until the limiter admits the request.
    pub(super) permit: Option<Permit>,
    /// End of the total timeout of the request.
    pub(super) deadline: Option<Instant>,
}

impl RouteTable {
    /// Creates a table that takes over the limiters of `previous`, with their running and queued requests. The new
    /// limits take effect only with [`apply_limits`](Self::apply_limits).
    pub fn new(
        routes: RouteMatcher,
        upstreams: Vec<Arc<Upstream>>,
        identity: Identity,
        previous: Option<&Self>,
    ) -> Self {
        let by_name = |upstream: Arc<Upstream>| (upstream.config().name.clone(), upstream);
        let limiter = |route: &RouteConfig| {
            let (name, limit) = (&route.facts.name, route.admission?);
            let known = previous.and_then(|table| table.limiters.get(name).cloned());
            Some((name.clone(), known.unwrap_or_else(|| ConcurrencyLimiter::new(limit))))
        };
        let limiters = routes.routes().filter_map(limiter).collect();
        for route in routes.routes() {
            let mut known = previous.into_iter().flat_map(|table| table.routes.routes());
            if let Some(same) = known.find(|known| known.facts.name == route.facts.name) {
                route.facts.keep_learned_provider(&same.facts);
            }
        }
        Self { routes, upstreams: upstreams.into_iter().map(by_name).collect(), limiters, identity }
    }

    /// Applies the limits of this table, and removes the limits of routes that only `previous` has. Separate from
    /// [`new`](Self::new), because a reload can still fail between the two calls.
    pub fn apply_limits(&self, previous: &Self) {
        for route in self.routes.routes() {
            if let Some(limiter) = self.limiters.get(&route.facts.name) {
                limiter.set_limit(route.admission);
            }
        }
        for (name, limiter) in &previous.limiters {
            if !self.limiters.contains_key(name) {
                limiter.set_limit(None);
            }
        }
    }

    /// Returns the upstream for `config` after a reload. With an unchanged configuration, the upstream keeps its idle
    /// connections. With the same name, it keeps its counters.
    ///
    /// # Errors
    /// Returns an error if the configuration cannot be used.
    pub fn upstream(&self, config: UpstreamConfig) -> Result<Arc<Upstream>, SetupError> {
        match self.upstreams.get(&config.name) {
            Some(known) if *known.config() == config => Ok(Arc::clone(known)),
            Some(known) => Upstream::with_health(config, Arc::clone(&known.health)),
            None => Upstream::new(config),
        }
    }

    /// Returns the counters of each upstream.
    pub fn upstream_counts(&self) -> Vec<UpstreamCounts> {
        self.upstreams.values().map(|upstream| upstream.health.counts()).collect()
    }

    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the route of a request, and its destination or the reason for a rejection. `None` if no route matches.
    pub(super) fn find(
        &self,
        host: Option<&str>,
        path: &str,
    ) -> Option<(&RouteConfig, Result<Destination, RejectReason>)> {
        let route = self.routes.find(host, path)?;
        Some((route, self.destination(route, path)))
    }

    fn destination(&self, route: &RouteConfig, path: &str) -> Result<Destination, RejectReason> {
        let upstream = self.upstreams.get(&route.upstream).ok_or(RejectReason::NoRoute)?;
        // Rejects a path that could leave the prefix of the route or the base path of the upstream.
        let is_limited = !route.prefix.is_empty() || !upstream.config().base_path.is_empty();
        if is_limited && has_parent_segment(path) {
            return Err(RejectReason::BadRequest);
        }
        let total = upstream.config().timeouts.total;
        Ok(Destination {
            upstream: Arc::clone(upstream),
            stripped: route.stripped(),
            limiter: route.admission.and_then(|_| self.limiters.get(&route.facts.name).cloned()),
            permit: None,
            deadline: total.map(|total| Instant::now() + total),
        })
    }
}

/// Returns whether the request names exactly one host (RFC 9112 §3.2). HTTP/1.0 needs no `Host`, and HTTP/2 has
/// `:authority` instead.
pub(super) fn has_one_host<B>(request: &Request<B>) -> bool {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    hosts == 1 || hosts == 0 && request.version() != Version::HTTP_11
}

/// Returns whether the path has a segment `..`, plain or percent-encoded. Many servers resolve such segments. The
/// request could then leave the prefix of its route or the base path of its upstream.
fn has_parent_segment(path: &str) -> bool {
    if !path.contains("..") && !path.contains('%') {
        return false;
    }
    let plain = path.to_ascii_lowercase().replace("%2e", ".");
    let plain = plain.replace("%2f", "/").replace("%5c", "\\").replace("%3b", ";");
    plain
        .split(['/', '\\'])
        // Some servers ignore what follows a semicolon.
        .any(|segment| segment.split(';').next() == Some(".."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::identity;

    fn route(name: &str, host: Option<&str>, prefix: &str) -> RouteConfig {
        let facts = RouteFacts::for_upstream(name, "localhost", 80);
        RouteConfig {
            facts: Arc::new(facts),
            host: host.map(str::to_owned),
            prefix: prefix.to_owned(),
            strip: true,
            upstream: Label::from_trusted(name),
            trace: TraceHeaders::default(),
            observed: true,
            admission: None,
        }
    }

    fn found<'a>(table: &'a RouteMatcher, host: &str, path: &str) -> Option<&'a str> {
        let host = (!host.is_empty()).then_some(host);
        table.find(host, path).map(|route| route.facts.name.as_str())
    }

    #[test]
    fn longest_prefix_wins_and_ends_at_a_slash() {
        let routes =
            vec![route("root", None, "/"), route("a", None, "/a"), route("ab", None, "/a/b/")];
        let table = RouteMatcher::new(routes).unwrap();
        assert_eq!(found(&table, "", "/a/b/c"), Some("ab"));
        assert_eq!(found(&table, "", "/a/b"), Some("ab"));
        assert_eq!(found(&table, "", "/a/bc"), Some("a"));
        assert_eq!(found(&table, "", "/ab"), Some("root"));
        assert_eq!(found(&table, "", "*"), Some("root"));
        let stripped = table.find(None, "/a/b/c").map(RouteConfig::stripped);
        assert_eq!(stripped, Some(4), "a trailing slash is kept");
    }

    #[test]
    fn name_precedes_wildcard_and_any_host() {
        let routes = vec![
            route("any", None, "/v1/chat"),
            route("wild", Some("*.example.com"), "/v1"),
            route("name", Some("API.example.com"), ""),
        ];
        let table = RouteMatcher::new(routes).unwrap();
        assert_eq!(found(&table, "api.EXAMPLE.com:8080", "/v1/chat"), Some("name"));
        assert_eq!(found(&table, "eu.example.com", "/v1/chat"), Some("wild"));
        assert_eq!(found(&table, "eu.example.com", "/v2"), None);
        assert_eq!(found(&table, ".example.com", "/v1"), None, "a wildcard requires a subdomain");
        assert_eq!(found(&table, "badexample.com", "/v1/chat"), Some("any"));
        assert_eq!(found(&table, "", "/v1/chat"), Some("any"));
    }

    #[test]
    fn ignores_port() {
        let table = RouteMatcher::new(vec![route("six", Some("[::1]"), "")]).unwrap();
        assert_eq!(found(&table, "[::1]:4000", "/"), Some("six"));
        assert_eq!(found(&table, "[::1]", "/"), Some("six"));
        assert_eq!(without_port("::1"), "::1");
    }

    #[test]
    fn rejects_routes_that_never_match() {
        let refused = |routes| RouteMatcher::new(routes).unwrap_err();
        let name = Label::from_trusted;
        assert_eq!(refused(vec![route("a", None, "v1")]), RouteError::Prefix(name("a")));
        for host in ["", "*.", "*", "example.com:80", "a/b", "*a.com"] {
            assert_eq!(
                refused(vec![route("a", Some(host), "")]),
                RouteError::Host(name("a")),
                "{host}"
            );
        }
        assert_eq!(
            refused(vec![route("a", None, "/v1"), route("b", None, "/v1/")]),
            RouteError::Duplicate(name("b"), name("a"))
        );
    }

    #[test]
    fn keeps_only_upstreams_with_the_same_configuration() {
        let config = |port| UpstreamConfig::new(Label::from_trusted("a"), false, "localhost", port);
        let upstream = Upstream::new(config(1)).unwrap();
        let routes = RouteMatcher::new(Vec::new()).unwrap();
        let identity = Identity::new(identity::IdentityConfig::default(), b"");
        let table = RouteTable::new(routes, vec![Arc::clone(&upstream)], identity, None);
        let same = table.upstream(config(1)).unwrap();
        assert!(Arc::ptr_eq(&same, &upstream), "the upstream keeps its pool");
        let changed = table.upstream(config(2)).unwrap();
        assert!(!Arc::ptr_eq(&changed, &upstream));
        assert!(Arc::ptr_eq(&changed.health, &upstream.health), "the counters continue");
        let other = UpstreamConfig::new(Label::from_trusted("b"), false, "localhost", 1);
        assert!(!Arc::ptr_eq(&table.upstream(other).unwrap().health, &upstream.health));
    }

    #[test]
    fn finds_parent_segments_in_any_encoding() {
        for path in [
            "/a/../b",
            "/..",
            "/a/%2e%2E/b",
            "/a/.%2e/b",
            "/a/..%2Fb",
            "/a%2f..%2fb",
            "/a/..\\b",
            "/a/..%5cb",
            "/a/..;x/b",
            "/a/..%3Bx/b",
        ] {
            assert!(has_parent_segment(path), "{path}");
        }
        for path in ["/", "/a/./b", "/a..b/c", "/a/...", "/a/%2e/b", "/models/v1..2", "/%25252e"] {
            assert!(!has_parent_segment(path), "{path}");
        }
    }
}
