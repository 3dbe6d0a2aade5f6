//! Plays one call at literal timestamps in milliseconds. The request headers arrive at 1,000.

use super::super::endings::Stage;
use super::super::{STREAMED, WHOLE, chunk, open};
use tokengauge_types::event::{Direction, Ending, Headers, ObserverEvent, ResponseHead};
use tokengauge_types::label::Name;

pub(super) const ACCEPTED: u64 = 1_000;
const SENT: u64 = 1_011;
const HEAD: u64 = 1_100;
/// Time of the first token of a healthy call, and of all of a response without a stream.
pub(super) const TOKEN: u64 = 1_300;
/// Time between two tokens of a healthy stream, and number of its tokens.
const GAP: u64 = 10;
pub(super) const TOKENS: u64 = 50;
/// Time between two sweeps of the observer.
const SWEEP: u64 = 250;
/// Time between two samples of the metrics. At one call per second, the calls in flight have the ages of the samples.
const SAMPLE: u64 = 1_000;

/// Path that shows the API of a request without its body.
pub(super) const KNOWN_PATH: &str = "/v1/chat/completions";
/// Path that several APIs share. The body of a request shows which one.
pub(super) const SHARED_PATH: &str = "/serving-endpoints/gpt-4o/invocations";

/// One call, as far as it was played.
pub(super) struct Call {
    pub(super) stage: Stage,
    stream: bool,
    path: &'static str,
    now: u64,
    /// Whether bytes of the response were lost.
    pub(super) is_unobserved: bool,
    /// All metrics in the text format, for each whole second of the call.
    pub(super) samples: Vec<String>,
}

impl Call {
    pub(super) fn new(stage: Stage, stream: bool, path: &'static str) -> Self {
        Self { stage, stream, path, now: ACCEPTED, is_unobserved: false, samples: Vec::new() }
    }

    /// Lets time pass until `millis`, with a sweep every 250 ms.
    fn pass(&mut self, millis: u64) {
        while self.now / SWEEP < millis / SWEEP {
            self.now = (self.now / SWEEP + 1) * SWEEP;
            self.stage.sweep(self.now);
            if self.now.is_multiple_of(SAMPLE) {
                self.samples.push(self.stage.metrics());
            }
        }
        self.now = millis;
    }

    fn report(&mut self, millis: u64, event: ObserverEvent) {
        self.pass(millis);
        self.stage.report(millis, event);
    }

    /// Receives the request headers, and the whole body or half of it.
    pub(super) fn receive(&mut self, is_whole: bool) {
        let body = if self.stream { STREAMED } else { WHOLE };
        let mut head = open(self.path);
        head.length = Some(body.len() as u64);
        self.stage.report(ACCEPTED, ObserverEvent::RequestHead(Box::new(head)));
        let (half, _) = body.split_at(body.len() / 2);
        let sent = if is_whole { body } else { half };
        self.stage.body(ACCEPTED, Direction::Request, sent);
    }

    pub(super) fn queue(&mut self) {
        self.report(ACCEPTED, ObserverEvent::Queued);
    }

    pub(super) fn admit(&mut self, millis: u64) {
        self.report(millis, ObserverEvent::Admitted);
    }

    /// Receives a request, admits it and waits for a connection.
    pub(super) fn ask(&mut self) {
        self.receive(true);
        self.admit(ACCEPTED);
    }

    /// Sends the request on a connection that was just opened.
    pub(super) fn send(&mut self, millis: u64) {
        self.report(millis, ObserverEvent::RequestHeadSent);
        self.report(millis, ObserverEvent::RequestBodySent);
    }

    pub(super) fn ask_and_send(&mut self) {
        self.ask();
        self.send(SENT);
    }

    pub(super) fn head(&mut self, millis: u64, status: u16, from_proxy: bool) {
        let kind = match status {
            200 if self.stream => "text/event-stream",
            _ => "application/json",
        };
        let headers: Headers = [("content-type", Name::new(kind).unwrap())].into_iter().collect();
        let head = ResponseHead {
            status,
            version: http::Version::HTTP_11,
            headers,
            length: None,
            from_proxy,
        };
        self.report(millis, ObserverEvent::ResponseHead(Box::new(head)));
    }

    /// Ends with a response of the proxy.
    pub(super) fn own(&mut self, millis: u64, status: u16, ending: Ending) {
        self.head(millis, status, true);
        self.end(millis, ending);
    }

    pub(super) fn end(&mut self, millis: u64, ending: Ending) {
        self.report(millis, ObserverEvent::End(ending));
        // After the last sweep, the gauges do not include the call.
        self.stage.sweep(millis);
    }

    /// Receives an error response.
    pub(super) fn fail(&mut self, status: u16, kind: &str) {
        self.ask_and_send();
        self.head(HEAD, status, false);
        self.bytes(HEAD, &format!(r#"{{"error":{{"type":"{kind}"}}}}"#));
        self.end(HEAD + 10, Ending::Complete);
    }

    /// Loses bytes of the response, because the observer is behind.
    pub(super) fn lose(&mut self, millis: u64) {
        let direction = Direction::Response;
        self.is_unobserved = true;
        self.report(millis, ObserverEvent::Gap { direction, bytes: 1_000 });
    }

    fn bytes(&mut self, millis: u64, text: &str) {
        self.pass(millis);
        self.stage.body(millis, Direction::Response, text);
    }

    pub(super) fn event(&mut self, millis: u64, data: &str) {
        self.pass(millis);
        self.stage.event(millis, data);
    }

    /// Receives response headers and `tokens` from `first` on, one per `gap`. Without a stream, they are the start of a
    /// body. Returns the time of the last one.
    pub(super) fn tokens(&mut self, first: u64, gap: u64, tokens: u64) -> u64 {
        self.part("content", first, gap, tokens)
    }

    /// Receives tokens of reasoning.
    pub(super) fn reasoning(&mut self, first: u64, gap: u64, tokens: u64) -> u64 {
        self.part("reasoning_content", first, gap, tokens)
    }

    fn part(&mut self, field: &str, first: u64, gap: u64, tokens: u64) -> u64 {
        let last = first + gap * tokens.saturating_sub(1);
        self.head(HEAD.max(self.now), 200, false);
        if !self.stream {
            let text = " a".repeat(usize::try_from(tokens).unwrap());
            self.bytes(last, &format!(r#"{{"choices":[{{"message":{{"{field}":"{text}"#));
            return last;
        }
        for number in 0..tokens {
            let delta = format!(r#"{{"{field}":" a"}}"#);
            self.event(first + gap * number, &chunk(&delta, "null"));
        }
        last
    }

    /// Completes the response.
    pub(super) fn finish(&mut self, millis: u64) {
        if self.stream {
            self.event(millis, &chunk("{}", r#""stop""#));
            self.event(millis, "[DONE]");
        } else {
            self.bytes(millis, r#""},"finish_reason":"stop"}]}"#);
        }
        self.end(millis, Ending::Complete);
    }

    /// Serves a healthy response that begins at `first`.
    pub(super) fn serve(&mut self, first: u64, gap: u64) {
        let last = self.tokens(first, gap, TOKENS);
        self.finish(last);
    }

    pub(super) fn healthy(&mut self) {
        self.ask_and_send();
        self.serve(TOKEN, GAP);
    }
}

/// Returns whether a series counts up, as counters and the parts of histograms do.
pub(super) fn is_counter(series: &str) -> bool {
    let name = series.split(['{', ' ']).next().unwrap_or_default();
    ["_total", "_sum", "_count", "_bucket"].iter().any(|end| name.ends_with(end))
}
