//! From a request to its response: choose the route, open the exchange, send on, hand back.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::{CONTENT_LENGTH, EXPECT, HOST};
use http::{HeaderMap, Request, Response, request};
use hyper::body::Incoming;
use hyper::service::Service;
use tokio::sync::watch;
use tokio::time::Instant;

use super::admission::{
    BufferedBody, ConcurrencyLimiter, Entry, Full, Permit, WaitInterrupt, overload,
};
use super::exchange::{Exchange, ForwardError};
use super::identity::Identity;
use super::route_table::{Found, RouteTable};
use super::upstream::Upstream;
use super::{Answer, Propagation, answer, query};
use crate::route::TraceHeaders;
use tokengauge_observe::tee::body::ResponseBody;
use tokengauge_observe::tee::{ObservationChannel, RequestObserver};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{
    self, Ending, Headers, LiveState, REQUEST_HEADERS, RESPONSE_HEADERS, RejectReason, RouteFacts,
    Scheme, TraceContext,
};
use tokengauge_types::label::{Label, Name};
use tokengauge_types::tcp::TcpConnection;

/// What a forwarder is made of.
#[derive(Debug)]
pub struct Parts {
    /// Swapped for others on a reload; each exchange keeps the one it began with.
    pub ways: Arc<ArcSwap<RouteTable>>,
    pub channel: Arc<ObservationChannel>,
    /// What is said of a request that no route fits.
    pub unrouted: Arc<RouteFacts>,
    pub propagation: Propagation,
}

/// Sends requests on to their upstreams; one for the whole process.
#[derive(Debug)]
pub struct Forwarder {
    ways: Arc<ArcSwap<RouteTable>>,
    channel: Arc<ObservationChannel>,
    unrouted: Arc<RouteFacts>,
    propagation: Propagation,
    phase: watch::Sender<ShutdownState>,
}

/// How far the proxy's own end has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ShutdownState {
    Serving,
    /// What has begun may finish; who waits for a place is sent away.
    Draining,
    /// What has not finished is ended.
    Aborting,
}

/// Who sent a request, as far as its connection tells.
#[derive(Clone, Debug)]
pub struct Client {
    /// None behind a Unix socket.
    pub connection: Option<Arc<TcpConnection>>,
    pub scheme: Scheme,
}

/// Where a request goes; what it needs of its route, so that the table is not held meanwhile.
struct SelectedRoute {
    facts: Arc<RouteFacts>,
    upstream: Option<Arc<Upstream>>,
    stripped: usize,
    trace: TraceHeaders,
    door: Option<Arc<ConcurrencyLimiter>>,
    identity: Arc<Identity>,
}

/// A request that is there, as far as its being let in concerns it.
struct Arrived {
    parts: request::Parts,
    body: BufferedBody,
    /// When it was received; then, when it was let in.
    at: MonotonicInstant,
    /// Of the whole exchange.
    deadline: Option<Instant>,
}

