//! Tests every row of `docs/reference/outcomes.md` at literal timestamps: the record of an exchange that ends early,
//! and the duration of each stage. `tests/it/aborts` tests the same rows over sockets.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{STREAMED, WHOLE, at, chunk, open, usage};
use crate::{InFlightRequests, ObserverSettings, Sinks};
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::record::Record;
use tokengauge_measure::slo::Objective;
use tokengauge_telemetry::{Instruments, SnapshotSource, StateSnapshot, prometheus, span};
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, ExchangeId, ObserverEvent, RejectReason, ResponseHead,
    TimeoutKind, TimestampedEvent, UpstreamFailure,
};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Dimension, Name};

#[path = "../../../../tests/it/aborts/table.rs"]
pub(super) mod table;

use table::{Cell, Facts};

/// Timestamps in milliseconds. The request headers arrive at 1,000.
const ADMITTED: u64 = 1_001;
const SENT: u64 = 1_011;
const UPLOADED: u64 = 1_013;
const HEAD: u64 = 1_100;
/// First byte and first event, without text.
const EVENT: u64 = 1_150;
const TOKEN: u64 = 1_200;
const LAST: u64 = 1_300;
const FINISH: u64 = 1_310;
const DONE: u64 = 1_330;
/// The end of the exchange, regardless of its progress.
const END: u64 = 1_400;

/// One exchange and its results.
pub(super) struct Stage {
    pub(super) requests: InFlightRequests,
    collector: tokengauge_telemetry::MetricsReader,
    pub(super) records: Arc<Mutex<Vec<Record>>>,
    /// The values of gauges.
    snapshot: Arc<Mutex<StateSnapshot>>,
}

/// One step of an exchange: the name of its timestamp, and the function that plays the step.
type Step<'a> = (&'a str, &'a dyn Fn(&mut Stage));

impl Stage {
    fn new() -> Self {
        Self::with(Vec::new(), &[])
    }

    /// Creates a stage with `objectives`, on which an upstream has accepted `models` before.
    pub(super) fn with(objectives: Vec<Objective>, models: &[&str]) -> Self {
        let (config, _) = tokengauge_telemetry::TelemetryConfig::from_env(|_| None);
        let snapshot = Arc::<Mutex<StateSnapshot>>::default();
        let current = Arc::clone(&snapshot);
        let readings = SnapshotSource::new(move || current.lock().unwrap().clone());
        let (instruments, collector) =
            Instruments::new(&config, CardinalityLimits::default(), readings);
        let records = Arc::<Mutex<Vec<Record>>>::default();
        let kept = Arc::clone(&records);
        let record = Box::new(move |record: &Record| kept.lock().unwrap().push(record.clone()));
        let sinks = Sinks { instruments, record };
        let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
        for model in models {
            limiter.admit(Dimension::Model, &Name::new(model).unwrap());
        }
        let requests =
            InFlightRequests::new(ObserverSettings::with_objectives(objectives), limiter, sinks);
        Self { requests, collector, records, snapshot }
    }

    /// Runs the periodic work of the observer, and updates the gauges.
    pub(super) fn sweep(&mut self, millis: u64) {
        self.requests.sweep_all(at(millis));
        *self.snapshot.lock().unwrap() = self.requests.snapshot(at(millis));
    }

    pub(super) fn report(&mut self, millis: u64, event: ObserverEvent) {
        self.pass(millis, event, b"");
    }

    fn pass(&mut self, millis: u64, event: ObserverEvent, bytes: &[u8]) {
        let entry = TimestampedEvent { exchange: ExchangeId(1), at: at(millis), event };
        self.requests.apply(entry, bytes);
    }

    pub(super) fn body(&mut self, millis: u64, direction: Direction, text: &str) {
        let event = ObserverEvent::Body {
            direction,
            len: u32::try_from(text.len()).unwrap(),
            blocked: BackpressureTime::default(),
        };
        self.pass(millis, event, text.as_bytes());
    }

    pub(super) fn event(&mut self, millis: u64, data: &str) {
        self.body(millis, Direction::Response, &format!("data: {data}\n\n"));
    }

    fn head(&mut self, millis: u64, status: u16, from_proxy: bool) {
        let kind = if from_proxy { "application/json" } else { "text/event-stream" };
        let head = ResponseHead {
            status,
            version: http::Version::HTTP_11,
            headers: [("content-type", Name::new(kind).unwrap())].into_iter().collect(),
            length: None,
            from_proxy,
        };
        self.report(millis, ObserverEvent::ResponseHead(Box::new(head)));
    }

    /// Plays all events up to the timestamp of `body_wait`, and then its ending.
    fn play(&mut self, cell: &Cell) {
        self.report(1_000, ObserverEvent::RequestHead(Box::new(open("/v1/chat/completions"))));
        let ending = ending(cell);
        if !matches!(ending, Ending::Rejected(_)) {
            self.report(ADMITTED, ObserverEvent::Admitted);
            self.send(ending);
        }
        self.answer(cell.when);
        // If no response has begun, the proxy responds itself. It does not if the client has disconnected or the proxy
        // drains.
        if let Some(status) = &cell.facts.status
            && cell.when == "before the head"
        {
            self.head(END, status.parse().unwrap(), true);
        }
        self.report(END, ObserverEvent::End(ending));
    }

