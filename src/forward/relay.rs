//! The innermost service: sends an admitted request to its upstream and returns the response.

use std::future::Future;
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

use super::ShutdownState;
use super::admission::AdmittedRequest;
use super::body::{BodyTimeouts, ConnectionLease, RelayBody};
use super::buffered_body::{self, Upload, readable_body};
use super::connect;
use super::error::ForwardError;
use super::headers;
use super::limiter::Permit;
use super::tunnel::Tunnel;
use super::upstream::{Channel, Upstream};
use tokengauge_observe::describe_response;
use tokengauge_observe::tee::RequestObserver;
use tokengauge_types::clock;
use tokengauge_types::event::{
    ConnectTimings, Ending, ObserverEvent, RejectReason, TimeoutKind, UpstreamFailure,
};

/// Sends each request to its upstream. The response body drives the connection.
#[derive(Clone, Debug)]
pub struct Relay {
    pub(super) shutdown: watch::Sender<ShutdownState>,
}

/// The response future of [`Relay`]. It is boxed, because hyper reserves memory for the future of a request for the
/// lifetime of the connection. The memory of the box is freed once the response headers are returned.
type RelayFuture = Pin<Box<dyn Future<Output = Result<Response<RelayBody>, ForwardError>> + Send>>;

impl Service<AdmittedRequest> for Relay {
    type Response = Response<RelayBody>;
    type Error = ForwardError;
    type Future = RelayFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ForwardError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: AdmittedRequest) -> RelayFuture {
        let AdmittedRequest { request, upstream, stripped, permit, deadline } = request;
        let observer = request.body().observer().clone();
        let shutdown = self.shutdown.clone();
        let exchange = Exchange { upstream, observer, permit, deadline, shutdown };
        Box::pin(exchange.run(request, stripped))
    }
}

/// State of one exchange with an upstream, until the response headers arrive.
struct Exchange {
    upstream: Arc<Upstream>,
    observer: RequestObserver,
    permit: Option<Permit>,
    deadline: Option<Instant>,
    shutdown: watch::Sender<ShutdownState>,
}

/// The response headers, and the source of the body.
struct Received {
    response: Response<Incoming>,
    /// The connection that the response body must drive. `None` if a separate task drives the connection.
    lease: Option<ConnectionLease>,
}

/// The result of one attempt to send a request. The outer error holds a request of which no byte was written, so that
/// it can be sent again.
type Attempt = Result<Result<Received, ForwardError>, Box<Request<Upload>>>;

impl Exchange {
    async fn run(
        mut self,
        mut request: Request<Upload>,
        stripped: usize,
    ) -> Result<Response<RelayBody>, ForwardError> {
        let client = request.extensions_mut().remove::<OnUpgrade>();
        let (mut parts, body) = request.into_parts();
        let upgrade = client.filter(|_| headers::wants_upgrade(&parts));
        let is_valid =
            headers::readdress(&mut parts, &self.upstream, stripped, upgrade.is_some()).is_ok();
        let request = Request::from_parts(parts, body);
        if !is_valid {
            let error = ForwardError::new(Ending::Rejected(RejectReason::BadRequest));
            return Err(error.with_unsent(request));
        }
        match self.send(request, upgrade.is_some()).await {
            Ok(received) => Ok(self.respond(received, upgrade)),
            Err(error) => {
                let upstream = Some(self.upstream.config.name.clone());
                Err(ForwardError { upstream, ..error })
            }
        }
    }

    /// Sends the request within the time limits. If an idle connection turns out to be closed before any byte was
    /// written, the request is sent once more on a new connection. A request is never repeated after its first byte was
    /// written.
    async fn send(
        &mut self,
        mut request: Request<Upload>,
        upgrade: bool,
    ) -> Result<Received, ForwardError> {
        let begun = clock::now();
        let mut lost = None;
        if let Some(connection) = self.upstream.take_idle() {
            let connected = ConnectTimings {
                reused: true,
                connection: connection.tcp.clone(),
                ..ConnectTimings::default()
            };
            let channel = Channel::Http1(connection);
            request = match self.attempt(channel, connected, request, upgrade).await {
                Ok(result) => return result,
                Err(unsent) => *unsent,
            };
            lost = Some(clock::now() - begun);
        }
        let (channel, mut connected) = match self.connect(&mut request).await {
            Ok(connected) => connected,
            Err(error) => return Err(error.with_unsent(request)),
        };
        if let Some(lost) = lost {
            connected.wait = Some(lost + connected.wait.unwrap_or_default());
        }
        let attempt = self.attempt(channel, connected, request, upgrade).await;
        attempt.unwrap_or_else(|unsent| {
            let failure = UpstreamFailure::BeforeResponse;
            Err(ForwardError::new(Ending::UpstreamFailed(failure)).with_unsent(*unsent))
        })
    }

    /// Opens a connection. Meanwhile, reads the body ahead, so that the observer has the request even if the upstream
    /// never responds.
    async fn connect(
        &self,
        request: &mut Request<Upload>,
    ) -> Result<(Channel, ConnectTimings), ForwardError> {
        let connecting = async {
            tokio::select! {
                biased;
                connected = self.upstream.connect() => connected.map_err(connect_error),
                () = buffered_body::failure(readable_body(request)) => {
                    Err(ForwardError::new(Ending::RequestBodyFailed))
                }
            }
        };
        match self.deadline {
            None => connecting.await,
            Some(deadline) => tokio::time::timeout_at(deadline, connecting)
                .await
                .unwrap_or_else(|_| Err(ForwardError::new(Ending::TimedOut(TimeoutKind::Total)))),
        }
    }

