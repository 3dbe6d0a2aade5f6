//! Every request is counted, also if the observer is too late for its bytes or panics.

use std::cell::Cell;
use std::sync::mpsc;

use super::*;
use crate::backlog::{Backlog, DrainContext};
use crate::tee::{self, ObservationChannel};
use tokengauge_telemetry::MetricsReader;
use tokengauge_types::tcp::TcpConnection;

/// An observer that runs only in [`drain`](Self::drain), with an SLO on all calls.
struct Late {
    channel: Arc<ObservationChannel>,
    requests: InFlightRequests,
    records: mpsc::Receiver<Record>,
    reader: MetricsReader,
    route: Arc<RouteFacts>,
}

impl Late {
    fn new(config: tee::ChannelConfig) -> Self {
        let (settings, _) = tokengauge_telemetry::TelemetryConfig::from_env(|_| None);
        let limits = CardinalityLimits::default();
        let readings = SnapshotSource::new(StateSnapshot::default);
        let (instruments, reader) = Instruments::new(&settings, limits, readings);
        let (sender, records) = mpsc::channel();
        let record = Box::new(move |record: &Record| sender.send(record.clone()).unwrap());
        let limiter = Arc::new(CardinalityLimiter::new(limits, []));
        let sinks = Sinks { instruments, record };
        Self {
            channel: Arc::new(ObservationChannel::new(config)),
            requests: InFlightRequests::new(
                ObserverSettings::with_objectives(vec![availability()]),
                limiter,
                sinks,
            ),
            records,
            reader,
            route: open("/").route,
        }
    }

    fn open(&self, path: &str, millis: u64) -> tee::RequestObserver {
        let request = RequestHead { route: Arc::clone(&self.route), ..open(path) };
        let exchange = self.channel.open(request, at(millis));
        exchange.report(at(millis), ObserverEvent::Admitted);
        exchange.report(at(millis), ObserverEvent::RequestHeadSent);
        exchange
    }

    /// Plays a call that fails with status 529.
    fn fail(&self, millis: u64) {
        let exchange = self.open("/v1/messages", millis);
        exchange.request_end(at(millis));
        respond(&exchange, millis + 1, 529);
        let body = br#"{"type":"error","error":{"type":"overloaded_error","message":"busy"}}"#;
        arrive(&exchange, millis + 1, body);
        exchange.end(at(millis + 2), Ending::Complete);
    }

    fn drain(&mut self, millis: u64) {
        let clock = move || at(millis);
        let (channel, clock) = (&self.channel, &clock);
        // Interrupted after each check, as by many readers.
        let is_interrupted = Cell::new(false);
        let interrupt = |_| is_interrupted.replace(!is_interrupted.get());
        let context = DrainContext { channel, clock, beat: &|_| {}, interrupt: &interrupt };
        let mut backlog = Backlog::default();
        while !backlog.drain(&mut self.requests, context) {}
    }

    /// Returns the sum of the series with this name that contain `label`.
    fn sum(&self, name: &str, label: &str) -> u64 {
        let page = prometheus::Format::Text.render(&self.reader.scrape());
        let series = page.lines().filter(|line| line.split('{').next() == Some(name));
        let values = series
            .filter(|line| line.contains(label))
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
        values.sum()
    }
}

fn respond(exchange: &tee::RequestObserver, millis: u64, status: u16) {
    let ObserverEvent::ResponseHead(response) = head(status, "application/json") else {
        unreachable!("the function returns response headers");
    };
    exchange.head(at(millis), *response);
}

fn arrive(exchange: &tee::RequestObserver, millis: u64, bytes: &[u8]) {
    exchange.record_body(Direction::Response, at(millis), bytes, BackpressureTime::default());
}

const FAILED: u64 = 500;

/// Plays 16 responses of 3.2 MB and 500 failures of another client while the observer does not run.
fn play_failures_beside_huge_responses(late: &Late) {
    let text = "多语言 текст متن ".repeat(110_000);
    let text = format!(
        r#"{{"choices":[{{"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}]}}"#
    );
    let huge: Vec<_> = (0..16).map(|_| late.open("/v1/chat/completions", 1_000)).collect();
    for exchange in &huge {
        respond(exchange, 1_000, 200);
        text.as_bytes().chunks(64 << 10).for_each(|piece| arrive(exchange, 1_000, piece));
    }
    (0..FAILED).for_each(|_| late.fail(1_000));
    huge.iter().for_each(|exchange| exchange.end(at(1_002), Ending::Complete));
}

