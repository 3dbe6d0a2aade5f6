//! How much text counters may hold, in one exchange and in all of them.
//!
//! Text is held until it is decided where its tokens end: a word, as a rule. But a run without a gap, or a tokenizer
//! that works on whole texts, may hold 64 KiB for each part of each choice, of which an upstream can open 256 at will.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What every exchange has for itself and is never refused: a word for each of 30 choices. 10,000 exchanges hold 40 MiB at
/// most of this.
const OWN: usize = 4 * 1024;

/// What one exchange may hold at most: text and reasoning, each as long as [`super::encoder::LONGEST_TAIL`]. So one
/// hostile answer cannot take the room from all others.
const MOST_OF_ONE: usize = 128 * 1024;

/// What all exchanges together may hold beyond [`OWN`]: as much as the observation path holds by default of what it has
/// not yet read (`limits.observer_memory`).
const MOST_OF_ALL: usize = 32 << 20;

/// The room that all exchanges share.
#[derive(Debug)]
pub struct Room {
    taken: AtomicUsize,
    most: usize,
}

impl Room {
    pub(super) const fn of(most: usize) -> Self {
        Self { taken: AtomicUsize::new(0), most }
    }

    /// Gives `from` back and takes `to`. Threads that do so at once may be refused where one alone would not be.
    fn change(&self, from: usize, to: usize) -> bool {
        if to <= from {
            self.taken.fetch_sub(from - to, Ordering::Relaxed);
            return true;
        }
        let before = self.taken.fetch_add(to - from, Ordering::Relaxed);
        let fits = before + (to - from) <= self.most;
        if !fits {
            self.taken.fetch_sub(to - from, Ordering::Relaxed);
        }
        fits
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::of(MOST_OF_ALL)
    }
}

/// What one exchange holds.
#[derive(Debug)]
pub struct Share {
    room: Arc<Room>,
    held: usize,
    /// What of `held` was taken from the room.
    taken: usize,
}

impl Share {
    pub const fn of(room: Arc<Room>) -> Self {
        Self { room, held: 0, taken: 0 }
    }

    #[cfg(test)]
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// A text that took `before` bytes takes `after` now. Whether it may: where not, it must be let go of, and that must
    /// be told in the same way.
    pub fn resize(&mut self, before: usize, after: usize) -> bool {
        if before == after {
            return true;
        }
        self.held = self.held.saturating_sub(before) + after;
        let wanted = self.held.saturating_sub(OWN);
        let fits = self.held <= MOST_OF_ONE
            && (wanted == self.taken || self.room.change(self.taken, wanted));
        if fits {
            self.taken = wanted;
        }
        fits
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.change(self.taken, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(room: &Room) -> usize {
        room.taken.load(Ordering::Relaxed)
    }

    #[test]
    fn a_word_takes_nothing_from_the_room_and_what_is_taken_comes_back() {
        let room = Arc::new(Room::of(MOST_OF_ALL));
        let mut share = Share::of(Arc::clone(&room));
        assert!(share.resize(0, OWN));
        assert_eq!(taken(&room), 0);
        assert!(share.resize(0, 10));
        assert!(share.resize(10, 300));
        assert_eq!(taken(&room), 300);
        assert!(share.resize(300, 20));
        assert_eq!(taken(&room), 20);
        drop(share);
        assert_eq!(taken(&room), 0);
    }

    #[test]
    fn one_exchange_has_a_bound_of_its_own() {
        let room = Arc::new(Room::of(MOST_OF_ALL));
        let mut share = Share::of(Arc::clone(&room));
        assert!(share.resize(0, MOST_OF_ONE));
        assert!(!share.resize(0, 1), "one byte too many");
        assert!(share.resize(1, 0), "it was let go of");
        assert!(share.resize(MOST_OF_ONE, 0));
        assert_eq!(taken(&room), 0);
    }

    #[test]
    fn when_the_room_is_full_every_exchange_still_has_its_own() {
        let room = Arc::new(Room::of(1_000));
        let mut greedy = Share::of(Arc::clone(&room));
        assert!(greedy.resize(0, OWN + 1_000));
        let mut modest = Share::of(Arc::clone(&room));
        assert!(modest.resize(0, OWN));
        assert!(!modest.resize(0, 1));
        assert!(modest.resize(1, 0));
        drop(greedy);
        assert!(modest.resize(0, 1_000));
        assert_eq!(taken(&room), 1_000);
    }
}
