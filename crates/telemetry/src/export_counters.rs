//! Counts exports and dropped items for each signal.

use std::sync::atomic::{AtomicU64, Ordering};

pub use crate::config::Signal;
use tokengauge_types::label_enum;

label_enum! {
    /// Why an item was never delivered.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum DropReason {
        QueueFull = "queue_full",
        Failed = "failed",
        /// The collector accepted an export without these items.
        Rejected = "rejected",
        /// The item alone is larger than an export request may be.
        TooLarge = "too_large",
        Shutdown = "shutdown",
    }
}

#[derive(Debug, Default)]
pub struct ExportCounters([SignalCounters; Signal::ALL.len()]);

#[derive(Debug, Default)]
struct SignalCounters {
    succeeded: AtomicU64,
    failed: AtomicU64,
    retries: AtomicU64,
    dropped: DropCounters,
}

/// The counts of one signal since the start of the process.
#[derive(Clone, Copy, Debug)]
pub struct SignalCounts {
    pub signal: Signal,
    pub succeeded: u64,
    pub failed: u64,
    pub retries: u64,
    pub dropped: [(DropReason, u64); DropReason::ALL.len()],
}

impl ExportCounters {
    /// Counts one finished export request, even if several attempts were needed.
    pub fn count_export(&self, signal: Signal, succeeded: bool) {
        let counters = self.counters(signal);
        let counter = if succeeded { &counters.succeeded } else { &counters.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an attempt that repeats an export request.
    pub fn count_retry(&self, signal: Signal) {
        self.counters(signal).retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts spans, log records, metric collections or rejected data points that will never be delivered.
    pub fn count_dropped(&self, signal: Signal, reason: DropReason, items: usize) {
        self.counters(signal).dropped.add(reason, items);
    }

    pub fn retries(&self, signal: Signal) -> u64 {
        self.counters(signal).retries.load(Ordering::Relaxed)
    }

    pub fn dropped(&self, signal: Signal, reason: DropReason) -> u64 {
        self.counters(signal).dropped.get(reason)
    }

    /// Copies the counts of all signals.
    pub fn counts(&self) -> Vec<SignalCounts> {
        let counts = |signal| {
            let counters = self.counters(signal);
            SignalCounts {
                signal,
                succeeded: counters.succeeded.load(Ordering::Relaxed),
                failed: counters.failed.load(Ordering::Relaxed),
                retries: counters.retries.load(Ordering::Relaxed),
                dropped: DropReason::ALL.map(|reason| (reason, counters.dropped.get(reason))),
            }
        };
        Signal::ALL.map(counts).to_vec()
    }

    fn counters(&self, signal: Signal) -> &SignalCounters {
        let [logs, metrics, traces] = &self.0;
        match signal {
            Signal::Logs => logs,
            Signal::Metrics => metrics,
            Signal::Traces => traces,
        }
    }
}

/// Number of dropped items by reason.
#[derive(Debug, Default)]
pub struct DropCounters([AtomicU64; DropReason::ALL.len()]);

impl DropCounters {
    pub fn add(&self, reason: DropReason, items: usize) {
        self.counter(reason).fetch_add(items as u64, Ordering::Relaxed);
    }

    pub fn get(&self, reason: DropReason) -> u64 {
        self.counter(reason).load(Ordering::Relaxed)
    }

    const fn counter(&self, reason: DropReason) -> &AtomicU64 {
        let [queue_full, failed, rejected, too_large, shutdown] = &self.0;
        match reason {
            DropReason::QueueFull => queue_full,
            DropReason::Failed => failed,
            DropReason::Rejected => rejected,
            DropReason::TooLarge => too_large,
            DropReason::Shutdown => shutdown,
        }
    }
}
