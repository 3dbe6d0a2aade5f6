//! Builds routes, upstreams and backends from the configuration.

use super::StartError;
use super::descriptors::DescriptorBudget;
use crate::config::{Config, Secret};
use crate::forward::RouteMatcher;
use crate::forward::{self, Identity, Propagation, RouteTable, Upstream};
use crate::scrape;
use tokengauge_measure::engine::Backend;
use tokengauge_telemetry::Sampler;
use tokengauge_types::event::RouteFacts;

/// Route name in telemetry for requests that match no route.
const UNROUTED: &str = "none";

/// Builds the table of routes and upstreams. An upstream with unchanged settings keeps the connections that it has in
/// `previous`. `descriptors` limits connection pools.
pub(super) fn route_table(
    config: &Config,
    descriptors: DescriptorBudget,
    previous: Option<&RouteTable>,
) -> Result<RouteTable, StartError> {
    let max_pool_size = descriptors.max_pool_size(config.upstreams.len());
    let upstream = |config: &forward::UpstreamConfig| {
        let mut config = config.clone();
        config.pool_size = config.pool_size.min(max_pool_size);
        match previous {
            Some(previous) => previous.upstream(config),
            None => Upstream::new(config),
        }
    };
    let upstreams = config.upstreams.iter().map(upstream);
    let routes = RouteMatcher::new(config.routes.clone())?;
    let key = config.identity_key.as_ref().map_or("", Secret::expose);
    let identity = Identity::new(config.identity.clone(), key.as_bytes());
    let upstreams = upstreams.collect::<Result<_, _>>()?;
    Ok(RouteTable::new(routes, upstreams, identity, previous))
}

/// Returns a function that creates readers of trace headers, one for each service.
pub(super) fn propagation(config: &Config, sampler: Sampler) -> impl Fn() -> Propagation + use<> {
    let propagators = config.propagators();
    move || {
        let sample = Box::new(move |trace: &_| sampler.sample_at_start(trace));
        Propagation::new(propagators.clone(), sample)
    }
}

pub(super) fn unrouted(config: &Config) -> RouteFacts {
    RouteFacts { position: config.file.position, ..RouteFacts::for_upstream(UNROUTED, UNROUTED, 0) }
}

/// Returns the upstreams whose engine is scraped or whose warm-up is tracked, with their routes.
pub(super) fn backends(config: &Config) -> Vec<Backend> {
    let backend = |upstream: &forward::UpstreamConfig| {
        let name = &upstream.name;
        let scrape = config.scrapes.iter().find(|scrape| scrape.upstream == *name);
        let warm = config.warmup.iter().find(|(warm, _)| warm == name);
        let routes = config.routes.iter();
        let routes = routes.filter(|route| route.observed && route.upstream == *name);
        (scrape.is_some() || warm.is_some()).then(|| Backend {
            upstream: name.clone(),
            routes: routes.map(|route| route.facts.name.clone()).collect(),
            stale_after: scrape.map(scrape::ScrapeConfig::stale_after),
            warm: warm.map(|(_, warm)| *warm),
        })
    };
    config.upstreams.iter().filter_map(backend).collect()
}
