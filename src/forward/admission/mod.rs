//! How many exchanges of one route go on at once, and the queue before them.
//!
//! A [`Permit`] is held for as long as an exchange waits or goes on; whichever of the two it was, dropping it ends it and
//! lets the next one in. So there is no way out of an exchange that forgets to give its place back: body read to its
//! end, client gone, upstream failed, tunnel closed, cut at a drain.
//!
//! Not tokio's semaphore: it knows neither how many wait nor how to have fewer permits than are out.

mod wait;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use self::wait::Queued;
pub(super) use self::wait::{BufferedBody, WaitInterrupt, overload};

use crate::route::ConcurrencyLimit;

/// Lets the exchanges of one route in: at once while there are places, then one by one, the first come first.
#[derive(Debug)]
pub(super) struct ConcurrencyLimiter(Mutex<State>);

#[derive(Debug)]
struct State {
    /// `None` once its route has no limit any more: everybody is let in.
    limits: Option<ConcurrencyLimit>,
    /// Exchanges let in that are not over. More than the limit only after a reload lowered it.
    inside: usize,
    /// Those that wait, the first come first; never more than `limits.max_queue`, but for those that were already there when
    /// a reload lowered it. Nobody waits while there is a place.
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
    /// Who comes next gets this number.
    next: u64,
}

/// A place inside or in the queue, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    door: Arc<ConcurrencyLimiter>,
    number: u64,
}

/// What an exchange finds at the door.
#[derive(Debug)]
pub(super) enum Entry {
    Inside(Permit),
    Queued(Queued),
}

/// The queue has no place either. Holds the limits that say so.
#[derive(Debug)]
pub(super) struct Full(pub(super) ConcurrencyLimit);

impl ConcurrencyLimiter {
    pub(super) fn new(limits: ConcurrencyLimit) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            limits: Some(limits),
            inside: 0,
            waiting: BTreeMap::new(),
            next: 0,
        })))
    }

    /// Takes a place inside, else one in the queue.
    pub(super) fn enter(self: &Arc<Self>) -> Result<Entry, Full> {
        let mut state = self.state();
        let number = state.next;
        let place = || Permit { door: Arc::clone(self), number };
        let entry = match state.limits {
            Some(limits) if state.inside >= limits.max_in_flight => {
                if state.waiting.len() >= limits.max_queue {
                    return Err(Full(limits));
                }
                let (sender, turn) = oneshot::channel();
                state.waiting.insert(number, sender);
                Entry::Queued(Queued::new(place(), turn, limits))
            }
            Some(_) | None => {
                state.inside += 1;
                Entry::Inside(place())
            }
        };
        state.next += 1;
        Ok(entry)
    }

    /// Puts other limits in force. Who is inside or waits stays; a lower limit lets nobody in before so many have left.
    pub(super) fn limit(&self, limits: Option<ConcurrencyLimit>) {
        self.state().limits = limits;
        self.let_in();
    }

    /// Lets in whoever there is a place for. Each is told outside the lock: what a wake does is the runtime's business.
    fn let_in(&self) {
        loop {
            let next = self.state().let_in();
            let Some(turn) = next else { return };
            // One who is just leaving does not hear it; dropping the place, that one lets in the next.
            turn.send(()).unwrap_or_default();
        }
    }

    fn leave(&self, number: u64) {
        let mut state = self.state();
        let waited = state.waiting.remove(&number).is_some();
        if !waited {
            debug_assert!(state.inside > 0, "a place is given back once");
            state.inside = state.inside.saturating_sub(1);
        }
        drop(state);
        if !waited {
            self.let_in();
        }
    }

    /// A poisoned lock is taken all the same: each critical section leaves the numbers whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The first of the queue, if there is a place, which is now its own.
    fn let_in(&mut self) -> Option<oneshot::Sender<()>> {
        let most = self.limits.map_or(usize::MAX, |limits| limits.max_in_flight);
        if self.inside >= most {
            return None;
        }
        let (_, turn) = self.waiting.pop_first()?;
        self.inside += 1;
        Some(turn)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.door.leave(self.number);
    }
}

#[cfg(test)]
mod tests;
