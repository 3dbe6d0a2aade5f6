//! What the exchanges that ended in the last 5 min were like: percentiles, and how many failed.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::clock::Moment;
use crate::load::{Ended, LONGEST_WINDOW, Percentiles};
use crate::slots::Slots;

/// Tenths of the longest window. The one that is filling counts as the tenth, so what is told covers 4½ to 5 min.
const SEGMENT: Duration = Duration::from_secs(30);
const SEGMENTS: u64 = LONGEST_WINDOW.as_secs() / SEGMENT.as_secs();

/// Two significant digits: a percentile is right to 1 %.
const DIGITS: u8 = 2;

/// Histograms hold whole numbers: times in units of 100 µs, rates in hundredths of a token per second.
const UNITS_PER_SECOND: f64 = 10_000.0;
const UNITS_PER_RATE: f64 = 100.0;

/// What lies above is told as this: one hour, or 360,000 tokens per second. It bounds a histogram at 10 KiB, and the
/// twenty of a flow at 200 KiB (100 KiB where first tokens come within 5 s and rates stay below 300 tokens per second,
/// since a histogram grows only as far as its highest value).
const HIGHEST: u64 = 36_000_000;

#[derive(Debug)]
pub(super) struct Recent(Slots<Segment>);

/// What [`Recent`] knows at one moment.
#[derive(Debug, Default)]
pub(super) struct Summary {
    pub(super) time_to_first_token: Option<Percentiles>,
    pub(super) output_rate: Option<Percentiles>,
    pub(super) finished: u64,
    pub(super) failed: u64,
}

impl Recent {
    pub(super) fn new() -> Self {
        let full = (SEGMENTS - 1).try_into().unwrap_or(usize::MAX);
        Self(Slots::new(SEGMENT, full))
    }

    pub(super) fn ended(&mut self, at: Moment, ended: Ended) {
        let number = self.0.number(at);
        let Some(segment) = self.0.slot(number) else {
            return;
        };
        segment.finished += 1;
        segment.failed += u64::from(ended.failed);
        if let Some(time) = ended.time_to_first_token {
            segment.times.record(time.as_secs_f64() * UNITS_PER_SECOND);
        }
        if let Some(rate) = ended.output_rate {
            segment.rates.record(rate * UNITS_PER_RATE);
        }
    }

