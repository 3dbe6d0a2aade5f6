//! Where requests go, made of the configuration.

use std::time::Duration;

use super::StartError;
use crate::config::{Config, Secret};
use crate::forward::{self, Identity, RouteTable, Upstream};
use crate::route::RouteMatcher;
use tokengauge_measure::load::Lane;
use tokengauge_types::event::RouteFacts;
use tokengauge_types::label::Label;

/// The route of a request that none fits: its exchange is counted too.
const UNROUTED: &str = "none";

/// Routes and upstreams of `config`. An upstream that was there `before` with the same settings keeps its connections.
pub(super) fn ways(config: &Config, before: Option<&RouteTable>) -> Result<RouteTable, StartError> {
    let upstream = |config: &forward::Config| match before.and_then(|ways| ways.upstream(config)) {
        Some(known) => Ok(known),
        None => Upstream::new(config.clone())
            .map_err(|error| StartError::Upstream(config.name.clone(), error)),
    };
    let upstreams = config.upstreams.iter().map(upstream);
    let routes = RouteMatcher::new(config.routes.clone())?;
    let key = config.identity_key.as_ref().map_or("", Secret::expose);
    let identity = Identity::new(config.identity.clone(), key.as_bytes());
    let upstreams = upstreams.collect::<Result<_, _>>()?;
    Ok(RouteTable::new(routes, upstreams, identity, before))
}

pub(super) fn unrouted(config: &Config) -> RouteFacts {
    RouteFacts {
        name: Label::known(UNROUTED),
        vantage: config.vantage,
        server_address: Label::known(UNROUTED),
        server_port: 0,
        provider: None,
        dialect: None,
        stripped: 0,
        base_path: Label::known(""),
        stall_after: Duration::MAX,
        hung_after: Duration::MAX,
    }
}

pub(super) fn lane(facts: &RouteFacts) -> Lane {
    Lane { route: facts.name.clone(), vantage: facts.vantage }
}
