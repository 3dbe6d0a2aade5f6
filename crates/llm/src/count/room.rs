//! Limits the text that token counters hold, per exchange and in total.
//!
//! Text is held until its token boundaries are decided, usually for one word. A run without a gap, or a tokenizer that
//! needs whole texts, may hold 64 KiB for each part of each choice. An upstream can open 256 of these parts at will.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes reserved for every exchange and never refused: one word for each of 30 choices. 10,000 exchanges hold at most
/// 40 MiB of these reserves.
const OWN: usize = 4 * 1024;

/// Maximum bytes per exchange: text and reasoning, each as long as [`super::encoder::LONGEST_TAIL`]. This limit
/// prevents one hostile response from using up the budget of all others.
const MOST_OF_ONE: usize = 128 * 1024;

/// Maximum bytes of all exchanges together beyond [`OWN`]. It equals the default limit for unread data on the
/// observation path (`limits.observer_memory`).
const MOST_OF_ALL: usize = 32 << 20;

/// The memory budget that all exchanges share.
#[derive(Debug)]
pub struct Room {
    taken: AtomicUsize,
    most: usize,
}

impl Room {
    pub(super) const fn of(most: usize) -> Self {
        Self { taken: AtomicUsize::new(0), most }
    }

    /// Returns `from` bytes and takes `to` bytes. Under contention, a request may be refused that would succeed alone.
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

/// The memory that one exchange holds.
#[derive(Debug)]
pub struct Share {
    room: Arc<Room>,
    held: usize,
    /// The part of `held` that was taken from the shared budget.
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

    /// Records that a text of `before` bytes now takes `after` bytes. Returns whether the limits allow the new size. If
    /// not, the caller must free the text and record that with another call.
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
