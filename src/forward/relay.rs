//! The innermost service. Sends an admitted request to its upstream and returns the response.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::upgrade::OnUpgrade;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::Service;

use super::body::{BodyTimeouts, ConnectionShare, RelayBody};
use super::buffered_body::{self, readable_body};
use super::connect;
use super::error::ForwardError;
use super::headers;
use super::http1::Http1Connection;
use super::http2::{self, Http2Sender, StreamFailure, StreamPermit, UpstreamConnection};
use super::repeat::{RepeatableRequest, SentBody};
use super::request::ForwardRequest;
use super::route::Destination;
use super::tunnel::Tunnel;
use super::{Retry, ShutdownState};
use tokengauge_listen::HeaderLimits;
use tokengauge_listen::websocket::{upgrades_to_websocket, wants_websocket};
use tokengauge_observe::describe_response;
use tokengauge_observe::tee::RequestObserver;
use tokengauge_types::clock;
use tokengauge_types::event::{
    ConnectTimings, Ending, ObserverEvent, RejectReason, TimeoutKind, UpstreamFailure,
};

/// Sends each request to its upstream. Polling the response body also makes the connection progress.
#[derive(Clone, Debug)]
pub struct Relay {
    pub(super) shutdown: watch::Sender<ShutdownState>,
}

/// The response future of [`Relay`]. It is boxed to free its memory when the response headers are returned. hyper would
/// keep an unboxed future in memory for the lifetime of the connection.
type RelayFuture = Pin<Box<dyn Future<Output = Result<Response<RelayBody>, ForwardError>> + Send>>;

impl Service<ForwardRequest> for Relay {
    type Response = Response<RelayBody>;
    type Error = ForwardError;
    type Future = RelayFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ForwardError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ForwardRequest) -> RelayFuture {
        let ForwardRequest { http, destination, received_at: _ } = request;
        let observer = http.body().observer().clone();
        let shutdown = self.shutdown.clone();
        let exchange = ForwardAttempt { destination, observer, shutdown, is_second: false };
        Box::pin(exchange.run(Box::new(http.map(SentBody::new))))
    }
}

/// A request to an upstream. It is boxed, because the future of each function below would otherwise contain it.
type OutgoingRequest = Box<Request<SentBody>>;

/// State of one request from its admission to the response headers.
struct ForwardAttempt {
    destination: Destination,
    observer: RequestObserver,
    shutdown: watch::Sender<ShutdownState>,
    /// Whether this is the second attempt, because the reused connection of the first attempt had been closed.
    is_second: bool,
}

/// The response headers, and the source of the body.
struct Received {
    response: Response<Incoming>,
    connection: ConnectionShare,
}

/// Why an attempt to send a request failed.
struct AttemptError {
    error: ForwardError,
    /// The request, if no byte of it was written.
    unsent: Option<OutgoingRequest>,
    /// Whether it is proven that the upstream has not processed the request.
    is_unread: bool,
    /// Whether the connection ended before the first byte of the response.
    is_lost: bool,
}

impl Received {
    /// Returns an error if the response cannot be forwarded: its headers exceed `limits`, it switches protocols
    /// unexpectedly, or its length is ambiguous.
    fn if_expected(mut self, upgrade: bool, limits: HeaderLimits) -> Result<Self, ForwardError> {
        let size = limits.check(self.response.headers());
        let has_length = headers::unify_content_length(self.response.headers_mut()).is_ok();
        let headers = self.response.headers();
        let is_switch = self.response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let cause = if let Err(too_large) = size {
            format!("its headers have {too_large}")
        } else if is_switch && !(upgrade && upgrades_to_websocket(headers)) {
            "it switched to a protocol that was not requested".to_owned()
        } else if headers::has_unsupported_coding(headers) {
            "it used a transfer coding other than chunked, which was not requested".to_owned()
        } else if !has_length {
            "its Content-Length is not one number".to_owned()
        } else {
            return Ok(self);
        };
        Err(ForwardError::with_cause(Ending::UpstreamFailed(UpstreamFailure::Protocol), cause))
    }
}

impl From<ForwardError> for AttemptError {
    fn from(error: ForwardError) -> Self {
        Self { error, unsent: None, is_unread: false, is_lost: false }
    }
}

impl AttemptError {
    /// The error of an attempt that is the last one.
    fn into_error(self) -> ForwardError {
        match self.unsent {
            Some(unsent) => with_unsent(self.error, unsent),
            None => self.error,
        }
    }
}

