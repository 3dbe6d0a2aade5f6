//! Tests of what the console gets, at literal timestamps.

use serde_json::Value;

use super::{STREAMED, at, availability, chunk, head, open, recording};
use crate::{InFlightRequests, ObserverSettings};
use tokengauge_console::document::{Interval, Request};
use tokengauge_console::requests::RequestQuery;
use tokengauge_console::{Recorder, RecorderReading, Settings};
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, ExchangeId, ObserverEvent, TimestampedEvent,
    UpstreamFailure,
};

/// Unix time of the monotonic instant 0, at the start of an interval of the history.
const WALL_SECS: u64 = 1_800_000_000;

/// Number of the interval that begins at the monotonic instant 0.
const FIRST: u64 = WALL_SECS / 5;

fn wall(at: MonotonicInstant) -> WallTime {
    WallTime::from_unix_nanos(WALL_SECS * 1_000_000_000 + at.nanos())
}

struct Scene(InFlightRequests);

impl Scene {
    fn new() -> Self {
        let (mut requests, _) = recording(ObserverSettings::default());
        let start = MonotonicInstant::ZERO;
        requests.enable_console(Recorder::new(Settings::default(), start, wall(start)));
        Self(requests)
    }

    fn report(&mut self, id: u64, millis: u64, event: ObserverEvent, bytes: &str) {
        let entry = TimestampedEvent { exchange: ExchangeId(id), at: at(millis), event };
        self.0.apply(entry, bytes.as_bytes());
    }

    fn arrive(&mut self, id: u64, millis: u64, direction: Direction, body: &str) {
        let len = u32::try_from(body.len()).unwrap();
        let blocked = BackpressureTime::default();
        self.report(id, millis, ObserverEvent::Body { direction, len, blocked }, body);
    }

    /// Starts a stream whose response headers arrive 100 ms later.
    fn start(&mut self, id: u64, millis: u64) {
        let opened = Box::new(open("/v1/chat/completions"));
        self.report(id, millis, ObserverEvent::RequestHead(opened), "");
        self.report(id, millis, ObserverEvent::Admitted, "");
        self.report(id, millis, ObserverEvent::RequestHeadSent, "");
        self.arrive(id, millis, Direction::Request, STREAMED);
        self.report(id, millis, ObserverEvent::RequestBodySent, "");
        self.report(id, millis + 100, head(200, "text/event-stream"), "");
    }

