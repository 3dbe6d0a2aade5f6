//! Limits the memory for text that is not counted yet, for each request and for all requests together.
//!
//! A counter keeps a text until later text cannot change its tokens. Usually, this is one word. For a long text
//! without blanks, or for some custom tokenizers, this can be 64 KiB for each part of each choice. A hostile upstream
//! can open 256 such parts per request.

use std::sync::Arc;

use crate::budget::{MemoryBudget, MemoryPermit};

/// Number of bytes that every request may use in addition to the shared budget: one word for each of 30 choices.
/// Typical streams are therefore counted exactly even if the budget is used up.
const OWN: usize = 4 * 1024;

/// Maximum number of bytes for one request: text and reasoning of the length [`super::encoder::LONGEST_TAIL`]. Without
/// this limit, one hostile response could use the budget of all others.
const MOST_OF_ONE: usize = 128 * 1024;

/// Limits the memory for text of one request that is not counted as tokens yet.
#[derive(Debug)]
pub(super) struct HeldText {
    bytes: usize,
    /// The bytes beyond [`OWN`], taken from the shared budget.
    permit: MemoryPermit,
}

impl HeldText {
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
        self.bytes <= MOST_OF_ONE && self.permit.resize(self.bytes.saturating_sub(OWN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_takes_nothing_from_the_budget_and_text_is_returned() {
        let budget = MemoryBudget::new(1 << 20);
        let mut share = HeldText::new(Arc::clone(&budget));
        assert!(share.resize(0, OWN));
        assert_eq!(budget.taken(), 0);
        assert!(share.resize(0, 10));
        assert!(share.resize(10, 300));
        assert_eq!(budget.taken(), 300);
        assert!(share.resize(300, 20));
        assert_eq!(budget.taken(), 20);
        drop(share);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn one_exchange_has_a_separate_limit() {
        let budget = MemoryBudget::new(1 << 20);
        let mut share = HeldText::new(Arc::clone(&budget));
        assert!(share.resize(0, MOST_OF_ONE));
        assert!(!share.resize(0, 1), "one byte too many");
        assert!(share.resize(1, 0), "the text was freed");
        assert!(share.resize(MOST_OF_ONE, 0));
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn every_exchange_has_its_reserve_if_the_budget_is_used_up() {
        let budget = MemoryBudget::new(1_000);
        let mut greedy = HeldText::new(Arc::clone(&budget));
        assert!(greedy.resize(0, OWN + 1_000));
        let mut modest = HeldText::new(Arc::clone(&budget));
        assert!(modest.resize(0, OWN));
        assert!(!modest.resize(0, 1));
        assert!(modest.resize(1, 0));
        drop(greedy);
        assert!(modest.resize(0, 1_000));
        assert_eq!(budget.taken(), 1_000);
    }
}