impl ForwardAttempt {
    async fn run(
        mut self,
        mut request: OutgoingRequest,
    ) -> Result<Response<RelayBody>, ForwardError> {
        let Destination { upstream, stripped, .. } = &self.destination;
        let client = request.extensions_mut().remove::<OnUpgrade>();
        let upgrade = client.filter(|_| wants_websocket(&request));
        let has_upgrade = upgrade.is_some();
        if headers::rewrite_request(&mut request, upstream, *stripped, has_upgrade).is_err() {
            let error = ForwardError::new(Ending::Rejected(RejectReason::BadRequest));
            return Err(with_unsent(error, request));
        }
        let sent = self.send(request, has_upgrade).await;
        let upstream = &self.destination.upstream;
        let limits = upstream.config().header_limits;
        match sent.and_then(|received| received.if_expected(has_upgrade, limits)) {
            Ok(received) => {
                upstream.log_response(received.response.status(), clock::now);
                Ok(self.respond(received, upgrade))
            }
            Err(error) => {
                upstream.log_failure(&error);
                Err(ForwardError { upstream: Some(upstream.config().name.clone()), ..error })
            }
        }
    }

    /// Sends the request within its time limits. If a reused connection turns out to be closed and [`Retry`] allows a
    /// repetition, sends the request a second time, on another connection. There is no third attempt.
    async fn send(
        &mut self,
        mut request: OutgoingRequest,
        upgrade: bool,
    ) -> Result<Received, ForwardError> {
        let begun = clock::now();
        // An upgraded connection is not pooled, and its request could not be repeated.
        let mut idle = if upgrade { None } else { self.destination.upstream.pool.take() };
        loop {
            let (connection, connected) = match idle.take().map(UpstreamConnection::reused) {
                Some(reused) => reused,
                None => {
                    let lost = self.is_second.then(|| clock::now() - begun);
                    // The futures of new connections are large, and most requests reuse a connection.
                    let (connection, mut connected, unsent) =
                        Box::pin(self.connect(request)).await?;
                    request = unsent;
                    // The time of the first attempt counts as a wait for the connection.
                    if let Some(lost) = lost {
                        connected.wait = Some(lost + connected.wait.unwrap_or_default());
                    }
                    (connection, connected)
                }
            };
            let has_second_attempt = connected.reused && !self.is_second;
            self.report_sent(connected, &request);
            let copy = if has_second_attempt { self.copy(&mut request) } else { None };
            let failed = match self.attempt(connection, request, upgrade).await {
                Ok(received) => return Ok(received),
                Err(failed) if has_second_attempt => failed,
                Err(failed) => return Err(failed.into_error()),
            };
            request = self.repetition(failed, copy)?;
            self.is_second = true;
        }
    }

    /// Keeps what a second attempt needs, unless only an unsent request may be sent again.
    fn copy(&self, request: &mut OutgoingRequest) -> Option<Box<RepeatableRequest>> {
        match self.destination.upstream.config().retry {
            Retry::Safe | Retry::Always => RepeatableRequest::copy(request).map(Box::new),
            Retry::Never => None,
        }
    }

    /// The request for the second attempt, or the error of the first one if [`Retry`] allows no second attempt.
    fn repetition(
        &self,
        failed: AttemptError,
        copy: Option<Box<RepeatableRequest>>,
    ) -> Result<OutgoingRequest, ForwardError> {
        if let Some(unsent) = failed.unsent {
            return Ok(unsent);
        }
        let upstream = &self.destination.upstream;
        let may_repeat = |request: &RepeatableRequest| match upstream.config().retry {
            Retry::Safe => failed.is_unread || request.is_idempotent(),
            Retry::Always => true,
            Retry::Never => false,
        };
        let copy = copy.filter(|request| failed.is_lost && may_repeat(request));
        let request = copy.and_then(|request| request.into_request()).ok_or(failed.error)?;
        upstream.health.count_retry();
        Ok(request)
    }

    /// Opens a connection. Reads the request body ahead at the same time, so that the observer has the request even
    /// without a response.
    async fn connect(
        &self,
        mut request: OutgoingRequest,
    ) -> Result<(UpstreamConnection, ConnectTimings, OutgoingRequest), ForwardError> {
        let body = readable_body(&mut request).and_then(SentBody::upload_mut);
        let connecting = async {
            tokio::select! {
                biased;
                connected = self.destination.upstream.connect() => connected.map_err(connect_error),
                () = buffered_body::read_ahead_until_failure(body) => {
                    Err(ForwardError::new(Ending::RequestBodyFailed))
                }
            }
        };
        let connected = match self.destination.deadline {
            None => connecting.await,
            Some(deadline) => tokio::time::timeout_at(deadline, connecting)
                .await
                .unwrap_or_else(|_| Err(ForwardError::new(Ending::TimedOut(TimeoutKind::Total)))),
        };
        match connected {
            Ok((connection, connected)) => Ok((connection, connected, request)),
            Err(error) => Err(with_unsent(error, request)),
        }
    }

