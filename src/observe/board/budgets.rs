//! What the exchanges in flight do to error budgets: objectives on slices of time are told how many streams there are and
//! what they bring. What ended exchanges do to budgets stands where they end.

use crate::clock::{Moment, Wall};
use crate::label::Name;
use crate::load::State;
use crate::observe::board::Board;
use crate::observe::board::flight::Flight;
use crate::slo::{Ledger, Malformed, Objective, Restored, State as Books, Subject};

impl Board {
    /// Replaces the objectives; those that stay the same keep their history.
    pub fn replace_objectives(&mut self, at: Moment, objectives: Vec<Objective>) {
        self.ledger.replace(at, objectives);
        for flight in self.flights.values_mut() {
            flight.slices = None;
        }
    }

    /// The books as they stand; `wall` is the time of day at `at`.
    pub fn books(&self, at: Moment, wall: Wall) -> Books {
        self.ledger.state(at, wall)
    }

    /// Takes up the books of a process before, before any exchange.
    ///
    /// # Errors
    /// Where they are not such as a process leaves behind; then nothing changes.
    pub fn take_up(
        &mut self,
        books: &Books,
        at: Moment,
        wall: Wall,
    ) -> Result<Restored, Malformed> {
        self.ledger.restore(books, at, wall)
    }

    /// Counts the streams in flight for objectives on slices of time.
    pub(super) fn look_at_slices(&mut self, at: Moment) {
        if !self.ledger.has_slices() {
            return;
        }
        let mut streams: Vec<usize> = Vec::new();
        for flight in self.flights.values_mut() {
            if flight.is_running(at)
                && let Some(slices) = flight.slices(&self.ledger)
            {
                streams.extend(slices);
            }
        }
        let count = |index| streams.iter().filter(|of| **of == index).count();
        self.ledger
            .look(at, |index| u32::try_from(count(index)).unwrap_or(u32::MAX));
    }
}

impl Flight {
    /// Tells output tokens that have just arrived.
    pub(super) fn tell_slices(&mut self, at: Moment, tokens: u64, ledger: &mut Ledger) {
        if tokens > 0
            && ledger.has_slices()
            && let Some(slices) = self.slices(ledger)
        {
            ledger.stream(at, slices, tokens);
        }
    }

    /// Whether it is a stream that the backend works on, or could: its request is there, and its client reads.
    fn is_running(&self, at: Moment) -> bool {
        let is_stream = match self.state {
            State::Waiting | State::Streaming => true,
            State::Queued | State::Unstreamed => false,
        };
        is_stream && self.unread(at).is_zero()
    }

    /// The objectives on slices of time in whose scope it is. `None` before its request is there whole. Sessions are in
    /// none: they are open for hours and idle for most of that.
    fn slices(&mut self, ledger: &Ledger) -> Option<&[usize]> {
        if self.slices.is_none() {
            let points = self.exchange.points();
            if points.uploaded.is_none() && points.head.is_none() {
                return None;
            }
            let series = self.exchange.series()?;
            let model = self.exchange.model();
            let subject = Subject {
                route: &self.exchange.open().route.name,
                model: model.map_or(series.model.as_str(), |name| name.as_str()),
                tenant: self.exchange.open().who.tenant.as_ref().map(Name::as_str),
                operation: series.operation,
                stream: true,
            };
            let in_scope = || ledger.slices_of(&subject);
            let is_session = self.exchange.websocket().is_some();
            self.slices = Some(if is_session { Vec::new() } else { in_scope() });
        }
        self.slices.as_deref()
    }
}
