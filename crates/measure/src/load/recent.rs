//! Percentiles and failure counts of the requests that ended in the last 5 min.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::load::{FinishedRequest, MAX_WINDOW, Percentiles, Summary};
use crate::timing::{OutputRateRange, VOICE_RATE};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::rolling_window::RollingWindow;

/// Length of a segment: a tenth of the longest window. Statistics cover ten segments, that is 4½ to 5 min, because the
/// last segment is still filling.
const SEGMENT: Duration = Duration::from_secs(30);
const SEGMENTS: u64 = MAX_WINDOW.as_secs() / SEGMENT.as_secs();

/// Significant digits of a histogram. Two digits make percentiles accurate to 1 %.
const DIGITS: u8 = 2;

/// Factors that convert values to the integers of a histogram. The units are 100 µs for times, 0.01 tokens per second
/// for rates, and 1 µs for times per token, because a fast token takes 1 ms.
const UNITS: [f64; 4] = [10_000.0, 100.0, 10_000.0, 1_000_000.0];

/// Highest value that a histogram stores: one hour, 360,000 tokens per second, or 36 s per token. Higher values are
/// stored as this value.
///
/// The limit keeps a histogram below 10 KiB, and the forty histograms of a model key below 400 KiB. A histogram grows
/// only up to its highest value, so a model key usually takes 200 KiB.
const MAX_VALUE: u64 = 36_000_000;

#[derive(Debug)]
pub(super) struct Recent(RollingWindow<Segment>);

impl Recent {
    pub(super) fn new() -> Self {
        let full = (SEGMENTS - 1).try_into().unwrap_or(usize::MAX);
        Self(RollingWindow::new(SEGMENT, full))
    }

    pub(super) fn ended(&mut self, at: MonotonicInstant, ended: FinishedRequest) {
        let number = self.0.number(at);
        let Some(segment) = self.0.slot(number) else {
            return;
        };
        segment.ended(ended);
    }