    /// Reports that the request has a connection and is being sent.
    fn report_sent(&self, connected: ConnectTimings, request: &Request<SentBody>) {
        let at = clock::now();
        self.observer.report(at, connected.into());
        self.observer.report(at, ObserverEvent::RequestHeadSent);
        if request.body().is_end_stream() {
            self.observer.request_end(at);
        }
    }

    async fn attempt(
        &self,
        connection: UpstreamConnection,
        request: OutgoingRequest,
        upgrade: bool,
    ) -> Result<Received, AttemptError> {
        let sending = pin!(self.exchange_heads(connection, request, upgrade));
        match self.head_limit() {
            None => sending.await,
            Some((deadline, limit)) => {
                let timed_out = || AttemptError::from(ForwardError::new(Ending::TimedOut(limit)));
                // Boxed, because most requests have no limit.
                let sent = Box::pin(tokio::time::timeout_at(deadline, sending)).await;
                sent.unwrap_or_else(|_| Err(timed_out()))
            }
        }
    }

    async fn exchange_heads(
        &self,
        connection: UpstreamConnection,
        mut request: OutgoingRequest,
        upgrade: bool,
    ) -> Result<Received, AttemptError> {
        // Over HTTP/2, a flush covers all streams, so it does not show when the body of a single stream was sent.
        let flush = match &connection {
            UpstreamConnection::Http1(connection) => Some(Arc::clone(&connection.state.flush)),
            UpstreamConnection::Http2(..) => None,
        };
        request.body_mut().report_end_by(flush);
        match connection {
            UpstreamConnection::Http2(sender, permit) => {
                self.send_http2(sender, permit, request).await
            }
            UpstreamConnection::Http1(connection) if upgrade => {
                let sent = connection.detach_for_upgrade().try_send_request(*request).await;
                let response = sent.map_err(|error| self.attempt_error(error))?;
                Ok(Received { response, connection: ConnectionShare::Detached })
            }
            UpstreamConnection::Http1(connection) => self.send_http1(connection, request).await,
        }
    }

    async fn send_http1(
        &self,
        mut connection: Box<Http1Connection>,
        mut request: OutgoingRequest,
    ) -> Result<Received, AttemptError> {
        headers::convert_to_http1(&mut request);
        let pool = &self.destination.upstream.pool;
        let sent = connection.send(request).await;
        match sent.map_err(|error| self.attempt_error(error)) {
            Ok(response) => {
                if connection.is_reused() {
                    pool.on_reused();
                }
                let connection = self.choose_driver(connection, &response);
                Ok(Received { response, connection })
            }
            Err(failed) => {
                let is_lost = connection.is_reused()
                    && !self.observer.is_ended()
                    && !connection.state.has_received();
                if is_lost {
                    pool.on_reuse_failed();
                }
                let must_ask = is_lost && failed.unsent.is_none();
                let is_unread = must_ask && Box::pin(connection.is_request_unread()).await;
                Err(AttemptError { is_unread, is_lost, ..failed })
            }
        }
    }

    /// Decides whether the response body or a separate task polls `connection`.
    fn choose_driver(
        &self,
        connection: Box<Http1Connection>,
        response: &Response<Incoming>,
    ) -> ConnectionShare {
        // During a second attempt, `is_uploaded` can be true because of the first one.
        if self.is_second || !self.observer.is_uploaded() {
            connection.detach();
            return ConnectionShare::Detached;
        }
        let is_reusable = !headers::has_ambiguous_length(response);
        let pool = is_reusable.then(|| Arc::clone(&self.destination.upstream.pool));
        ConnectionShare::Http1(connection, pool)
    }

    async fn send_http2(
        &self,
        mut sender: Http2Sender,
        permit: StreamPermit,
        request: OutgoingRequest,
    ) -> Result<Received, AttemptError> {
        match sender.try_send_request(*request).await {
            Ok(response) => Ok(Received { response, connection: ConnectionShare::Http2(permit) }),
            Err(error) => {
                let failure = StreamFailure::from_error(error.error());
                let is_unread = failure == StreamFailure::Refused;
                let is_lost = failure != StreamFailure::Reset && !self.observer.is_ended();
                if is_lost {
                    permit.retire();
                }
                Err(AttemptError { is_unread, is_lost, ..self.attempt_error(error) })
            }
        }
    }

