//! Throughput of all model keys together, and statistics of all their exchanges.

use crate::load::TotalReading;
use crate::load::flow::{Track, peak, throughput};
use crate::load::recent::Segment;
use tokengauge_types::clock::MonotonicInstant;

/// Computes the totals. Means add up. The peak is the highest sum of one second, because model keys peak at different
/// times. `recent` holds the statistics of all tracks.
pub(super) fn reading(at: MonotonicInstant, tracks: &[&Track], recent: &Segment) -> TotalReading {
    let now = at.since(MonotonicInstant::ZERO).as_secs();
    let sum = |of: &dyn Fn(&Track) -> f64| tracks.iter().fold(0.0, |sum, track| sum + of(track));
    TotalReading {
        input: throughput(now, None, |seconds| sum(&|track| track.input_of(now, seconds))),
        output: throughput(
            now,
            peak(now, |second| sum(&|track| track.streamed_in(second))),
            |seconds| sum(&|track| track.output_of(now, seconds)),
        ),
        recent: recent.summary(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_highest_second_of_all_together() {
        let (mut one, mut other) = (Track::new(), Track::new());
        one.output(MonotonicInstant::from_secs(5), 100);
        one.output(MonotonicInstant::from_secs(6), 60);
        other.output(MonotonicInstant::from_secs(6), 70);
        other.output(MonotonicInstant::from_secs(7), 90);
        other.input_spread(MonotonicInstant::from_secs(8), MonotonicInstant::from_secs(9), 30);
        let at = MonotonicInstant::from_secs(10);
        let total = reading(at, &[&one, &other], &Segment::default());
        assert_eq!(total.output.peak, Some(130.0), "not 100 + 90");
        assert_eq!(total.output.ten_seconds, Some(32.0));
        assert_eq!(total.input.ten_seconds, Some(3.0));
        assert_eq!((total.input.peak, total.input.minute), (None, None));
    }

    #[test]
    fn without_any_flow_nothing_went_through() {
        let total = reading(MonotonicInstant::from_secs(60), &[], &Segment::default());
        assert_eq!(total.output.minute, Some(0.0));
        assert_eq!(total.output.five_minutes, None, "not covered");
        assert_eq!(total.recent, Default::default());
    }
}
