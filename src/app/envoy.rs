//! Connects the service for Envoy with the parts of the program that it uses.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::listeners::serve;
use crate::config::{Config, Protocol};
use crate::forward::{Propagation, RouteTable};
use tokengauge_envoy::{Counts, Dependencies, EnvoyService, Routes};
use tokengauge_listen::{Connections, Listener, Peer, Workers};
use tokengauge_observe::tee::ObservationChannel;
use tokengauge_telemetry::EnvoyCounts;

/// The service for Envoy, before its start.
pub(super) struct Unstarted {
    counts: Arc<Counts>,
    is_used: bool,
}

/// The service for Envoy. No listener uses it unless one has `protocol: ext-proc`.
#[derive(Debug)]
pub(super) struct Envoy(EnvoyService);

impl Envoy {
    pub(super) fn prepare(config: &Config) -> Unstarted {
        let is_used = config.protocols().contains(&Protocol::ExtProc);
        Unstarted { counts: Arc::default(), is_used }
    }

    /// Serves a listener until a stop is requested.
    pub(super) fn serve(
        &self,
        listener: Listener,
        workers: Workers,
        stop: &watch::Sender<bool>,
    ) -> JoinHandle<Connections> {
        let service = self.0.clone();
        serve(listener, move |peer: Peer| service.service(peer), workers, stop)
    }

    pub(super) fn reload(&self) {
        self.0.reload();
    }

    pub(super) fn drain(&self) {
        self.0.drain();
    }
}

impl Unstarted {
    /// Returns a function that reads the counters. They are absent if no listener serves Envoy.
    pub(super) fn counts(&self) -> impl Fn() -> Option<EnvoyCounts> + Send + Sync + 'static {
        let (counts, is_used) = (Arc::clone(&self.counts), self.is_used);
        move || is_used.then(|| counts.read())
    }

    pub(super) fn start(
        self,
        channel: &Arc<ObservationChannel>,
        (table, config): (&Arc<ArcSwap<RouteTable>>, &Arc<ArcSwap<Config>>),
        propagation: impl Fn() -> Propagation,
        ready: &Arc<AtomicBool>,
    ) -> Envoy {
        let (table, config) = (Arc::clone(table), Arc::clone(config));
        let find = move |name: &str| {
            let config = config.load();
            let mut routes = config.observed_routes();
            routes.find(|facts| facts.name.as_str() == name).map(Arc::clone)
        };
        Envoy(EnvoyService::new(Dependencies {
            channel: Arc::clone(channel),
            routes: Routes::new(Box::new(find)),
            propagation: propagation(),
            identity: Box::new(move |headers, baggage| {
                table.load().identity().read(headers, baggage)
            }),
            counts: self.counts,
            ready: Arc::clone(ready),
        }))
    }
}
