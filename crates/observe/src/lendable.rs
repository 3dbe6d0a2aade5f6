//! A lock for a value that one thread uses at a time. Unlike with a mutex of the standard library, the wait can have a
//! time limit.
//!
//! A mutex also guarantees no order. Here, a thread that releases the value and calls `lend_last` at once does not
//! overtake a thread that waits.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokengauge_types::sync::lock;

#[derive(Debug)]
pub(crate) struct Lendable<T> {
    /// `None` while the value is lent.
    slot: Mutex<Option<T>>,
    returned: Condvar,
    /// Number of threads that wait in [`Lendable::lend_within`]. Modified only under the lock of `slot`.
    waiting: AtomicUsize,
}

/// The lent value, which returns when this is dropped.
#[derive(Debug)]
pub(crate) struct Lent<'a, T> {
    from: &'a Lendable<T>,
    /// `None` only while this is dropped.
    value: Option<T>,
}

impl<T> Lendable<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            slot: Mutex::new(Some(value)),
            returned: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for the value for at most `limit`.
    pub(crate) fn lend_within(&self, limit: Duration) -> Option<Lent<'_, T>> {
        let slot = lock(&self.slot);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waited = self.returned.wait_timeout_while(slot, limit, |slot| slot.is_none());
        let (mut slot, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let value = slot.take();
        drop(slot);
        if value.is_none() {
            // A thread that waits for its turn may have waited for this one.
            self.returned.notify_all();
        }
        value.map(|value| Lent { from: self, value: Some(value) })
    }

    /// Waits for the value without a limit.
    pub(crate) fn lend(&self) -> Lent<'_, T> {
        loop {
            if let Some(lent) = self.lend_within(Duration::MAX) {
                return lent;
            }
        }
    }

    /// Waits until the value is free and no other thread waits for it. Other threads therefore have priority.
    pub(crate) fn lend_last(&self) -> Lent<'_, T> {
        let mut slot = lock(&self.slot);
        loop {
            if !self.is_wanted()
                && let Some(value) = slot.take()
            {
                return Lent { from: self, value: Some(value) };
            }
            slot = self.returned.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns whether a thread waits for the value.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl<T> Deref for Lent<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("the value is present until the drop")
    }
}

impl<T> DerefMut for Lent<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("the value is present until the drop")
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        *lock(&self.from.slot) = self.value.take();
        self.from.returned.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn the_wait_has_a_limit() {
        let lendable = Lendable::new(1);
        let lent = lendable.lend_last();
        assert!(lendable.lend_within(Duration::from_millis(1)).is_none());
        drop(lent);
        assert_eq!(lendable.lend_within(Duration::ZERO).as_deref(), Some(&1));
    }

    #[test]
    fn a_waiting_thread_is_served_before_the_last() {
        let lendable = Lendable::new(Vec::new());
        let lent = lendable.lend_last();
        let (entered, was_entered) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                entered.send(()).unwrap();
                lendable.lend_within(LONG).unwrap().push("waiting");
            });
            was_entered.recv().unwrap();
            while !lendable.is_wanted() {
                thread::yield_now();
            }
            drop(lent);
            lendable.lend_last().push("last");
        });
        assert_eq!(*lendable.lend_last(), ["waiting", "last"]);
    }

    #[test]
    fn a_panic_returns_the_value() {
        let lendable = Lendable::new(1);
        thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _lent = lendable.lend_last();
                panic!("while the value is lent");
            });
            panicking.join().unwrap_err();
        });
        assert_eq!(*lendable.lend_last(), 1);
    }
}
