//! Decides which failed requests are logged, so that an outage of an upstream causes a few log lines instead of one per
//! request.

use std::mem;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::sync::lock;

/// Minimum time between two warnings about one upstream. One line per minute shows that the outage continues.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The failed requests of one upstream.
#[derive(Debug, Default)]
pub struct OutageLog {
    /// Whether an outage was logged and no response has arrived since. Atomic, because every response reads this flag.
    is_failing: AtomicBool,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    last_warning: Option<MonotonicInstant>,
    since_last_warning: u64,
    /// Set from the first failure to the next response after a warning.
    outage: Option<Outage>,
}

/// The failed requests of an outage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outage {
    pub start: MonotonicInstant,
    pub failed: u64,
}

impl OutageLog {
    /// Records a request that got no response. If a warning is due, returns the number of such requests since the
    /// previous warning.
    pub fn record_failure(&self, at: MonotonicInstant) -> Option<u64> {
        let mut failures = lock(&self.failures);
        failures.since_last_warning += 1;
        failures.outage.get_or_insert(Outage { start: at, failed: 0 }).failed += 1;
        if failures.last_warning.is_some_and(|last| at - last < WARNING_INTERVAL) {
            return None;
        }
        failures.last_warning = Some(at);
        self.is_failing.store(true, Ordering::Relaxed);
        Some(mem::take(&mut failures.since_last_warning))
    }

    /// Records a response. If it is the first one after a warning, returns the outage that has ended.
    pub fn record_response(&self) -> Option<Outage> {
        let is_end = self.is_failing.load(Ordering::Relaxed)
            && self.is_failing.swap(false, Ordering::Relaxed);
        is_end.then(|| lock(&self.failures).outage.take()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_once_a_minute_with_the_number_of_failures() {
        let log = OutageLog::default();
        let failed = |second| log.record_failure(MonotonicInstant::from_secs(second));
        assert_eq!(log.record_response(), None, "no outage yet");
        let warnings: Vec<_> = (100..=280).filter_map(|at| Some((at, failed(at)?))).collect();
        assert_eq!(warnings, [(100, 1), (160, 60), (220, 60), (280, 60)]);
        let outage = |second, failed| Outage { start: MonotonicInstant::from_secs(second), failed };
        assert_eq!(log.record_response(), Some(outage(100, 181)));
        assert_eq!(log.record_response(), None, "recovers once");
        assert_eq!(
            failed(281),
            None,
            "an outage that alternates with responses is not logged more often"
        );
        assert_eq!(log.record_response(), None);
        assert_eq!(failed(340), Some(2));
        assert_eq!(log.record_response(), Some(outage(281, 2)));
    }
}
