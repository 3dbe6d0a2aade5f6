//! Finds the route of a request and opens its exchange, for the [`ObserveLayer`](tokengauge_observe::ObserveLayer).

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Request;

use super::buffered_body::Upload;
use super::open_sockets;
use super::route::{Destination, RouteTable};
use super::target;
use crate::route::TraceHeaders;
use tokengauge_listen::{Peer, ReceivedBody};
use tokengauge_observe::tee::{ObservationChannel, RequestObserver};
use tokengauge_observe::trace::Propagation;
use tokengauge_observe::{OpenExchange, RequestContext, describe_request, host};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{RejectReason, RouteFacts, Scheme};

/// A request as it arrives from the listener, before routing.
#[derive(Debug)]
pub struct ClientRequest {
    pub(super) request: Request<ReceivedBody>,
    pub(super) client: Peer,
}

/// A request whose exchange is open. While its body is read and sent, the body reports events to the observer.
#[derive(Debug)]
pub struct OpenRequest {
    pub(super) request: Request<Upload>,
    pub(super) received_at: MonotonicInstant,
    pub(super) destination: Result<Destination, RejectReason>,
}

/// Routes requests and opens their exchanges. The route determines the upstream and the concurrency limit.
#[derive(Debug)]
pub struct RequestOpener {
    /// The current routes. A reload replaces the table; each request keeps its original route.
    pub routes: Arc<ArcSwap<RouteTable>>,
    pub channel: Arc<ObservationChannel>,
    /// Route facts that are reported for requests that match no route.
    pub unrouted: Arc<RouteFacts>,
    pub propagation: Propagation,
}

impl OpenRequest {
    pub(super) fn observer(&self) -> &RequestObserver {
        self.request.body().observer()
    }
}

impl OpenExchange<ClientRequest> for RequestOpener {
    type Request = OpenRequest;

    fn open(&self, request: ClientRequest) -> (OpenRequest, RequestObserver) {
        let ClientRequest { mut request, client } = request;
        let routes = self.routes.load();
        let (route, trace_headers, destination) =
            match routes.find(host(&request), request.uri().path()) {
                Some((route, destination)) => (Arc::clone(&route.facts), route.trace, destination),
                None => {
                    let destination = Err(RejectReason::NoRoute);
                    (Arc::clone(&self.unrouted), TraceHeaders::default(), destination)
                }
            };
        let identity = routes.identity().read(request.headers());
        // Drops the reference to the table before the request is forwarded, so that a reload does not wait for any
        // request.
        drop(routes);
        let is_loop = client.connection.as_deref().is_some_and(open_sockets::is_own);
        let destination = if is_loop {
            Err(RejectReason::Loop)
        } else if target::has_one_host(&request) {
            destination
        } else {
            Err(RejectReason::BadRequest)
        };
        let received_at = clock::now();
        let (trace, carried) = self.propagation.read(request.headers());
        let context = RequestContext {
            route,
            connection: client.connection,
            scheme: if client.tls { Scheme::Https } else { Scheme::Http },
            trace,
            conversation: self.propagation.conversation(request.headers()),
            identity,
        };
        let open = describe_request(&request, context);
        if trace_headers == TraceHeaders::Continue {
            self.propagation.write(&open.trace, carried, request.headers_mut());
        }
        let observer = self.channel.open(open, received_at);
        let request = request.map(|body| Upload::new(body, observer.clone()));
        (OpenRequest { request, received_at, destination }, observer)
    }
}
