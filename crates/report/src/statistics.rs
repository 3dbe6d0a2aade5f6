//! Statistics of a sample, each by a published definition.

use schemars::JsonSchema;
use serde::Serialize;

/// What is told of how percentiles are computed.
pub const PERCENTILES: &str =
    "linear interpolation between closest ranks (type 7 of Hyndman and Fan, 1996), exact";

/// The percentiles that are told, as shares.
pub const LEVELS: [f64; 4] = [0.05, 0.50, 0.95, 0.99];

/// Of one number over the requests that have it.
#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Summary {
    /// How many requests have it; the others are left out.
    pub n: u64,
    pub mean: f64,
    pub p5: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl Summary {
    /// `None` for no values. `sorted` ascends.
    pub fn of_sorted(sorted: &[f64]) -> Option<Self> {
        let [p5, p50, p95, p99] = LEVELS.map(|level| percentile(sorted, level));
        Some(Self {
            n: sorted.len() as u64,
            mean: mean(sorted.iter().copied())?,
            p5: p5?,
            p50: p50?,
            p95: p95?,
            p99: p99?,
        })
    }
}

/// Σx ÷ n; `None` for no values.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u64, 0.0), |(count, sum), value| (count + 1, sum + value));
    ratio(sum, count)
}

/// `sum` ÷ `count`; `None` where there is nothing to divide by.
pub fn ratio(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

/// The percentile at `level` (0 to 1) of values that ascend: with h = (n − 1) · level, the value at ⌊h⌋ and so much of
/// the way to the next as h lies above it. `None` for no values.
pub fn percentile(sorted: &[f64], level: f64) -> Option<f64> {
    let place = (sorted.len().checked_sub(1)? as f64) * level.clamp(0.0, 1.0);
    let below = whole(place);
    let low = *sorted.get(below)?;
    let high = sorted.get(below + 1).copied().unwrap_or(low);
    Some(low + (place - below as f64) * (high - low))
}

/// The whole part of a number that is not below 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the whole part is what is asked for, and `as` saturates"
)]
pub fn whole(number: f64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_summary_is_that_of_the_textbook() {
        // numpy.percentile([15, 20, 35, 40, 50], [5, 50, 95, 99]) = 16, 35, 48, 49.6
        let summary = Summary::of_sorted(&[15.0, 20.0, 35.0, 40.0, 50.0]).unwrap();
        let close =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found}");
        assert_eq!(summary.n, 5);
        close(summary.mean, 32.0);
        close(summary.p5, 16.0);
        close(summary.p50, 35.0);
        close(summary.p95, 48.0);
        close(summary.p99, 49.6);
    }

    #[test]
    fn nothing_has_no_statistics_and_one_value_is_all_of_them() {
        assert_eq!(Summary::of_sorted(&[]), None);
        assert_eq!(percentile(&[], 0.5), None);
        let one = Summary::of_sorted(&[7.0]).unwrap();
        let all = [one.mean, one.p5, one.p50, one.p95, one.p99];
        assert!(all.iter().all(|value| (value - 7.0).abs() < 1e-12), "{one:?}");
    }

    proptest! {
        /// By the definition with sorted order statistics, written in another way: the share of each of two neighbours.
        #[test]
        fn a_percentile_lies_between_its_neighbours(
            mut values in proptest::collection::vec(0.0..1e6_f64, 1..200),
            level in 0.0..=1.0_f64,
        ) {
            values.sort_by(f64::total_cmp);
            let found = percentile(&values, level).unwrap();
            let rank = (values.len() - 1) as f64 * level;
            let (floor, ceiling) = (values[whole(rank)], values[whole(rank.ceil())]);
            let expected = floor * (1.0 - rank.fract()) + ceiling * rank.fract();
            prop_assert!((found - expected).abs() <= 1e-9 * expected.max(1.0));
            prop_assert!(floor <= found && found <= ceiling);
            let below = values.iter().filter(|value| **value < found).count();
            prop_assert!(below as f64 <= rank.ceil());
        }

        #[test]
        fn percentiles_ascend_with_their_level(
            mut values in proptest::collection::vec(0.0..1e3_f64, 1..50),
        ) {
            values.sort_by(f64::total_cmp);
            let told = LEVELS.map(|level| percentile(&values, level).unwrap());
            prop_assert!(told.is_sorted());
        }
    }
}
