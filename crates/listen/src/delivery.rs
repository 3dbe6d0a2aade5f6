//! Ensures that the client receives all response data that precedes an error of the response body.
//!
//! When a body fails, hyper drops the data that it has buffered: the whole connection over HTTP/1, and the frames of
//! the stream over HTTP/2. The body's error is therefore held back until hyper has written the data. Bodies that do not
//! fail cost one atomic load per flush, and over HTTP/2 two counters per frame.

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use super::request_limit::RequestPermit;
use super::response_limits::ResponseLimits;
use bytes::{Buf, Bytes};
use tokengauge_types::event::TimeoutKind;
use tokengauge_types::sync::lock;
use tokio::time::{Sleep, sleep};

use super::flush_signal::{FlushSignal, Unwritten};

/// Any error of a body.
pub(super) type BoxError = Box<dyn StdError + Send + Sync>;

/// Maximum time for which an error is held back if the client does not read. In this time, a client that reads only 3
/// KiB/s receives all of hyper's buffer of 64 KiB.
const MAX_DELAY: Duration = Duration::from_secs(30);

/// Delivery of one response. Detects response data that is not yet written even after the connection was flushed.
pub(super) trait Protocol: Send + Unpin + 'static {
    /// Whether the listener limits the unwritten data of a response. HTTP/2 does so itself, for each stream.
    const LIMITS_UNWRITTEN: bool;

    type Data: Buf + Send + 'static;

    /// Creates the state of a new request.
    fn begin(new_stream: &NewStream) -> Self;

    fn track(&self, bytes: Bytes) -> Self::Data;

    fn poll_written(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Holds the permit until the response is written, if that can be later than the end of its body. Otherwise returns
    /// the permit.
    fn hold(&self, permit: Option<RequestPermit>) -> Option<RequestPermit>;

    /// Returns the HTTP/2 stream.
    fn stream(&self) -> Option<Arc<StreamState>>;

    /// Returns the limits of this response: those of its stream, or of its HTTP/1 `connection`.
    fn limits<'a>(&'a self, connection: &'a ResponseLimits) -> &'a ResponseLimits;
}

/// HTTP/1: a flush always covers the whole response, because a connection carries one response at a time.
#[derive(Debug)]
pub(super) struct Http1;

impl Protocol for Http1 {
    const LIMITS_UNWRITTEN: bool = true;

    type Data = Bytes;

    fn begin(_: &NewStream) -> Self {
        Self
    }

    fn track(&self, bytes: Bytes) -> Bytes {
        bytes
    }

    fn poll_written(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    fn hold(&self, permit: Option<RequestPermit>) -> Option<RequestPermit> {
        permit
    }

    fn stream(&self) -> Option<Arc<StreamState>> {
        None
    }

    fn limits<'a>(&'a self, connection: &'a ResponseLimits) -> &'a ResponseLimits {
        connection
    }
}

/// HTTP/2: counts the frames that are not written yet. A flush of the connection is not enough, because flow control
/// can delay the frames of one stream. The HTTP/2 library drops a frame after it has written the frame.
#[derive(Debug)]
pub(super) struct Http2(Arc<StreamState>);

/// Delivery of one HTTP/2 response. The response body, the task of the stream and the unwritten frames share it.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    unwritten: Unwritten,
    /// Number of bytes of the unwritten frames.
    bytes: AtomicUsize,
    /// Number of writes of parts of frames. Wraps around.
    writes: AtomicU32,
    limits: ResponseLimits,
    /// Returned when the response is written, because unwritten frames take memory.
    permit: Mutex<Option<RequestPermit>>,
}

/// The stream whose request hyper has passed to the service, until hyper starts the task of this stream.
#[derive(Debug, Default)]
pub(super) struct NewStream(Mutex<Option<Arc<StreamState>>>);

impl NewStream {
    pub(super) fn take(&self) -> Option<Arc<StreamState>> {
        lock(&self.0).take()
    }
}

impl StreamState {
    pub(super) fn has_unwritten_frames(&self) -> bool {
        !self.unwritten.is_empty()
    }

    pub(super) fn unwritten_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn writes(&self) -> u32 {
        self.writes.load(Ordering::Relaxed)
    }

    pub(super) const fn limits(&self) -> &ResponseLimits {
        &self.limits
    }

