//! Tests of exchanges at literal timestamps, without clock, socket or sleep.

mod accounting;
mod answers;
mod backends;
mod background;
mod console;
mod deadlines;
mod encodings;
mod endings;
mod losses;
mod mcp;
mod outage_page;
mod outages;
mod overload;
mod queue;
mod sessions;
mod stalls;
mod usage;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use crate::{InFlightRequests, ObservedExchange, ObserverSettings, Sinks};
use tokengauge_llm::budget::RequestBudget;
use tokengauge_llm::count::{Source, Tokenizers};
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::load::RequestPhase;
use tokengauge_measure::record::{ChoiceStatus, Completeness, Outcome, Record};
use tokengauge_measure::slo::{CountingRules, Objective, Scope, Sli};
use tokengauge_measure::timing::LiveSample;
use tokengauge_telemetry::{Instruments, SnapshotSource, StateSnapshot, prometheus};
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::{
    BackpressureTime, BodyWaitState, CallerIdentity, Direction, Ending, ErrorSource, ExchangeId,
    Headers, ObserverEvent, RequestHead, ResponseHead, RouteFacts, Scheme, SessionRule,
    TimestampedEvent, TraceContext, UpstreamFailure,
};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Label, Name};

/// In-flight requests, and the records that they will produce.
pub(super) fn recording(settings: ObserverSettings) -> (InFlightRequests, Arc<Mutex<Vec<Record>>>) {
    let (config, _) = tokengauge_telemetry::TelemetryConfig::from_env(|_| None);
    let readings = SnapshotSource::new(StateSnapshot::default);
    let (instruments, _) = Instruments::new(&config, CardinalityLimits::default(), readings);
    let records = Arc::<Mutex<Vec<Record>>>::default();
    let kept = Arc::clone(&records);
    let record = Box::new(move |record: &Record| kept.lock().unwrap().push(record.clone()));
    let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
    (InFlightRequests::new(settings, limiter, Sinks { instruments, record }), records)
}

/// Plays events into an exchange. Every method takes the time of its event in milliseconds.
pub(super) struct Play {
    pub(super) exchange: ObservedExchange,
    samples: Vec<LiveSample>,
}

pub(super) fn at(millis: u64) -> MonotonicInstant {
    MonotonicInstant::from_millis(millis)
}

pub(super) fn open(path: &str) -> RequestHead {
    let route = RouteFacts::for_upstream("default", "api.openai.com", 443);
    RequestHead {
        wall: WallTime::from_unix_nanos(1_800_000_000_000_000_000),
        method: http::Method::POST,
        path: Name::new(path).unwrap(),
        whole_path: None,
        model: None,
        host: Name::new("proxy.example"),
        version: http::Version::HTTP_11,
        scheme: Scheme::Http,
        headers: Headers::default(),
        length: None,
        client: None,
        route: Arc::new(route),
        trace: TraceContext::default(),
        conversation: None,
        identity: CallerIdentity::default(),
        session_rule: SessionRule::default(),
        connection: None,
        body_wait: Arc::new(BodyWaitState::default()),
    }
}

/// Returns parsers with the built-in tokenizers and a budget of their own.
fn parsers() -> (&'static Tokenizers, RequestBudget) {
    static TOKENIZERS: LazyLock<Tokenizers> = LazyLock::new(Tokenizers::default);
    (&TOKENIZERS, RequestBudget::default())
}

#[test]
fn a_long_or_encoded_path_does_not_hide_a_call() {
    let long = format!("/{}/v1/chat/completions", "x".repeat(60_000));
    let mut head = open(&long);
    assert_eq!(head.path.as_str().len(), 256, "cut for telemetry");
    head.whole_path = Some(long.into());
    for head in [head, open("/v1/ch%61t/completion%73")] {
        let play = Play::opened(head, STREAMED);
        assert!(play.exchange.is_call());
        assert_eq!(play.exchange.model().unwrap().as_str(), "gpt-4o");
    }
}

