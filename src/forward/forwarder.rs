//! From a request to its response: choose the route, open the exchange, send on, hand back.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, Request, Response, request};
use hyper::body::Incoming;
use hyper::service::Service;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::exchange::{Exchange, Failed};
use super::identity::Identity;
use super::upstream::Upstream;
use super::ways::Ways;
use super::{Answer, Propagation, answer, query};
use crate::clock;
use crate::label::{Label, Name};
use crate::route::TraceHeaders;
use crate::tcp::Connection;
use crate::tee::body::ResponseBody;
use crate::tee::{Seam, Tap};
use crate::wire::{
    self, Cell, Ending, Headers, REQUEST_HEADERS, RESPONSE_HEADERS, Refusal, RouteFacts, Scheme,
    Trace,
};

/// What a forwarder is made of.
#[derive(Debug)]
pub struct Parts {
    /// Swapped for others on a reload; each exchange keeps the one it began with.
    pub ways: Arc<ArcSwap<Ways>>,
    pub seam: Arc<Seam>,
    /// Exchanges open at once; further ones are refused. `None` is no limit.
    pub most_exchanges: Option<usize>,
    /// What is said of a request that no route fits.
    pub unrouted: Arc<RouteFacts>,
    pub propagation: Propagation,
}

/// Sends requests on to their upstreams; one for the whole process.
#[derive(Debug)]
pub struct Forwarder {
    ways: Arc<ArcSwap<Ways>>,
    seam: Arc<Seam>,
    places: Option<Arc<Semaphore>>,
    unrouted: Arc<RouteFacts>,
    propagation: Propagation,
    cut: watch::Sender<bool>,
}

/// Who sent a request, as far as its connection tells.
#[derive(Clone, Debug)]
pub struct Client {
    /// None behind a Unix socket.
    pub connection: Option<Arc<Connection>>,
    pub scheme: Scheme,
}

/// Where a request goes; what it needs of its route, so that the table is not held meanwhile.
struct Way {
    facts: Arc<RouteFacts>,
    upstream: Option<Arc<Upstream>>,
    stripped: usize,
    trace: TraceHeaders,
    identity: Arc<Identity>,
}

impl Forwarder {
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            ways,
            seam,
            most_exchanges,
            unrouted,
            propagation,
        } = parts;
        Arc::new(Self {
            ways,
            seam,
            places: most_exchanges
                .map(|most| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))),
            unrouted,
            propagation,
            cut: watch::Sender::new(false),
        })
    }

    /// The service of one connection of `client`.
    pub fn service(self: &Arc<Self>, client: Client) -> ForwardService {
        ForwardService {
            forwarder: Arc::clone(self),
            client,
        }
    }

    /// Ends what no listener holds (upgraded exchanges), and has everything that ends from here on count as cut off
    /// by this proxy. For a drain whose time is up.
    pub fn cut(&self) {
        self.seam.cut();
        self.cut.send_replace(true);
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
        let open = wire::Open {
            trace,
            conversation: self.propagation.conversation(&parts.headers),
            ..open(&parts, &way, client)
        };
        if way.trace == TraceHeaders::Continue {
            self.propagation
                .write(&open.trace, carried, &mut parts.headers);
        }
        let tap = self.seam.open(open, at);
        let Way {
            upstream, stripped, ..
        } = way;
        let Some(upstream) = upstream else {
            return self.refuse(&tap, Refusal::NoRoute);
        };
        let permit = match self.place() {
            Ok(permit) => permit,
            Err(refusal) => return self.refuse(&tap, refusal),
        };
        tap.admitted(at);
        let deadline = upstream
            .config()
            .timeouts
            .total
            .map(|total| Instant::now() + total);
        let exchange = Exchange {
            upstream,
            tap,
            permit,
            deadline,
            cut: self.cut.subscribe(),
        };
        exchange.run(parts, body, stripped).await
    }

    fn choose(&self, parts: &request::Parts) -> Way {
        let ways = self.ways.load();
        let (target, upstream) = ways.find(host(parts), parts.uri.path());
        Way {
            facts: target.map_or_else(
                || Arc::clone(&self.unrouted),
                |target| Arc::clone(&target.facts),
            ),
            upstream: upstream.cloned(),
            stripped: target.map_or(0, |target| target.stripped),
            trace: target.map_or_else(TraceHeaders::default, |target| target.trace),
            identity: Arc::clone(ways.identity()),
        }
    }

    fn place(&self) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        let Some(places) = &self.places else {
            return Ok(None);
        };
        match Arc::clone(places).try_acquire_owned() {
            Ok(permit) => Ok(Some(permit)),
            Err(_) => Err(Refusal::Overload),
        }
    }

    fn refuse(&self, tap: &Tap, refusal: Refusal) -> Response<Answer> {
        fail(tap, &Failed::of(Ending::Rejected(refusal)), None)
    }
}

/// Says that the exchange failed, and answers so.
pub(super) fn fail(tap: &Tap, failed: &Failed, upstream: Option<&Label>) -> Response<Answer> {
    let Failed { ending, cause } = failed;
    let response = answer::own(*ending, upstream, cause);
    let at = clock::now();
    tap.head(at, head(&response, true));
    tap.end(at, *ending);
    response.map(|body| ResponseBody::silent(body, tap.clone()))
}

/// What may be known of a response's head.
pub(super) fn head<B>(response: &Response<B>, own: bool) -> wire::Head {
    wire::Head {
        status: response.status().as_u16(),
        version: response.version(),
        headers: Headers::pick(response.headers(), &RESPONSE_HEADERS),
        length: length(response.headers()),
        own,
    }
}

fn open(parts: &request::Parts, way: &Way, client: Client) -> wire::Open {
    wire::Open {
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
        trace: Trace::default(),
        conversation: None,
        who: way.identity.read(&parts.headers),
        cell: Arc::<Cell>::default(),
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
