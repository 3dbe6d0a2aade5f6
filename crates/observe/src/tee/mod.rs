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
mod request_observer;
mod shard;
mod upload_flush;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;

pub use self::request_observer::RequestObserver;
pub use self::upload_flush::UploadFlush;

use self::shard::Shard;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{ExchangeId, RequestHead, TimestampedEvent};
use tokengauge_types::sync::lock;

/// Bounds of an [`ObservationChannel`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Config {
    /// Number of buffers that are filled in parallel. With one buffer per thread that moves bytes, threads rarely
    /// contend for a lock.
    pub shards: usize,
    /// Maximum number of bytes, over all shards, that wait for the observer or are being processed.
    pub budget_bytes: usize,
}

impl Config {
    /// Default memory budget in bytes. It holds three times the data of half a second at 100,000 chunks of 300 bytes per
    /// second.
    pub const BUDGET_BYTES: usize = 48 << 20;
    /// Maximum number of shards. More shards would only make the share of the budget per shard smaller.
    pub const MOST_SHARDS: usize = 16;
}

impl Default for Config {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self { shards: threads.min(Self::MOST_SHARDS), budget_bytes: Self::BUDGET_BYTES }
    }
}

/// The content of one drained shard: events, and the bytes of their bodies in the same order.
#[derive(Debug, Default)]
pub struct Batch {
    pub entries: Vec<TimestampedEvent>,
    pub bytes: Vec<u8>,
}

/// Counts of data that did not enter the channel since the start of the process.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ChannelLosses {
    /// Body bytes that became gaps.
    pub bytes: u64,
    /// Number of exchanges that are not observed at all. The observer counts the exchanges that are observed with a
    /// gap.
    pub exchanges: u64,
}

/// Carries events and copied body bytes from the data path to the observer.
///
/// Events are never lost. Body bytes beyond the budget become a [`Gap`](tokengauge_types::event::ObserverEvent::Gap).
/// If the observer falls far behind, whole new exchanges are not observed. This is better than losing random chunks of
/// all exchanges.
#[derive(Debug, Default)]
pub struct ObservationChannel {
    /// Shards, selected by exchange id. They cannot be selected by worker thread, because tasks migrate and different
    /// tasks poll the two bodies.
    shards: Vec<Mutex<Shard>>,
    last_exchange: AtomicU64,
    open: AtomicU64,
    lost_bytes: AtomicU64,
    lost_exchanges: AtomicU64,
    cut: AtomicBool,
    observer: Mutex<Option<Thread>>,
}

impl ObservationChannel {
    pub fn new(config: Config) -> Self {
        let shards = config.shards.max(1);
        // One more share than there are shards, for the batch that the observer is processing.
        let budget = config.budget_bytes / (shards + 1);
        Self {
            shards: (0..shards).map(|_| Mutex::new(Shard::new(budget))).collect(),
            ..Self::default()
        }
    }

    /// Opens an exchange. If the shard has no room for another exchange, the exchange is not observed and counts as
    /// lost.
    pub fn open(self: &Arc<Self>, open: RequestHead, at: MonotonicInstant) -> RequestObserver {
        let id = ExchangeId(self.last_exchange.fetch_add(1, Ordering::Relaxed) + 1);
        let observer = RequestObserver::open(Arc::clone(self), id, open, at);
        if self.open.fetch_add(1, Ordering::AcqRel) == 0 {
            self.wake();
        }
        observer
    }

    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Swaps the content of `shard` with the emptied buffers of `batch`. A shard that does not exist is empty.
    pub fn drain(&self, shard: usize, batch: &mut Batch) {
        shard::clear(batch);
        if let Some(shard) = self.shards.get(shard) {
            lock(shard).swap(batch);
        }
    }

    /// Pauses the observer thread for at most `timeout`. Returns early if a shard is half full, if an exchange opens
    /// while no other is open, or after [`wake`](Self::wake). May return spuriously.
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

    /// Wakes the observer thread from its current pause, or skips its next pause. Makes a system call only if the
    /// thread is paused.
    pub fn wake(&self) {
        if let Some(observer) = &*lock(&self.observer) {
            observer.unpark();
        }
    }

    /// Returns the number of exchanges that have not ended.
    pub fn open_exchanges(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Returns the number of exchanges that were opened since the start.
    pub fn opened(&self) -> u64 {
        self.last_exchange.load(Ordering::Acquire)
    }

    pub fn lost(&self) -> ChannelLosses {
        ChannelLosses {
            bytes: self.lost_bytes.load(Ordering::Relaxed),
            exchanges: self.lost_exchanges.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of body bytes that wait for the observer.
    pub fn backlog(&self) -> u64 {
        let waiting = |shard: &Mutex<Shard>| lock(shard).waiting_bytes() as u64;
        self.shards.iter().map(waiting).sum()
    }

    /// Marks the shutdown: exchanges that are dropped from now on count as aborted by this process, not as abandoned by
    /// the client.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::Release);
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Calls `act` with the shard of `id`, and wakes the observer if the shard became more than half full.
    fn with_shard<T>(&self, id: ExchangeId, act: impl FnOnce(&mut Shard) -> T) -> T {
        let index = usize::try_from(id.0).unwrap_or_default() % self.shards.len().max(1);
        #[expect(
            clippy::indexing_slicing,
            reason = "the index is a remainder of the vector's length"
        )]
        let mut shard = lock(&self.shards[index]);
        let result = act(&mut shard);
        let is_urgent = shard.passed_half();
        drop(shard);
        if is_urgent {
            self.wake();
        }
        result
    }
}

#[cfg(test)]
mod tests;
