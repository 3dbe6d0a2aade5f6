//! Counters and outages of one upstream. A reload of the configuration does not reset them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error_responses::ErrorResponses;
use super::outage::OutageLog;
use tokengauge_telemetry::UpstreamCounts;
use tokengauge_types::label::Label;

#[derive(Debug)]
pub struct UpstreamHealth {
    name: Label,
    stale: AtomicU64,
    retries: AtomicU64,
    pub(super) outages: OutageLog,
    pub(super) error_responses: ErrorResponses,
}

impl UpstreamHealth {
    pub(super) fn new(name: Label) -> Arc<Self> {
        Arc::new(Self {
            name,
            stale: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            outages: OutageLog::default(),
            error_responses: ErrorResponses::default(),
        })
    }

    pub(super) fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Counts pooled connections that the upstream closed before the proxy could reuse them.
    pub(super) fn count_stale(&self, connections: u64) {
        self.stale.fetch_add(connections, Ordering::Relaxed);
    }

    pub(super) fn count_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> UpstreamCounts {
        UpstreamCounts {
            upstream: self.name.clone(),
            stale: self.stale.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
        }
    }
}
