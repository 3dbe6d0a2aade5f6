//! Converts instants of the process to Unix time and to interval numbers.

use std::time::Duration;

use tokengauge_types::clock::{MonotonicInstant, WallTime};

/// Length of an interval.
pub const INTERVAL: Duration = Duration::from_secs(5);

/// Number of intervals in the window of 15 minutes.
pub const WINDOW_INTERVALS: u64 = 180;

/// [`INTERVAL`] in nanoseconds.
const INTERVAL_NANOS: u64 = 5_000_000_000;

/// Difference between the clocks from which on the timeline follows the wall clock. A smaller difference would only
/// move the bounds of intervals.
const MAX_DRIFT: Duration = Duration::from_secs(2);

/// Result of a comparison with the wall clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClockChange {
    None,
    /// The wall clock is ahead, for example after the machine was suspended. Intervals are skipped.
    Forward,
    /// The wall clock was set back. Intervals of the past lie in the future.
    Back,
}

/// Wall-clock time of the instants of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeline {
    /// Unix time of the monotonic instant 0, in nanoseconds.
    offset: u64,
    /// The first instant that the history covers.
    since: MonotonicInstant,
}

impl Timeline {
    /// Creates the timeline of a history that begins at `at`, when the wall clock shows `wall`.
    pub const fn new(at: MonotonicInstant, wall: WallTime) -> Self {
        Self { offset: wall.unix_nanos().saturating_sub(at.nanos()), since: at }
    }

    /// Returns the number of the interval that contains `at`.
    #[inline]
    pub const fn interval(&self, at: MonotonicInstant) -> u64 {
        (self.offset + at.nanos()) / INTERVAL_NANOS
    }

    pub const fn unix_ms(&self, at: MonotonicInstant) -> u64 {
        (self.offset + at.nanos()) / 1_000_000
    }

    /// Returns the seconds since the start of the interval that contains `at`, or since the start of the history.
    pub fn elapsed_in_interval(&self, at: MonotonicInstant) -> f64 {
        let in_interval = Duration::from_nanos((self.offset + at.nanos()) % INTERVAL_NANOS);
        in_interval.min(at.since(self.since)).as_secs_f64()
    }

    /// Returns the time since the start of the history.
    pub const fn covered(&self, at: MonotonicInstant) -> Duration {
        at.since(self.since)
    }

    /// Returns the start of the history in Unix milliseconds, unless the interval `first` is later.
    pub fn gap_before(&self, first: u64) -> Option<u64> {
        let since = self.unix_ms(self.since);
        (since > first * (INTERVAL_NANOS / 1_000_000)).then_some(since)
    }

    /// Compares with the wall clock, and follows it if the difference is large.
    pub fn follow(&mut self, at: MonotonicInstant, wall: WallTime) -> ClockChange {
        let now = self.offset + at.nanos();
        let (ahead, behind) =
            (wall.unix_nanos().saturating_sub(now), now.saturating_sub(wall.unix_nanos()));
        if Duration::from_nanos(ahead.max(behind)) <= MAX_DRIFT {
            return ClockChange::None;
        }
        self.offset = wall.unix_nanos().saturating_sub(at.nanos());
        if behind > 0 {
            self.since = at;
            return ClockChange::Back;
        }
        ClockChange::Forward
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall(secs: u64) -> WallTime {
        WallTime::from_unix_nanos(secs * 1_000_000_000)
    }

    fn at(secs: u64) -> MonotonicInstant {
        MonotonicInstant::from_secs(secs)
    }

    #[test]
    fn an_interval_is_a_number_of_unix_time() {
        let timeline = Timeline::new(at(100), wall(1_764_421_203));
        assert_eq!(timeline.interval(at(100)), 352_884_240);
        assert_eq!(timeline.interval(at(102)), 352_884_241);
        assert_eq!(timeline.unix_ms(at(101)), 1_764_421_204_000);
        assert!((timeline.elapsed_in_interval(at(101)) - 1.0).abs() < 1e-9, "since the start");
        assert!((timeline.elapsed_in_interval(at(103)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_gap_ends_where_the_history_begins() {
        let timeline = Timeline::new(at(0), wall(1_000));
        assert_eq!(timeline.gap_before(199), Some(1_000_000));
        assert_eq!(timeline.gap_before(200), None);
    }

    #[test]
    fn follows_a_clock_that_is_set() {
        let mut timeline = Timeline::new(at(0), wall(1_000));
        assert_eq!(timeline.follow(at(10), wall(1_011)), ClockChange::None);
        assert_eq!(timeline.follow(at(10), wall(5_000)), ClockChange::Forward);
        assert_eq!(timeline.interval(at(10)), 1_000);
        assert_eq!(timeline.follow(at(20), wall(100)), ClockChange::Back);
        assert_eq!((timeline.interval(at(20)), timeline.gap_before(0)), (20, Some(100_000)));
    }
}
