//! Response bodies, either read from the upstream or written by the proxy.
//!
//! A body owns everything that must live as long as the response: the upstream connection, the permit of the
//! concurrency limiter, and the time limits.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::http1::Http1Connection;
use super::http2::StreamPermit;
use super::limiter::Permit;
use super::pool::Pool;
use super::upstream::Upstream;
use tokengauge_observe::tee::RequestObserver;
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{Ending, TimedResponse, TimeoutKind};

#[derive(Debug)]
pub struct RelayBody {
    source: BodySource,
    /// Time limits of the response. `None` by default, because a model may think for a long time and must not be
    /// aborted.
    timers: Option<Box<Timers>>,
    /// Held until the body is dropped.
    _permit: Option<Permit>,
}

#[derive(Debug)]
enum BodySource {
    /// Written by the proxy.
    Local(Option<Bytes>),
    /// A body that is read from an upstream.
    Upstream { incoming: Incoming, connection: ConnectionShare, upstream: Arc<Upstream> },
}

/// What the response body owns of its upstream connection until the body is complete.
#[derive(Debug)]
pub enum ConnectionShare {
    /// An HTTP/1.1 connection that is polled together with this body. The pool is `None` if the connection must not be
    /// reused.
    Http1(Box<Http1Connection>, Option<Arc<Pool>>),
    /// One stream of an HTTP/2 connection. A separate task polls the connection.
    Http2(#[expect(dead_code, reason = "dropping it frees the place")] StreamPermit),
    /// A connection that only a separate task holds.
    Detached,
}

/// Time limits of a response body.
#[derive(Clone, Copy, Debug, Default)]
pub struct BodyTimeouts {
    /// Maximum time between two frames of the body. Time during which the client does not read is not counted.
    pub(super) idle: Option<Duration>,
    /// End of the total timeout of the request.
    pub(super) deadline: Option<Instant>,
}

/// The reason why a response body ends early. The client can always recognize the truncation.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error(transparent)]
    Upstream(hyper::Error),
    #[error("a timeout of the proxy expired")]
    TimedOut,
}

/// Maximum size in bytes of a chunk that is copied out of the read buffer of its connection. glibc caches freed memory
/// per thread up to this size.
const MAX_COPIED: usize = 1_024;

impl RelayBody {
    pub(super) fn local(body: Bytes) -> Self {
        let source = BodySource::Local((!body.is_empty()).then_some(body));
        Self { source, timers: None, _permit: None }
    }

    pub(super) fn upstream(
        incoming: Incoming,
        mut connection: ConnectionShare,
        upstream: Arc<Upstream>,
        permit: Option<Permit>,
    ) -> Self {
        if incoming.is_end_stream() {
            connection.release();
        }
        let source = BodySource::Upstream { incoming, connection, upstream };
        Self { source, timers: None, _permit: permit }
    }

    /// Adds time limits to the body. A body that exceeds a limit ends with an error, which is also reported to
    /// `observer`.
    pub(super) fn with_timeouts(
        mut self,
        limits: BodyTimeouts,
        observer: &RequestObserver,
    ) -> Self {
        self.timers = Timers::new(limits, observer).map(Box::new);
        self
    }
}

impl TimedResponse for RelayBody {
    fn deadline(&self) -> Option<MonotonicInstant> {
        let total = self.timers.as_ref()?.total.as_ref()?.deadline();
        Some(clock::now() + total.saturating_duration_since(Instant::now()))
    }
}

impl Body for RelayBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { source, timers, .. } = &mut *self;
        let Some(timers) = timers else {
            return source.poll_frame(cx).map_err(BodyError::Upstream);
        };
        // The total limit is checked first: a busy upstream or a slow client must not postpone it.
        let is_over = timers.poll_total(cx).is_ready();
        if (!is_over || timers.left_after_total > 0)
            && let Poll::Ready(polled) = source.poll_frame(cx)
        {
            timers.on_frame(is_over, &polled);
            return Poll::Ready(polled.map(|result| result.map_err(BodyError::Upstream)));
        }
        if is_over {
            return Poll::Ready(Some(Err(timers.expire(TimeoutKind::Total))));
        }
        ready!(timers.poll_idle(cx));
        Poll::Ready(Some(Err(timers.expire(TimeoutKind::Idle))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Local(body) => body.is_none(),
            BodySource::Upstream { incoming, .. } => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Local(body) => {
                SizeHint::with_exact(body.as_ref().map_or(0, Bytes::len) as u64)
            }
            BodySource::Upstream { incoming, .. } => incoming.size_hint(),
        }
    }
}

impl BodySource {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let (incoming, connection, upstream) = match self {
            Self::Local(body) => return Poll::Ready(body.take().map(|body| Ok(Frame::data(body)))),
            Self::Upstream { incoming, connection, upstream } => (incoming, connection, upstream),
        };
        let polled = match connection {
            ConnectionShare::Http1(connection, _) => {
                connection.poll_with(cx, |cx| Pin::new(&mut *incoming).poll_frame(cx))
            }
            ConnectionShare::Http2(_) | ConnectionShare::Detached => {
                Pin::new(&mut *incoming).poll_frame(cx)
            }
        };
        let is_complete = match &polled {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers() || incoming.is_end_stream(),
            Poll::Ready(Some(Err(_))) => {
                upstream.log_broken_body(clock::now());
                false
            }
            Poll::Pending => false,
        };
        if is_complete {
            connection.release();
        }
        polled.map_ok(|frame| frame.map_data(detached))
    }
}

