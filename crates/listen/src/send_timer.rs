//! Ends the wait for a client that does not read.
//!
//! hyper polls neither the response body nor its timers while it waits for the client. The wait therefore needs a timer
//! of its own, outside of hyper.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use tokengauge_types::event::TimeoutKind;

/// Number of checks within the send timeout, so a wait ends after 1 to 1.25 times the timeout. Between two checks,
/// progress costs one addition and no clock reading.
const CHECKS: u32 = 4;

/// Measures for how long a client has read nothing.
#[derive(Debug)]
pub(super) struct SendTimer {
    timeout: Duration,
    quiet: QuietChecks,
    /// The next check. Created at the first wait, because most clients read in time. It keeps running during progress,
    /// because an unneeded wake-up costs less than a new timer per wait.
    check: Option<Pin<Box<Sleep>>>,
}

/// Counts checks in a row without progress.
#[derive(Debug, Default)]
struct QuietChecks {
    /// Value of the progress counter at the last check.
    seen: Option<u32>,
    count: u32,
}

impl SendTimer {
    pub(super) const fn new(timeout: Duration) -> Self {
        Self { timeout, quiet: QuietChecks { seen: None, count: 0 }, check: None }
    }

    /// `progress` is a counter that changes whenever the client reads, or `None` if no data waits for the client.
    /// `deadline` is the time at which the response ends in any case. Returns the timeout that has expired.
    pub(super) fn poll(
        &mut self,
        progress: Option<u32>,
        deadline: Option<Instant>,
        cx: &mut Context<'_>,
    ) -> Poll<TimeoutKind> {
        let interval = self.timeout / CHECKS;
        loop {
            let check = self.check.get_or_insert_with(|| Box::pin(sleep(interval)));
            if let Some(deadline) = deadline.filter(|deadline| *deadline < check.deadline()) {
                check.as_mut().reset(deadline);
            }
            ready!(check.as_mut().poll(cx));
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(TimeoutKind::TotalUnread);
            }
            if self.quiet.check(progress) {
                return Poll::Ready(TimeoutKind::Send);
            }
            check.as_mut().reset(now + interval);
        }
    }
}

impl QuietChecks {
    /// Returns whether the send timeout has passed without progress.
    fn check(&mut self, progress: Option<u32>) -> bool {
        let is_quiet =
            std::mem::replace(&mut self.seen, progress) == progress && progress.is_some();
        self.count = if is_quiet { self.count + 1 } else { 0 };
        self.count >= CHECKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_checks_in_a_row_without_progress_end_the_wait() {
        let mut quiet = QuietChecks::default();
        let mut ends = |progress: &[u32]| -> Vec<bool> {
            progress.iter().map(|progress| quiet.check(Some(*progress))).collect()
        };
        assert_eq!(ends(&[0, 0, 0, 0, 1]), [false; 5], "progress at the last moment");
        assert_eq!(ends(&[1, 1, 1, 2, 3]), [false; 5]);
        assert_eq!(ends(&[3, 3, 3, 3]), [false, false, false, true]);
        assert_eq!(ends(&[u32::MAX, 0]), [false, false], "the counter wraps around");
        let waits = (0..10).any(|_| quiet.check(None));
        assert!(!waits, "no data waits for the client");
    }
}
