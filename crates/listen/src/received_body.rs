//! The body of a request, as the service receives it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::exchanges::Exchanges;

/// The body of a request. If a service drops it before the end of the request, its HTTP/1 connection is closed after
/// the response, and the response says so.
#[derive(Debug)]
pub struct ReceivedBody {
    incoming: Incoming,
    /// The HTTP/1 connection, while the end of the body has not been read.
    connection: Option<Arc<Exchanges>>,
}

impl ReceivedBody {
    pub(super) fn new(incoming: Incoming, connection: Option<Arc<Exchanges>>) -> Self {
        Self { incoming, connection }
    }
}

impl Body for ReceivedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let polled = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        if !matches!(&polled, Some(Ok(frame)) if !frame.is_trailers()) {
            self.connection = None;
        }
        Poll::Ready(polled)
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
                drop(Pin::new(&mut *self).poll_frame(cx));
            }
        }
        if let Some(connection) = self.connection.take()
            && !self.is_end_stream()
        {
            connection.abandon_request();
        }
    }
}