    /// Records that the delivery ends because of `timeout`, and returns the permit. Unwritten frames can remain until
    /// the send timeout of the connection.
    pub(super) fn time_out(&self, timeout: TimeoutKind) {
        self.limits.time_out(timeout);
        drop(lock(&self.permit).take());
    }

    /// Returns `Ready` once no frame is left to write.
    pub(super) fn poll_written(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.unwritten.poll_empty(cx)
    }
}

impl Protocol for Http2 {
    const LIMITS_UNWRITTEN: bool = false;

    type Data = Chunk;

    fn begin(new_stream: &NewStream) -> Self {
        let stream = Arc::<StreamState>::default();
        *lock(&new_stream.0) = Some(Arc::clone(&stream));
        Self(stream)
    }

    fn track(&self, bytes: Bytes) -> Chunk {
        self.0.unwritten.add();
        self.0.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        Chunk { bytes, stream: Arc::clone(&self.0) }
    }

    fn poll_written(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_written(cx)
    }

    fn hold(&self, permit: Option<RequestPermit>) -> Option<RequestPermit> {
        *lock(&self.0.permit) = permit;
        None
    }

    fn stream(&self) -> Option<Arc<StreamState>> {
        Some(Arc::clone(&self.0))
    }

    fn limits<'a>(&'a self, _: &'a ResponseLimits) -> &'a ResponseLimits {
        &self.0.limits
    }
}

/// Body data of an HTTP/2 response.
#[derive(Debug)]
pub(super) struct Chunk {
    bytes: Bytes,
    stream: Arc<StreamState>,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.stream.bytes.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        self.stream.unwritten.remove();
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.stream.writes.fetch_add(1, Ordering::Relaxed);
        self.stream.bytes.fetch_sub(count, Ordering::Relaxed);
        self.bytes.advance(count);
    }
}

/// The error of a response body. It is held back until the data before the error is written.
#[derive(Debug)]
pub(super) struct HeldError {
    /// `None` once the error was returned.
    error: Option<BoxError>,
    /// Number of flushes when the wait began. The next flush changes the number.
    previous_flush: u32,
    limit: Pin<Box<Sleep>>,
}

impl HeldError {
    pub(super) fn new(error: BoxError, connection: &FlushSignal) -> Self {
        let previous_flush = connection.request();
        Self { error: Some(error), previous_flush, limit: Box::pin(sleep(MAX_DELAY)) }
    }

    /// Returns the error once all data is written or the time limit has expired. Later calls return `None`.
    pub(super) fn poll<P: Protocol>(
        &mut self,
        cx: &mut Context<'_>,
        connection: &FlushSignal,
        response: &P,
    ) -> Poll<Option<BoxError>> {
        let is_written = connection.poll(self.previous_flush, cx).is_ready()
            && response.poll_written(cx).is_ready();
        if !is_written && self.limit.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(self.error.take())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use tokio::time::Instant;

    use super::*;

    fn held(connection: &FlushSignal) -> HeldError {
        HeldError::new("failed".into(), connection)
    }

    #[tokio::test]
    async fn an_error_waits_for_a_flush_and_for_every_frame() {
        let connection = FlushSignal::default();
        let response = Http2::begin(&NewStream::default());
        let cx = &mut Context::from_waker(Waker::noop());
        let chunk = response.track(Bytes::from_static(b"x"));
        connection.on_flushed();
        let mut error = held(&connection);
        assert!(error.poll(cx, &connection, &response).is_pending(), "only later flushes count");
        connection.on_flushed();
        assert!(error.poll(cx, &connection, &response).is_pending(), "a frame is left");
        drop(chunk);
        let Poll::Ready(Some(_)) = error.poll(cx, &connection, &response) else {
            panic!("everything was written");
        };
        assert!(matches!(error.poll(cx, &connection, &response), Poll::Ready(None)));
    }

    #[tokio::test]
    async fn an_error_does_not_wait_for_a_client_that_does_not_read() {
        let connection = FlushSignal::default();
        let mut error = held(&connection);
        error.limit.as_mut().reset(Instant::now());
        let returned = poll_fn(|cx| error.poll(cx, &connection, &Http1)).await;
        assert_eq!(returned.unwrap().to_string(), "failed");
    }
}
