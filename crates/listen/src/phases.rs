//! What all connections of a listener share: the phase of its life, and who is still there.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

/// A listener's life goes one way through these.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub(super) enum Phase {
    Serving,
    /// Each connection ends with the exchange that it is at, or else with its next one. New ones are accepted.
    Parting,
    /// So does each that had no exchange yet; those that wait for a further one end at once.
    Leaving,
    /// Connections end with the exchange they are at.
    Finishing,
    /// Connections end at once.
    Cut,
}

/// Not a watch channel: every wake of a connection asks for the phase, and here that is one relaxed load.
#[derive(Debug, Default)]
pub(super) struct Phases {
    phase: AtomicU8,
    next: AtomicU64,
    members: Mutex<HashMap<u64, Waker>>,
    left: Notify,
    /// Requests whose head was no head: hyper answers those itself, so no exchange tells of them.
    refused: AtomicU64,
}

/// One connection's place; leaves when dropped.
#[derive(Debug)]
pub(super) struct Member {
    phases: Arc<Phases>,
    id: u64,
    seen: Phase,
}

impl Phases {
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn join(self: &Arc<Self>) -> Member {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.members().insert(id, Waker::noop().clone());
        Member { phases: Arc::clone(self), id, seen: Phase::Serving }
    }

    pub(super) fn enter(&self, phase: Phase) {
        let members = self.members();
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        let wakers: Vec<Waker> = members.values().cloned().collect();
        drop(members);
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    pub(super) fn count(&self) -> usize {
        self.members().len()
    }

    /// Waits until nobody is there.
    pub(super) async fn empty(&self) {
        loop {
            let left = self.left.notified();
            if self.count() == 0 {
                return;
            }
            left.await;
        }
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Serving,
            1 => Phase::Parting,
            2 => Phase::Leaving,
            3 => Phase::Finishing,
            _ => Phase::Cut,
        }
    }

    fn members(&self) -> MutexGuard<'_, HashMap<u64, Waker>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    pub(super) fn count_refused(&self) {
        self.phases.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Ready with the new phase when it is not the one last told. To be polled by one task only: its waker is
    /// remembered once.
    pub(super) fn poll_change(
        &mut self,
        cx: &mut Context<'_>,
        registered: &mut bool,
    ) -> Poll<Phase> {
        if !*registered {
            // Under the lock that `enter` takes, so that a change is either seen below or wakes this waker.
            self.phases.members().insert(self.id, cx.waker().clone());
            *registered = true;
        }
        let phase = self.phases.phase();
        if phase == self.seen {
            return Poll::Pending;
        }
        self.seen = phase;
        Poll::Ready(phase)
    }

    /// Waits until the listener no longer serves.
    pub(super) async fn finishing(&mut self) {
        let mut registered = false;
        while poll_fn(|cx| self.poll_change(cx, &mut registered)).await < Phase::Finishing {}
    }

    /// From here on a phase other than the first is told as a change, and to another task.
    pub(super) fn forget(&mut self) {
        self.seen = Phase::Serving;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.phases.members().remove(&self.id);
        self.phases.left.notify_waiters();
    }
}
