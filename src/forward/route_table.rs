//! The routes together with the upstreams that they name.

use std::collections::HashMap;
use std::sync::Arc;

use super::Config;
use super::identity::Identity;
use super::limiter::ConcurrencyLimiter;
use super::upstream::Upstream;
use crate::route::{RouteMatcher, Target};
use tokengauge_types::label::Label;

/// Replaced as a whole on a reload, so that no request finds a new route without its upstream.
#[derive(Debug)]
pub struct RouteTable {
    routes: RouteMatcher,
    upstreams: HashMap<Label, Arc<Upstream>>,
    /// By the names of the routes that have a limit.
    limiters: HashMap<Label, Arc<ConcurrencyLimiter>>,
    identity: Identity,
}

/// The route of one request.
pub(super) struct MatchedRoute<'a> {
    pub(super) target: &'a Target,
    upstream: Option<&'a Arc<Upstream>>,
    limiter: Option<&'a Arc<ConcurrencyLimiter>>,
}

/// Where a request is sent.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) upstream: Arc<Upstream>,
    /// Bytes to remove from the beginning of the path.
    pub(super) stripped: usize,
    /// `None` if the route has no limit.
    pub(super) limiter: Option<Arc<ConcurrencyLimiter>>,
}

impl RouteTable {
    /// Routes keep their limiters from the `previous` table, with running and queued exchanges. Their new limits take
    /// effect in [`apply_limits`](Self::apply_limits).
    pub fn new(
        routes: RouteMatcher,
        upstreams: Vec<Arc<Upstream>>,
        identity: Identity,
        previous: Option<&Self>,
    ) -> Self {
        let by_name = |upstream: Arc<Upstream>| (upstream.config().name.clone(), upstream);
        let limiter = |target: &Target| {
            let (name, limit) = (&target.facts.name, target.admission?);
            let known = previous.and_then(|table| table.limiters.get(name).cloned());
            Some((name.clone(), known.unwrap_or_else(|| ConcurrencyLimiter::new(limit))))
        };
        let limiters = routes.targets().filter_map(limiter).collect();
        Self { routes, upstreams: upstreams.into_iter().map(by_name).collect(), limiters, identity }
    }

    /// Puts the limits of this table into effect in place of those of `previous`. Separate from [`new`](Self::new),
    /// because a reload can still fail between the two.
    pub fn apply_limits(&self, previous: &Self) {
        for target in self.routes.targets() {
            if let Some(limiter) = self.limiters.get(&target.facts.name) {
                limiter.set_limit(target.admission);
            }
        }
        for (name, limiter) in &previous.limiters {
            if !self.limiters.contains_key(name) {
                limiter.set_limit(None);
            }
        }
    }

    /// Returns the upstream with exactly this configuration, so that a reload keeps its idle connections.
    pub fn upstream(&self, config: &Config) -> Option<Arc<Upstream>> {
        let known = self.upstreams.get(&config.name)?;
        (known.config() == config).then(|| Arc::clone(known))
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) fn find(&self, host: Option<&str>, path: &str) -> Option<MatchedRoute<'_>> {
        let target = self.routes.find(host, path)?;
        let limiter = target.admission.and_then(|_| self.limiters.get(&target.facts.name));
        Some(MatchedRoute { target, upstream: self.upstreams.get(&target.upstream), limiter })
    }
}

impl MatchedRoute<'_> {
    /// Returns `None` if the route names an upstream that does not exist.
    pub(super) fn destination(&self) -> Option<Destination> {
        Some(Destination {
            upstream: Arc::clone(self.upstream?),
            stripped: self.target.stripped,
            limiter: self.limiter.cloned(),
        })
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
        let same = table.upstream(&config(1)).unwrap();
        assert!(Arc::ptr_eq(&same, &upstream), "its pool is kept");
        assert!(table.upstream(&config(2)).is_none());
        let other = Config::to(Label::known("b"), false, "localhost", 1);
        assert!(table.upstream(&other).is_none());
    }
}
