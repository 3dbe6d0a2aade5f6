//! One exchange with an upstream, from the admitted request to the response's head.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, request};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::upgrade::OnUpgrade;
use tokio::sync::watch;
use tokio::time::Instant;

use super::admission::{BufferedBody, Permit};
use super::body::{Lease, RelayBody};
use super::forwarder::{ShutdownState, fail, head};
use super::tunnel::Tunnel;
use super::upstream::{Channel, Upstream};
use super::{Answer, Upload, connect, headers as heads};
use tokengauge_observe::tee::RequestObserver;
use tokengauge_observe::tee::body::{Limits, RequestBody, ResponseBody};
use tokengauge_types::clock;
use tokengauge_types::event::{ConnectTimings, Ending, RejectReason, TimeoutKind, UpstreamFailure};

/// An admitted request's way to its upstream.
pub(super) struct Exchange {
    pub(super) upstream: Arc<Upstream>,
    pub(super) observer: RequestObserver,
    /// None where the route has no limit.
    pub(super) place: Option<Permit>,
    pub(super) deadline: Option<Instant>,
    pub(super) phase: watch::Receiver<ShutdownState>,
}

/// Why there is no response to hand back.
#[derive(Debug)]
pub(super) struct ForwardError {
    pub(super) ending: Ending,
    /// What is known beyond the ending; empty where nothing is. It comes from this program, sockets, TLS and hyper, never
    /// from a URL or a header, so no secret can be in it.
    pub(super) cause: String,
    /// When it is worth trying again, where that is known.
    pub(super) retry_after: Option<Duration>,
}

impl ForwardError {
    pub(super) const fn of(ending: Ending) -> Self {
        Self { ending, cause: String::new(), retry_after: None }
    }
}

/// A response's head is there; who feeds its body?
struct Received {
    response: Response<Incoming>,
    /// Polled with the body; none where a task of its own feeds it.
    lease: Option<Lease>,
}

impl Exchange {
    pub(super) async fn run(
        mut self,
        mut parts: request::Parts,
        body: BufferedBody,
        stripped: usize,
    ) -> Response<Answer> {
        let client = parts.extensions.remove::<OnUpgrade>();
        let upgrade = client.filter(|_| heads::wants_upgrade(&parts));
        if heads::readdress(&mut parts, &self.upstream, stripped, upgrade.is_some()).is_err() {
            let failed = ForwardError::of(Ending::Rejected(RejectReason::BadRequest));
            return fail(&self.observer, &failed, None);
        }
        let request = Request::from_parts(parts, RequestBody::new(body, self.observer.clone()));
        match self.ask(request, upgrade.is_some()).await {
            Ok(received) => self.hand_back(received, upgrade),
            Err(failed) => fail(&self.observer, &failed, Some(&self.upstream.config.name)),
        }
    }

    /// Sends the request within the time limits. An upstream that closed an idle connection before anything was
    /// written gets the request once more, on a new one; nothing that wrote a byte is ever repeated.
    async fn ask(
        &mut self,
        request: Request<Upload>,
        upgrade: bool,
    ) -> Result<Received, ForwardError> {
        let wanted = clock::now();
        let idle = match self.upstream.take_idle() {
            None => None,
            Some(link) => {
                let connected = ConnectTimings {
                    reused: true,
                    connection: link.ends.clone(),
                    ..ConnectTimings::default()
                };
                Some((Channel::Http1(link), connected))
            }
        };
        let fresh = idle.is_none();
        let (channel, connected) = match idle {
            Some(idle) => idle,
            None => self.connect().await?,
        };
        let request = match self.send(channel, connected, request, upgrade).await {
            Ok(received) => return received,
            Err(unsent) => *unsent,
        };
        if fresh {
            return Err(ForwardError::of(Ending::UpstreamFailed(UpstreamFailure::BeforeResponse)));
        }
        let lost = clock::now() - wanted;
        let (channel, connected) = self.connect().await?;
        let connected =
            ConnectTimings { wait: Some(lost + connected.wait.unwrap_or_default()), ..connected };
        self.send(channel, connected, request, upgrade).await.unwrap_or_else(|_| {
            Err(ForwardError::of(Ending::UpstreamFailed(UpstreamFailure::BeforeResponse)))
        })
    }

    async fn connect(&self) -> Result<(Channel, ConnectTimings), ForwardError> {
        let connecting = self.upstream.connect();
        let connected = match self.deadline {
            None => connecting.await,
            Some(deadline) => tokio::time::timeout_at(deadline, connecting)
                .await
                .map_err(|_| ForwardError::of(Ending::TimedOut(TimeoutKind::Total)))?,
        };
        connected.map_err(|error| match error {
            connect::Error::TimedOut => ForwardError::of(Ending::TimedOut(TimeoutKind::Connect)),
            connect::Error::Failed(failure, cause) => {
                ForwardError { cause, ..ForwardError::of(Ending::UpstreamFailed(failure)) }
            }
        })
    }

