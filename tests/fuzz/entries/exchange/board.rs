//! Concurrent exchanges with all consumers of their data, which are load, objectives, metrics and spans.
//!
//! Each exchange has one record, and at the end no exchange is in flight.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokengauge_llm::frame::ParseError;
use tokengauge_measure::record::Record;
use tokengauge_measure::slo::{CountingRules, Objective, Scope, Sli};
use tokengauge_observe::{InFlightRequests, ObserverSettings, Sinks};
use tokengauge_telemetry::span;
use tokengauge_telemetry::{
    Instruments, MetricsReader, SamplingDecision, SnapshotSource, StateSnapshot, TelemetryConfig,
};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{ExchangeId, ObserverEvent, TimestampedEvent};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Label};

use super::words::{ACCEPT, Scene};
use crate::entries::script::Script;

/// Exchanges that receive the same events.
const SIDE_BY_SIDE: [ExchangeId; 2] = [ExchangeId(1), ExchangeId(2)];

/// An exchange without an `Open` event.
const UNKNOWN: ExchangeId = ExchangeId(3);

pub fn board(input: &[u8]) {
    let mut script = Script::new(input);
    let cuts = script.cuts();
    let scene = Scene::parse(script);
    let mut playing = Playing::new();
    let moments = scene.moments();
    let end = *moments.last().expect("the end has an entry");
    for id in SIDE_BY_SIDE {
        playing.say(id, ACCEPT, ObserverEvent::RequestHead(Box::new(scene.open())), b"");
    }
    for (act, at) in scene.acts.iter().zip(&moments) {
        for id in SIDE_BY_SIDE.into_iter().chain([UNKNOWN]) {
            for (word, bytes) in act.words(Some(cuts)) {
                playing.say(id, *at, word, bytes);
            }
        }
        playing.look(*at);
    }
    for id in SIDE_BY_SIDE {
        playing.say(id, end, ObserverEvent::End(scene.ending), b"");
        // Events after the end have no exchange to apply to.
        playing.say(id, end, ObserverEvent::RequestBodySent, b"");
        playing.say(id, end, ObserverEvent::End(scene.ending), b"");
    }
    playing.finish(end);
}

struct Playing {
    board: InFlightRequests,
    /// Results of all records.
    records: Arc<Mutex<Vec<Told>>>,
    _collector: MetricsReader,
}

/// Properties of a record that the test examines.
struct Told {
    exchange: ExchangeId,
    broke_off: bool,
    spans: [usize; 2],
}

impl Playing {
    fn new() -> Self {
        let (config, _) = TelemetryConfig::from_env(|_| None);
        let readings = SnapshotSource::new(StateSnapshot::default);
        let (instruments, collector) =
            Instruments::new(&config, CardinalityLimits::default(), readings);
        let records = Arc::default();
        let told = Arc::clone(&records);
        let record = Box::new(move |record: &Record| note(&told, record));
        let sinks = Sinks { instruments, record };
        let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
        Self {
            board: InFlightRequests::new(
                ObserverSettings::with_objectives(objectives()),
                limiter,
                sinks,
            ),
            records,
            _collector: collector,
        }
    }

    fn say(
        &mut self,
        exchange: ExchangeId,
        at: MonotonicInstant,
        event: ObserverEvent,
        bytes: &[u8],
    ) {
        self.board.apply(TimestampedEvent { exchange, at, event }, bytes);
    }

    /// Sweeps the exchanges, as every reading does.
    fn look(&mut self, at: MonotonicInstant) {
        self.board.sweep(at);
        // A WebSocket can contain further calls.
        assert!(self.board.streams(at).len() >= SIDE_BY_SIDE.len());
    }

    fn finish(mut self, at: MonotonicInstant) {
        let (load, _) = self.board.reading(at);
        let active: u64 = load.routes.iter().flat_map(|route| route.active).sum();
        assert_eq!((self.board.in_flight(), active), (0, 0), "still in flight");
        let records = self.records.lock().expect("nothing panicked");
        let ended: Vec<_> = records.iter().map(|told| told.exchange).collect();
        assert_eq!(ended, SIDE_BY_SIDE, "each exchange has one record");
        for told in records.iter() {
            assert!(!told.broke_off, "a stage panicked");
            let [made, expected] = told.spans;
            assert_eq!(made, expected, "spans");
        }
    }
}

fn note(records: &Mutex<Vec<Told>>, record: &Record) {
    let spans = span::encode_spans(record, Some(20), SamplingDecision::default());
    if record.is_turn {
        return;
    }
    let told = Told {
        exchange: record.exchange,
        broke_off: record.anomalies.contains(&(ParseError::Panic, 1)),
        spans: [spans.len(), span::span_count(record)],
    };
    records.lock().expect("nothing panicked").push(told);
}

fn objectives() -> Vec<Objective> {
    let second = Duration::from_secs(1);
    let indicators = [
        Sli::Availability,
        Sli::Ttft(second),
        Sli::OutputRate(10.0),
        Sli::Duration(second),
        Sli::SystemRate { floor: 10.0, min_streams: 1 },
    ];
    let objective = |(name, indicator)| Objective {
        name: Label::from_trusted(name),
        indicator,
        target: 0.99,
        window: Duration::from_secs(86_400),
        scope: Scope::default(),
        counting: CountingRules::default(),
    };
    let names = ["available", "first", "rate", "duration", "system"];
    names.into_iter().zip(indicators).map(objective).collect()
}
