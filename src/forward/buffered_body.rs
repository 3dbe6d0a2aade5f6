//! The body of a request to an upstream, which can be read before a connection is available.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::Request;
use http::header::EXPECT;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{Semaphore, SemaphorePermit};

use tokengauge_listen::{BodyError, ReceivedBody};
use tokengauge_observe::tee::body::RequestBody;
use tokengauge_observe::tee::{RequestObserver, UploadFlush};

/// Maximum memory in bytes for the part of a request body that waits for a connection. 64 KiB is about 16,000 tokens of
/// text, so nearly every request fits completely. The last frame can exceed the limit by the size of one read.
const MAX_READ_AHEAD_BYTES: usize = 64 * 1024;

/// The body of every request to an upstream, with the frames that were read before a connection takes the body.
///
/// Each frame is observed when it is read from the client. The model and the kind of a call are therefore known even if
/// no upstream can be reached.
///
/// A body is read ahead while its request waits in the queue or for a connection. Over HTTP/1, hyper reads only one or
/// two pieces of a body that no task polls. hyper detects a closed connection only after the end of the body. Without
/// reading ahead, the queue would fill with disconnected clients. Data beyond the limit stays with the client.
///
/// A second attempt to send a request puts the frames of the first one back: see [`super::repeat`].
pub struct Upload {
    body: RequestBody<ReceivedBody>,
    /// Frames that were read from the client and not yet sent. `None` takes little memory, and most bodies never wait.
    frames: Option<Box<BufferedFrames>>,
}

/// Frames of a request body, and the part of the budget that they take.
#[derive(Default)]
struct BufferedFrames {
    frames: VecDeque<Frame<Bytes>>,
    /// `None` for frames of an earlier attempt, which have a budget of their own.
    _permit: Option<SemaphorePermit<'static>>,
}

/// Maximum memory in bytes of all bodies that are read ahead. Beyond it, a request that waits is not read ahead, and its
/// body stays with the client.
const READ_AHEAD_BUDGET: usize = 32 << 20;

static READ_AHEAD: Semaphore = Semaphore::const_new(READ_AHEAD_BUDGET);

/// Returns the body of `request`, or `None` if the client sent `Expect: 100-continue`. Such a client must not send its
/// body only to get an error response.
pub(super) fn readable_body<B>(request: &mut Request<B>) -> Option<&mut B> {
    (!request.headers().contains_key(EXPECT)).then(|| request.body_mut())
}

/// Reads `body` ahead, up to the memory limit. Returns only if the client's body fails.
pub(super) async fn read_ahead_until_failure(body: Option<&mut Upload>) {
    if let Some(body) = body
        && body.reserve_read_ahead()
    {
        let mut bytes = body.held_bytes();
        while bytes < MAX_READ_AHEAD_BYTES && !body.body.is_end_stream() {
            match body.read().await {
                Some(Ok(frame)) => {
                    bytes += held_bytes(&frame);
                    body.frames.get_or_insert_default().frames.push_back(frame);
                }
                Some(Err(_)) => return,
                None => break,
            }
        }
    }
    std::future::pending().await
}

impl Upload {
    pub(super) fn new(body: ReceivedBody, observer: RequestObserver) -> Self {
        Self { body: RequestBody::new(body, observer), frames: None }
    }

    pub(super) const fn observer(&self) -> &RequestObserver {
        self.body.observer()
    }

    /// See [`RequestBody::report_end_by`].
    pub(super) fn report_end_by(&mut self, flush: Option<Arc<UploadFlush>>) {
        self.body.report_end_by(flush);
    }

    /// Reads and drops the body, up to the memory limit. The observer receives a copy of what is read.
    pub(super) async fn discard(mut self) {
        let mut bytes = self.held_bytes();
        while bytes < MAX_READ_AHEAD_BYTES && !self.body.is_end_stream() {
            let Some(Ok(frame)) = self.read().await else { return };
            bytes += held_bytes(&frame);
        }
    }

    /// Puts frames back at the front. [`poll_frame`](Body::poll_frame) then returns these frames a second time.
    pub(super) fn prepend(&mut self, mut returned: VecDeque<Frame<Bytes>>) {
        let mut buffered = self.frames.take().unwrap_or_default();
        returned.append(&mut buffered.frames);
        buffered.frames = returned;
        self.frames = Some(buffered);
    }

    /// Reserves memory for reading the body ahead, unless it is reserved already. Returns `false` if the budget has no
    /// room.
    fn reserve_read_ahead(&mut self) -> bool {
        if self.body.is_end_stream() || self.frames.is_some() {
            return true;
        }
        let size = self.body.size_hint().upper().and_then(|size| usize::try_from(size).ok());
        let wanted = size.map_or(MAX_READ_AHEAD_BYTES, |size| size.min(MAX_READ_AHEAD_BYTES));
        let permit = READ_AHEAD.try_acquire_many(u32::try_from(wanted).unwrap_or(u32::MAX)).ok();
        let is_reserved = permit.is_some();
        if is_reserved {
            self.frames =
                Some(Box::new(BufferedFrames { frames: VecDeque::new(), _permit: permit }));
        }
        is_reserved
    }

    async fn read(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        poll_fn(|cx| Pin::new(&mut self.body).poll_copied(cx)).await
    }

    fn buffered_bytes(&self) -> usize {
        self.buffered().map(len).sum()
    }

    fn held_bytes(&self) -> usize {
        self.buffered().map(held_bytes).sum()
    }

    fn buffered(&self) -> impl Iterator<Item = &Frame<Bytes>> {
        self.frames.iter().flat_map(|buffered| &buffered.frames)
    }
}

/// Returns the memory of `frame` in bytes: its data, and the frame itself, which can be larger than short data.
pub(super) fn held_bytes(frame: &Frame<Bytes>) -> usize {
    size_of_val(frame) + len(frame)
}

fn len(frame: &Frame<Bytes>) -> usize {
    frame.data_ref().map_or(0, Bytes::remaining)
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let buffered = self.frames.as_mut().and_then(|buffered| buffered.frames.pop_front());
        let polled = match buffered {
            Some(frame) => Some(Ok(frame)),
            None => {
                self.frames = None;
                ready!(Pin::new(&mut self.body).poll_copied(cx))
            }
        };
        let is_last = self.is_end_stream();
        Pin::new(&mut self.body).report_passed_on(polled.as_ref(), is_last);
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.buffered().next().is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (buffered, rest) = (self.buffered_bytes() as u64, self.body.size_hint());
        let mut total = SizeHint::new();
        total.set_lower(rest.lower() + buffered);
        if let Some(upper) = rest.upper() {
            total.set_upper(upper + buffered);
        }
        total
    }
}

/// Omits the buffered bytes, which are the client's text.
impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload")
            .field("exchange", &self.observer().id())
            .field("buffered_bytes", &self.buffered_bytes())
            .finish_non_exhaustive()
    }
}
