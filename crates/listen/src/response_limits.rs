//! The deadline of a response, and the timeout that has ended it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::TimeoutKind;

/// Time from the deadline of a response to its end, if the client does not read. A client that reads slowly receives at
/// least a part of the data that had arrived in time.
const DELIVERY_GRACE: Duration = Duration::from_secs(1);

/// Limits of the responses of an HTTP/1 connection, which carries one at a time, or of one HTTP/2 stream. The task that
/// waits for the client applies them.
#[derive(Debug, Default)]
pub(super) struct ResponseLimits {
    /// When the response must end, in nanoseconds of the monotonic clock. 0 without such a time.
    deadline: AtomicU64,
    /// The timeout that has ended the delivery: its position in [`TimeoutKind::ALL`], counted from 1. 0 without one.
    timeout: AtomicU8,
}

impl ResponseLimits {
    /// Sets when the response must end even if its client does not read.
    pub(super) fn set_deadline(&self, deadline: Option<MonotonicInstant>) {
        let nanos = deadline.map_or(0, |deadline| (deadline + DELIVERY_GRACE).nanos());
        self.deadline.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let nanos = self.deadline.load(Ordering::Relaxed);
        let left = || MonotonicInstant::from_nanos(nanos).since(clock::now());
        (nanos > 0).then(|| Instant::now() + left())
    }

    /// Records that the delivery ends, because the client has not read until `timeout` expired.
    pub(super) fn time_out(&self, timeout: TimeoutKind) {
        let position = TimeoutKind::ALL.iter().position(|kind| *kind == timeout);
        let number = position.and_then(|position| u8::try_from(position + 1).ok());
        self.timeout.store(number.unwrap_or_default(), Ordering::Release);
    }

    pub(super) fn timeout(&self) -> Option<TimeoutKind> {
        let number = usize::from(self.timeout.load(Ordering::Acquire));
        TimeoutKind::ALL.get(number.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_timeout_and_the_deadline_that_were_set() {
        let limits = ResponseLimits::default();
        assert_eq!((limits.timeout(), limits.deadline()), (None, None));
        for kind in TimeoutKind::ALL {
            limits.time_out(kind);
            assert_eq!(limits.timeout(), Some(kind));
        }
        let now = Instant::now();
        limits.set_deadline(Some(clock::now() + Duration::from_secs(60)));
        let left = limits.deadline().unwrap().duration_since(now);
        assert!(left >= Duration::from_secs(60) && left < Duration::from_secs(70), "{left:?}");
        limits.set_deadline(Some(MonotonicInstant::from_nanos(1)));
        let past = MonotonicInstant::from_nanos(1) + DELIVERY_GRACE;
        assert!(past > clock::now() || limits.deadline().unwrap() <= Instant::now());
    }
}