impl Forwarder {
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { ways, channel, unrouted, propagation } = parts;
        Arc::new(Self {
            ways,
            channel,
            unrouted,
            propagation,
            phase: watch::Sender::new(ShutdownState::Serving),
        })
    }

    /// The service of one connection of `client`.
    pub fn service(self: &Arc<Self>, client: Client) -> ForwardService {
        ForwardService { forwarder: Arc::clone(self), client }
    }

    /// Sends away whoever waits for a place, and from here on whoever would have to: elsewhere there may be one.
    pub fn drain(&self) {
        self.phase.send_replace(ShutdownState::Draining);
    }

    /// Ends what no listener holds (upgraded exchanges), and has everything that ends from here on count as cut off
    /// by this proxy. For a drain whose time is up.
    pub fn cut(&self) {
        self.channel.cut();
        self.phase.send_replace(ShutdownState::Aborting);
    }

    /// Answers `request`, always: a failure is an answer too.
    pub async fn forward(
        self: Arc<Self>,
        request: Request<Incoming>,
        client: Client,
    ) -> Response<Answer> {
        let at = clock::now();
        let (mut parts, body) = request.into_parts();
        let way = self.choose(&parts);
        let (trace, carried) = self.propagation.read(&parts.headers);
        let open = event::RequestHead {
            trace,
            conversation: self.propagation.conversation(&parts.headers),
            ..open(&parts, &way, client)
        };
        if way.trace == TraceHeaders::Continue {
            self.propagation.write(&open.trace, carried, &mut parts.headers);
        }
        let observer = self.channel.open(open, at);
        let SelectedRoute { upstream, stripped, door, .. } = way;
        let Some(upstream) = upstream else {
            return fail(
                &observer,
                &ForwardError::of(Ending::Rejected(RejectReason::NoRoute)),
                None,
            );
        };
        let total = upstream.config().timeouts.total;
        let mut arrived = Arrived {
            parts,
            body: BufferedBody::new(body),
            at,
            deadline: total.map(|total| Instant::now() + total),
        };
        let place = match door {
            None => None,
            Some(door) => match self.admit(&door, &observer, &mut arrived).await {
                Ok(place) => Some(place),
                Err(failed) => return fail(&observer, &failed, None),
            },
        };
        let Arrived { parts, body, at, deadline } = arrived;
        observer.admitted(at);
        let exchange =
            Exchange { upstream, observer, place, deadline, phase: self.phase.subscribe() };
        exchange.run(parts, body, stripped).await
    }

    /// A place for the exchange, at once or after a while in the queue. Boxed there: most exchanges never wait.
    async fn admit(
        &self,
        door: &Arc<ConcurrencyLimiter>,
        observer: &RequestObserver,
        arrived: &mut Arrived,
    ) -> Result<Permit, ForwardError> {
        let queued = match door.enter() {
            Ok(Entry::Inside(place)) => return Ok(place),
            Ok(Entry::Queued(queued)) => queued,
            Err(Full(limits)) => return Err(overload(&limits, "the queue is full")),
        };
        observer.queued(clock::now());
        // Who asks whether to send the body at all shall not send it to be told 429.
        let asks = arrived.parts.headers.contains_key(EXPECT);
        let meanwhile = WaitInterrupt {
            body: (!asks).then_some(&mut arrived.body),
            deadline: arrived.deadline,
            phase: self.phase.subscribe(),
        };
        let turn = Box::pin(queued.turn(meanwhile)).await;
        arrived.at = clock::now();
        if let Err(ForwardError { ending: ending @ Ending::RequestBodyFailed, .. }) = turn {
            // Before the answer that nobody will read: what ended it was not that.
            observer.end(arrived.at, ending);
        }
        turn
    }

    fn choose(&self, parts: &request::Parts) -> SelectedRoute {
        let ways = self.ways.load();
        let identity = Arc::clone(ways.identity());
        match ways.find(host(parts), parts.uri.path()) {
            None => SelectedRoute {
                facts: Arc::clone(&self.unrouted),
                upstream: None,
                stripped: 0,
                trace: TraceHeaders::default(),
                door: None,
                identity,
            },
            Some(Found { target, upstream, door }) => SelectedRoute {
                facts: Arc::clone(&target.facts),
                upstream: upstream.cloned(),
                stripped: target.stripped,
                trace: target.trace,
                door: door.cloned(),
                identity,
            },
        }
    }
}

/// Says that the exchange failed, and answers so.
pub(super) fn fail(
    observer: &RequestObserver,
    failed: &ForwardError,
    upstream: Option<&Label>,
) -> Response<Answer> {
    let ending = &failed.ending;
    let response = answer::own(failed, upstream);
    let at = clock::now();
    observer.head(at, head(&response, true));
    observer.end(at, *ending);
    response.map(|body| ResponseBody::silent(body, observer.clone()))
}

/// What may be known of a response's head.
pub(super) fn head<B>(response: &Response<B>, own: bool) -> event::ResponseHead {
    event::ResponseHead {
        status: response.status().as_u16(),
        version: response.version(),
        headers: Headers::pick(response.headers(), &RESPONSE_HEADERS),
        length: length(response.headers()),
        own,
    }
}

fn open(parts: &request::Parts, way: &SelectedRoute, client: Client) -> event::RequestHead {
    event::RequestHead {
        wall: clock::wall_now(),
        method: parts.method.clone(),
        path: Name::new(parts.uri.path()).unwrap_or_else(root),
        model: parts.uri.query().and_then(query::model),
        host: host(parts).and_then(Name::new),
        version: parts.version,
        scheme: client.scheme,
        headers: Headers::pick(&parts.headers, &REQUEST_HEADERS),
        length: length(&parts.headers),
        client: client.connection.as_ref().map(|it| it.remote.ip()),
        connection: client.connection,
        route: Arc::clone(&way.facts),
        trace: TraceContext::default(),
        conversation: None,
        who: way.identity.read(&parts.headers),
        cell: Arc::<LiveState>::default(),
    }
}

/// The target of a CONNECT has no path.
fn root() -> Name {
    Name::new("/").unwrap_or_else(|| unreachable!("it is not empty"))
}

/// The host that was asked for; that of the target goes before the header.
fn host(parts: &request::Parts) -> Option<&str> {
    let of_target = parts.uri.authority().map(|authority| {
        let text = authority.as_str();
        text.rsplit_once('@').map_or(text, |(_, host)| host)
    });
    of_target.or_else(|| parts.headers.get(HOST)?.to_str().ok())
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// A [`Forwarder`] for the requests of one connection.
#[derive(Clone, Debug)]
pub struct ForwardService {
    forwarder: Arc<Forwarder>,
    client: Client,
}

impl Service<Request<Incoming>> for ForwardService {
    type Response = Response<Answer>;
    type Error = Infallible;
    /// Boxed: hyper keeps the place of this future for as long as the connection lives, but what is in the box is gone
    /// once the head was handed back.
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let answering = Arc::clone(&self.forwarder).forward(request, self.client.clone());
        Box::pin(async { Ok(answering.await) })
    }
}
