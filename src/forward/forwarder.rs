//! The stack of services that answers every request, and its shutdown.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use tokio::sync::watch;
use tower::{Service, ServiceBuilder};

use super::admission::Admission;
use super::relay::Relay;
use super::request::{ClientRequest, Dependencies, RouteAndObserve};
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

type Stack = Observe<Respond<Admission<Relay>>, RouteAndObserve>;

/// The services that answer a request, from the outside in.
fn stack(dependencies: Dependencies, shutdown: &watch::Sender<ShutdownState>) -> Stack {
    ServiceBuilder::new()
        // Finds the route and copies both bodies into the observation channel. Outermost, so that every request is counted.
        .layer(ObserveLayer::with_opener(RouteAndObserve(dependencies)))
        // Answers with an error response. Outside of all services that can fail.
        .layer_fn(|inner| Respond { inner })
        // Waits for a permit of the route's concurrency limiter. Before the relay, because a waiting request must not take
        // a connection.
        .layer_fn(|inner| Admission { inner, shutdown: shutdown.clone() })
        // Sends the request to its upstream.
        .service(Relay { shutdown: shutdown.clone() })
}

impl Forwarder {
    pub fn new(dependencies: Dependencies) -> Arc<Self> {
        let shutdown = watch::Sender::new(ShutdownState::Serving);
        let channel = Arc::clone(&dependencies.channel);
        Arc::new(Self { stack: stack(dependencies, &shutdown), channel, shutdown })
    }

    /// Returns the service that handles the requests of one client connection.
    pub fn service(&self, client: Peer) -> ForwardService {
        ForwardService { stack: self.stack.clone(), client }
    }

    /// Rejects queued requests with 503 and stops queueing new ones, so that clients retry on another replica.
    pub fn drain(&self) {
        self.shutdown.send_replace(ShutdownState::Draining);
    }

    /// Aborts upgraded connections such as WebSockets, which the listeners do not track. Called at the end of a
    /// shutdown's grace period. From now on, requests that end early count as aborted by the proxy.
    pub fn abort(&self) {
        self.channel.mark_shutdown();
        self.shutdown.send_replace(ShutdownState::Aborting);
    }
}

/// The service for the requests of one connection.
#[derive(Clone, Debug)]
pub struct ForwardService {
    stack: Stack,
    client: Peer,
}

/// Implements hyper's trait directly to save memory. hyper keeps the memory of a request's future for the lifetime of
/// the connection, and the future of `hyper_util::service::TowerToHyperService` is large. The stack is always ready, so
/// no readiness check is needed.
impl hyper::service::Service<Request<ReceivedBody>> for ForwardService {
    type Response = Response<ProxyBody>;
    type Error = Infallible;
    type Future = <Stack as Service<ClientRequest>>::Future;

    fn call(&self, request: Request<ReceivedBody>) -> Self::Future {
        let request = ClientRequest { http: request, client: self.client.clone() };
        self.stack.clone().call(request)
    }
}
