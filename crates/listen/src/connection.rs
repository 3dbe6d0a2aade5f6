//! One client connection: the TLS handshake, the detection of the HTTP version, serving, and the shutdown with
//! the listener.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::TlsAcceptor;

use super::Peer;
use super::exchanges::{CountingService, Exchanges};
use super::replay::ReplayStream;
use super::socket::Accepted;
use super::state::{Member, Phase};
use tokengauge_types::notifier::{MOST_ROUNDS, Notifier};

/// Creates the HTTP service of each connection.
pub trait Handler: Clone + Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>>
        + Send
        + Unpin
        + 'static;
    type Service: Service<
            Request<Incoming>,
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
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
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
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
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
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let stream = TokioIo::new(stream);
        let (service, exchanges) = CountingService::new(service);
        if http2 {
            let connection = self.http2.serve_connection(stream, service);
            tokio::spawn(Serving::new(Box::pin(connection), guards, exchanges));
        } else {
            let connection = self.http1.serve_connection(stream, service).with_upgrades();
            tokio::spawn(Serving::new(connection, guards, exchanges));
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
            () = self.member.finishing() => None,
        }
    }
}

/// A connection that can shut down gracefully after its current exchange.
trait Graceful: Future<Output = hyper::Result<()>> + Unpin {
    /// Whether the protocol reports to the client which requests were not processed. If true, a graceful
    /// shutdown can start at any time.
    const REPORTS_UNPROCESSED: bool;

    /// Closes the connection after the current exchange, or immediately if no exchange is active.
    fn finish(&mut self);
}

impl<T, S, B> Graceful for http1::UpgradeableConnection<T, S>
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Unpin,
    B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + 'static,
{
    const REPORTS_UNPROCESSED: bool = false;

    fn finish(&mut self) {
        Pin::new(self).graceful_shutdown();
    }
}

impl<T, S, B> Graceful for Pin<Box<http2::Connection<T, S, TokioExecutor>>>
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
    B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
{
    const REPORTS_UNPROCESSED: bool = true;

    fn finish(&mut self) {
        self.as_mut().graceful_shutdown();
    }
}

/// Future that serves a connection. It is hand-written, because an `async` block would store the connection
/// twice.
struct Serving<C> {
    connection: C,
    guards: ConnectionGuards,
    registered: bool,
    exchanges: Arc<Exchanges>,
    end: Shutdown,
    /// Receives the wake-ups that hyper sends to its own connection task when a handler polls a request body.
    /// The notifier handles such a wake-up within the same poll.
    notifier: Arc<Notifier>,
    waker: Waker,
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
        // Resets the phase that was read during the handshake, so that this task receives the phase again.
        guards.member.forget();
        Self {
            connection,
            guards,
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
                self.connection.finish();
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
            self.connection.finish();
            self.end = Shutdown::Started;
        }
        due
    }
}

impl<C: Graceful> Future for Serving<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let Poll::Ready(phase) = this.guards.member.poll_change(cx, &mut this.registered)
            && this.enter(phase)
        {
            return Poll::Ready(());
        }
        this.end_if_due();
        this.notifier.enter(cx.waker());
        for _ in 0..MOST_ROUNDS {
            // Exchanges report their own endings to the observer. This code counts only requests that never
            // became an exchange.
            let polled = Pin::new(&mut this.connection).poll(&mut Context::from_waker(&this.waker));
            if let Poll::Ready(ended) = polled {
                if ended.is_err_and(|error| error.is_parse()) {
                    this.guards.member.count_refused();
                }
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
