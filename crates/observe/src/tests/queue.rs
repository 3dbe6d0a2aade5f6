//! Tests of queued requests at literal timestamps: the metrics during the wait and afterwards.

use std::sync::{Arc, Mutex};

use super::{STREAMED, at, chunk, open};
use crate::{InFlightRequests, ObserverSettings, Sinks};
use tokengauge_llm::dialect::RateLimit;
use tokengauge_measure::load::RequestPhase;
use tokengauge_measure::load::{LimitType, RateLimitReading};
use tokengauge_measure::record::{Outcome, Record};
use tokengauge_measure::timing::Stage;
use tokengauge_telemetry::{Instruments, SnapshotSource, StateSnapshot, prometheus};
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, ExchangeId, Headers, ObserverEvent, RejectReason,
    ResponseHead, TimestampedEvent, UpstreamFailure,
};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Name};

type Pairs<'a> = &'a [(&'static str, &'a str)];

struct Scene {
    requests: InFlightRequests,
    collector: tokengauge_telemetry::MetricsReader,
    records: Arc<Mutex<Vec<Record>>>,
}

impl Scene {
    fn new() -> Self {
        let (config, _) = tokengauge_telemetry::TelemetryConfig::from_env(|_| None);
        let readings = SnapshotSource::new(StateSnapshot::default);
        let (instruments, collector) =
            Instruments::new(&config, CardinalityLimits::default(), readings);
        let records: Arc<Mutex<Vec<Record>>> = Arc::default();
        let all = Arc::clone(&records);
        let sinks = Sinks {
            instruments,
            record: Box::new(move |record: &Record| all.lock().unwrap().push(record.clone())),
        };
        let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
        Self {
            requests: InFlightRequests::new(ObserverSettings::default(), limiter, sinks),
            collector,
            records,
        }
    }

    fn report(&mut self, id: u64, millis: u64, event: ObserverEvent, bytes: &str) {
        let entry = TimestampedEvent { exchange: ExchangeId(id), at: at(millis), event };
        self.requests.apply(entry, bytes.as_bytes());
    }

    fn open(&mut self, id: u64, millis: u64, headers: Pairs<'_>) {
        let mut opened = open("/v1/chat/completions");
        opened.headers = headers_from(headers);
        opened.length = Some(STREAMED.len() as u64);
        self.report(id, millis, ObserverEvent::RequestHead(Box::new(opened)), "");
    }

    fn send(&mut self, id: u64, millis: u64) {
        self.report(id, millis, ObserverEvent::Admitted, "");
        self.report(id, millis, ObserverEvent::RequestHeadSent, "");
        self.report(id, millis, arrival(Direction::Request, STREAMED), STREAMED);
        self.report(id, millis, ObserverEvent::RequestBodySent, "");
    }

    fn head(&mut self, id: u64, millis: u64, status: u16, headers: Pairs<'_>) {
        let mut all = vec![("content-type", "text/event-stream")];
        all.extend(headers);
        let head = ResponseHead {
            status,
            version: http::Version::HTTP_11,
            headers: headers_from(&all),
            length: None,
            from_proxy: false,
        };
        self.report(id, millis, ObserverEvent::ResponseHead(Box::new(head)), "");
    }

