//! Chooses the service of each listener by its protocol.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Envoy;
use super::listeners::serve;
use crate::config::{Config, Protocol};
use crate::forward::Forwarder;
use tokengauge_listen::{Connections, Listener, Peer, Workers};

/// The services that listeners can have.
pub(super) struct Services<'a> {
    pub(super) forwarder: &'a Arc<Forwarder>,
    pub(super) envoy: &'a Envoy,
}

impl Services<'_> {
    /// Serves all listeners, which are those of `config`, until a stop is requested.
    pub(super) fn serve_all(
        &self,
        listeners: Vec<Listener>,
        config: &Config,
        workers: &Workers,
        stop: &watch::Sender<bool>,
    ) -> Vec<JoinHandle<Connections>> {
        let serve = |(listener, protocol)| match protocol {
            Protocol::Http => {
                let forwarder = Arc::clone(self.forwarder);
                let handler = move |peer: Peer| forwarder.service(peer);
                serve(listener, handler, workers.clone(), stop)
            }
            Protocol::ExtProc => self.envoy.serve(listener, workers.clone(), stop),
        };
        listeners.into_iter().zip(config.protocols()).map(serve).collect()
    }
}
