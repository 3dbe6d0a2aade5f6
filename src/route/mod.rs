//! Host and path → target, compiled once, matched without allocation.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use tokengauge_types::event::RouteFacts;
use tokengauge_types::label::Label;

/// One route. The first of the longest matching prefixes wins; a route with a host before one without.
#[derive(Clone, Debug)]
pub struct Config {
    pub facts: Arc<RouteFacts>,
    /// `Host` without its port, in lower case; `*.example.com` stands for any subdomain. `None` is any.
    pub host: Option<String>,
    /// A prefix of the path that ends at a `/` or at the path's end; empty is any.
    pub prefix: String,
    /// Whether `prefix` is taken off before the path is sent on.
    pub strip: bool,
    /// The name of the upstream.
    pub upstream: Label,
    pub trace: TraceHeaders,
    /// `None` is no limit.
    pub admission: Option<ConcurrencyLimit>,
}

/// How many exchanges of a route go on at once, and what becomes of further ones: they wait, then they are answered 429.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConcurrencyLimit {
    /// Exchanges that were let in and are not over; of each process, not of all that serve the route.
    pub max_in_flight: usize,
    /// Further ones that wait for a place, the first come first.
    pub max_queue: usize,
    /// The longest time that each of them waits.
    pub queue_timeout: Duration,
}

impl ConcurrencyLimit {
    /// Eight rounds of what one busy engine takes at a time; more would wait in vain, since each waits for a short time
    /// only.
    pub const DEFAULT_MAX_QUEUE: usize = 64;
    /// About as long as a person waits for a first word; whoever comes back later has a better place by then.
    pub const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
}

/// What becomes of a request's trace headers.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Eq,
    PartialEq,
    Serialize,
    schemars::JsonSchema,
    clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum TraceHeaders {
    /// They are passed on as they came.
    #[default]
    Passthrough,
    /// The span that is sent on as the parent is ours.
    Continue,
}

/// All routes, the most specific first.
#[derive(Debug)]
pub struct RouteMatcher(Vec<Route>);

/// Where a request goes.
#[derive(Debug)]
pub struct Target {
    pub facts: Arc<RouteFacts>,
    pub upstream: Label,
    /// Bytes of the path's beginning that are taken off.
    pub stripped: usize,
    pub trace: TraceHeaders,
    pub admission: Option<ConcurrencyLimit>,
}

#[derive(Debug, thiserror::Error, Eq, PartialEq)]
pub enum Error {
    #[error("route {0}: its prefix must be empty or start with '/'")]
    Prefix(Label),
    #[error("route {0}: its host must be a name without port or path, or '*.' and a name")]
    Host(Label),
    #[error("route {0} can never be taken: route {1} has the same host and prefix")]
    Twice(Label, Label),
}

impl RouteMatcher {
    pub fn new(routes: Vec<Config>) -> Result<Self, Error> {
        let mut compiled: Vec<Route> = Vec::with_capacity(routes.len());
        for route in routes {
            let route = Route::new(route)?;
            let twin = compiled
                .iter()
                .find(|other| other.host == route.host && other.prefix == route.prefix);
            if let Some(twin) = twin {
                let name = |route: &Route| route.target.facts.name.clone();
                return Err(Error::Twice(name(&route), name(twin)));
            }
            compiled.push(route);
        }
        compiled.sort_by_key(|route| Reverse((route.host.rank(), route.prefix.len())));
        Ok(Self(compiled))
    }

    /// `host` as the client sent it, with or without a port; `path` without its query.
    pub fn find(&self, host: Option<&str>, path: &str) -> Option<&Target> {
        let host = host.map(without_port);
        self.0
            .iter()
            .find(|route| route.host.admits(host) && route.admits(path))
            .map(|route| &route.target)
    }

    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.0.iter().map(|route| &route.target)
    }
}

#[derive(Debug)]
struct Route {
    host: Host,
    prefix: String,
    target: Target,
}

impl Route {
    fn new(config: Config) -> Result<Self, Error> {
        let Config { facts, host, mut prefix, strip, upstream, trace, admission } = config;
        if !prefix.is_empty() && !prefix.starts_with('/') {
            return Err(Error::Prefix(facts.name.clone()));
        }
        prefix.truncate(prefix.trim_end_matches('/').len());
        let host = Host::new(host).ok_or_else(|| Error::Host(facts.name.clone()))?;
        let stripped = if strip { prefix.len() } else { 0 };
        let target = Target { facts, upstream, stripped, trace, admission };
        Ok(Self { host, prefix, target })
    }

    fn admits(&self, path: &str) -> bool {
        path.strip_prefix(self.prefix.as_str())
            .is_some_and(|rest| self.prefix.is_empty() || rest.is_empty() || rest.starts_with('/'))
    }
}

