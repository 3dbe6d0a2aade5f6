//! What the inflaters hold together, counted by guards.

use std::sync::atomic::{AtomicUsize, Ordering};

/// An amount of memory that is lent out.
#[derive(Debug)]
pub(super) struct Memory {
    most: usize,
    lent: AtomicUsize,
}

/// Part of it, given back when dropped.
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
    /// `false` where there is not so much left; the loan then stays as it was.
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
