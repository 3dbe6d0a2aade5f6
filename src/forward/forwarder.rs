//! The stack of services that answers every request, and its shutdown.

use std::convert::Infallible;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{Request, Response};
use tokio::sync::watch;
use tower::{Service, ServiceBuilder};

use super::admission::Admission;
use super::open::RequestOpener;
use super::relay::Relay;
use super::respond::Respond;
use super::route::{ClientRequest, Route, RouteTable};
use super::{ProxyBody, ShutdownState};
use tokengauge_listen::{Peer, ReceivedBody};
use tokengauge_observe::tee::ObservationChannel;
use tokengauge_observe::trace::Propagation;
use tokengauge_observe::{Observe, ObserveLayer};
use tokengauge_types::event::RouteFacts;

/// Dependencies of a [`Forwarder`].
#[derive(Debug)]
pub struct Dependencies {
    /// The current routes. A reload replaces the table. A request that has started keeps its route.
    pub routes: Arc<ArcSwap<RouteTable>>,
    pub channel: Arc<ObservationChannel>,
    /// Route name and other labels for the telemetry of requests that match no route.
    pub unrouted: Arc<RouteFacts>,
    pub propagation: Propagation,
}

/// Forwards requests to their upstreams. One instance serves the whole process.
#[derive(Debug)]
pub struct Forwarder {
    stack: Stack,
    channel: Arc<ObservationChannel>,
    shutdown: watch::Sender<ShutdownState>,
}

type Stack = Route<Observe<Respond<Admission<Relay>>, RequestOpener>>;

impl Forwarder {
    pub fn new(dependencies: Dependencies) -> Arc<Self> {
        let Dependencies { routes, channel, unrouted, propagation } = dependencies;
        let shutdown = watch::Sender::new(ShutdownState::Serving);
        let opener = RequestOpener { channel: Arc::clone(&channel), propagation };
        let stack = ServiceBuilder::new()
            // Finds the route of the request.
            .layer_fn(|inner| Route { inner, routes: routes.clone(), unrouted: unrouted.clone() })
            // Opens the exchange and copies both bodies into the observation channel.
            .layer(ObserveLayer::with_opener(opener))
            // Answers with an error response if a service below fails.
            .layer_fn(|inner| Respond { inner })
            // Waits for a permit of the route's concurrency limiter.
            .layer_fn(|inner| Admission { inner, shutdown: shutdown.clone() })
            // Sends the request to its upstream.
            .service(Relay { shutdown: shutdown.clone() });
        Arc::new(Self { stack, channel, shutdown })
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
        let request = ClientRequest { request, client: self.client.clone() };
        self.stack.clone().call(request)
    }
}
