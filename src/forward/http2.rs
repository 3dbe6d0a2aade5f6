//! The HTTP/2 connections to one upstream.
//!
//! Requests share a connection up to the upstream's limit of streams, and up to [`MAX_STREAMS`]. When the limit is
//! reached, or the budget has no room for another window of this size, another connection is opened. A slow client or a low limit of the upstream therefore does not make other
//! requests wait.

use std::error::Error as _;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::watch;

use super::UpstreamConfig;
use super::connect::{ConnectError, Connector};
use super::http1::Http1Connection;
use super::repeat::SentBody;
use super::stream::{StreamState, UpstreamStream};
use tokengauge_listen::window::{RESPONSES, WindowPermit};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{ConnectTimings, UpstreamFailure};
use tokengauge_types::sync::lock;

pub type Http2Sender = http2::SendRequest<SentBody>;
type Connection = http2::Connection<TokioIo<UpstreamStream>, SentBody, TokioExecutor>;

/// Maximum number of streams on one connection.
const MAX_STREAMS: usize = 64;

/// Flow-control window of a connection in bytes: that of [`MAX_STREAMS`] of the largest streams. A client that does not
/// read its stream therefore cannot block other streams. The windows of the streams limit the memory. `h2` closes a
/// connection whose unread frames of less than 256 bytes have more than half of this window as overhead, so a smaller
/// window would make clients that do not read end the streams of others.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Maximum number of bytes of a request body that wait in memory for the flow control of the upstream, per stream. The
/// kernel buffers more, so this number does not limit the rate.
const MAX_UNSENT: usize = 64 << 10;

/// The HTTP/2 connections to one upstream, including connections that are still being opened.
#[derive(Debug)]
pub struct Http2Pool {
    connections: Mutex<Vec<Arc<Http2Connection>>>,
    /// Most recent limit of streams, which a new connection will probably have. 0 if the upstream has chosen HTTP/1.1.
    expected_streams: AtomicUsize,
    /// Time after which an unused connection is closed. The last connection stays open.
    idle_timeout: Duration,
    /// Age after which a connection takes no further stream.
    max_age: Duration,
}

/// A connection that is ready for a request.
pub enum UpstreamConnection {
    Http1(Box<Http1Connection>),
    Http2(Http2Sender, StreamPermit),
}

/// The right to use one stream of a connection. Held until the response is complete.
#[derive(Debug)]
pub struct StreamPermit {
    connection: Arc<Http2Connection>,
    /// Part of the budget for the stream's flow-control window. For the first stream, the connection holds it.
    _window: WindowPermit,
}

enum StreamSearch {
    FreeStream(StreamPermit),
    /// Another request is opening a connection. This request waits, because the number of streams is not known yet.
    Pending(Waiting),
    /// The caller must open a new connection. The permit is for its first stream.
    New(StreamPermit),
}

#[derive(Debug)]
struct Http2Connection {
    /// When opening the connection began.
    began: MonotonicInstant,
    phase: watch::Sender<ConnectionPhase>,
    /// Set when the phase `Connecting` ends.
    opened: OnceLock<OpenedConnection>,
    /// The connection, if the upstream has chosen HTTP/1.1.
    http1: Mutex<Option<(Box<Http1Connection>, ConnectTimings)>>,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct OpenedConnection {
    sender: Http2Sender,
    connected: ConnectTimings,
    /// Flow-control window in bytes of each stream.
    stream_window: u32,
    /// Part of the budget for the window of the first stream.
    _window: WindowPermit,
}

#[derive(Clone, Debug)]
enum ConnectionPhase {
    Connecting,
    /// The connection is open for one stream, because the upstream has not sent its limit yet.
    Settling,
    Open,
    /// The upstream has chosen HTTP/1.1.
    Http1,
    /// No further stream can begin.
    Closed,
    Failed(ConnectError),
}

#[derive(Debug, Default)]
struct Counts {
    /// Number of streams in use.
    streams_in_use: usize,
    /// Maximum number of streams. 0 until the upstream has sent its limit.
    max_streams: usize,
    /// Number of requests that wait for the upstream's limit.
    waiting: usize,
    /// When the last stream ended.
    idle_since: MonotonicInstant,
}

/// A request that waits for a connection's limit of streams.
#[derive(Debug)]
struct Waiting(Arc<Http2Connection>);

impl UpstreamConnection {
    /// Returns the connection for a request that reuses `connection`.
    pub(super) fn reused(connection: Box<Http1Connection>) -> (Self, ConnectTimings) {
        let connected =
            ConnectTimings { connection: connection.tcp.clone(), ..ConnectTimings::reused() };
        (Self::Http1(connection), connected)
    }
}

impl Http2Pool {
    pub(super) fn new(config: &UpstreamConfig) -> Arc<Self> {
        Arc::new(Self {
            connections: Mutex::default(),
            expected_streams: AtomicUsize::new(MAX_STREAMS),
            idle_timeout: config.idle_timeout,
            max_age: config.max_connection_age,
        })
    }

