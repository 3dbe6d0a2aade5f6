//! The memory budget of all decompressors, tracked by guards.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A memory budget in bytes.
#[derive(Debug)]
pub(super) struct Memory {
    most: usize,
    lent: AtomicUsize,
}

/// A part of the budget. Dropping it returns its bytes.
#[derive(Debug)]
pub(super) struct Loan {
    of: &'static Memory,
    bytes: usize,
}

impl Memory {
    pub(super) const fn new(most: usize) -> Self {
        Self { most, lent: AtomicUsize::new(0) }
    }

    pub(super) fn lend(&'static self, bytes: usize) -> Option<Loan> {
        let mut loan = Loan { of: self, bytes: 0 };
        loan.grow_to(bytes).then_some(loan)
    }

    #[cfg(test)]
    pub(super) fn lent(&self) -> usize {
        self.lent.load(Ordering::Relaxed)
    }
}

impl Loan {
    /// Grows the loan to `bytes`. Returns `false` and leaves the loan unchanged if the budget is too small.
    #[must_use]
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let grown = self.of.lent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |lent| {
            lent.checked_add(more).filter(|sum| *sum <= self.of.most)
        });
        if grown.is_ok() {
            self.bytes += more;
        }
        grown.is_ok()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.of.lent.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
