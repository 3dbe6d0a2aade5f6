//! Names the route of a request after Envoy's route and cluster.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tokengauge_types::event::{LearnedProvider, ProxyPosition, RouteFacts};
use tokengauge_types::label::{Label, Name};
use tokengauge_types::sync::lock;

/// Maximum number of pairs of route and cluster. Further ones are reported as `other`. The same limit applies to routes
/// of the configuration.
const MAX_ROUTES: usize = 512;

/// Name of routes for which Envoy sends neither a route nor a cluster.
const UNNAMED: &str = "envoy";

/// Name of routes beyond [`MAX_ROUTES`].
const OTHER: &str = "other";

/// Finds the configured route with this name.
pub type FindRoute = Box<dyn Fn(&str) -> Option<Arc<RouteFacts>> + Send + Sync>;

/// The routes that Envoy has reported so far.
///
/// The settings of a route are those of the configured route with the name of Envoy's route or cluster.
pub struct Routes {
    find: FindRoute,
    known: Mutex<HashMap<Key, Arc<RouteFacts>>>,
}

/// Names of Envoy's route and cluster.
type Key = (Option<Name>, Option<Name>);

impl Routes {
    pub fn new(find: FindRoute) -> Self {
        Self { find, known: Mutex::default() }
    }

    /// Forgets all routes, so that each takes the settings of a changed configuration.
    pub fn reset(&self) {
        lock(&self.known).clear();
    }

    pub(crate) fn get(&self, route: Option<&str>, cluster: Option<&str>) -> Arc<RouteFacts> {
        let key = (route.and_then(Name::new), cluster.and_then(Name::new));
        let mut known = lock(&self.known);
        if let Some(facts) = known.get(&key) {
            return Arc::clone(facts);
        }
        let key = if known.len() < MAX_ROUTES { key } else { (Name::new(OTHER), Name::new(OTHER)) };
        Arc::clone(known.entry(key).or_insert_with_key(|key| Arc::new(self.describe(key))))
    }

    fn describe(&self, (route, cluster): &Key) -> RouteFacts {
        let names = || [route, cluster].into_iter().flatten().map(Name::as_str);
        let name = names().next().unwrap_or(UNNAMED);
        let address = cluster.as_ref().map_or(name, Name::as_str);
        let configured = names().find_map(|name| (self.find)(name));
        let facts = match configured {
            Some(configured) => RouteFacts {
                learned_provider: LearnedProvider::default(),
                server_address: Label::from_trusted(address),
                server_port: 0,
                ..RouteFacts::clone(&configured)
            },
            None => RouteFacts::for_upstream(name, address, 0),
        };
        RouteFacts { position: ProxyPosition::Envoy, ..facts }
    }
}

/// Omits the function that finds routes.
impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes").field("known", &lock(&self.known).len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Routes {
        Routes::new(Box::new(|name| {
            let mut facts = RouteFacts::for_upstream("mine", "ignored", 1);
            facts.provider = Some(Label::from_trusted("vllm"));
            (name == "mine").then(|| Arc::new(facts))
        }))
    }

    #[test]
    fn a_route_is_named_after_the_route_or_else_the_cluster_of_envoy() {
        let routes = routes();
        let of = |route, cluster| {
            let facts = routes.get(route, cluster);
            assert_eq!(facts.position, ProxyPosition::Envoy);
            (facts.name.to_string(), facts.server_address.to_string(), facts.provider.is_some())
        };
        let expect = |name: &str, address: &str, configured| {
            (name.to_owned(), address.to_owned(), configured)
        };
        assert_eq!(of(Some("chat"), Some("up")), expect("chat", "up", false));
        assert_eq!(of(None, Some("up")), expect("up", "up", false));
        assert_eq!(of(Some(""), None), expect("envoy", "envoy", false));
        assert_eq!(of(Some("mine"), Some("up")), expect("mine", "up", true));
        assert_eq!(of(Some("chat"), Some("mine")), expect("mine", "mine", true));
    }

    #[test]
    fn the_number_of_routes_is_bounded() {
        let routes = routes();
        for number in 0..2 * MAX_ROUTES {
            routes.get(Some(&format!("route-{number}")), None);
        }
        assert_eq!(lock(&routes.known).len(), MAX_ROUTES + 1);
        assert_eq!(routes.get(Some("one more"), Some("up")).name.as_str(), OTHER);
        assert_eq!(routes.get(Some("route-0"), None).name.as_str(), "route-0");
        routes.reset();
        assert_eq!(routes.get(Some("one more"), None).name.as_str(), "one more");
    }
}
