//! A value per slot of time, over a rolling window, in memory that never grows.
//!
//! Slots stand on a fixed grid: slot *n* of width *w* holds what happened in *n·w* ≤ at < (*n* + 1)·*w*. Nothing here
//! ticks: a slot that has left the window is cleared when its place is needed again, so a clock that leaps by hours
//! costs no more than one that leaps past the whole window.

use std::ops::Range;
use std::time::Duration;

use crate::clock::Moment;

/// The newest slots of a grid, in a ring.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    /// In nanoseconds; never 0.
    width: u64,
    ring: Box<[T]>,
    /// The highest number that was ever written.
    newest: u64,
}

impl<T: Clone + Default> Slots<T> {
    /// Keeps `full` slots beside the one that is still filling.
    pub fn new(width: Duration, full: usize) -> Self {
        Self {
            width: (Moment::ZERO + width).nanos().max(1),
            ring: vec![T::default(); full.saturating_add(1)].into(),
            newest: 0,
        }
    }

    /// The number of the slot that `at` falls into.
    pub const fn number(&self, at: Moment) -> u64 {
        at.nanos() / self.width
    }

    /// The slot to write to. `None` where it has left the ring already: what comes that late is not kept.
    ///
    /// Numbers need not come in order; one above all before makes room for itself.
    pub fn slot(&mut self, number: u64) -> Option<&mut T> {
        self.make_room(number);
        if number < self.oldest() {
            return None;
        }
        let place = self.place(number)?;
        self.ring.get_mut(place)
    }

    /// The slots with these numbers that are kept, oldest first. Slots that nobody wrote to are defaults or left out.
    pub fn range(&self, numbers: Range<u64>) -> impl Iterator<Item = &T> {
        let end = numbers.end.min(self.newest.saturating_add(1));
        (numbers.start.max(self.oldest())..end)
            .filter_map(|number| self.ring.get(self.place(number)?))
    }

    /// The lowest number that is kept.
    fn oldest(&self) -> u64 {
        (self.newest + 1).saturating_sub(self.len())
    }

    fn make_room(&mut self, number: u64) {
        let ahead = number.saturating_sub(self.newest);
        if ahead == 0 {
            return;
        }
        if ahead >= self.len() {
            self.ring.fill(T::default());
        } else {
            for stale in self.newest + 1..=number {
                if let Some(slot) = self.place(stale).and_then(|place| self.ring.get_mut(place)) {
                    *slot = T::default();
                }
            }
        }
        self.newest = number;
    }

    fn place(&self, number: u64) -> Option<usize> {
        usize::try_from(number % self.len()).ok()
    }

    fn len(&self) -> u64 {
        self.ring.len() as u64
    }
}
