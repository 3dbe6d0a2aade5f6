//! Requests that can be sent a second time, because the connection of the first attempt turned out to be closed.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderName, Request, request};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::buffered_body::{Upload, held_bytes};
use tokengauge_listen::BodyError;
use tokengauge_observe::tee::UploadFlush;
use tokengauge_types::sync::lock;

/// Maximum length in bytes of a request body that is kept for a second attempt: a prompt of 250,000 tokens. A body
/// without a known length is kept up to [`MAX_KEPT_UNKNOWN`].
const MAX_KEPT: u64 = 1024 * 1024;
const MAX_KEPT_UNKNOWN: u64 = 64 * 1024;

/// Memory in bytes that is reserved for the frames themselves, in addition to an eighth of the length of the body. A
/// body that arrives in pieces below 1 KiB takes more, and is not kept.
const FRAMES_ALLOWANCE: u64 = 4 * 1024;

/// Maximum number of bytes that an upstream keeps for the second attempts of all its requests together. Requests beyond
/// the limit are not repeated.
pub const MAX_KEPT_TOTAL: usize = 64 * 1024 * 1024;

/// Headers by which a client declares that the upstream recognizes a repeated request.
const IDEMPOTENCY_KEYS: [HeaderName; 2] =
    [HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-idempotency-key")];

/// A request that was sent on a reused connection. Holds the headers and body frames for a second attempt, without
/// copying body data.
#[derive(Debug)]
pub struct RepeatableRequest {
    head: request::Parts,
    body: KeptHandle,
}

/// The body of one attempt to send a request.
///
/// The first attempt on a reused connection keeps the frames that it passes on. A second attempt sends the kept frames
/// below the observer, so each byte is observed once.
#[derive(Debug)]
pub struct SentBody {
    /// `None` once the attempt is over.
    upload: Option<Upload>,
    kept: Option<Arc<Mutex<Kept>>>,
}

/// The body of the first attempt, as far as it was sent.
#[derive(Debug, Default)]
struct Kept {
    /// The reserved part of the budget. `None` once the frames are no longer kept.
    permit: Option<OwnedSemaphorePermit>,
    /// Number of bytes that may still be kept.
    room: usize,
    /// The frames that the first attempt passed on.
    frames: VecDeque<Frame<Bytes>>,
    /// The part of the body that the first attempt did not send. `None` until the first attempt ends.
    rest: Option<Upload>,
}

/// Frees the frames when it is dropped, even if the first attempt is still sending the body.
#[derive(Debug)]
struct KeptHandle(Arc<Mutex<Kept>>);

impl RepeatableRequest {
    /// Splits `request` into the request of the first attempt and the handle for a second one. Returns no handle if
    /// `budget`, in bytes, cannot hold the body.
    pub(super) fn split(
        request: Request<Upload>,
        budget: &Arc<Semaphore>,
    ) -> (Request<SentBody>, Option<Self>) {
        let length = request.body().size_hint().exact().unwrap_or(MAX_KEPT_UNKNOWN);
        let Some(permit) = reserve(length, budget) else {
            return (request.map(SentBody::new), None);
        };
        let room = permit.num_permits();
        let kept = Kept { permit: Some(permit), room, ..Kept::default() };
        let kept = Arc::new(Mutex::new(kept));
        let (head, upload) = request.into_parts();
        let body = SentBody { upload: Some(upload), kept: Some(Arc::clone(&kept)) };
        let repeatable = Self { head: head.clone(), body: KeptHandle(kept) };
        (Request::from_parts(head, body), Some(repeatable))
    }

    /// Returns whether a second attempt has no other effect on the upstream than the first one alone.
    pub(super) fn is_idempotent(&self) -> bool {
        let request::Parts { method, headers, .. } = &self.head;
        method.is_idempotent() || IDEMPOTENCY_KEYS.iter().any(|name| headers.contains_key(name))
    }

    /// Returns the request of the second attempt, after the first one has dropped its request. Returns `None` if the
    /// body was not kept completely.
    pub(super) fn into_request(self) -> Option<Request<Upload>> {
        let Self { head, body } = self;
        let mut kept = lock(&body.0);
        kept.permit.as_ref()?;
        let mut upload = kept.rest.take()?;
        upload.prepend(std::mem::take(&mut kept.frames));
        Some(Request::from_parts(head, upload))
    }
}

fn reserve(length: u64, budget: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    let room = (length <= MAX_KEPT).then(|| length + length / 8 + FRAMES_ALLOWANCE)?;
    Arc::clone(budget).try_acquire_many_owned(u32::try_from(room).ok()?).ok()
}

impl SentBody {
    pub(super) const fn new(upload: Upload) -> Self {
        Self { upload: Some(upload), kept: None }
    }

    /// Returns the body, if the attempt has not sent it.
    pub(super) fn into_upload(mut self) -> Option<Upload> {
        self.upload.take()
    }

    /// See [`Upload::report_end_by`].
    pub(super) fn report_end_by(&mut self, flush: Option<Arc<UploadFlush>>) {
        if let Some(upload) = &mut self.upload {
            upload.report_end_by(flush);
        }
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self { upload: Some(upload), kept } = &mut *self else { return Poll::Ready(None) };
        let polled = ready!(Pin::new(upload).poll_frame(cx));
        if let (Some(kept), Some(Ok(frame))) = (kept, &polled) {
            lock(kept).push(frame);
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.upload.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.upload.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for SentBody {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take() {
            let mut kept = lock(&kept);
            if kept.permit.is_some() {
                kept.rest = self.upload.take();
            }
        }
    }
}

impl Kept {
    fn push(&mut self, frame: &Frame<Bytes>) {
        let Some(copy) = shallow_copy(frame).filter(|_| self.permit.is_some()) else { return };
        match self.room.checked_sub(held_bytes(frame)) {
            Some(room) => {
                self.room = room;
                self.frames.push_back(copy);
            }
            None => *self = Self::default(),
        }
    }
}

/// Copies a frame without its data. Returns `None` for a kind of frame that HTTP does not have.
fn shallow_copy(frame: &Frame<Bytes>) -> Option<Frame<Bytes>> {
    let data = frame.data_ref().cloned().map(Frame::data);
    data.or_else(|| frame.trailers_ref().cloned().map(Frame::trailers))
}

impl Drop for KeptHandle {
    fn drop(&mut self) {
        *lock(&self.0) = Kept::default();
    }
}
