//! One client connection: the TLS handshake, the detection of the HTTP version, serving, and the shutdown with
//! the listener.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsAcceptor;

use super::client_stream::{ClientStream, Transport};
use super::delivery::{Http1, Http2};
use super::exchanges::{Exchanges, Leftover};
use super::replay::ReplayStream;
use super::service::CountingService;
use super::socket::Accepted;
use super::state::{Member, Phase};
use super::{Peer, ReceivedBody};
use tokengauge_types::notifier::{MOST_ROUNDS, Notifier};

/// Creates the HTTP service of each connection.
pub trait Handler: Clone + Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>>
        + Send
        + Unpin
        + 'static;
    type Service: Service<
            Request<ReceivedBody>,
            Response = Response<Self::Body>,
            Error = Infallible,
            Future: Send + Unpin + 'static,
        > + Send
        + Unpin
        + 'static;

    fn service_for(&self, peer: Peer) -> Self::Service;
}

impl<F, S, B> Handler for F
where
    F: Fn(Peer) -> S + Clone + Send + Sync + 'static,
    S: Service<Request<ReceivedBody>, Response = Response<B>, Error = Infallible>
        + Send
        + Unpin
        + 'static,
    S::Future: Send + Unpin + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + Unpin + 'static,
{
    type Body = B;
    type Service = S;

    fn service_for(&self, peer: Peer) -> S {
        self(peer)
    }
}

/// Settings for serving connections.
#[derive(Clone, Debug)]
pub(super) struct Server {
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
    tls: Option<Arc<Acceptor>>,
    head_timeout: Duration,
}

struct Acceptor(TlsAcceptor);

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

/// Interval of HTTP/2 keep-alive pings, which detect dead clients. HTTP/1 has no such ping.
const HTTP2_PING: Duration = Duration::from_secs(30);

impl Server {
    pub(super) fn new(tls: Option<TlsAcceptor>, head_timeout: Duration) -> Self {
        let mut http1 = http1::Builder::new();
        // The timer starts with each request's headers and is dropped when they arrive. Streamed chunks
        // therefore cause no timer overhead.
        http1
            .timer(TokioTimer::new())
            .header_read_timeout(head_timeout)
            .preserve_header_case(true)
            .auto_date_header(false);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2.timer(TokioTimer::new()).keep_alive_interval(HTTP2_PING).auto_date_header(false);
        Self { http1, http2, tls: tls.map(|tls| Arc::new(Acceptor(tls))), head_timeout }
    }

    /// Serves one connection in a separate task.
    pub(super) fn serve<H: Handler>(
        &self,
        accepted: Accepted,
        handler: H,
        member: Member,
        permit: OwnedSemaphorePermit,
    ) {
        let server = self.clone();
        let guards = ConnectionGuards { member, permit };
        tokio::spawn(async move {
            match accepted {
                Accepted::Unix(stream) => {
                    let peer = Peer { connection: None, tls: false };
                    server.plain::<_, H>(stream, handler.service_for(peer), guards).await;
                }
                Accepted::Tcp(stream, connection) => {
                    let peer =
                        Peer { connection: connection.map(Arc::new), tls: server.tls.is_some() };
                    let service = handler.service_for(peer);
                    match &server.tls {
                        None => server.plain::<_, H>(stream, service, guards).await,
                        Some(tls) => {
                            server.secure::<H>(tls.0.accept(stream), service, guards).await
                        }
                    }
                }
            }
        });
    }

    async fn plain<T, H: Handler>(
        &self,
        stream: T,
        service: H::Service,
        mut guards: ConnectionGuards,
    ) where
        T: Transport,
    {
        if let Some((stream, http2)) =
            guards.opening(ReplayStream::read(stream), self.head_timeout).await
        {
            self.serve_http::<_, H>(stream, http2, service, guards);
        }
    }

    async fn secure<H: Handler>(
        &self,
        handshake: tokio_rustls::Accept<tokio::net::TcpStream>,
        service: H::Service,
        mut guards: ConnectionGuards,
    ) {
        if let Some(stream) = guards.opening(handshake, self.head_timeout).await {
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            self.serve_http::<_, H>(stream, http2, service, guards);
        }
    }

