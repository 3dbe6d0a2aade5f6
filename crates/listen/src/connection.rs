//! Serves one client connection: TLS handshake, detection of the HTTP version, requests, and shutdown.

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
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;

use super::active_exchanges::{ActiveExchanges, Leftover};
use super::client_stream::{ClientStream, ConnectionGuards, Transport};
use super::delivery::{Http1, Http2};
use super::handler::Handler;
use super::http_settings;
use super::open_problems::OpenProblems;
use super::replay::ReplayStream;
use super::request_limit::RequestLimit;
use super::service::{CountingService, HeaderSettings, RequestSettings};
use super::socket::Accepted;
use super::state::{ListenerPhase, ListenerState, PhaseWatcher};
use super::stream_task::StreamExecutor;
use super::timer::{Expired, WaitLimits, WaitTimer};
use super::tls::Acceptor;
use super::window::{self, UPLOADS};
use super::{ListenerConfig, Peer};
use tokengauge_types::clock;
use tokengauge_types::notifier::{MAX_POLL_ROUNDS, Notifier};

/// Settings for serving connections.
#[derive(Clone, Debug)]
pub(super) struct Server {
    http1: http1::Builder,
    tls: Option<Arc<Acceptor>>,
    limits: WaitLimits,
    requests: RequestSettings,
    problems: Arc<OpenProblems>,
}

/// Maximum number of bytes that TLS buffers for a client that does not read: two records. The default of rustls is 64
/// KiB.
const TLS_BUFFER: usize = 32 << 10;

impl Server {
    pub(super) fn new(
        config: &ListenerConfig,
        tls: Option<Arc<Acceptor>>,
        state: &Arc<ListenerState>,
    ) -> Self {
        let limit = RequestLimit::new(&config.address, config.max_requests);
        Self {
            http1: http_settings::http1(config.headers.for_parser()),
            tls,
            limits: WaitLimits {
                header: config.head_timeout,
                idle: config.idle_timeout,
                send: config.send_timeout,
            },
            requests: RequestSettings {
                limit,
                body_timeout: config.body_timeout,
                state: Arc::clone(state),
                headers: HeaderSettings {
                    limits: config.headers,
                    marks_large: config.marks_large_headers,
                },
            },
            problems: Arc::new(OpenProblems::new(&config.address)),
        }
    }

    pub(super) const fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) fn request_limit(&self) -> &Arc<RequestLimit> {
        &self.requests.limit
    }

    /// Serves one connection in a separate task, on `runtime`.
    pub(super) fn serve<H: Handler>(
        &self,
        accepted: Accepted,
        handler: H,
        client: Client,
        runtime: &Handle,
    ) {
        let server = self.clone();
        runtime.spawn(async move {
            if let Err(error) = server.open(accepted, &handler, client).await {
                server.problems.log_registration(&error);
            }
        });
    }

    /// Registers the socket with the current runtime, and serves the connection. Fails if the kernel refuses the
    /// registration.
    async fn open<H: Handler>(
        &self,
        accepted: Accepted,
        handler: &H,
        client: Client,
    ) -> std::io::Result<()> {
        match accepted {
            Accepted::Unix(stream) => {
                let stream = UnixStream::from_std(stream)?;
                let peer = Peer { connection: None, tls: false };
                self.plain::<_, H>(stream, handler.service_for(peer), client).await;
            }
            Accepted::Tcp(stream, connection) => {
                let stream = TcpStream::from_std(stream)?;
                let peer = Peer { connection: connection.map(Arc::new), tls: self.tls.is_some() };
                let service = handler.service_for(peer);
                match &self.tls {
                    None => {
                        // Connections from far away use TLS.
                        window::limit_receive_buffer(&stream, Duration::ZERO);
                        self.plain::<_, H>(stream, service, client).await
                    }
                    Some(tls) => {
                        let handshake = tls.current().accept_with(stream, |session| {
                            session.set_buffer_limit(Some(TLS_BUFFER));
                        });
                        self.secure::<H>(handshake, service, client).await
                    }
                }
            }
        }
        Ok(())
    }

    async fn plain<T, H: Handler>(&self, stream: T, service: H::Service, mut client: Client)
    where
        T: Transport,
    {
        if let Some(Ok((stream, http2))) =
            client.opening(ReplayStream::read(stream), self.limits.header).await
        {
            self.problems.log_first_byte(stream.first_byte());
            let http2 = http2.then_some(Duration::ZERO);
            self.serve_http::<_, H>(stream, http2, service, client);
        }
    }

    async fn secure<H: Handler>(
        &self,
        handshake: tokio_rustls::Accept<TcpStream>,
        service: H::Service,
        mut client: Client,
    ) {
        let begun = clock::now();
        let opened = client.opening(handshake, self.limits.header).await;
        if let Some(Err(error)) = &opened {
            self.problems.log_handshake(error);
        }
        if let Some(Ok(stream)) = opened {
            // The handshake takes at least one round trip.
            let round_trip = clock::now() - begun;
            let (socket, session) = stream.get_ref();
            window::limit_receive_buffer(socket, round_trip);
            let is_http2 = session.alpn_protocol() == Some(b"h2");
            let http2 = is_http2.then_some(round_trip);
            self.serve_http::<_, H>(stream, http2, service, client);
        }
    }

    /// Serves the connection in a new task, which does not contain the memory that the handshake needed. `http2` is the
    /// round trip of an HTTP/2 connection, and `None` for HTTP/1.
    fn serve_http<T, H: Handler>(
        &self,
        stream: T,
        http2: Option<Duration>,
        service: H::Service,
        client: Client,
    ) where
        T: Transport,
    {
        let Client { mut guards, exchanges, watcher } = client;
        let windows = http2.map(|round_trip| UPLOADS.client(round_trip));
        let sizes = windows.map(|(stream, connection, permit)| {
            guards.window = permit;
            (stream, connection)
        });
        let client = Arc::clone(guards.requests.requests());
        let send_timeout = self.limits.send;
        let stream = ClientStream::new(stream, Arc::clone(&exchanges), guards, send_timeout);
        let stream = TokioIo::new(stream);
        let timer = WaitTimer::new(self.limits, http2.is_some());
        let (counted, requests) = (Arc::clone(&exchanges), self.requests.clone());
        if let Some((stream_window, connection_window)) = sizes {
            let service = CountingService::<_, Http2>::new(service, counted, client, requests);
            let executor = StreamExecutor { connection: Arc::clone(&exchanges), send_timeout };
            let headers = self.requests.headers.limits.for_parser();
            let mut http2 = http_settings::http2(executor, self.requests.limit.max(), headers);
            http2
                .initial_stream_window_size(stream_window)
                .initial_connection_window_size(connection_window);
            let connection = Box::pin(http2.serve_connection(stream, service));
            tokio::spawn(Serving::new(connection, watcher, exchanges, timer));
        } else {
            let service = CountingService::<_, Http1>::new(service, counted, client, requests);
            let connection = self.http1.serve_connection(stream, service).with_upgrades();
            tokio::spawn(Serving::new(connection, watcher, exchanges, timer));
        }
    }
}

