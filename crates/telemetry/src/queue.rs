//! A bounded queue of spans or log records. Other threads add items, and the telemetry thread exports them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::config::BatchConfig;
use crate::export_counters::{DropReason, ExportCounters, Signal};
use tokengauge_types::sync::lock;

/// Maximum number of queued bytes, in addition to the limit on the number of items. With captured content, a single
/// item can have hundreds of kilobytes.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// Number of bytes at which a batch is full. By default, collectors accept requests of up to 4 MiB.
const FULL_BATCH_BYTES: usize = 2 << 20;

/// A queue of spans or log records. Its mutex is held only while an item is added or a batch is taken. A channel would
/// wake the telemetry thread for each span, which costs more than encoding the span.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    pub batch: BatchConfig,
    /// Notified when the queue has enough items for a full batch.
    pub batch_full: Notify,
    signal: Signal,
    counters: Arc<ExportCounters>,
    waiting: Mutex<Waiting<T>>,
    /// Number of items in the export that is in progress.
    in_flight: AtomicUsize,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Waiting<T> {
    /// The queued items, each with its size in bytes.
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

    /// Adds an item of `bytes` bytes to the queue. If the queue is full or closed, the item is dropped and counted.
    /// Never waits for an export.
    pub fn offer(&self, item: T, bytes: usize) {
        let mut waiting = lock(&self.waiting);
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

    /// Returns the reason why an item would be dropped now, or `None` if the queue would accept it.
    pub fn refusal(&self) -> Option<DropReason> {
        self.refusal_for(&lock(&self.waiting))
    }

    pub fn count_dropped(&self, reason: DropReason, items: usize) {
        self.counters.count_dropped(self.signal, reason, items);
    }

    /// Removes the next batch from the queue and counts it as in flight. Returns an empty batch if the queue is empty.
    pub fn take(&self) -> Vec<T> {
        let mut waiting = lock(&self.waiting);
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

    /// Records that the export of these items of the current batch has ended, successfully or not.
    pub fn finish(&self, items: usize) {
        self.in_flight.fetch_sub(items, Ordering::Relaxed);
    }

    /// Closes the queue, counts undelivered items as dropped, and returns their number.
    pub fn close(&self) -> usize {
        let mut waiting = lock(&self.waiting);
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
}