    /// Returns the permit for one stream. Opens a connection if all streams are in use. Further requests then wait for
    /// the new connection, up to the expected number of streams.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        connector: &Arc<Connector>,
    ) -> Result<(UpstreamConnection, ConnectTimings), ConnectError> {
        let begun = clock::now();
        let mut wait = None;
        loop {
            match self.find() {
                StreamSearch::FreeStream(permit) => {
                    if let Some(reused) = permit.reused(wait) {
                        return Ok(reused);
                    }
                }
                StreamSearch::Pending(waiting) => {
                    waiting.settled(connector.config.timeouts.connect).await?
                }
                StreamSearch::New(permit) => {
                    let opening = Arc::clone(&permit.connection);
                    tokio::spawn(opening.open(Arc::clone(self), Arc::clone(connector)));
                    let (connection, connected) = permit.opened().await?;
                    return Ok((connection, ConnectTimings { wait, ..connected }));
                }
            }
            wait = Some(clock::now() - begun);
        }
    }

    fn find(&self) -> StreamSearch {
        let now = clock::now();
        let idle_since = now.saturating_sub(self.idle_timeout);
        let opened_at = now.saturating_sub(self.max_age);
        let mut connections = lock(&self.connections);
        let mut left = connections.len();
        connections.retain(|connection| {
            let is_surplus = left > 1 && connection.is_idle_since(idle_since);
            let is_over = connection.is_over() || connection.began < opened_at || is_surplus;
            left -= usize::from(is_over);
            !is_over
        });
        if let Some(permit) = connections.iter().find_map(StreamPermit::reserve) {
            return StreamSearch::FreeStream(permit);
        }
        let expected = self.expected_streams.load(Ordering::Relaxed);
        if let Some(waiting) = connections.iter().find_map(|it| Waiting::join(it, expected)) {
            return StreamSearch::Pending(waiting);
        }
        let connection = Arc::new(Http2Connection::connecting());
        connections.push(Arc::clone(&connection));
        StreamSearch::New(StreamPermit { connection, _window: None })
    }
}

impl Http2Connection {
    /// Creates the state of a connection that is being opened, with one stream in use.
    fn connecting() -> Self {
        Self {
            began: clock::now(),
            phase: watch::Sender::new(ConnectionPhase::Connecting),
            opened: OnceLock::new(),
            http1: Mutex::default(),
            counts: Mutex::new(Counts { streams_in_use: 1, ..Counts::default() }),
        }
    }

    async fn open(self: Arc<Self>, pool: Arc<Http2Pool>, connector: Arc<Connector>) {
        if let Err(error) = Self::try_open(&self, &pool, &connector).await {
            self.phase.send_replace(ConnectionPhase::Failed(error));
        }
    }

