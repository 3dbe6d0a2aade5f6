//! A waker for an inner future that is polled as part of an outer task. It avoids needless wake-ups of the outer task.
//!
//! An inner future can wake its own task while it is polled, for example through a channel between its two halves. The
//! notifier only records such a wake, and the current poll of the task then polls the inner future again. A normal
//! waker would make the scheduler requeue the task and wake an idle worker thread, once per chunk.

use crate::sync::lock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

/// No poll is running, and no wake has occurred since the last poll. The inner future needs no poll.
const IDLE: u8 = 0;
/// No poll is running. The inner future needs a poll, because it was woken or was never polled.
const POLL_DUE: u8 = 1;
/// A poll is running, and no wake has occurred during it.
const POLLING: u8 = 2;
/// A poll is running, and a wake has occurred during it.
const POLLING_WOKEN: u8 = 3;

/// Maximum number of polls of the inner future in one poll of the task. An inner future that wakes itself more often
/// waits for the task's next poll, so that other tasks can run.
pub const MAX_POLL_ROUNDS: usize = 8;

#[derive(Debug)]
pub struct Notifier {
    state: AtomicU8,
    outer: Mutex<Waker>,
}

impl Notifier {
    /// Creates a notifier and the waker that triggers it.
    pub fn new() -> (Arc<Self>, Waker) {
        let notifier = Arc::new(Self {
            state: AtomicU8::new(POLL_DUE),
            outer: Mutex::new(Waker::noop().clone()),
        });
        let waker = Waker::from(Arc::clone(&notifier));
        (notifier, waker)
    }

    /// Begins a poll for the task that `outer` wakes. Returns whether the inner future must be polled.
    pub fn enter(&self, outer: &Waker) -> bool {
        let mut known = lock(&self.outer);
        if !known.will_wake(outer) {
            known.clone_from(outer);
        }
        drop(known);
        self.state.swap(POLLING, Ordering::AcqRel) != IDLE
    }

    /// Ends the poll. Returns `false` if a wake occurred during the poll. The poll then continues, and the caller must
    /// poll the inner future again.
    pub fn leave(&self) -> bool {
        let left = self.state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if left.is_err() {
            self.state.store(POLLING, Ordering::Release);
        }
        left.is_ok()
    }

    /// Ends the poll even if a wake occurred during the poll. The wake is kept for the next poll. For callers that poll
    /// the inner future again in any case.
    pub fn leave_pending(&self) {
        if !self.leave() {
            self.mark_due();
        }
    }

    /// Requests that the next poll of the task also polls the inner future.
    pub fn mark_due(&self) {
        self.state.store(POLL_DUE, Ordering::Release);
    }
}

impl Wake for Notifier {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mark_woken = |state| match state {
            POLLING | POLLING_WOKEN => Some(POLLING_WOKEN),
            _ => Some(POLL_DUE),
        };
        let before = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, mark_woken);
        if matches!(before, Ok(IDLE | POLL_DUE)) {
            lock(&self.outer).wake_by_ref();
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
    fn records_a_wake_inside_a_poll_and_forwards_a_wake_outside() {
        let counter = Arc::<Counter>::default();
        let outer = Waker::from(Arc::clone(&counter));
        let woken = || counter.0.load(Ordering::Relaxed);
        let (notifier, waker) = Notifier::new();

        assert!(notifier.enter(&outer), "a first poll is due");
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert!(!notifier.leave(), "a wake during the poll requires another round");
        assert!(notifier.leave());
        assert_eq!(woken(), 0, "a wake inside a poll is not forwarded");

        waker.wake_by_ref();
        assert_eq!(woken(), 1);
        let other = Arc::<Counter>::default();
        assert!(notifier.enter(&Waker::from(Arc::clone(&other))));
        assert!(notifier.leave());
        waker.wake_by_ref();
        let counts = (woken(), other.0.load(Ordering::Relaxed));
        assert_eq!(counts, (1, 1), "only the latest task is woken");
    }

    #[test]
    fn without_a_wake_no_poll_is_due() {
        let (notifier, waker) = Notifier::new();
        let outer = Waker::noop();
        assert!(notifier.enter(outer) && notifier.leave());
        assert!(!notifier.enter(outer), "no poll is due without a wake");
        waker.wake_by_ref();
        notifier.leave_pending();
        assert!(notifier.enter(outer), "a wake without another round makes a poll due");
        assert!(notifier.leave());
        notifier.mark_due();
        assert!(notifier.enter(outer));
    }
}
