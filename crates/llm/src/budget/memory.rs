//! Limits memory with budgets. A permit takes bytes from a budget, and returns the bytes when the permit is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A memory limit in bytes. A budget can have a parent, such as the budget of the process. Memory taken from a budget
/// also counts against its parent.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    most: usize,
    taken: AtomicUsize,
    whole: Option<Arc<Self>>,
}

/// Bytes that were taken from a memory budget. Dropping the permit returns the bytes.
#[derive(Debug)]
pub struct MemoryPermit {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryBudget {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicUsize::new(0), whole: None })
    }

    /// Creates a child of this budget, with its own limit of `most` bytes.
    pub(crate) fn part(self: &Arc<Self>, most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: AtomicUsize::new(0), whole: Some(Arc::clone(self)) })
    }

    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= self.most);
        if self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            return false;
        }
        let is_granted = self.whole.as_ref().is_none_or(|whole| whole.take(bytes));
        if !is_granted {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_granted
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
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
                self.budget.give_back(self.bytes - bytes);
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
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_counts_towards_the_whole() {
        let whole = MemoryBudget::new(100);
        let [one, two] = [whole.part(80), whole.part(80)];
        let mut first = MemoryPermit::take(&one, 60).unwrap();
        assert!(!first.resize(81), "more than the part");
        assert!(MemoryPermit::take(&two, 41).is_none(), "more than the rest of the whole");
        assert_eq!((one.taken(), two.taken(), whole.taken()), (60, 0, 60));
        let second = MemoryPermit::take(&two, 40).unwrap();
        assert!(first.resize(10));
        assert_eq!((one.taken(), two.taken(), whole.taken()), (10, 40, 50));
        drop((first, second));
        assert_eq!((one.taken(), two.taken(), whole.taken()), (0, 0, 0));
    }
}
