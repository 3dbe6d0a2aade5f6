//! Copies the bytes of an upgraded connection, such as a WebSocket, in both directions, and observes them.
//!
//! A tunnel ends when both sides have closed, one side has failed, or a time limit expires. The task of the tunnel
//! checks the limits, so they also apply while a side does not read. A client that does not read makes its own stream
//! fail (`listeners[].send_timeout`).

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::body::BodyTimeouts;
use super::limiter::Permit;
use tokengauge_observe::tee::RequestObserver;
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, ObserverEvent, TimeoutKind, UpstreamFailure,
};

/// Maximum time from the close of one side to the end of the tunnel. In this time, the other side receives the last
/// bytes and closes too. nginx does not wait at all.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time in which an upstream reads nothing of the data that waits for it. While it does not read, the proxy
/// does not read from the client either, and could not notice that the client has left. Equals the default of
/// `listeners[].send_timeout` for clients.
const UPSTREAM_SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// The two sides of an upgraded connection.
pub struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) upstream: OnUpgrade,
    pub(super) observer: RequestObserver,
    pub(super) limits: BodyTimeouts,
    /// Held until the tunnel ends.
    pub(super) permit: Option<Permit>,
}

impl Tunnel {
    /// Copies bytes until the tunnel ends. If this future is dropped earlier, the request counts as aborted.
    pub(super) async fn run(self) {
        let Self { client, upstream, observer, limits, permit: _permit } = self;
        let upgrading = upgraded(client, upstream, &observer);
        let upgraded = match limits.deadline {
            None => upgrading.await,
            Some(deadline) => timeout_at(deadline, upgrading)
                .await
                .unwrap_or(Err(Ending::TimedOut(TimeoutKind::Total))),
        };
        match upgraded {
            Ok((client, upstream)) => copy(client, upstream, &observer, limits).await,
            Err(ending) => observer.end(clock::now(), ending),
        }
    }
}

/// Waits until both connections are upgraded.
async fn upgraded(
    client: OnUpgrade,
    upstream: OnUpgrade,
    observer: &RequestObserver,
) -> Result<(Upgraded, Upgraded), Ending> {
    let protocol = |_| Ending::UpstreamFailed(UpstreamFailure::Protocol);
    let upstream = upstream.await.map_err(protocol)?;
    let client = client.await.map_err(|_| observer.abandoned())?;
    Ok((client, upstream))
}

/// Copies bytes until the tunnel ends, and reports its end. The report precedes the end of the client's connection, after
/// which a shutdown no longer waits.
async fn copy(
    client: Upgraded,
    upstream: Upgraded,
    observer: &RequestObserver,
    limits: BodyTimeouts,
) {
    let progress = Progress::default();
    let mut client = Observed::new(TokioIo::new(client), observer, Direction::Request, &progress);
    let mut upstream =
        Observed::new(TokioIo::new(upstream), observer, Direction::Response, &progress);
    let copied = {
        let mut copying = pin!(copy_bidirectional(&mut client, &mut upstream));
        let mut timer = pin!(sleep_until(Instant::now() + CLOSE_TIMEOUT));
        poll_fn(|cx| {
            if let Poll::Ready(copied) = copying.as_mut().poll(cx) {
                return Poll::Ready(Ok(copied));
            }
            // A limit can change while the timer runs. The timer is then set again when it ends.
            while let Some((at, ending)) = progress.limit(limits) {
                if at <= Instant::now() {
                    return Poll::Ready(Err(ending));
                }
                if at < timer.deadline() || timer.is_elapsed() {
                    timer.as_mut().reset(at);
                }
                ready!(timer.as_mut().poll(cx));
            }
            Poll::Pending
        })
        .await
    };
    let ending = match copied {
        Err(ending) => ending,
        Ok(Ok(_)) => Ending::Complete,
        Ok(Err(_)) if upstream.failed => Ending::UpstreamFailed(UpstreamFailure::MidBody),
        Ok(Err(error)) if error.kind() == io::ErrorKind::TimedOut => {
            Ending::TimedOut(TimeoutKind::Send)
        }
        Ok(Err(_)) => observer.abandoned(),
    };
    observer.end(clock::now(), ending);
}

