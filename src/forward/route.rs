//! The table of routes and upstreams, and the service that finds the route of each request.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use http::Request;
use tower::Service;

use super::identity::Identity;
use super::limiter::ConcurrencyLimiter;
use super::open_sockets;
use super::target;
use super::upstream::Upstream;
use super::{SetupError, UpstreamConfig};
use crate::route::{self, RouteMatcher, TraceHeaders};
use tokengauge_listen::{HeadersTooLarge, Peer, ReceivedBody};
use tokengauge_observe::host;
use tokengauge_telemetry::UpstreamCounts;
use tokengauge_types::event::{CallerIdentity, RejectReason, RouteFacts};
use tokengauge_types::label::Label;

/// A request from a listener, before its route is known.
#[derive(Debug)]
pub struct ClientRequest {
    pub(super) request: Request<ReceivedBody>,
    pub(super) client: Peer,
}

/// A request and its route.
#[derive(Debug)]
pub struct RoutedRequest {
    pub(super) request: Request<ReceivedBody>,
    pub(super) client: Peer,
    pub(super) facts: Arc<RouteFacts>,
    pub(super) identity: CallerIdentity,
    pub(super) trace_headers: TraceHeaders,
    /// The destination, or the reason why the request must be rejected. A later service rejects the request, so that
    /// telemetry also counts rejected requests.
    pub(super) destination: Result<Destination, RejectReason>,
}

/// Finds the route of each request. The route selects the upstream and the concurrency limit.
#[derive(Clone, Debug)]
pub struct Route<S> {
    pub(super) inner: S,
    /// The current routes. A reload replaces the table. A request that has started keeps its route.
    pub(super) routes: Arc<ArcSwap<RouteTable>>,
    /// Route name and other labels for the telemetry of requests that match no route.
    pub(super) unrouted: Arc<RouteFacts>,
}

impl<S: Service<RoutedRequest>> Service<ClientRequest> for Route<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: ClientRequest) -> S::Future {
        self.inner.call(self.route(request))
    }
}

impl<S> Route<S> {
    fn route(&self, ClientRequest { request, client }: ClientRequest) -> RoutedRequest {
        // A request that waits for its upstream must not keep a replaced table, so the reference ends with this call.
        let routes = self.routes.load();
        let identity = routes.identity().read(request.headers());
        let (facts, trace_headers, found) = match routes.find(host(&request), request.uri().path())
        {
            Some((route, found)) => (Arc::clone(&route.facts), route.trace, found),
            None => {
                let facts = Arc::clone(&self.unrouted);
                (facts, TraceHeaders::default(), Err(RejectReason::NoRoute))
            }
        };
        let destination = if client.connection.as_deref().is_some_and(open_sockets::is_own) {
            Err(RejectReason::Loop)
        } else if request.extensions().get::<HeadersTooLarge>().is_some() {
            Err(RejectReason::HeadersTooLarge)
        } else if target::has_one_host(&request) {
            found
        } else {
            Err(RejectReason::BadRequest)
        };
        RoutedRequest { request, client, facts, identity, trace_headers, destination }
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

/// Where a request is sent.
#[derive(Debug)]
pub struct Destination {
    pub(super) upstream: Arc<Upstream>,
    /// Length in bytes of the path prefix to strip.
    pub(super) stripped: usize,
    /// The concurrency limiter. `None` if the route has no limit.
    pub(super) limiter: Option<Arc<ConcurrencyLimiter>>,
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
        let limiter = |route: &route::Config| {
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

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the route of a request, and its destination or the reason for a rejection. `None` if no route matches.
    pub(super) fn find(
        &self,
        host: Option<&str>,
        path: &str,
    ) -> Option<(&route::Config, Result<Destination, RejectReason>)> {
        let route = self.routes.find(host, path)?;
        Some((route, self.destination(route, path)))
    }

    fn destination(&self, route: &route::Config, path: &str) -> Result<Destination, RejectReason> {
        let upstream = self.upstreams.get(&route.upstream).ok_or(RejectReason::NoRoute)?;
        // Rejects a path that could leave the prefix of the route or the base path of the upstream.
        let is_limited = !route.prefix.is_empty() || !upstream.config().base_path.is_empty();
        if is_limited && target::has_parent_segment(path) {
            return Err(RejectReason::BadRequest);
        }
        let limiter = route.admission.and_then(|_| self.limiters.get(&route.facts.name).cloned());
        Ok(Destination { upstream: Arc::clone(upstream), stripped: route.stripped(), limiter })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::identity;

    #[test]
    fn keeps_only_upstreams_with_the_same_configuration() {
        let config = |port| UpstreamConfig::new(Label::from_trusted("a"), false, "localhost", port);
        let upstream = Upstream::new(config(1)).unwrap();
        let routes = RouteMatcher::new(Vec::new()).unwrap();
        let identity = Identity::new(identity::Config::default(), b"");
        let table = RouteTable::new(routes, vec![Arc::clone(&upstream)], identity, None);
        let same = table.upstream(config(1)).unwrap();
        assert!(Arc::ptr_eq(&same, &upstream), "the upstream keeps its pool");
        let changed = table.upstream(config(2)).unwrap();
        assert!(!Arc::ptr_eq(&changed, &upstream));
        assert!(Arc::ptr_eq(&changed.health, &upstream.health), "the counters continue");
        let other = UpstreamConfig::new(Label::from_trusted("b"), false, "localhost", 1);
        assert!(!Arc::ptr_eq(&table.upstream(other).unwrap().health, &upstream.health));
    }
}
