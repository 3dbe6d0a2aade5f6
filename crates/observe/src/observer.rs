//! Drives the requests from the channel: drain, sweep, park.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::in_flight::InFlightRequests;
use crate::tee::{Batch, ObservationChannel};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{ObserverEvent, TimestampedEvent};
use tokio::time::MissedTickBehavior;

/// Between two drains while anything is open. A timed wake costs 20–55 µs, as much as relaying a chunk; instants were
/// stamped at the channel, so nothing is less exact for waiting.
const DRAIN_EVERY: Duration = Duration::from_millis(50);

/// Between two sweeps over the exchanges in flight.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// How long the observer sleeps when nothing is open; the first exchange wakes it. Bounded, so that a last word that
/// was said after the last drain does not wait for the next exchange.
const IDLE: Duration = Duration::from_secs(1);

/// The observer takes them in at each drain; more than a minute of them means that it is stuck, and nobody reads them.
const MOST_BEATS: usize = 256;

/// The observer: one thread that drains the channel, and the requests that anybody may bring up to date and read.
#[derive(Debug)]
pub struct Observer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    channel: Arc<ObservationChannel>,
    desk: Mutex<ObserverState>,
    stopping: AtomicBool,
    /// When the runtime that moves the bytes had its turns, as far as the requests was not told.
    beats: Mutex<Vec<MonotonicInstant>>,
}

/// The requests, and the batch that is swapped with each shard in turn: buffers are used again, not made again.
#[derive(Debug)]
struct ObserverState {
    requests: InFlightRequests,
    batch: Batch,
}

impl Observer {
    /// # Errors
    /// Where the thread cannot be made.
    pub fn start(
        channel: Arc<ObservationChannel>,
        requests: InFlightRequests,
    ) -> std::io::Result<Self> {
        let desk = Mutex::new(ObserverState { requests, batch: Batch::default() });
        let shared = Arc::new(Shared {
            channel,
            desk,
            stopping: AtomicBool::new(false),
            beats: Mutex::default(),
        });
        let thread = thread::Builder::new().name("observer".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Has the requests take in every word said so far, then reads it. A barrier: what was said before this call is in
    /// what `read` sees.
    pub fn with_current_state<T>(
        &self,
        read: impl FnOnce(&mut InFlightRequests, MonotonicInstant) -> T,
    ) -> T {
        let mut desk = self.shared.desk();
        desk.drain(&self.shared);
        let now = clock::now();
        desk.requests.sweep(now);
        read(&mut desk.requests, now)
    }

    /// Beats for ever on the runtime that moves the bytes, so that its delays, and those of the whole process, are known
    /// from the backend's.
    pub fn run_heartbeat(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        async move {
            let mut beats = tokio::time::interval(InFlightRequests::HEARTBEAT_INTERVAL);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                beats.tick().await;
                let mut beats = lock(&shared.beats);
                if beats.len() < MOST_BEATS {
                    beats.push(clock::now());
                }
            }
        }
    }

    /// Takes in what is left and ends the thread.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.channel.wake();
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the observer thread had ended by a panic");
        }
        self.with_current_state(|_, _| ());
    }
}

impl Shared {
    fn run(&self) {
        let mut swept = clock::now();
        let mut due = swept + IDLE;
        while !self.stopping.load(Ordering::Acquire) {
            {
                let mut desk = self.desk();
                desk.drain(self);
                let now = clock::now();
                desk.requests.record_observer_delay(now.since(due));
                if now.since(swept) >= SWEEP_EVERY {
                    swept = now;
                    desk.requests.sweep(now);
                }
            }
            // Asked after the drain: an exchange that opens from here on finds none open, and wakes this thread.
            let pause = if self.channel.open_exchanges() == 0 { IDLE } else { DRAIN_EVERY };
            due = clock::now() + pause;
            self.channel.park(pause);
        }
    }

    fn desk(&self) -> MutexGuard<'_, ObserverState> {
        lock(&self.desk)
    }
}

impl ObserverState {
    fn drain(&mut self, shared: &Shared) {
        let channel = &shared.channel;
        for shard in 0..channel.shards() {
            channel.drain(shard, &mut self.batch);
            // Read after the words were taken: what a pause held up is stamped before the beat that tells of it.
            for beat in lock(&shared.beats).drain(..) {
                self.requests.record_heartbeat(beat);
            }
            let mut rest: &[u8] = &self.batch.bytes;
            for entry in self.batch.entries.drain(..) {
                let (bytes, behind) = rest.split_at(carried(&entry).min(rest.len()));
                rest = behind;
                self.requests.apply(entry, bytes);
            }
            self.batch.bytes.clear();
        }
    }
}

/// A poisoned lock is taken all the same: what stands behind it is whole between two words.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many bytes of the batch's buffer belong to an entry.
fn carried(entry: &TimestampedEvent) -> usize {
    if let ObserverEvent::Body { len, .. } = entry.word {
        usize::try_from(len).unwrap_or(usize::MAX)
    } else {
        0
    }
}
