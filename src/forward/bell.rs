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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_ring_inside_a_poll_is_noted_and_one_outside_is_passed_on() {
        let counter = Arc::<Counter>::default();
        let woken = || counter.0.load(Ordering::Relaxed);
        let bell = Arc::new(Bell::new());
        let waker = Waker::from(Arc::clone(&bell));

        bell.enter(&Waker::from(Arc::clone(&counter)));
        assert!(!bell.rang());
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert!(!bell.leave(), "the poll is not over: it rang");
        assert!(bell.rang());
        assert!(!bell.rang(), "asked once, it is forgotten");
        assert!(bell.leave());
        assert_eq!(woken(), 0, "nobody was woken by what happened inside");

        waker.wake_by_ref();
        assert_eq!(woken(), 1);
        let other = Arc::<Counter>::default();
        bell.enter(&Waker::from(Arc::clone(&other)));
        waker.wake_by_ref();
        bell.leave_anyway();
        waker.wake_by_ref();
        assert_eq!(
            (woken(), other.0.load(Ordering::Relaxed)),
            (1, 1),
            "the last task is woken"
        );
    }
}
