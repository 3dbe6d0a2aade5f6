//! A waker for an inner future that is polled as part of an outer task. It avoids needless wake-ups of the outer task.
//!
//! An inner future can wake its own task while it is polled, for example through a channel between its two halves. The
//! notifier only records such a wake, and the current poll of the task then polls the inner future again. A normal
//! waker would make the scheduler requeue the task and wake an idle worker thread, once per chunk.

use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::sync::{AtomicU8, Mutex, Ordering, lock};

/// No poll is running, and no wake has occurred since the last poll. The inner future needs no poll.
const IDLE: u8 = 0;
/// Flag: a wake has occurred since the start of the last poll, or the inner future was never polled.
const WOKEN: u8 = 1;
/// Flag: a poll is running.
const POLLING: u8 = 2;

/// Maximum number of polls of the inner future in one poll of the task. An inner future that wakes itself more often
/// waits for the task's next poll, so that other tasks can run.
pub const MAX_POLL_ROUNDS: usize = 8;

/// Owned by the task that polls the inner future.
#[derive(Debug)]
pub struct Notifier {
    shared: Arc<NotifierState>,
    /// The waker for the inner future. It refers to `shared`.
    waker: Waker,
    /// The same waker as `NotifierState::outer`. A comparison with this one needs no lock.
    outer: Waker,
}

#[derive(Debug)]
struct NotifierState {
    /// [`IDLE`], or a combination of flags.
    state: AtomicU8,
    outer: Mutex<Waker>,
}

impl Default for Notifier {
    fn default() -> Self {
        let outer = Waker::noop();
        let state = AtomicU8::new(WOKEN);
        let shared = Arc::new(NotifierState { state, outer: Mutex::new(outer.clone()) });
        Self { waker: Waker::from(Arc::clone(&shared)), shared, outer: outer.clone() }
    }
}

impl Notifier {
    /// Returns the waker for the inner future.
    pub const fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Begins a poll for the task that `outer` wakes. Returns whether the inner future must be polled.
    pub fn enter(&mut self, outer: &Waker) -> bool {
        if !self.outer.will_wake(outer) {
            self.outer.clone_from(outer);
            lock(&self.shared.outer).clone_from(outer);
        }
        self.shared.state.swap(POLLING, Ordering::AcqRel) != IDLE
    }

    /// Ends the poll. Returns `false` if a wake occurred during the poll. The poll then continues, and the caller must
    /// poll the inner future again.
    pub fn leave(&self) -> bool {
        let state = &self.shared.state;
        let left = state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if left.is_err() {
            state.store(POLLING, Ordering::Release);
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
        self.shared.state.store(WOKEN, Ordering::Release);
    }
}

impl Wake for NotifierState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let before = self.state.fetch_or(WOKEN, Ordering::AcqRel);
        if before & POLLING == 0 {
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
        let mut notifier = Notifier::default();
        let waker = notifier.waker().clone();

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
        let mut notifier = Notifier::default();
        let waker = notifier.waker().clone();
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
