//! Observes a service or a client inside the same process, without a proxy.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body::Body;

use crate::describe::{RequestContext, describe_request};
use crate::layer::{ObserveLayer, OpenExchange};
use crate::tee::body::RequestBody;
use crate::tee::{ObservationChannel, RequestObserver};
use crate::trace::Propagation;
use tokengauge_types::clock;
use tokengauge_types::event::{
    CallerIdentity, ObserverEvent, ProxyPosition, RouteFacts, Scheme, SessionRule,
};
use tokengauge_types::label::Label;

/// Describes the service or the client that an [`ObserveLayer`](crate::ObserveLayer) observes.
#[derive(Clone, Debug)]
pub struct Endpoint {
    facts: RouteFacts,
}

impl Endpoint {
    /// Describes a service that runs in this process. `name` becomes the value of the metric label `route`.
    pub fn server(name: &str) -> Self {
        Self::new(name, ProxyPosition::Inbound, "localhost", 0)
    }

    /// Describes a client that calls `host`. The provider is inferred from `host` if [`provider`](Self::provider) does
    /// not set it.
    pub fn client(name: &str, host: &str, port: u16) -> Self {
        Self::new(name, ProxyPosition::Outbound, host, port)
    }

    fn new(name: &str, position: ProxyPosition, host: &str, port: u16) -> Self {
        Self { facts: RouteFacts { position, ..RouteFacts::for_upstream(name, host, port) } }
    }

    /// Sets the label `gen_ai.provider.name`.
    pub fn provider(mut self, provider: &str) -> Self {
        self.facts.provider = Some(Label::from_trusted(provider));
        self
    }

    /// Sets the API format, such as `openai` or `anthropic`. By default, it is detected from the path and the headers.
    pub fn api(mut self, api: &str) -> Self {
        self.facts.dialect = Some(Label::from_trusted(api));
        self
    }
}

impl ObserveLayer<EndpointOpener> {
    /// Creates a layer that reports the requests of `endpoint` to `channel`. [`Observation`](crate::Observation)
    /// provides a channel and the observer that reads it.
    pub fn new(channel: Arc<ObservationChannel>, endpoint: Endpoint) -> Self {
        Self::with_opener(EndpointOpener::new(channel, endpoint))
    }
}

/// Opens the exchanges of an [`Endpoint`].
#[derive(Debug)]
pub struct EndpointOpener {
    channel: Arc<ObservationChannel>,
    route: Arc<RouteFacts>,
    propagation: Propagation,
}

impl EndpointOpener {
    pub fn new(channel: Arc<ObservationChannel>, endpoint: Endpoint) -> Self {
        let Endpoint { facts } = endpoint;
        Self { channel, route: Arc::new(facts), propagation: Propagation::default() }
    }
}

impl<B: Body<Data = Bytes>> OpenExchange<Request<B>> for EndpointOpener {
    type Request = Request<RequestBody<B>>;

    fn open(&self, request: Request<B>) -> (Self::Request, RequestObserver) {
        let at = clock::now();
        let (trace, _) = self.propagation.read(request.headers());
        let conversation = self.propagation.conversation(request.headers());
        let session_rule = SessionRule { detect: true, hasher: None };
        let is_https = request.uri().scheme() == Some(&http::uri::Scheme::HTTPS);
        let context = RequestContext {
            route: Arc::clone(&self.route),
            connection: None,
            scheme: if is_https { Scheme::Https } else { Scheme::Http },
            trace,
            identity: CallerIdentity::detect(
                request.headers(),
                conversation.as_ref(),
                &session_rule,
            ),
            conversation,
            session_rule,
        };
        let observer = self.channel.open(describe_request(&request, context), at);
        // The exchange is admitted immediately, because there is no queue and no new connection.
        observer.report(at, ObserverEvent::Admitted);
        observer.report(at, ObserverEvent::RequestHeadSent);
        if request.body().is_end_stream() {
            observer.request_end(at);
        }
        (request.map(|body| RequestBody::new(body, observer.clone())), observer)
    }
}
