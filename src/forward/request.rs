//! A request on its way through the services of the forwarder.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Request;

use super::buffered_body::Upload;
use super::open_sockets;
use super::route::{Destination, RouteTable, TraceHeaders, has_one_host};
use tokengauge_listen::{HeadersTooLarge, Peer, ReceivedBody};
use tokengauge_observe::tee::{ObservationChannel, RequestObserver};
use tokengauge_observe::trace::Propagation;
use tokengauge_observe::{OpenExchange, RequestContext, describe_request, host};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{RejectReason, RouteFacts, Scheme};

/// A request from a listener.
#[derive(Debug)]
pub struct ClientRequest {
    pub(super) http: Request<ReceivedBody>,
    pub(super) client: Peer,
}

/// A request that has a route and is being observed. Its body reports to the observer while it is read from the client
/// and sent.
#[derive(Debug)]
pub struct ForwardRequest {
    pub(super) http: Request<Upload>,
    pub(super) received_at: MonotonicInstant,
    pub(super) destination: Destination,
}

/// A request that is not forwarded. It is observed as well, so that telemetry also counts rejected requests.
#[derive(Debug)]
pub struct RejectedRequest {
    pub(super) http: Request<Upload>,
    pub(super) reason: RejectReason,
}

/// Dependencies of a [`Forwarder`](super::Forwarder).
#[derive(Debug)]
pub struct Dependencies {
    /// The current routes. A reload replaces the table. A request that has started keeps its route.
    pub routes: Arc<ArcSwap<RouteTable>>,
    pub channel: Arc<ObservationChannel>,
    /// Route name and other labels for the telemetry of requests that match no route.
    pub unrouted: Arc<RouteFacts>,
    pub propagation: Propagation,
}

/// Finds the route of each request and starts its observation.
#[derive(Debug)]
pub struct RouteAndObserve(pub(super) Dependencies);

impl OpenExchange<ClientRequest> for RouteAndObserve {
    type Request = Result<ForwardRequest, RejectedRequest>;

    fn open(&self, request: ClientRequest) -> (Self::Request, RequestObserver) {
        let Dependencies { routes, channel, unrouted, propagation } = &self.0;
        let received_at = clock::now();
        let ClientRequest { mut http, client } = request;
        // A request that waits for its upstream must not keep a replaced table, so the reference ends with this call.
        let routes = routes.load();
        let (route, found) = match routes.find(host(&http), http.uri().path()) {
            Some((route, found)) => (Some(route), found),
            None => (None, Err(RejectReason::NoRoute)),
        };
        let destination = if client.connection.as_deref().is_some_and(open_sockets::is_own) {
            Err(RejectReason::Loop)
        } else if http.extensions().get::<HeadersTooLarge>().is_some() {
            Err(RejectReason::HeadersTooLarge)
        } else if has_one_host(&http) {
            found
        } else {
            Err(RejectReason::BadRequest)
        };
        let observer = if route.is_some_and(|route| !route.observed) {
            // Without a span of its own, the proxy forwards the trace headers unchanged.
            channel.open_excluded()
        } else {
            let (trace, carried) = propagation.read(http.headers());
            let conversation = propagation.conversation(http.headers());
            let (identity, session_rule) =
                routes.identity().read(http.headers(), conversation.as_ref());
            let context = RequestContext {
                route: Arc::clone(route.map_or(unrouted, |route| &route.facts)),
                connection: client.connection,
                scheme: if client.tls { Scheme::Https } else { Scheme::Http },
                trace,
                conversation,
                identity,
                session_rule,
            };
            let open = describe_request(&http, context);
            if route.is_some_and(|route| route.trace == TraceHeaders::Continue) {
                propagation.write(&open.trace, carried, http.headers_mut());
            }
            channel.open(open, received_at)
        };
        let http = http.map(|body| Upload::new(body, observer.clone()));
        let request = match destination {
            Ok(destination) => Ok(ForwardRequest { http, received_at, destination }),
            Err(reason) => Err(RejectedRequest { http, reason }),
        };
        (request, observer)
    }
}