#[test]
fn failures_beside_huge_responses_are_counted_with_their_errors() {
    let config = tee::ChannelConfig { shards: 2, budget_bytes: 12 << 20, max_requests: 8_192 };
    let mut late = Late::new(config);
    play_failures_beside_huge_responses(&late);
    assert!(late.channel.lost().bytes > 30 << 20, "{:?}", late.channel.lost());
    assert_eq!(late.channel.lost().exchanges, 0);
    late.drain(4_500);
    assert_eq!(late.sum("tokengauge_requests_finished_total", "\"529\""), FAILED);
    let failures: Vec<_> =
        late.records.try_iter().filter(|it| it.http.status == Some(529)).collect();
    let read = failures.iter().filter(|it| {
        let error = it.error_type.as_ref().map(Name::as_str);
        it.outcome == Outcome::Error && error == Some("overloaded_error")
    });
    assert_eq!(read.count() as u64, FAILED, "small bodies are not dropped for large ones");
    let (_, slos) = late.requests.reading(at(4_500));
    assert_eq!((slos[0].good, slos[0].bad), (16, FAILED));
}

#[test]
fn requests_without_room_for_their_events_are_counted_in_metrics_and_slos() {
    let config = tee::ChannelConfig { shards: 2, budget_bytes: 12 << 20, max_requests: 100 };
    let mut late = Late::new(config);
    play_failures_beside_huge_responses(&late);
    let muted = late.channel.lost().exchanges;
    assert!(muted > FAILED / 2 && muted < FAILED, "{muted}");
    late.drain(4_500);
    let name = "tokengauge_requests_finished_total";
    assert_eq!(late.sum(name, "\"529\""), FAILED);
    assert_eq!(late.sum(name, "error_source=\"upstream\""), FAILED);
    assert_eq!(late.sum(name, "outcome=\"error\""), FAILED);
    assert_eq!(late.sum(name, "route=\"default\""), FAILED + 16);
    assert_eq!(late.sum("tokengauge_requests_started_total", ""), FAILED + 16);
    assert_eq!(late.sum("http_server_request_duration_seconds_count", "\"529\""), FAILED);
    let (_, slos) = late.requests.reading(at(4_500));
    assert_eq!((slos[0].good, slos[0].bad), (16, FAILED));
    let failures = late.records.try_iter().filter(|record| record.http.status == Some(529));
    assert_eq!(failures.count() as u64, FAILED - muted, "only observed requests have a record");
    assert_eq!(late.requests.in_flight(), 0);
}

#[test]
fn websockets_and_rejected_requests_without_room_are_counted() {
    let config = tee::ChannelConfig { shards: 1, budget_bytes: 1 << 20, max_requests: 0 };
    let mut late = Late::new(config);
    let socket = late.open("/v1/realtime", 100);
    respond(&socket, 110, 101);
    socket.upgraded(at(110));
    arrive(&socket, 120, b"\x81\x02{}");
    socket.report(at(130), ObserverEvent::Closed(Direction::Request));
    socket.end(at(130), Ending::Complete);
    let rejected = Ending::Rejected(tokengauge_types::event::RejectReason::Overload);
    late.channel.open(open("/v1/chat/completions"), at(100)).end(at(101), rejected);
    drop(late.open("/v1/chat/completions", 100));
    late.drain(200);
    let name = "tokengauge_requests_finished_total";
    assert_eq!(late.sum(name, "\"101\""), 1);
    assert_eq!(late.sum(name, "outcome=\"rejected\""), 1);
    assert_eq!(late.sum(name, "outcome=\"cancelled\""), 1);
    assert_eq!(late.sum(name, ""), 3);
}

#[test]
fn a_panic_at_the_end_of_a_request_does_not_prevent_its_count() {
    let mut late = Late::new(tee::ChannelConfig::default());
    late.requests.set_tcp_info_query(Box::new(|_| panic!("a fault in a query")));
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let mut request = open("/v1/chat/completions");
    request.connection = Some(Arc::new(TcpConnection::new(address, address)));
    let exchange = late.channel.open(request, at(100));
    respond(&exchange, 110, 503);
    exchange.end(at(120), Ending::Complete);
    late.drain(200);
    assert_eq!(late.sum("tokengauge_requests_finished_total", "\"503\""), 1);
    let record = late.records.try_recv().expect("the request has a record");
    assert_eq!((record.outcome, record.error_source), (Outcome::Error, ErrorSource::Upstream));
    assert_eq!(record.anomalies, [(ParseError::Panic, 1)]);
}
