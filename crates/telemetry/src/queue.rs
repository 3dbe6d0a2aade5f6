//! The bounded queue between the threads that record spans or log records and the telemetry thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::config::BatchConfig;
use crate::export_counters::{DropReason, ExportCounters, Signal};

/// Maximum queued bytes, regardless of the number of items. With captured content, one item has hundreds of kilobytes.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// Bytes at which a batch is full. Collectors accept requests of 4 MiB by default.
const FULL_BATCH_BYTES: usize = 2 << 20;

/// A queue of items of one signal. The mutex is held only to add an item or to take a batch. A channel would wake the
/// telemetry thread for each span, which costs more than encoding the span.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    pub batch: BatchConfig,
    /// Notified when a batch is full.
    pub batch_full: Notify,
    signal: Signal,
    counters: Arc<ExportCounters>,
    waiting: Mutex<Waiting<T>>,
    /// Number of items in the current export.
    in_flight: AtomicUsize,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Waiting<T> {
    /// Queued items, each with its size in bytes.
    items: VecDeque<(T, usize)>,
    bytes: usize,
}

impl<T> Queue<T> {
    pub fn new(signal: Signal, batch: BatchConfig, counters: Arc<ExportCounters>) -> Self {
        Self {
            batch,
            batch_full: Notify::new(),
            signal,
            counters,
            waiting: Mutex::new(Waiting { items: VecDeque::new(), bytes: 0 }),
            in_flight: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Queues an item of `bytes` bytes, or drops and counts it if the queue is full or closed. Never waits for an
    /// export.
    pub fn offer(&self, item: T, bytes: usize) {
        let mut waiting = self.waiting();
        if let Some(reason) = self.refusal_for(&waiting) {
            return self.count_dropped(reason, 1);
        }
        let before = waiting.bytes;
        waiting.bytes += bytes;
        waiting.items.push_back((item, bytes));
        let full = waiting.items.len() == self.batch.size
            || (before < FULL_BATCH_BYTES && waiting.bytes >= FULL_BATCH_BYTES);
        drop(waiting);
        if full {
            self.batch_full.notify_one();
        }
    }

    /// Returns the reason for which an item would be dropped now, or `None` if it would be queued.
    pub fn refusal(&self) -> Option<DropReason> {
        self.refusal_for(&self.waiting())
    }

    pub fn count_dropped(&self, reason: DropReason, items: usize) {
        self.counters.count_dropped(self.signal, reason, items);
    }

    /// Takes the next batch and counts it as in flight. The batch is empty if the queue is empty.
    pub fn take(&self) -> Vec<T> {
        let mut waiting = self.waiting();
        let mut batch = Vec::new();
        let mut taken = 0;
        while batch.len() < self.batch.size && taken < FULL_BATCH_BYTES {
            let Some((item, bytes)) = waiting.items.pop_front() else {
                break;
            };
            taken += bytes;
            batch.push(item);
        }
        waiting.bytes -= taken;
        self.in_flight.store(batch.len(), Ordering::Relaxed);
        batch
    }

    /// Marks the batch in flight as finished, delivered or counted as failed.
    pub fn finish_batch(&self) {
        self.in_flight.store(0, Ordering::Relaxed);
    }

    /// Rejects further items, and counts undelivered items as dropped. Returns the number of undelivered items.
    pub fn close(&self) -> usize {
        let mut waiting = self.waiting();
        self.closed.store(true, Ordering::Relaxed);
        let left = waiting.items.len() + self.in_flight.load(Ordering::Relaxed);
        waiting.items.clear();
        waiting.bytes = 0;
        self.count_dropped(DropReason::Shutdown, left);
        left
    }

    fn refusal_for(&self, waiting: &Waiting<T>) -> Option<DropReason> {
        if self.closed.load(Ordering::Relaxed) {
            return Some(DropReason::Shutdown);
        }
        let full = waiting.items.len() >= self.batch.queue || waiting.bytes >= MAX_WAITING_BYTES;
        full.then_some(DropReason::QueueFull)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
