//! Counts exports and dropped items by signal, and reports them as metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

use crate::builders::Observed;
use crate::catalog::attributes as key;
use crate::catalog::health;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    Logs,
    Metrics,
    Traces,
}

/// Reason why an item was never delivered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DropReason {
    QueueFull,
    Failed,
    Shutdown,
}

#[derive(Debug, Default)]
pub struct ExportCounters([SignalCounters; Signal::ALL.len()]);

#[derive(Debug, Default)]
struct SignalCounters {
    succeeded: AtomicU64,
    failed: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
}

impl ExportCounters {
    /// Counts one finished export request, regardless of its number of attempts.
    pub fn count_export(&self, signal: Signal, succeeded: bool) {
        let counters = self.of(signal);
        let counter = if succeeded { &counters.succeeded } else { &counters.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts spans, log records or collections of metrics that are never delivered.
    pub fn count_dropped(&self, signal: Signal, reason: DropReason, items: usize) {
        self.dropped_counter(signal, reason).fetch_add(items as u64, Ordering::Relaxed);
    }

    pub fn dropped(&self, signal: Signal, reason: DropReason) -> u64 {
        self.dropped_counter(signal, reason).load(Ordering::Relaxed)
    }

    /// Registers the counters as metrics.
    pub fn register(self: &Arc<Self>, meter: &Meter) {
        let counters = Arc::clone(self);
        u64::observe(&health::SELF_EXPORTS, meter, move |counter| {
            for signal in Signal::ALL {
                let of = counters.of(signal);
                for (result, count) in [("failed", &of.failed), ("ok", &of.succeeded)] {
                    let attributes = [
                        KeyValue::new(key::RESULT.key, result),
                        KeyValue::new(key::SIGNAL.key, signal.as_str()),
                    ];
                    counter.observe(count.load(Ordering::Relaxed), &attributes);
                }
            }
        });
        let counters = Arc::clone(self);
        u64::observe(&health::SELF_DROPPED, meter, move |counter| {
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

    const fn of(&self, signal: Signal) -> &SignalCounters {
        let [logs, metrics, traces] = &self.0;
        match signal {
            Signal::Logs => logs,
            Signal::Metrics => metrics,
            Signal::Traces => traces,
        }
    }

    const fn dropped_counter(&self, signal: Signal, reason: DropReason) -> &AtomicU64 {
        let [queue_full, failed, shutdown] = &self.of(signal).dropped;
        match reason {
            DropReason::QueueFull => queue_full,
            DropReason::Failed => failed,
            DropReason::Shutdown => shutdown,
        }
    }
}

impl Signal {
    pub const ALL: [Self; 3] = [Self::Logs, Self::Metrics, Self::Traces];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Logs => "logs",
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
