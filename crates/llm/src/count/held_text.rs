//! Limits the text that token counters hold, per exchange and in total.
//!
//! Text is held until its token boundaries are decided, usually for one word. A run without a gap, or a tokenizer that
//! needs whole texts, may hold 64 KiB for each part of each choice. An upstream can open 256 of these parts at will.

use std::sync::Arc;

use crate::memory::{MemoryBudget, MemoryPermit};

/// Bytes reserved for every exchange and never refused: one word for each of 30 choices. 10,000 exchanges hold at most
/// 40 MiB of these reserves.
const OWN: usize = 4 * 1024;

/// Maximum bytes per exchange: text and reasoning, each as long as [`super::encoder::LONGEST_TAIL`]. This limit
/// prevents one hostile response from using up the budget of all others.
const MOST_OF_ONE: usize = 128 * 1024;

/// Maximum bytes of all exchanges together beyond [`OWN`]. It equals the default limit for unread data on the
/// observation path (`limits.observer_memory`).
pub(super) const MOST_OF_ALL: usize = 32 << 20;

/// The text that one exchange holds.
#[derive(Debug)]
pub(super) struct HeldText {
    bytes: usize,
    /// The part beyond [`OWN`].
    permit: MemoryPermit<Arc<MemoryBudget>>,
}

impl HeldText {
    pub(super) const fn new(budget: Arc<MemoryBudget>) -> Self {
        Self { bytes: 0, permit: MemoryPermit::empty(budget) }
    }

    #[cfg(test)]
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Records that a text of `before` bytes now takes `after` bytes. Returns whether the limits allow the new size. If
    /// not, the caller must free the text and record that with another call.
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
    fn a_word_takes_nothing_from_the_room_and_what_is_taken_comes_back() {
        let room = Arc::new(MemoryBudget::new(MOST_OF_ALL));
        let mut share = HeldText::new(Arc::clone(&room));
        assert!(share.resize(0, OWN));
        assert_eq!(room.taken(), 0);
        assert!(share.resize(0, 10));
        assert!(share.resize(10, 300));
        assert_eq!(room.taken(), 300);
        assert!(share.resize(300, 20));
        assert_eq!(room.taken(), 20);
        drop(share);
        assert_eq!(room.taken(), 0);
    }

    #[test]
    fn one_exchange_has_a_bound_of_its_own() {
        let room = Arc::new(MemoryBudget::new(MOST_OF_ALL));
        let mut share = HeldText::new(Arc::clone(&room));
        assert!(share.resize(0, MOST_OF_ONE));
        assert!(!share.resize(0, 1), "one byte too many");
        assert!(share.resize(1, 0), "it was let go of");
        assert!(share.resize(MOST_OF_ONE, 0));
        assert_eq!(room.taken(), 0);
    }

    #[test]
    fn when_the_room_is_full_every_exchange_still_has_its_own() {
        let room = Arc::new(MemoryBudget::new(1_000));
        let mut greedy = HeldText::new(Arc::clone(&room));
        assert!(greedy.resize(0, OWN + 1_000));
        let mut modest = HeldText::new(Arc::clone(&room));
        assert!(modest.resize(0, OWN));
        assert!(!modest.resize(0, 1));
        assert!(modest.resize(1, 0));
        drop(greedy);
        assert!(modest.resize(0, 1_000));
        assert_eq!(room.taken(), 1_000);
    }
}