/// Copies a small chunk. Otherwise, the chunk would use the read buffer of its connection until the client's connection
/// has written it. hyper reads again before that, and would have to allocate a buffer of 8 KiB for each chunk.
fn detached(chunk: Bytes) -> Bytes {
    if chunk.len() <= MAX_COPIED { Bytes::copy_from_slice(&chunk) } else { chunk }
}

impl ConnectionShare {
    /// Returns the connection to its pool, because the body is complete.
    fn release(&mut self) {
        if let Self::Http1(connection, Some(pool)) = std::mem::replace(self, Self::Detached) {
            pool.keep(connection);
        }
    }
}

#[derive(Debug)]
struct Timers {
    idle: Option<(Duration, Pin<Box<Sleep>>)>,
    total: Option<Pin<Box<Sleep>>>,
    /// Whether the client is waiting for a frame. The idle limit counts only this time.
    is_waiting: bool,
    /// Number of bytes that may still reach the client after the total limit, because they can have been received in
    /// time.
    left_after_total: usize,
    observer: RequestObserver,
}

/// Maximum number of bytes that reach the client after the total limit. hyper buffers at most 64 KiB of an HTTP/1
/// response, so no received data is lost. The maximum ends a body whose upstream never pauses.
const MAX_AFTER_TOTAL: usize = 512 * 1024;

impl Timers {
    fn new(limits: BodyTimeouts, observer: &RequestObserver) -> Option<Self> {
        let BodyTimeouts { idle, deadline } = limits;
        if idle.is_none() && deadline.is_none() {
            return None;
        }
        Some(Self {
            idle: idle.map(|limit| (limit, Box::pin(sleep(limit)))),
            total: deadline.map(|at| Box::pin(sleep_until(at))),
            is_waiting: true,
            left_after_total: MAX_AFTER_TOTAL,
            observer: observer.clone(),
        })
    }

    fn poll_total(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.total {
            Some(total) => total.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((limit, idle)) = &mut self.idle else {
            return Poll::Pending;
        };
        if !std::mem::replace(&mut self.is_waiting, true) {
            idle.as_mut().reset(Instant::now() + *limit);
        }
        idle.as_mut().poll(cx)
    }

    fn on_frame(&mut self, is_over: bool, polled: &Option<hyper::Result<Frame<Bytes>>>) {
        self.is_waiting = false;
        if is_over {
            let data = polled.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            self.left_after_total =
                self.left_after_total.saturating_sub(data.map_or(0, Bytes::len));
        }
    }

    fn expire(&self, limit: TimeoutKind) -> BodyError {
        self.observer.end(clock::now(), Ending::TimedOut(limit));
        BodyError::TimedOut
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::forward::testing::observer;

    #[test]
    fn only_a_large_chunk_keeps_the_read_buffer_in_use() {
        for (size, is_free) in [(MAX_COPIED, true), (MAX_COPIED + 1, false)] {
            let mut buffer = BytesMut::zeroed(8_192);
            let received = buffer.split_to(size).freeze();
            let chunk = detached(received.clone());
            assert_eq!(chunk, received);
            drop(received);
            buffer.clear();
            assert_eq!(buffer.try_reclaim(8_192), is_free, "a chunk of {size} bytes");
        }
    }

    #[tokio::test]
    async fn idle_limit_runs_only_while_the_client_waits() {
        const LIMIT: Duration = Duration::from_secs(3_600);
        let limits = BodyTimeouts { idle: Some(LIMIT), deadline: None };
        let mut timers = Timers::new(limits, &observer()).unwrap();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let created = Instant::now();
        timers.is_waiting = false;
        sleep(Duration::from_millis(2)).await;
        let polled = Instant::now();
        assert!(timers.poll_idle(&mut cx).is_pending());
        let (_, idle) = timers.idle.as_ref().unwrap();
        assert!(polled > created && idle.deadline() >= polled + LIMIT, "the pause does not count");
    }

    /// The total limit must end a stream even if the upstream never pauses or the client rarely reads. Data that was
    /// received in time still reaches the client.
    #[tokio::test]
    async fn total_limit_ends_a_body_that_has_more_data_than_was_received() {
        let observer = observer();
        let deadline = Instant::now();
        sleep_until(deadline).await;
        let limits = BodyTimeouts { deadline: Some(deadline), ..BodyTimeouts::default() };
        let received = Bytes::from(vec![b'a'; MAX_AFTER_TOTAL]);
        let mut body = RelayBody::local(received).with_timeouts(limits, &observer);
        let mut frames = Vec::new();
        for _ in 0..2 {
            frames.push(std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await);
            body.source = BodySource::Local(Some(Bytes::from_static(b"b")));
        }
        let [Some(Ok(passed)), Some(Err(BodyError::TimedOut))] = frames.as_slice() else {
            panic!("{frames:?}");
        };
        assert_eq!(passed.data_ref().map(Bytes::len), Some(MAX_AFTER_TOTAL));
        assert!(observer.is_ended());
    }
}