    /// Serves the connection in a new task of exactly the size that serving needs. The memory that opened the
    /// connection is freed.
    fn serve_http<T, H: Handler>(
        &self,
        stream: T,
        http2: bool,
        service: H::Service,
        guards: ConnectionGuards,
    ) where
        T: Transport,
    {
        if http2 {
            let (service, exchanges) = CountingService::<_, Http2>::new(service);
            let stream = ClientStream::new(stream, Arc::clone(exchanges.flush()));
            let connection = self.http2.serve_connection(TokioIo::new(stream), service);
            tokio::spawn(Serving::new(Box::pin(connection), guards, exchanges));
        } else {
            let (service, exchanges) = CountingService::<_, Http1>::new(service);
            let stream = ClientStream::new(stream, Arc::clone(exchanges.flush()));
            let connection = self.http1.serve_connection(TokioIo::new(stream), service);
            tokio::spawn(Serving::new(connection.with_upgrades(), guards, exchanges));
        }
    }
}

/// Resources that a connection holds while it is open.
#[derive(Debug)]
struct ConnectionGuards {
    member: Member,
    #[expect(dead_code, reason = "dropping it returns the permit")]
    permit: OwnedSemaphorePermit,
}

impl ConnectionGuards {
    /// Waits for `opening` and returns its result. Returns `None` if `opening` fails, if it takes longer than
    /// `limit`, or if the listener stops first.
    async fn opening<T>(
        &mut self,
        opening: impl Future<Output = std::io::Result<T>>,
        limit: Duration,
    ) -> Option<T> {
        tokio::select! {
            opened = tokio::time::timeout(limit, opening) => opened.ok()?.ok(),
            () = self.member.reached(Phase::Finishing) => None,
        }
    }
}

/// A connection that can shut down gracefully after its current exchange.
trait Graceful: Future<Output = hyper::Result<()>> + Unpin {
    /// Whether the protocol reports to the client which requests were not processed. If true, a graceful
    /// shutdown can start at any time.
    const REPORTS_UNPROCESSED: bool;

    type Transport: Transport;

    /// Closes the connection after the current exchange, or immediately if no exchange is active.
    fn finish(&mut self);

    /// Returns the stream of a connection that has ended, if the stream may need an orderly close.
    fn into_stream(self) -> Option<ClientStream<Self::Transport>>;
}

impl<T, S, B> Graceful for http1::UpgradeableConnection<TokioIo<ClientStream<T>>, S>
where
    T: Transport,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Unpin,
    B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + 'static,
{
    const REPORTS_UNPROCESSED: bool = false;

    type Transport = T;

    fn finish(&mut self) {
        Pin::new(self).graceful_shutdown();
    }

    fn into_stream(self) -> Option<ClientStream<T>> {
        Some(self.into_parts()?.io.into_inner())
    }
}

impl<T, S, B> Graceful for Pin<Box<http2::Connection<TokioIo<ClientStream<T>>, S, TokioExecutor>>>
where
    T: Transport,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
    B: Body<Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
    B::Data: Send,
{
    const REPORTS_UNPROCESSED: bool = true;

    type Transport = T;

    fn finish(&mut self) {
        self.as_mut().graceful_shutdown();
    }

    /// Over HTTP/2, the client knows from the frames what it has received.
    fn into_stream(self) -> Option<ClientStream<T>> {
        None
    }
}

/// Future that serves a connection. It is hand-written, because an `async` block would store the connection
/// twice.
struct Serving<C> {
    /// `None` once the connection has ended.
    open: Option<Open<C>>,
    registered: bool,
    exchanges: Arc<Exchanges>,
    end: Shutdown,
    /// Receives the wake-ups that hyper sends to its own connection task when a handler polls a request body.
    /// The notifier handles such a wake-up within the same poll.
    notifier: Arc<Notifier>,
    waker: Waker,
}

