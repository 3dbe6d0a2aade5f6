//! Waiting in the queue, with an eye on the client, the clock and the proxy's own end.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::Permit;
use crate::forward::exchange::ForwardError;
use crate::forward::forwarder::ShutdownState;
use crate::route::ConcurrencyLimit;
use tokengauge_types::event::{Ending, RejectReason};

/// An exchange in the queue.
#[derive(Debug)]
pub(in crate::forward) struct Queued {
    place: Permit,
    turn: oneshot::Receiver<()>,
    limits: ConcurrencyLimit,
}

/// What else may end the waiting.
pub(in crate::forward) struct WaitInterrupt<'a> {
    /// The request's body, where it may be read already.
    pub(in crate::forward) body: Option<&'a mut BufferedBody>,
    /// Of the whole exchange.
    pub(in crate::forward) deadline: Option<Instant>,
    pub(in crate::forward) phase: watch::Receiver<ShutdownState>,
}

impl Queued {
    pub(super) const fn new(
        place: Permit,
        turn: oneshot::Receiver<()>,
        limits: ConcurrencyLimit,
    ) -> Self {
        Self { place, turn, limits }
    }

    /// Waits for its turn; dropped before, it leaves the queue.
    pub(in crate::forward) async fn turn(
        self,
        meanwhile: WaitInterrupt<'_>,
    ) -> Result<Permit, ForwardError> {
        let Self { place, turn, limits } = self;
        let WaitInterrupt { body, deadline, mut phase } = meanwhile;
        let until = Instant::now() + limits.queue_timeout;
        let until = deadline.map_or(until, |deadline| until.min(deadline));
        let waiting = async {
            tokio::select! {
                biased;
                // The door tells everybody whom it takes from the queue.
                _ = turn => Ok(()),
                () = broken(body) => Err(ForwardError::of(Ending::RequestBodyFailed)),
                _ = phase.wait_for(|phase| *phase != ShutdownState::Serving) => {
                    Err(ForwardError::of(Ending::Rejected(RejectReason::Draining)))
                }
            }
        };
        match timeout_at(until, waiting).await {
            Ok(Ok(())) => Ok(place),
            Ok(Err(failed)) => Err(failed),
            Err(_) => Err(overload(&limits, "no place became free in time")),
        }
    }
}

#[cfg(test)]
impl Queued {
    pub(super) fn is_let_in(&self) -> bool {
        self.place.is_inside()
    }

    pub(super) fn into_place(self) -> Permit {
        self.place
    }
}

/// What is answered where there is no place. To be tried again after `wait`: by then all that are in the queue now have
/// been let in or sent away.
pub(in crate::forward) fn overload(limits: &ConcurrencyLimit, cause: &str) -> ForwardError {
    ForwardError {
        cause: cause.to_owned(),
        retry_after: Some(limits.queue_timeout),
        ..ForwardError::of(Ending::Rejected(RejectReason::Overload))
    }
}

/// Returns when the body broke off, and only then.
async fn broken(body: Option<&mut BufferedBody>) {
    match body {
        Some(body) => body.hold().await,
        None => std::future::pending().await,
    }
}

/// A request's body, of which a beginning may have been read while its exchange waited.
///
/// Over HTTP/1 hyper reads a piece or two of a body that nobody asks for, and sees that a client has gone only behind the
/// body's end. A queue that fills with those who left is the very thing that a queue must not be; so a little more is
/// read, and what does not fit stays with the client.
#[derive(Debug)]
pub(in crate::forward) struct BufferedBody {
    incoming: Incoming,
    /// What was read and not handed on. Boxed: most bodies never wait.
    #[expect(clippy::box_collection, reason = "each request pays for it, and few use it")]
    held: Option<Box<VecDeque<Frame<Bytes>>>>,
}

/// Bytes of a body that are read while it waits: 16,000 tokens of text, so nearly every request is read to its end, and
/// a full queue of 1,000 holds at most 64 MiB. One frame more may come, which is as large as hyper's own buffer.
const MOST_HELD: usize = 64 * 1024;

impl BufferedBody {
    pub(in crate::forward) const fn new(incoming: Incoming) -> Self {
        Self { incoming, held: None }
    }

    /// Reads as far as it may; returns when the body broke off, and only then.
    async fn hold(&mut self) {
        let mut bytes = 0;
        while bytes < MOST_HELD && !self.incoming.is_end_stream() {
            match poll_fn(|cx| Pin::new(&mut self.incoming).poll_frame(cx)).await {
                Some(Ok(frame)) => {
                    bytes += frame.data_ref().map_or(0, Bytes::len);
                    self.held.get_or_insert_default().push_back(frame);
                }
                Some(Err(_)) => return,
                None => break,
            }
        }
        std::future::pending().await
    }

    fn held_bytes(&self) -> u64 {
        let frames = self.held.iter().flat_map(|held| held.iter());
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
        if let Some(held) = &mut self.held {
            if let Some(frame) = held.pop_front() {
                return Poll::Ready(Some(Ok(frame)));
            }
            self.held = None;
        }
        let polled = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.held.as_ref().is_none_or(|held| held.is_empty()) && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (held, rest) = (self.held_bytes(), self.incoming.size_hint());
        let mut all = SizeHint::new();
        all.set_lower(rest.lower() + held);
        if let Some(upper) = rest.upper() {
            all.set_upper(upper + held);
        }
        all
    }
}
