//! Requests that can be sent a second time. This is needed if the upstream had closed the connection of the first
//! attempt.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderName, Request};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::buffered_body::{Upload, held_bytes};
use tokengauge_listen::BodyError;
use tokengauge_observe::tee::UploadFlush;
use tokengauge_types::sync::lock;

/// Maximum length in bytes of a request body that is kept for a second attempt: a prompt of about 250,000 tokens. If
/// the length is not known, [`MAX_KEPT_UNKNOWN`] applies.
const MAX_KEPT: u64 = 1024 * 1024;
const MAX_KEPT_UNKNOWN: u64 = 64 * 1024;

/// Memory in bytes that is reserved for the frame structures, in addition to an eighth of the body's length. A body
/// that arrives in frames below 1 KiB needs more, and is then not kept.
const FRAMES_ALLOWANCE: u64 = 4 * 1024;

/// Maximum memory in bytes for the kept request bodies of the process. When the limit is reached, further requests are
/// not kept and cannot be repeated.
const MAX_KEPT_TOTAL: usize = 64 * 1024 * 1024;

/// Remaining memory in bytes for kept request bodies. Global, because memory belongs to the process: the number of
/// upstreams is not limited, and a reload replaces upstreams that still have requests.
static BUDGET: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(MAX_KEPT_TOTAL)));

/// Headers with an idempotency key. With such a key, the upstream recognizes a repeated request.
const IDEMPOTENCY_KEYS: [HeaderName; 2] =
    [HeaderName::from_static("idempotency-key"), HeaderName::from_static("x-idempotency-key")];

/// A request that was sent on a reused connection. Holds its headers and body frames for a second attempt. Body data is
/// not copied.
#[derive(Debug)]
pub struct RepeatableRequest {
    head: Request<()>,
    body: KeptBodyGuard,
}

/// The request body of one attempt.
///
/// The first attempt on a reused connection keeps the frames that it has sent, and the second attempt sends them again.
/// Frames are observed when they are read from the client, and therefore only once.
#[derive(Debug)]
pub struct SentBody {
    /// `None` once the attempt is over. Boxed, because hyper reserves memory for 32 requests per upstream connection.
    upload: Option<Box<Upload>>,
    kept: Option<Arc<Mutex<KeptBody>>>,
}

/// The part of the body that the first attempt has sent.
#[derive(Debug, Default)]
struct KeptBody {
    /// The reserved memory. `None` after the kept frames were freed.
    permit: Option<OwnedSemaphorePermit>,
    /// Number of bytes that may still be kept.
    room: usize,
    /// The frames that the first attempt passed on.
    frames: VecDeque<Frame<Bytes>>,
    /// The part of the body that the first attempt has not sent. `None` until the first attempt has ended.
    rest: Option<Box<Upload>>,
}

/// Access to the kept frames. Dropping this value frees them, even during the first attempt.
#[derive(Debug)]
struct KeptBodyGuard(Arc<Mutex<KeptBody>>);

impl RepeatableRequest {
    /// Copies the headers of `request`, and keeps its body from now on. Returns `None` if the body exceeds a memory
    /// limit.
    pub(super) fn copy(request: &mut Request<SentBody>) -> Option<Self> {
        let length = request.body().size_hint().exact().unwrap_or(MAX_KEPT_UNKNOWN);
        let permit = reserve(length)?;
        let room = permit.num_permits();
        let kept = KeptBody { permit: Some(permit), room, ..KeptBody::default() };
        let kept = Arc::new(Mutex::new(kept));
        request.body_mut().kept = Some(Arc::clone(&kept));
        let mut head = Request::new(());
        head.method_mut().clone_from(request.method());
        head.uri_mut().clone_from(request.uri());
        *head.version_mut() = request.version();
        head.headers_mut().clone_from(request.headers());
        head.extensions_mut().clone_from(request.extensions());
        Some(Self { head, body: KeptBodyGuard(kept) })
    }

    /// Returns whether the upstream can receive the request twice without an additional effect.
    pub(super) fn is_idempotent(&self) -> bool {
        let (method, headers) = (self.head.method(), self.head.headers());
        method.is_idempotent() || IDEMPOTENCY_KEYS.iter().any(|name| headers.contains_key(name))
    }

    /// Returns the request for the second attempt. The first attempt must have dropped its request. Returns `None` if
    /// the kept body is not complete.
    pub(super) fn into_request(self) -> Option<Box<Request<SentBody>>> {
        let Self { head, body } = self;
        let mut kept = lock(&body.0);
        kept.permit.as_ref()?;
        let mut upload = kept.rest.take()?;
        upload.prepend(std::mem::take(&mut kept.frames));
        Some(Box::new(head.map(|()| SentBody { upload: Some(upload), kept: None })))
    }
}

fn reserve(length: u64) -> Option<OwnedSemaphorePermit> {
    let room = (length <= MAX_KEPT).then(|| length + length / 8 + FRAMES_ALLOWANCE)?;
    Arc::clone(&BUDGET).try_acquire_many_owned(u32::try_from(room).ok()?).ok()
}

impl SentBody {
    pub(super) fn new(upload: Upload) -> Self {
        Self { upload: Some(Box::new(upload)), kept: None }
    }

    /// Returns the body, or `None` if the attempt has ended.
    pub(super) fn into_upload(mut self) -> Option<Upload> {
        self.upload.take().map(|upload| *upload)
    }

    pub(super) fn upload_mut(&mut self) -> Option<&mut Upload> {
        self.upload.as_deref_mut()
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
        self.upload.as_deref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.upload.as_deref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
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

impl KeptBody {
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

/// Copies a frame, without copying its data. Returns `None` for a frame that is neither data nor trailers.
fn shallow_copy(frame: &Frame<Bytes>) -> Option<Frame<Bytes>> {
    let data = frame.data_ref().cloned().map(Frame::data);
    data.or_else(|| frame.trailers_ref().cloned().map(Frame::trailers))
}

impl Drop for KeptBodyGuard {
    fn drop(&mut self) {
        *lock(&self.0) = KeptBody::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_upstreams_share_one_budget() {
        let kept: Vec<_> = std::iter::from_fn(|| reserve(MAX_KEPT)).collect();
        let bytes: usize = kept.iter().map(OwnedSemaphorePermit::num_permits).sum();
        assert!(bytes <= MAX_KEPT_TOTAL && bytes > MAX_KEPT_TOTAL * 9 / 10, "{bytes}");
        drop(kept);
        assert!(reserve(MAX_KEPT).is_some());
        assert!(reserve(MAX_KEPT + 1).is_none());
    }
}