    pub(super) fn reading(&self, at: Moment) -> Summary {
        let now = self.0.number(at);
        let mut all = Segment::default();
        for segment in self.0.range((now + 1).saturating_sub(SEGMENTS)..now + 1) {
            all.merge(segment);
        }
        Summary {
            time_to_first_token: all.times.percentiles(UNITS_PER_SECOND),
            output_rate: all.rates.percentiles(UNITS_PER_RATE),
            finished: all.finished,
            failed: all.failed,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Segment {
    times: Values,
    rates: Values,
    finished: u64,
    failed: u64,
}

impl Segment {
    fn merge(&mut self, other: &Self) {
        let Self {
            times,
            rates,
            finished,
            failed,
        } = other;
        self.times.merge(times);
        self.rates.merge(rates);
        self.finished += finished;
        self.failed += failed;
    }
}

/// A histogram that takes no memory before its first value.
#[derive(Clone, Debug, Default)]
struct Values(Option<Histogram<u32>>);

impl Values {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 0..=HIGHEST; what is no number becomes 0"
    )]
    fn record(&mut self, units: f64) {
        let units = units.round().clamp(0.0, HIGHEST as f64) as u64;
        let recorded = self.histogram().record(units);
        debug_assert!(recorded.is_ok(), "it resizes itself");
    }

    fn merge(&mut self, other: &Self) {
        if let Some(other) = &other.0 {
            let merged = self.histogram().add(other);
            debug_assert!(merged.is_ok(), "both resize themselves");
        }
    }

    fn percentiles(&self, units: f64) -> Option<Percentiles> {
        let histogram = self.0.as_ref()?;
        // The middle of a bucket, where the library tells its upper end, which would be high on average.
        let at = |quantile| {
            let highest = histogram.value_at_quantile(quantile);
            histogram.median_equivalent(highest) as f64 / units
        };
        Some(Percentiles {
            p5: at(0.05),
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            count: histogram.len(),
        })
    }

    fn histogram(&mut self) -> &mut Histogram<u32> {
        self.0
            .get_or_insert_with(|| Histogram::new(DIGITS).expect("DIGITS is between 0 and 5"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(millis: u64, rate: f64) -> Ended {
        Ended {
            failed: false,
            time_to_first_token: Some(Duration::from_millis(millis)),
            output_rate: Some(rate),
        }
    }

    fn near(told: f64, exact: f64) {
        assert!((told - exact).abs() <= 0.01 * exact, "{told} for {exact}");
    }

    #[test]
    fn percentiles_are_right_to_a_hundredth() {
        let mut recent = Recent::new();
        for n in 1..=1_000 {
            recent.ended(Moment::from_millis(n * 290), ended(n * 10, n as f64 / 10.0));
        }
        let summary = recent.reading(Moment::from_secs(290));
        let (times, rates) = (
            summary.time_to_first_token.unwrap(),
            summary.output_rate.unwrap(),
        );
        for (told, exact) in [
            (times.p5, 0.5),
            (times.p50, 5.0),
            (times.p95, 9.5),
            (times.p99, 9.9),
        ] {
            near(told, exact);
        }
        for (told, exact) in [
            (rates.p5, 5.0),
            (rates.p50, 50.0),
            (rates.p95, 95.0),
            (rates.p99, 99.0),
        ] {
            near(told, exact);
        }
        assert_eq!((times.count, rates.count), (1_000, 1_000));
    }

    #[test]
    fn a_value_is_told_as_the_middle_of_its_bucket() {
        let mut recent = Recent::new();
        // Where a bucket is widest for its value: 32,768 units to 33,023.
        recent.ended(Moment::ZERO, ended(3_277, 327.68));
        let rates = recent.reading(Moment::ZERO).output_rate.unwrap();
        assert!((rates.p50 - 327.68).abs() < 0.004 * 327.68, "{}", rates.p50);
    }

    #[test]
    fn what_is_undefined_is_left_out_but_counted_as_finished() {
        let mut recent = Recent::new();
        let failed = Ended {
            failed: true,
            ..Ended::default()
        };
        recent.ended(Moment::from_secs(1), failed);
        recent.ended(Moment::from_secs(1), Ended::default());
        let summary = recent.reading(Moment::from_secs(1));
        assert_eq!(
            (summary.time_to_first_token, summary.output_rate),
            (None, None)
        );
        assert_eq!((summary.finished, summary.failed), (2, 1));
    }

    #[test]
    fn an_exchange_is_told_for_as_long_as_its_segment_is() {
        let mut recent = Recent::new();
        recent.ended(Moment::from_nanos(29_999_999_999), ended(100, 50.0));
        recent.ended(Moment::from_secs(30), ended(200, 50.0));
        let finished = |nanos| recent.reading(Moment::from_nanos(nanos)).finished;
        assert_eq!(finished(299_999_999_999), 2);
        assert_eq!(finished(300_000_000_000), 1);
        assert_eq!(finished(329_999_999_999), 1);
        assert_eq!(finished(330_000_000_000), 0);
    }

    #[test]
    fn no_value_is_too_large_or_too_odd() {
        let mut recent = Recent::new();
        for rate in [f64::MAX, f64::INFINITY, f64::NAN, -1.0] {
            recent.ended(Moment::ZERO, ended(u64::MAX / 1_000_000, rate));
        }
        let summary = recent.reading(Moment::ZERO);
        near(summary.time_to_first_token.unwrap().p99, 3_600.0);
        let rates = summary.output_rate.unwrap();
        near(rates.p99, 360_000.0);
        assert_eq!((rates.p5, rates.count), (0.0, 4));
    }

    #[test]
    fn a_histogram_stays_within_its_bound() {
        let mut values = Values::default();
        values.record(f64::MAX);
        let counters = values.0.unwrap().distinct_values();
        assert!(counters * size_of::<u32>() <= 10 * 1_024, "{counters}");
    }
}
