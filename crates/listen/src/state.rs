//! State shared by all connections of a listener: the shutdown phase and the list of open connections.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::active_exchanges::ActiveExchanges;
use super::header_limits::HeadersTooLarge;
use super::log_throttle::LogThrottle;
use tokengauge_types::sync::lock;

/// Shutdown phases of a listener. A listener never returns to an earlier phase.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub(super) enum ListenerPhase {
    Serving,
    /// Each connection ends after its current request. An idle HTTP/1 connection serves one more request first. The
    /// listener still accepts new connections.
    Draining,
    /// Like `Draining`, but idle connections that have served a request end immediately. Other idle connections may
    /// serve one request first.
    ClosingIdle,
    /// The listener accepts no new connections. Open connections end after their current request.
    ClosingAll,
    /// All connections end immediately.
    Aborting,
}

/// Shutdown phase and open connections of a listener. Each poll of a connection reads the phase with one relaxed load,
/// which is cheaper than a watch channel.
#[derive(Debug, Default)]
pub(super) struct ListenerState {
    phase: AtomicU8,
    next: AtomicU64,
    members: Mutex<HashMap<u64, OpenConnection>>,
    left: Notify,
    /// Number of requests with malformed or too large headers that hyper or the listener answered. They are not counted
    /// elsewhere.
    pub(super) refused: AtomicU64,
    /// Number of requests beyond the limit of the listener.
    pub(super) over_limit: AtomicU64,
    /// Number of connections that were closed for new ones.
    pub(super) evicted: AtomicU64,
    large_headers: LogThrottle,
}

/// What the listener knows about an open connection.
#[derive(Debug)]
struct OpenConnection {
    /// Wakes the task that serves the connection.
    waker: Waker,
    /// IP address of the client. `None` for a Unix socket.
    client: Option<IpAddr>,
    exchanges: Arc<ActiveExchanges>,
}

/// Entry of one connection in the list of open connections. Dropping this value removes the entry. The value belongs to
/// the connection's socket, so that a WebSocket stays in the list until it closes.
#[derive(Debug)]
pub(super) struct Member {
    state: Arc<ListenerState>,
    id: u64,
}

/// Passes phase changes to the task of one connection.
#[derive(Debug)]
pub(super) struct PhaseWatcher {
    state: Arc<ListenerState>,
    id: u64,
    exchanges: Arc<ActiveExchanges>,
    seen: ListenerPhase,
    is_registered: bool,
}

impl ListenerState {
    pub(super) fn join(
        self: &Arc<Self>,
        client: Option<IpAddr>,
        exchanges: &Arc<ActiveExchanges>,
    ) -> (Member, PhaseWatcher) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let waker = Waker::noop().clone();
        let connection = OpenConnection { waker, client, exchanges: Arc::clone(exchanges) };
        lock(&self.members).insert(id, connection);
        let watcher = PhaseWatcher {
            state: Arc::clone(self),
            id,
            exchanges: Arc::clone(exchanges),
            seen: ListenerPhase::Serving,
            is_registered: false,
        };
        (Member { state: Arc::clone(self), id }, watcher)
    }

    /// Logs a request with too large headers, at most one per minute. `size` is `None` if even the parser has rejected
    /// the headers, so that their size is unknown.
    pub(super) fn log_large_headers(&self, size: Option<HeadersTooLarge>) {
        if !self.large_headers.is_due() {
            return;
        }
        let size = size.map_or_else(
            || "far more than the limits (limits.header_lines, limits.header_size)".to_owned(),
            |size| size.to_string(),
        );
        tracing::warn!(size, "request headers are too large, answered with status 431");
    }

    /// Makes room for a new connection. Among clients with idle connections, the one with the most connections loses
    /// its longest idle connection. A client therefore cannot lock others out with unused connections. Visits every
    /// connection, so call it only at the limit.
    pub(super) fn close_longest_waiting(&self) {
        let members = lock(&self.members);
        let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for connection in members.values() {
            *counts.entry(connection.client).or_default() += 1;
        }
        let waiting = members.values().filter_map(|connection| {
            let since = connection.exchanges.waiting_since()?;
            let count = counts.get(&connection.client).copied().unwrap_or_default();
            Some(((Reverse(count), since), connection))
        });
        if let Some((_, connection)) = waiting.min_by_key(|(order, _)| *order) {
            connection.exchanges.evict();
            connection.waker.wake_by_ref();
        }
    }

    /// Replaces the waker of a connection. Has no effect if the connection is closed.
    fn set_waker(&self, id: u64, waker: &Waker) {
        if let Some(connection) = lock(&self.members).get_mut(&id) {
            connection.waker.clone_from(waker);
        }
    }

    pub(super) fn enter(&self, phase: ListenerPhase) {
        let members = lock(&self.members);
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        let wakers: Vec<Waker> = members.values().map(|member| member.waker.clone()).collect();
        drop(members);
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.members).len()
    }

    /// Waits until no connection is open.
    pub(super) async fn empty(&self) {
        loop {
            let left = self.left.notified();
            if self.count() == 0 {
                return;
            }
            left.await;
        }
    }

    fn phase(&self) -> ListenerPhase {
        match self.phase.load(Ordering::Acquire) {
            0 => ListenerPhase::Serving,
            1 => ListenerPhase::Draining,
            2 => ListenerPhase::ClosingIdle,
            3 => ListenerPhase::ClosingAll,
            _ => ListenerPhase::Aborting,
        }
    }
}

impl PhaseWatcher {
    /// Counts a request that hyper has answered, because its headers are malformed or too large for its parser.
    pub(super) fn count_refused(&self, is_too_large: bool) {
        self.state.refused.fetch_add(1, Ordering::Relaxed);
        if is_too_large {
            self.state.log_large_headers(None);
        }
    }

    /// Returns `Ready` with the listener's phase when the phase has changed. If the connection is closed to make room
    /// for another one, the phase is [`ListenerPhase::Aborting`]. Only one task may poll at a time, because only one waker is
    /// stored.
    pub(super) fn poll_change(&mut self, cx: &Context<'_>) -> Poll<ListenerPhase> {
        if !self.is_registered {
            // Stores the waker under the lock that `enter` takes. A phase change is then either read below or
            // wakes this waker.
            self.state.set_waker(self.id, cx.waker());
            self.is_registered = true;
        }
        let is_evicted = self.exchanges.is_evicted();
        let phase = if is_evicted { ListenerPhase::Aborting } else { self.state.phase() };
        if phase == self.seen {
            return Poll::Pending;
        }
        self.seen = phase;
        if is_evicted {
            self.state.evicted.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(phase)
    }

    /// Waits until the listener has reached `phase`.
    pub(super) async fn wait_for(&mut self, phase: ListenerPhase) {
        self.reset();
        while poll_fn(|cx| self.poll_change(cx)).await < phase {}
    }

    /// Prepares for use in another task. That task then receives the current phase as a change, if it is later than
    /// `Serving`.
    pub(super) fn reset(&mut self) {
        self.seen = ListenerPhase::Serving;
        self.is_registered = false;
    }
}

impl Drop for PhaseWatcher {
    fn drop(&mut self) {
        // A stored waker would keep the memory of the finished task while an upgraded connection is open.
        self.state.set_waker(self.id, Waker::noop());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        lock(&self.state.members).remove(&self.id);
        self.state.left.notify_waiters();
    }
}