/// When bytes last moved through a tunnel, for its time limits. Times are in nanoseconds of the monotonic clock.
#[derive(Debug)]
struct Progress {
    /// When a side last sent or accepted bytes.
    last_bytes: AtomicU64,
    /// When the first side closed. 0 before.
    closed_at: AtomicU64,
    is_client_blocked: AtomicBool,
    is_upstream_blocked: AtomicBool,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            last_bytes: AtomicU64::new(clock::now().nanos()),
            closed_at: AtomicU64::default(),
            is_client_blocked: AtomicBool::default(),
            is_upstream_blocked: AtomicBool::default(),
        }
    }
}

impl Progress {
    fn on_bytes(&self, at: MonotonicInstant) {
        self.last_bytes.store(at.nanos(), Ordering::Relaxed);
    }

    fn on_close(&self, at: MonotonicInstant) {
        if self.closed_at.load(Ordering::Relaxed) == 0 {
            self.closed_at.store(at.nanos(), Ordering::Relaxed);
        }
    }

    /// Returns the time limit that expires next, and how the tunnel then ends. While the client does not read, the idle
    /// limit is paused, and the client is at fault if the total limit expires.
    fn limit(&self, limits: BodyTimeouts) -> Option<(Instant, Ending)> {
        let since = |at: &AtomicU64| MonotonicInstant::from_nanos(at.load(Ordering::Relaxed));
        let after = |at: &AtomicU64, limit: Duration| {
            Instant::now() + (since(at) + limit).since(clock::now())
        };
        let is_blocked = |side: &AtomicBool| side.load(Ordering::Relaxed);
        let is_unread = is_blocked(&self.is_client_blocked);
        let total = limits.deadline.map(|at| {
            let kind = if is_unread { TimeoutKind::TotalUnread } else { TimeoutKind::Total };
            (at, Ending::TimedOut(kind))
        });
        let is_closed = since(&self.closed_at) > MonotonicInstant::ZERO;
        let closing = is_closed.then(|| (after(&self.closed_at, CLOSE_TIMEOUT), Ending::Complete));
        let idle = limits
            .idle
            .filter(|_| !is_unread)
            .map(|limit| (after(&self.last_bytes, limit), Ending::TimedOut(TimeoutKind::Idle)));
        let unread = is_blocked(&self.is_upstream_blocked).then(|| {
            let ending = Ending::UpstreamFailed(UpstreamFailure::MidBody);
            (after(&self.last_bytes, UPSTREAM_SEND_TIMEOUT), ending)
        });
        [closing, total, idle, unread].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

/// One side of a tunnel: client or upstream. Reports all bytes that are read from this side, and its end once.
struct Observed<'a, T> {
    inner: T,
    observer: &'a RequestObserver,
    direction: Direction,
    progress: &'a Progress,
    ended: bool,
    failed: bool,
}

impl<'a, T> Observed<'a, T> {
    fn new(
        inner: T,
        observer: &'a RequestObserver,
        direction: Direction,
        progress: &'a Progress,
    ) -> Self {
        Self { inner, observer, direction, progress, ended: false, failed: false }
    }

    /// Records an I/O error of this side. The observer can then report which side ended the tunnel.
    fn note_failure<R>(&mut self, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        self.failed |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }

    /// Records whether this side accepts data.
    fn note_written<R>(&mut self, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        let is_blocked = match self.direction {
            Direction::Request => &self.progress.is_client_blocked,
            Direction::Response => &self.progress.is_upstream_blocked,
        };
        if is_blocked.swap(polled.is_pending(), Ordering::Relaxed) && polled.is_ready() {
            self.progress.on_bytes(clock::now());
        }
        self.note_failure(polled)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Observed<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buf);
        ready!(self.note_failure(polled))?;
        let read = buf.filled().get(before..).unwrap_or_default();
        let (observer, at) = (self.observer, clock::now());
        if !read.is_empty() {
            self.progress.on_bytes(at);
            observer.record_body(self.direction, at, read, BackpressureTime::default());
        } else if !std::mem::replace(&mut self.ended, true) {
            self.progress.on_close(at);
            observer.report(at, ObserverEvent::Closed(self.direction));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Observed<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.note_written(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.note_failure(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.note_failure(polled)
    }
}
