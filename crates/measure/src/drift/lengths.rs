//! Histogram of lengths in tokens. All histograms have the same buckets, so that two histograms can be compared bucket
//! by bucket.

use std::collections::VecDeque;

/// Number of buckets for each doubling of the length. Lengths below 64 are stored exactly, and longer lengths to 1 part
/// in 32 (3 %). This resolution is finer than a bin of the drift index, which holds a tenth of all lengths.
const BUCKETS_PER_DOUBLING: u64 = 32;

/// Maximum length in tokens: 16,777,215, well above every existing context window. Longer lengths are stored as this
/// value.
const MAX_LENGTH: u64 = (1 << 24) - 1;

/// Total number of buckets: 32 for the lengths 0 to 31, and 32 for each of the 19 doublings from 32 to [`MAX_LENGTH`].
const BUCKETS: usize = 640;

/// Index of a bucket on the grid.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Bucket(u16);

impl Bucket {
    pub(super) fn from_length(length: u64) -> Self {
        let length = length.min(MAX_LENGTH);
        let doublings = (length / BUCKETS_PER_DOUBLING).checked_ilog2().unwrap_or(0);
        let place = u64::from(doublings) * BUCKETS_PER_DOUBLING + (length >> doublings);
        Self(u16::try_from(place).unwrap_or(u16::MAX))
    }

    /// Returns the shortest length in the bucket. A saved baseline represents all lengths in the bucket by this length.
    pub(super) fn shortest(self) -> u64 {
        let place = u64::from(self.0);
        let doublings = (place / BUCKETS_PER_DOUBLING).saturating_sub(1);
        (place - doublings * BUCKETS_PER_DOUBLING) << doublings
    }

    /// Returns the bucket for the next shorter lengths; `None` for the first bucket.
    pub(super) fn below(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

/// Histogram of lengths. It takes 2.5 KiB.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Lengths {
    counts: Box<[u32]>,
    total: u64,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), total: 0 }
    }
}

impl Lengths {
    pub(super) fn add(&mut self, bucket: Bucket, times: u32) {
        if let Some(count) = self.counts.get_mut(usize::from(bucket.0)) {
            let before = *count;
            *count = before.saturating_add(times);
            self.total += u64::from(*count - before);
        }
    }

    /// Removes one length that was added before.
    pub(super) fn remove(&mut self, bucket: Bucket) {
        if let Some(count) = self.counts.get_mut(usize::from(bucket.0))
            && *count > 0
        {
            *count -= 1;
            self.total -= 1;
        }
    }

    /// Returns the number of lengths in the histogram.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// Returns the non-empty buckets with their counts, shortest length first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Bucket, u32)> {
        let places = (0_u16..).map(Bucket);
        let all = places.zip(self.counts.iter().copied());
        all.filter(|(_, count)| *count > 0)
    }
}

/// The latest lengths, and a histogram of them. Each new length replaces the oldest one at constant cost.
///
/// The window holds a number of requests instead of a time span, for two reasons. The index that chance yields depends
/// only on the number, and a time window would be empty at night. A window takes 2 B per length plus 2.5 KiB.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    lengths: Lengths,
    order: VecDeque<Bucket>,
}

impl Window {
    /// Adds a length. Then evicts the oldest lengths until at most `most` remain.
    pub(super) fn add(&mut self, bucket: Bucket, most: usize) {
        while self.order.len() >= most.max(1)
            && let Some(oldest) = self.order.pop_front()
        {
            self.lengths.remove(oldest);
        }
        self.order.push_back(bucket);
        self.lengths.add(bucket, 1);
    }

    pub(super) const fn lengths(&self) -> &Lengths {
        &self.lengths
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_have_no_gap_and_end_at_the_longest_length() {
        let mut before = None;
        for place in 0..u16::try_from(BUCKETS).unwrap() {
            let shortest = Bucket(place).shortest();
            assert_eq!(Bucket::from_length(shortest), Bucket(place));
            if let Some(longest) = shortest.checked_sub(1) {
                assert_eq!(Some(Bucket::from_length(longest)), before, "{longest}");
            }
            before = Some(Bucket(place));
        }
        assert_eq!(Some(Bucket::from_length(MAX_LENGTH)), before);
        assert_eq!(Some(Bucket::from_length(u64::MAX)), before);
        assert_eq!(Bucket::from_length(0).below(), None);
    }

    #[test]
    fn removed_lengths_leave_no_trace() {
        let mut lengths = Lengths::default();
        lengths.add(Bucket::from_length(7), 2);
        lengths.add(Bucket::from_length(900), 1);
        lengths.remove(Bucket::from_length(7));
        lengths.remove(Bucket::from_length(8));
        let held: Vec<_> = lengths.iter().collect();
        assert_eq!(held, [(Bucket::from_length(7), 1), (Bucket::from_length(900), 1)]);
        assert_eq!(lengths.total(), 2);
    }

    #[test]
    fn a_full_bucket_loses_as_little_as_possible() {
        let mut lengths = Lengths::default();
        lengths.add(Bucket::from_length(7), u32::MAX);
        lengths.add(Bucket::from_length(7), 1);
        assert_eq!(lengths.total(), u64::from(u32::MAX));
    }

    proptest! {
        #[test]
        fn the_latest_lengths_are_kept(list in prop::collection::vec(0_u64..1_000, 0..200), most in 1_usize..50) {
            let mut window = Window::default();
            for length in &list {
                window.add(Bucket::from_length(*length), most);
            }
            let mut latest = Lengths::default();
            for length in &list[list.len().saturating_sub(most)..] {
                latest.add(Bucket::from_length(*length), 1);
            }
            prop_assert_eq!(window.lengths(), &latest);
        }

        #[test]
        fn a_length_is_known_to_one_part_in_32(length in 0..=MAX_LENGTH) {
            let actual = Bucket::from_length(length).shortest();
            prop_assert!(actual <= length && (length - actual) * 32 <= length, "{} for {}", actual, length);
            prop_assert!(length >= 64 || actual == length);
        }

        #[test]
        fn longer_lengths_lie_in_later_buckets(one in any::<u64>(), other in any::<u64>()) {
            prop_assert_eq!(one <= other, Bucket::from_length(one) <= Bucket::from_length(other) && one <= other);
        }
    }
}
