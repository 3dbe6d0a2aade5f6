//! Bounds memory that many bodies share: permits take bytes from a budget and return them when they are dropped.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A memory budget in bytes.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    most: usize,
    taken: AtomicUsize,
}

/// A number of bytes taken from a budget. Dropping the permit returns them.
#[derive(Debug)]
pub(crate) struct MemoryPermit<B: Deref<Target = MemoryBudget>> {
    budget: B,
    bytes: usize,
}

impl MemoryBudget {
    pub(crate) const fn new(most: usize) -> Self {
        Self { most, taken: AtomicUsize::new(0) }
    }

    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

impl<B: Deref<Target = MemoryBudget>> MemoryPermit<B> {
    /// Creates a permit for 0 bytes.
    pub(crate) const fn empty(budget: B) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Takes `bytes` from the budget. Returns `None` if the budget has fewer bytes left.
    pub(crate) fn take(budget: B, bytes: usize) -> Option<Self> {
        let mut permit = Self::empty(budget);
        permit.resize(bytes).then_some(permit)
    }

    /// Changes the size of the permit to `bytes`. Returns `false` and leaves the permit unchanged if the budget has too
    /// few bytes left.
    #[must_use]
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        if bytes == self.bytes {
            return true;
        }
        let budget = &*self.budget;
        let resized = budget.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            let sum = (taken - self.bytes).checked_add(bytes)?;
            (bytes < self.bytes || sum <= budget.most).then_some(sum)
        });
        if resized.is_ok() {
            self.bytes = bytes;
        }
        resized.is_ok()
    }
}

impl<B: Deref<Target = MemoryBudget>> Drop for MemoryPermit<B> {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
