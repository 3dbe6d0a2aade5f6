//! Exponential histograms of scale 3, as OpenTelemetry defines them.
//!
//! Bucket i counts the values in (2^(i/8), 2^((i+1)/8)]. A percentile is the geometric middle of its bucket, so it differs
//! from the exact value by at most 2^(1/16) − 1 = 4.4 %.

use crate::document::HistogramData;
use crate::seconds::rounded;

/// Number of buckets per power of two: 2^scale.
const BUCKETS_PER_OCTAVE: i32 = 8;

/// The scale of all histograms.
pub const SCALE: i32 = 3;

/// Index of the first bucket: 2^−16, which is 15 µs for a time. Smaller values count in this bucket.
const MIN_INDEX: i32 = -16 * BUCKETS_PER_OCTAVE;

/// Index of the last bucket, up to 2^16: 18 hours, or 65,536 tokens per second. Larger values count in this bucket. The
/// two limits bound a histogram at 1 KiB.
const MAX_INDEX: i32 = 16 * BUCKETS_PER_OCTAVE - 1;

/// The fractions of the numbers 2^(k/8) for k from 1 to 7, as the 52 low bits of an `f64`.
const STEPS: [u64; 7] = [
    0x1_72b8_3c7d_517b,
    0x3_06fe_0a31_b715,
    0x4_bfda_d536_2a27,
    0x6_a09e_667f_3bcd,
    0x8_ace5_422a_a0db,
    0xa_e89f_995a_d3ad,
    0xd_5818_dcfb_a487,
];

/// A histogram that grows with the range of its values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Index of the bucket `counts[0]`.
    first: i32,
    counts: Vec<u32>,
    sum: f64,
    zero: u64,
}

impl Histogram {
    /// Counts `value` `times` times. Ignores values that are negative or not finite.
    #[inline]
    pub fn record(&mut self, value: f64, times: u32) {
        if value > 0.0 && value < f64::INFINITY {
            self.sum += value * f64::from(times);
            self.add(bucket_index(value), times);
        } else if value == 0.0 {
            self.record_zero(times);
        }
    }

    /// Counts the value 0 `times` times.
    pub fn record_zero(&mut self, times: u32) {
        self.zero += u64::from(times);
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.zero + self.counts.iter().map(|times| u64::from(*times)).sum::<u64>()
    }

    /// Adds the values of `data`.
    pub fn merge(&mut self, data: &HistogramData) {
        self.sum += data.sum;
        self.zero += data.zero;
        for (index, times) in &data.buckets {
            self.add(*index, u32::try_from(*times).unwrap_or(u32::MAX));
        }
    }

    /// Returns the histogram as a document has it. `None` if it is empty.
    pub fn data(&self) -> Option<HistogramData> {
        let buckets = (self.first..).zip(&self.counts).filter(|(_, times)| **times > 0);
        let count = self.count();
        (count > 0).then(|| HistogramData {
            scale: SCALE,
            count,
            sum: rounded(self.sum),
            zero: self.zero,
            buckets: buckets.map(|(index, times)| (index, u64::from(*times))).collect(),
        })
    }

    fn add(&mut self, index: i32, times: u32) {
        let index = index.clamp(MIN_INDEX, MAX_INDEX);
        if let Some(slot) = self.slot(index) {
            *slot = slot.saturating_add(times);
            return;
        }
        self.grow_to(index);
        if let Some(slot) = self.slot(index) {
            *slot = slot.saturating_add(times);
        }
    }

    fn slot(&mut self, index: i32) -> Option<&mut u32> {
        let place = usize::try_from(index - self.first).ok()?;
        self.counts.get_mut(place)
    }

    fn grow_to(&mut self, index: i32) {
        if self.counts.is_empty() {
            self.first = index;
        }
        let before = usize::try_from(self.first - index).unwrap_or(0);
        if before > 0 {
            self.counts.splice(0..0, std::iter::repeat_n(0, before));
            self.first = index;
        }
        let needed = usize::try_from(index - self.first).unwrap_or(0) + 1;
        if self.counts.len() < needed {
            self.counts.resize(needed, 0);
        }
    }
}

/// Larger than the rounding error of a rank. 0.14 × 50 is a little more than 7 as a binary number.
const ROUNDING: f64 = 1e-6;

