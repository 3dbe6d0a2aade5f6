//! What the exchanges in flight do to error budgets: objectives on slices of time are told how many streams there are and
//! what they bring. What ended exchanges do to budgets stands where they end.

use crate::in_flight::InFlightRequests;
use crate::in_flight::active_request::ActiveRequest;
use tokengauge_measure::load::State;
use tokengauge_measure::slo::{Ledger, Malformed, Objective, Restored, State as Books, Subject};
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::label::Name;

impl InFlightRequests {
    /// Replaces the objectives; those that stay the same keep their history.
    pub fn set_objectives(&mut self, at: MonotonicInstant, objectives: Vec<Objective>) {
        self.ledger.replace(at, objectives);
        for flight in self.flights.values_mut() {
            flight.slices = None;
        }
    }

    /// The books as they stand; `wall` is the time of day at `at`.
    pub fn slo_state(&self, at: MonotonicInstant, wall: WallTime) -> Books {
        self.ledger.state(at, wall)
    }

    /// Takes up the books of a process before, before any exchange.
    ///
    /// # Errors
    /// Where they are not such as a process leaves behind; then nothing changes.
    pub fn restore_slo_state(
        &mut self,
        books: &Books,
        at: MonotonicInstant,
        wall: WallTime,
    ) -> Result<Restored, Malformed> {
        self.ledger.restore(books, at, wall)
    }

    /// Counts the streams in flight for objectives on slices of time.
    pub(super) fn look_at_slices(&mut self, at: MonotonicInstant) {
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
        self.ledger.look(at, |index| u32::try_from(count(index)).unwrap_or(u32::MAX));
    }
}

impl ActiveRequest {
    /// Tells output tokens that have just arrived.
    pub(super) fn tell_slices(&mut self, at: MonotonicInstant, tokens: u64, ledger: &mut Ledger) {
        if tokens > 0
            && ledger.has_slices()
            && let Some(slices) = self.slices(ledger)
        {
            ledger.stream(at, slices, tokens);
        }
    }

    /// Whether it is a stream that the backend works on, or could: its request is there, and its client reads.
    fn is_running(&self, at: MonotonicInstant) -> bool {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::Sinks;
    use crate::tests::{STREAMED, at, chunk, open};
    use tokengauge_measure::slo::{Counting, Counts, Indicator, Scope};
    use tokengauge_telemetry::{Instruments, SnapshotSource, StateSnapshot};
    use tokengauge_types::event::{
        BackpressureTime, Direction, Ending, ExchangeId, Headers, LiveState, ObserverEvent,
        ResponseHead, TimestampedEvent, WaitingFor,
    };
    use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Label};

    struct Scene {
        requests: InFlightRequests,
        cell: Arc<LiveState>,
    }

    impl Scene {
        /// A requests that wants at least 5 tokens per second of minutes with two streams to `gpt-*`.
        fn new() -> Self {
            let (config, _) = tokengauge_telemetry::Config::from_env(|_| None);
            let readings = SnapshotSource::new(StateSnapshot::default);
            let (instruments, _) =
                Instruments::new(&config, CardinalityLimits::default(), readings);
            let gate = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
            let sinks = Sinks { instruments, record: Box::new(|_| ()) };
            let objective = |model: &str| Objective {
                name: Label::known(model),
                indicator: Indicator::SystemRate { floor: 5.0, min_streams: 2 },
                target: 0.99,
                window: Duration::from_secs(86_400),
                scope: Scope { model: Some(model.to_owned()), ..Scope::default() },
                counting: Counting::default(),
            };
            let objectives = ["gpt-*", "claude-*"].map(objective);
            Self {
                requests: InFlightRequests::new(objectives.into(), gate, sinks),
                cell: Arc::default(),
            }
        }

        fn say(&mut self, id: u64, millis: u64, word: ObserverEvent, bytes: &str) {
            let entry = TimestampedEvent { exchange: ExchangeId(id), at: at(millis), word };
            self.requests.apply(entry, bytes.as_bytes());
        }

        fn bytes(&mut self, id: u64, millis: u64, direction: Direction, bytes: &str) {
            let arrival = ObserverEvent::Body {
                direction,
                len: u32::try_from(bytes.len()).unwrap(),
                blocked: BackpressureTime::default(),
            };
            self.say(id, millis, arrival, bytes);
        }

