//! Judges open requests whose objective on a time is already missed, so that a request that hangs spends the error budget
//! while it hangs.

use std::time::Duration;

use crate::in_flight::InFlightRequests;
use crate::in_flight::active_request::ActiveRequest;
use tokengauge_measure::record::{Record, Verdict};
use tokengauge_measure::slo::{Awaited, Deadline, SloTracker, WeightedVerdict};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label::Label;

/// Time after a limit at which it counts as missed. Bytes that arrived within the limit may still wait for the observer.
const OBSERVATION_DELAY: Duration = Duration::from_secs(1);

const MISSED: WeightedVerdict = WeightedVerdict { verdict: Verdict::Bad, events: 1 };

/// The deadlines of one open request.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// The deadlines that the request can still miss. `None` until the request is known.
    open: Option<Vec<Deadline>>,
    /// Names of the objectives that the request has missed. Names, because a reload changes the indices.
    missed: Vec<Label>,
}

impl Deadlines {
    /// Discards the open deadlines, because the objectives have changed.
    pub(super) fn reset(&mut self) {
        self.open = None;
    }
}

impl InFlightRequests {
    /// Records the objectives whose time limit an open request has exceeded at `at`.
    pub(super) fn judge_deadlines(&mut self, at: MonotonicInstant) {
        let Self { requests, slos, .. } = self;
        for request in requests.values_mut() {
            for missed in request.miss_deadlines(at, slos) {
                slos.note(at, missed, MISSED);
            }
        }
    }

    /// Judges a request that has ended, except by the objectives that it had already missed. Adds all verdicts to the
    /// record.
    pub(super) fn judge_end(
        slos: &mut SloTracker,
        at: MonotonicInstant,
        deadlines: &Deadlines,
        record: &mut Record,
    ) {
        let verdicts: Vec<_> = slos.judge(record).collect();
        for (index, judged) in verdicts {
            let Some(name) = slos.objective(index).map(|objective| objective.name.clone()) else {
                continue;
            };
            let was_missed = deadlines.missed.contains(&name);
            if !was_missed {
                slos.note(at, index, judged);
            }
            if let Some(call) = &mut record.call {
                let verdict = if was_missed { Verdict::Bad } else { judged.verdict };
                call.verdicts.push((name, verdict));
            }
        }
    }
}

impl ActiveRequest {
    /// Returns the objectives that the request has missed since the last call.
    fn miss_deadlines(&mut self, at: MonotonicInstant, slos: &SloTracker) -> Vec<usize> {
        if self.deadlines.open.is_none() {
            self.deadlines.open = self.find_deadlines(slos);
        }
        let has_token = self.exchange.points().token.is_some();
        let waited = self.waited(at);
        let is_unobserved = self.exchange.has_gap();
        let Deadlines { open: Some(open), missed } = &mut self.deadlines else {
            return Vec::new();
        };
        let mut indices = Vec::new();
        open.retain(|deadline| {
            let is_met = deadline.awaited == Awaited::FirstToken && has_token;
            let is_missed =
                !is_met && !is_unobserved && waited > deadline.limit + OBSERVATION_DELAY;
            if is_missed && let Some(objective) = slos.objective(deadline.objective) {
                missed.push(objective.name.clone());
                indices.push(deadline.objective);
            }
            !is_met && !is_missed
        });
        indices
    }

    /// Returns the time since accept in which the client read.
    fn waited(&self, at: MonotonicInstant) -> Duration {
        let took = at.since(self.exchange.points().accept);
        took.saturating_sub(self.exchange.blocked()).saturating_sub(self.unread(at))
    }

    /// Returns the deadlines of the request, once its body was received completely. Until then it is unknown which
    /// objectives apply, and the client can still break off.
    fn find_deadlines(&mut self, slos: &SloTracker) -> Option<Vec<Deadline>> {
        if !self.exchange.has_whole_request() {
            return None;
        }
        let accepted = self.exchange.points().accept;
        let mut deadlines =
            self.with_subject(|subject| slos.deadlines_of(subject, accepted)).unwrap_or_default();
        let is_missed = |deadline: &Deadline| {
            let name = slos.objective(deadline.objective).map(|objective| &objective.name);
            name.is_some_and(|name| self.deadlines.missed.contains(name))
        };
        deadlines.retain(|deadline| !is_missed(deadline));
        Some(deadlines)
    }
}