    /// Merges all segments that are recent at `at`.
    pub(super) fn segment(&self, at: MonotonicInstant) -> Segment {
        let now = self.0.number(at);
        let mut all = Segment::default();
        for segment in self.0.range((now + 1).saturating_sub(SEGMENTS)..now + 1) {
            all.merge(segment);
        }
        all
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    /// Histograms of time to first token, output rate, duration and time per output token, in [`UNITS`].
    values: [Values; UNITS.len()],
    finished: u64,
    failed: u64,
    output_rate_ranges: [u64; OutputRateRange::ALL.len()],
    voice: u64,
}

impl Segment {
    fn ended(&mut self, ended: FinishedRequest) {
        let FinishedRequest {
            failed,
            time_to_first_token,
            output_rate,
            duration,
            time_per_output_token,
        } = ended;
        self.finished += 1;
        self.failed += u64::from(failed);
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let values = [
            seconds(time_to_first_token),
            output_rate,
            seconds(duration),
            seconds(time_per_output_token),
        ];
        for ((histogram, units), value) in self.values.iter_mut().zip(UNITS).zip(values) {
            if let Some(value) = value {
                histogram.record(value * units);
            }
        }
        if let Some(rate) = output_rate {
            self.voice += u64::from(rate >= VOICE_RATE);
            let counts = OutputRateRange::ALL.into_iter().zip(&mut self.output_rate_ranges);
            let own = OutputRateRange::from_rate(rate);
            counts.filter(|(range, _)| *range == own).for_each(|(_, count)| *count += 1);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let Self { values, finished, failed, output_rate_ranges, voice } = other;
        for (histogram, more) in self.values.iter_mut().zip(values) {
            histogram.merge(more);
        }
        self.finished += finished;
        self.failed += failed;
        for (sum, count) in self.output_rate_ranges.iter_mut().zip(output_rate_ranges) {
            *sum += count;
        }
        self.voice += voice;
    }

    pub(super) fn summary(&self) -> Summary {
        let mut percentiles =
            self.values.iter().zip(UNITS).map(|(values, units)| values.percentiles(units));
        let mut next = || percentiles.next().flatten();
        Summary {
            time_to_first_token: next(),
            output_rate: next(),
            duration: next(),
            time_per_output_token: next(),
            finished: self.finished,
            failed: self.failed,
            output_rate_ranges: self.output_rate_ranges,
            voice: self.voice,
        }
    }
}

/// A histogram that allocates memory only when the first value is recorded.
#[derive(Clone, Debug, Default)]
struct Values(Option<Histogram<u32>>);

impl Values {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to 0..=MAX_VALUE; what is no number becomes 0"
    )]
    fn record(&mut self, units: f64) {
        let units = units.round().clamp(0.0, MAX_VALUE as f64) as u64;
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
        // Uses the middle of the bucket. The library returns its upper end, which is too high on average.
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
        self.0.get_or_insert_with(|| Histogram::new(DIGITS).expect("DIGITS is between 0 and 5"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(millis: u64, rate: f64) -> FinishedRequest {
        let time = Duration::from_millis(millis);
        FinishedRequest {
            failed: false,
            time_to_first_token: Some(time),
            output_rate: Some(rate),
            duration: Some(2 * time),
            time_per_output_token: Some(time / 1_000),
        }
    }

    fn near(told: f64, exact: f64) {
        assert!((told - exact).abs() <= 0.01 * exact, "{told} for {exact}");
    }

    #[test]
    fn percentiles_are_accurate_to_one_percent() {
        let mut recent = Recent::new();
        for n in 1..=1_000 {
            recent.ended(MonotonicInstant::from_millis(n * 290), ended(n * 10, n as f64 / 10.0));
        }
        let summary = recent.segment(MonotonicInstant::from_secs(290)).summary();
        let (times, rates) = (summary.time_to_first_token.unwrap(), summary.output_rate.unwrap());
        for (told, exact) in [(times.p5, 0.5), (times.p50, 5.0), (times.p95, 9.5), (times.p99, 9.9)]
        {
            near(told, exact);
        }
        for (told, exact) in
            [(rates.p5, 5.0), (rates.p50, 50.0), (rates.p95, 95.0), (rates.p99, 99.0)]
        {
            near(told, exact);
        }
        assert_eq!((times.count, rates.count), (1_000, 1_000));
        let (whole, token) = (summary.duration.unwrap(), summary.time_per_output_token.unwrap());
        near(whole.p95, 19.0);
        near(token.p5, 0.000_5);
        near(token.p95, 0.009_5);
    }

    #[test]
    fn rated_streams_are_counted_by_range_and_a_bound_is_in_the_upper_range() {
        let mut recent = Recent::new();
        for rate in [4.9, 5.0, 15.0, 29.9, 30.0, 60.0, 99.9, 100.0] {
            recent.ended(MonotonicInstant::ZERO, ended(10, rate));
        }
        recent.ended(MonotonicInstant::ZERO, FinishedRequest::default());
        let summary = recent.segment(MonotonicInstant::ZERO).summary();
        assert_eq!(summary.output_rate_ranges, [1, 1, 2, 1, 3]);
        assert_eq!((summary.voice, summary.finished), (1, 9));
    }

    #[test]
    fn a_value_is_reported_as_the_middle_of_its_bucket() {
        let mut recent = Recent::new();
        // The bucket that is widest for its value: 32,768 to 33,023 units.
        recent.ended(MonotonicInstant::ZERO, ended(3_277, 327.68));
        let rates = recent.segment(MonotonicInstant::ZERO).summary().output_rate.unwrap();
        assert!((rates.p50 - 327.68).abs() < 0.004 * 327.68, "{}", rates.p50);
    }

    #[test]
    fn undefined_values_are_omitted_but_counted_as_finished() {
        let mut recent = Recent::new();
        let failed = FinishedRequest { failed: true, ..FinishedRequest::default() };
        recent.ended(MonotonicInstant::from_secs(1), failed);
        recent.ended(MonotonicInstant::from_secs(1), FinishedRequest::default());
        let summary = recent.segment(MonotonicInstant::from_secs(1)).summary();
        assert_eq!((summary.time_to_first_token, summary.output_rate), (None, None));
        assert_eq!((summary.finished, summary.failed), (2, 1));
    }

    #[test]
    fn an_exchange_is_reported_as_long_as_its_segment_is_kept() {
        let mut recent = Recent::new();
        recent.ended(MonotonicInstant::from_nanos(29_999_999_999), ended(100, 50.0));
        recent.ended(MonotonicInstant::from_secs(30), ended(200, 50.0));
        let finished =
            |nanos| recent.segment(MonotonicInstant::from_nanos(nanos)).summary().finished;
        assert_eq!(finished(299_999_999_999), 2);
        assert_eq!(finished(300_000_000_000), 1);
        assert_eq!(finished(329_999_999_999), 1);
        assert_eq!(finished(330_000_000_000), 0);
    }

    #[test]
    fn extreme_values_are_accepted() {
        let mut recent = Recent::new();
        for rate in [f64::MAX, f64::INFINITY, f64::NAN, -1.0] {
            recent.ended(MonotonicInstant::ZERO, ended(u64::MAX / 1_000_000, rate));
        }
        let summary = recent.segment(MonotonicInstant::ZERO).summary();
        near(summary.time_to_first_token.unwrap().p99, 3_600.0);
        let rates = summary.output_rate.unwrap();
        near(rates.p99, 360_000.0);
        assert_eq!((rates.p5, rates.count), (0.0, 4));
    }

    #[test]
    fn a_histogram_stays_within_its_memory_limit() {
        let mut values = Values::default();
        values.record(f64::MAX);
        let counters = values.0.unwrap().distinct_values();
        assert!(counters * size_of::<u32>() <= 10 * 1_024, "{counters}");
    }
}
