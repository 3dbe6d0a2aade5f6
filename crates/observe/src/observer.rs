//! The observer thread. In a loop, it applies the events of the observation channel to the open requests, checks for
//! stalls, and sleeps.
//!
//! Untrusted input can keep the thread busy for long. Therefore, readers wait with a time limit, the thread lets
//! readers in between two events, and body bytes that are too old are not parsed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::backlog::{Backlog, DrainContext};
use crate::in_flight::InFlightRequests;
use crate::tee::ObservationChannel;
use parking_lot::MutexGuard;
use tokengauge_telemetry::{ObserverHealth, StateSnapshot, self_telemetry};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::sync::lock;
use tokio::time::MissedTickBehavior;

/// Time between two checks of the open requests for stalls. The channel is read before each check, and also when a
/// buffer wakes the observer. A wake-up takes 20–55 µs of CPU, as much as forwarding a chunk. Several chunks of a stream
/// take less time if they are applied together. The interval does not affect measurements, because events carry the
/// time at which they occurred.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum sleep of the observer thread while no request is open. The next request wakes the thread earlier. The limit
/// ensures that events reported after the last read of the channel do not wait until the next request.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of stored heartbeats, enough for a minute with 16 workers. Each read of the channel removes them, so
/// the limit is reached only if the observer is stuck.
const MAX_HEARTBEATS: usize = 4_096;

/// Maximum time for which a reader waits for the state, and maximum time for which it then applies waiting events. Two
/// readers in a row, such as a scrape and an export, take less than a second.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum wait of a reader after another reader's wait has timed out. The short limit applies until a wait succeeds,
/// so that the waits of queued readers do not add up.
const OVERDUE_TIMEOUT: Duration = Duration::from_millis(5);

/// Owns the observer thread and the open requests. Any thread may apply waiting events and read the state.
#[derive(Debug)]
pub struct Observer {
    shared: Arc<SharedObserver>,
}

#[derive(Debug)]
struct SharedObserver {
    channel: Arc<ObservationChannel>,
    state: parking_lot::Mutex<ObserverState>,
    /// Number of threads that wait to read `state`.
    readers: AtomicUsize,
    is_stopping: AtomicBool,
    /// Whether the last wait of a reader has timed out.
    is_overdue: AtomicBool,
    /// Whether the thread has ended.
    ended: Mutex<bool>,
    end: Condvar,
    /// The health in the last snapshot, and the time of this snapshot.
    last_health: Mutex<(MonotonicInstant, ObserverHealth)>,
    /// Number of panics of the thread.
    restarts: AtomicU64,
    /// Number of requests whose end was applied, at the end of the last drain.
    recorded: AtomicU64,
    /// Number of requests without a record, because the observer was stopped before it applied their end.
    unrecorded: AtomicU64,
    /// Heartbeats since the last read of the channel: workers, and times at which they were responsive.
    heartbeats: Mutex<Vec<(usize, MonotonicInstant)>>,
    #[cfg(test)]
    fault: Mutex<Option<fn()>>,
}

#[derive(Debug)]
struct ObserverState {
    requests: InFlightRequests,
    backlog: Backlog,
    swept: MonotonicInstant,
}