/// A client whose connection is being opened.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) guards: ConnectionGuards,
    pub(super) exchanges: Arc<ActiveExchanges>,
    pub(super) watcher: PhaseWatcher,
}

impl Client {
    /// Waits for `opening`, such as a TLS handshake, and returns its result. Returns `None` if `opening` takes longer than
    /// `limit`, or the listener stops first.
    async fn opening<T>(
        &mut self,
        opening: impl Future<Output = std::io::Result<T>>,
        limit: Duration,
    ) -> Option<std::io::Result<T>> {
        tokio::select! {
            opened = tokio::time::timeout(limit, opening) => opened.ok(),
            () = self.watcher.wait_for(ListenerPhase::ClosingAll) => None,
        }
    }
}

/// A connection that can shut down gracefully after its current request.
trait Graceful: Future<Output = hyper::Result<()>> + Unpin {
    /// Whether the protocol reports to the client which requests were not processed, as HTTP/2 does with `GOAWAY`. If
    /// true, a shutdown can start at any time.
    const REPORTS_UNPROCESSED: bool;

    type Transport: Transport;

    /// Closes the connection after its current response, or immediately if no request is active.
    fn drain(&mut self);

    /// After the connection has ended, returns its stream for an orderly close. `None` if no orderly close is needed.
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

    fn drain(&mut self) {
        Pin::new(self).graceful_shutdown();
    }

    fn into_stream(self) -> Option<ClientStream<T>> {
        Some(self.into_parts()?.io.into_inner())
    }
}

impl<T, S, B> Graceful for Pin<Box<http2::Connection<TokioIo<ClientStream<T>>, S, StreamExecutor>>>
where
    T: Transport,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
    B: Body<Error: Into<Box<dyn StdError + Send + Sync>>> + Send + 'static,
    B::Data: Send,
{
    const REPORTS_UNPROCESSED: bool = true;

    type Transport = T;

    fn drain(&mut self) {
        self.as_mut().graceful_shutdown();
    }

    /// Returns `None`: an orderly close is not needed, because HTTP/2 frames show the client which responses are
    /// complete.
    fn into_stream(self) -> Option<ClientStream<T>> {
        None
    }
}

/// Future that serves a connection. It is hand-written, because an `async` block would contain the connection twice.
struct Serving<C> {
    /// `None` once the connection has ended.
    open: Option<Open<C>>,
    exchanges: Arc<ActiveExchanges>,
    end: Shutdown,
    timer: WaitTimer,
    /// Receives wake-ups of hyper's connection task. hyper wakes its own task when a handler polls a request body. Such
    /// a wake-up is handled within the same poll.
    notifier: Notifier,
}

struct Open<C> {
    connection: C,
    watcher: PhaseWatcher,
}

/// Shutdown state of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shutdown {
    /// No shutdown is due. The client decides when the connection ends.
    Open,
    /// A graceful shutdown starts as soon as the number of started requests differs from `started`. If `started` is the
    /// current number, the connection serves one more request first.
    Unless { started: u32 },
    /// The graceful shutdown was started.
    Started,
}

