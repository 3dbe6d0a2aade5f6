//! Signals between the task that drives a connection and the bodies that wait until their data is written.
//!
//! A signal must never be lost, because a body would then wait for its time limit. `loom/` has models of both types.

use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use tokengauge_types::sync::{AtomicBool, AtomicU32, AtomicUsize, Mutex, Ordering, lock};

/// Reports when hyper has flushed a connection. hyper flushes only after it has written its whole buffer.
///
/// `is_awaited` comes first, so that it is next to the flags in [`ActiveExchanges`](super::active_exchanges::ActiveExchanges).
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct FlushSignal {
    is_awaited: AtomicBool,
    /// Number of flushes that a body waited for. Wraps around.
    flushes: AtomicU32,
    waiting: Mutex<Vec<Waker>>,
    /// Wakes the task that drives the connection.
    connection: OnceLock<Waker>,
}

impl FlushSignal {
    pub(super) fn set_connection(&self, waker: Waker) {
        drop(self.connection.set(waker));
    }

    /// Records a flush of the connection. Has no effect if no body waits for a flush.
    pub(super) fn on_flushed(&self) {
        if self.is_awaited.load(Ordering::Relaxed) {
            self.is_awaited.store(false, Ordering::Release);
            self.flushes.fetch_add(1, Ordering::AcqRel);
            std::mem::take(&mut *lock(&self.waiting)).into_iter().for_each(Waker::wake);
        }
    }

    /// Requests a flush. Returns its predecessor, for [`poll`](Self::poll).
    pub(super) fn request(&self) -> u32 {
        let previous = self.flushes.load(Ordering::Acquire);
        self.is_awaited.store(true, Ordering::Release);
        // An HTTP/2 connection may be idle, because it has written the data already.
        self.wake_connection();
        previous
    }

    /// Wakes the task that drives the connection.
    pub(super) fn wake_connection(&self) {
        if let Some(connection) = self.connection.get() {
            connection.wake_by_ref();
        }
    }

    pub(super) fn poll(&self, previous: u32, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = lock(&self.waiting);
        if self.flushes.load(Ordering::Acquire) != previous {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// Number of frames of an HTTP/2 stream that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    frames: AtomicUsize,
    waiting: Mutex<Option<Waker>>,
}

impl Unwritten {
    pub(super) fn add(&self) {
        self.frames.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove(&self) {
        if self.frames.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(waiting) = lock(&self.waiting).take()
        {
            waiting.wake();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.load(Ordering::Relaxed) == 0
    }

    pub(super) fn poll_empty(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waiting = lock(&self.waiting);
        if self.frames.load(Ordering::Acquire) == 0 {
            return Poll::Ready(());
        }
        *waiting = Some(cx.waker().clone());
        Poll::Pending
    }
}
