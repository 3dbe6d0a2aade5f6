//! One buffer of the channel: words and the bytes of their arrivals, in order, within a budget.

use super::Batch;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    BackpressureTime, Direction, ExchangeId, ObserverEvent, TimestampedEvent,
};

/// What a boxed head is taken to weigh: the two structs with a dozen short headers. Long ones reach 4 KiB.
const HEAD_WEIGHT: usize = 1024;
const ENTRY_WEIGHT: usize = size_of::<TimestampedEvent>();

/// Capacity that an emptied vector may keep, in bytes: what 50 ms of a busy shard take.
const KEPT_CAPACITY: usize = 512 * 1024;

#[derive(Debug)]
pub(super) struct Shard {
    entries: Vec<TimestampedEvent>,
    bytes: Vec<u8>,
    heads: usize,
    budget: usize,
    /// Whether the observer was told that half the budget is gone.
    told: bool,
}

impl Shard {
    pub(super) fn new(budget: usize) -> Self {
        Self { entries: Vec::new(), bytes: Vec::new(), heads: 0, budget, told: false }
    }

    /// Whether a whole new exchange is still welcome. Turns false before arrivals are refused, so that the exchanges
    /// that are being observed stay whole.
    pub(super) fn admits_exchange(&self) -> bool {
        self.weight() < self.budget / 4 * 3
    }

    /// Adds a word that must not be lost; an exchange has fewer than a dozen of them.
    pub(super) fn say(&mut self, exchange: ExchangeId, at: MonotonicInstant, word: ObserverEvent) {
        if matches!(word, ObserverEvent::RequestHead(_) | ObserverEvent::ResponseHead(_)) {
            self.heads += 1;
        }
        self.entries.push(TimestampedEvent { exchange, at, word });
    }

    /// Copies body bytes; `false` where they do not fit.
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
        let word = ObserverEvent::Body { direction, len, blocked };
        grow(&mut self.entries, 1, self.budget / ENTRY_WEIGHT);
        self.entries.push(TimestampedEvent { exchange, at, word });
        grow(&mut self.bytes, bytes.len(), self.budget);
        self.bytes.extend_from_slice(bytes);
        true
    }

    /// True once between two drains, when half the budget is gone.
    pub(super) fn passed_half(&mut self) -> bool {
        !self.told && self.weight() > self.budget / 2 && {
            self.told = true;
            true
        }
    }

    /// Body bytes in here.
    pub(super) fn waiting(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn swap(&mut self, batch: &mut Batch) {
        std::mem::swap(&mut self.entries, &mut batch.entries);
        std::mem::swap(&mut self.bytes, &mut batch.bytes);
        self.heads = 0;
        self.told = false;
    }

    fn weight(&self) -> usize {
        self.bytes.len() + self.entries.len() * ENTRY_WEIGHT + self.heads * HEAD_WEIGHT
    }
}

/// Doubles the room, but not beyond `most`: left to itself a vector would take up to twice the budget.
fn grow<T>(items: &mut Vec<T>, more: usize, most: usize) {
    let wanted = items.len() + more;
    if wanted > items.capacity() {
        let room = (2 * items.capacity()).min(most).max(wanted);
        items.reserve_exact(room - items.len());
    }
}

/// Empties `batch` and gives back what a burst had made it grow by. Done on the observer's thread, outside the lock.
pub(super) fn empty(batch: &mut Batch) {
    let Batch { entries, bytes } = batch;
    ease(entries, KEPT_CAPACITY / ENTRY_WEIGHT);
    ease(bytes, KEPT_CAPACITY);
}

fn ease<T>(items: &mut Vec<T>, kept: usize) {
    let grown = items.capacity() > kept && items.len() < items.capacity() / 4;
    items.clear();
    if grown {
        items.shrink_to(kept);
    }
}