    async fn try_open(
        this: &Arc<Self>,
        pool: &Arc<Http2Pool>,
        connector: &Connector,
    ) -> Result<(), ConnectError> {
        let (stream, connected) = connector.connect().await?;
        let config = &connector.config;
        let limits = config.header_limits;
        if config.tls && !stream.chose_http2() {
            let connection = Http1Connection::handshake(stream, &connected, limits).await?;
            *lock(&this.http1) = Some((connection, connected));
            pool.expected_streams.store(0, Ordering::Relaxed);
            this.phase.send_replace(ConnectionPhase::Http1);
            return Ok(());
        }
        let state = Arc::clone(stream.state());
        state.expect_settings();
        let (stream_window, window) = RESPONSES.stream(connected.tcp.unwrap_or_default());
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(limits.for_parser().http2_list_size())
            .max_send_buf_size(MAX_UNSENT)
            .initial_stream_window_size(stream_window)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(1)
            .keep_alive_interval(config.http2_ping.interval)
            .keep_alive_timeout(config.http2_ping.timeout)
            .handshake(TokioIo::new(stream))
            .await?;
        let opened = OpenedConnection { sender, connected, stream_window, _window: window };
        drop(this.opened.set(opened));
        this.phase.send_replace(ConnectionPhase::Settling);
        tokio::spawn(drive(connection, state, Arc::downgrade(this), Arc::clone(pool)));
        Ok(())
    }

    /// Applies the number of streams that the upstream allows.
    fn set_limit(&self, limit: usize, pool: &Http2Pool) {
        let limit = limit.min(MAX_STREAMS);
        let previous = std::mem::replace(&mut lock(&self.counts).max_streams, limit);
        if previous != limit {
            pool.expected_streams.store(limit.max(1), Ordering::Relaxed);
        }
        self.phase.send_if_modified(|phase| {
            let is_settling = matches!(phase, ConnectionPhase::Settling);
            if is_settling {
                *phase = ConnectionPhase::Open;
            }
            is_settling
        });
    }

    /// Ends the connection for further streams.
    fn close(&self) {
        let error = "the upstream closed the HTTP/2 connection before it sent its settings";
        self.phase.send_modify(|phase| {
            *phase = match phase {
                ConnectionPhase::Settling => ConnectionPhase::Failed(ConnectError::Failed(
                    UpstreamFailure::Protocol,
                    error.to_owned(),
                )),
                ConnectionPhase::Connecting
                | ConnectionPhase::Open
                | ConnectionPhase::Http1
                | ConnectionPhase::Closed => ConnectionPhase::Closed,
                ConnectionPhase::Failed(error) => ConnectionPhase::Failed(error.clone()),
            };
        });
    }

    fn is_over(&self) -> bool {
        match &*self.phase.borrow() {
            ConnectionPhase::Connecting => false,
            ConnectionPhase::Settling | ConnectionPhase::Open => {
                self.opened.get().is_some_and(|opened| opened.sender.is_closed())
            }
            ConnectionPhase::Http1 | ConnectionPhase::Closed | ConnectionPhase::Failed(_) => true,
        }
    }

    fn is_idle_since(&self, oldest: MonotonicInstant) -> bool {
        let counts = lock(&self.counts);
        counts.streams_in_use == 0 && counts.waiting == 0 && counts.idle_since < oldest
    }
}

impl StreamPermit {
    fn reserve(connection: &Arc<Http2Connection>) -> Option<Self> {
        if !matches!(*connection.phase.borrow(), ConnectionPhase::Open) {
            return None;
        }
        let size = connection.opened.get()?.stream_window;
        let mut counts = lock(&connection.counts);
        if counts.streams_in_use >= counts.max_streams {
            return None;
        }
        let window = RESPONSES.another_stream(size)?;
        counts.streams_in_use += 1;
        Some(Self { connection: Arc::clone(connection), _window: window })
    }

