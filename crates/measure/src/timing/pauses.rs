//! Detects pauses of this process: a blocked runtime, a stopped process, or a starved machine.
//!
//! A heartbeat is due at fixed intervals. If a heartbeat is late, nothing else ran in time either, so data received
//! in this time has late timestamps. A suspended machine needs no correction, because the monotonic clock stops too.

use std::collections::VecDeque;
use std::time::Duration;

use tokengauge_types::clock::MonotonicInstant;

/// Heartbeat interval.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);

/// Minimum delay of a heartbeat that counts as a pause. Shorter delays are ordinary scheduling on a busy machine. They
/// are well below every stall threshold, which is at least 250 ms.
pub const MIN_PAUSE: Duration = Duration::from_millis(100);

/// Number of pauses that are kept. The latest pauses are enough, because stalls are judged as they happen.
const MAX_PAUSES: usize = 64;

/// Recent pauses of this process.
#[derive(Clone, Debug, Default)]
pub struct PauseDetector {
    /// When each late heartbeat was due and when it came, oldest first.
    known: VecDeque<(MonotonicInstant, MonotonicInstant)>,
    last_beat: Option<MonotonicInstant>,
}

impl PauseDetector {
    /// Records the heartbeat of `at` and returns its delay.
    pub fn record_heartbeat(&mut self, at: MonotonicInstant) -> Duration {
        let Some(last) = self.last_beat.replace(at) else {
            return Duration::ZERO;
        };
        let due = last + HEARTBEAT_INTERVAL;
        let late = at.since(due);
        if late >= MIN_PAUSE {
            if self.known.len() == MAX_PAUSES {
                self.known.pop_front();
            }
            self.known.push_back((due, at));
        }
        late
    }

    /// Returns how long this process was paused between `from` and `to`. If a heartbeat is still missing at `to`, the
    /// time since it was due counts, because delayed data may be processed before the heartbeat.
    pub fn within(&self, from: MonotonicInstant, to: MonotonicInstant) -> Duration {
        let overlap =
            |begun: MonotonicInstant, ended: MonotonicInstant| ended.min(to).since(begun.max(from));
        // Runs for every chunk, mostly for the last few milliseconds.
        let since = |(_, ended): &&(MonotonicInstant, MonotonicInstant)| *ended > from;
        let known: Duration = self
            .known
            .iter()
            .rev()
            .take_while(since)
            .map(|(begun, ended)| overlap(*begun, *ended))
            .sum();
        let missing = self.last_beat.map_or(Duration::ZERO, |last| {
            let due = last + HEARTBEAT_INTERVAL;
            if to.since(due) >= MIN_PAUSE { overlap(due, to) } else { Duration::ZERO }
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
    fn heartbeats_in_time_are_no_pause() {
        let mut pauses = PauseDetector::default();
        for beat in 0..100 {
            assert!(pauses.record_heartbeat(at(beat * 251)) <= millis(1));
        }
        assert_eq!(pauses.within(at(0), at(25_000)), Duration::ZERO);
    }

    #[test]
    fn a_late_heartbeat_excludes_the_time_after_it_was_due() {
        let mut pauses = PauseDetector::default();
        pauses.record_heartbeat(at(1_000));
        assert_eq!(pauses.record_heartbeat(at(4_250)), millis(3_000));
        assert_eq!(pauses.within(at(0), at(10)), Duration::ZERO);
        assert_eq!(pauses.within(at(0), at(4_300)), millis(3_000), "due at 1,250");
        assert_eq!(pauses.within(at(2_000), at(3_000)), millis(1_000));
    }

    #[test]
    fn a_missing_heartbeat_excludes_the_time_before_it_arrives() {
        let mut pauses = PauseDetector::default();
        assert_eq!(pauses.within(at(0), at(9_000)), Duration::ZERO, "no beat ever: not known");
        pauses.record_heartbeat(at(1_000));
        assert_eq!(pauses.within(at(1_000), at(1_349)), Duration::ZERO);
        assert_eq!(pauses.within(at(1_000), at(6_250)), millis(5_000));
    }

    #[test]
    fn only_the_latest_pauses_are_kept() {
        let mut pauses = PauseDetector::default();
        for beat in 0..1_000 {
            pauses.record_heartbeat(at(beat * 1_000));
        }
        assert_eq!(pauses.known.len(), MAX_PAUSES);
        assert_eq!(pauses.within(at(998_000), at(999_000)), millis(750));
    }
}
