//! Computes means and percentiles, by published definitions.

use schemars::JsonSchema;
use serde::Serialize;

/// Description of the percentile method for the report.
pub const PERCENTILES: &str =
    "linear interpolation between closest ranks (type 7 of Hyndman and Fan, 1996), exact";

/// Percentiles in the report, as ratios from 0 to 1.
pub const LEVELS: [f64; 4] = [0.05, 0.50, 0.95, 0.99];

/// Mean and percentiles of one figure, such as TTFT, over all requests with this figure.
#[derive(Clone, Copy, Debug, JsonSchema, PartialEq, Serialize)]
pub struct Summary {
    /// Number of requests with a value. Requests without one do not affect the statistics.
    pub n: u64,
    pub mean: f64,
    pub p5: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl Summary {
    /// Summarizes values in ascending order. Returns `None` if there are no values.
    pub fn from_sorted(sorted: &[f64]) -> Option<Self> {
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

/// Returns the mean, or `None` without values.
pub fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u64, 0.0), |(count, sum), value| (count + 1, sum + value));
    ratio(sum, count)
}

/// Returns `sum` ÷ `count`. Returns `None` if `count` is 0.
pub fn ratio(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

/// Returns the percentile at `level` (0 to 1). `sorted` contains n values in ascending order. Returns `None` if n is
/// 0. The rank of the percentile is h = (n − 1) · level. The result is interpolated between the values at ⌊h⌋ and ⌊h⌋
/// + 1.
pub fn percentile(sorted: &[f64], level: f64) -> Option<f64> {
    let place = (sorted.len().checked_sub(1)? as f64) * level.clamp(0.0, 1.0);
    let below = truncate(place);
    let low = *sorted.get(below)?;
    let high = sorted.get(below + 1).copied().unwrap_or(low);
    Some(low + (place - below as f64) * (high - low))
}

/// Returns the integer part of a number that is not negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "truncation is intended, and `as` saturates"
)]
pub fn truncate(number: f64) -> usize {
    number as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn matches_numpy() {
        // numpy.percentile([15, 20, 35, 40, 50], [5, 50, 95, 99]) = 16, 35, 48, 49.6
        let summary = Summary::from_sorted(&[15.0, 20.0, 35.0, 40.0, 50.0]).unwrap();
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
    fn handles_zero_and_one_value() {
        assert_eq!(Summary::from_sorted(&[]), None);
        assert_eq!(percentile(&[], 0.5), None);
        let one = Summary::from_sorted(&[7.0]).unwrap();
        let all = [one.mean, one.p5, one.p50, one.p95, one.p99];
        assert!(all.iter().all(|value| (value - 7.0).abs() < 1e-12), "{one:?}");
    }

    proptest! {
        /// Compares a percentile with the weighted mean of its two neighbours.
        #[test]
        fn a_percentile_lies_between_its_neighbours(
            mut values in proptest::collection::vec(0.0..1e6_f64, 1..200),
            level in 0.0..=1.0_f64,
        ) {
            values.sort_by(f64::total_cmp);
            let found = percentile(&values, level).unwrap();
            let rank = (values.len() - 1) as f64 * level;
            let (floor, ceiling) = (values[truncate(rank)], values[truncate(rank.ceil())]);
            let expected = floor * (1.0 - rank.fract()) + ceiling * rank.fract();
            prop_assert!((found - expected).abs() <= 1e-9 * expected.max(1.0));
            prop_assert!(floor <= found && found <= ceiling);
            let below = values.iter().filter(|value| **value < found).count();
            prop_assert!(below as f64 <= rank.ceil());
        }

        #[test]
        fn percentiles_increase_with_the_level(
            mut values in proptest::collection::vec(0.0..1e3_f64, 1..50),
        ) {
            values.sort_by(f64::total_cmp);
            let percentiles = LEVELS.map(|level| percentile(&values, level).unwrap());
            prop_assert!(percentiles.is_sorted());
        }
    }
}
