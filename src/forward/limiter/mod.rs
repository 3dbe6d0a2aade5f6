//! Limits the number of concurrent requests of one route, and queues requests beyond the limit.
//!
//! A request holds a [`Permit`] while it is queued and while it runs. Dropping the permit ends either state and admits
//! the next request. Every end of a request drops the permit: a complete response, a disconnected client, a failed
//! upstream, a closed tunnel, or an abort at shutdown.
//!
//! Tokio's semaphore is not suitable. It reports no queue length, and its limit cannot be lowered below the number of
//! permits in use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use tokengauge_types::sync::lock;

/// The concurrency limit of a route. Requests beyond the limit wait in a queue. If the queue is full, they are rejected
/// with status 429.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConcurrencyLimit {
    /// Maximum number of running requests in this process.
    pub max_in_flight: usize,
    /// Maximum number of queued requests.
    pub max_queue: usize,
    /// Maximum time that a request waits in the queue.
    pub queue_timeout: Duration,
}

impl ConcurrencyLimit {
    /// Default maximum number of queued requests: eight batches of one busy engine. In a longer queue, the last
    /// requests would time out before they are forwarded.
    pub const DEFAULT_MAX_QUEUE: usize = 64;
    /// Default maximum time in the queue. People wait about this long for the first token. A client that retries later
    /// finds a shorter queue.
    pub const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
}

/// Concurrency limiter of one route. Admits a request if a permit is free. Other requests are queued in the order of
/// arrival.
#[derive(Debug)]
pub struct ConcurrencyLimiter(Mutex<LimiterState>);

#[derive(Debug)]
struct LimiterState {
    /// The current limit. `None` if a reload has removed the limit of the route. Every request is then admitted.
    limit: Option<ConcurrencyLimit>,
    /// Number of admitted requests that have not ended. Exceeds the limit only after a reload has lowered the limit.
    running: usize,
    /// Queued requests in the order of arrival, at most `limit.max_queue`. After a reload has lowered this limit, there
    /// can be more. Empty while a permit is free.
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    /// Number of the next request.
    next: u64,
}

/// Permit of a request that runs or is queued. Dropping the permit makes room for the next request.
#[derive(Debug)]
pub struct Permit {
    limiter: Arc<ConcurrencyLimiter>,
    number: u64,
}

/// A queued request. Dropping this value removes the request from the queue.
#[derive(Debug)]
pub struct Queued {
    pub(super) permit: Permit,
    /// Resolves when the request is admitted.
    pub(super) admitted: oneshot::Receiver<()>,
    pub(super) limit: ConcurrencyLimit,
}

#[derive(Debug)]
pub enum Entry {
    Admitted(Permit),
    Queued(Queued),
    /// All permits are in use and the queue is full.
    Full(ConcurrencyLimit),
}

impl ConcurrencyLimiter {
    pub(super) fn new(limit: ConcurrencyLimit) -> Arc<Self> {
        Arc::new(Self(Mutex::new(LimiterState {
            limit: Some(limit),
            running: 0,
            waiting: BTreeMap::new(),
            next: 0,
        })))
    }

    /// Admits a request. If no permit is free, queues the request.
    pub(super) fn enter(self: &Arc<Self>) -> Entry {
        let mut state = self.state();
        let number = state.next;
        let permit = || Permit { limiter: Arc::clone(self), number };
        let entry = match state.limit {
            Some(limit) if state.running >= limit.max_in_flight => {
                if state.waiting.len() >= limit.max_queue {
                    return Entry::Full(limit);
                }
                let (sender, admitted) = oneshot::channel();
                state.waiting.insert(number, sender);
                Entry::Queued(Queued { permit: permit(), admitted, limit })
            }
            Some(_) | None => {
                state.running += 1;
                Entry::Admitted(permit())
            }
        };
        state.next += 1;
        entry
    }

    /// Replaces the limit. Running and queued requests remain. Under a lower limit, the next request is admitted once
    /// enough requests have ended.
    pub(super) fn set_limit(&self, limit: Option<ConcurrencyLimit>) {
        self.state().limit = limit;
        self.admit_waiting();
    }

    /// Admits queued requests while permits are free. Wakes each request without holding the lock, because waking may
    /// run code of the runtime.
    fn admit_waiting(&self) {
        loop {
            let next = self.state().admit_next();
            let Some(admitted) = next else { return };
            // If the exchange is just leaving the queue, sending fails. The exchange then drops its permit, which
            // admits the next exchange.
            admitted.send(()).unwrap_or_default();
        }
    }

    fn leave(&self, number: u64) {
        let mut state = self.state();
        let was_waiting = state.waiting.remove(&number).is_some();
        if !was_waiting {
            debug_assert!(state.running > 0, "a permit is returned once");
            state.running = state.running.saturating_sub(1);
        }
        drop(state);
        if !was_waiting {
            self.admit_waiting();
        }
    }

    fn state(&self) -> MutexGuard<'_, LimiterState> {
        lock(&self.0)
    }
}

impl LimiterState {
    /// Admits the first queued request if a permit is free.
    fn admit_next(&mut self) -> Option<oneshot::Sender<()>> {
        let most = self.limit.map_or(usize::MAX, |limit| limit.max_in_flight);
        if self.running >= most {
            return None;
        }
        let (_, admitted) = self.waiting.pop_first()?;
        self.running += 1;
        Some(admitted)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.leave(self.number);
    }
}

#[cfg(test)]
mod tests;
