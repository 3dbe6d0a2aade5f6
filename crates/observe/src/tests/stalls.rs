//! Tests of stalled streams at literal timestamps.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{STREAMED, at, chunk, open};
use crate::{InFlightRequests, ObserverSettings, Sinks};
use tokengauge_measure::load::StalledStreams;
use tokengauge_measure::record::Record;
use tokengauge_measure::timing::{Stall, StallPhase, Stalls};
use tokengauge_telemetry::{Instruments, SnapshotSource, StateSnapshot, prometheus};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{
    BackpressureTime, BodyWaitState, Direction, Ending, ExchangeId, Headers, ObserverEvent,
    ResponseHead, TimestampedEvent, WaitingFor,
};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Name};

/// Open requests, their metrics and their records.
struct Scene {
    requests: InFlightRequests,
    collector: tokengauge_telemetry::MetricsReader,
    records: Arc<Mutex<Vec<Record>>>,
    body_wait: Arc<BodyWaitState>,
}

impl Scene {
    fn new() -> Self {
        let (config, _) = tokengauge_telemetry::TelemetryConfig::from_env(|_| None);
        let readings = SnapshotSource::new(StateSnapshot::default);
        let (instruments, collector) =
            Instruments::new(&config, CardinalityLimits::default(), readings);
        let records: Arc<Mutex<Vec<Record>>> = Arc::default();
        let record = {
            let records = Arc::clone(&records);
            Box::new(move |record: &Record| {
                records.lock().unwrap().push(record.clone());
            })
        };
        let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
        let sinks = Sinks { instruments, record };
        Self {
            requests: InFlightRequests::new(ObserverSettings::default(), limiter, sinks),
            collector,
            records,
            body_wait: Arc::new(BodyWaitState::default()),
        }
    }

    /// Sends a request for a stream. Its headers arrive at 100 ms, and its last byte is sent at 110 ms.
    fn request(body: &str) -> Self {
        let mut scene = Self::new();
        scene.ask(1, 100, body);
        scene
    }

    fn stream() -> Self {
        let mut scene = Self::request(STREAMED);
        scene.head(1, 200, 200);
        scene
    }

    fn ask(&mut self, id: u64, millis: u64, body: &str) {
        let mut opened = open("/v1/chat/completions");
        opened.body_wait = Arc::clone(&self.body_wait);
        self.report(id, millis, ObserverEvent::RequestHead(Box::new(opened)), "");
        self.report(id, millis, ObserverEvent::Admitted, "");
        self.report(id, millis + 5, ObserverEvent::RequestHeadSent, "");
        self.upload(id, millis + 5, body);
        self.report(id, millis + 10, ObserverEvent::RequestBodySent, "");
    }

    fn head(&mut self, id: u64, millis: u64, status: u16) {
        let content_type = ("content-type", Name::new("text/event-stream").unwrap());
        let head = ResponseHead {
            status,
            version: http::Version::HTTP_11,
            headers: Headers::from_iter([content_type]),
            length: None,
            from_proxy: false,
        };
        self.report(id, millis, ObserverEvent::ResponseHead(Box::new(head)), "");
    }

    fn report(&mut self, id: u64, millis: u64, event: ObserverEvent, bytes: &str) {
        let entry = TimestampedEvent { exchange: ExchangeId(id), at: at(millis), event };
        self.requests.apply(entry, bytes.as_bytes());
    }

    fn upload(&mut self, id: u64, millis: u64, body: &str) {
        let event = arrival(Direction::Request, body, 0);
        self.report(id, millis, event, body);
    }

    fn arrival(&mut self, millis: u64, body: &str) {
        self.report(1, millis, arrival(Direction::Response, body, 0), body);
    }

    fn token(&mut self, millis: u64) {
        self.token_of(1, millis);
    }