impl HistogramData {
    /// Returns the value that a share `quantile` of all values does not exceed (nearest rank). `None` if the histogram is
    /// empty.
    pub fn percentile(&self, quantile: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "counts stay far below 2^52"
        )]
        let rank = ((quantile * self.count as f64 - ROUNDING).ceil() as u64).max(1);
        let mut seen = self.zero;
        if rank <= seen {
            return Some(0.0);
        }
        for (index, times) in &self.buckets {
            seen += times;
            if rank <= seen {
                return Some(middle(*index));
            }
        }
        self.buckets.last().map(|(index, _)| middle(*index))
    }
}

/// Returns the geometric middle of a bucket.
fn middle(index: i32) -> f64 {
    ((f64::from(index) + 0.5) / f64::from(BUCKETS_PER_OCTAVE)).exp2()
}

/// Returns the bucket of a positive, finite value. Reads the exponent and compares the fraction, which is faster than a
/// logarithm and exact at the bounds.
fn bucket_index(value: f64) -> i32 {
    const FRACTION_BITS: u32 = 52;
    let bits = value.to_bits();
    let exponent = (bits >> FRACTION_BITS) as i32 - 1_023;
    let fraction = bits & ((1 << FRACTION_BITS) - 1);
    let above: i32 = STEPS.iter().map(|step| i32::from(fraction > *step)).sum();
    // An upper bound belongs to its bucket, so an exact power of two belongs to the bucket below.
    exponent * BUCKETS_PER_OCTAVE + above - i32::from(fraction == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> HistogramData {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.record(*value, 1));
        histogram.data().unwrap()
    }

    #[test]
    fn an_upper_bound_belongs_to_its_bucket() {
        for index in -100..100 {
            let bound = (f64::from(index) / 8.0).exp2();
            if index % 8 == 0 {
                assert_eq!(bucket_index(bound), index - 1, "{bound}");
            }
            assert_eq!(bucket_index(bound * 1.000_001), index, "above {bound}");
            assert_eq!(bucket_index(bound * 0.999_999), index - 1, "below {bound}");
        }
    }

    #[test]
    fn zero_has_its_own_count_and_invalid_values_none() {
        let mut histogram = Histogram::default();
        histogram.record(0.0, 2);
        for invalid in [-1.0, f64::NAN, f64::INFINITY] {
            histogram.record(invalid, 1);
        }
        let data = histogram.data().unwrap();
        assert_eq!((data.count, data.zero, data.buckets.len()), (2, 2, 0));
        assert_eq!(data.percentile(0.5), Some(0.0));
        assert_eq!(Histogram::default().data(), None);
    }

    #[test]
    fn extreme_values_do_not_make_a_histogram_larger() {
        let data = of(&[1e-300, 1e300, 1.0, f64::MIN_POSITIVE / 4.0]);
        assert_eq!(data.count, 4);
        let (first, last) = (data.buckets.first().unwrap().0, data.buckets.last().unwrap().0);
        assert_eq!((first, last), (MIN_INDEX, MAX_INDEX));
    }

    proptest! {
        #[test]
        fn percentiles_differ_by_at_most_4_5_percent(
            mut values in prop::collection::vec(1e-4_f64..1e4, 1..200),
            percent in 1_usize..=100,
        ) {
            let data = of(&values);
            values.sort_by(f64::total_cmp);
            let rank = (percent * values.len()).div_ceil(100).max(1);
            let exact = values[rank - 1];
            let estimate = data.percentile(percent as f64 / 100.0).unwrap();
            prop_assert!((estimate / exact - 1.0).abs() <= 0.045, "{estimate} for {exact}");
        }

        #[test]
        fn a_merge_equals_the_histogram_of_all_values(
            one in prop::collection::vec(0.0_f64..100.0, 1..50),
            other in prop::collection::vec(1e-3_f64..1e-2, 1..50),
        ) {
            let mut merged = Histogram::default();
            merged.merge(&of(&one));
            merged.merge(&of(&other));
            let all = of(&[one, other].concat());
            let merged = merged.data().unwrap();
            prop_assert_eq!(&merged.buckets, &all.buckets);
            prop_assert_eq!((merged.count, merged.zero), (all.count, all.zero));
            prop_assert!((merged.sum - all.sum).abs() < 1e-5);
        }
    }
}
