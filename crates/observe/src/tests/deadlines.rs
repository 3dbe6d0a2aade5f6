//! Tests of objectives on a time while requests are open.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{STREAMED, at, chunk, head, open, recording};
use crate::{InFlightRequests, ObserverSettings};
use tokengauge_measure::record::{Record, Verdict};
use tokengauge_measure::slo::{CountingRules, Exclusion, Objective, Scope, Sli};
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, ExchangeId, ObserverEvent, TimestampedEvent,
};
use tokengauge_types::label::Label;

const TTFT: Sli = Sli::Ttft(Duration::from_millis(500));
const DURATION: Sli = Sli::Duration(Duration::from_secs(4));
const GONE: Ending = Ending::ClientDisconnected;
const WHOLE: &str = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"Say hello"}]}"#;

/// One request that is accepted at 1,000, with an objective of each kind on gpt-*.
struct Scene {
    requests: InFlightRequests,
    records: Arc<Mutex<Vec<Record>>>,
}

fn objectives(exclude: &[Exclusion]) -> Vec<Objective> {
    let objective = |(name, indicator)| Objective {
        name: Label::from_trusted(name),
        indicator,
        target: 0.9,
        window: Duration::from_secs(86_400),
        scope: Scope { model: Some("gpt-*".to_owned()), ..Scope::default() },
        counting: CountingRules { exclude: exclude.to_vec(), ..CountingRules::default() },
    };
    [("ttft", TTFT), ("duration", DURATION)].map(objective).into()
}

impl Scene {
    fn new(exclude: &[Exclusion]) -> Self {
        let (requests, records) = recording(ObserverSettings::with_objectives(objectives(exclude)));
        Self { requests, records }
    }

    /// Receives a request of which `sent` bytes arrive.
    fn request(body: &str, sent: usize) -> Self {
        let mut scene = Self::new(&[]);
        scene.open(body, sent);
        scene
    }

    fn open(&mut self, body: &str, sent: usize) {
        let mut open = open("/v1/chat/completions");
        open.length = Some(body.len() as u64);
        self.report(1_000, ObserverEvent::RequestHead(Box::new(open)), "");
        self.report(1_000, ObserverEvent::Admitted, "");
        self.body(1_000, Direction::Request, body.get(..sent).unwrap());
    }

    fn report(&mut self, millis: u64, event: ObserverEvent, bytes: &str) {
        let entry = TimestampedEvent { exchange: ExchangeId(1), at: at(millis), event };
        self.requests.apply(entry, bytes.as_bytes());
    }

    fn body(&mut self, millis: u64, direction: Direction, text: &str) {
        let len = u32::try_from(text.len()).unwrap();
        let blocked = BackpressureTime::default();
        self.report(millis, ObserverEvent::Body { direction, len, blocked }, text);
    }

    fn token(&mut self, millis: u64) {
        self.report(millis, head(200, "text/event-stream"), "");
        let event = format!("data: {}\n\n", chunk(r#"{"content":"Hello"}"#, "null"));
        self.body(millis, Direction::Response, &event);
    }

    /// Ends the request. Returns its verdicts on TTFT and duration.
    fn end(&mut self, millis: u64, ending: Ending) -> Vec<Verdict> {
        self.report(millis, ObserverEvent::End(ending), "");
        let record = self.records.lock().unwrap().pop().unwrap();
        record.call.unwrap().verdicts.into_iter().map(|(_, verdict)| verdict).collect()
    }

    /// Returns good and bad events of both objectives, after a sweep.
    fn counts(&mut self, millis: u64) -> [(u64, u64); 2] {
        self.requests.sweep(at(millis));
        let (_, readings) = self.requests.reading(at(millis));
        [0, 1].map(|index| (readings[index].good, readings[index].bad))
    }
}

#[test]
fn a_stream_that_hangs_is_bad_when_its_threshold_has_passed_and_only_once() {
    let mut scene = Scene::request(STREAMED, STREAMED.len());
    assert_eq!(scene.counts(2_500), [(0, 0), (0, 0)], "a token may wait for the observer");
    assert_eq!(scene.counts(2_501), [(0, 1), (0, 0)]);
    assert_eq!(scene.counts(6_001), [(0, 1), (0, 1)]);
    assert_eq!(scene.counts(60_000), [(0, 1), (0, 1)]);
    assert_eq!(scene.end(61_000, GONE), [Verdict::Bad, Verdict::Bad]);
    assert_eq!(scene.counts(62_000), [(0, 1), (0, 1)], "the end adds nothing");
}

#[test]
fn a_token_meets_the_deadline() {
    let mut scene = Scene::request(STREAMED, STREAMED.len());
    scene.token(1_500);
    assert_eq!(scene.counts(3_000), [(0, 0), (0, 0)]);
    assert_eq!(scene.end(3_100, GONE), [Verdict::Good, Verdict::Excluded]);
    assert_eq!(scene.counts(4_000), [(1, 0), (0, 0)]);
}

#[test]
fn what_is_missed_stays_missed_however_the_request_ends() {
    let mut scene = Scene::request(STREAMED, STREAMED.len());
    scene.counts(3_000);
    scene.report(3_100, head(400, "application/json"), "");
    assert_eq!(scene.end(3_200, Ending::Complete), [Verdict::Bad, Verdict::Excluded]);
    assert_eq!(scene.counts(4_000), [(0, 1), (0, 0)]);
}

#[test]
fn a_call_without_a_stream_has_a_duration() {
    let mut scene = Scene::request(WHOLE, WHOLE.len());
    assert_eq!(scene.counts(6_001), [(0, 0), (0, 1)]);
}

#[test]
fn a_request_that_is_not_complete_or_not_observed_is_judged_at_its_end() {
    let mut scene = Scene::request(STREAMED, 10);
    assert_eq!(scene.counts(60_000), [(0, 0), (0, 0)], "the client still sends");
    let mut scene = Scene::request(STREAMED, STREAMED.len());
    scene.report(1_100, ObserverEvent::Gap { direction: Direction::Response, bytes: 9 }, "");
    assert_eq!(scene.counts(60_000), [(0, 0), (0, 0)], "a token may have been lost");
    let mut scene = Scene::new(&[Exclusion::Overload]);
    scene.open(STREAMED, STREAMED.len());
    assert_eq!(scene.counts(60_000), [(0, 0), (0, 0)], "the end may be excluded");
}

#[test]
fn a_reload_counts_nothing_twice() {
    let mut scene = Scene::request(STREAMED, STREAMED.len());
    scene.counts(3_000);
    let mut swapped = objectives(&[]);
    swapped.reverse();
    scene.requests.apply_settings(at(3_000), ObserverSettings::with_objectives(swapped));
    assert_eq!(scene.counts(6_001), [(0, 1), (0, 1)], "duration, and TTFT from before");
    assert_eq!(scene.end(7_000, GONE), [Verdict::Bad, Verdict::Bad]);
    assert_eq!(scene.counts(8_000), [(0, 1), (0, 1)]);
}