    /// Sends the request over `channel`; gives it back where the channel turned out closed before it wrote a byte.
    async fn send(
        &self,
        channel: Channel,
        connected: ConnectTimings,
        request: Request<Upload>,
        upgrade: bool,
    ) -> Result<Result<Received, ForwardError>, Box<Request<Upload>>> {
        let nothing_to_upload = request.body().is_end_stream();
        let at = clock::now();
        self.observer.connected(at, connected);
        self.observer.sent(at);
        if nothing_to_upload {
            self.observer.request_end(at);
        }
        let limit = self.head_limit();
        let sending = pin!(self.exchange_heads(channel, request, upgrade));
        let sent = match limit {
            None => sending.await,
            Some((deadline, limit)) => match tokio::time::timeout_at(deadline, sending).await {
                Ok(sent) => sent,
                Err(_) => return Ok(Err(ForwardError::of(Ending::TimedOut(limit)))),
            },
        };
        match sent {
            Ok(received) => Ok(Ok(received)),
            Err(mut error) => match error.take_message() {
                Some(unsent) => Err(Box::new(unsent)),
                None => Ok(Err(self.failed(&error.into_error()))),
            },
        }
    }

    async fn exchange_heads(
        &self,
        channel: Channel,
        mut request: Request<Upload>,
        upgrade: bool,
    ) -> Result<Received, TrySendError<Request<Upload>>> {
        // Streams side by side flush together, which tells nothing of any one of them.
        let written = match &channel {
            Channel::Http1(link) => Some(Arc::clone(&link.written)),
            Channel::Http2(_) => None,
        };
        request.body_mut().sent_over(written);
        let (response, lease) = match channel {
            Channel::Http2(mut sender) => (sender.try_send_request(request).await?, None),
            Channel::Http1(link) if upgrade => {
                let mut sender = link.detach_for_upgrade();
                (sender.try_send_request(request).await?, None)
            }
            Channel::Http1(mut link) => {
                heads::speak_http1(&mut request);
                let response = link.send(request).await?;
                if self.observer.uploaded() {
                    let upstream = Arc::clone(&self.upstream);
                    (response, Some(Lease { link, upstream }))
                } else {
                    link.detach();
                    (response, None)
                }
            }
        };
        Ok(Received { response, lease })
    }

    /// The nearer of the two limits that run while the head is waited for.
    fn head_limit(&self) -> Option<(Instant, TimeoutKind)> {
        let head = self.upstream.config.timeouts.head;
        let head = head.map(|limit| (Instant::now() + limit, TimeoutKind::ResponseHeader));
        let total = self.deadline.map(|deadline| (deadline, TimeoutKind::Total));
        match (head, total) {
            (Some(head), Some(total)) => Some(if head.0 <= total.0 { head } else { total }),
            (head, total) => head.or(total),
        }
    }

    fn failed(&self, error: &hyper::Error) -> ForwardError {
        let ending = if self.observer.is_ended() {
            Ending::RequestBodyFailed
        } else if error.is_parse() {
            Ending::UpstreamFailed(UpstreamFailure::Protocol)
        } else {
            Ending::UpstreamFailed(UpstreamFailure::BeforeResponse)
        };
        ForwardError { cause: error.to_string(), ..ForwardError::of(ending) }
    }

    fn hand_back(self, received: Received, upgrade: Option<OnUpgrade>) -> Response<Answer> {
        let Self { upstream, observer, place, deadline, phase } = self;
        let Received { mut response, lease } = received;
        observer.head(clock::now(), head(&response, false));
        let theirs = response.extensions_mut().remove::<OnUpgrade>();
        let switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let (mut parts, body) = response.into_parts();
        heads::hand_back(&mut parts, switching);
        if switching && let (Some(client), Some(theirs)) = (upgrade, theirs) {
            observer.upgraded(clock::now());
            let tunnel = Tunnel { client, upstream: theirs, observer: observer.clone(), place };
            tokio::spawn(until_cut(tunnel, phase));
            return Response::from_parts(
                parts,
                Answer::silent(RelayBody::own(Bytes::new()), observer),
            );
        }
        let limits = Limits { idle: upstream.config.timeouts.idle, deadline };
        let source = RelayBody::upstream(body, lease, place);
        Response::from_parts(parts, ResponseBody::new(source, observer, limits))
    }
}

async fn until_cut(tunnel: Tunnel, mut phase: watch::Receiver<ShutdownState>) {
    tokio::select! {
        () = tunnel.run() => {}
        _ = phase.wait_for(|phase| *phase == ShutdownState::Aborting) => {}
    }
}
