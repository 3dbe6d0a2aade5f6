//! One `ext_proc` stream: a request and its response.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{Request, Version};

use crate::ai;
use crate::counts::Counts;
use crate::flags;
use crate::frames;
use crate::heads::{self, Attributes};
use crate::open_exchanges::Exchange;
use crate::proto::{HttpBody, HttpHeaders, Metadata, Part, ProcessingRequest, text};
use crate::shared::Shared;
use tokengauge_observe::{RequestContext, describe_request, describe_response};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    BackpressureTime, CallerIdentity, Direction, Ending, ObserverEvent, Scheme, SessionSource,
};
use tokengauge_types::label::Name;

/// `response.code_details` of a response that comes from the upstream. Envoy generated all others.
const FROM_UPSTREAM: &str = "via_upstream";

/// Namespace of dynamic metadata whose fields `tenant`, `session` and `variant` take precedence over the headers that the
/// configuration names.
const IDENTITY_NAMESPACE: &str = "tokengauge";

/// Whether the stream goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flow {
    Continue,
    /// Everything was received. The service ends the gRPC stream, so that Envoy need not wait for its
    /// `deferred_close_timeout`.
    Finished,
}

/// How a gRPC stream ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Closed {
    /// Envoy ended the stream.
    ByEnvoy,
    /// The stream was reset, or its connection was lost.
    Lost,
}

/// Turns the messages of one stream into events of the observer.
#[derive(Debug)]
pub struct Processor {
    shared: Arc<Shared>,
    exchange: Option<Arc<Exchange>>,
    version: Version,
    /// The ending of a response that Envoy itself generated, once its headers were received.
    own_ending: Option<Ending>,
    has_usage: bool,
}

impl Processor {
    pub fn new(shared: Arc<Shared>) -> Self {
        Counts::count(&shared.counts.streams);
        Self {
            shared,
            exchange: None,
            version: Version::HTTP_11,
            own_ending: None,
            has_usage: false,
        }
    }

    /// Applies one message. Appends the answer to `answers` if Envoy waits for one.
    pub fn apply(
        &mut self,
        at: MonotonicInstant,
        message: ProcessingRequest,
        answers: &mut BytesMut,
    ) -> Flow {
        if !message.observability_mode {
            if message.protocol_config.is_some_and(|config| config.wants_body()) {
                self.shared.counts.count_refusal("a body mode in which the service sends bodies");
                return Flow::Finished;
            }
            if let Some(part) = &message.part {
                self.shared.counts.count_answer();
                // An empty answer means that Envoy goes on with the unchanged message.
                frames::write(&[part.answer_field() << 3 | 2, 0], answers);
            }
        }
        let ProcessingRequest { part, metadata_context, attributes, .. } = message;
        let attributes = Attributes(&attributes);
        match (part, &self.exchange) {
            (None, _) => Flow::Continue,
            (Some(Part::RequestHeaders(headers)), None) => {
                self.open(at, &headers, attributes, metadata_context.as_ref());
                Flow::Continue
            }
            (Some(_), None) => {
                self.shared.counts.count_refusal("no request headers");
                Flow::Finished
            }
            (Some(part), Some(exchange)) => {
                let exchange = Arc::clone(exchange);
                exchange.touch(at);
                self.report_usage(at, &exchange, metadata_context.as_ref());
                self.advance(at, &exchange, part, attributes)
            }
        }
    }

    /// Records that a message of this length was too large for the memory budget.
    pub fn skip(&self, bytes: usize) {
        if let Some(Exchange { observer, .. }) = self.exchange.as_deref() {
            let direction =
                if observer.has_head() { Direction::Response } else { Direction::Request };
            observer.record_loss(direction, u64::try_from(bytes).unwrap_or(u64::MAX));
        }
    }

    /// Ends the exchange if its response has not ended.
    pub fn close(&self, at: MonotonicInstant, closed: Closed) {
        let Some(exchange) = &self.exchange else { return };
        if exchange.observer.is_ended() {
            return;
        }
        // Envoy answers for an upstream that fails before its response. Without any response, the client has left.
        if closed == Closed::ByEnvoy && !exchange.observer.has_head() {
            return exchange.observer.end(at, Ending::ClientDisconnected);
        }
        Counts::count(&self.shared.counts.unknown_ends);
        exchange.end_unknown(at);
    }

    fn open(
        &mut self,
        at: MonotonicInstant,
        headers: &HttpHeaders,
        attributes: Attributes<'_>,
        metadata: Option<&Metadata>,
    ) {
        self.version = attributes.version();
        let empty = crate::proto::HeaderMap::default();
        let list = headers.headers.as_ref().unwrap_or(&empty);
        let (request, is_https) = heads::request(list, self.version);
        let scheme = if is_https { Scheme::Https } else { Scheme::Http };
        let head = self.describe(&request, scheme, attributes, metadata);
        let observer = self.shared.channel.open(head, at);
        // Envoy has no queue, and its connections are not visible here.
        observer.report(at, ObserverEvent::Admitted);
        observer.report(at, ObserverEvent::RequestHeadSent);
        if headers.end_of_stream {
            observer.request_end(at);
        }
        let exchange = Arc::new(Exchange::new(observer, at));
        let id = request.headers().get("x-request-id").and_then(|id| id.to_str().ok());
        if let Some(id) = id.filter(|id| !id.is_empty()) {
            self.shared.open.insert(id, &exchange);
        }
        self.exchange = Some(exchange);
    }

