//! The only module of this workspace that reads the clock.
//!
//! Other functions take the time as an argument, so that tests can use literal timestamps and do not sleep. The data
//! path, which forwards the traffic, calls [`now`] and passes the result on with each observed event.

use std::ops::{Add, Sub};
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A time on the monotonic clock, in nanoseconds since the process first read the clock. The range is 584 years.
///
/// The type wraps a `u64` and not an [`Instant`], because a `u64` takes 8 bytes in every observed event, fits into an
/// atomic, and can be written as a literal in tests.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MonotonicInstant(u64);

impl MonotonicInstant {
    pub const ZERO: Self = Self(0);

    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`. Returns zero instead of a negative time.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub const fn saturating_sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos_of(by)))
    }
}

impl Add<Duration> for MonotonicInstant {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos_of(by)))
    }
}

/// The difference of two instants is the elapsed time, never negative.
impl Sub for MonotonicInstant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

/// A wall-clock time in nanoseconds since 1970 (UTC). Only used in exported data such as spans and logs, because the
/// wall clock can jump.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct WallTime(u64);

impl WallTime {
    pub const fn from_unix_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn unix_nanos(self) -> u64 {
        self.0
    }

    pub fn system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.0)
    }
}

impl Add<Duration> for WallTime {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos_of(by)))
    }
}

/// Returns the current monotonic time. A call takes about 25 ns.
#[expect(clippy::disallowed_methods, reason = "only this module reads the monotonic clock")]
pub fn now() -> MonotonicInstant {
    MonotonicInstant(nanos_of(Instant::now().saturating_duration_since(*EPOCH)))
}

/// Returns the current wall-clock time. The data path calls this function once per request. Later timestamps of the
/// request are this time plus monotonic durations, so that a clock change cannot make a span end before it starts.
#[expect(clippy::disallowed_methods, reason = "only this module reads the wall clock")]
pub fn wall_now() -> WallTime {
    WallTime(nanos_of(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
}

#[expect(clippy::disallowed_methods, reason = "only this module reads the monotonic clock")]
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

#[expect(clippy::cast_possible_truncation, reason = "2^64 ns are 584 years")]
const fn nanos_of(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_saturate_instead_of_wrapping() {
        assert_eq!(
            MonotonicInstant::from_secs(1).since(MonotonicInstant::from_secs(3)),
            Duration::ZERO
        );
        assert_eq!(
            MonotonicInstant::from_millis(5) - MonotonicInstant::from_millis(2),
            Duration::from_millis(3)
        );
        assert_eq!(
            MonotonicInstant::ZERO.saturating_sub(Duration::from_secs(1)),
            MonotonicInstant::ZERO
        );
    }

    #[test]
    fn now_never_decreases() {
        let first = now();
        assert!(now() >= first);
    }
}
