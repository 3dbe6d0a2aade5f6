//! A single connection: TLS handshake, HTTP version detection, serving, and shutdown with the listener.

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
use super::exchanges::{Counted, Exchanges};
use super::first::First;
use super::phases::{Member, Phase};
use super::socket::Accepted;
use tokengauge_types::notifier::{MOST_ROUNDS, Notifier};

/// Creates the service of each connection.
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

/// Settings with which connections are served.
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

/// Interval of HTTP/2 keep-alive pings, which detect dead clients. HTTP/1 has no equivalent.
const HTTP2_PING: Duration = Duration::from_secs(30);

impl Server {
    pub(super) fn new(tls: Option<TlsAcceptor>, head_timeout: Duration) -> Self {
        let mut http1 = http1::Builder::new();
        // The timer is armed for each request's headers and dropped once they arrive, so streamed chunks do not pay for
        // it.
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
        place: OwnedSemaphorePermit,
    ) {
        let server = self.clone();
        let held = Held { member, place };
        tokio::spawn(async move {
            match accepted {
                Accepted::Unix(stream) => {
                    let peer = Peer { connection: None, tls: false };
                    server.plain(stream, handler.service_for(peer), held).await;
                }
                Accepted::Tcp(stream, connection) => {
                    let peer =
                        Peer { connection: connection.map(Arc::new), tls: server.tls.is_some() };
                    let service = handler.service_for(peer);
                    match &server.tls {
                        None => server.plain(stream, service, held).await,
                        Some(tls) => server.secure(tls.0.accept(stream), service, held).await,
                    }
                }
            }
        });
    }

    async fn plain<T, S, B>(&self, stream: T, service: S, mut held: Held)
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
            + Send
            + Unpin
            + 'static,
        S::Future: Send + Unpin + 'static,
        B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>>
            + Send
            + Unpin
            + 'static,
    {
        if let Some((stream, http2)) = held.opening(First::read(stream), self.head_timeout).await {
            self.spoken(stream, http2, service, held);
        }
    }

    async fn secure<S, B>(
        &self,
        handshake: tokio_rustls::Accept<tokio::net::TcpStream>,
        service: S,
        mut held: Held,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
            + Send
            + Unpin
            + 'static,
        S::Future: Send + Unpin + 'static,
        B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>>
            + Send
            + Unpin
            + 'static,
    {
        if let Some(stream) = held.opening(handshake, self.head_timeout).await {
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            self.spoken(stream, http2, service, held);
        }
    }

    /// Serves in a new task of exactly the connection's size. The memory needed to open the connection is freed.
    fn spoken<T, S, B>(&self, stream: T, http2: bool, service: S, held: Held)
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
            + Send
            + Unpin
            + 'static,
        S::Future: Send + Unpin + 'static,
        B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>>
            + Send
            + Unpin
            + 'static,
    {
        let stream = TokioIo::new(stream);
        let (service, exchanges) = Counted::new(service);
        if http2 {
            let connection = self.http2.serve_connection(stream, service);
            tokio::spawn(Serving::new(Box::pin(connection), held, exchanges));
        } else {
            let connection = self.http1.serve_connection(stream, service).with_upgrades();
            tokio::spawn(Serving::new(connection, held, exchanges));
        }
    }
}

/// Resources that a connection holds while it is open.
#[derive(Debug)]
struct Held {
    member: Member,
    #[expect(dead_code, reason = "held for its drop: the place is free again")]
    place: OwnedSemaphorePermit,
}

impl Held {
    /// Returns the result of `opening`. Returns `None` if `opening` fails or exceeds `limit`, or if the listener stops
    /// first.
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

/// A connection that supports graceful shutdown after the current exchange.
trait Graceful: Future<Output = hyper::Result<()>> + Unpin {
    /// Whether the protocol reports to the client which of its requests were not processed. If so, shutdown can start
    /// at any time.
    const TELLS: bool;

    /// Closes the connection after the current exchange, or immediately if no exchange is active.
    fn finish(&mut self);
}

impl<T, S, B> Graceful for http1::UpgradeableConnection<T, S>
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Unpin,
    B: Body<Data = Bytes, Error: Into<Box<dyn StdError + Send + Sync>>> + 'static,
{
    const TELLS: bool = false;

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
    const TELLS: bool = true;

    fn finish(&mut self) {
        self.as_mut().graceful_shutdown();
    }
}

/// A connection being served. A hand-written future, because an `async` block would store the connection twice.
struct Serving<C> {
    connection: C,
    held: Held,
    registered: bool,
    exchanges: Arc<Exchanges>,
    end: End,
    /// hyper wakes its own connection task when a handler polls a request body. The notifier handles that wake within
    /// the same poll.
    bell: Arc<Notifier>,
    waker: Waker,
}

/// Shutdown state of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// The client decides when the connection ends.
    Open,
    /// The connection shuts down once the number of started exchanges differs from `begun`, after the last exchange.
    Unless { begun: u32 },
    /// The graceful shutdown was started.
    Told,
}

impl<C: Graceful> Serving<C> {
    fn new(connection: C, mut held: Held, exchanges: Arc<Exchanges>) -> Self {
        let (bell, waker) = Notifier::new();
        // Resets the phase seen during the handshake, so that this task receives it again.
        held.member.forget();
        Self { connection, held, registered: false, exchanges, end: End::Open, bell, waker }
    }

    /// Applies a new phase. Returns whether the connection ends immediately.
    fn enter(&mut self, phase: Phase) -> bool {
        if phase > Phase::Serving && !C::TELLS {
            self.exchanges.close();
        }
        self.end = match (phase, self.end) {
            (Phase::Cut, _) => return true,
            (_, End::Told) | (Phase::Serving, _) => self.end,
            // An idle HTTP/1 connection may serve one more exchange, because closing it could hit a request that is in
            // transit.
            (Phase::Parting, _) if !C::TELLS => End::Unless { begun: self.exchanges.over() },
            (Phase::Parting | Phase::Leaving, _) => End::Unless { begun: 0 },
            (Phase::Finishing, _) => {
                self.connection.finish();
                End::Told
            }
        };
        false
    }

    /// Starts the graceful shutdown if it is due. Returns whether the shutdown started, in which case the connection
    /// must be polled again.
    fn end_if_due(&mut self) -> bool {
        let due = match self.end {
            End::Unless { begun } => self.exchanges.begun() != begun,
            End::Open | End::Told => false,
        };
        if due {
            self.connection.finish();
            self.end = End::Told;
        }
        due
    }
}

impl<C: Graceful> Future for Serving<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let Poll::Ready(phase) = this.held.member.poll_change(cx, &mut this.registered)
            && this.enter(phase)
        {
            return Poll::Ready(());
        }
        this.end_if_due();
        this.bell.enter(cx.waker());
        for _ in 0..MOST_ROUNDS {
            // Exchanges report their own endings to the observer. Only requests that never became an exchange are
            // counted here.
            let polled = Pin::new(&mut this.connection).poll(&mut Context::from_waker(&this.waker));
            if let Poll::Ready(ended) = polled {
                if ended.is_err_and(|error| error.is_parse()) {
                    this.held.member.count_refused();
                }
                return Poll::Ready(());
            }
            if !this.end_if_due() && this.bell.leave() {
                return Poll::Pending;
            }
        }
        this.bell.remind();
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
