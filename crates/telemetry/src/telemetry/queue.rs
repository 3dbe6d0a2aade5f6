//! Where spans wait to be sent.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::config::BatchConfig;
use crate::export_counters::{DropReason, ExportCounters, Signal};
use crate::span::encoder::EncodedSpan;

/// Bytes of spans that wait at most, whatever their number: with captured content a span has hundreds of kilobytes.
const MOST_WAITING: usize = 64 << 20;

/// Bytes from which on a batch is full: collectors take 4 MiB at a time as they are set up by default.
const FULL_BATCH: usize = 2 << 20;

/// A span waits here until the thread takes it. Guarded by a mutex that is only ever held to move a span, or to take a
/// batch: a channel would wake the thread for every span, which costs more than making it.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) batch: BatchConfig,
    counters: Arc<ExportCounters>,
    waiting: Mutex<Waiting>,
    /// Notified when a batch is full.
    pub(super) full: Notify,
    /// Spans of the export that is going on.
    pub(super) in_flight: AtomicUsize,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    spans: VecDeque<EncodedSpan>,
    bytes: usize,
}

impl Queue {
    pub(super) fn new(batch: BatchConfig, counters: Arc<ExportCounters>) -> Self {
        Self {
            batch,
            counters,
            waiting: Mutex::default(),
            full: Notify::new(),
            in_flight: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Drops and counts the span where the queue is full or closed.
    pub(super) fn offer(&self, span: EncodedSpan) {
        let mut waiting = self.waiting();
        if let Some(refused) = self.refused(&waiting) {
            return self.lost(refused, 1);
        }
        let before = waiting.bytes;
        waiting.bytes += span.len();
        waiting.spans.push_back(span);
        let full = waiting.spans.len() == self.batch.size
            || (before < FULL_BATCH && waiting.bytes >= FULL_BATCH);
        drop(waiting);
        if full {
            self.full.notify_one();
        }
    }

    /// Why a span would not be taken now.
    pub(super) fn refuses(&self) -> Option<DropReason> {
        self.refused(&self.waiting())
    }

    fn refused(&self, waiting: &Waiting) -> Option<DropReason> {
        if self.closed.load(Ordering::Relaxed) {
            return Some(DropReason::Shutdown);
        }
        let full = waiting.spans.len() >= self.batch.queue || waiting.bytes >= MOST_WAITING;
        full.then_some(DropReason::QueueFull)
    }

    pub(super) fn lost(&self, reason: DropReason, spans: usize) {
        self.counters.lost(Signal::Traces, reason, spans);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch; empty where nothing waits.
    pub(super) fn take(&self) -> Vec<EncodedSpan> {
        let mut waiting = self.waiting();
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < self.batch.size && bytes < FULL_BATCH {
            let Some(span) = waiting.spans.pop_front() else {
                break;
            };
            bytes += span.len();
            batch.push(span);
        }
        waiting.bytes -= bytes;
        batch
    }

    /// Refuses further spans and counts those that were not delivered.
    pub(super) fn close(&self) -> usize {
        let mut waiting = self.waiting();
        self.closed.store(true, Ordering::Relaxed);
        let left = waiting.spans.len() + self.in_flight.load(Ordering::Relaxed);
        *waiting = Waiting::default();
        self.lost(DropReason::Shutdown, left);
        left
    }
}
