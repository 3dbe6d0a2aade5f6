//! Population stability index (PSI): how much two distributions of lengths differ.

use crate::drift::lengths::{Bucket, Lengths};

/// Number of bins into which the baseline lengths are divided. Ten bins (deciles) are usual for this index.
const BINS: u64 = 10;

/// Minimum number of requests in the baseline and in the current window. With fewer requests, no index is reported,
/// because chance dominates. With 200 requests in each, chance alone yields an index of 0.09, and 0.1 is commonly read
/// as a change.
pub const MIN_REQUESTS: u64 = 200;

/// Lower bound for the fraction of lengths in a bin, because the logarithm of an empty bin is undefined.
///
/// Common implementations use the same value (rapidstats' `epsilon`, datasci-toolkit's `missing_value`). A bin whose
/// fraction falls from a tenth to zero adds 0.69 to the index. The large weight is intended, because the loss of a
/// tenth of the lengths is a large change.
const MIN_SHARE: f64 = 0.0001;

/// Bins derived from a baseline.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Bins {
    /// Last histogram bucket of each bin, ascending; at most nine entries. The last bin is unbounded and has no entry.
    ends: Vec<Bucket>,
}

impl Bins {
    /// Divides the lengths into bins at the deciles of the baseline. The *k*-th bin ends at the first bucket up to
    /// which at least *k* tenths of the lengths lie, for *k* = 1…9.
    ///
    /// If one bucket holds several deciles, their bins merge and fewer than ten remain. If this bucket is the lowest of
    /// the baseline, an extra bin is added below it, which is empty in the baseline. Without the extra bin, a drop from
    /// one constant length to a lower one would stay in the same bin.
    pub(super) fn from_baseline(baseline: &Lengths) -> Self {
        let mut ends: Vec<Bucket> = Vec::new();
        let (mut seen, mut decile, mut lowest) = (0, 1, true);
        for (bucket, count) in baseline.iter() {
            seen += u64::from(count);
            let before = decile;
            while decile < BINS && seen * BINS >= decile * baseline.total() {
                decile += 1;
            }
            if lowest && decile - before > 1 {
                ends.extend(bucket.below());
            }
            if decile > before {
                ends.push(bucket);
            }
            lowest = false;
        }
        Self { ends }
    }

    pub(super) const fn count(&self) -> usize {
        self.ends.len() + 1
    }

    /// Returns the number of lengths in each bin.
    fn counts(&self, lengths: &Lengths) -> Vec<u64> {
        let mut counts = vec![0; self.count()];
        for (bucket, count) in lengths.iter() {
            let bin = self.ends.partition_point(|end| *end < bucket);
            if let Some(sum) = counts.get_mut(bin) {
                *sum += u64::from(count);
            }
        }
        counts
    }

    /// Returns the PSI of `current` against `baseline`; `None` if either histogram is empty.
    pub(super) fn index(&self, baseline: &Lengths, current: &Lengths) -> Option<f64> {
        let shares = |lengths: &Lengths| {
            let total = lengths.total();
            (total > 0).then(|| {
                let counts = self.counts(lengths).into_iter();
                counts.map(move |count| count as f64 / total as f64)
            })
        };
        Some(index(shares(current)?.zip(shares(baseline)?)))
    }
}

/// Computes Σ (p − q) × ln(p ÷ q) over the bins. p is the fraction of current lengths in a bin and q the fraction of
/// baseline lengths, each at least [`MIN_SHARE`]. The result is never negative, and swapping p and q does not change
/// it.
fn index(shares: impl Iterator<Item = (f64, f64)>) -> f64 {
    shares
        .map(|(p, q)| (p.max(MIN_SHARE), q.max(MIN_SHARE)))
        .map(|(p, q)| (p - q) * (p / q).ln())
        .sum()
}

