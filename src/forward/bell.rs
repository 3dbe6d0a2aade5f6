//! A waker for futures that are driven inside another future's poll.
//!
//! What the inner future does to itself while it is being polled (a channel between its two halves wakes the very task
//! that runs it) is only noted, and the poll goes round again: passed on to the scheduler, each such wake would queue
//! the task anew and rouse an idle worker thread, once for every chunk.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

const OUTSIDE: u8 = 0;
const INSIDE: u8 = 1;
const RUNG: u8 = 2;

#[derive(Debug)]
pub(super) struct Bell {
    state: AtomicU8,
    outer: Mutex<Waker>,
}

impl Bell {
    pub(super) fn new() -> Self {
        Self {
            state: AtomicU8::new(OUTSIDE),
            outer: Mutex::new(Waker::noop().clone()),
        }
    }

    /// Begins a poll on behalf of the task that `outer` wakes.
    pub(super) fn enter(&self, outer: &Waker) {
        let mut known = self.outer.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.will_wake(outer) {
            known.clone_from(outer);
        }
        drop(known);
        self.state.store(INSIDE, Ordering::Release);
    }

    /// Whether the bell rang since the poll began or this was last asked.
    pub(super) fn rang(&self) -> bool {
        self.state
            .compare_exchange(RUNG, INSIDE, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Ends the poll; `false` where the bell rang meanwhile, and then the poll is not over.
    pub(super) fn leave(&self) -> bool {
        self.state
            .compare_exchange(INSIDE, OUTSIDE, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Ends the poll whether it rang or not: for a caller that is certain to poll again.
    pub(super) fn leave_anyway(&self) {
        self.state.store(OUTSIDE, Ordering::Release);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let noted = self
            .state
            .compare_exchange(INSIDE, RUNG, Ordering::AcqRel, Ordering::Acquire);
        if noted == Err(OUTSIDE) {
            self.outer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .wake_by_ref();
        }
    }
}
