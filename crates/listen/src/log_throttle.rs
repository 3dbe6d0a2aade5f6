//! Limits how often a repeated problem is logged.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use tokengauge_types::sync::lock;

/// Minimum time between two log lines about the same problem. A busy listener can have thousands of problems per second.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The time of the last log line about one problem.
#[derive(Debug, Default)]
pub(super) struct LogThrottle(Mutex<Option<Instant>>);

impl LogThrottle {
    /// Returns whether the problem must be logged now: for the first time, or a minute after the last time.
    pub(super) fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut last = lock(&self.0);
        let is_due = last.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}