        /// A stream whose head has come.
        fn stream(&mut self, id: u64, millis: u64) {
            let mut opened = open("/v1/chat/completions");
            opened.cell = Arc::clone(&self.cell);
            self.say(id, millis, ObserverEvent::RequestHead(Box::new(opened)), "");
            for word in [ObserverEvent::Admitted, ObserverEvent::RequestHeadSent] {
                self.say(id, millis, word, "");
            }
            self.bytes(id, millis, Direction::Request, STREAMED);
            self.say(id, millis, ObserverEvent::RequestBodySent, "");
            let content_type = ("content-type", Name::new("text/event-stream").unwrap());
            let head = ResponseHead {
                status: 200,
                version: http::Version::HTTP_11,
                headers: Headers::from_iter([content_type]),
                length: None,
                own: false,
            };
            self.say(id, millis, ObserverEvent::ResponseHead(Box::new(head)), "");
        }

        /// Sweeps over the time from `from` to `to`, in seconds; stream 1 brings a token every so many milliseconds.
        fn run(&mut self, from: u64, to: u64, every: u64) -> &mut Self {
            let event = format!("data: {}\n\n", chunk(r#"{"content":" a"}"#, "null"));
            for millis in (from * 1_000..to * 1_000).step_by(50) {
                if millis % every == 0 {
                    self.bytes(1, millis, Direction::Response, &event);
                }
                if millis % 250 == 0 {
                    self.requests.sweep(at(millis));
                }
            }
            self
        }

        /// Of both objectives.
        fn counts(&mut self, secs: u64) -> [Counts; 2] {
            self.requests.sweep(at(secs * 1_000));
            let (_, readings) = self.requests.reading(at(secs * 1_000));
            [0, 1].map(|index| readings[index].counts)
        }
    }

    const NONE: Counts = Counts { good: 0, bad: 0 };

    fn first(good: u64, bad: u64) -> [Counts; 2] {
        [Counts { good, bad }, NONE]
    }

    #[test]
    fn a_minute_is_good_by_what_all_streams_bring_and_bad_when_they_slow_down() {
        let mut scene = Scene::new();
        scene.run(0, 60, 1_000_000);
        scene.stream(1, 59_990);
        scene.stream(2, 59_995);
        scene.run(60, 120, 150);
        assert_eq!(scene.counts(120), first(1, 0), "6.7 tokens per second");
        scene.run(120, 180, 250);
        assert_eq!(scene.counts(180), first(1, 1), "4 tokens per second");
        scene.run(180, 210, 50);
        scene.say(2, 210_000, ObserverEvent::End(Ending::ClientDisconnected), "");
        scene.run(210, 300, 50);
        let told = scene.counts(300);
        assert_eq!(told, first(1, 1), "one stream is too few");
    }

    #[test]
    fn streams_whose_client_does_not_read_are_not_counted_and_gaps_spoil_a_minute() {
        let mut scene = Scene::new();
        scene.run(0, 60, 1_000_000);
        scene.stream(1, 59_990);
        scene.stream(2, 59_995);
        scene.run(60, 90, 250);
        let gap = ObserverEvent::Gap { direction: Direction::Response, bytes: 7 };
        scene.say(2, 90_000, gap, "");
        scene.run(90, 120, 250);
        assert_eq!(scene.counts(120), [NONE; 2], "part of it went by unseen");
        scene.run(120, 150, 250);
        scene.cell.wait_for(WaitingFor::Client, at(150_000));
        scene.run(150, 180, 1_000_000);
        assert_eq!(scene.counts(180), [NONE; 2], "by the clients' fault");
    }

    #[test]
    fn a_reload_finds_the_slices_of_streams_in_flight_anew() {
        let mut scene = Scene::new();
        scene.stream(1, 0);
        scene.stream(2, 0);
        scene.run(0, 60, 250);
        let objectives = scene.requests.reading(at(60_000)).1;
        let objectives = objectives.into_iter().rev().map(|it| it.objective);
        let swapped = objectives.collect();
        scene.requests.set_objectives(at(60_000), swapped);
        scene.run(60, 120, 100);
        assert_eq!(scene.counts(120), [NONE, Counts { good: 1, bad: 0 }]);
    }
}