struct Open<C> {
    connection: C,
    guards: ConnectionGuards,
}

/// Shutdown state of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shutdown {
    /// No shutdown is due. The client decides when the connection ends.
    Open,
    /// The connection shuts down after its last exchange, once the number of started exchanges differs from
    /// `begun`.
    Unless { begun: u32 },
    /// The graceful shutdown was started.
    Started,
}

impl<C: Graceful> Serving<C> {
    fn new(connection: C, mut guards: ConnectionGuards, exchanges: Arc<Exchanges>) -> Self {
        let (notifier, waker) = Notifier::new();
        exchanges.flush().set_connection(waker.clone());
        // Resets the phase that was read during the handshake, so that this task receives the phase again.
        guards.member.forget();
        Self {
            open: Some(Open { connection, guards }),
            registered: false,
            exchanges,
            end: Shutdown::Open,
            notifier,
            waker,
        }
    }

    /// Applies a new phase of the listener. Returns whether the connection ends immediately.
    fn enter(&mut self, phase: Phase) -> bool {
        if phase > Phase::Serving && !C::REPORTS_UNPROCESSED {
            self.exchanges.close();
        }
        self.end = match (phase, self.end) {
            (Phase::Cut, _) => return true,
            (_, Shutdown::Started) | (Phase::Serving, _) => self.end,
            // An idle HTTP/1 connection may serve one more exchange. Closing the connection now could lose a
            // request that is in transit.
            (Phase::Draining, _) if !C::REPORTS_UNPROCESSED => {
                Shutdown::Unless { begun: self.exchanges.over() }
            }
            (Phase::Draining | Phase::ClosingIdle, _) => Shutdown::Unless { begun: 0 },
            (Phase::Finishing, _) => {
                self.finish();
                Shutdown::Started
            }
        };
        false
    }

    /// Starts the graceful shutdown if it is due. If this returns true, the shutdown has started and the
    /// connection must be polled again.
    fn end_if_due(&mut self) -> bool {
        let due = match self.end {
            Shutdown::Unless { begun } => self.exchanges.begun() != begun,
            Shutdown::Open | Shutdown::Started => false,
        };
        if due {
            self.finish();
            self.end = Shutdown::Started;
        }
        due
    }

    fn finish(&mut self) {
        if let Some(open) = &mut self.open {
            open.connection.finish();
        }
    }

    fn poll_connection(&mut self) -> Poll<()> {
        let Some(Open { connection, guards }) = &mut self.open else { return Poll::Ready(()) };
        // Exchanges report their own endings to the observer. This code counts only requests that never became an
        // exchange.
        let ended = ready!(Pin::new(connection).poll(&mut Context::from_waker(&self.waker)));
        if ended.is_err_and(|error| error.is_parse()) {
            guards.member.count_refused();
        }
        let leftover = self.exchanges.leftover();
        if leftover != Leftover::None
            && let Some(Open { connection, guards }) = self.open.take()
            && let Some(stream) = connection.into_stream()
        {
            tokio::spawn(close(stream, leftover, guards));
        }
        Poll::Ready(())
    }
}

/// Closes the connection after the client has received everything, unless the listener aborts its connections first.
async fn close<T: Transport>(
    stream: ClientStream<T>,
    leftover: Leftover,
    mut guards: ConnectionGuards,
) {
    tokio::select! {
        () = stream.close(leftover) => {}
        () = guards.member.reached(Phase::Cut) => {}
    }
}

impl<C: Graceful> Future for Serving<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(open) = &mut this.open else { return Poll::Ready(()) };
        if let Poll::Ready(phase) = open.guards.member.poll_change(cx, &mut this.registered)
            && this.enter(phase)
        {
            return Poll::Ready(());
        }
        this.end_if_due();
        this.notifier.enter(cx.waker());
        for _ in 0..MOST_ROUNDS {
            if this.poll_connection().is_ready() {
                return Poll::Ready(());
            }
            if !this.end_if_due() && this.notifier.leave() {
                return Poll::Pending;
            }
        }
        this.notifier.remind();
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
