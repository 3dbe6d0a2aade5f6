//! Counts an open request as bad as soon as it exceeds the time limit of an SLO. A request that hangs therefore spends
//! the error budget immediately, not only when it ends.

use std::time::Duration;

use tokengauge_measure::record::{Record, Verdict};
use tokengauge_measure::slo::{Deadline, DeadlineEvent, SloTracker, WeightedVerdict};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::label::Label;

/// Delay after a time limit before it counts as exceeded, because bytes that arrived in time may still wait for the
/// observer.
const OBSERVATION_DELAY: Duration = Duration::from_secs(1);

/// The result of an SLO whose threshold has passed.
pub(super) const MISSED: WeightedVerdict = WeightedVerdict { verdict: Verdict::Bad, events: 1 };

/// The deadlines of one open request.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// Time limits that the request can still exceed. `None` until the request was received completely.
    open: Option<Vec<Deadline>>,
    /// Names of the SLOs whose time limit was exceeded. Indices would not work, because a configuration reload changes
    /// them.
    missed: Vec<Label>,
}

impl Deadlines {
    /// Returns whether the deadlines must be set.
    pub(super) const fn are_unknown(&self) -> bool {
        self.open.is_none()
    }

    /// Sets the time limits of the request, without those that the request has already exceeded.
    pub(super) fn set(&mut self, mut deadlines: Vec<Deadline>, slos: &SloTracker) {
        let is_missed = |deadline: &Deadline| {
            let name = slos.objective(deadline.objective).map(|objective| &objective.name);
            name.is_some_and(|name| self.missed.contains(name))
        };
        deadlines.retain(|deadline| !is_missed(deadline));
        self.open = Some(deadlines);
    }

    /// Discards the open deadlines, because the SLOs have changed.
    pub(super) fn reset(&mut self) {
        self.open = None;
    }

    /// Returns the time after accept at which the next time limit can count as exceeded. `None` if there is none.
    pub(super) fn next_limit(&self) -> Option<Duration> {
        let next = self.open.iter().flatten().map(|deadline| deadline.limit).min();
        next.map(|limit| limit + OBSERVATION_DELAY)
    }

    /// Returns the indices of the SLOs whose time limit was exceeded since the last call. `waited` is the time since
    /// accept, without the time in which the client did not read.
    pub(super) fn miss(
        &mut self,
        waited: Duration,
        has_token: bool,
        slos: &SloTracker,
    ) -> Vec<usize> {
        let Self { open: Some(open), missed } = self else {
            return Vec::new();
        };
        let mut indices = Vec::new();
        open.retain(|deadline| {
            let is_met = deadline.event == DeadlineEvent::FirstToken && has_token;
            let is_missed = !is_met && waited > deadline.limit + OBSERVATION_DELAY;
            if is_missed && let Some(objective) = slos.objective(deadline.objective) {
                missed.push(objective.name.clone());
                indices.push(deadline.objective);
            }
            !is_met && !is_missed
        });
        indices
    }

    /// Judges a request that has ended, for each SLO that it has not missed before. Adds the verdicts of all SLOs to
    /// the record.
    pub(super) fn judge_end(
        &self,
        slos: &mut SloTracker,
        at: MonotonicInstant,
        record: &mut Record,
    ) {
        let verdicts: Vec<_> = slos.judge(record).collect();
        for (index, judged) in verdicts {
            let Some(name) = slos.objective(index).map(|objective| objective.name.clone()) else {
                continue;
            };
            let was_missed = self.missed.contains(&name);
            if !was_missed {
                slos.record(at, index, judged);
            }
            if let Some(call) = &mut record.call {
                let verdict = if was_missed { Verdict::Bad } else { judged.verdict };
                call.verdicts.push((name, verdict));
            }
        }
    }
}
