//! The request body that a service receives.

use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep};

use super::active_exchanges::ActiveExchanges;
use super::delivery::StreamState;

/// A request body that fails if the client sends nothing for too long.
///
/// The time runs only while the reader waits for the client. A backend that reads slowly is not limited, and neither is
/// the wait for the response.
///
/// If the service drops an HTTP/1 request body before its end, the connection closes after the response. If the
/// response headers are not sent yet, they then contain `Connection: close`.
#[derive(Debug)]
pub struct ReceivedBody {
    incoming: Incoming,
    /// The HTTP/1 connection. `None` for HTTP/2, and once the end of the body was read.
    connection: Option<Arc<ActiveExchanges>>,
    /// Timer, created at the first wait. Most bodies need none, because they arrive with their headers.
    timer: Option<Pin<Box<BodyTimer>>>,
    /// Time limit in milliseconds, in a type that takes less memory than a `Duration`. `None` without a limit.
    timeout: Option<NonZeroU32>,
    /// Whether the reader is waiting for the client. When a new wait begins, the timer starts again.
    is_waiting: bool,
}

pin_project! {
    /// The timer of a wait for the client.
    #[derive(Debug)]
    struct BodyTimer {
        #[pin]
        sleep: Sleep,
        // The response of a two-way stream. While it makes progress, the client need not send anything.
        response: Option<Arc<StreamState>>,
        // Number of writes of the response when the timer was last set.
        writes: u32,
    }
}

impl BodyTimer {
    fn new(timeout: Duration, response: Option<Arc<StreamState>>) -> Pin<Box<Self>> {
        Box::pin(Self { sleep: sleep(timeout), response, writes: 0 })
    }
}

/// Reason why a request body ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("the client sent no byte of the request body for {0:?}")]
    Idle(Duration),
}

/// Content types of two-way streams: gRPC and AWS event streams. Such streams need HTTP/2. Over HTTP/1, these bodies are
/// ordinary uploads.
const TWO_WAY: [&[u8]; 2] = [b"application/grpc", b"application/vnd.amazon.eventstream"];

/// Factor of the time limit for two-way streams, because the client may wait for a response or a user before it sends
/// its next message. The default limit is then 10 minutes. Envoy ends every stream after 5 minutes without data.
const TWO_WAY_FACTOR: u32 = 10;

impl ReceivedBody {
    /// Wraps the body of `request`. `connection` is the HTTP/1 connection, and `stream` returns the HTTP/2 stream.
    pub(super) fn wrap(
        request: Request<Incoming>,
        timeout: Duration,
        connection: Option<Arc<ActiveExchanges>>,
        stream: impl FnOnce() -> Option<Arc<StreamState>>,
    ) -> Request<Self> {
        let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let is_two_way = TWO_WAY.iter().any(|two_way| kind.starts_with(two_way));
        let response = if is_two_way { stream() } else { None };
        let timeout = if response.is_some() { timeout * TWO_WAY_FACTOR } else { timeout };
        let timer = response.map(|response| BodyTimer::new(timeout, Some(response)));
        let timeout = NonZeroU32::new(u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX));
        request.map(|incoming| Self { incoming, connection, timer, timeout, is_waiting: false })
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let polled = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        if !matches!(&polled, Some(Ok(frame)) if !frame.is_trailers()) {
            self.connection = None;
        }
        Poll::Ready(polled)
    }

    /// Returns `Ready` once the client has sent nothing for `timeout`. In a two-way stream, the time also starts again
    /// with each part of the response.
    fn poll_timeout(&mut self, timeout: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| BodyTimer::new(timeout, None));
        let mut is_new = !std::mem::replace(&mut self.is_waiting, true);
        loop {
            let mut timer = timer.as_mut().project();
            if is_new {
                timer.sleep.as_mut().reset(Instant::now() + timeout);
            }
            ready!(timer.sleep.poll(cx));
            let Some(response) = timer.response else { return Poll::Ready(()) };
            let writes = response.writes();
            is_new = std::mem::replace(timer.writes, writes) != writes;
            if !is_new {
                return Poll::Ready(());
            }
        }
    }
}

impl Body for ReceivedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = self.poll_incoming(cx) {
            self.is_waiting = false;
            if self.is_end_stream() {
                self.timer = None;
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Http)));
        }
        let Some(timeout) = self.timeout else { return Poll::Pending };
        let timeout = Duration::from_millis(timeout.get().into());
        self.poll_timeout(timeout, cx).map(|()| Some(Err(BodyError::Idle(timeout))))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for ReceivedBody {
    fn drop(&mut self) {
        // A short body has usually arrived with its headers: one frame and the end. Reading it here keeps the
        // connection.
        let cx = &mut Context::from_waker(Waker::noop());
        for _ in 0..2 {
            if self.connection.is_some() && !self.is_end_stream() {
                drop(self.poll_incoming(cx));
            }
        }
        if let Some(connection) = self.connection.take()
            && !self.is_end_stream()
        {
            connection.abandon_request();
        }
    }
}
