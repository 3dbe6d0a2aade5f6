//! SLOs that judge minutes (slices) of the whole system instead of requests.

use std::time::Duration;

use crate::record::Verdict;
use tokengauge_types::clock::MonotonicInstant;

/// Length of a slice. Slice n covers n min ≤ t < (n + 1) min since the process start.
pub const SLICE: Duration = Duration::from_secs(60);
const SLICE_NANOS: u64 = 60_000_000_000;

/// Longest interval between two samples of the streams in flight. Samples come every 250 ms, or every second while no
/// request is open. After a longer interval, the process was stopped or starved, so the number of streams is unknown
/// and the slice does not count.
const MAX_SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

/// State of the open slice.
#[derive(Clone, Debug, Default)]
pub(super) struct Slices {
    /// Lowest good rate in tokens per second.
    floor: f64,
    min_streams: u32,
    /// Slices that begin before this instant do not count.
    from: MonotonicInstant,
    number: u64,
    tokens: u64,
    /// Smallest number of streams in any sample of the slice. `None` before the first sample.
    fewest: Option<u32>,
    /// Whether the slice was observed completely.
    is_complete: bool,
    last_sample: Option<MonotonicInstant>,
}

/// A finished slice that counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ClosedSlice {
    /// End of the slice.
    pub(super) at: MonotonicInstant,
    pub(super) verdict: Verdict,
}

impl Slices {
    pub(super) fn new(floor: f64, min_streams: u32, from: MonotonicInstant) -> Self {
        Self { floor, min_streams, from, ..Self::default() }
    }

    /// Records the number of streams in flight at `at`. Returns the previous slice if it has just ended and counts.
    pub(super) fn sample(&mut self, at: MonotonicInstant, streams: u32) -> Option<ClosedSlice> {
        let closed = self.advance(at);
        if !self.is_sampled(at) {
            self.is_complete = false;
        }
        self.fewest = Some(self.fewest.map_or(streams, |fewest| fewest.min(streams)));
        self.last_sample = self.last_sample.max(Some(at));
        closed
    }

    /// Records output tokens. Tokens that arrive after their slice ended count in the next slice. Returns the previous
    /// slice if it has just ended and counts.
    pub(super) fn add(&mut self, at: MonotonicInstant, tokens: u64) -> Option<ClosedSlice> {
        let closed = self.advance(at);
        self.tokens += tokens;
        closed
    }

    /// Records that part of a stream was not observed.
    pub(super) const fn mark_unobserved(&mut self) {
        self.is_complete = false;
    }

    fn is_sampled(&self, at: MonotonicInstant) -> bool {
        self.last_sample.is_some_and(|last_sample| at.since(last_sample) <= MAX_SAMPLE_INTERVAL)
    }

    fn advance(&mut self, at: MonotonicInstant) -> Option<ClosedSlice> {
        let number = at.nanos() / SLICE_NANOS;
        if number <= self.number {
            return None;
        }
        let closed = self.close(at);
        self.number = number;
        self.tokens = 0;
        self.fewest = None;
        self.is_complete = true;
        closed
    }

