//! A mutex whose waits can have a time limit, unlike those of the standard library's mutex.
//!
//! The standard mutex also guarantees no order. Here, a thread that releases the lock and calls `lock_last` at once does
//! not overtake a thread that waits.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokengauge_types::sync::lock;

#[derive(Debug)]
pub(crate) struct TimedLock<T> {
    /// `None` while a guard holds the value.
    slot: Mutex<Option<T>>,
    returned: Condvar,
    /// Number of threads that wait in [`TimedLock::try_lock_for`]. Modified only under the lock of `slot`.
    waiting: AtomicUsize,
}

/// Holds the value of a [`TimedLock`], and returns it when dropped.
#[derive(Debug)]
pub(crate) struct TimedLockGuard<'a, T> {
    mutex: &'a TimedLock<T>,
    /// `None` only while this is dropped.
    value: Option<T>,
}

impl<T> TimedLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            slot: Mutex::new(Some(value)),
            returned: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for the value for at most `limit`.
    pub(crate) fn try_lock_for(&self, limit: Duration) -> Option<TimedLockGuard<'_, T>> {
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
        value.map(|value| TimedLockGuard { mutex: self, value: Some(value) })
    }

    /// Waits for the value without a limit.
    pub(crate) fn lock(&self) -> TimedLockGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock_for(Duration::MAX) {
                return guard;
            }
        }
    }

    /// Waits until the value is free and no other thread waits for it. Other threads therefore have priority.
    pub(crate) fn lock_last(&self) -> TimedLockGuard<'_, T> {
        let mut slot = lock(&self.slot);
        loop {
            if !self.has_waiters()
                && let Some(value) = slot.take()
            {
                return TimedLockGuard { mutex: self, value: Some(value) };
            }
            slot = self.returned.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns whether a thread waits for the value.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl<T> Deref for TimedLockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("the value is present until the drop")
    }
}

impl<T> DerefMut for TimedLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("the value is present until the drop")
    }
}

impl<T> Drop for TimedLockGuard<'_, T> {
    fn drop(&mut self) {
        *lock(&self.mutex.slot) = self.value.take();
        self.mutex.returned.notify_all();
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
        let mutex = TimedLock::new(1);
        let guard = mutex.lock_last();
        assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none());
        drop(guard);
        assert_eq!(mutex.try_lock_for(Duration::ZERO).as_deref(), Some(&1));
    }

    #[test]
    fn a_waiting_thread_is_served_before_the_last() {
        let mutex = TimedLock::new(Vec::new());
        let guard = mutex.lock_last();
        let (entered, was_entered) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                entered.send(()).unwrap();
                mutex.try_lock_for(LONG).unwrap().push("waiting");
            });
            was_entered.recv().unwrap();
            while !mutex.has_waiters() {
                thread::yield_now();
            }
            drop(guard);
            mutex.lock_last().push("last");
        });
        assert_eq!(*mutex.lock_last(), ["waiting", "last"]);
    }

    #[test]
    fn a_panic_returns_the_value() {
        let mutex = TimedLock::new(1);
        thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _guard = mutex.lock_last();
                panic!("while the value is locked");
            });
            panicking.join().unwrap_err();
        });
        assert_eq!(*mutex.lock_last(), 1);
    }
}
