//! The observer thread. In a loop, it drains the observation channel into the in-flight requests, checks for stalls,
//! and sleeps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::in_flight::InFlightRequests;
use crate::tee::{Batch, ObservationChannel};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::{ObserverEvent, TimestampedEvent};
use tokio::time::MissedTickBehavior;

/// Time between two drains while a request is open. A timed wake takes 20–55 µs of CPU, as much as relaying a chunk.
/// Events carry the timestamps of the data path, so waiting does not make measurements less exact.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);

/// Time between two checks of the open requests for stalls.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum sleep of the observer while no request is open. The first request that opens wakes the thread. Due to this
/// bound, an event after the last drain does not have to wait for the next request.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of stored heartbeats, enough for more than a minute. The observer removes them at each drain, so if
/// the limit is reached, the observer is stuck.
const MAX_HEARTBEATS: usize = 256;

/// Owns the observer thread and the in-flight requests. Any thread may bring the requests up to date and read them.
#[derive(Debug)]
pub struct Observer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    channel: Arc<ObservationChannel>,
    state: Mutex<ObserverState>,
    is_stopping: AtomicBool,
    /// Heartbeats since the previous drain: times at which the runtime of the data path ran.
    heartbeats: Mutex<Vec<MonotonicInstant>>,
}

/// State of the observer. The batch is swapped with each shard in turn, so that buffers are reused.
#[derive(Debug)]
struct ObserverState {
    requests: InFlightRequests,
    batch: Batch,
}

impl Observer {
    /// Starts the observer thread.
    ///
    /// # Errors
    /// Fails if the operating system cannot start a thread.
    pub fn start(
        channel: Arc<ObservationChannel>,
        requests: InFlightRequests,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            channel,
            state: Mutex::new(ObserverState { requests, batch: Batch::default() }),
            is_stopping: AtomicBool::new(false),
            heartbeats: Mutex::default(),
        });
        let thread = thread::Builder::new().name("observer".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Applies every event that was reported before the call, then calls `read`.
    pub fn with_current_state<T>(
        &self,
        read: impl FnOnce(&mut InFlightRequests, MonotonicInstant) -> T,
    ) -> T {
        let mut state = lock(&self.shared.state);
        state.drain(&self.shared);
        let now = clock::now();
        state.requests.sweep(now);
        read(&mut state.requests, now)
    }

    /// Records heartbeats of the runtime of the data path, forever. With them, delays of the runtime and pauses of the
    /// whole process are not attributed to the backend.
    pub fn run_heartbeat(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        async move {
            let mut interval = tokio::time::interval(InFlightRequests::HEARTBEAT_INTERVAL);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                interval.tick().await;
                let mut heartbeats = lock(&shared.heartbeats);
                if heartbeats.len() < MAX_HEARTBEATS {
                    heartbeats.push(clock::now());
                }
            }
        }
    }

    /// Applies the remaining events and ends the thread.
    pub fn stop(&self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.channel.wake();
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the observer thread panicked");
        }
        self.with_current_state(|_, _| ());
    }
}

impl Shared {
    fn run(&self) {
        let mut swept = clock::now();
        let mut due = swept + IDLE_INTERVAL;
        while !self.is_stopping.load(Ordering::Acquire) {
            {
                let mut state = lock(&self.state);
                state.drain(self);
                let now = clock::now();
                state.requests.record_observer_delay(now.since(due));
                if now.since(swept) >= SWEEP_INTERVAL {
                    swept = now;
                    state.requests.sweep(now);
                }
            }
            // The count is read after the drain. If it is 0, the next request that opens wakes this thread.
            let is_idle = self.channel.open_exchanges() == 0;
            let pause = if is_idle { IDLE_INTERVAL } else { DRAIN_INTERVAL };
            due = clock::now() + pause;
            self.channel.park(pause);
        }
    }
}

impl ObserverState {
    fn drain(&mut self, shared: &Shared) {
        for shard in 0..shared.channel.shards() {
            shared.channel.drain(shard, &mut self.batch);
            // Heartbeats are read after the drain. An event that a pause delayed therefore has an earlier timestamp
            // than the heartbeat after the pause.
            for at in lock(&shared.heartbeats).drain(..) {
                self.requests.record_heartbeat(at);
            }
            let mut rest: &[u8] = &self.batch.bytes;
            for entry in self.batch.entries.drain(..) {
                let (bytes, behind) = rest.split_at(body_len(&entry).min(rest.len()));
                rest = behind;
                self.requests.apply(entry, bytes);
            }
            self.batch.bytes.clear();
        }
    }
}

/// Locks a mutex even if it is poisoned, because the guarded state is consistent between two events.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of bytes of the batch that belong to `entry`.
fn body_len(entry: &TimestampedEvent) -> usize {
    if let ObserverEvent::Body { len, .. } = entry.event {
        usize::try_from(len).unwrap_or(usize::MAX)
    } else {
        0
    }
}
