//! What is asked of the engines behind upstreams, and who is told.

use std::sync::Arc;

use crate::config::Config;
use crate::forward;
use crate::scrape;
use tokengauge_measure::engine::Backend;
use tokengauge_observe::Observer;
use tokengauge_types::clock;

/// The upstreams of which something is asked, each with the routes that lead there.
pub(super) fn backends(config: &Config) -> Vec<Backend> {
    let backend = |upstream: &forward::Config| {
        let name = &upstream.name;
        let scrape = config.scrapes.iter().find(|scrape| scrape.upstream == *name);
        let warm = config.warm.iter().find(|(warm, _)| warm == name);
        let routes = config.routes.iter().filter(|route| route.upstream == *name);
        (scrape.is_some() || warm.is_some()).then(|| Backend {
            upstream: name.clone(),
            routes: routes.map(|route| route.facts.name.clone()).collect(),
            stale_after: scrape.map(scrape::Config::stale_after),
            warm: warm.map(|(_, warm)| *warm),
        })
    };
    config.upstreams.iter().filter_map(backend).collect()
}

/// Hands what an engine said to the observer. Weak, because the scraper may outlive it by a moment.
pub(super) fn tell(observer: &Arc<Observer>) -> scrape::Tell {
    let observer = Arc::downgrade(observer);
    Box::new(move |upstream, told| {
        if let Some(observer) = observer.upgrade() {
            let wall = clock::wall_now();
            observer.with_current_state(|requests, at| {
                requests.record_engine_reading(at, wall, upstream, told)
            });
        }
    })
}
