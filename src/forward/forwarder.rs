//! The stack of services that answers every request, and its shutdown.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use tokio::sync::watch;
use tower::{Layer, Service};

use super::open::{ClientRequest, RequestOpener};
use super::respond::Respond;
use super::{ProxyBody, ShutdownState};
use tokengauge_listen::{Peer, ReceivedBody};
use tokengauge_observe::tee::ObservationChannel;
use tokengauge_observe::{Observe, ObserveLayer};

/// Forwards requests to their upstreams. One instance serves the whole process.
#[derive(Debug)]
pub struct Forwarder {
    stack: Stack,
    channel: Arc<ObservationChannel>,
    shutdown: watch::Sender<ShutdownState>,
}

type Stack = Observe<Respond, RequestOpener>;

impl Forwarder {
    pub fn new(opener: RequestOpener) -> Arc<Self> {
        let channel = Arc::clone(&opener.channel);
        let shutdown = watch::Sender::new(ShutdownState::Serving);
        let respond = Respond { shutdown: shutdown.clone() };
        // Opens the exchange and copies both bodies into the observation channel.
        let stack = ObserveLayer::with_opener(opener).layer(respond);
        Arc::new(Self { stack, channel, shutdown })
    }

    /// Returns the service for the requests of one connection of `client`.
    pub fn service(&self, client: Peer) -> ForwardService {
        ForwardService { stack: self.stack.clone(), client }
    }

    /// Rejects queued requests with 503 and stops queueing new ones, so that clients retry on another replica.
    pub fn drain(&self) {
        self.shutdown.send_replace(ShutdownState::Draining);
    }

    /// Closes upgraded connections such as WebSockets, which no listener tracks. Called when the grace period of a
    /// shutdown is over. Exchanges that end from now on count as aborted by this process.
    pub fn abort(&self) {
        self.channel.cut();
        self.shutdown.send_replace(ShutdownState::Aborting);
    }
}

/// The service for the requests of one connection.
#[derive(Clone, Debug)]
pub struct ForwardService {
    stack: Stack,
    client: Peer,
}

/// Implements hyper's trait directly, because the future of `hyper_util::service::TowerToHyperService` is large. It
/// would reserve memory for a service and a whole request for the lifetime of the connection. The stack is always
/// ready, so each request is passed on immediately.
impl hyper::service::Service<Request<ReceivedBody>> for ForwardService {
    type Response = Response<ProxyBody>;
    type Error = Infallible;
    type Future = <Stack as Service<ClientRequest>>::Future;

    fn call(&self, request: Request<ReceivedBody>) -> Self::Future {
        let request = ClientRequest { request, client: self.client.clone() };
        self.stack.clone().call(request)
    }
}