/// A value that was read from the in-flight requests.
#[derive(Clone, Copy, Debug)]
pub struct Observed<T> {
    pub value: T,
    /// Age of the oldest event that `value` does not include. Zero if all events were applied.
    pub lag: Duration,
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
        let now = clock::now();
        let state = ObserverState { requests, backlog: Backlog::default(), swept: now };
        let shared = Arc::new(SharedObserver {
            channel,
            state: parking_lot::Mutex::new(state),
            readers: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            is_overdue: AtomicBool::new(false),
            ended: Mutex::new(false),
            end: Condvar::new(),
            last_health: Mutex::default(),
            restarts: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            unrecorded: AtomicU64::new(0),
            heartbeats: Mutex::default(),
            #[cfg(test)]
            fault: Mutex::default(),
        });
        thread::Builder::new().name("observer".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        })?;
        Ok(Self { shared })
    }

    /// Applies every event that was reported before the call, and then calls `read`. Waits without a time limit.
    pub fn with_current_state<T>(
        &self,
        read: impl FnOnce(&mut InFlightRequests, MonotonicInstant) -> T,
    ) -> T {
        let mut state = self.shared.wait(|state| state.lock());
        state.drain(&self.shared, &|_| false);
        state.read(read)
    }

    /// Applies waiting events for a limited time, and then calls `read`. The whole call takes less than half a second.
    /// Returns `None` if another thread uses the state for too long.
    pub fn read_in_time<T>(
        &self,
        read: impl FnOnce(&mut InFlightRequests, MonotonicInstant) -> T,
    ) -> Option<Observed<T>> {
        self.read_with_lag(|requests, at, lag| Observed { value: read(requests, at), lag })
    }

    /// Calls `collect` with the values of all gauges that the observer provides. No event is applied during the call.
    /// If another thread uses the requests for too long, the call gets only the observer's health.
    pub fn with_snapshot(&self, collect: impl FnOnce(StateSnapshot)) {
        // The backlog is read before the events are applied. Otherwise it would always be 0.
        let (backlog, lost) = (self.shared.channel.backlog(), self.shared.channel.lost());
        let complete = |health: ObserverHealth, age| ObserverHealth {
            lost_bytes: health.lost_bytes + lost.bytes,
            unobserved: health.unobserved + lost.exchanges + self.unrecorded_requests(),
            excluded: self.shared.channel.excluded(),
            backlog,
            restarts: self.shared.restarts.load(Ordering::Relaxed),
            age,
            ..health
        };
        let mut collect = Some(collect);
        self.read_with_lag(|requests, at, lag| {
            let snapshot = requests.snapshot(at);
            *lock(&self.shared.last_health) = (at.saturating_sub(lag), snapshot.observer);
            if let Some(collect) = collect.take() {
                let observer = complete(snapshot.observer, lag);
                collect(StateSnapshot { observer, ..snapshot });
            }
        });
        if let Some(collect) = collect {
            let (at, health) = *lock(&self.shared.last_health);
            let observer = complete(health, clock::now().since(at));
            collect(StateSnapshot { observer, is_observer_late: true, ..StateSnapshot::default() });
        }
    }

    fn read_with_lag<T>(
        &self,
        read: impl FnOnce(&mut InFlightRequests, MonotonicInstant, Duration) -> T,
    ) -> Option<T> {
        let is_overdue = self.shared.is_overdue.load(Ordering::Relaxed);
        let limit = if is_overdue { OVERDUE_TIMEOUT } else { READ_TIMEOUT };
        let state = self.shared.wait(|state| state.try_lock_for(limit));
        self.shared.is_overdue.store(state.is_none(), Ordering::Relaxed);
        let mut state = state?;
        let deadline = clock::now() + READ_TIMEOUT;
        state.drain(&self.shared, &|now| now >= deadline);
        let lag = state.backlog.age(clock::now());
        Some(state.read(|requests, at| read(requests, at, lag)))
    }

    /// Records heartbeats of a thread that forwards traffic, and never ends. Must run on this thread. Pauses of the thread
    /// or of the whole process therefore do not count as stalls of the backend.
    pub fn run_heartbeat(&self, worker: usize) -> impl Future<Output = ()> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        async move {
            let mut interval = tokio::time::interval(InFlightRequests::HEARTBEAT_INTERVAL);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                interval.tick().await;
                let mut heartbeats = lock(&shared.heartbeats);
                if heartbeats.len() < MAX_HEARTBEATS {
                    heartbeats.push((worker, clock::now()));
                }
            }
        }
    }

    /// Stops the thread and applies the remaining events within `limit`. After half of the time, body bytes are skipped
    /// without parsing. Returns whether all events were applied. If not, [`unrecorded_requests`](Self::unrecorded_requests)
    /// are counted.
    pub fn stop(&self, limit: Duration) -> bool {
        let is_complete = self.finish(limit);
        let recorded = self.shared.recorded.load(Ordering::Relaxed);
        let channel = &self.shared.channel;
        // Requests that the channel did not admit are counted by themselves.
        let admitted = channel.opened().saturating_sub(channel.lost().exchanges);
        let unrecorded = admitted.saturating_sub(recorded);
        self.shared.unrecorded.store(unrecorded, Ordering::Relaxed);
        is_complete
    }

    /// Returns the number of requests that [`stop`](Self::stop) left without a record: they have no span and no line in
    /// the request log, and no metric contains their result. 0 before the stop.
    pub fn unrecorded_requests(&self) -> u64 {
        self.shared.unrecorded.load(Ordering::Relaxed)
    }

    fn finish(&self, limit: Duration) -> bool {
        let started = clock::now();
        let left = |of: Duration| of.saturating_sub(clock::now().since(started));
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.channel.wake();
        // This thread does not first wait for the end of the observer thread, which a busy machine can schedule late.
        let Some(mut state) = self.shared.wait(|state| state.try_lock_for(left(limit))) else {
            return false;
        };
        state.drain(&self.shared, &|_| left(limit / 2).is_zero());
        state.backlog.skip_bodies();
        let is_complete = state.drain(&self.shared, &|_| left(limit).is_zero());
        state.read(|_, _| ());
        drop(state);
        self.shared.await_end(left(limit));
        is_complete
    }
}

