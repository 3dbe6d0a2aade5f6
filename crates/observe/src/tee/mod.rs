//! The observation channel between the data path and the observer.
//!
//! For every frame, the tee takes a timestamp, copies the bytes into a bounded buffer and passes the frame on. The tee
//! does not parse, allocates nothing per chunk, and holds no lock for longer than a copy. It has no error type, so the
//! observer cannot affect a stream. One observer thread drains the buffers in batches.
//! `docs/adr/0001-observation-channel.md` compares this design with a channel of `Bytes` and with parsing in place.
//!
//! Bytes are copied rather than cloned. A clone of `Bytes` would pin hyper's read buffer, and hyper would have to
//! allocate another buffer.

pub mod body;
mod muted;
mod request_observer;
mod shard;
mod upload_flush;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::{self, Thread};
use std::time::Duration;

use crossbeam_utils::CachePadded;

pub use self::request_observer::RequestObserver;
pub use self::upload_flush::UploadFlush;

pub(crate) use self::muted::{EventsOfResult, MutedResult};
pub(crate) use self::shard::SMALL_CHUNK;

use self::muted::{MutedRequest, MutedResults};
use self::shard::{REQUEST_ROOM, Shard};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{Ending, ExchangeId, RequestHead, TimestampedEvent};
use tokengauge_types::sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock};

/// Bounds of an [`ObservationChannel`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ChannelConfig {
    /// Number of buffers (shards). With one buffer per runtime thread, threads rarely wait for a lock.
    pub shards: usize,
    /// Maximum number of bytes of body data in all buffers together, including the data that the observer is processing.
    pub budget_bytes: usize,
    /// Number of requests that can be open at the same time. The events of so many requests always have room in the
    /// buffers.
    pub max_requests: usize,
}

impl ChannelConfig {
    /// Default memory budget in bytes. At 100,000 chunks of 300 bytes per second, it holds the data of 1.5 seconds.
    pub const BUDGET_BYTES: usize = 48 << 20;
    /// Default number of requests, the same as the default limit of a listener.
    pub const MAX_REQUESTS: usize = 8_192;
    /// Maximum number of buffers. With more, each buffer's share of the budget would be too small.
    pub const MAX_SHARDS: usize = 16;
}

impl Default for ChannelConfig {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self {
            shards: threads.min(Self::MAX_SHARDS),
            budget_bytes: Self::BUDGET_BYTES,
            max_requests: Self::MAX_REQUESTS,
        }
    }
}

/// Content of one buffer: events, and the bytes of their bodies in the same order.
#[derive(Debug, Default)]
pub struct Batch {
    pub entries: Vec<TimestampedEvent>,
    pub bytes: Vec<u8>,
}

/// Counts of data that did not fit into the channel, since the start of the process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ChannelLosses {
    /// Body bytes that were not copied.
    pub bytes: u64,
    /// Number of requests of which only the result is counted. Requests that are observed in part are counted by the
    /// observer.
    pub exchanges: u64,
}

/// Carries events and copied body bytes to the observer.
///
/// Body bytes beyond the budget are replaced by a [`Gap`](tokengauge_types::event::ObserverEvent::Gap) event. All other
/// events (control events) have room of their own, in which each open request reserves its part. `max_requests` open
/// requests therefore never lose an event, however far the observer is behind. As many again can wait for the observer
/// after their end. Beyond that, a request is not observed, and only its result is counted (see `muted`). Each request
/// is therefore counted.
#[derive(Debug, Default)]
pub struct ObservationChannel {
    /// Buffers. A request uses the buffer of the thread that opened it, so that threads rarely write to the same memory.
    /// All events of the request go to this buffer, also those from other threads, so that they stay in order.
    /// Padded, so that a thread that writes to one shard does not slow down threads that use another.
    shards: Vec<CachePadded<Mutex<Shard>>>,
    counters: CachePadded<Counters>,
    is_shutting_down: AtomicBool,
    /// Whether the observer pauses until the first event that [`note_progress`](Self::note_progress) reports.
    is_idle: AtomicBool,
    muted: Mutex<MutedResults>,
    observer: Mutex<Option<Thread>>,
}

#[derive(Debug, Default)]
struct Counters {
    last_exchange: AtomicU64,
    open: AtomicU64,
    lost_bytes: AtomicU64,
    lost_exchanges: AtomicU64,
    excluded: AtomicU64,
}

/// Returns the number of the current thread among those that have opened a request, starting at 0.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}

impl ObservationChannel {
    pub fn new(config: ChannelConfig) -> Self {
        let shards = config.shards.max(1);
        // One more share than there are shards, for the batch that the observer is processing.
        let budget = config.budget_bytes / (shards + 1);
        // Twice: for what open requests can still report, and for events that wait. 48 MiB by default, if all requests
        // are open or have ended, and the observer reads nothing.
        let control_room = 2 * REQUEST_ROOM * config.max_requests.div_ceil(shards);
        let shard = |_| CachePadded::new(Mutex::new(Shard::new(budget, control_room)));
        Self { shards: (0..shards).map(shard).collect(), ..Self::default() }
    }

