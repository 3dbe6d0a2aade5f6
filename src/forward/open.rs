//! Starts the observation of a routed request, for the [`ObserveLayer`](tokengauge_observe::ObserveLayer).

use std::sync::Arc;

use http::Request;

use super::buffered_body::Upload;
use super::route::{Destination, RoutedRequest};
use crate::route::TraceHeaders;
use tokengauge_observe::tee::{ObservationChannel, RequestObserver};
use tokengauge_observe::trace::Propagation;
use tokengauge_observe::{OpenExchange, RequestContext, describe_request};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{RejectReason, Scheme};

/// A request that is being observed. The body reports to the observer while it is read from the client and sent.
#[derive(Debug)]
pub struct ObservedRequest {
    pub(super) request: Request<Upload>,
    pub(super) received_at: MonotonicInstant,
    pub(super) destination: Result<Destination, RejectReason>,
}

#[derive(Debug)]
pub struct RequestOpener {
    pub(super) channel: Arc<ObservationChannel>,
    pub(super) propagation: Propagation,
}

impl ObservedRequest {
    pub(super) fn observer(&self) -> &RequestObserver {
        self.request.body().observer()
    }
}

impl OpenExchange<RoutedRequest> for RequestOpener {
    type Request = ObservedRequest;

    fn open(&self, request: RoutedRequest) -> (ObservedRequest, RequestObserver) {
        let received_at = clock::now();
        let RoutedRequest { mut request, client, facts, identity, trace_headers, destination } =
            request;
        let (trace, carried) = self.propagation.read(request.headers());
        let context = RequestContext {
            route: facts,
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
        (ObservedRequest { request, received_at, destination }, observer)
    }
}