pub(super) const STREAMED: &str =
    r#"{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"Say hello"}]}"#;
const WHOLE: &str = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"Say hello"}]}"#;

impl Play {
    /// Plays a request whose headers arrive at 100 ms. The request is sent and uploaded at 110 ms.
    fn request(path: &str, body: &str) -> Self {
        Self::opened(open(path), body)
    }

    fn opened(open: RequestHead, body: &str) -> Self {
        let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
        let exchange =
            ObservedExchange::new(ExchangeId(1), at(100), Box::new(open), limiter, parsers());
        let mut play = Self { exchange, samples: Vec::new() };
        play.apply_event(100, ObserverEvent::Admitted, b"");
        play.apply_event(110, ObserverEvent::RequestHeadSent, b"");
        play.arrival(110, Direction::Request, body, 0);
        play.apply_event(110, ObserverEvent::RequestBodySent, b"");
        play
    }

    pub(super) fn chat(body: &str) -> Self {
        Self::request("/v1/chat/completions", body)
    }

    pub(super) fn head(
        &mut self,
        millis: u64,
        status: u16,
        content_type: &'static str,
    ) -> &mut Self {
        self.apply_event(millis, head(status, content_type), b"")
    }

    pub(super) fn stream(body: &str) -> Self {
        let mut play = Self::chat(body);
        play.head(200, 200, "text/event-stream");
        play
    }

    pub(super) fn arrival(
        &mut self,
        millis: u64,
        direction: Direction,
        body: &str,
        blocked: u64,
    ) -> &mut Self {
        let blocked = BackpressureTime::from_duration(Duration::from_millis(blocked));
        let len = u32::try_from(body.len()).unwrap();
        self.apply_event(millis, ObserverEvent::Body { direction, len, blocked }, body.as_bytes())
    }

    /// Plays one server-sent event.
    pub(super) fn event(&mut self, millis: u64, data: &str) -> &mut Self {
        self.arrival(millis, Direction::Response, &format!("data: {data}\n\n"), 0)
    }

    pub(super) fn delta(&mut self, millis: u64, delta: &str) -> &mut Self {
        self.event(millis, &chunk(delta, "null"))
    }

    fn apply_event(&mut self, millis: u64, event: ObserverEvent, bytes: &[u8]) -> &mut Self {
        let Self { exchange, samples } = self;
        exchange.apply(at(millis), event, bytes, &mut |sample| samples.push(sample));
        self
    }

    pub(super) fn end(self, millis: u64, ending: Ending) -> (Record, Vec<LiveSample>) {
        let Self { exchange, mut samples } = self;
        let record = exchange.end(at(millis), ending, &mut |sample| samples.push(sample));
        (record, samples)
    }

    fn complete(self, millis: u64) -> Record {
        self.end(millis, Ending::Complete).0
    }
}

pub(super) fn head(status: u16, content_type: &str) -> ObserverEvent {
    let headers: Headers =
        [("content-type", Name::new(content_type).unwrap())].into_iter().collect();
    ObserverEvent::ResponseHead(Box::new(ResponseHead {
        status,
        version: http::Version::HTTP_11,
        headers,
        length: None,
        from_proxy: false,
    }))
}

pub(super) fn chunk(delta: &str, finish: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"gpt-4o-2024-08-06","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#
    )
}

pub(super) fn usage(output: u64, reasoning: u64) -> String {
    format!(
        r#"{{"id":"chatcmpl-1","choices":[],"usage":{{"prompt_tokens":9,"completion_tokens":{output},"total_tokens":{},"completion_tokens_details":{{"reasoning_tokens":{reasoning}}}}}}}"#,
        9 + output
    )
}

/// 99 % of all calls within a day succeed.
fn availability() -> Objective {
    Objective {
        name: Label::from_trusted("availability"),
        indicator: Sli::Availability,
        target: 0.99,
        window: Duration::from_secs(86_400),
        scope: Scope::default(),
        counting: CountingRules::default(),
    }
}

