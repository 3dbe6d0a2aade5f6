//! The clock that all processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// Returns the nanoseconds of the monotonic clock. Other than `Instant`, the value has a meaning in another process.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
}
