//! One buffer of the observation channel. It holds events and body bytes in order, within a memory budget.

use super::Batch;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    BackpressureTime, Direction, ExchangeId, ObserverEvent, TimestampedEvent,
};

/// Estimated size in bytes of the headers in a request or response event, with a dozen short headers. Long headers
/// reach 4 KiB.
const HEAD_WEIGHT: usize = 1024;
const ENTRY_WEIGHT: usize = size_of::<TimestampedEvent>();

/// Number of bytes of data at which a buffer wakes the observer. It holds about 1,500 chunks of a stream, and fits into
/// the second-level cache of common processors.
const WAKE_BYTES: usize = 512 * 1024;

/// Capacity in bytes that an emptied vector keeps.
const KEPT_CAPACITY: usize = WAKE_BYTES;

#[derive(Debug)]
pub(super) struct Shard {
    entries: Vec<TimestampedEvent>,
    bytes: Vec<u8>,
    /// Estimated bytes of the boxed headers.
    heads: usize,
    budget: usize,
    /// Whether this buffer has already woken the observer. Reset when the observer reads the buffer.
    has_woken: bool,
}

impl Shard {
    pub(super) fn new(budget: usize) -> Self {
        Self { entries: Vec::new(), bytes: Vec::new(), heads: 0, budget, has_woken: false }
    }

    /// Returns whether the buffer has room for another request. New requests are refused at ¾ of the budget, so that
    /// body bytes of requests already observed still fit.
    pub(super) fn admits_exchange(&self) -> bool {
        self.weight() < self.budget / 4 * 3
    }

    /// Adds an event without checking the budget, because events must not be lost. A request has fewer than a dozen
    /// such events.
    pub(super) fn push(
        &mut self,
        exchange: ExchangeId,
        at: MonotonicInstant,
        event: ObserverEvent,
    ) {
        self.heads += head_weight(&event);
        self.entries.push(TimestampedEvent { exchange, at, event });
    }

    /// Copies body bytes into the buffer. Returns `false` if they do not fit.
    pub(super) fn copy(
        &mut self,
        (exchange, at): (ExchangeId, MonotonicInstant),
        direction: Direction,
        bytes: &[u8],
        blocked: BackpressureTime,
    ) -> bool {
        let Ok(len) = u32::try_from(bytes.len()) else {
            return false;
        };
        if self.weight() + ENTRY_WEIGHT + bytes.len() > self.budget {
            return false;
        }
        let event = ObserverEvent::Body { direction, len, blocked };
        reserve(&mut self.entries, 1, self.budget / ENTRY_WEIGHT);
        self.entries.push(TimestampedEvent { exchange, at, event });
        reserve(&mut self.bytes, bytes.len(), self.budget);
        self.bytes.extend_from_slice(bytes);
        true
    }

    /// Returns whether the buffer has so much data that the observer must be woken. Returns `true` at most once between
    /// two reads.
    pub(super) fn must_wake(&mut self) -> bool {
        !self.has_woken && self.weight() > WAKE_BYTES.min(self.budget / 2) && {
            self.has_woken = true;
            true
        }
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn swap(&mut self, batch: &mut Batch) {
        std::mem::swap(&mut self.entries, &mut batch.entries);
        std::mem::swap(&mut self.bytes, &mut batch.bytes);
        self.heads = 0;
        self.has_woken = false;
    }

    fn weight(&self) -> usize {
        self.bytes.len() + self.entries.len() * ENTRY_WEIGHT + self.heads
    }
}

fn head_weight(event: &ObserverEvent) -> usize {
    if let ObserverEvent::RequestHead(head) = event {
        HEAD_WEIGHT + head.whole_path.as_ref().map_or(0, |path| path.len())
    } else if matches!(event, ObserverEvent::ResponseHead(_)) {
        HEAD_WEIGHT
    } else {
        0
    }
}

/// Doubles the capacity of a vector, up to `most`. The vector's own growth could reach twice the budget.
fn reserve<T>(items: &mut Vec<T>, more: usize, most: usize) {
    let wanted = items.len() + more;
    if wanted > items.capacity() {
        let capacity = (2 * items.capacity()).min(most).max(wanted);
        items.reserve_exact(capacity - items.len());
    }
}

/// Empties `batch`, and frees capacity that only a burst needed. Runs on the observer thread without a lock.
pub(super) fn clear(batch: &mut Batch) {
    let Batch { entries, bytes } = batch;
    clear_and_shrink(entries, KEPT_CAPACITY / ENTRY_WEIGHT);
    clear_and_shrink(bytes, KEPT_CAPACITY);
}

fn clear_and_shrink<T>(items: &mut Vec<T>, kept: usize) {
    let is_oversized = items.capacity() > kept && items.len() < items.capacity() / 4;
    items.clear();
    if is_oversized {
        items.shrink_to(kept);
    }
}