    async fn attempt(
        &self,
        channel: Channel,
        connected: ConnectTimings,
        request: Request<Upload>,
        upgrade: bool,
    ) -> Attempt {
        let has_no_body = request.body().is_end_stream();
        let at = clock::now();
        self.observer.report(at, ObserverEvent::Connected(Box::new(connected)));
        self.observer.report(at, ObserverEvent::RequestHeadSent);
        if has_no_body {
            self.observer.request_end(at);
        }
        let sending = pin!(self.exchange_heads(channel, request, upgrade));
        let sent = match self.head_limit() {
            None => sending.await,
            Some((deadline, limit)) => match tokio::time::timeout_at(deadline, sending).await {
                Ok(sent) => sent,
                Err(_) => return Ok(Err(ForwardError::new(Ending::TimedOut(limit)))),
            },
        };
        match sent {
            Ok(received) => Ok(Ok(received)),
            Err(mut error) => match error.take_message() {
                Some(unsent) => Err(Box::new(unsent)),
                None => Ok(Err(self.sending_error(&error.into_error()))),
            },
        }
    }

    async fn exchange_heads(
        &self,
        channel: Channel,
        mut request: Request<Upload>,
        upgrade: bool,
    ) -> Result<Received, TrySendError<Request<Upload>>> {
        // Over HTTP/2, a flush covers all streams, so it does not show when the body of a single stream was sent.
        let flush = match &channel {
            Channel::Http1(connection) => Some(Arc::clone(&connection.flush)),
            Channel::Http2(_) => None,
        };
        request.body_mut().report_end_by(flush);
        let (response, lease) = match channel {
            Channel::Http2(mut sender) => (sender.try_send_request(request).await?, None),
            Channel::Http1(connection) if upgrade => {
                let mut sender = connection.detach_for_upgrade();
                (sender.try_send_request(request).await?, None)
            }
            Channel::Http1(mut connection) => {
                headers::convert_to_http1(&mut request);
                let response = connection.send(request).await?;
                if self.observer.is_uploaded() {
                    let upstream = Arc::clone(&self.upstream);
                    (response, Some(ConnectionLease { connection, upstream }))
                } else {
                    connection.detach();
                    (response, None)
                }
            }
        };
        Ok(Received { response, lease })
    }

    /// Returns the earlier of the two time limits that apply until the response headers arrive.
    fn head_limit(&self) -> Option<(Instant, TimeoutKind)> {
        let head = self.upstream.config.timeouts.head;
        let head = head.map(|limit| (Instant::now() + limit, TimeoutKind::ResponseHeader));
        let total = self.deadline.map(|deadline| (deadline, TimeoutKind::Total));
        match (head, total) {
            (Some(head), Some(total)) => Some(if head.0 <= total.0 { head } else { total }),
            (head, total) => head.or(total),
        }
    }

    fn sending_error(&self, error: &hyper::Error) -> ForwardError {
        let ending = if self.observer.is_ended() {
            Ending::RequestBodyFailed
        } else if error.is_parse() {
            Ending::UpstreamFailed(UpstreamFailure::Protocol)
        } else {
            Ending::UpstreamFailed(UpstreamFailure::BeforeResponse)
        };
        ForwardError::with_cause(ending, error.to_string())
    }

    fn respond(self, received: Received, upgrade: Option<OnUpgrade>) -> Response<RelayBody> {
        let Self { upstream, observer, permit, deadline, shutdown } = self;
        let Received { mut response, lease } = received;
        let upstream_upgrade = response.extensions_mut().remove::<OnUpgrade>();
        let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if is_switching && let (Some(client), Some(upstream)) = (upgrade, upstream_upgrade) {
            // The response headers are reported here, so that they precede all events of the tunnel.
            let at = clock::now();
            observer.head(at, describe_response(&response, false));
            observer.upgraded(at);
            let tunnel = Tunnel { client, upstream, observer, permit };
            let mut shutdown = shutdown.subscribe();
            tokio::spawn(async move {
                tokio::select! {
                    () = tunnel.run() => {}
                    _ = shutdown.wait_for(|state| *state == ShutdownState::Aborting) => {}
                }
            });
            return headers::hand_back(response, true).map(|_| RelayBody::local(Bytes::new()));
        }
        let limits = BodyTimeouts { idle: upstream.config.timeouts.idle, deadline };
        headers::hand_back(response, is_switching)
            .map(|body| RelayBody::upstream(body, lease, permit).with_timeouts(limits, &observer))
    }
}

fn connect_error(error: connect::Error) -> ForwardError {
    match error {
        connect::Error::TimedOut => ForwardError::new(Ending::TimedOut(TimeoutKind::Connect)),
        connect::Error::Failed(failure, cause) => {
            ForwardError::with_cause(Ending::UpstreamFailed(failure), cause)
        }
    }
}
