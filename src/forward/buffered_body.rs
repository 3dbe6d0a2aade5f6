//! A request body that is read ahead, up to a limit, while its exchange waits in the queue.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};

use tokengauge_listen::ReceivedBody;
use tokengauge_observe::tee::body::RequestBody;

/// The body of every request to an upstream.
pub type Upload = RequestBody<BufferedBody>;

/// Maximum number of bytes of a request body that are read while its exchange waits in the queue. 64 KiB is about
/// 16,000 tokens of text, so nearly every request is read completely. A full queue of 1,000 holds at most 64 MiB. The
/// last frame can exceed the limit by the size of hyper's buffer.
const MOST_BUFFERED: usize = 64 * 1024;

/// A request body, with the frames that were read ahead while the exchange waited in the queue.
///
/// Over HTTP/1, hyper reads only one or two pieces of a body that no task polls. hyper detects a closed connection only
/// after the end of the body. Without reading ahead, the queue would fill with disconnected clients. Data beyond the
/// limit stays with the client.
#[derive(Debug)]
pub struct BufferedBody {
    incoming: ReceivedBody,
    /// Frames that were read ahead and not yet returned. Boxed to save memory, because most bodies never wait.
    #[expect(
        clippy::box_collection,
        reason = "every request pays for its size, and few requests use it"
    )]
    frames: Option<Box<VecDeque<Frame<Bytes>>>>,
}

impl BufferedBody {
    pub(super) const fn new(incoming: ReceivedBody) -> Self {
        Self { incoming, frames: None }
    }

    /// Reads the body ahead, up to the limit. The future completes only if the body fails.
    pub(super) async fn buffer_until_error(&mut self) {
        let mut bytes = 0;
        while bytes < MOST_BUFFERED && !self.incoming.is_end_stream() {
            match poll_fn(|cx| Pin::new(&mut self.incoming).poll_frame(cx)).await {
                Some(Ok(frame)) => {
                    bytes += frame.data_ref().map_or(0, Bytes::len);
                    self.frames.get_or_insert_default().push_back(frame);
                }
                Some(Err(_)) => return,
                None => break,
            }
        }
        std::future::pending().await
    }

    fn buffered_bytes(&self) -> u64 {
        let frames = self.frames.iter().flat_map(|frames| frames.iter());
        frames.filter_map(|frame| Some(frame.data_ref()?.remaining() as u64)).sum()
    }
}

impl Body for BufferedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        if let Some(frames) = &mut self.frames {
            if let Some(frame) = frames.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            self.frames = None;
        }
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.frames.as_ref().is_none_or(|frames| frames.is_empty()) && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (buffered, rest) = (self.buffered_bytes(), self.incoming.size_hint());
        let mut total = SizeHint::new();
        total.set_lower(rest.lower() + buffered);
        if let Some(upper) = rest.upper() {
            total.set_upper(upper + buffered);
        }
        total
    }
}