    /// Starts the observation of a request. If no buffer has room for its events, the request is not observed, and only
    /// its result is counted.
    pub fn open(self: &Arc<Self>, open: RequestHead, at: MonotonicInstant) -> RequestObserver {
        let counters = &self.counters;
        let id = ExchangeId(counters.last_exchange.fetch_add(1, Ordering::Relaxed) + 1);
        let observer = RequestObserver::open(Arc::clone(self), id, open, at);
        counters.open.fetch_add(1, Ordering::SeqCst);
        observer
    }

    /// Opens a request that is excluded from observation: no event is recorded, and only the number of such requests is
    /// counted. The request counts as open until its end, so that a shutdown waits for it.
    pub fn open_excluded(self: &Arc<Self>) -> RequestObserver {
        self.counters.excluded.fetch_add(1, Ordering::Relaxed);
        self.counters.open.fetch_add(1, Ordering::AcqRel);
        RequestObserver::excluded(Arc::clone(self))
    }

    /// Returns the number of requests that were excluded from observation.
    pub fn excluded(&self) -> u64 {
        self.counters.excluded.load(Ordering::Relaxed)
    }

    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Swaps the content of buffer `shard` with the emptied memory of `batch`. A buffer that does not exist is empty.
    pub fn drain(&self, shard: usize, batch: &mut Batch) {
        shard::clear(batch);
        if let Some(shard) = self.shards.get(shard) {
            lock(shard).swap(batch);
        }
    }

    /// Announces that the observer will pause until the next request. Returns `false` if a request is open, so that the
    /// observer must look at it soon.
    pub fn begin_idle(&self) -> bool {
        // Sequentially consistent, as in `open` and `note_progress`: either the request is seen here, or its progress
        // ends the pause.
        self.is_idle.store(true, Ordering::SeqCst);
        let is_idle = self.counters.open.load(Ordering::SeqCst) == 0;
        if !is_idle {
            self.is_idle.store(false, Ordering::Relaxed);
        }
        is_idle
    }

    /// Ends the pause of an idle observer. Called after the request was written to the upstream, because the observer
    /// would otherwise take a core while the request is on its way.
    fn note_progress(&self) {
        if self.is_idle.load(Ordering::SeqCst) && self.is_idle.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Pauses the observer thread for at most `timeout`. Returns earlier in three cases: a buffer has 512 KiB of
    /// data or is half full, the first request after [`begin_idle`](Self::begin_idle) was written to the upstream, or
    /// [`wake`](Self::wake) is called. May also return for no reason.
    ///
    /// The first call registers the calling thread and returns at once, so that no earlier event is missed.
    pub fn park(&self, timeout: Duration) {
        let current = thread::current();
        let is_registered = lock(&self.observer)
            .replace(current.clone())
            .is_some_and(|previous| previous.id() == current.id());
        if is_registered {
            thread::park_timeout(timeout);
        }
    }

    /// Ends the current pause of the observer thread, or skips the next one. Costs a system call only if the thread is
    /// paused.
    pub fn wake(&self) {
        if let Some(observer) = &*lock(&self.observer) {
            observer.unpark();
        }
    }

    /// Returns the number of requests that have not ended.
    pub fn open_exchanges(&self) -> u64 {
        self.counters.open.load(Ordering::Acquire)
    }

    /// Returns the number of observed requests since the start of the process.
    pub fn opened(&self) -> u64 {
        self.counters.last_exchange.load(Ordering::Acquire)
    }

    pub fn lost(&self) -> ChannelLosses {
        let counters = &self.counters;
        ChannelLosses {
            bytes: counters.lost_bytes.load(Ordering::Relaxed),
            exchanges: counters.lost_exchanges.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of body bytes that wait for the observer.
    pub fn backlog(&self) -> u64 {
        let waiting = |shard: &CachePadded<Mutex<Shard>>| lock(shard).waiting_bytes() as u64;
        self.shards.iter().map(waiting).sum()
    }

    fn count_lost_bytes(&self, bytes: u64) {
        self.counters.lost_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn count_muted(&self, request: &MutedRequest, at: MonotonicInstant, ending: Ending) {
        lock(&self.muted).count(request, at, ending);
    }

    /// Returns the results of requests that have ended without being observed, since the last call.
    pub(crate) fn take_muted(&self) -> Vec<MutedResult> {
        lock(&self.muted).take()
    }

    /// Marks the shutdown. Requests that are dropped later count as aborted by this process, not by the client.
    pub fn mark_shutdown(&self) {
        self.is_shutting_down.store(true, Ordering::Release);
    }

    fn is_shutting_down(&self) -> bool {
        self.is_shutting_down.load(Ordering::Acquire)
    }

    /// Calls `act` with the buffer number `shard`, modulo the number of buffers. Wakes the observer if
    /// [`Shard::must_wake`] returns true.
    fn with_shard<T>(&self, shard: usize, act: impl FnOnce(&mut Shard) -> T) -> T {
        let index = shard % self.shards.len().max(1);
        #[expect(
            clippy::indexing_slicing,
            reason = "the index is a remainder of the vector's length"
        )]
        let mut shard = lock(&self.shards[index]);
        let result = act(&mut shard);
        let is_urgent = shard.must_wake();
        drop(shard);
        if is_urgent {
            self.wake();
        }
        result
    }
}

#[cfg(test)]
mod tests;