    fn finish(&mut self, id: u64, millis: u64) {
        let text = [
            chunk(r#"{"content":"Hello"}"#, "null"),
            chunk("{}", r#""stop""#),
            "[DONE]".to_owned(),
        ];
        let text = text.map(|event| format!("data: {event}\n\n")).concat();
        self.report(id, millis, arrival(Direction::Response, &text), &text);
        self.report(id, millis, ObserverEvent::End(Ending::Complete), "");
    }

    /// Returns the numbers of queued, waiting, streaming and unstreamed requests.
    fn active(&mut self, millis: u64) -> [u64; 4] {
        let (load, _) = self.requests.reading(at(millis));
        load.routes[0].active
    }

    fn metric(&self, start: &str, with: &str) -> Option<f64> {
        let text = prometheus::Format::Text.render(&self.collector.scrape());
        let line = text.lines().find(|line| line.starts_with(start) && line.contains(with))?;
        line.rsplit_once(' ')?.1.parse().ok()
    }

    fn retries(&self, sign: &str) -> Option<f64> {
        let with = format!("retry_signal=\"{sign}\"");
        self.metric("tokengauge_client_retries_total", &with)
    }
}

fn headers_from(headers: Pairs<'_>) -> Headers {
    let named = |(name, value): &(&'static str, &str)| Some((*name, Name::new(value)?));
    headers.iter().filter_map(named).collect()
}

fn arrival(direction: Direction, text: &str) -> ObserverEvent {
    ObserverEvent::Body {
        direction,
        len: u32::try_from(text.len()).unwrap(),
        blocked: BackpressureTime::default(),
    }
}

#[test]
fn calls_without_a_response_are_finished_too() {
    let mut scene = Scene::new();
    let rejected = Ending::Rejected(RejectReason::Overload);
    let endings =
        [Ending::UpstreamFailed(UpstreamFailure::Connect), rejected, Ending::ClientDisconnected];
    for (id, ending) in (1..).zip(endings) {
        scene.open(id, 1_000, &[]);
        scene.report(id, 1_000, arrival(Direction::Request, STREAMED), STREAMED);
        if ending != rejected {
            scene.report(id, 1_000, ObserverEvent::Admitted, "");
        }
        scene.report(id, 1_050, ObserverEvent::End(ending), "");
    }
    let (load, _) = scene.requests.reading(at(2_000));
    let recent = &load.total.recent;
    assert_eq!((recent.finished, recent.failed), (3, 2), "the client left once");
    assert!(recent.duration.is_none());
}

#[test]
fn is_queued_until_admission() {
    let mut scene = Scene::new();
    scene.open(1, 1_000, &[]);
    assert_eq!(scene.active(1_000)[0], 0, "it does not wait yet");
    scene.report(1, 1_000, ObserverEvent::Queued, "");
    assert_eq!(scene.active(1_000), [1, 0, 0, 0]);
    let stream = &scene.requests.streams(at(1_500))[0];
    assert_eq!((stream.phase, stream.stalled), (RequestPhase::Queued, false));
    // The stall clock does not run, because the upstream has not received the request yet.
    scene.requests.sweep(at(100_000));
    assert!(!scene.requests.streams(at(100_000))[0].stalled);
    scene.send(1, 101_000);
    assert_eq!(scene.active(101_000), [0, 1, 0, 0]);
    scene.head(1, 102_000, 200, &[]);
    scene.finish(1, 103_000);
    assert_eq!(scene.active(103_000), [0; 4]);
    let record = scene.records.lock().unwrap().pop().unwrap();
    let (stage, length) = record.stages.iter().next().unwrap();
    assert_eq!((stage, length.as_secs()), (Stage::Admission, 100));
    let waited = "tokengauge_queue_wait_seconds_sum";
    assert_eq!(scene.metric(waited, "queue_location=\"admission\""), Some(100.0));
    assert_eq!(scene.metric(waited, "queue_location=\"edge\""), None, "not reported");
    let waiting = "tokengauge_stream_active_time_seconds_total";
    let stream_time = scene.metric(waiting, "state=\"waiting\"");
    assert_eq!(stream_time, Some(2.0), "queueing is not stream time");
}

/// Five streams whose connection to the upstream is being opened.
#[test]
fn streams_that_wait_for_a_connection_are_in_the_queue_depth() {
    let mut scene = Scene::new();
    for id in 1..=5 {
        scene.open(id, 1_000, &[]);
        scene.report(id, 1_000, ObserverEvent::Admitted, "");
        scene.report(id, 1_001, arrival(Direction::Request, STREAMED), STREAMED);
    }
    assert_eq!(scene.active(2_000), [0, 5, 0, 0]);
    let (load, _) = scene.requests.reading(at(2_000));
    assert_eq!(load.routes[0].queue_depth(), 5);
    for id in 1..=5 {
        scene.report(id, 3_000, ObserverEvent::End(Ending::ClientDisconnected), "");
    }
    let records = scene.records.lock().unwrap();
    let depths: Vec<_> =
        records.iter().map(|record| record.call.as_ref().unwrap().queue_depth).collect();
    assert_eq!(depths, [1, 2, 3, 4, 5], "each includes itself");
}

#[test]
fn a_request_from_the_queue_counts_itself_once() {
    let mut scene = Scene::new();
    scene.open(1, 1_000, &[]);
    scene.report(1, 1_000, ObserverEvent::Queued, "");
    scene.send(1, 2_000);
    scene.report(1, 3_000, ObserverEvent::End(Ending::ClientDisconnected), "");
    let records = scene.records.lock().unwrap();
    assert_eq!(records[0].call.as_ref().unwrap().queue_depth, 1);
}

/// 51 tokens in 1 s, and then a connection that the upstream keeps open for 4 s.
#[test]
fn time_after_the_final_event_is_not_stream_time() {
    let mut scene = Scene::new();
    scene.open(1, 1_000, &[]);
    scene.send(1, 1_000);
    scene.head(1, 1_100, 200, &[]);
    for millis in (2_000..=3_000).step_by(20) {
        let text = format!("data: {}\n\n", chunk(r#"{"content":" a"}"#, "null"));
        scene.report(1, millis, arrival(Direction::Response, &text), &text);
    }
    let stop = format!("data: {}\n\n", chunk("{}", r#""stop""#));
    scene.report(1, 3_000, arrival(Direction::Response, &stop), &stop);
    scene.requests.sweep(at(5_000));
    scene.report(1, 7_000, ObserverEvent::End(Ending::Complete), "");
    let streaming = "tokengauge_stream_active_time_seconds_total";
    assert_eq!(scene.metric(streaming, "state=\"streaming\""), Some(1.0));
}

#[test]
fn leaving_the_queue_ends_in_admission() {
    for (ending, outcome) in [
        (Ending::ClientDisconnected, Outcome::Cancelled),
        (Ending::RequestBodyFailed, Outcome::Cancelled),
        (Ending::Rejected(RejectReason::Overload), Outcome::Rejected),
        (Ending::Rejected(RejectReason::Draining), Outcome::Rejected),
    ] {
        let mut scene = Scene::new();
        scene.open(1, 1_000, &[]);
        scene.report(1, 1_000, ObserverEvent::Queued, "");
        scene.report(1, 3_000, ObserverEvent::End(ending), "");
        assert_eq!(scene.active(3_000), [0; 4]);
        let record = scene.records.lock().unwrap().pop().unwrap();
        assert_eq!(record.outcome, outcome);
        assert_eq!(tokengauge_telemetry::span::span_count(&record), 1, "nothing was sent upstream");
        let finished = "tokengauge_requests_finished_total";
        assert_eq!(scene.metric(finished, "stage=\"admission\""), Some(1.0));
    }
}

#[test]
fn records_reported_waits_elsewhere() {
    let mut scene = Scene::new();
    // The wall-clock time of `open` is 1,800,000,000 s.
    scene.open(
        1,
        1_000,
        &[("x-request-start", "t=1799999999.750"), ("x-queue-start", "1799999998500")],
    );
    scene.send(1, 1_000);
    scene.head(1, 1_100, 200, &[("x-queue-time", "125")]);
    scene.finish(1, 1_200);
    let waited = |place: &str| {
        scene.metric("tokengauge_queue_wait_seconds_sum", &format!("queue_location=\"{place}\""))
    };
    let edge = waited("edge").unwrap();
    assert!((edge - 1.5).abs() < 1e-5, "{edge}");
    assert_eq!(waited("admission"), Some(0.0));
    assert_eq!(waited("backend"), Some(0.125));
}

#[test]
fn rate_limits_are_current_while_the_response_streams() {
    let mut scene = Scene::new();
    for (id, millis, left) in [(1, 1_000, "40"), (2, 2_000, "39")] {
        scene.open(id, millis, &[]);
        scene.send(id, millis);
        let headers = [
            ("x-ratelimit-remaining-requests", left),
            ("x-ratelimit-limit-requests", "50"),
            ("x-ratelimit-reset-requests", "90s"),
        ];
        scene.head(id, millis, 200, &headers);
    }
    scene.finish(1, 3_000);
    let (load, _) = scene.requests.reading(at(12_000));
    let [RateLimitReading { model_key, limited, allowance }] = &load.quotas[..] else {
        panic!("{:?}", load.quotas);
    };
    assert_eq!((model_key.provider.as_str(), model_key.model.as_str()), ("openai", "gpt-4o"));
    let expected = RateLimit {
        limit: Some(50),
        remaining: Some(39),
        reset: Some(std::time::Duration::from_secs(80)),
    };
    assert_eq!((*limited, *allowance), (LimitType::Requests, expected));
    assert!(scene.requests.reading(at(93_000)).0.quotas.is_empty());
}

#[test]
fn counts_a_retry_once_when_it_begins() {
    let mut scene = Scene::new();
    let id = [("x-request-id", "r1")];
    scene.open(1, 1_000, &id);
    for sign in ["retry_count", "idempotency_key", "request_id"] {
        assert_eq!(scene.retries(sign), Some(0.0), "exported before the first");
    }
    scene.send(1, 1_000);
    scene.head(1, 1_100, 503, &[]);
    scene.report(1, 1_200, ObserverEvent::End(Ending::Complete), "");
    scene.open(2, 2_000, &id);
    assert_eq!(scene.retries("request_id"), Some(1.0));
    scene.send(2, 2_000);
    scene.head(2, 2_100, 200, &[]);
    scene.finish(2, 2_200);
    scene.open(3, 3_000, &id);
    assert_eq!(scene.retries("request_id"), Some(1.0), "the second went well");
    let both = [("x-stainless-retry-count", "1"), ("idempotency-key", "k")];
    scene.open(4, 4_000, &both);
    scene.open(5, 5_000, &[("idempotency-key", "k")]);
    assert_eq!(scene.retries("retry_count"), Some(1.0));
    assert_eq!(scene.retries("idempotency_key"), Some(1.0));
}
