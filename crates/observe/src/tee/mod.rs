//! The channel: where the data path leaves stamped copies for the observation path, and forgets about them.
//!
//! For every frame the tee stamps a moment, copies the bytes into a bounded buffer and hands the frame on. No parsing,
//! no allocation per chunk, no lock held for longer than a copy, and no error type: nothing that happens behind the
//! channel can reach a stream. One observer thread drains the buffers in batches; `docs/adr/0001-the-channel.md` has the
//! figures that chose this over a channel and over parsing in place.
//!
//! Copies rather than clones of `Bytes`: a clone would pin hyper's read buffer and force it to allocate a new one.

pub mod body;
mod request_observer;
mod shard;
mod upload_flush;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

pub use self::request_observer::RequestObserver;
pub use self::upload_flush::UploadFlush;

use self::shard::Shard;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{ExchangeId, RequestHead, TimestampedEvent};

/// How much the channel may hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Config {
    /// Buffers that fill side by side: as many as there are threads that move bytes, so that they seldom meet.
    pub shards: usize,
    /// Bytes that may wait for the observer or be in its hands, all shards together.
    pub budget_bytes: usize,
}

impl Config {
    /// Half a second of 100,000 chunks a second of 300 bytes each, twice over.
    pub const BUDGET_BYTES: usize = 32 * 1024 * 1024;
    /// More shards than this only make the budget of each one smaller.
    pub const MOST_SHARDS: usize = 16;
}

impl Default for Config {
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self { shards: threads.min(Self::MOST_SHARDS), budget_bytes: Self::BUDGET_BYTES }
    }
}

/// What one drain brings: words in order, and the bytes of their arrivals in the same order.
#[derive(Debug, Default)]
pub struct Batch {
    pub entries: Vec<TimestampedEvent>,
    pub bytes: Vec<u8>,
}

/// What the observer never saw, since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ObserverLosses {
    /// Body bytes that went by as gaps.
    pub bytes: u64,
    /// Exchanges of which at least one body byte went by, and those that were not observed at all.
    pub exchanges: u64,
}

/// The buffers between the two paths. Words are never lost; body bytes beyond the budget become a
/// [`Gap`](tokengauge_types::event::ObserverEvent::Gap); and where the observer has fallen far behind, whole new exchanges go unobserved
/// rather than random chunks of all.
#[derive(Debug)]
pub struct ObservationChannel {
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
        // One more than there are: the batch in the observer's hands.
        let budget = config.budget_bytes / (shards + 1);
        Self {
            shards: (0..shards).map(|_| Mutex::new(Shard::new(budget))).collect(),
            last_exchange: AtomicU64::new(0),
            open: AtomicU64::new(0),
            lost_bytes: AtomicU64::new(0),
            lost_exchanges: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            observer: Mutex::new(None),
        }
    }

    /// Opens an exchange. Where its shard is too full to take a whole exchange, the observer is mute and counted as lost.
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

    /// Swaps what stands in `shard` with the emptied vectors of `batch`. A shard that does not exist is empty.
    pub fn drain(&self, shard: usize, batch: &mut Batch) {
        shard::empty(batch);
        if let Some(shard) = self.shards.get(shard) {
            lock(shard).swap(batch);
        }
    }

    /// Pauses the observer's thread for at most `timeout`; returns early when a shard is half full, when the first
    /// exchange opens after none was, and after [`wake`](Self::wake). May return without a reason.
    ///
    /// The first call only makes the calling thread known and returns at once, so that nothing said before is missed.
    pub fn park(&self, timeout: Duration) {
        let me = thread::current();
        let known =
            lock(&self.observer).replace(me.clone()).is_some_and(|before| before.id() == me.id());
        if known {
            thread::park_timeout(timeout);
        }
    }

    /// Ends the observer's pause, or its next one. A system call only where it is really paused.
    pub fn wake(&self) {
        if let Some(observer) = &*lock(&self.observer) {
            observer.unpark();
        }
    }

    /// Exchanges that have not ended.
    pub fn open_exchanges(&self) -> u64 {
        self.open.load(Ordering::Acquire)
    }

    /// Exchanges that were opened so far.
    pub fn opened(&self) -> u64 {
        self.last_exchange.load(Ordering::Acquire)
    }

    pub fn lost(&self) -> ObserverLosses {
        ObserverLosses {
            bytes: self.lost_bytes.load(Ordering::Relaxed),
            exchanges: self.lost_exchanges.load(Ordering::Relaxed),
        }
    }

    /// Bytes that wait for the observer.
    pub fn backlog(&self) -> u64 {
        let waiting = |shard: &Mutex<Shard>| lock(shard).waiting() as u64;
        self.shards.iter().map(waiting).sum()
    }

    /// From here on an exchange that is dropped was cut off by this proxy's shutdown, not left by its client.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::Release);
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    /// Gives `act` the shard of `id`, and wakes the observer when that filled it past the half.
    fn with_shard<T>(&self, id: ExchangeId, act: impl FnOnce(&mut Shard) -> T) -> T {
        let index = usize::try_from(id.0).unwrap_or_default() % self.shards.len().max(1);
        #[expect(clippy::indexing_slicing, reason = "the remainder of the vector's length")]
        let mut shard = lock(&self.shards[index]);
        let result = act(&mut shard);
        let urgent = shard.passed_half();
        drop(shard);
        if urgent {
            self.wake();
        }
        result
    }
}

/// A poisoned lock is taken all the same: each critical section leaves its buffers whole.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
