//! One buffer of the observation channel. It holds events and body bytes in order, within a memory budget.
//!
//! Body data and control events (all events except bodies and gaps) have separate room. If the room for body data is
//! full, bytes are dropped. The room for the control events of a request is reserved when the request is opened, so
//! these events are never dropped.

use super::Batch;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, ExchangeId, Headers, ObserverEvent, RequestHead,
    TimestampedEvent,
};

/// Estimated size in bytes of the headers in a request or response event, with [`TYPICAL_HEADERS`] bytes of values.
const HEAD_WEIGHT: usize = 1024;
/// Bytes of header values that [`HEAD_WEIGHT`] includes. Longer headers reach 12 KiB.
const TYPICAL_HEADERS: usize = 512;
const ENTRY_WEIGHT: usize = size_of::<TimestampedEvent>();

/// Maximum number of control events of a request after its headers: queued, admitted, twice connected and sent (a
/// request is repeated once at most), body sent, response headers, two trailers, upgraded, twice closed, and the end. Envoy sends
/// the usage of its gateway and a gap of unknown length instead of the second connection.
const MAX_CONTROL_EVENTS: usize = 13;
/// Estimated bytes of the timings of two connections.
const TIMINGS_WEIGHT: usize = 384;

/// Room in bytes that an open request reserves for its control events after the request headers.
const RESERVED_ROOM: usize = MAX_CONTROL_EVENTS * ENTRY_WEIGHT + HEAD_WEIGHT + TIMINGS_WEIGHT;

/// Room in bytes for all control events of a request with headers of typical length: 3 KiB.
pub(super) const REQUEST_ROOM: usize = ENTRY_WEIGHT + HEAD_WEIGHT + RESERVED_ROOM;

/// Length in bytes up to which a chunk may use the last quarter of the room for body data. The chunks of token streams
/// and of error messages are this small. Large bodies arrive in larger chunks, so their bytes are dropped first.
pub(crate) const SMALL_CHUNK: usize = 4 * 1024;

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
    /// Room in bytes for body data and its events.
    body_room: usize,
    /// Room in bytes for control events, including those that open requests can still report.
    control_room: usize,
    /// [`body_room`](Self::body_room) and the bytes of the control events in this buffer. The limit for body data is
    /// therefore one comparison.
    limit: usize,
    /// Maximum capacity of `entries`.
    max_entries: usize,
    /// Number of open requests that use this buffer.
    open: usize,
    /// Whether this buffer has already woken the observer. Reset when the observer reads the buffer.
    has_woken: bool,
}

impl Shard {
    pub(super) const fn new(body_room: usize, control_room: usize) -> Self {
        Self {
            entries: Vec::new(),
            bytes: Vec::new(),
            heads: 0,
            body_room,
            control_room,
            limit: body_room,
            max_entries: (body_room + control_room) / ENTRY_WEIGHT,
            open: 0,
            has_woken: false,
        }
    }

    /// Returns whether body data takes less than ¾ of its room.
    pub(super) fn has_body_room(&self) -> bool {
        self.weight() < self.limit - self.body_room / 4
    }

    /// Returns whether a gap can end, so that the next `len` bytes of its body are observed. Beyond ¾ of the room, gaps
    /// stay open, because a body that is observed in many small pieces is of no use.
    pub(super) fn can_end_gap(&self, len: usize) -> bool {
        self.has_body_room() && self.fits(ENTRY_WEIGHT + len, len)
    }

    /// Returns whether there is room for `more` bytes with a chunk of `len` bytes.
    fn fits(&self, more: usize, len: usize) -> bool {
        let reserved = if len > SMALL_CHUNK { self.body_room / 4 } else { 0 };
        self.weight() + ENTRY_WEIGHT + more + reserved <= self.limit
    }

    /// Returns whether the buffer has room for all control events of another request.
    pub(super) fn admits(&self, head: &RequestHead) -> bool {
        let head = ENTRY_WEIGHT + headers_weight(&head.headers);
        self.control() + head + (self.open + 1) * RESERVED_ROOM <= self.control_room
    }

    /// Adds the first event of a request.
    pub(super) fn open(
        &mut self,
        id: ExchangeId,
        at: MonotonicInstant,
        mut head: Box<RequestHead>,
    ) {
        self.open += 1;
        // A long path counts as body data, because only the detection of the API needs all of it.
        if !self.has_body_room() {
            head.whole_path = None;
        }
        self.heads += head.whole_path.as_ref().map_or(0, |path| path.len());
        self.push(id, at, ObserverEvent::RequestHead(head));
    }

    /// Adds the last event of a request.
    pub(super) fn end(&mut self, id: ExchangeId, at: MonotonicInstant, ending: Ending) {
        self.push(id, at, ObserverEvent::End(ending));
        self.open = self.open.saturating_sub(1);
    }

    /// Adds a control event. The room for it was reserved when the request was opened. Only long response headers need
    /// more, and are discarded if there is none.
    pub(super) fn push(
        &mut self,
        exchange: ExchangeId,
        at: MonotonicInstant,
        mut event: ObserverEvent,
    ) {
        let mut heads = head_weight(&event);
        if let ObserverEvent::ResponseHead(head) = &mut event
            && heads > HEAD_WEIGHT
            && self.control() + heads + self.open * RESERVED_ROOM > self.control_room
        {
            head.headers = Headers::default();
            heads = HEAD_WEIGHT;
        }
        self.heads += heads;
        self.limit += ENTRY_WEIGHT + heads;
        self.push_entry(TimestampedEvent { exchange, at, event });
    }

    /// Adds a gap. It takes the place of body data, and follows a control event or body data for which there is room.
    pub(super) fn push_gap(
        &mut self,
        (exchange, at): (ExchangeId, MonotonicInstant),
        direction: Direction,
        bytes: u64,
    ) {
        let event = ObserverEvent::Gap { direction, bytes };
        self.push_entry(TimestampedEvent { exchange, at, event });
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
        if !self.fits(bytes.len(), bytes.len()) {
            return false;
        }
        let event = ObserverEvent::Body { direction, len, blocked };
        self.push_entry(TimestampedEvent { exchange, at, event });
        reserve(&mut self.bytes, bytes.len(), self.body_room);
        self.bytes.extend_from_slice(bytes);
        true
    }

    /// Returns whether the buffer has so much data that the observer must be woken. Returns `true` at most once between
    /// two reads.
    pub(super) fn must_wake(&mut self) -> bool {
        !self.has_woken && self.weight() > WAKE_BYTES.min(self.body_room / 2) && {
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
        self.limit = self.body_room;
        self.has_woken = false;
    }

    fn push_entry(&mut self, entry: TimestampedEvent) {
        reserve(&mut self.entries, 1, self.max_entries);
        self.entries.push(entry);
    }

    /// Returns the bytes of the control events in this buffer.
    const fn control(&self) -> usize {
        self.limit - self.body_room
    }

    fn weight(&self) -> usize {
        self.bytes.len() + self.entries.len() * ENTRY_WEIGHT + self.heads
    }
}

pub(super) fn head_weight(event: &ObserverEvent) -> usize {
    if let ObserverEvent::RequestHead(head) = event {
        headers_weight(&head.headers)
    } else if let ObserverEvent::ResponseHead(head) = event {
        headers_weight(&head.headers)
    } else {
        0
    }
}

const fn headers_weight(headers: &Headers) -> usize {
    HEAD_WEIGHT + headers.value_bytes().saturating_sub(TYPICAL_HEADERS)
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
