//! Replaces the service for Envoy in a build without it. The configuration then accepts no listener for Envoy.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::forward::{Propagation, RouteTable};
use tokengauge_listen::{Connections, Listener, Workers};
use tokengauge_observe::tee::ObservationChannel;
use tokengauge_telemetry::EnvoyCounts;

#[derive(Debug)]
pub(super) struct Envoy;

impl Envoy {
    pub(super) fn prepare(_config: &Config) -> Self {
        Self
    }

    pub(super) fn counts(&self) -> impl Fn() -> Option<EnvoyCounts> + Send + Sync + 'static {
        || None
    }

    pub(super) fn start(
        self,
        _channel: &Arc<ObservationChannel>,
        _state: (&Arc<ArcSwap<RouteTable>>, &Arc<ArcSwap<Config>>),
        _propagation: impl Fn() -> Propagation,
        _ready: &Arc<AtomicBool>,
    ) -> Self {
        self
    }

    pub(super) fn serve(
        &self,
        _listener: Listener,
        _workers: Workers,
        _stop: &watch::Sender<bool>,
    ) -> JoinHandle<Connections> {
        unreachable!("the configuration has no listener for Envoy")
    }

    pub(super) fn reload(&self) {}

    pub(super) fn drain(&self) {}
}
