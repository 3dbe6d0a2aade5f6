//! Limits the memory for text that is not counted yet, for each request and for all requests together.
//!
//! A counter keeps a text until later text cannot change its tokens. Usually, this is one word. For a long text
//! without blanks, or for some custom tokenizers, this can be 64 KiB for each part of each choice. A hostile upstream
//! can open 256 such parts per request.

use std::sync::Arc;

use crate::budget::{MemoryBudget, MemoryPermit};

/// Number of bytes that every request may use in addition to the shared budget: one word for each of 30 choices.
/// Typical streams are therefore counted exactly even if the budget is used up.
const RESERVED_BYTES: usize = 4 * 1024;

/// Maximum number of bytes for one request: text and reasoning of the length [`super::encoder::MAX_TAIL_BYTES`].
/// Without this limit, one hostile response could use the budget of all others.
const MAX_BYTES_PER_REQUEST: usize = 128 * 1024;

/// Limits the memory for text of one request that is not counted as tokens yet.
#[derive(Debug)]
pub(super) struct UncountedText {
    bytes: usize,
    /// The bytes beyond [`RESERVED_BYTES`], taken from the shared budget.
    permit: MemoryPermit,
}

impl UncountedText {
    pub(super) const fn new(budget: Arc<MemoryBudget>) -> Self {
        Self { bytes: 0, permit: MemoryPermit::empty(budget) }
    }

    #[cfg(test)]
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Records that the size of a text changed from `before` to `after` bytes. Returns false if the new size exceeds a
    /// limit. The caller must then free the text and record its size again.
    pub(super) fn resize(&mut self, before: usize, after: usize) -> bool {
        if before == after {
            return true;
        }
        self.bytes = self.bytes.saturating_sub(before) + after;
        self.bytes <= MAX_BYTES_PER_REQUEST
            && self.permit.resize(self.bytes.saturating_sub(RESERVED_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_takes_nothing_from_the_budget_and_text_is_returned() {
        let budget = MemoryBudget::new(1 << 20);
        let mut share = UncountedText::new(Arc::clone(&budget));
        assert!(share.resize(0, RESERVED_BYTES));
        assert_eq!(budget.used(), 0);
        assert!(share.resize(0, 10));
        assert!(share.resize(10, 300));
        assert_eq!(budget.used(), 300);
        assert!(share.resize(300, 20));
        assert_eq!(budget.used(), 20);
        drop(share);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn one_exchange_has_a_separate_limit() {
        let budget = MemoryBudget::new(1 << 20);
        let mut share = UncountedText::new(Arc::clone(&budget));
        assert!(share.resize(0, MAX_BYTES_PER_REQUEST));
        assert!(!share.resize(0, 1), "one byte too many");
        assert!(share.resize(1, 0), "the text was freed");
        assert!(share.resize(MAX_BYTES_PER_REQUEST, 0));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn every_exchange_has_its_reserve_if_the_budget_is_used_up() {
        let budget = MemoryBudget::new(1_000);
        let mut greedy = UncountedText::new(Arc::clone(&budget));
        assert!(greedy.resize(0, RESERVED_BYTES + 1_000));
        let mut modest = UncountedText::new(Arc::clone(&budget));
        assert!(modest.resize(0, RESERVED_BYTES));
        assert!(!modest.resize(0, 1));
        assert!(modest.resize(1, 0));
        drop(greedy);
        assert!(modest.resize(0, 1_000));
        assert_eq!(budget.used(), 1_000);
    }
}