    fn token_of(&mut self, id: u64, millis: u64) {
        let event = format!("data: {}\n\n", chunk(r#"{"content":" a"}"#, "null"));
        self.report(id, millis, arrival(Direction::Response, &event, 0), &event);
    }

    fn sweep(&mut self, millis: u64) -> &mut Self {
        self.requests.sweep(at(millis));
        self
    }

    /// Returns the stalled streams before the first token, and after it.
    fn stalled_streams(&mut self, millis: u64) -> [StalledStreams; 2] {
        self.requests.reading(at(millis)).0.routes[0].stalled_streams
    }

    /// Returns the sum of all series of `name` whose labels contain each of `with`.
    fn metric(&self, name: &str, with: &[&str]) -> f64 {
        let text = prometheus::Format::Text.render(&self.collector.scrape());
        let of_it = |line: &&str| {
            line.starts_with(&format!("{name}{{")) && with.iter().all(|label| line.contains(label))
        };
        let lines: Vec<_> = text.lines().filter(of_it).collect();
        assert!(!lines.is_empty(), "no {name} with {with:?}");
        let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        lines.into_iter().map(value).sum()
    }

    fn stalls(&self, with: &[&str]) -> u64 {
        let sum = self.metric("tokengauge_stream_stalls_total", with);
        format!("{sum}").parse().unwrap()
    }

    fn end(mut self, millis: u64) -> (Stalls, Self) {
        self.report(1, millis, ObserverEvent::End(Ending::ClientDisconnected), "");
        let record = self.records.lock().unwrap().pop().unwrap();
        (record.call.unwrap().stalls, self)
    }
}

fn arrival(direction: Direction, body: &str, blocked: u64) -> ObserverEvent {
    ObserverEvent::Body {
        direction,
        len: u32::try_from(body.len()).unwrap(),
        blocked: BackpressureTime::from_duration(Duration::from_millis(blocked)),
    }
}

fn one(stalls: &Stalls) -> Stall {
    assert_eq!((stalls.count, stalls.first.len()), (1, 1), "{stalls:?}");
    stalls.first[0]
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn reports_a_stall_while_it_lasts() {
    let mut scene = Scene::stream();
    scene.token(1_000);
    scene.sweep(2_900);
    assert_eq!(scene.stalls(&[]), 0, "exported before the first one");
    assert_eq!(
        scene.stalled_streams(2_900)[1],
        StalledStreams { stalled: 0, longest: Some(millis(1_900)) }
    );
    scene.sweep(3_150);
    let labels = ["next_token", "silent", "gpt-4o"];
    assert_eq!(scene.stalls(&labels), 1, "reported while it lasts");
    assert_eq!(
        scene.stalled_streams(3_150),
        [StalledStreams::default(), StalledStreams { stalled: 1, longest: Some(millis(2_150)) }]
    );
    assert!(scene.requests.streams(at(3_150))[0].stalled);
    scene.sweep(5_000);
    scene.token(6_500);
    assert_eq!(scene.stalled_streams(6_600)[1].stalled, 0);
    let (stalls, scene) = scene.end(7_000);
    let stall = one(&stalls);
    assert_eq!((stall.begun, stall.raised), (at(1_000), at(3_000)));
    assert_eq!(stall.lasted, Some(millis(5_500)));
    assert_eq!(scene.stalls(&labels), 1, "reported once");
    let time = scene.metric("tokengauge_stall_duration_seconds_sum", &labels);
    assert!((time - 5.5).abs() < 1e-9, "{time}");
}

#[test]
fn reports_a_stall_between_two_sweeps() {
    let mut scene = Scene::stream();
    scene.token(1_000);
    scene.token(3_001);
    scene.token(3_100);
    let (stalls, scene) = scene.end(5_200);
    assert_eq!(stalls.count, 2, "2,001 ms between two tokens, 2,100 to the end");
    assert_eq!(stalls.first[0].raised, at(3_000));
    assert_eq!(stalls.total, millis(2_001 + 2_100));
    assert_eq!(scene.stalls(&["next_token"]), 2);
}

#[test]
fn expects_first_token_after_the_upload() {
    let mut scene = Scene::request(STREAMED);
    scene.sweep(30_109);
    let (first, lasting) = (scene.stalled_streams(30_109)[0], scene.requests.streams(at(30_109)));
    assert_eq!((first.stalled, first.longest), (0, Some(millis(29_999))));
    assert!(!lasting[0].stalled);
    scene.sweep(30_110);
    // No response has confirmed the model, so its label is `other`.
    assert_eq!(scene.stalls(&["first_token", "silent", "\"other\""]), 1);
    let (stalls, _) = scene.end(40_110);
    assert_eq!(one(&stalls).phase, StallPhase::FirstToken);
    assert_eq!(one(&stalls).lasted, Some(millis(40_000)));
}

#[test]
fn reasoning_requests_have_ten_times_the_threshold() {
    let body = STREAMED.replace(r#""stream""#, r#""reasoning_effort":"high","stream""#);
    let mut scene = Scene::request(&body);
    scene.sweep(300_109);
    assert_eq!(scene.stalled_streams(300_109)[0].stalled, 0);
    scene.sweep(300_110);
    assert_eq!(scene.stalled_streams(300_110)[0].stalled, 1);
    let none = STREAMED.replace(r#""stream""#, r#""reasoning_effort":"none","stream""#);
    let mut scene = Scene::request(&none);
    assert_eq!(scene.sweep(30_110).stalled_streams(30_110)[0].stalled, 1);
}

#[test]
fn upload_restarts_the_stall_clock() {
    let mut scene = Scene::new();
    let mut opened = open("/v1/chat/completions");
    opened.body_wait = Arc::clone(&scene.body_wait);
    scene.report(1, 0, ObserverEvent::RequestHead(Box::new(opened)), "");
    scene.report(1, 0, ObserverEvent::Admitted, "");
    let (begin, rest) = STREAMED.split_at(30);
    scene.upload(1, 10, begin);
    scene.upload(1, 29_000, rest);
    scene.sweep(58_999);
    assert_eq!(scene.stalled_streams(58_999)[0].stalled, 0);
    assert_eq!(scene.sweep(59_000).stalled_streams(59_000)[0].stalled, 1);
}

#[test]
fn separates_keep_alives_from_silence() {
    let mut scene = Scene::stream();
    scene.token(1_000);
    for second in 1..4 {
        scene.arrival(1_000 + 900 * second, ": ping\n\n");
    }
    assert_eq!(scene.stalls(&["next_token", "keep_alive_only"]), 1);
    let (stalls, _) = scene.end(4_000);
    assert_eq!(one(&stalls).raised, at(3_000));
}

#[test]
fn expects_nothing_after_the_end_marker() {
    let mut scene = Scene::stream();
    scene.token(1_000);
    let stop = format!("data: {}\n\n", chunk("{}", r#""stop""#));
    scene.arrival(1_500, &stop);
    scene.sweep(60_000);
    assert_eq!(scene.stalled_streams(60_000), [StalledStreams::default(); 2]);
    assert!(scene.end(61_000).0.is_empty());
}

#[test]
fn end_marker_ends_a_stall() {
    let mut scene = Scene::stream();
    scene.token(1_000);
    scene.sweep(9_000);
    let stop = format!("data: {}\n\n", chunk("{}", r#""stop""#));
    scene.arrival(10_000, &stop);
    let (stalls, _) = scene.end(60_000);
    assert_eq!(one(&stalls).lasted, Some(millis(9_000)));
}

#[test]
fn ignores_unstreamed_failed_and_unobserved_requests() {
    let whole = STREAMED.replace("true", "false");
    let mut scene = Scene::request(&whole);
    scene.sweep(60_000);
    assert!(scene.end(60_000).0.is_empty());

    let mut scene = Scene::request(STREAMED);
    scene.head(1, 200, 503);
    scene.sweep(60_000);
    assert!(scene.end(60_000).0.is_empty());

    let mut scene = Scene::stream();
    scene.token(1_000);
    let gap = ObserverEvent::Gap { direction: Direction::Response, bytes: 100 };
    scene.report(1, 1_100, gap, "");
    scene.sweep(60_000);
    assert!(scene.end(60_000).0.is_empty());
}

#[test]
fn attributes_a_stall_to_a_client_that_does_not_read() {
    let mut scene = Scene::stream();
    scene.token(1_000);
    scene.body_wait.set_waiting_for(WaitingFor::Client, at(1_000));
    scene.sweep(30_000);
    assert_eq!(scene.stalled_streams(30_000)[1].stalled, 0);
    // The client reads again. Only the time from now on is attributed to the backend.
    scene.body_wait.set_waiting_for(WaitingFor::Upstream, at(31_000));
    scene.sweep(32_900);
    assert_eq!(scene.stalled_streams(32_900)[1].longest, Some(millis(1_900)));
    assert_eq!(scene.stalls(&[]), 0);
    scene.sweep(33_200);
    assert_eq!(scene.stalls(&["next_token"]), 1);
    let event = format!("data: {}\n\n", chunk(r#"{"content":" a"}"#, "null"));
    scene.report(1, 34_000, arrival(Direction::Response, &event, 30_000), &event);
    let (stalls, _) = scene.end(34_100);
    assert_eq!(one(&stalls).raised, at(33_000));
    assert_eq!(one(&stalls).lasted, Some(millis(3_000)));
}

#[test]
fn attributes_a_stall_to_a_pause_of_this_process() {
    let mut scene = Scene::stream();
    for beat in 0..4 {
        scene.requests.record_heartbeat(0, at(beat * 250));
    }
    scene.token(1_000);
    // The process is stopped for a minute. The chunk that waited in the kernel is then processed before the heartbeat.
    scene.token(61_000);
    scene.requests.record_heartbeat(0, at(61_001));
    scene.sweep(61_002);
    assert_eq!(scene.stalls(&[]), 0);
    let late = scene.metric("tokengauge_self_scheduling_delay_seconds_sum", &["runtime"]);
    assert!((late - 60.001).abs() < 1e-9, "due at 1,000: {late}");
    // From now on, the process runs and the backend is slow.
    for beat in 1..=10 {
        scene.requests.record_heartbeat(0, at(61_001 + beat * 250));
    }
    scene.sweep(63_050);
    assert_eq!(scene.stalls(&["next_token"]), 1);
    assert!(scene.end(63_100).0.first[0].raised >= MonotonicInstant::from_secs(63));
}

#[test]
fn a_check_is_skipped_until_something_can_be_due() {
    let mut scene = Scene::stream();
    scene.token(300);
    let time = |scene: &Scene| {
        scene.metric("tokengauge_stream_active_time_seconds_total", &["\"streaming\""])
    };
    scene.sweep(500);
    let first = time(&scene);
    let later = |scene: &Scene| time(scene) - first;
    assert!(later(scene.sweep(1_499)) < 0.1, "nothing can be due");
    assert!(later(scene.sweep(1_500)) > 0.9, "a second has passed");
    scene.requests.sweep_all(at(1_600));
    assert!(later(&scene) > 1.0, "a reader needs current values");
    scene.head(1, 1_700, 200);
    assert!(later(scene.sweep(1_800)) > 1.2, "another event than a body can change what is due");
}

/// What arrives after a pause, in the test below.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    Token,
    KeepAlive,
    /// A token that the client reads late.
    ReadLate,
}

fn arrivals() -> impl Strategy<Value = Vec<(u64, Arrival)>> {
    let kind = prop_oneof![Just(Arrival::Token), Just(Arrival::KeepAlive), Just(Arrival::ReadLate)];
    vec((0..5_000_u64, kind), 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Compares the sweep that skips checks with a sweep that checks all requests.
    #[test]
    fn skipped_checks_miss_no_stall(arrivals in arrivals()) {
        let views = [InFlightRequests::sweep, InFlightRequests::sweep_all].map(|sweep| {
            let (mut scene, mut now, mut swept) = (Scene::stream(), 200, 0);
            let mut views = Vec::new();
            for (pause, kind) in &arrivals {
                now += pause;
                while swept + 250 <= now {
                    swept += 250;
                    sweep(&mut scene.requests, at(swept));
                    let stalled = scene.requests.streams(at(swept)).iter().any(|view| view.stalled);
                    views.push((swept, stalled));
                }
                let token = format!("data: {}\n\n", chunk(r#"{"content":" a"}"#, "null"));
                let (text, blocked) = match kind {
                    Arrival::Token => (token.as_str(), 0),
                    Arrival::KeepAlive => (": ping\n\n", 0),
                    Arrival::ReadLate => (token.as_str(), pause / 2),
                };
                scene.report(1, now, arrival(Direction::Response, text, blocked), text);
            }
            (views, scene.end(now).0)
        });
        prop_assert_eq!(&views[0], &views[1]);
    }
}

#[test]
fn live_tokens_show_a_slow_fleet() {
    const STREAMS: u64 = 20;
    let mut scene = Scene::new();
    for id in 1..=STREAMS {
        scene.ask(id, 0, STREAMED);
        scene.head(id, 100, 200);
    }
    // Each stream has 50 tokens per second for 20 s, and then 5.
    let mut told = Vec::new();
    for tick in 6..1_500_u64 {
        let now = tick * 20;
        if now <= 20_000 || tick % 10 == 0 {
            for id in 1..=STREAMS {
                scene.token_of(id, now);
            }
        }
        if now % 250 == 0 {
            scene.sweep(now);
        }
        if now % 10_000 == 0 {
            let time =
                scene.metric("tokengauge_stream_active_time_seconds_total", &["\"streaming\""]);
            told.push((scene.metric("tokengauge_tokens_total", &["\"text\""]), time));
        }
    }
    scene.sweep(30_000);
    let time = scene.metric("tokengauge_stream_active_time_seconds_total", &["\"streaming\""]);
    told.push((scene.metric("tokengauge_tokens_total", &["\"text\""]), time));
    let rates: Vec<f64> =
        told.windows(2).map(|pair| (pair[1].0 - pair[0].0) / (pair[1].1 - pair[0].1)).collect();
    assert_eq!(scene.requests.in_flight(), 20, "none has ended");
    assert!((49.0..51.0).contains(&rates[0]), "{rates:?}");
    assert!((4.9..5.1).contains(&rates[1]), "{rates:?}");
}