#[derive(Debug, Eq, PartialEq)]
enum Host {
    Any,
    /// Any subdomain of the name after `*.`; the dot is kept.
    Below(String),
    Exactly(String),
}

impl Host {
    fn new(host: Option<String>) -> Option<Self> {
        let Some(host) = host else {
            return Some(Self::Any);
        };
        let below = host.strip_prefix('*');
        let name = below.map_or(host.as_str(), |rest| rest.strip_prefix('.').unwrap_or_default());
        if name.is_empty() || name.contains(['/', '*']) || without_port(name) != name {
            return None;
        }
        Some(match below {
            Some(suffix) => Self::Below(suffix.to_ascii_lowercase()),
            None => Self::Exactly(host.to_ascii_lowercase()),
        })
    }

    /// Higher comes first.
    fn rank(&self) -> u8 {
        match self {
            Self::Any => 0,
            Self::Below(_) => 1,
            Self::Exactly(_) => 2,
        }
    }

    fn admits(&self, host: Option<&str>) -> bool {
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

/// `[::1]:80` and `example.com:80` without their ports.
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
    use tokengauge_types::event::ProxyPosition;

    fn route(name: &str, host: Option<&str>, prefix: &str) -> Config {
        let facts = RouteFacts {
            name: Label::known(name),
            vantage: ProxyPosition::Outbound,
            server_address: Label::known("localhost"),
            server_port: 80,
            provider: None,
            dialect: None,
            stripped: 0,
            base_path: Label::known(""),
            stall_after: Duration::from_secs(2),
            hung_after: Duration::from_secs(30),
        };
        Config {
            facts: Arc::new(facts),
            host: host.map(str::to_owned),
            prefix: prefix.to_owned(),
            strip: true,
            upstream: Label::known(name),
            trace: TraceHeaders::default(),
            admission: None,
        }
    }

    fn found<'a>(table: &'a RouteMatcher, host: &str, path: &str) -> Option<&'a str> {
        let host = (!host.is_empty()).then_some(host);
        table.find(host, path).map(|target| target.facts.name.as_str())
    }

    #[test]
    fn the_longest_prefix_wins_and_ends_at_a_slash() {
        let routes =
            vec![route("root", None, "/"), route("a", None, "/a"), route("ab", None, "/a/b/")];
        let table = RouteMatcher::new(routes).unwrap();
        assert_eq!(found(&table, "", "/a/b/c"), Some("ab"));
        assert_eq!(found(&table, "", "/a/b"), Some("ab"));
        assert_eq!(found(&table, "", "/a/bc"), Some("a"));
        assert_eq!(found(&table, "", "/ab"), Some("root"));
        assert_eq!(found(&table, "", "*"), Some("root"));
        let stripped = table.find(None, "/a/b/c").map(|target| target.stripped);
        assert_eq!(stripped, Some(4), "a trailing slash is not stripped off");
    }

    #[test]
    fn a_host_goes_before_any_host_and_a_name_before_a_wildcard() {
        let routes = vec![
            route("any", None, "/v1/chat"),
            route("wild", Some("*.example.com"), "/v1"),
            route("name", Some("API.example.com"), ""),
        ];
        let table = RouteMatcher::new(routes).unwrap();
        assert_eq!(found(&table, "api.EXAMPLE.com:8080", "/v1/chat"), Some("name"));
        assert_eq!(found(&table, "eu.example.com", "/v1/chat"), Some("wild"));
        assert_eq!(found(&table, "eu.example.com", "/v2"), None);
        assert_eq!(found(&table, ".example.com", "/v1"), None, "no subdomain at all");
        assert_eq!(found(&table, "badexample.com", "/v1/chat"), Some("any"));
        assert_eq!(found(&table, "", "/v1/chat"), Some("any"));
    }

    #[test]
    fn a_port_is_not_part_of_a_host() {
        let table = RouteMatcher::new(vec![route("six", Some("[::1]"), "")]).unwrap();
        assert_eq!(found(&table, "[::1]:4000", "/"), Some("six"));
        assert_eq!(found(&table, "[::1]", "/"), Some("six"));
        assert_eq!(without_port("::1"), "::1");
    }

    #[test]
    fn what_could_never_match_is_refused() {
        let refused = |routes| RouteMatcher::new(routes).unwrap_err();
        let name = Label::known;
        assert_eq!(refused(vec![route("a", None, "v1")]), Error::Prefix(name("a")));
        for host in ["", "*.", "*", "example.com:80", "a/b", "*a.com"] {
            assert_eq!(refused(vec![route("a", Some(host), "")]), Error::Host(name("a")), "{host}");
        }
        assert_eq!(
            refused(vec![route("a", None, "/v1"), route("b", None, "/v1/")]),
            Error::Twice(name("b"), name("a"))
        );
    }
}