    fn token(&mut self, id: u64, millis: u64) {
        let delta = chunk(r#"{"content":" word"}"#, "null");
        self.arrive(id, millis, Direction::Response, &format!("data: {delta}\n\n"));
    }

    fn finish(&mut self, id: u64, millis: u64) {
        let last = chunk("{}", "\"stop\"");
        let end = format!("data: {last}\n\ndata: [DONE]\n\n");
        self.arrive(id, millis, Direction::Response, &end);
        self.report(id, millis, ObserverEvent::End(Ending::Complete), "");
    }

    fn read(&mut self, millis: u64) -> RecorderReading {
        let at = at(millis);
        self.0.console_reading(at, wall(at)).unwrap().recorded
    }

    /// Returns the intervals of the only group, without the offset of their numbers.
    fn intervals(&mut self, millis: u64) -> Vec<(u64, Interval)> {
        let groups = self.read(millis).history.history.groups;
        assert_eq!(groups.len(), 1);
        let intervals = groups[0].intervals.iter();
        intervals.map(|(number, it)| (number - FIRST, (**it).clone())).collect()
    }

    fn requests(&self) -> Vec<Request> {
        let query = RequestQuery { limit: 10, ..RequestQuery::default() };
        let found = self.0.console().unwrap().query(&query);
        found.items.iter().map(|it| (**it).clone()).collect()
    }
}

#[test]
fn tokens_count_in_the_interval_in_which_they_were_generated() {
    let mut scene = Scene::new();
    scene.start(1, 1_000);
    for millis in [2_000, 3_000, 4_000, 6_000, 7_000, 12_000] {
        scene.token(1, millis);
    }
    scene.finish(1, 12_100);
    let intervals = scene.intervals(20_000);
    let tokens: Vec<_> = intervals.iter().map(|(number, it)| (*number, it.output_tokens)).collect();
    assert_eq!(tokens, [(0, 3), (1, 2), (2, 1)]);
    let latencies = intervals.iter().map(|(_, it)| it.itl.as_ref().map_or(0, |itl| itl.count));
    assert_eq!(latencies.collect::<Vec<_>>(), [2, 2, 1], "none before the first token");
    assert!((intervals[0].1.itl.as_ref().unwrap().sum - 2.0).abs() < 1e-9);
    let (_, last) = &intervals[2];
    assert_eq!((last.finished, intervals[0].1.finished), (1, 0));
    let ttft = last.ttft.as_ref().unwrap();
    assert!(ttft.count == 1 && (ttft.sum - 1.0).abs() < 1e-9, "{ttft:?}");
    assert!(last.errors.is_zero() && last.stages.decode > 9.9);
}

#[test]
fn gauges_are_those_at_the_end_of_the_interval() {
    let mut scene = Scene::new();
    scene.start(1, 1_000);
    scene.start(2, 1_500);
    scene.token(1, 2_000);
    scene.0.sweep(at(4_900));
    scene.0.sweep(at(5_150));
    scene.token(2, 5_200);
    scene.finish(1, 6_000);
    scene.0.sweep(at(10_100));
    scene.finish(2, 11_000);
    scene.0.sweep(at(15_100));
    let gauges = |(_, it): (u64, Interval)| (it.in_flight, it.queue_depth, it.stalled);
    let found: Vec<_> = scene.intervals(15_200).into_iter().map(gauges).collect();
    // A stream stalls after 2 s without a token, but only after 30 s without a first token.
    assert_eq!(found, [(2, 1, 1), (1, 0, 1), (0, 0, 0)]);
}

/// A burn rate needs a covered window, of which the shortest has 5 minutes.
#[test]
fn the_highest_burn_rate_is_recorded_at_the_end_of_an_interval() {
    const MINUTE: u64 = 60_000;
    let mut scene = Scene::new();
    scene.0.slos().replace(at(0), vec![availability()]);
    for (id, millis) in [(1, 4 * MINUTE), (2, 5 * MINUTE)] {
        scene.start(id, millis);
        scene.token(id, millis + 200);
        let ending = Ending::UpstreamFailed(UpstreamFailure::MidBody);
        scene.report(id, millis + 300, ObserverEvent::End(ending), "");
        scene.0.sweep(at(millis + 5_100));
    }
    let rates = scene.read(5 * MINUTE + 5_200).history.history.burn_rates;
    let [(interval, rate)] = rates[..] else { panic!("{rates:?}") };
    assert_eq!(interval - FIRST, 60);
    assert!((rate - 100.0).abs() < 1e-6, "all failed, and 1 % may: {rate}");
}

#[test]
fn a_request_has_ticks_stages_and_a_bounded_number_of_both() {
    let mut scene = Scene::new();
    scene.start(1, 1_000);
    for tick in 0..1_000 {
        scene.token(1, 1_500 + 10 * tick);
    }
    scene.finish(1, 12_000);
    let request = scene.requests().remove(0);
    assert_eq!((request.id, &*request.outcome, request.stream), (1, "ok", true));
    let ticks = &request.chunks_seconds;
    assert!(ticks.len() > 30 && ticks.len() <= 62, "{}", ticks.len());
    assert!((ticks[0] - 0.5).abs() < 1e-6 && ticks.is_sorted());
    let gap = ticks[1] - ticks[0];
    assert!(ticks.windows(2).all(|pair| (pair[1] - pair[0] - gap).abs() < 1e-6), "{ticks:?}");
    let stages = serde_json::to_value(&request.stages).unwrap();
    let sum: f64 = stages.as_object().unwrap().values().filter_map(Value::as_f64).sum();
    assert!((sum - request.duration_seconds.unwrap()).abs() < 1e-4);
    let output = request.tokens.output.unwrap();
    assert_eq!((output.count, &*output.source), (1_000, "counted"));
}

#[test]
fn nothing_is_recorded_if_the_console_is_off() {
    let (requests, _) = recording(ObserverSettings::default());
    let mut scene = Scene(requests);
    scene.start(1, 1_000);
    scene.token(1, 2_000);
    scene.0.sweep(at(6_000));
    assert!(scene.0.console().is_none());
    assert!(scene.0.console_reading(at(7_000), wall(at(7_000))).is_none());
    scene.finish(1, 8_000);
}