    fn close(&self, at: MonotonicInstant) -> Option<ClosedSlice> {
        let begin = MonotonicInstant::from_nanos(self.number.saturating_mul(SLICE_NANOS));
        let counts = self.is_complete && self.is_sampled(at) && begin >= self.from;
        if !counts || self.fewest? < self.min_streams {
            return None;
        }
        let rate = self.tokens as f64 / SLICE.as_secs_f64();
        Some(ClosedSlice {
            at: begin + SLICE,
            verdict: if rate >= self.floor { Verdict::Good } else { Verdict::Bad },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> MonotonicInstant {
        MonotonicInstant::from_millis(millis)
    }

    fn slices() -> Slices {
        Slices::new(10.0, 2, MonotonicInstant::ZERO)
    }

    /// Records `streams` streams in flight every 250 ms, from `from` up to but not including `to`.
    fn watch(slices: &mut Slices, from: u64, to: u64, streams: u32) -> Vec<ClosedSlice> {
        let samples = (from..to).step_by(250);
        samples.filter_map(|millis| slices.sample(at(millis), streams)).collect()
    }

    fn closed(minute: u64, verdict: Verdict) -> ClosedSlice {
        ClosedSlice { at: MonotonicInstant::from_secs(minute * 60), verdict }
    }

    #[test]
    fn a_minute_is_evaluated_once_when_the_next_has_begun() {
        let mut slices = slices();
        assert_eq!(watch(&mut slices, 0, 60_000, 2), [], "it had begun already");
        assert_eq!(slices.add(at(60_000), 600), None, "the first sample is missing");
        assert_eq!(watch(&mut slices, 60_000, 120_000, 2), []);
        assert_eq!(slices.add(at(119_999), 599), None);
        let good = watch(&mut slices, 120_000, 180_000, 3);
        assert_eq!(good, [closed(2, Verdict::Good)]);
        slices.add(at(179_999), 599);
        let bad = slices.add(at(180_000), 5);
        assert_eq!(bad, Some(closed(3, Verdict::Bad)), "599 of 600");
        watch(&mut slices, 180_000, 240_000, 2);
        slices.add(at(239_999), 595);
        assert_eq!(
            slices.sample(at(240_000), 0),
            Some(closed(4, Verdict::Good)),
            "tokens count on both edges, and the look that closes it is of the next"
        );
    }

    #[test]
    fn a_minute_with_too_few_streams_at_any_sample_does_not_count() {
        let mut slices = slices();
        watch(&mut slices, 0, 90_000, 9);
        assert_eq!(slices.sample(at(90_000), 1), None);
        assert_eq!(watch(&mut slices, 90_250, 180_000, 9), []);
        assert_eq!(watch(&mut slices, 180_000, 180_250, 9), [closed(3, Verdict::Bad)]);
    }

    #[test]
    fn a_partly_observed_minute_does_not_count() {
        let mut slices = slices();
        watch(&mut slices, 0, 80_000, 2);
        assert_eq!(watch(&mut slices, 84_750, 120_500, 2).len(), 1, "5 s apart");
        watch(&mut slices, 120_500, 140_000, 2);
        assert_eq!(watch(&mut slices, 144_750, 180_500, 2).len(), 1);
        let mut slices = self::slices();
        watch(&mut slices, 0, 80_000, 2);
        assert_eq!(watch(&mut slices, 84_751, 120_500, 2), [], "a bit more");
        assert_eq!(watch(&mut slices, 120_500, 180_500, 2).len(), 1);
        slices.mark_unobserved();
        assert_eq!(watch(&mut slices, 180_500, 240_500, 2), []);
    }

    #[test]
    fn a_clock_jump_over_a_boundary_invalidates_only_both_minutes() {
        let mut slices = slices();
        watch(&mut slices, 0, 118_000, 2);
        assert_eq!(slices.sample(at(124_000), 2), None, "its end was not seen");
        assert_eq!(watch(&mut slices, 124_250, 180_500, 2), [], "nor this beginning");
        assert_eq!(watch(&mut slices, 180_500, 240_500, 2).len(), 1);
        assert_eq!(slices.sample(at(9_000_000), 2), None);
    }

    #[test]
    fn tokens_before_the_first_sample_of_a_minute_do_not_hide_a_gap() {
        let mut slices = slices();
        watch(&mut slices, 0, 118_000, 2);
        assert_eq!(slices.add(at(120_100), 9_999).map(|it| it.at), Some(at(120_000)));
        assert_eq!(watch(&mut slices, 123_500, 180_500, 2), [], "5.5 s unseen");
    }

    #[test]
    fn a_minute_that_begins_in_the_start_up_period_does_not_count() {
        let mut slices = Slices::new(10.0, 1, MonotonicInstant::from_secs(61));
        let closed = watch(&mut slices, 0, 180_500, 1);
        assert_eq!(closed, [self::closed(3, Verdict::Bad)]);
    }

    #[test]
    fn late_events_count_for_the_open_slice() {
        let mut slices = slices();
        watch(&mut slices, 0, 120_000, 2);
        watch(&mut slices, 120_000, 120_250, 2);
        assert_eq!(slices.add(at(119_999), 600), None);
        watch(&mut slices, 120_250, 180_000, 2);
        assert_eq!(slices.sample(at(180_000), 2), Some(closed(3, Verdict::Good)));
    }
}
