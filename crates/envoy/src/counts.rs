//! What the service counts about its own work, and the warnings that it logs once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokengauge_telemetry::EnvoyCounts;
use tokengauge_telemetry::self_telemetry;

/// Counters of all calls of Envoy.
#[derive(Debug, Default)]
pub struct Counts {
    pub(crate) streams: AtomicU64,
    pub(crate) answered_messages: AtomicU64,
    pub(crate) refused_streams: AtomicU64,
    pub(crate) unknown_ends: AtomicU64,
    pub(crate) unobserved_requests: AtomicU64,
    has_warned_of_answers: AtomicBool,
    has_warned_of_refusals: AtomicBool,
}

impl Counts {
    pub fn read(&self) -> EnvoyCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        EnvoyCounts {
            streams: read(&self.streams),
            answered_messages: read(&self.answered_messages),
            refused_streams: read(&self.refused_streams),
            unknown_ends: read(&self.unknown_ends),
            unobserved_requests: read(&self.unobserved_requests),
        }
    }

    /// Counts a message that Envoy waits to be answered.
    pub(crate) fn count_answer(&self) {
        self.answered_messages.fetch_add(1, Ordering::Relaxed);
        if !self.has_warned_of_answers.swap(true, Ordering::Relaxed) {
            self_telemetry::envoy_waits();
        }
    }

    /// Counts a stream that cannot be observed.
    pub(crate) fn count_refusal(&self, reason: &'static str) {
        self.refused_streams.fetch_add(1, Ordering::Relaxed);
        if !self.has_warned_of_refusals.swap(true, Ordering::Relaxed) {
            self_telemetry::envoy_stream_refused(reason);
        }
    }

    pub(crate) fn count(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}
