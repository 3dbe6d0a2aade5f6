//! Where requests go: the routes together with the upstreams that they name.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Config, Identity, Upstream};
use crate::label::Label;
use crate::route::{Table, Target};

/// Swapped as a whole on a reload: no request can find a new route and miss its upstream.
#[derive(Debug)]
pub struct Ways {
    routes: Table,
    upstreams: HashMap<Label, Arc<Upstream>>,
    identity: Arc<Identity>,
}

impl Ways {
    pub fn new(routes: Table, upstreams: Vec<Arc<Upstream>>, identity: Identity) -> Self {
        let named = |upstream: Arc<Upstream>| (upstream.config().name.clone(), upstream);
        Self {
            routes,
            upstreams: upstreams.into_iter().map(named).collect(),
            identity: Arc::new(identity),
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

    pub(super) fn find(
        &self,
        host: Option<&str>,
        path: &str,
    ) -> (Option<&Target>, Option<&Arc<Upstream>>) {
        let target = self.routes.find(host, path);
        let upstream = target.and_then(|target| self.upstreams.get(&target.upstream));
        (target, upstream)
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
        let routes = Table::new(Vec::new()).unwrap();
        let identity = Identity::new(identity::Config::default(), b"");
        let ways = Ways::new(routes, vec![Arc::clone(&upstream)], identity);
        let same = ways.upstream(&config(1)).unwrap();
        assert!(Arc::ptr_eq(&same, &upstream), "its pool is kept");
        assert!(ways.upstream(&config(2)).is_none());
        let other = Config::to(Label::known("b"), false, "localhost", 1);
        assert!(ways.upstream(&other).is_none());
    }
}
