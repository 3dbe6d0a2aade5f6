//! Limits memory with budgets. A permit takes bytes from a budget, and returns the bytes when the permit is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A memory limit in bytes. A budget can have a parent, such as the budget of the process. Memory taken from a budget
/// also counts against its parent.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    limit: usize,
    used: AtomicUsize,
    parent: Option<Arc<Self>>,
}

/// Bytes that were taken from a memory budget. Dropping the permit returns the bytes.
#[derive(Debug)]
pub struct MemoryPermit {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryBudget {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), parent: None })
    }

    /// Creates a child of this budget, with its own limit of `limit` bytes.
    pub(crate) fn child(self: &Arc<Self>, limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicUsize::new(0), parent: Some(Arc::clone(self)) })
    }

    pub(crate) const fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            return false;
        }
        let is_granted = self.parent.as_ref().is_none_or(|parent| parent.take(bytes));
        if !is_granted {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_granted
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.release(bytes);
        }
    }
}

impl MemoryPermit {
    /// Creates a permit without bytes.
    pub(crate) const fn empty(budget: Arc<MemoryBudget>) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Takes `bytes` from `budget`. Returns `None` if the budget has too few free bytes.
    pub(crate) fn take(budget: &Arc<MemoryBudget>, bytes: usize) -> Option<Self> {
        let mut permit = Self::empty(Arc::clone(budget));
        permit.resize(bytes).then_some(permit)
    }

    /// Changes the size of the permit to `bytes`. A smaller size always succeeds. Returns `false` and changes nothing
    /// if the budget has too few free bytes.
    #[must_use]
    pub fn resize(&mut self, bytes: usize) -> bool {
        let is_granted = match bytes.checked_sub(self.bytes) {
            None => {
                self.budget.release(self.bytes - bytes);
                true
            }
            Some(0) => return true,
            Some(more) => self.budget.take(more),
        };
        if is_granted {
            self.bytes = bytes;
        }
        is_granted
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_counts_towards_the_whole() {
        let parent = MemoryBudget::new(100);
        let [one, two] = [parent.child(80), parent.child(80)];
        let mut first = MemoryPermit::take(&one, 60).unwrap();
        assert!(!first.resize(81), "more than the part");
        assert!(MemoryPermit::take(&two, 41).is_none(), "more than the rest of the parent");
        assert_eq!((one.used(), two.used(), parent.used()), (60, 0, 60));
        let second = MemoryPermit::take(&two, 40).unwrap();
        assert!(first.resize(10));
        assert_eq!((one.used(), two.used(), parent.used()), (10, 40, 50));
        drop((first, second));
        assert_eq!((one.used(), two.used(), parent.used()), (0, 0, 0));
    }
}