fn ms(millis: u64) -> Option<Duration> {
    Some(Duration::from_millis(millis))
}

#[test]
fn role_only_delta_is_not_the_first_token() {
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"role":"assistant","content":""}"#);
    assert_eq!(play.exchange.state(), RequestPhase::Waiting);
    play.delta(500, r#"{"content":"Hello"}"#);
    assert_eq!(play.exchange.state(), RequestPhase::Streaming);
    play.event(600, &chunk("{}", r#""stop""#)).event(600, "[DONE]");
    let record = play.complete(600);
    assert_eq!(record.timestamps.event, Some(at(300)));
    assert_eq!(record.timestamps.token, Some(at(500)));
    assert_eq!(record.timestamps.time_to_first_token(), ms(400), "first token 500 − accept 100");
    assert_eq!(record.outcome, Outcome::Ok);
    assert_eq!(
        record.stages.iter().map(|(_, length)| length).sum::<Duration>(),
        Duration::from_millis(500),
        "the stages add up to end − accept"
    );
}

#[test]
fn reasoning_is_a_first_token_but_not_visible() {
    let mut play = Play::stream(STREAMED);
    play.delta(400, r#"{"reasoning_content":"Hmm"}"#).delta(900, r#"{"content":"Hello"}"#);
    play.event(950, &chunk("{}", r#""stop""#)).event(950, "[DONE]");
    let record = play.complete(950);
    assert_eq!(record.timestamps.time_to_first_token(), ms(300));
    assert_eq!(record.timestamps.time_to_visible(), ms(800));
}

#[test]
fn tool_arguments_are_a_first_token_but_not_visible() {
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}]}"#);
    play.delta(400, r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":1}"}}]}"#);
    play.event(500, &chunk("{}", r#""tool_calls""#)).event(500, "[DONE]");
    let record = play.complete(500);
    assert_eq!((record.timestamps.token, record.timestamps.visible), (Some(at(400)), None));
}

#[test]
fn usage_pings_and_comments_are_not_tokens() {
    let mut play = Play::stream(STREAMED);
    play.arrival(250, Direction::Response, ": keep-alive\n\n", 0).event(300, &usage(0, 0));
    assert_eq!(play.exchange.timestamps.token, None);
    assert_eq!(play.exchange.timestamps.event, Some(at(300)), "a comment is not an event");
}

#[test]
fn rate_excludes_hidden_reasoning() {
    // 500 tokens are reported, of which 400 are hidden. The other 100 were streamed in 4 chunks of 25 over 3 s. The
    // rate excludes the first chunk: 75 tokens in 3 s.
    let mut play = Play::stream(STREAMED);
    let text = " word".repeat(25);
    for second in 1..=4 {
        play.delta(second * 1_000, &format!(r#"{{"content":"{text}"}}"#));
    }
    play.event(4_000, &chunk("{}", r#""stop""#))
        .event(4_000, &usage(500, 400))
        .event(4_000, "[DONE]");
    let call = play.complete(4_100).call.unwrap();
    let output = call.output.unwrap();
    assert_eq!((output.tokens, output.hidden, output.source), (100.0, 400, Some(Source::Reported)));
    assert_eq!(output.counted, 100, "25 × \" word\", four times");
    assert_eq!(call.rates.output, Some(25.0));
}

#[test]
fn counts_tokens_without_usage() {
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"content":"Hello"}"#).delta(350, r#"{"content":" world"}"#);
    play.event(360, &chunk("{}", r#""stop""#)).event(360, "[DONE]");
    let (record, samples) = play.end(360, Ending::Complete);
    let output = record.call.as_ref().unwrap().output.unwrap();
    assert_eq!((output.tokens, output.source, output.standard), (2.0, Some(Source::Counted), 2));
    assert_eq!(record.call.unwrap().usage, None);
    let live: u32 = samples
        .iter()
        .map(|s| if let LiveSample::Tokens { tokens, .. } = s { *tokens } else { 0 })
        .sum();
    let standard: u32 = samples
        .iter()
        .map(|s| if let LiveSample::Standard { tokens } = s { *tokens } else { 0 })
        .sum();
    assert_eq!((live, standard), (2, 2), "the live counts add up to the total");
}

#[test]
fn estimates_tokens_of_unknown_models() {
    let mut play = Play::stream(&STREAMED.replace("gpt-4o", "llama-3.1-8b"));
    play.event(
        300,
        &chunk(r#"{"content":"Hello"}"#, "null").replace("gpt-4o-2024-08-06", "llama-3.1-8b"),
    );
    let output = play.complete(360).call.unwrap().output.unwrap();
    assert_eq!(output.source, Some(Source::Estimated));
}

#[test]
fn uses_last_cumulative_usage() {
    let mut play = Play::stream(STREAMED);
    for n in 1..=3 {
        let with_usage = chunk(r#"{"content":" a"}"#, "null").replace(
            r#""choices""#,
            &format!(r#""usage":{{"prompt_tokens":9,"completion_tokens":{n},"total_tokens":{}}},"choices""#, 9 + n),
        );
        play.event(300 + n * 10, &with_usage);
    }
    play.event(400, &chunk("{}", r#""stop""#)).event(400, "[DONE]");
    let usage = play.complete(400).call.unwrap().usage.unwrap();
    assert_eq!((usage.input, usage.output), (Some(9), Some(3)));
}

#[test]
fn ignores_zero_usage_beside_text() {
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"content":"Hello"}"#).event(310, &chunk("{}", r#""stop""#));
    play.event(310, &usage(0, 0)).event(310, "[DONE]");
    let output = play.complete(310).call.unwrap().output.unwrap();
    assert_eq!((output.tokens, output.source), (1.0, Some(Source::Counted)));
}

#[test]
fn client_may_close_after_the_final_event() {
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"content":"Hello"}"#)
        .event(310, &chunk("{}", r#""stop""#))
        .event(310, "[DONE]");
    let (record, _) = play.end(311, Ending::ClientDisconnected);
    assert_eq!(
        (record.outcome, record.error_source, record.error_type),
        (Outcome::Ok, ErrorSource::None, None)
    );
    assert_eq!(record.call.unwrap().complete, Completeness::Complete);
}

#[test]
fn counts_tokens_until_the_client_leaves() {
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"content":"Hello"}"#).delta(350, r#"{"content":" world"}"#);
    let (record, _) = play.end(400, Ending::ClientDisconnected);
    assert_eq!((record.outcome, record.error_source), (Outcome::Cancelled, ErrorSource::Client));
    let call = record.call.unwrap();
    assert_eq!((call.complete, call.output.unwrap().counted), (Completeness::Cut, 2));
    assert_eq!(call.finish_reasons().count(), 0, "no reason was received");
    assert_eq!(call.choices[0].status, ChoiceStatus::Unfinished);
}

#[test]
fn truncation_by_the_upstream_is_its_fault() {
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"content":"Hello"}"#);
    let (record, _) = play.end(400, Ending::UpstreamFailed(UpstreamFailure::MidBody));
    assert_eq!((record.outcome, record.error_source), (Outcome::Truncated, ErrorSource::Upstream));
    assert_eq!(record.error_type, Name::new("upstream_truncated"));
}

#[test]
fn stream_without_end_marker_ends_with_its_body() {
    let play = || {
        let body = r#"{"text_input":"Say hello"}"#;
        let mut play = Play::request("/v2/models/m/generate_stream", body);
        play.head(200, 200, "text/event-stream");
        play.event(300, r#"{"model_name":"m","text_output":"Hello"}"#);
        play
    };
    let record = play().complete(400);
    let call = record.call.as_ref().unwrap();
    assert_eq!((record.outcome, call.complete), (Outcome::Ok, Completeness::Complete));
    let (record, _) = play().end(400, Ending::UpstreamFailed(UpstreamFailure::MidBody));
    let call = record.call.as_ref().unwrap();
    assert_eq!((record.outcome, call.complete), (Outcome::Truncated, Completeness::Cut));
}

/// Returns outcome, completeness, finish reasons and choices of a stream of two words and `events`.
fn told(events: &[&str]) -> (Outcome, Completeness, String, Vec<ChoiceStatus>) {
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"content":"Hello"}"#).delta(350, r#"{"content":" world"}"#);
    for event in events {
        play.event(400, event);
    }
    let record = play.complete(400);
    let call = record.call.unwrap();
    let reasons: Vec<_> = call.finish_reasons().map(Name::as_str).collect();
    let statuses = call.choices.iter().map(|choice| choice.status).collect();
    (record.outcome, call.complete, reasons.join(" "), statuses)
}

#[test]
fn an_end_marker_after_an_error_does_not_complete_a_stream() {
    let unfinished = vec![ChoiceStatus::Unfinished];
    let error = r#"{"error":{"type":"server_error","message":"x"}}"#;
    let expected = (Outcome::Error, Completeness::Cut, String::new(), unfinished);
    assert_eq!(told(&[error, "[DONE]"]), expected);
    assert_eq!(told(&[error]), expected);
}

#[test]
fn a_choice_without_a_finish_reason_did_not_finish() {
    let unfinished = vec![ChoiceStatus::Unfinished];
    let expected = (Outcome::Ok, Completeness::Complete, String::new(), unfinished);
    assert_eq!(told(&["[DONE]"]), expected);
    let stopped = chunk("{}", r#""stop""#);
    let complete = vec![ChoiceStatus::Complete];
    let expected = (Outcome::Ok, Completeness::Complete, "stop".to_owned(), complete);
    assert_eq!(told(&[&stopped, "[DONE]"]), expected);
}

#[test]
fn only_received_finish_reasons_are_exported() {
    let one = r#"{"choices":[{"index":1,"delta":{"content":"b"}}]}"#;
    let stopped = chunk("{}", r#""stop""#);
    let (outcome, _, reasons, statuses) = told(&[one, &stopped, &usage(3, 0), "[DONE]"]);
    assert_eq!((outcome, reasons.as_str()), (Outcome::Ok, "stop"));
    assert_eq!(statuses, [ChoiceStatus::Complete, ChoiceStatus::Unfinished]);
}

#[test]
fn a_finish_reason_of_a_failure_is_an_error_of_the_upstream() {
    for reason in ["abort", "insufficient_system_resource", "error", "cancelled", "timeout"] {
        let stopped = chunk("{}", &format!("{reason:?}"));
        let (outcome, complete, reasons, statuses) = told(&[&stopped, "[DONE]"]);
        assert_eq!((outcome, complete), (Outcome::Error, Completeness::Cut), "{reason}");
        assert_eq!((reasons.as_str(), &*statuses), (reason, &[ChoiceStatus::Unfinished][..]));
    }
}

#[test]
fn a_word_for_no_finish_reason_does_not_end_a_stream() {
    for none in ["null", "none", "None", ""] {
        let open = chunk(r#"{"content":"c"}"#, &format!("{none:?}"));
        let expected =
            (Outcome::Truncated, Completeness::Cut, String::new(), vec![ChoiceStatus::Unfinished]);
        assert_eq!(told(&[&open]), expected, "{none}");
    }
}

#[test]
fn usage_after_the_text_completes_a_stream_that_http_delivered() {
    let unfinished = vec![ChoiceStatus::Unfinished];
    let expected = (Outcome::Ok, Completeness::Complete, String::new(), unfinished.clone());
    assert_eq!(told(&[&usage(2, 0)]), expected);
    let beside = r#"{"choices":[{"index":0,"delta":{}}],"usage":{"completion_tokens":2}}"#;
    assert_eq!(told(&[beside]), expected);
    // The usage of a part of the response does not show that the response is complete.
    let more = chunk(r#"{"content":"c"}"#, "null");
    let part =
        r#"{"choices":[{"index":0,"delta":{"content":"c"}}],"usage":{"completion_tokens":3}}"#;
    let cut = (Outcome::Truncated, Completeness::Cut, String::new(), unfinished);
    for events in [&[&*usage(2, 0), &more][..], &[&usage(2, 0), &more, &usage(3, 0)], &[part]] {
        assert_eq!(told(events), cut, "{events:?}");
    }
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"content":"Hello"}"#).event(400, &usage(1, 0));
    let ending = Ending::UpstreamFailed(UpstreamFailure::MidBody);
    assert_eq!(play.end(400, ending).0.outcome, Outcome::Truncated);
}

#[test]
fn detects_engine_by_the_prompt() {
    for (body, provider) in [
        (r#"{"inputs":"Hi"}"#, Some("tgi")),
        (r#"{"text":"Hi"}"#, Some("sglang")),
        (r#"{"prompt":"Hi"}"#, Some("vllm")),
        (r#"{"query":"Hi"}"#, None),
    ] {
        let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
        let mut open = open("/generate");
        let route = Arc::make_mut(&mut open.route);
        route.server_address = Label::from_trusted("10.0.0.1");
        let exchange =
            ObservedExchange::new(ExchangeId(1), at(100), Box::new(open), limiter, parsers());
        let samples = Vec::new();
        let mut play = Play { exchange, samples };
        play.arrival(110, Direction::Request, body, 0);
        play.apply_event(110, ObserverEvent::RequestBodySent, b"");
        play.head(200, 200, "application/json");
        let record = play.complete(300);
        let told = record.call.map(|call| call.series.provider.to_string());
        assert_eq!(told.as_deref(), provider, "{body}");
    }
}

#[test]
fn none_one_and_two_tokens() {
    let play = |words: &[(u64, &str)]| {
        let mut play = Play::stream(STREAMED);
        for (millis, word) in words {
            play.delta(*millis, &format!(r#"{{"content":"{word}"}}"#));
        }
        play.event(900, &chunk("{}", r#""stop""#)).event(900, "[DONE]");
        play.complete(1_100).call.unwrap()
    };
    let none = play(&[]);
    assert_eq!(none.output.map(|output| output.tokens), Some(0.0));
    assert_eq!(
        (none.rates.output, none.rates.total, none.rates.time_per_output_token),
        (None, None, None)
    );
    let one = play(&[(300, "Hello")]);
    assert_eq!((one.rates.total, one.rates.time_per_output_token), (Some(1.0), None));
    let two = play(&[(300, "Hello"), (500, " world")]);
    assert_eq!((two.rates.total, two.rates.time_per_output_token), (Some(2.0), ms(200)));
}

#[test]
fn non_streaming_response_has_no_first_token() {
    let mut play = Play::chat(WHOLE);
    assert_eq!(play.exchange.state(), RequestPhase::Unstreamed);
    play.head(600, 200, "application/json");
    let body = r#"{"id":"chatcmpl-2","object":"chat.completion","model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"Hello world"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#;
    play.arrival(610, Direction::Response, body, 0);
    let record = play.complete(1_100);
    assert_eq!(
        (record.timestamps.event, record.timestamps.token, record.timestamps.last),
        (None, None, None)
    );
    let call = record.call.unwrap();
    assert!(!call.streamed);
    assert_eq!(call.output.unwrap().counted, 2);
    assert_eq!(call.rates.total, Some(2.0), "2 tokens in 1 s");
    assert!(call.finish_reasons().eq([&Name::new("stop").unwrap()]));
}

#[test]
fn error_response_has_a_type_and_no_tokens() {
    let mut play = Play::chat(STREAMED);
    play.head(150, 429, "application/json");
    let body = r#"{"error":{"message":"Slow down","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}"#;
    play.arrival(150, Direction::Response, body, 0);
    let record = play.complete(160);
    assert_eq!((record.outcome, record.error_source), (Outcome::Error, ErrorSource::Upstream));
    assert!(record.error_type.is_some_and(|kind| kind.as_str().starts_with("rate_limit")));
    let call = record.call.unwrap();
    assert_eq!((call.output, call.usage), (None, None));
    assert!(call.choices.is_empty(), "an error response has no finish reason");
}

#[test]
fn rate_excludes_client_backpressure() {
    // 21 single-token chunks, 100 ms apart. Before the last chunk, the client did not read for 5 s.
    let mut play = Play::stream(STREAMED);
    for n in 0..20 {
        play.delta(1_000 + n * 100, r#"{"content":" a"}"#);
    }
    play.arrival(
        8_000,
        Direction::Response,
        &format!("data: {}\n\n", chunk(r#"{"content":" a"}"#, r#""stop""#)),
        5_000,
    );
    let (record, samples) = play.end(8_000, Ending::Complete);
    assert_eq!(record.blocked, Duration::from_secs(5));
    // 20 tokens after the first in 7 s − 5 s.
    assert_eq!(record.call.unwrap().rates.output, Some(10.0));
    let gaps: Vec<_> = samples
        .iter()
        .filter_map(|s| if let LiveSample::InterChunk { gap } = s { Some(*gap) } else { None })
        .collect();
    assert_eq!(gaps.last().copied(), ms(100), "8,000 − 2,900 − 5,000");
}

#[test]
fn response_with_a_gap_has_no_rate() {
    let mut play = Play::stream(STREAMED);
    play.delta(300, r#"{"content":"Hello"}"#);
    play.apply_event(400, ObserverEvent::Gap { direction: Direction::Response, bytes: 1_000 }, b"");
    play.delta(500, r#"{"content":" world"}"#).event(510, "[DONE]");
    let record = play.complete(520);
    assert!(record.anomalies.contains(&(ParseError::Gap, 1)));
    assert!(record.http.response_bytes > 1_000, "unobserved bytes count as sent");
    let call = record.call.unwrap();
    assert_eq!(
        (call.complete, call.rates.output, call.rates.total),
        (Completeness::Unobserved, None, None)
    );
}

#[test]
fn plain_http_is_not_a_call() {
    let play = Play::request("/v1/models", "");
    let record = play.complete(200);
    assert!(record.call.is_none());
    assert_eq!(record.outcome, Outcome::Ok);
}

#[test]
fn embeddings_are_not_generated() {
    let mut play =
        Play::request("/v1/embeddings", r#"{"model":"text-embedding-3-small","input":"Hello"}"#);
    play.head(150, 200, "application/json");
    let body = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,0.2]}],"model":"text-embedding-3-small","usage":{"prompt_tokens":1,"total_tokens":1}}"#;
    play.arrival(160, Direction::Response, body, 0);
    let call = play.complete(160).call.unwrap();
    assert_eq!((call.output, call.usage.unwrap().input), (None, Some(1)));
}

#[test]
fn labels_model_only_after_a_response_below_400() {
    let model = |status: u16| {
        let mut play = Play::chat(STREAMED);
        play.head(150, status, "text/event-stream");
        play.complete(200).call.unwrap().series.model.to_string()
    };
    assert_eq!((model(200).as_str(), model(404).as_str()), ("gpt-4o", "other"));
}

#[test]
fn each_choice_has_its_finish_reason() {
    let body = STREAMED.replace(r#""stream""#, r#""n":2,"stream""#);
    let mut play = Play::stream(&body);
    let other = |text: &str| text.replace(r#""index":0"#, r#""index":1"#);
    play.delta(300, r#"{"content":"Hello"}"#)
        .event(310, &other(&chunk(r#"{"content":"Good day"}"#, "null")));
    play.event(320, &other(&chunk("{}", r#""length""#)))
        .event(330, &chunk("{}", r#""stop""#))
        .event(330, "[DONE]");
    let call = play.complete(340).call.unwrap();
    let reasons: Vec<_> = call.finish_reasons().map(Name::as_str).collect();
    assert_eq!(reasons, ["stop", "length"]);
    assert_eq!(call.output.unwrap().counted, 3, "Hello · Good day, each choice counted on its own");
}

#[test]
fn reports_truncated_tool_arguments() {
    let mut play = Play::stream(r#"{"model":"gpt-4o","stream":true,"n":2}"#);
    let call = |choice: u32, text: &str| {
        let text = serde_json::Value::from(text);
        format!(
            r#"{{"choices":[{{"index":{choice},"delta":{{"tool_calls":[{{"index":0,"function":{{"arguments":{text}}}}}]}}}}]}}"#
        )
    };
    play.event(300, &call(0, r#"{"x":"#));
    play.event(310, &call(1, r#"{"x":"#));
    play.event(320, &call(1, "1}"));
    for choice in [0, 1] {
        let end = format!(
            r#"{{"choices":[{{"index":{choice},"delta":{{}},"finish_reason":"tool_calls"}}]}}"#
        );
        play.event(400, &end);
    }
    play.event(410, "[DONE]");
    let call = play.complete(420).call.unwrap();
    let statuses: Vec<_> = call.choices.iter().map(|choice| choice.status).collect();
    assert_eq!(statuses, [ChoiceStatus::ToolJsonInvalid, ChoiceStatus::Complete]);
}

#[test]
fn panic_in_a_sink_affects_one_exchange() {
    let (config, _) = tokengauge_telemetry::TelemetryConfig::from_env(|_| None);
    let readings = SnapshotSource::new(StateSnapshot::default);
    let (instruments, collector) =
        Instruments::new(&config, CardinalityLimits::default(), readings);
    let seen = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&seen);
    let record = Box::new(move |record: &Record| {
        count.fetch_add(1, Ordering::Relaxed);
        assert!(record.exchange != ExchangeId(1), "intended");
    });
    let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
    let mut requests =
        InFlightRequests::new(ObserverSettings::default(), limiter, Sinks { instruments, record });
    for id in [1, 2] {
        let mut apply = |word| {
            let entry = TimestampedEvent { exchange: ExchangeId(id), at: at(100), event: word };
            requests.apply(entry, b"");
        };
        apply(ObserverEvent::RequestHead(Box::new(open("/v1/chat/completions"))));
        apply(ObserverEvent::End(Ending::ClientDisconnected));
    }
    assert_eq!((seen.load(Ordering::Relaxed), requests.in_flight()), (2, 0));
    let metrics = prometheus::Format::Text.render(&collector.scrape());
    let panics =
        metrics.lines().find(|line| line.contains("parse_errors") && line.contains("\"panic\""));
    assert!(panics.is_some_and(|line| line.ends_with(" 1")), "{panics:?}");
}

#[test]
fn detects_api_by_the_upstream_path() {
    let is_call = |path: &str, stripped: usize, base_path: &str| {
        let mut open = open(path);
        let route = Arc::make_mut(&mut open.route);
        route.stripped = stripped;
        route.base_path = Label::from_trusted(base_path);
        let mut play = Play::opened(open, STREAMED);
        play.head(150, 200, "text/event-stream");
        play.complete(200).call.is_some()
    };
    let prefix = "/chat";
    assert!(is_call(prefix, prefix.len(), "/v1/chat/completions"));
    assert!(is_call("/chat/completions", prefix.len(), "/v1/chat"));
    assert!(!is_call(prefix, prefix.len(), ""));
    assert!(!is_call("/batches", 0, "/v1/chat/completions"));
}
