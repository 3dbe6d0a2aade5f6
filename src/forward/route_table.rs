//! Where requests go: the routes together with the upstreams that they name.

use std::collections::HashMap;
use std::sync::Arc;

use super::admission::ConcurrencyLimiter;
use super::{Config, Identity, Upstream};
use crate::route::{RouteMatcher, Target};
use tokengauge_types::label::Label;

/// Swapped as a whole on a reload: no request can find a new route and miss its upstream.
#[derive(Debug)]
pub struct RouteTable {
    routes: RouteMatcher,
    upstreams: HashMap<Label, Arc<Upstream>>,
    /// By the names of the routes that have a limit.
    doors: HashMap<Label, Arc<ConcurrencyLimiter>>,
    identity: Arc<Identity>,
}

/// Where one request goes.
pub(super) struct Found<'a> {
    pub(super) target: &'a Target,
    /// `None` where the route names none that there is.
    pub(super) upstream: Option<&'a Arc<Upstream>>,
    /// `None` where all are let in at once.
    pub(super) door: Option<&'a Arc<ConcurrencyLimiter>>,
}

impl RouteTable {
    /// Routes keep the doors that they had `before`, with whoever is inside and waits: see [`enforce`](Self::enforce).
    pub fn new(
        routes: RouteMatcher,
        upstreams: Vec<Arc<Upstream>>,
        identity: Identity,
        before: Option<&Self>,
    ) -> Self {
        let named = |upstream: Arc<Upstream>| (upstream.config().name.clone(), upstream);
        let door = |target: &Target| {
            let (name, limits) = (&target.facts.name, target.admission?);
            let known = before.and_then(|ways| ways.doors.get(name).cloned());
            Some((name.clone(), known.unwrap_or_else(|| ConcurrencyLimiter::new(limits))))
        };
        let doors = routes.targets().filter_map(door).collect();
        Self {
            routes,
            upstreams: upstreams.into_iter().map(named).collect(),
            doors,
            identity: Arc::new(identity),
        }
    }

    /// Puts these routes' limits in force in place of those `before`, where they have kept their doors. Apart from
    /// [`new`](Self::new), because a reload may yet fail between the two.
    pub fn enforce(&self, before: &Self) {
        for target in self.routes.targets() {
            if let Some(door) = self.doors.get(&target.facts.name) {
                door.limit(target.admission);
            }
        }
        for (name, door) in &before.doors {
            if !self.doors.contains_key(name) {
                door.limit(None);
            }
        }
    }

    /// The upstream of exactly these settings: a reload takes it over, with its idle connections.
    pub fn upstream(&self, config: &Config) -> Option<Arc<Upstream>> {
        let known = self.upstreams.get(&config.name)?;
        (known.config() == config).then(|| Arc::clone(known))
    }

    /// How it is read whom a request is for.
    pub(super) const fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    pub(super) fn find(&self, host: Option<&str>, path: &str) -> Option<Found<'_>> {
        let target = self.routes.find(host, path)?;
        let limited = target.admission.is_some();
        Some(Found {
            target,
            upstream: self.upstreams.get(&target.upstream),
            door: limited.then(|| self.doors.get(&target.facts.name)).flatten(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::identity;

    #[test]
    fn only_an_upstream_that_stayed_the_same_is_taken_over() {
        let config = |port| Config::to(Label::known("a"), false, "localhost", port);
        let upstream = Upstream::new(config(1)).unwrap();
        let routes = RouteMatcher::new(Vec::new()).unwrap();
        let identity = Identity::new(identity::Config::default(), b"");
        let ways = RouteTable::new(routes, vec![Arc::clone(&upstream)], identity, None);
        let same = ways.upstream(&config(1)).unwrap();
        assert!(Arc::ptr_eq(&same, &upstream), "its pool is kept");
        assert!(ways.upstream(&config(2)).is_none());
        let other = Config::to(Label::known("b"), false, "localhost", 1);
        assert!(ways.upstream(&other).is_none());
    }
}
