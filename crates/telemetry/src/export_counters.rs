//! Counters of what was exported and what was dropped, by signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::catalog::attributes as key;
use crate::catalog::health;

/// What is exported, for counting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    Metrics,
    Traces,
}

/// Why something was never delivered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DropReason {
    QueueFull,
    Failed,
    Shutdown,
}

/// What became of exports, by signal.
#[derive(Debug, Default)]
pub struct ExportCounters {
    metrics: Outcomes,
    traces: Outcomes,
}

#[derive(Debug, Default)]
struct Outcomes {
    ok: AtomicU64,
    failed: AtomicU64,
    lost: [AtomicU64; DropReason::ALL.len()],
}

impl ExportCounters {
    /// One export request came to its end.
    pub fn ended(&self, signal: Signal, delivered: bool) {
        let outcomes = self.of(signal);
        let counter = if delivered { &outcomes.ok } else { &outcomes.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// So many spans, or collections of metrics, will never be delivered.
    pub fn lost(&self, signal: Signal, reason: DropReason, items: usize) {
        self.of(signal).lost(reason).fetch_add(items as u64, Ordering::Relaxed);
    }

    pub fn dropped(&self, signal: Signal, reason: DropReason) -> u64 {
        self.of(signal).lost(reason).load(Ordering::Relaxed)
    }

    /// Shows the counts among the metrics.
    pub fn register(self: &Arc<Self>, meter: &Meter) {
        let counters = Arc::clone(self);
        health::SELF_EXPORTS.observe_counter(meter, move |counter| {
            for signal in Signal::ALL {
                let outcomes = counters.of(signal);
                for (result, count) in [("failed", &outcomes.failed), ("ok", &outcomes.ok)] {
                    let attributes = [
                        KeyValue::new(key::RESULT.key, result),
                        KeyValue::new(key::SIGNAL.key, signal.as_str()),
                    ];
                    counter.observe(count.load(Ordering::Relaxed), &attributes);
                }
            }
        });
        let counters = Arc::clone(self);
        health::SELF_DROPPED.observe_counter(meter, move |counter| {
            for signal in Signal::ALL {
                for reason in DropReason::ALL {
                    let attributes = [
                        KeyValue::new(key::DROP_REASON.key, reason.as_str()),
                        KeyValue::new(key::SIGNAL.key, signal.as_str()),
                    ];
                    counter.observe(counters.dropped(signal, reason), &attributes);
                }
            }
        });
    }

    const fn of(&self, signal: Signal) -> &Outcomes {
        match signal {
            Signal::Metrics => &self.metrics,
            Signal::Traces => &self.traces,
        }
    }
}

impl Outcomes {
    const fn lost(&self, reason: DropReason) -> &AtomicU64 {
        let [queue_full, failed, shutdown] = &self.lost;
        match reason {
            DropReason::QueueFull => queue_full,
            DropReason::Failed => failed,
            DropReason::Shutdown => shutdown,
        }
    }
}

impl Signal {
    pub const ALL: [Self; 2] = [Self::Metrics, Self::Traces];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Traces => "traces",
        }
    }
}

impl DropReason {
    pub const ALL: [Self; 3] = [Self::QueueFull, Self::Failed, Self::Shutdown];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Failed => "failed",
            Self::Shutdown => "shutdown",
        }
    }
}
