//! The body of a request, as the service receives it.

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
use tokio::time::{Instant, Sleep, sleep};

use super::exchanges::Exchanges;

/// The body of a request. It fails if the client sends nothing for a time.
///
/// The time runs only while the reader of the body waits for the client. A backend that reads slowly, or a request
/// that waits for its response, is not limited.
///
/// If a service drops the body before the end of the request, its HTTP/1 connection is closed after the response, and
/// the response says so.
#[derive(Debug)]
pub struct ReceivedBody {
    incoming: Incoming,
    /// The HTTP/1 connection, while the end of the body has not been read.
    connection: Option<Arc<Exchanges>>,
    /// The timer, created when the reader first waits. `None` for most bodies, which arrive together with their
    /// headers.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Time limit in milliseconds. This type takes less memory than a `Duration`. `None` for a two-way stream, which
    /// has no limit.
    timeout: Option<NonZeroU32>,
    /// Whether the reader waits. If not, the next wait resets the sleep.
    is_waiting: bool,
}

/// Reason why a request body ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("the client sent no byte of the request body for {0:?}")]
    Idle(Duration),
}

/// Content types of two-way streams: gRPC, and the event streams of AWS. Their clients may wait for a response before
/// they send the next message, however long a model takes.
const TWO_WAY: [&[u8]; 2] = [b"application/grpc", b"application/vnd.amazon.eventstream"];

impl ReceivedBody {
    pub(super) fn of(
        request: Request<Incoming>,
        timeout: Duration,
        connection: Option<Arc<Exchanges>>,
    ) -> Request<Self> {
        let kind = request.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let is_two_way = TWO_WAY.iter().any(|two_way| kind.starts_with(two_way));
        let millis = NonZeroU32::new(u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX));
        let timeout = millis.filter(|_| !is_two_way);
        request.map(|incoming| Self {
            incoming,
            connection,
            sleep: None,
            timeout,
            is_waiting: false,
        })
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let polled = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        if !matches!(&polled, Some(Ok(frame)) if !frame.is_trailers()) {
            self.connection = None;
        }
        Poll::Ready(polled)
    }

    /// Returns `Ready` if the client has sent nothing for `timeout`.
    fn poll_timeout(&mut self, timeout: Duration, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(timeout)));
        if !std::mem::replace(&mut self.is_waiting, true) {
            sleep.as_mut().reset(Instant::now() + timeout);
        }
        sleep.as_mut().poll(cx)
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
                self.sleep = None;
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
        // A short body has usually arrived with its headers: one frame and the end. Reading it here keeps the connection.
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