    /// Waits until the connection is open. Called for the request that opens the connection.
    async fn opened(self) -> Result<(UpstreamConnection, ConnectTimings), ConnectError> {
        let mut phase = self.connection.phase.subscribe();
        let phase = phase.wait_for(|phase| !matches!(phase, ConnectionPhase::Connecting)).await;
        // Waiting fails only if the connection is dropped, and this permit holds it.
        let failed = phase.ok().and_then(|phase| match &*phase {
            ConnectionPhase::Failed(error) => Some(error.clone()),
            ConnectionPhase::Connecting
            | ConnectionPhase::Settling
            | ConnectionPhase::Open
            | ConnectionPhase::Http1
            | ConnectionPhase::Closed => None,
        });
        if let Some((connection, connected)) = lock(&self.connection.http1).take() {
            return Ok((UpstreamConnection::Http1(connection), connected));
        }
        let opened = self.connection.opened.get();
        match (opened.map(|it| (it.sender.clone(), it.connected.clone())), failed) {
            (Some((sender, connected)), _) => {
                Ok((UpstreamConnection::Http2(sender, self), connected))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Err(ConnectError::TimedOut),
        }
    }

    /// Returns the connection, for a request that did not open it. `wait` is the time that the request waited.
    fn reused(self, wait: Option<Duration>) -> Option<(UpstreamConnection, ConnectTimings)> {
        let opened = self.connection.opened.get()?;
        let connection = opened.connected.connection.clone();
        let connected = ConnectTimings { wait, connection, ..ConnectTimings::reused() };
        let sender = opened.sender.clone();
        Some((UpstreamConnection::Http2(sender, self), connected))
    }

    /// Starts no further streams on the connection, because it refused a stream or failed.
    pub(super) fn retire(&self) {
        self.connection.close();
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut counts = lock(&self.connection.counts);
        counts.streams_in_use = counts.streams_in_use.saturating_sub(1);
        if counts.streams_in_use == 0 {
            counts.idle_since = clock::now();
        }
    }
}

impl Waiting {
    /// Waits for `connection` if it is still being opened and will probably have a stream for this request.
    fn join(connection: &Arc<Http2Connection>, expected: usize) -> Option<Self> {
        if !matches!(
            *connection.phase.borrow(),
            ConnectionPhase::Connecting | ConnectionPhase::Settling
        ) {
            return None;
        }
        let mut counts = lock(&connection.counts);
        let has_free_stream = counts.streams_in_use + counts.waiting < expected;
        counts.waiting += usize::from(has_free_stream);
        has_free_stream.then(|| Self(Arc::clone(connection)))
    }

    /// Waits until the limit of streams is known, or until the connection turns out to use HTTP/1.1 or to fail.
    async fn settled(self, limit: Option<Duration>) -> Result<(), ConnectError> {
        let mut phase = self.0.phase.subscribe();
        let settled = phase.wait_for(|phase| {
            !matches!(phase, ConnectionPhase::Connecting | ConnectionPhase::Settling)
        });
        let settled = match limit {
            None => settled.await,
            Some(limit) => {
                tokio::time::timeout(limit, settled).await.map_err(|_| ConnectError::TimedOut)?
            }
        };
        match settled.as_deref() {
            Ok(ConnectionPhase::Failed(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut counts = lock(&self.0.counts);
        counts.waiting = counts.waiting.saturating_sub(1);
    }
}

/// Polls `connection` until it ends. The connection ends when neither a request nor the pool uses it.
async fn drive(
    connection: Connection,
    state: Arc<StreamState>,
    shared: Weak<Http2Connection>,
    pool: Arc<Http2Pool>,
) {
    let mut connection = pin!(connection);
    let mut settings = pin!(state.settings_received());
    let mut has_settings = false;
    poll_fn(|cx| {
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        has_settings = has_settings || settings.as_mut().poll(cx).is_ready();
        if has_settings && let Some(shared) = shared.upgrade() {
            shared.set_limit(connection.current_max_send_streams(), &pool);
        }
        Poll::Pending
    })
    .await;
    if let Some(shared) = shared.upgrade() {
        shared.close();
    }
}

/// How a stream failed before its response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StreamFailure {
    /// The upstream has not processed the request (RFC 9113 §8.7).
    Refused,
    /// The upstream has reset the stream.
    Reset,
    /// The connection failed.
    Connection,
}

/// Returns whether the proxy itself has reset the stream, because its headers are malformed or too large for `h2`.
pub(super) fn has_invalid_headers(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        cause.is_reset() && cause.is_library() && cause.reason() == Some(h2::Reason::PROTOCOL_ERROR)
    })
}

impl StreamFailure {
    pub(super) fn from_error(error: &hyper::Error) -> Self {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
        let Some(cause) = cause else { return Self::Connection };
        match cause.reason() {
            Some(h2::Reason::NO_ERROR) if cause.is_go_away() => Self::Refused,
            Some(h2::Reason::REFUSED_STREAM) if cause.is_remote() => Self::Refused,
            _ if cause.is_reset() => Self::Reset,
            _ => Self::Connection,
        }
    }
}
