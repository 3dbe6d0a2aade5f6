//! The idle HTTP/1.1 connections of one upstream.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{self, Handle};

use super::UpstreamConfig;
use super::health::UpstreamHealth;
use super::http1::Http1Connection;
use tokengauge_telemetry::self_telemetry;
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::sync::lock;

/// Idle connections, ordered by their last use. The most recently used connection is reused first, so that unneeded
/// connections reach their idle timeout.
#[derive(Debug)]
pub struct Pool {
    idle_timeout: Duration,
    max_age: Duration,
    max_idle: usize,
    idle: Mutex<VecDeque<IdleConnection>>,
    reuse: Reuse,
    health: Arc<UpstreamHealth>,
}

#[derive(Debug)]
struct IdleConnection {
    connection: Box<Http1Connection>,
    /// The runtime on which the connection was last used.
    runtime: runtime::Id,
}

/// Detects that the upstream closes idle connections before the proxy can reuse them.
#[derive(Debug, Default)]
struct Reuse {
    /// Number of consecutive attempts to reuse a connection that found only closed connections.
    failures: AtomicU32,
    /// End of the current pause of the pool, in nanoseconds of the monotonic clock.
    paused_until: AtomicU64,
    was_logged: AtomicBool,
}

/// Number of failures in a row that start a [`PAUSE`]. A restart of the upstream causes only one failure, because the
/// first attempt removes all closed connections.
const MAX_FAILURES: u32 = 3;

/// Time for which no connection is added to the pool. After the pause, a single failure starts the next one.
const PAUSE: Duration = Duration::from_secs(60);

/// Number of the most recently used connections among which a connection of the current runtime is preferred. The limit
/// bounds the time of the search.
const MAX_SEARCHED: usize = 128;

impl Pool {
    pub(super) fn new(config: &UpstreamConfig, health: Arc<UpstreamHealth>) -> Self {
        Self {
            idle_timeout: config.idle_timeout,
            max_age: config.max_connection_age,
            max_idle: config.pool_size,
            idle: Mutex::default(),
            reuse: Reuse::default(),
            health,
        }
    }

    /// Takes an open connection, if there is one. Closes connections that are too old.
    ///
    /// Prefers connections that were last used on the current runtime. Other connections must first
    /// [move](super::stream::StreamState::probe) to it.
    pub(super) fn take(&self) -> Option<Box<Http1Connection>> {
        let now = clock::now();
        let idle_since = now.saturating_sub(self.idle_timeout);
        let opened_at = now.saturating_sub(self.max_age);
        let mut closed = 0;
        let taken = loop {
            let Some(mut connection) = self.pop() else { break None };
            if connection.idle_since >= idle_since && connection.opened_at >= opened_at {
                if connection.is_open() {
                    break Some(connection);
                }
                closed += 1;
            }
        };
        if closed > 0 {
            self.health.count_stale(closed);
            if taken.is_none() {
                self.on_reuse_failed();
            }
        }
        taken
    }

    fn pop(&self) -> Option<Box<Http1Connection>> {
        let current = Handle::current().id();
        let mut idle = lock(&self.idle);
        let mut latest = idle.iter().rev().take(MAX_SEARCHED);
        let newer = latest.position(|it| it.runtime == current).unwrap_or(0);
        let index = idle.len().checked_sub(newer + 1)?;
        idle.remove(index).map(|it| it.connection)
    }

    /// Returns `connection` to the pool if it is still usable. Otherwise, closes it.
    pub(super) fn keep(self: &Arc<Self>, mut connection: Box<Http1Connection>) {
        let now = clock::now();
        let is_pooling = self.max_idle > 0
            && !self.idle_timeout.is_zero()
            && now.nanos() >= self.reuse.paused_until.load(Ordering::Relaxed);
        if !is_pooling || !connection.is_usable() {
            return;
        }
        connection.idle_since = now;
        let mut idle = lock(&self.idle);
        let was_empty = idle.is_empty();
        let surplus = (idle.len() >= self.max_idle).then(|| idle.pop_front());
        idle.push_back(IdleConnection { connection, runtime: Handle::current().id() });
        drop(idle);
        drop(surplus);
        if was_empty {
            tokio::spawn(expire_idle(Arc::clone(self)));
        }
    }

    /// Records that a reused connection returned a response.
    pub(super) fn on_reused(&self) {
        if self.reuse.failures.load(Ordering::Relaxed) > 0 {
            self.reuse.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Records that the upstream had closed a reused connection.
    pub(super) fn on_reuse_failed(&self) {
        let Reuse { failures, paused_until, was_logged } = &self.reuse;
        if failures.fetch_add(1, Ordering::Relaxed) + 1 < MAX_FAILURES {
            return;
        }
        failures.store(MAX_FAILURES - 1, Ordering::Relaxed);
        paused_until.store((clock::now() + PAUSE).nanos(), Ordering::Relaxed);
        if !was_logged.swap(true, Ordering::Relaxed) {
            self_telemetry::upstream_closes_idle_connections(self.health.name(), PAUSE);
        }
    }

    /// Closes connections after their idle timeout. Returns the number of remaining connections.
    fn expire(&self, now: MonotonicInstant) -> usize {
        let oldest = now.saturating_sub(self.idle_timeout);
        let mut idle = lock(&self.idle);
        let old = idle.partition_point(|it| it.connection.idle_since < oldest);
        let expired: Vec<_> = idle.drain(..old).collect();
        let left = idle.len();
        drop(idle);
        drop(expired);
        left
    }
}

/// Closes idle connections periodically after their timeout. Returns when the pool is empty.
async fn expire_idle(pool: Arc<Pool>) {
    loop {
        tokio::time::sleep(pool.idle_timeout).await;
        if pool.expire(clock::now()) == 0 {
            return;
        }
    }
}
