//! Tests of responses that the provider generates in the background, and of the polls that fetch them.

use super::{Arc, Mutex, at, head, open, recording};
use crate::{InFlightRequests, ObserverSettings};
use tokengauge_measure::record::{Call, Outcome, Record};
use tokengauge_types::event::{
    BackpressureTime, Direction, Ending, ExchangeId, ObserverEvent, TimestampedEvent,
};

const REQUEST: &str = r#"{"model":"o3","input":"Think","background":true}"#;
const PATH: &str = "/v1/responses";
const QUEUED: &str = r#"{"id":"resp_1","object":"response","status":"queued","background":true,"model":"o3","output":[],"usage":null}"#;
const DONE: &str = r#"{"id":"resp_1","object":"response","status":"completed","background":true,"model":"o3","output":[{"type":"message","content":[{"type":"output_text","text":"Hi"}]}],"usage":{"input_tokens":9,"output_tokens":40,"total_tokens":49}}"#;

struct Stage {
    requests: InFlightRequests,
    records: Arc<Mutex<Vec<Record>>>,
    next: u64,
}

impl Stage {
    fn new() -> Self {
        let (requests, records) = recording(ObserverSettings::default());
        Self { requests, records, next: 0 }
    }

    fn report(&mut self, event: ObserverEvent, bytes: &[u8]) {
        let exchange = ExchangeId(self.next);
        self.requests.apply(TimestampedEvent { exchange, at: at(self.next * 100), event }, bytes);
    }

    fn body(&mut self, direction: Direction, text: &str) {
        let len = u32::try_from(text.len()).unwrap();
        let blocked = BackpressureTime::default();
        self.report(ObserverEvent::Body { direction, len, blocked }, text.as_bytes());
    }

    fn exchange(
        &mut self,
        (method, path): (http::Method, &str),
        request: &str,
        (kind, response): (&str, &str),
        ending: Ending,
    ) -> Call {
        self.next += 1;
        let mut opened = open(path);
        opened.method = method;
        self.report(ObserverEvent::RequestHead(Box::new(opened)), b"");
        self.report(ObserverEvent::Admitted, b"");
        self.report(ObserverEvent::RequestHeadSent, b"");
        self.body(Direction::Request, request);
        self.report(ObserverEvent::RequestBodySent, b"");
        self.report(head(200, kind), b"");
        self.body(Direction::Response, response);
        self.report(ObserverEvent::End(ending), b"");
        let record = self.records.lock().unwrap().pop().unwrap();
        if ending == Ending::Complete {
            assert_eq!(record.outcome, Outcome::Ok);
        }
        record.call.unwrap()
    }

    fn start(&mut self, response: &str) -> Call {
        let kind = "application/json";
        self.exchange((http::Method::POST, PATH), REQUEST, (kind, response), Ending::Complete)
    }

    /// Returns the reported output tokens of a poll.
    fn poll(&mut self, response: &str) -> Option<u64> {
        let answer = ("application/json", response);
        self.fetch("/v1/responses/resp_1", answer)
    }

    fn fetch(&mut self, path: &str, answer: (&str, &str)) -> Option<u64> {
        let call = self.exchange((http::Method::GET, path), "", answer, Ending::Complete);
        assert!(call.output.is_none(), "a poll generates nothing");
        call.usage.and_then(|usage| usage.output)
    }
}

#[test]
fn the_first_final_poll_counts_the_usage_once() {
    let mut stage = Stage::new();
    let started = stage.start(QUEUED);
    assert_eq!((started.usage, started.output), (None, None), "nothing is generated yet");
    assert_eq!(stage.poll(QUEUED), None);
    assert_eq!(stage.poll(&QUEUED.replace("queued", "in_progress")), None);
    assert_eq!(stage.poll(DONE), Some(40));
    assert_eq!(stage.poll(DONE), None, "counted before");
    assert_eq!(stage.poll(&DONE.replace("resp_1", "resp_2")), None, "never started here");
}

#[test]
fn every_final_status_with_usage_counts() {
    for status in ["completed", "incomplete", "failed", "cancelled"] {
        let mut stage = Stage::new();
        stage.start(QUEUED);
        assert_eq!(stage.poll(&DONE.replace("completed", status)), Some(40), "{status}");
        assert_eq!(stage.poll(&DONE.replace("completed", status)), None, "{status}");
    }
}

#[test]
fn a_response_that_was_streamed_to_its_end_is_not_counted_again() {
    let mut stage = Stage::new();
    let done = format!("data: {{\"type\":\"response.completed\",\"response\":{DONE}}}\n\n");
    let kind = "text/event-stream";
    let posted = (http::Method::POST, PATH);
    let call = stage.exchange(posted, REQUEST, (kind, &done), Ending::Complete);
    assert_eq!(call.usage.unwrap().output, Some(40));
    assert_eq!(stage.poll(DONE), None);
}

#[test]
fn a_stream_that_was_left_is_counted_by_the_stream_that_resumes_it() {
    let mut stage = Stage::new();
    let created = format!("data: {{\"type\":\"response.created\",\"response\":{QUEUED}}}\n\n");
    let text = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\n\n";
    let kind = "text/event-stream";
    let posted = (http::Method::POST, PATH);
    let begun = created.clone() + text;
    let call = stage.exchange(posted, REQUEST, (kind, &begun), Ending::ClientDisconnected);
    assert_eq!(call.usage, None);
    let done = format!("data: {{\"type\":\"response.completed\",\"response\":{DONE}}}\n\n");
    let resumed = stage.fetch("/v1/responses/resp_1", (kind, &(created + text + &done)));
    assert_eq!(resumed, Some(40));
    assert_eq!(stage.poll(DONE), None);
}

#[test]
fn an_interaction_in_the_background_is_counted_once() {
    let mut stage = Stage::new();
    let request = r#"{"model":"gemini-x","input":"Think","background":true}"#;
    let object = |status: &str, usage: &str| {
        format!(r#"{{"id":"v1_a","object":"interaction","status":"{status}","usage":{usage}}}"#)
    };
    let posted = (http::Method::POST, "/v1beta/interactions");
    let started = object("in_progress", "null");
    stage.exchange(posted, request, ("application/json", &started), Ending::Complete);
    let path = "/v1beta/interactions/v1_a";
    let done = object("completed", r#"{"total_input_tokens":9,"total_output_tokens":40}"#);
    assert_eq!(stage.fetch(path, ("application/json", &started)), None);
    assert_eq!(stage.fetch(path, ("application/json", &done)), Some(40));
    assert_eq!(stage.fetch(path, ("application/json", &done)), None);
}
