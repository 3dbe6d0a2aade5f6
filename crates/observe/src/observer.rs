//! The observer thread. In a loop, it drains the observation channel into the in-flight requests, checks for stalls,
//! and sleeps.
//!
//! The thread may be busy for long, because the input is untrusted. Readers therefore never wait without limit, the
//! thread hands the state over between two events, and events that have become too old are not parsed any more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::backlog::{Backlog, DrainContext};
use crate::in_flight::InFlightRequests;
use crate::lendable::Lendable;
use crate::tee::ObservationChannel;
use tokengauge_telemetry::{ObserverHealth, StateSnapshot, self_telemetry};
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::sync::lock;
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

/// Maximum time that a reader waits for the lock of the state, and then the maximum time in which it processes pending
/// events. Two readers in a row, such as a scrape and an export, take less than a second.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum wait after another reader has waited without success, until the state is available again. The waits of
/// queued readers therefore do not add up.
const OVERDUE_TIMEOUT: Duration = Duration::from_millis(5);

/// Owns the observer thread and the in-flight requests. Any thread may bring the requests up to date and read them.
#[derive(Debug)]
pub struct Observer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    channel: Arc<ObservationChannel>,
    state: Lendable<ObserverState>,
    is_stopping: AtomicBool,
    /// Whether a reader has waited for the state in vain.
    is_overdue: AtomicBool,
    /// Whether the thread has ended.
    ended: Mutex<bool>,
    end: Condvar,
    /// The health in the last snapshot, and the time of this snapshot.
    last_health: Mutex<(MonotonicInstant, ObserverHealth)>,
    /// Number of panics of the thread.
    restarts: AtomicU64,
    /// Heartbeats since the previous drain: times at which the runtime of the data path ran.
    heartbeats: Mutex<Vec<MonotonicInstant>>,
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
    /// Age of the oldest event that the value does not include. Zero if the observer has applied all events.
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
        let shared = Arc::new(Shared {
            channel,
            state: Lendable::new(state),
            is_stopping: AtomicBool::new(false),
            is_overdue: AtomicBool::new(false),
            ended: Mutex::new(false),
            end: Condvar::new(),
            last_health: Mutex::default(),
            restarts: AtomicU64::new(0),
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

    /// Applies every event that was reported before the call, then calls `read`. Waits as long as this takes.
    pub fn with_current_state<T>(
        &self,
        read: impl FnOnce(&mut InFlightRequests, MonotonicInstant) -> T,
    ) -> T {
        let mut state = self.shared.state.lend();
        state.drain(&self.shared, &|_| false);
        state.read(read)
    }

    /// Applies the events that were reported before the call, for at most half a second, and then calls `read`. Returns
    /// `None` if another thread uses the requests during this time.
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
            unobserved: health.unobserved + lost.exchanges,
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
        let state = self.shared.state.lend_within(limit);
        self.shared.is_overdue.store(state.is_none(), Ordering::Relaxed);
        let mut state = state?;
        let deadline = clock::now() + READ_TIMEOUT;
        state.drain(&self.shared, &|now| now >= deadline);
        let lag = state.backlog.age(clock::now());
        Some(state.read(|requests, at| read(requests, at, lag)))
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

    /// Ends the thread and applies the remaining events, within `limit`. In the second half of the time, the bodies of
    /// the remaining events are not parsed any more. Returns whether all events were applied.
    pub fn stop(&self, limit: Duration) -> bool {
        let started = clock::now();
        let left = |of: Duration| of.saturating_sub(clock::now().since(started));
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.channel.wake();
        self.shared.await_end(left(limit));
        let Some(mut state) = self.shared.state.lend_within(left(limit)) else {
            return false;
        };
        state.drain(&self.shared, &|_| left(limit / 2).is_zero());
        state.backlog.skip_bodies();
        let is_complete = state.drain(&self.shared, &|_| left(limit).is_zero());
        state.read(|_, _| ());
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

impl Shared {
    /// Runs the thread. After a panic, the thread continues with the event behind the one that caused the panic.
    fn run(&self) {
        while catch_unwind(AssertUnwindSafe(|| self.observe())).is_err() {
            let restarts = self.restarts.fetch_add(1, Ordering::Relaxed) + 1;
            self_telemetry::observer_restarted(restarts);
            // A panic that recurs must not keep a core busy.
            self.channel.park(DRAIN_INTERVAL);
        }
        *lock(&self.ended) = true;
        self.end.notify_all();
    }

    fn observe(&self) {
        let mut due = clock::now() + IDLE_INTERVAL;
        while !self.is_stopping() {
            let late = clock::now().since(due);
            self.state.lend_last().requests.record_observer_delay(late);
            while !self.state.lend_last().drain(self, &|_| self.is_interrupted()) {
                if self.is_stopping() {
                    return;
                }
            }
            self.sweep();
            // The count is read after the drain. If it is 0, the next request that opens wakes this thread.
            let is_idle = self.channel.open_exchanges() == 0;
            let pause = if is_idle { IDLE_INTERVAL } else { DRAIN_INTERVAL };
            due = clock::now() + pause;
            self.channel.park(pause);
        }
    }

    fn sweep(&self) {
        #[cfg(test)]
        if let Some(fault) = lock(&self.fault).take() {
            fault();
        }
        let mut state = self.state.lend_last();
        let now = clock::now();
        if now.since(state.swept) >= SWEEP_INTERVAL {
            state.swept = now;
            state.requests.sweep(now);
        }
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    fn is_interrupted(&self) -> bool {
        self.state.is_wanted() || self.is_stopping()
    }

    fn await_end(&self, limit: Duration) {
        let ended = lock(&self.ended);
        drop(self.end.wait_timeout_while(ended, limit, |ended| !*ended));
    }
}

impl ObserverState {
    fn read<T>(&mut self, read: impl FnOnce(&mut InFlightRequests, MonotonicInstant) -> T) -> T {
        let now = clock::now();
        self.requests.sweep(now);
        read(&mut self.requests, now)
    }

    /// Applies the events of all shards. Returns `false` if it was interrupted.
    fn drain(&mut self, shared: &Shared, interrupt: &dyn Fn(MonotonicInstant) -> bool) -> bool {
        let Self { requests, backlog, .. } = self;
        // Heartbeats are read after a shard. An event that a pause delayed therefore has an earlier timestamp than the
        // heartbeat after the pause.
        let beat = |requests: &mut InFlightRequests| {
            for at in lock(&shared.heartbeats).drain(..) {
                requests.record_heartbeat(at);
            }
        };
        let channel = &shared.channel;
        backlog
            .drain(requests, DrainContext { channel, clock: &clock::now, beat: &beat, interrupt })
    }
}