    /// Sends as much of the request as the ending permits.
    fn send(&mut self, ending: Ending) {
        if matches!(
            ending,
            Ending::UpstreamFailed(UpstreamFailure::Connect)
                | Ending::TimedOut(TimeoutKind::Connect)
        ) {
            return;
        }
        self.report(SENT, ObserverEvent::RequestHeadSent);
        let (part, rest) = STREAMED.split_at(10);
        self.body(SENT, Direction::Request, part);
        if ending != Ending::RequestBodyFailed {
            self.body(UPLOADED, Direction::Request, rest);
            self.report(UPLOADED, ObserverEvent::RequestBodySent);
        }
    }

    fn answer(&mut self, when: &str) {
        let steps: [Step<'_>; 6] = [
            ("before the head", &|_| {}),
            ("before the first byte", &|stage| stage.head(HEAD, 200, false)),
            ("before the first token", &|stage| {
                stage.event(EVENT, &chunk(r#"{"role":"assistant","content":""}"#, "null"));
            }),
            ("mid-stream", &|stage| {
                stage.event(TOKEN, &chunk(r#"{"content":"Hello"}"#, "null"));
                stage.event(LAST, &chunk(r#"{"content":" world"}"#, "null"));
            }),
            ("after the finish reason", &|stage| {
                stage.event(FINISH, &chunk("{}", r#""stop""#));
            }),
            ("after the last event", &|stage| {
                stage.event(DONE, &usage(2, 0));
                stage.event(DONE, "[DONE]");
            }),
        ];
        let until = steps.iter().position(|(name, _)| *name == when);
        let until = until.unwrap_or_else(|| panic!("a moment that nobody plays: {when}"));
        for (_, step) in &steps[..=until] {
            step(self);
        }
    }

    pub(super) fn metrics(&self) -> String {
        prometheus::Format::Text.render(&self.collector.scrape())
    }
}

fn ending(cell: &Cell) -> Ending {
    let headless = cell.when == "before the head";
    match cell.what {
        "client leaves" => Ending::ClientDisconnected,
        "client breaks off its upload" => Ending::RequestBodyFailed,
        "upstream refuses the connection" => Ending::UpstreamFailed(UpstreamFailure::Connect),
        "upstream closes" | "upstream resets" if headless => {
            Ending::UpstreamFailed(UpstreamFailure::BeforeResponse)
        }
        "upstream closes" | "upstream resets" => Ending::UpstreamFailed(UpstreamFailure::MidBody),
        "upstream ends its body" => Ending::Complete,
        "limit `connect`" => Ending::TimedOut(TimeoutKind::Connect),
        "limit `head`" => Ending::TimedOut(TimeoutKind::ResponseHeader),
        "limit `idle`" => Ending::TimedOut(TimeoutKind::Idle),
        "limit `total`" => Ending::TimedOut(TimeoutKind::Total),
        "drain" => Ending::Drained,
        "too many exchanges" => Ending::Rejected(RejectReason::Overload),
        other => panic!("an end that nobody plays: {other}"),
    }
}

/// Returns the facts of the record and the metrics, as `docs/reference/outcomes.md` names them.
pub(super) fn facts_of(record: &Record, metrics: &str) -> Facts {
    let call = record.call.as_ref().unwrap();
    let reasons: Vec<_> = call.finish_reasons().map(Name::as_str).collect();
    Facts {
        status: record.http.status.map(|status| status.to_string()),
        outcome: record.outcome.as_str().to_owned(),
        error_source: record.error_source.as_str().to_owned(),
        error: record.error_type.as_ref().map(Name::to_string),
        stage: label(one(metrics, "tokengauge_requests_finished_total"), "stage"),
        tokens: call.output.map(|output| output.counted.to_string()),
        usage: call.usage.and_then(|usage| usage.output).map(|n| n.to_string()),
        // The CLIENT span contains the completeness, so it is absent without that span.
        complete: (span::span_count(record) > 1).then(|| call.complete.as_str().to_owned()),
        finish: (!reasons.is_empty()).then(|| reasons.join(" ")),
        spans: span::span_count(record),
    }
}

/// Returns the only series of `name` that is not 0. Its value must be 1.
fn one<'a>(metrics: &'a str, name: &str) -> &'a str {
    let of_name = |line: &&str| line.split(['{', ' ']).next() == Some(name);
    let series: Vec<_> = metrics.lines().filter(of_name).collect();
    let moved: Vec<_> = series.into_iter().filter(|line| !line.ends_with(" 0")).collect();
    assert!(moved.len() == 1 && moved[0].ends_with(" 1"), "{name}: {moved:?}");
    moved[0]
}

fn label(series: &str, key: &str) -> String {
    let start = format!("tokengauge_{key}=\"");
    let (_, rest) = series.split_once(&start).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

/// Returns the value of the only series of `name`, in milliseconds.
fn millis(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find(|line| line.split(['{', ' ']).next() == Some(name))?;
    let seconds: f64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    Some((seconds * 1e6).round() / 1e3)
}

/// Returns the stages of a row's exchange in milliseconds. Each is the difference of two timestamps of this file. The
/// last stage lasts until the end.
fn stages(cell: &Cell) -> Vec<(&'static str, u64)> {
    let sent = [("admission", 1), ("connect", 10)];
    let asked = [("admission", 1), ("connect", 10), ("upload", 2)];
    let (before, last): (&[_], _) = match (cell.when, cell.what) {
        // No stage was reached, so admission takes the whole 1,000 … 1,400.
        (_, "too many exchanges") => (&[], 400),
        (_, "upstream refuses the connection" | "limit `connect`") => (&sent[..1], 399),
        (_, "client breaks off its upload") => (&sent, 389),
        ("before the head", _) => (&asked, 387),
        // head is at 1,100, so 300 remain until the end.
        ("before the first byte", _) => (&[("headers", 87)], 300),
        // byte and event are at 1,150, so 250 remain until the end.
        ("before the first token", _) => {
            (&[("headers", 87), ("first_byte", 50), ("first_event", 0)], 250)
        }
        // token is at 1,200 and last at 1,300, so 100 remain until the end, regardless of events in between.
        _ => (
            &[
                ("headers", 87),
                ("first_byte", 50),
                ("first_event", 0),
                ("first_token", 50),
                ("reasoning", 0),
                ("decode", 100),
            ],
            100,
        ),
    };
    let began = if cell.facts.status.as_deref() == Some("200") { &asked[..] } else { &[] };
    let all = began.iter().chain(before).copied();
    all.chain([("tail", last)]).collect()
}

#[test]
fn every_row_matches_the_page() {
    for cell in table::cells() {
        let mut stage = Stage::new();
        stage.play(&cell);
        assert_eq!(stage.requests.in_flight(), 0, "{cell:?}");
        let records = stage.records.lock().unwrap();
        let [record] = records.as_slice() else {
            panic!("{} records of {cell:?}", records.len());
        };
        assert_eq!(facts_of(record, &stage.metrics()), cell.facts, "{cell:?}");
    }
}

#[test]
fn stages_of_every_row_add_up() {
    for cell in table::cells() {
        let mut stage = Stage::new();
        stage.play(&cell);
        let records = stage.records.lock().unwrap();
        let record = &records[0];
        let lengths: Vec<_> = record
            .stages
            .iter()
            .map(|(stage, length)| (stage.as_str(), u64::try_from(length.as_millis()).unwrap()))
            .collect();
        assert_eq!(lengths, stages(&cell), "{cell:?}");
        assert_eq!(record.timestamps.duration(), Some(Duration::from_millis(400)));
        assert_eq!(
            record.stages.iter().map(|(_, length)| length).sum::<Duration>(),
            Duration::from_millis(400),
            "{cell:?}"
        );
        let metrics = stage.metrics();
        one(&metrics, "http_server_request_duration_seconds_count");
        assert_eq!(millis(&metrics, "http_server_request_duration_seconds_sum"), Some(400.0));
        // The durations are end − admit and end − sent, if these timestamps were reached.
        let call = "gen_ai_client_inference_duration_seconds";
        let sent = record.timestamps.sent.map(|sent| at(END).since(sent));
        let client = "http_client_request_duration_seconds_sum";
        assert_eq!(millis(&metrics, client), sent.map(|time| time.as_secs_f64() * 1e3), "{cell:?}");
        let admitted = cell.facts.spans == 2;
        assert_eq!(millis(&metrics, &format!("{call}_sum")), admitted.then_some(399.0), "{cell:?}");
    }
}

#[test]
fn a_body_cut_from_outside_is_no_parse_error() {
    let part = r#"{"choices":[{"message":{"content":"Hel"#;
    let event = format!("data: {}", chunk(r#"{"content":" a"}"#, "null"));
    let errors = |body: &str, kind: &str, ending: Ending| {
        let mut stage = Stage::new();
        let request = if kind == "text/event-stream" { STREAMED } else { WHOLE };
        stage.report(1_000, ObserverEvent::RequestHead(Box::new(open("/v1/chat/completions"))));
        stage.body(1_000, Direction::Request, request);
        stage.report(SENT, ObserverEvent::RequestBodySent);
        stage.report(HEAD, super::head(200, kind));
        stage.body(TOKEN, Direction::Response, body);
        stage.report(END, ObserverEvent::End(ending));
        stage.records.lock().unwrap().remove(0).anomalies
    };
    for (body, kind) in [(part, "application/json"), (&event, "text/event-stream")] {
        for ending in [
            Ending::UpstreamFailed(UpstreamFailure::MidBody),
            Ending::TimedOut(TimeoutKind::Idle),
            Ending::ClientDisconnected,
            Ending::Drained,
        ] {
            assert_eq!(errors(body, kind, ending), [], "{ending:?} {kind}");
        }
        let delivered = errors(body, kind, Ending::Complete);
        assert_eq!(delivered, [(ParseError::Unterminated, 1)], "{kind}");
    }
}