    fn describe(
        &self,
        request: &Request<()>,
        scheme: Scheme,
        attributes: Attributes<'_>,
        metadata: Option<&Metadata>,
    ) -> tokengauge_types::event::RequestHead {
        let Shared { routes, propagation, identity, .. } = &*self.shared;
        let (trace, _) = propagation.read(request.headers());
        let conversation = propagation.conversation(request.headers());
        let (sent, session_rule) = identity(request.headers(), conversation.as_ref());
        let context = RequestContext {
            route: routes
                .get(attributes.text("xds.route_name"), attributes.text("xds.cluster_name")),
            connection: None,
            scheme,
            trace,
            conversation,
            identity: with_metadata(sent, metadata),
            session_rule,
        };
        let mut head = describe_request(request, context);
        head.client = attributes.client().or(None::<IpAddr>);
        head
    }

    fn advance(
        &mut self,
        at: MonotonicInstant,
        exchange: &Exchange,
        part: Part,
        attributes: Attributes<'_>,
    ) -> Flow {
        let observer = &exchange.observer;
        match part {
            // Envoy sends headers once. Room in the channel is reserved for one event each.
            Part::RequestHeaders(_) => Flow::Continue,
            Part::ResponseHeaders(_) if observer.has_head() => Flow::Continue,
            Part::RequestBody(body) => {
                if record(exchange, at, Direction::Request, &body) {
                    observer.request_end(at);
                }
                Flow::Continue
            }
            Part::RequestTrailers(_) => {
                if !observer.is_uploaded() {
                    observer.report(at, ObserverEvent::Trailers(Direction::Request));
                    observer.request_end(at);
                }
                Flow::Continue
            }
            Part::ResponseHeaders(headers) => {
                self.response_head(at, exchange, &headers, attributes);
                self.end_if(headers.end_of_stream, at, exchange)
            }
            Part::ResponseBody(body) => {
                let is_last = record(exchange, at, Direction::Response, &body);
                self.end_if(is_last, at, exchange)
            }
            Part::ResponseTrailers(_) => {
                observer.report(at, ObserverEvent::Trailers(Direction::Response));
                self.end_if(true, at, exchange)
            }
        }
    }

    /// Reports the token count of Envoy's AI filter, which is part of the metadata once the response is complete.
    fn report_usage(
        &mut self,
        at: MonotonicInstant,
        exchange: &Exchange,
        metadata: Option<&Metadata>,
    ) {
        let usage = metadata.filter(|_| !self.has_usage).and_then(ai::usage);
        if let Some(usage) = usage {
            self.has_usage = true;
            exchange.observer.report(at, ObserverEvent::GatewayUsage(Box::new(usage)));
        }
    }

    fn response_head(
        &mut self,
        at: MonotonicInstant,
        exchange: &Exchange,
        headers: &HttpHeaders,
        attributes: Attributes<'_>,
    ) {
        let list = headers.headers.as_ref();
        let Some(response) = list.and_then(|list| heads::response(list, self.version)) else {
            return;
        };
        let flags = attributes.whole_number("response.flags").unwrap_or_default();
        self.own_ending = flags::ending(flags, exchange.observer.has_head());
        let details = attributes.text("response.code_details");
        let is_own = self.own_ending.is_some() || details.is_some_and(|it| it != FROM_UPSTREAM);
        exchange.observer.head(at, describe_response(&response, is_own));
    }

    fn end_if(&self, is_last: bool, at: MonotonicInstant, exchange: &Exchange) -> Flow {
        if !is_last {
            return Flow::Continue;
        }
        exchange.observer.end(at, self.own_ending.unwrap_or(Ending::Complete));
        Flow::Finished
    }
}

/// Copies a body chunk into the observation channel. Returns whether the body ends with it.
fn record(
    exchange: &Exchange,
    at: MonotonicInstant,
    direction: Direction,
    body: &HttpBody,
) -> bool {
    let chunk: &Bytes = &body.body;
    exchange.observer.record_body(direction, at, chunk, BackpressureTime::default());
    body.end_of_stream || body.end_of_stream_without_message
}

/// Replaces the identity by that of Envoy's dynamic metadata, where present.
fn with_metadata(identity: CallerIdentity, metadata: Option<&Metadata>) -> CallerIdentity {
    let fields = metadata.and_then(|metadata| metadata.filter_metadata.get(IDENTITY_NAMESPACE));
    let Some(fields) = fields else { return identity };
    let named = |field| text(fields, field).and_then(Name::new);
    let session = named("session");
    let source = session.as_ref().map(|_| SessionSource::Configured);
    CallerIdentity {
        tenant: named("tenant").or(identity.tenant),
        session: session.or(identity.session),
        session_source: source.or(identity.session_source),
        variant: named("variant").or(identity.variant),
        ..identity
    }
}

#[cfg(test)]
mod tests;