impl<C: Graceful> Serving<C> {
    fn new(
        connection: C,
        mut watcher: PhaseWatcher,
        exchanges: Arc<ActiveExchanges>,
        timer: WaitTimer,
    ) -> Self {
        let notifier = Notifier::default();
        exchanges.flush().set_connection(notifier.waker().clone());
        // Resets the phase that was read during the handshake, so that this task receives the phase again.
        watcher.reset();
        let open = Some(Open { connection, watcher });
        Self { open, exchanges, end: Shutdown::Open, timer, notifier }
    }

    /// Applies a new phase of the listener. Returns whether the connection must end immediately.
    fn enter(&mut self, phase: ListenerPhase) -> bool {
        if phase > ListenerPhase::Serving && !C::REPORTS_UNPROCESSED {
            self.exchanges.close();
        }
        self.end = match (phase, self.end) {
            (ListenerPhase::Aborting, _) => return true,
            (_, Shutdown::Started) | (ListenerPhase::Serving, _) => self.end,
            // An idle HTTP/1 connection may serve one more exchange. Closing the connection now could lose a
            // request that is in transit.
            (ListenerPhase::Draining, _) if !C::REPORTS_UNPROCESSED => {
                Shutdown::Unless { started: self.exchanges.finished() }
            }
            (ListenerPhase::Draining | ListenerPhase::ClosingIdle, _) => {
                Shutdown::Unless { started: 0 }
            }
            (ListenerPhase::ClosingAll, _) => {
                self.drain();
                Shutdown::Started
            }
        };
        false
    }

    /// Starts the graceful shutdown if it is due. Returns whether the shutdown was started. The caller must then poll
    /// the connection again.
    fn end_if_due(&mut self) -> bool {
        let due = match self.end {
            Shutdown::Unless { started } => self.exchanges.started() != started,
            Shutdown::Open | Shutdown::Started => false,
        };
        if due {
            self.drain();
            self.end = Shutdown::Started;
        }
        due
    }

    fn drain(&mut self) {
        if let Some(open) = &mut self.open {
            open.connection.drain();
        }
    }

    /// Takes no further requests on a connection with a response that cannot be delivered. Returns `Ready` once no
    /// request is active.
    fn end_stuck(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.end != Shutdown::Started {
            self.drain();
            self.end = Shutdown::Started;
            if self.poll_connection(cx).is_ready() {
                return Poll::Ready(());
            }
        }
        if self.exchanges.idleness().is_some() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Polls hyper until hyper waits for the client or for a handler. Returns `Ready` when the connection has ended.
    fn poll_connection(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.end_if_due();
        self.notifier.enter(cx.waker());
        for _ in 0..MAX_POLL_ROUNDS {
            if self.poll_once().is_ready() {
                return Poll::Ready(());
            }
            if !self.end_if_due() && self.notifier.leave() {
                return Poll::Pending;
            }
        }
        self.notifier.mark_due();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_once(&mut self) -> Poll<()> {
        let Some(Open { connection, watcher }) = &mut self.open else { return Poll::Ready(()) };
        // ActiveExchanges report their own endings to the observer. This code counts only requests that never became an
        // exchange.
        let mut cx = Context::from_waker(self.notifier.waker());
        let ended = ready!(Pin::new(connection).poll(&mut cx));
        if let Err(error) = ended
            && error.is_parse()
        {
            watcher.count_refused(error.is_parse_too_large());
        }
        let leftover = self.exchanges.leftover();
        if leftover != Leftover::None
            && let Some(Open { connection, watcher }) = self.open.take()
            && let Some(stream) = connection.into_stream()
        {
            tokio::spawn(close(stream, leftover, watcher));
        }
        Poll::Ready(())
    }
}

/// Closes the stream in an orderly way. Stops early if the listener aborts its connections.
async fn close<T: Transport>(
    stream: ClientStream<T>,
    leftover: Leftover,
    mut watcher: PhaseWatcher,
) {
    tokio::select! {
        () = stream.close(leftover) => {}
        () = watcher.wait_for(ListenerPhase::Aborting) => {}
    }
}

impl<C: Graceful> Future for Serving<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(open) = &mut this.open else { return Poll::Ready(()) };
        if let Poll::Ready(phase) = open.watcher.poll_change(cx)
            && this.enter(phase)
        {
            return Poll::Ready(());
        }
        if this.poll_connection(cx).is_ready() {
            return Poll::Ready(());
        }
        if this.exchanges.is_stuck() && this.end_stuck(cx).is_ready() {
            return Poll::Ready(());
        }
        loop {
            let is_closing = this.end == Shutdown::Started;
            match ready!(this.timer.poll(&this.exchanges, is_closing, cx)) {
                Expired::Header | Expired::Delivery => return Poll::Ready(()),
                Expired::Idle => {
                    this.drain();
                    this.end = Shutdown::Started;
                    if this.poll_connection(cx).is_ready() {
                        return Poll::Ready(());
                    }
                }
            }
        }
    }
}

impl<C> Drop for Serving<C> {
    fn drop(&mut self) {
        // An upgraded connection keeps the notifier. Its waker would keep the memory of the finished task.
        self.notifier.enter(Waker::noop());
    }
}
