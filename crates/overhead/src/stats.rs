//! Percentiles of durations.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer durations count as this one: ten minutes are longer than any run.
const LONGEST_NS: u64 = 600_000_000_000;
/// The relative error of a percentile is below 10⁻³, and a distribution takes less than 300 KB.
const DIGITS: u8 = 3;

/// Durations of one kind, such as the delays of all chunks.
#[derive(Debug)]
pub struct Distribution(Histogram<u64>);

/// Percentiles in µs.
#[derive(Debug, PartialEq, Serialize)]
pub struct Summary {
    pub count: u64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl Distribution {
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        Self(histogram.expect("the bounds are ordered and the digits at most 5"))
    }

    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    /// Returns `None` if nothing was recorded.
    pub fn summary(&self) -> Option<Summary> {
        let quantile = |it| microseconds(self.0.value_at_quantile(it));
        (!self.0.is_empty()).then(|| Summary {
            count: self.0.len(),
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
            max_us: microseconds(self.0.max()),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "the error of the histogram is larger")]
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_sorted_values() {
        let mut distribution = Distribution::new();
        for value in (1..=1_000).rev() {
            distribution.record(value * 1_000);
        }
        let summary = distribution.summary().unwrap();
        assert_eq!(summary.count, 1_000);
        let expected = [
            (summary.p50_us, 500.0),
            (summary.p90_us, 900.0),
            (summary.p99_us, 990.0),
            (summary.max_us, 1_000.0),
        ];
        for (found, expected) in expected {
            assert!((found - expected).abs() <= expected * 1e-3, "{found} instead of {expected}");
        }
    }

    #[test]
    fn one_value_is_every_percentile() {
        let mut distribution = Distribution::new();
        distribution.record(7_000);
        let summary = distribution.summary().unwrap();
        for found in [summary.p50_us, summary.p99_us, summary.max_us] {
            assert!((found - 7.0).abs() < 0.01, "{found}");
        }
    }

    #[test]
    fn nothing_recorded_has_no_percentiles() {
        assert_eq!(Distribution::new().summary(), None);
    }

    #[test]
    fn durations_beyond_the_range_count_as_the_longest() {
        let mut distribution = Distribution::new();
        distribution.record(u64::MAX);
        let longest = distribution.summary().unwrap().max_us;
        assert!((longest / microseconds(LONGEST_NS) - 1.0).abs() < 1e-3, "{longest}");
    }
}
