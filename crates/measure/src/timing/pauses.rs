//! Detects pauses of this process: a blocked thread, a stopped process, or a starved machine.
//!
//! Each worker thread has a heartbeat, which is due at fixed intervals. If a heartbeat is late, nothing else ran in time
//! on its thread either, so data received in this time has late timestamps. The pause of one thread counts for all
//! requests. A suspended machine needs no correction, because the monotonic clock stops too.

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
    /// When late heartbeats were due and when they came, oldest first. Pauses do not overlap.
    known: VecDeque<(MonotonicInstant, MonotonicInstant)>,
    /// The last heartbeat of each worker.
    last_beats: Vec<(usize, MonotonicInstant)>,
    /// When the next heartbeat is due, of all workers.
    next_due: Option<MonotonicInstant>,
}

impl PauseDetector {
    /// Records a heartbeat of `worker` at `at`, and returns its delay.
    pub fn record_heartbeat(&mut self, worker: usize, at: MonotonicInstant) -> Duration {
        let late = match self.last_beats.iter_mut().find(|(beating, _)| *beating == worker) {
            Some((_, last)) => {
                let due = std::mem::replace(last, at) + HEARTBEAT_INTERVAL;
                self.record_pause(due, at);
                at.since(due)
            }
            None => {
                self.last_beats.push((worker, at));
                Duration::ZERO
            }
        };
        let oldest = self.last_beats.iter().map(|(_, last)| *last).min();
        self.next_due = oldest.map(|oldest| oldest + HEARTBEAT_INTERVAL);
        late
    }

    /// Records a pause if a heartbeat that was due at `due` came late, at `at`.
    fn record_pause(&mut self, mut due: MonotonicInstant, mut at: MonotonicInstant) {
        if at.since(due) < MIN_PAUSE {
            return;
        }
        // If the whole process pauses, the heartbeats of all workers are late.
        while let Some((begun, ended)) = self.known.back().copied()
            && ended > due
        {
            (due, at) = (due.min(begun), at.max(ended));
            self.known.pop_back();
        }
        if self.known.len() == MAX_PAUSES {
            self.known.pop_front();
        }
        self.known.push_back((due, at));
    }

    /// Returns how long this process was paused between `from` and `to`. If a heartbeat is still missing at `to`, the
    /// time since it was due counts, because delayed data may be processed before the heartbeat.
    pub fn within(&self, from: MonotonicInstant, to: MonotonicInstant) -> Duration {
        let missing_since = self.next_due.filter(|due| to.since(*due) >= MIN_PAUSE);
        let known_until = missing_since.unwrap_or(to);
        // Runs for every chunk, mostly for the last few milliseconds.
        let since = |(_, ended): &&(MonotonicInstant, MonotonicInstant)| *ended > from;
        let known: Duration = self
            .known
            .iter()
            .rev()
            .take_while(since)
            .map(|(begun, ended)| (*ended).min(known_until).since((*begun).max(from)))
            .sum();
        let missing = missing_since.map_or(Duration::ZERO, |due| to.since(due.max(from)));
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
            assert!(pauses.record_heartbeat(0, at(beat * 251)) <= millis(1));
        }
        assert_eq!(pauses.within(at(0), at(25_000)), Duration::ZERO);
    }

    #[test]
    fn a_late_heartbeat_excludes_the_time_after_it_was_due() {
        let mut pauses = PauseDetector::default();
        pauses.record_heartbeat(0, at(1_000));
        assert_eq!(pauses.record_heartbeat(0, at(4_250)), millis(3_000));
        assert_eq!(pauses.within(at(0), at(10)), Duration::ZERO);
        assert_eq!(pauses.within(at(0), at(4_300)), millis(3_000), "due at 1,250");
        assert_eq!(pauses.within(at(2_000), at(3_000)), millis(1_000));
    }

    #[test]
    fn a_missing_heartbeat_excludes_the_time_before_it_arrives() {
        let mut pauses = PauseDetector::default();
        assert_eq!(pauses.within(at(0), at(9_000)), Duration::ZERO, "no beat ever: not known");
        pauses.record_heartbeat(0, at(1_000));
        assert_eq!(pauses.within(at(1_000), at(1_349)), Duration::ZERO);
        assert_eq!(pauses.within(at(1_000), at(6_250)), millis(5_000));
    }

    #[test]
    fn a_pause_of_several_workers_counts_once() {
        let mut pauses = PauseDetector::default();
        pauses.record_heartbeat(0, at(1_000));
        pauses.record_heartbeat(1, at(1_100));
        // Due at 1,250 and 1,350.
        pauses.record_heartbeat(0, at(4_000));
        assert_eq!(
            pauses.within(at(0), at(4_000)),
            millis(2_750),
            "the other one is still missing"
        );
        pauses.record_heartbeat(1, at(4_010));
        assert_eq!(pauses.within(at(0), at(4_010)), millis(2_760));
    }

    #[test]
    fn one_worker_that_pauses_is_enough() {
        let mut pauses = PauseDetector::default();
        pauses.record_heartbeat(1, at(0));
        for beat in 0..20 {
            pauses.record_heartbeat(0, at(beat * 250));
        }
        assert_eq!(pauses.within(at(0), at(4_750)), millis(4_500));
        assert_eq!(pauses.record_heartbeat(1, at(4_800)), millis(4_550));
        assert_eq!(pauses.within(at(0), at(4_900)), millis(4_550));
    }

    #[test]
    fn only_the_latest_pauses_are_kept() {
        let mut pauses = PauseDetector::default();
        for beat in 0..1_000 {
            pauses.record_heartbeat(0, at(beat * 1_000));
        }
        assert_eq!(pauses.known.len(), MAX_PAUSES);
        assert_eq!(pauses.within(at(998_000), at(999_000)), millis(750));
    }
}
