//! When this process did not run: a blocked runtime, a stopped process, a starved machine.
//!
//! A beat that is due at fixed intervals and comes late says that nothing else ran in time either, so that what arrived
//! meanwhile was stamped late. A suspended machine needs no excuse: the monotonic clock stands still with it.

use std::collections::VecDeque;
use std::time::Duration;

use tokengauge_types::clock::MonotonicInstant;

/// Between two beats.
pub const BEAT_EVERY: Duration = Duration::from_millis(250);

/// A beat that is later than this tells of a pause. Below it is a busy machine's ordinary scheduling, which no stall
/// limit (250 ms at least) comes near to.
pub const LATE_FROM: Duration = Duration::from_millis(100);

/// PauseDetector that are remembered: the last ones, since stalls are judged as they happen.
const MOST_KEPT: usize = 64;

/// The pauses of late.
#[derive(Clone, Debug, Default)]
pub struct PauseDetector {
    /// From when a beat was due until it came, oldest first.
    known: VecDeque<(MonotonicInstant, MonotonicInstant)>,
    last_beat: Option<MonotonicInstant>,
}

impl PauseDetector {
    /// The beat of `at` came; how late it was.
    pub fn beat(&mut self, at: MonotonicInstant) -> Duration {
        let Some(last) = self.last_beat.replace(at) else {
            return Duration::ZERO;
        };
        let due = last + BEAT_EVERY;
        let late = at.since(due);
        if late >= LATE_FROM {
            if self.known.len() == MOST_KEPT {
                self.known.pop_front();
            }
            self.known.push_back((due, at));
        }
        late
    }

    /// How long between `from` and `to` this process did not run. A beat that is missing at `to` counts as a pause up to
    /// there: what was held up may be looked at before the beat is.
    pub fn within(&self, from: MonotonicInstant, to: MonotonicInstant) -> Duration {
        let overlap =
            |begun: MonotonicInstant, ended: MonotonicInstant| ended.min(to).since(begun.max(from));
        // Asked at every chunk, mostly about the last few milliseconds.
        let since = |(_, ended): &&(MonotonicInstant, MonotonicInstant)| *ended > from;
        let known: Duration = self
            .known
            .iter()
            .rev()
            .take_while(since)
            .map(|(begun, ended)| overlap(*begun, *ended))
            .sum();
        let missing = self.last_beat.map_or(Duration::ZERO, |last| {
            let due = last + BEAT_EVERY;
            if to.since(due) >= LATE_FROM { overlap(due, to) } else { Duration::ZERO }
        });
        known + missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> MonotonicInstant {
        MonotonicInstant::from_millis(millis)
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn beats_in_time_are_no_pause() {
        let mut pauses = PauseDetector::default();
        for beat in 0..100 {
            assert!(pauses.beat(at(beat * 251)) <= millis(1));
        }
        assert_eq!(pauses.within(at(0), at(25_000)), Duration::ZERO);
    }

    #[test]
    fn a_late_beat_excuses_what_lies_behind_its_due_time() {
        let mut pauses = PauseDetector::default();
        pauses.beat(at(1_000));
        assert_eq!(pauses.beat(at(4_250)), millis(3_000));
        assert_eq!(pauses.within(at(0), at(10)), Duration::ZERO);
        assert_eq!(pauses.within(at(0), at(4_300)), millis(3_000), "due at 1,250");
        assert_eq!(pauses.within(at(2_000), at(3_000)), millis(1_000));
    }

    #[test]
    fn a_beat_that_is_missing_excuses_what_is_looked_at_before_it() {
        let mut pauses = PauseDetector::default();
        assert_eq!(pauses.within(at(0), at(9_000)), Duration::ZERO, "no beat ever: not known");
        pauses.beat(at(1_000));
        assert_eq!(pauses.within(at(1_000), at(1_349)), Duration::ZERO);
        assert_eq!(pauses.within(at(1_000), at(6_250)), millis(5_000));
    }

    #[test]
    fn only_the_last_pauses_are_remembered() {
        let mut pauses = PauseDetector::default();
        for beat in 0..1_000 {
            pauses.beat(at(beat * 1_000));
        }
        assert_eq!(pauses.known.len(), MOST_KEPT);
        assert_eq!(pauses.within(at(998_000), at(999_000)), millis(750));
    }
}