    fn attempt_error(&self, mut error: TrySendError<Request<SentBody>>) -> AttemptError {
        let unsent = error.take_message().map(Box::new);
        AttemptError { unsent, ..self.sending_error(&error.into_error()).into() }
    }

    /// Returns the earlier of the two limits for the response headers: the headers timeout and the total timeout.
    fn head_limit(&self) -> Option<(Instant, TimeoutKind)> {
        let head = self.destination.upstream.config().timeouts.response_header;
        let head = head.map(|limit| (Instant::now() + limit, TimeoutKind::ResponseHeader));
        let total = self.destination.deadline.map(|deadline| (deadline, TimeoutKind::Total));
        head.into_iter().chain(total).min_by_key(|(at, _)| *at)
    }

    fn sending_error(&self, error: &hyper::Error) -> ForwardError {
        let ending = if self.observer.is_ended() {
            Ending::RequestBodyFailed
        } else if error.is_parse() || http2::has_invalid_headers(error) {
            Ending::UpstreamFailed(UpstreamFailure::Protocol)
        } else {
            Ending::UpstreamFailed(UpstreamFailure::BeforeResponse)
        };
        let limits = self.destination.upstream.config().header_limits;
        let cause = if error.is_parse_too_large() {
            format!("its headers exceed the limits of {limits}")
        } else if http2::has_invalid_headers(error) {
            format!("its headers are malformed, or far exceed the limits of {limits}")
        } else {
            with_scheme_hint(error.to_string(), self.destination.upstream.config().tls)
        };
        ForwardError::with_cause(ending, cause)
    }

    fn respond(self, received: Received, upgrade: Option<OnUpgrade>) -> Response<RelayBody> {
        let Self { destination, observer, shutdown, is_second: _ } = self;
        let Destination { upstream, permit, deadline, .. } = destination;
        let Received { mut response, connection } = received;
        let limits = BodyTimeouts { idle: upstream.config().timeouts.idle, deadline };
        let switched = response.extensions_mut().remove::<OnUpgrade>();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && let (Some(client), Some(switched)) = (upgrade, switched)
        {
            // The response headers are reported here, so that they precede all events of the tunnel.
            let at = clock::now();
            observer.head(at, describe_response(&response, false));
            observer.upgraded(at);
            let tunnel = Tunnel { client, upstream: switched, observer, limits, permit };
            let mut shutdown = shutdown.subscribe();
            tokio::spawn(async move {
                tokio::select! {
                    () = tunnel.run() => {}
                    _ = shutdown.wait_for(|state| *state == ShutdownState::Aborting) => {}
                }
            });
            return headers::rewrite_response(response, true)
                .map(|_| RelayBody::local(Bytes::new()));
        }
        headers::rewrite_response(response, false)
            .map(|body| RelayBody::upstream(body, connection, upstream, permit))
            .map(|body| body.with_timeouts(limits, &observer))
    }
}

/// Adds the body of `request`, which no connection has taken, to `error`.
fn with_unsent(error: ForwardError, request: OutgoingRequest) -> ForwardError {
    error.with_unsent(request.map(SentBody::into_upload))
}

fn connect_error(error: connect::ConnectError) -> ForwardError {
    match error {
        connect::ConnectError::TimedOut => {
            ForwardError::new(Ending::TimedOut(TimeoutKind::Connect))
        }
        connect::ConnectError::Failed(failure, cause) => {
            ForwardError::with_cause(Ending::UpstreamFailed(failure), cause)
        }
    }
}

/// Adds advice to the error of a response that does not start with an HTTP version. A TLS server sends such a response
/// to a request in plain text.
fn with_scheme_hint(error: String, tls: bool) -> String {
    if tls || !error.contains("HTTP version") {
        return error;
    }
    format!("{error}; if the upstream expects TLS, write https:// in its URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// glibc caches freed memory per thread only up to 1,032 bytes.
    #[test]
    fn the_future_of_a_request_is_small() {
        fn future_size<F: Future>(_: impl FnOnce(ForwardAttempt, OutgoingRequest) -> F) -> usize {
            size_of::<F>()
        }
        let size = future_size(ForwardAttempt::run);
        assert!(size <= 1_032, "{size}");
    }

    #[test]
    fn names_the_scheme_if_a_response_does_not_start_like_http() {
        let error = || "invalid HTTP version parsed".to_owned();
        assert!(with_scheme_hint(error(), false).ends_with("write https:// in its URL"));
        assert_eq!(with_scheme_hint(error(), true), error());
        assert_eq!(with_scheme_hint("other".to_owned(), false), "other");
    }
}
