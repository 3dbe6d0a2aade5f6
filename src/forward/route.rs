//! The table of routes and their upstreams, and the service that finds the route of a request.

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
use super::{Config, SetupError};
use crate::route::{self, RouteMatcher, TraceHeaders};
use tokengauge_listen::{Peer, ReceivedBody};
use tokengauge_observe::host;
use tokengauge_telemetry::UpstreamCounts;
use tokengauge_types::event::{CallerIdentity, RejectReason, RouteFacts};
use tokengauge_types::label::Label;

/// A request as it arrives from the listener, before routing.
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
    /// The reason for the rejection if the request cannot be forwarded. It is rejected only after its exchange was
    /// opened, so that rejected requests are counted too.
    pub(super) destination: Result<Destination, RejectReason>,
}

/// Finds the route of each request. The route determines the upstream and the concurrency limit.
#[derive(Clone, Debug)]
pub struct Route<S> {
    pub(super) inner: S,
    /// The current routes. A reload replaces the table; each request keeps its original route.
    pub(super) routes: Arc<ArcSwap<RouteTable>>,
    /// Route facts that are reported for requests that match no route.
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
        } else if target::has_one_host(&request) {
            found
        } else {
            Err(RejectReason::BadRequest)
        };
        RoutedRequest { request, client, facts, identity, trace_headers, destination }
    }
}

/// All routes with their upstreams and limiters. A reload replaces the whole table, so that no request finds a new
/// route without its upstream.
#[derive(Debug)]
pub struct RouteTable {
    routes: RouteMatcher,
    upstreams: HashMap<Label, Arc<Upstream>>,
    /// Concurrency limiters by route name. Contains only routes that have a limit.
    limiters: HashMap<Label, Arc<ConcurrencyLimiter>>,
    identity: Identity,
}

/// Where a request is sent.
#[derive(Debug)]
pub struct Destination {
    pub(super) upstream: Arc<Upstream>,
    /// Number of bytes to remove from the beginning of the path.
    pub(super) stripped: usize,
    /// The concurrency limiter. `None` if the route has no limit.
    pub(super) limiter: Option<Arc<ConcurrencyLimiter>>,
}

impl RouteTable {
    /// Creates a table that reuses the limiters of the `previous` table, with their running and queued exchanges. The
    /// new limits take effect in [`apply_limits`](Self::apply_limits).
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

    /// Puts the limits of this table into effect in place of those of `previous`. This is separate from
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

    /// Returns the upstream for `config` after a reload. An upstream with exactly this configuration keeps its idle
    /// connections. An upstream with the same name keeps its counters.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub fn upstream(&self, config: Config) -> Result<Arc<Upstream>, SetupError> {
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

    /// Returns the route of a request, and its destination or the reason why the request cannot be forwarded.
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
        let config = |port| Config::to(Label::known("a"), false, "localhost", port);
        let upstream = Upstream::new(config(1)).unwrap();
        let routes = RouteMatcher::new(Vec::new()).unwrap();
        let identity = Identity::new(identity::Config::default(), b"");
        let table = RouteTable::new(routes, vec![Arc::clone(&upstream)], identity, None);
        let same = table.upstream(config(1)).unwrap();
        assert!(Arc::ptr_eq(&same, &upstream), "the upstream keeps its pool");
        let changed = table.upstream(config(2)).unwrap();
        assert!(!Arc::ptr_eq(&changed, &upstream));
        assert!(Arc::ptr_eq(&changed.health, &upstream.health), "the counters continue");
        let other = Config::to(Label::known("b"), false, "localhost", 1);
        assert!(!Arc::ptr_eq(&table.upstream(other).unwrap().health, &upstream.health));
    }
}
