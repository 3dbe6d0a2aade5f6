//! The exponential histogram of OpenTelemetry with scale 3, and percentiles of merged histograms.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Buckets per power of two. Bucket `i` holds values in (2^(i/8), 2^((i+1)/8)].
const BUCKETS_PER_DOUBLING: f64 = 8.0;

/// The only scale of the interface.
const SCALE: i32 = 3;

/// Largest bucket index of an `f64`, in both directions: 1,074 doublings below 1. Limits the size of a histogram.
const MAX_INDEX: i32 = 1_075 * 8;

/// Counts of values by bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Number of values that are 0.
    zero: u64,
    buckets: BTreeMap<i32, u64>,
}

impl Histogram {
    pub fn count(&self) -> u64 {
        self.buckets.values().fold(self.zero, |sum, count| sum.saturating_add(*count))
    }

    /// Adds the counts of another histogram. The result is the histogram of the values of both.
    pub fn merge(&mut self, other: &Self) {
        self.zero = self.zero.saturating_add(other.zero);
        for (index, count) in &other.buckets {
            let sum = self.buckets.entry(*index).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// Returns the quantile `q`, from 0 to 1, interpolated within its bucket as Prometheus does for native histograms.
    /// The relative error is at most the width of a bucket, 9 %. `None` if the histogram is empty.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * count as f64;
        let mut below = self.zero as f64;
        if rank <= below {
            return Some(0.0);
        }
        let mut last = 0.0;
        for (index, count) in &self.buckets {
            let in_bucket = *count as f64;
            let part = ((rank - below) / in_bucket).clamp(0.0, 1.0);
            last = ((f64::from(*index) + part) / BUCKETS_PER_DOUBLING).exp2();
            below += in_bucket;
            if rank <= below {
                break;
            }
        }
        Some(last)
    }
}

#[derive(Deserialize)]
#[serde(default)]
struct Sparse {
    scale: i32,
    zero: u64,
    buckets: Vec<(i32, u64)>,
}

impl Default for Sparse {
    fn default() -> Self {
        Self { scale: SCALE, zero: 0, buckets: Vec::new() }
    }
}

/// A histogram of another scale cannot be merged and is read as empty. `null` is empty, too.
impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sparse = Option::<Sparse>::deserialize(deserializer)?.unwrap_or_default();
        let mut histogram = Self::default();
        if sparse.scale != SCALE {
            return Ok(histogram);
        }
        histogram.zero = sparse.zero;
        let valid = |(index, count): &(i32, u64)| index.abs() <= MAX_INDEX && *count > 0;
        for (index, count) in sparse.buckets.into_iter().filter(valid) {
            let sum = histogram.buckets.entry(index).or_default();
            *sum = sum.saturating_add(count);
        }
        Ok(histogram)
    }
}

#[cfg(test)]
impl Histogram {
    /// Returns the histogram of `values`, which are positive or 0.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut histogram = Self::default();
        for value in values {
            if value > 0.0 {
                let index = (value.log2() * BUCKETS_PER_DOUBLING).ceil() - 1.0;
                #[expect(clippy::cast_possible_truncation, reason = "log2 is small")]
                let index = index as i32;
                *histogram.buckets.entry(index).or_default() += 1;
            } else {
                histogram.zero += 1;
            }
        }
        histogram
    }

    /// Returns the JSON of the interface.
    pub fn json(&self) -> serde_json::Value {
        let buckets: Vec<_> = self.buckets.iter().collect();
        serde_json::json!({"scale": 3, "count": self.count(), "zero": self.zero, "buckets": buckets})
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(prop_oneof![Just(0.0), 1e-4..1e3_f64], 0..200)
    }

    proptest! {
        #[test]
        fn merging_equals_the_histogram_of_the_union(a in values(), b in values()) {
            let union = Histogram::of(a.iter().chain(&b).copied());
            let mut merged = Histogram::of(a.iter().copied());
            merged.merge(&Histogram::of(b.iter().copied()));
            prop_assert_eq!(&merged, &union);
            let mut reversed = Histogram::of(b);
            reversed.merge(&Histogram::of(a));
            prop_assert_eq!(&reversed, &union);
        }

        #[test]
        fn quantiles_are_within_a_bucket_of_the_exact_value(mut values in values(), q in 0.01..1.0_f64) {
            let estimate = Histogram::of(values.iter().copied()).quantile(q);
            values.sort_by(f64::total_cmp);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 200 values")]
            let rank = (q * values.len() as f64).ceil() as usize;
            let exact = values.get(rank.saturating_sub(1)).copied();
            prop_assert_eq!(estimate.is_some(), exact.is_some());
            if let Some((estimate, exact)) = estimate.zip(exact) {
                prop_assert!((exact..=exact).contains(&estimate) || (estimate / exact).log2().abs() <= 0.126, "{} {}", estimate, exact);
            }
        }

        #[test]
        fn reads_what_a_process_writes(values in values()) {
            let histogram = Histogram::of(values);
            let read: Histogram = serde_json::from_value(histogram.json()).unwrap();
            prop_assert_eq!(read, histogram);
        }
    }

    #[test]
    fn tolerates_null_other_scales_and_absurd_buckets() {
        let read = |text| serde_json::from_str::<Histogram>(text).unwrap();
        assert_eq!(read("null"), Histogram::default());
        assert_eq!(read(r#"{"scale": 4, "buckets": [[1, 2]]}"#), Histogram::default());
        let text =
            r#"{"buckets": [[2000000000, 1], [3, 18446744073709551615], [3, 1]], "zero": 1}"#;
        assert_eq!(read(text).count(), u64::MAX);
        assert!(read(text).quantile(0.5).is_some());
    }
}