/// Returns the mean PSI that chance alone yields for an unchanged workload. The formula is (bins − 1) × (1 ÷ n + 1 ÷ m)
/// for n baseline requests and m current requests.
///
/// Reason: PSI ÷ (1/n + 1/m) is then χ² with bins − 1 degrees of freedom. Source: B. Yurdakul, Statistical Properties
/// of Population Stability Index, Western Michigan University, 2018.
pub(super) fn by_chance(bins: usize, baseline: u64, current: u64) -> f64 {
    (bins.saturating_sub(1)) as f64 * (1.0 / baseline as f64 + 1.0 / current as f64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lengths(of: impl IntoIterator<Item = u64>) -> Lengths {
        let mut lengths = Lengths::default();
        of.into_iter().for_each(|length| lengths.add(Bucket::from_length(length), 1));
        lengths
    }

    fn drift_index(baseline: &Lengths, current: &Lengths) -> f64 {
        Bins::from_baseline(baseline).index(baseline, current).unwrap()
    }

    fn close(actual: f64, exact: f64) {
        assert!((actual - exact).abs() < 1e-9, "{actual} for {exact}");
    }

    /// Compares the index with values computed by hand.
    ///
    /// Two bins that change from 0.5 and 0.5 to 0.6 and 0.4 yield 0.1 × ln 1.2 + (−0.1) × ln 0.8 = 0.1 × ln 1.5. Three
    /// bins that change from 0.2, 0.3, 0.5 to 0.3, 0.3, 0.4 yield 0.1 × ln 1.5 + 0 + 0.1 × ln 1.25 = 0.1 × ln 1.875.
    #[test]
    fn the_index_equals_a_hand_calculation() {
        close(index([(0.6, 0.5), (0.4, 0.5)].into_iter()), 0.1 * 1.5_f64.ln());
        close(index([(0.3, 0.2), (0.3, 0.3), (0.4, 0.5)].into_iter()), 0.062_860_865_942_237_43);
        let emptied = index([(0.0, 0.1), (1.0, 0.9)].into_iter());
        close(emptied, 0.0999 * 1_000_f64.ln() + 0.1 * (1.0 / 0.9_f64).ln());
        assert!(emptied > 0.69);
    }

    /// All lengths grow by one bin. The lengths 1…50, twenty of each, form bins of five lengths. After each length
    /// grows by five, the first bin is empty and the last bin holds twice as many lengths. The other bins keep their
    /// counts.
    #[test]
    fn a_shift_by_one_bin_equals_a_hand_calculation() {
        let baseline = lengths((0..1_000).map(|n| 1 + n % 50));
        let shifted = lengths((0..1_000).map(|n| 6 + n % 50));
        assert_eq!(Bins::from_baseline(&baseline).counts(&baseline), [100; 10]);
        let exact = 0.0999 * 1_000_f64.ln() + 0.1 * 2_f64.ln();
        close(drift_index(&baseline, &shifted), exact);
        assert!(exact > 0.25);
        close(drift_index(&baseline, &baseline), 0.0);
    }

    #[test]
    fn many_equal_lengths_make_fewer_bins() {
        // 60 % of the responses are cut off at 256 tokens.
        let capped = lengths((0..1_000).map(|n| if n < 600 { 256 } else { 1 + n % 40 }));
        let bins = Bins::from_baseline(&capped);
        assert_eq!(bins.count(), 6, "{bins:?}");
        let freed = lengths((0..1_000).map(|n| if n < 600 { 300 + n } else { 1 + n % 40 }));
        assert!(drift_index(&capped, &freed) > 0.25);
    }

    #[test]
    fn a_moved_constant_is_detected_in_both_directions() {
        let constant = |length| lengths(std::iter::repeat_n(length, 500));
        for (from, to) in [(100, 50), (100, 200), (0, 1)] {
            let index = drift_index(&constant(from), &constant(to));
            assert!(index > 9.0, "{from} to {to}: {index}");
        }
        assert_eq!(Bins::from_baseline(&constant(100)).count(), 3);
        assert_eq!(Bins::from_baseline(&constant(0)).count(), 2, "nothing is below 0");
        close(drift_index(&constant(100), &constant(100)), 0.0);
    }

    #[test]
    fn an_empty_side_makes_the_index_undefined() {
        let some = lengths([1, 2, 3]);
        let none = Lengths::default();
        assert_eq!(Bins::from_baseline(&some).index(&some, &none), None);
        assert_eq!(Bins::from_baseline(&none).index(&none, &some), None);
    }

    /// Reproducible generator of pseudorandom numbers (Knuth's MMIX).
    fn numbers(mut state: u64) -> impl Iterator<Item = u64> {
        std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        })
    }

    /// Draws `count` lengths from an exponential distribution with mean 400. Prompt lengths are similar: many are short
    /// and few are long.
    fn sample(seed: u64, count: usize) -> Lengths {
        let uniform = numbers(seed).map(|n| (n as f64 + 1.0) / 2_147_483_649.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, below 400 × 22"
        )]
        lengths(uniform.map(|u| (-400.0 * u.ln()) as u64).take(count))
    }

    #[test]
    fn the_index_of_an_unchanged_workload_is_at_chance_level() {
        for (baseline, current) in [(200, 200), (1_000, 1_000), (5_000, 300)] {
            let trials = 300;
            let sum: f64 = (0..trials)
                .map(|trial| {
                    drift_index(&sample(2 * trial, baseline), &sample(2 * trial + 1, current))
                })
                .sum();
            let mean = sum / trials as f64;
            let expected = by_chance(10, baseline as u64, current as u64);
            assert!((mean / expected - 1.0).abs() < 0.15, "{mean} where {expected} is expected");
        }
    }

    #[test]
    fn a_doubled_workload_is_distinguished_from_chance() {
        let doubled = lengths(sample(1, 1_000).iter().flat_map(|(bucket, count)| {
            std::iter::repeat_n(2 * bucket.shortest(), count as usize)
        }));
        assert!(drift_index(&sample(2, 1_000), &doubled) > 0.25);
    }

    /// Computes the index from plain lists of lengths. Tests compare this reference with the index from histograms.
    fn of_lists(baseline: &[u64], current: &[u64]) -> f64 {
        let mut sorted = baseline.to_vec();
        sorted.sort_unstable();
        let mut ends: Vec<u64> =
            (1..10).map(|decile| sorted[(decile * sorted.len()).div_ceil(10) - 1]).collect();
        let tied = ends.iter().filter(|end| **end == sorted[0]).count() > 1;
        if tied && sorted[0] > 0 {
            ends.insert(0, sorted[0] - 1);
        }
        ends.dedup();
        let shares = |list: &[u64]| {
            let mut counts = vec![0.0; ends.len() + 1];
            for length in list {
                counts[ends.iter().filter(|end| *end < length).count()] += 1.0 / list.len() as f64;
            }
            counts
        };
        index(shares(current).into_iter().zip(shares(baseline)))
    }

    proptest! {
        /// The index from histograms equals the index from plain lists. The test draws lengths that a histogram stores
        /// exactly: lengths below 64 tokens, and longer lengths at the start of a bucket.
        #[test]
        fn the_index_equals_the_index_of_the_lists(
            baseline in prop::collection::vec(0_u64..64, 1..300),
            current in prop::collection::vec(0_u64..64, 1..300),
            doublings in 0_u32..10,
        ) {
            let scale = |list: &[u64]| list.iter().map(|n| (32 + n / 2) << doublings).collect::<Vec<_>>();
            for (baseline, current) in [(baseline.clone(), current.clone()), (scale(&baseline), scale(&current))] {
                let actual = drift_index(&lengths(baseline.iter().copied()), &lengths(current.iter().copied()));
                let exact = of_lists(&baseline, &current);
                prop_assert!((actual - exact).abs() < 1e-9, "{} for {}", actual, exact);
            }
        }

        #[test]
        fn the_index_is_not_negative_and_symmetric(
            one in prop::collection::vec(any::<u64>(), 1..300),
            other in prop::collection::vec(0_u64..100_000, 1..300),
        ) {
            let (one, other) = (lengths(one), lengths(other));
            let bins = Bins::from_baseline(&one);
            let there = bins.index(&one, &other).unwrap();
            let back = bins.index(&other, &one).unwrap();
            prop_assert!(there >= 0.0 && there.is_finite());
            prop_assert!((there - back).abs() < 1e-9);
            prop_assert!(bins.count() <= 10);
        }

        #[test]
        fn every_length_lies_in_one_bin(list in prop::collection::vec(any::<u64>(), 1..300)) {
            let lengths = lengths(list.iter().copied());
            let counts = Bins::from_baseline(&lengths).counts(&lengths);
            prop_assert_eq!(counts.iter().sum::<u64>(), list.len() as u64);
        }
    }
}
