//! Stores one value per time slot over a rolling window, in bounded memory.
//!
//! All slots have the same width *w*. Slot *n* covers the times from *n·w* up to, but excluding, (*n* + 1)·*w*. No
//! timer runs: an expired slot is cleared when its place in the ring buffer is reused. The cost of a clock jump is
//! limited by the length of the window, even if the jump is hours long.

use std::ops::Range;
use std::time::Duration;

use crate::clock::MonotonicInstant;

/// A ring buffer with the newest slots.
#[derive(Clone, Debug)]
pub struct RollingWindow<T> {
    /// Slot width in nanoseconds. Never 0.
    width: u64,
    ring: Box<[T]>,
    /// Highest slot number that was written.
    newest: u64,
}

impl<T: Clone + Default> RollingWindow<T> {
    /// Creates a window of `full` complete slots plus the current slot.
    pub fn new(width: Duration, full: usize) -> Self {
        Self {
            width: (MonotonicInstant::ZERO + width).nanos().max(1),
            ring: vec![T::default(); full.saturating_add(1)].into(),
            newest: 0,
        }
    }

    /// Returns the number of the slot that contains `at`.
    pub const fn number(&self, at: MonotonicInstant) -> u64 {
        at.nanos() / self.width
    }

    /// Returns the slot for writing, or `None` if the slot has already expired.
    ///
    /// Slots can be written in any order. A `number` that is higher than all earlier ones makes the oldest slots
    /// expire.
    pub fn slot(&mut self, number: u64) -> Option<&mut T> {
        self.make_room(number);
        if number < self.oldest() {
            return None;
        }
        let place = self.place(number)?;
        self.ring.get_mut(place)
    }

    /// Returns the retained slots with these numbers, oldest first. A slot without a write has the default value. Slots
    /// after the newest written slot are omitted.
    pub fn range(&self, numbers: Range<u64>) -> impl Iterator<Item = &T> {
        let end = numbers.end.min(self.newest.saturating_add(1));
        (numbers.start.max(self.oldest())..end).filter_map(|number| self.get(number))
    }

    /// Returns the slot with this number. Returns `None` if the slot has expired or comes after the newest written
    /// slot.
    pub fn get(&self, number: u64) -> Option<&T> {
        let kept = (self.oldest()..=self.newest).contains(&number);
        let place = self.place(number).filter(|_| kept)?;
        self.ring.get(place)
    }

    /// Returns every retained slot with its number, oldest first. A slot without a write has the default value.
    pub fn numbered(&self) -> impl Iterator<Item = (u64, &T)> {
        (self.oldest()..=self.newest)
            .filter_map(|number| Some((number, self.ring.get(self.place(number)?)?)))
    }

    /// Returns the lowest retained slot number.
    fn oldest(&self) -> u64 {
        self.newest.saturating_sub(self.len() - 1)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn held(slots: &RollingWindow<u64>, numbers: Range<u64>) -> Vec<u64> {
        slots.range(numbers).copied().collect()
    }

    fn add(slots: &mut RollingWindow<u64>, at: MonotonicInstant, value: u64) -> bool {
        let number = slots.number(at);
        slots.slot(number).map(|slot| *slot += value).is_some()
    }

    #[test]
    fn a_slot_ends_just_before_the_next_begins() {
        let mut slots = RollingWindow::new(SECOND, 3);
        assert!(add(&mut slots, MonotonicInstant::from_nanos(999_999_999), 1));
        assert!(add(&mut slots, MonotonicInstant::from_secs(1), 10));
        assert!(add(&mut slots, MonotonicInstant::from_nanos(1_999_999_999), 100));
        assert!(add(&mut slots, MonotonicInstant::from_secs(2), 1_000));
        assert_eq!(held(&slots, 0..3), [1, 110, 1_000]);
    }

    #[test]
    fn drops_the_slot_that_leaves_the_window() {
        let mut slots = RollingWindow::new(SECOND, 2);
        add(&mut slots, MonotonicInstant::from_secs(0), 7);
        add(&mut slots, MonotonicInstant::from_secs(2), 1);
        assert_eq!(held(&slots, 0..3), [7, 0, 1], "two full and one filling");
        add(&mut slots, MonotonicInstant::from_secs(3), 2);
        assert_eq!(held(&slots, 0..4), [0, 1, 2]);
    }

    #[test]
    fn adds_late_values_to_their_slot_or_drops_them() {
        let mut slots = RollingWindow::new(SECOND, 2);
        add(&mut slots, MonotonicInstant::from_secs(10), 1);
        assert!(add(&mut slots, MonotonicInstant::from_secs(8), 5));
        assert!(!add(&mut slots, MonotonicInstant::from_nanos(7_999_999_999), 9));
        assert_eq!(held(&slots, 0..11), [5, 0, 1]);
    }

    #[test]
    fn a_clock_jump_empties_the_ring() {
        let mut slots = RollingWindow::new(Duration::from_nanos(1), 300);
        add(&mut slots, MonotonicInstant::ZERO, 1);
        assert!(add(&mut slots, MonotonicInstant::from_nanos(u64::MAX), 2));
        assert_eq!(slots.range(0..u64::MAX).sum::<u64>(), 0);
        assert!(!add(&mut slots, MonotonicInstant::ZERO, 1));
    }

    #[test]
    fn a_range_costs_no_more_than_the_ring() {
        let slots = RollingWindow::<u64>::new(SECOND, 2);
        assert_eq!(held(&slots, 0..u64::MAX), [0]);
        assert_eq!(held(&slots, 5..9), [0; 0]);
    }

    proptest! {
        #[test]
        fn behaves_like_an_unbounded_map(
            writes in prop::collection::vec((0_u64..60, 1_u64..100), 0..80),
            full in 1_usize..12,
            (start, length) in (0_u64..60, 0_u64..60),
        ) {
            let mut slots = RollingWindow::new(SECOND, full);
            let mut all = BTreeMap::<u64, u64>::new();
            let mut newest = 0;
            for (number, value) in writes {
                newest = newest.max(number);
                if let Some(slot) = slots.slot(number) {
                    *slot += value;
                    *all.entry(number).or_default() += value;
                }
                all.retain(|kept, _| kept + full as u64 >= newest);
            }
            let expected: u64 = all.range(start..start + length).map(|(_, value)| value).sum();
            prop_assert_eq!(slots.range(start..start + length).sum::<u64>(), expected);
        }
    }
}