#[cfg(test)]
impl Observer {
    /// Calls `fault` once in the loop of the thread.
    pub(crate) fn fail_once(&self, fault: fn()) {
        *lock(&self.shared.fault) = Some(fault);
    }
}

impl SharedObserver {
    /// Runs the thread. After a panic, the thread continues with the event after the one that caused the panic.
    fn run(&self) {
        while catch_unwind(AssertUnwindSafe(|| self.observe())).is_err() {
            let restarts = self.restarts.fetch_add(1, Ordering::Relaxed) + 1;
            self_telemetry::observer_restarted(restarts);
            // A panic that recurs must not keep a core busy.
            self.channel.park(SWEEP_INTERVAL);
        }
        *lock(&self.ended) = true;
        self.end.notify_all();
    }

    fn observe(&self) {
        let mut due = clock::now() + IDLE_INTERVAL;
        while !self.is_stopping() {
            let late = clock::now().since(due);
            self.with_state(|state| state.requests.record_observer_delay(late));
            while !self.with_state(|state| state.drain(self, &|_| self.is_interrupted())) {
                if self.is_stopping() {
                    return;
                }
            }
            let swept = self.sweep();
            // After the drain, so that no event of an ended request waits for a whole second.
            let is_idle = self.channel.begin_idle();
            let now = clock::now();
            due = if is_idle { now + IDLE_INTERVAL } else { now.max(swept + SWEEP_INTERVAL) };
            let pause = due.since(now);
            self.channel.park(pause);
        }
    }

    /// Checks the open requests if a check is due. Returns the time of the last check.
    fn sweep(&self) -> MonotonicInstant {
        #[cfg(test)]
        if let Some(fault) = lock(&self.fault).take() {
            fault();
        }
        self.with_state(|state| {
            let now = clock::now();
            if now.since(state.swept) >= SWEEP_INTERVAL {
                state.swept = now;
                state.requests.sweep(now);
            }
            state.swept
        })
    }

    /// Uses the state on the observer thread, which takes it again and again. The lock is therefore handed to a thread that
    /// waits, if there is one.
    fn with_state<T>(&self, f: impl FnOnce(&mut ObserverState) -> T) -> T {
        let mut state = self.state.lock();
        let result = f(&mut state);
        MutexGuard::unlock_fair(state);
        result
    }

    /// Waits for the state on another thread. The observer thread lets it in between two events.
    fn wait<'a, T>(&'a self, lock: impl FnOnce(&'a parking_lot::Mutex<ObserverState>) -> T) -> T {
        self.readers.fetch_add(1, Ordering::Relaxed);
        let state = lock(&self.state);
        self.readers.fetch_sub(1, Ordering::Relaxed);
        state
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn is_interrupted(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0 || self.is_stopping()
    }

    fn await_end(&self, limit: Duration) {
        let ended = lock(&self.ended);
        drop(self.end.wait_timeout_while(ended, limit, |ended| !*ended));
    }
}

impl ObserverState {
    fn read<T>(&mut self, read: impl FnOnce(&mut InFlightRequests, MonotonicInstant) -> T) -> T {
        let now = clock::now();
        self.requests.sweep_all(now);
        read(&mut self.requests, now)
    }

    /// Applies the waiting events of all shards. Returns `false` if it was interrupted.
    fn drain(
        &mut self,
        shared: &SharedObserver,
        interrupt: &dyn Fn(MonotonicInstant) -> bool,
    ) -> bool {
        let Self { requests, backlog, .. } = self;
        // Heartbeats are read after a shard. An event that a pause delayed therefore has an earlier timestamp than the
        // heartbeat after the pause.
        let beat = |requests: &mut InFlightRequests| {
            for (worker, at) in lock(&shared.heartbeats).drain(..) {
                requests.record_heartbeat(worker, at);
            }
        };
        let channel = &shared.channel;
        let context = DrainContext { channel, clock: &clock::now, beat: &beat, interrupt };
        let is_complete = backlog.drain(requests, context);
        shared.recorded.store(requests.ended(), Ordering::Relaxed);
        is_complete
    }
}
