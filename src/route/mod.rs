//! Finds the route of a request by host and path, without allocation.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tokengauge_types::event::RouteFacts;
use tokengauge_types::label::Label;

/// Configuration of one route. An exact host precedes a pattern such as `*.example.com`, and a pattern precedes no
/// host. Among equals, the longest prefix applies.
#[derive(Clone, Debug)]
pub struct Config {
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
    /// Unlimited if `None`.
    pub admission: Option<ConcurrencyLimit>,
}

/// The concurrency limit of a route. Requests beyond the limit wait in a queue. If the queue is full, they are rejected
/// with status 429.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConcurrencyLimit {
    /// Maximum number of running requests in this process.
    pub max_in_flight: usize,
    /// Maximum number of queued requests.
    pub max_queue: usize,
    /// Maximum time that a request waits in the queue.
    pub queue_timeout: Duration,
}

impl ConcurrencyLimit {
    /// Default maximum number of queued requests: eight batches of one busy engine. In a longer queue, the last
    /// requests would time out before they are forwarded.
    pub const DEFAULT_MAX_QUEUE: usize = 64;
    /// Default maximum time in the queue. People wait about this long for the first token. A client that retries later
    /// finds a shorter queue.
    pub const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
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
pub struct RouteMatcher(Vec<(Host, Config)>);

#[derive(Debug, thiserror::Error, Eq, PartialEq)]
pub enum Error {
    #[error("route {0}: the prefix must be empty or start with '/'")]
    Prefix(Label),
    #[error("route {0}: the host must be a name without port and path, or '*.' and a name")]
    Host(Label),
    #[error("route {0} never matches: route {1} has the same host and prefix")]
    Duplicate(Label, Label),
}

impl RouteMatcher {
    pub fn new(routes: Vec<Config>) -> Result<Self, Error> {
        let mut compiled: Vec<(Host, Config)> = Vec::with_capacity(routes.len());
        for mut route in routes {
            let name = route.facts.name.clone();
            if !route.prefix.is_empty() && !route.prefix.starts_with('/') {
                return Err(Error::Prefix(name));
            }
            route.prefix.truncate(route.prefix.trim_end_matches('/').len());
            let Some(host) = Host::new(route.host.as_deref()) else {
                return Err(Error::Host(name));
            };
            let is_twin =
                |(known, other): &&(Host, Config)| *known == host && other.prefix == route.prefix;
            if let Some((_, twin)) = compiled.iter().find(is_twin) {
                return Err(Error::Duplicate(name, twin.facts.name.clone()));
            }
            compiled.push((host, route));
        }
        compiled.sort_by_key(|(host, route)| Reverse((host.rank(), route.prefix.len())));
        Ok(Self(compiled))
    }

    /// Returns the route of a request. `host` may contain a port. `path` must not contain a query.
    pub fn find(&self, host: Option<&str>, path: &str) -> Option<&Config> {
        let host = host.map(without_port);
        let mut routes = self.0.iter();
        let found = routes.find(|(known, route)| known.matches(host) && route.matches_path(path));
        found.map(|(_, route)| route)
    }

    pub fn routes(&self) -> impl Iterator<Item = &Config> {
        self.0.iter().map(|(_, route)| route)
    }
}

impl Config {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn route(name: &str, host: Option<&str>, prefix: &str) -> Config {
        let facts = RouteFacts::for_upstream(name, "localhost", 80);
        Config {
            facts: Arc::new(facts),
            host: host.map(str::to_owned),
            prefix: prefix.to_owned(),
            strip: true,
            upstream: Label::from_trusted(name),
            trace: TraceHeaders::default(),
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
        let stripped = table.find(None, "/a/b/c").map(Config::stripped);
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
        assert_eq!(refused(vec![route("a", None, "v1")]), Error::Prefix(name("a")));
        for host in ["", "*.", "*", "example.com:80", "a/b", "*a.com"] {
            assert_eq!(refused(vec![route("a", Some(host), "")]), Error::Host(name("a")), "{host}");
        }
        assert_eq!(
            refused(vec![route("a", None, "/v1"), route("b", None, "/v1/")]),
            Error::Duplicate(name("b"), name("a"))
        );
    }
}
