//! Tests of WebSocket requests with fixed timestamps, from the events to records and metrics.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{InFlightRequests, ObserverSettings, Sinks};
use tokengauge_llm::count::Source;
use tokengauge_llm::dialect::{ByModality, Operation, Usage};
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::load::RequestPhase;
use tokengauge_measure::record::{CloseFrame, Completeness, Outcome, Record};
use tokengauge_measure::slo::{CountingRules, Objective, Scope, Sli};
use tokengauge_telemetry::{Instruments, MetricsReader, SnapshotSource, StateSnapshot, prometheus};
use tokengauge_types::clock::{MonotonicInstant, WallTime};
use tokengauge_types::event::{
    BackpressureTime, BodyWaitState, CallerIdentity, Direction, Ending, ErrorSource, ExchangeId,
    ObserverEvent, RequestHead, ResponseHead, RouteFacts, Scheme, SessionRule, TimestampedEvent,
    TraceContext, UpstreamFailure,
};
use tokengauge_types::label::{CardinalityLimiter, CardinalityLimits, Dimension, Label, Name};

pub(super) const CLIENT: Direction = Direction::Request;
pub(super) const UPSTREAM: Direction = Direction::Response;
pub(super) const MASK: [u8; 4] = [1, 2, 3, 4];

/// One exchange. Every step takes 100 ms.
pub(super) struct Play {
    pub(super) requests: InFlightRequests,
    collector: MetricsReader,
    limiter: Arc<CardinalityLimiter>,
    pub(super) records: Arc<Mutex<Vec<Record>>>,
    pub(super) millis: u64,
}

impl Play {
    /// Sends a GET request for an upgrade. `model` is added to the query.
    pub(super) fn get(path: &str, model: Option<&str>) -> Self {
        let (config, _) = tokengauge_telemetry::TelemetryConfig::from_env(|_| None);
        let readings = SnapshotSource::new(StateSnapshot::default);
        let (instruments, collector) =
            Instruments::new(&config, CardinalityLimits::default(), readings);
        let records = Arc::default();
        let kept: Arc<Mutex<Vec<Record>>> = Arc::clone(&records);
        let record = Box::new(move |record: &Record| kept.lock().unwrap().push(record.clone()));
        let limiter = Arc::new(CardinalityLimiter::new(CardinalityLimits::default(), []));
        let sinks = Sinks { instruments, record };
        let requests = InFlightRequests::new(
            ObserverSettings::with_objectives(objectives()),
            Arc::clone(&limiter),
            sinks,
        );
        let mut play = Self { requests, collector, limiter, records, millis: 0 };
        play.report(ObserverEvent::RequestHead(Box::new(open(path, model))), b"");
        for event in [
            ObserverEvent::Admitted,
            ObserverEvent::RequestHeadSent,
            ObserverEvent::RequestBodySent,
        ] {
            play.report(event, b"");
        }
        play
    }

    /// Opens a session without messages.
    fn session() -> Self {
        let mut play = Self::get("/v1/realtime", Some("gpt-4o-realtime-preview"));
        play.upgraded("websocket");
        play
    }

    pub(super) fn report(&mut self, event: ObserverEvent, bytes: &[u8]) -> &mut Self {
        self.millis += 100;
        let entry = TimestampedEvent {
            exchange: ExchangeId(1),
            at: MonotonicInstant::from_millis(self.millis),
            event,
        };
        self.requests.apply(entry, bytes);
        self
    }

    pub(super) fn upgraded(&mut self, protocol: &str) -> &mut Self {
        self.head(101, "upgrade", protocol).report(ObserverEvent::Upgraded, b"")
    }

    fn head(&mut self, status: u16, header: &'static str, value: &str) -> &mut Self {
        let head = ResponseHead {
            status,
            version: http::Version::HTTP_11,
            headers: [(header, Name::new(value).unwrap())].into_iter().collect(),
            length: None,
            from_proxy: false,
        };
        self.report(ObserverEvent::ResponseHead(Box::new(head)), b"")
    }

    pub(super) fn bytes(&mut self, direction: Direction, bytes: &[u8]) -> &mut Self {
        let arrival = ObserverEvent::Body {
            direction,
            len: u32::try_from(bytes.len()).unwrap(),
            blocked: BackpressureTime::default(),
        };
        self.report(arrival, bytes)
    }

    pub(super) fn client(&mut self, text: &str) -> &mut Self {
        self.bytes(CLIENT, &frame(0x81, text.as_bytes(), Some(MASK)))
    }

    pub(super) fn server(&mut self, text: &str) -> &mut Self {
        self.bytes(UPSTREAM, &frame(0x81, text.as_bytes(), None))
    }

    fn created(&mut self) -> &mut Self {
        self.server(CREATED)
    }

    pub(super) fn close(&mut self, direction: Direction, code: u16) -> &mut Self {
        let mask = (direction == CLIENT).then_some(MASK);
        self.bytes(direction, &frame(0x88, &code.to_be_bytes(), mask))
    }

    /// Closes both directions, beginning with `first`, and ends the request.
    pub(super) fn left(&mut self, first: Direction) -> Record {
        let second = if first == CLIENT { UPSTREAM } else { CLIENT };
        self.report(ObserverEvent::Closed(first), b"")
            .report(ObserverEvent::Closed(second), b"")
            .end(Ending::Complete)
    }

    pub(super) fn end(&mut self, ending: Ending) -> Record {
        self.report(ObserverEvent::End(ending), b"");
        self.records.lock().unwrap().pop().unwrap()
    }

    /// Returns the sum of the metric lines that contain each of `parts`.
    pub(super) fn metric(&self, parts: &[&str]) -> u64 {
        let values = self.values(parts);
        values.iter().map(|value| value.parse::<u64>().unwrap()).sum()
    }

    /// Returns the non-zero values of the metric lines that contain each of `parts`.
    fn values(&self, parts: &[&str]) -> Vec<String> {
        let text = prometheus::Format::Text.render(&self.collector.scrape());
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let found = lines.filter(|line| parts.iter().all(|part| line.contains(part)));
        let values = found.filter_map(|line| line.rsplit_once(' '));
        let values = values.map(|(_, value)| value.to_owned());
        values.filter(|value| value != "0").collect()
    }
}

fn objectives() -> Vec<Objective> {
    let limits = [
        ("duration", Sli::Duration(Duration::from_millis(1))),
        ("availability", Sli::Availability),
    ];
    let objective = |(name, indicator)| Objective {
        name: Label::from_trusted(name),
        indicator,
        target: 0.9,
        window: Duration::from_secs(3_600),
        scope: Scope::default(),
        counting: CountingRules::default(),
    };
    limits.map(objective).into()
}

fn open(path: &str, model: Option<&str>) -> RequestHead {
    let route = RouteFacts::for_upstream("default", "api.openai.com", 443);
    RequestHead {
        wall: WallTime::default(),
        method: http::Method::GET,
        path: Name::new(path).unwrap(),
        whole_path: None,
        model: model.and_then(Name::new),
        host: None,
        version: http::Version::HTTP_11,
        scheme: Scheme::Http,
        headers: tokengauge_types::event::Headers::default(),
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

/// Returns a WebSocket frame with a payload of up to 64 KiB.
pub(super) fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
    let masked = if mask.is_some() { 0x80 } else { 0 };
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let key = mask.unwrap_or_default();
    let payload = payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key);
    let mut bytes = vec![first, masked | 126, length[0], length[1]];
    bytes.extend(mask.iter().flatten());
    bytes.extend(payload);
    bytes
}

pub(super) const CREATED: &str = r#"{"type":"session.created","session":{"id":"sess_7","object":"realtime.session",
    "model":"gpt-4o-realtime-preview-2025-06-03","modalities":["text","audio"]}}"#;

pub(super) fn delta(response: &str, text: &str) -> String {
    format!(
        r#"{{"type":"response.output_audio_transcript.delta","response_id":"{response}","delta":"{text}"}}"#
    )
}

pub(super) fn done(response: &str, status: &str, output: u64) -> String {
    format!(
        r#"{{"type":"response.done","response":{{"id":"{response}","status":"{status}","usage":{{"input_tokens":100,
           "output_tokens":{output},"input_token_details":{{"cached_tokens":64,"audio_tokens":30}},
           "output_token_details":{{"audio_tokens":5}}}}}}}}"#
    )
}

/// Two responses, of which the first has two pieces.
fn talk(play: &mut Play) -> &mut Play {
    play.created()
        .client(r#"{"type":"input_audio_buffer.append","audio":"AAAA"}"#)
        .server(&delta("resp_1", "Hello"))
        .server(&delta("resp_1", " world"))
        .server(&done("resp_1", "completed", 20))
        .server(&delta("resp_2", "to"))
        .server(&done("resp_2", "cancelled", 7))
}

/// The usage of both responses of [`talk`].
fn usage() -> Usage {
    Usage {
        input: Some(200),
        output: Some(27),
        cache_read: Some(128),
        input_by: audio(60),
        output_by: audio(10),
        ..Usage::default()
    }
}

fn audio(tokens: u64) -> ByModality {
    ByModality { audio: Some(tokens), ..ByModality::default() }
}

#[test]
fn session_sums_usage_and_has_no_rate() {
    let mut play = Play::session();
    talk(&mut play).close(CLIENT, 1000).close(UPSTREAM, 1000);
    let record = play.left(UPSTREAM);
    assert_eq!((record.outcome, record.error_source), (Outcome::Ok, ErrorSource::None));
    let timestamps = &record.timestamps;
    assert!(timestamps.byte.is_some());
    assert_eq!(
        [timestamps.event, timestamps.token, timestamps.visible, timestamps.last],
        [None; 4],
        "a session has no first token"
    );
    assert_eq!(
        record.stages.iter().map(|(_, length)| length).sum::<Duration>(),
        timestamps.duration().unwrap()
    );
    let socket = record.websocket.unwrap();
    assert_eq!((socket.request_messages, socket.response_messages), (1, 6));
    let code = Some(1000);
    assert_eq!(socket.closed, Some(CloseFrame { by: CLIENT, code }));
    assert_eq!(socket.left, Some(UPSTREAM), "the server ends the connection");

    let call = record.call.unwrap();
    assert_eq!(call.series.operation, Operation::Realtime);
    assert_eq!(call.series.model.as_str(), "gpt-4o-realtime-preview");
    assert_eq!(call.request.model, Name::new("gpt-4o-realtime-preview"));
    assert_eq!(call.response_model, Name::new("gpt-4o-realtime-preview-2025-06-03"));
    assert_eq!(call.response_id, Name::new("sess_7"));
    assert!(!call.streamed && !call.series.stream);
    assert_eq!(call.complete, Completeness::Complete);
    let reasons: Vec<_> = call.finish_reasons().map(Name::as_str).collect();
    assert_eq!(reasons, ["completed", "cancelled"]);
    assert_eq!(call.usage, Some(usage()));
    let output = call.output.unwrap();
    assert_eq!((output.counted, output.standard), (3, 3));
    assert_eq!(output.counted_source, Some(Source::Counted));
    let rates = call.rates;
    assert_eq!((rates.output, rates.unrated, rates.total), (None, None, None));
    let verdicts: Vec<_> = call.verdicts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(verdicts, ["availability"], "the duration of a session has no objective");
}

#[test]
fn session_is_reported_while_it_is_open() {
    let mut play = Play::session();
    let tokens =
        ["tokengauge_tokens_total", "type=\"output\"", "model=\"gpt-4o-realtime-preview\""];
    let messages = |play: &Play, direction: &str| {
        play.metric(&["tokengauge_websocket_messages_total", direction])
    };
    talk(&mut play);
    assert_eq!(play.metric(&tokens), 3);
    assert_eq!((messages(&play, "request"), messages(&play, "response")), (1, 6));
    let at = MonotonicInstant::from_millis(play.millis);
    let [view] = play.requests.streams(at).try_into().unwrap();
    assert_eq!((view.phase, view.tokens), (RequestPhase::Unstreamed, 3));
    assert_eq!(view.model, Name::new("gpt-4o-realtime-preview"));
    assert_eq!((view.time_to_first_token_seconds, view.output_tokens_per_second), (None, None));
    let (load, _) = play.requests.reading(MonotonicInstant::from_millis(20_000));
    assert_eq!(load.routes[0].active, [0, 0, 0, 1], "unstreamed, and in no queue");
    assert_eq!(load.models[0].output.peak, Some(2.0), "two in the second second");
    play.end(Ending::ClientDisconnected);
    assert_eq!(play.metric(&tokens), 3, "nothing is counted twice");
    assert_eq!(play.metric(&["tokengauge_reported_tokens_total"]), 227);
    assert_eq!(play.metric(&["gen_ai_client_operation_duration_seconds_count"]), 1);
    for never in [
        "inference_time_to_first",
        "server_time_to_first",
        "output_rate",
        "total_rate",
        "unrated",
        "inter_",
        "drift",
        "inference_duration",
        "server_request_duration_seconds_count{gen_ai",
    ] {
        assert_eq!(play.values(&[never]), [""; 0], "{never}");
    }
}

#[test]
fn reports_a_session_in_one_batch() {
    let mut play = Play::session();
    let messages =
        [CREATED, &delta("r", "Hello"), &delta("r", " world"), &done("r", "completed", 2)];
    let frames: Vec<u8> =
        messages.iter().flat_map(|message| frame(0x81, message.as_bytes(), None)).collect();
    play.bytes(UPSTREAM, &frames);
    assert_eq!(play.metric(&["tokengauge_tokens_total", "type=\"output\""]), 2);
    assert_eq!(play.metric(&["tokengauge_normalized_tokens_total"]), 2);
}

#[test]
fn counts_responses_separately() {
    let mut play = Play::session();
    play.created();
    for response in ["resp_1", "resp_2"] {
        play.server(&delta(response, "to")).server(&delta(response, "ken"));
        play.server(&done(response, "completed", 1));
    }
    let output = play.end(Ending::ClientDisconnected).call.unwrap().output.unwrap();
    assert_eq!(output.counted, 2, "token · token, and neither to · ken nor tokentoken");
}

#[test]
fn session_confirms_the_model() {
    let mut play = Play::session();
    let name = Name::new("gpt-4o-realtime-preview").unwrap();
    let known = |play: &Play| play.limiter.get(Dimension::Model, &name).is_some();
    play.client(r#"{"type":"session.update","session":{}}"#);
    assert!(!known(&play));
    let error =
        r#"{"type":"error","error":{"type":"invalid_request_error","code":"invalid_api_key"}}"#;
    play.server(error);
    assert!(!known(&play));
    play.close(UPSTREAM, 3000);
    let record = play.left(UPSTREAM);
    assert_eq!((record.outcome, record.error_source), (Outcome::Error, ErrorSource::Client));
    assert_eq!(record.error_type, Name::new("invalid_request_error"));
    let call = record.call.unwrap();
    assert_eq!((call.series.model.as_str(), call.output), ("other", None));

    let mut play = Play::session();
    play.created();
    assert!(known(&play));
}

#[test]
fn uses_model_of_the_server() {
    let mut play = Play::get("/v1/realtime", None);
    play.upgraded("websocket").created();
    play.server(&delta("r", "Hello")).server(&done("r", "completed", 1));
    let named = "model=\"gpt-4o-realtime-preview-2025-06-03\"";
    assert_eq!(play.metric(&["tokengauge_tokens_total", named]), 1);
}

#[test]
fn truncated_session_has_an_error_source() {
    let mut play = Play::session();
    play.created().server(&delta("r", "Hel"));
    let record = play.left(UPSTREAM);
    assert_eq!((record.outcome, record.error_source), (Outcome::Truncated, ErrorSource::Upstream));
    let call = record.call.unwrap();
    assert_eq!(call.complete, Completeness::Cut);
    assert_eq!(call.finish_reasons().count(), 0);

    let mut play = Play::session();
    play.created();
    let record = play.left(CLIENT);
    assert_eq!((record.outcome, record.error_source), (Outcome::Cancelled, ErrorSource::Client));

    let mut play = Play::session();
    play.created().bytes(UPSTREAM, b"\x81\x05Hel");
    let record = play.end(Ending::UpstreamFailed(UpstreamFailure::MidBody));
    assert_eq!(record.outcome, Outcome::Truncated);
    assert_eq!(record.anomalies, [], "a reset is not a parse error");

    let mut play = Play::session();
    play.created().bytes(UPSTREAM, b"\x81\x05Hel");
    let record = play.end(Ending::Complete);
    assert_eq!(record.anomalies, [(ParseError::Unterminated, 1)]);
}

#[test]
fn counts_compressed_messages_as_unobserved() {
    let mut play = Play::session();
    play.created().bytes(UPSTREAM, &frame(0xc1, b"\x01\x02", None)).close(UPSTREAM, 1000);
    let record = play.left(UPSTREAM);
    assert_eq!(record.websocket.unwrap().response_messages, 2);
    assert_eq!(record.call.unwrap().complete, Completeness::Unobserved);
}

#[test]
fn a_lost_or_unterminated_message_holds_no_memory() {
    let mut play = Play::session();
    let at = MonotonicInstant::from_millis(100_000);
    let text = frame(0x81, &[b'x'; 50_000], None);
    play.bytes(UPSTREAM, &text[..40_000]);
    assert!(play.requests.snapshot(at).observer.held >= 39_000);
    play.report(ObserverEvent::Gap { direction: UPSTREAM, bytes: 10 }, b"");
    assert_eq!(play.requests.snapshot(at).observer.held, 0);
    let text = frame(0x81, &[b'x'; 50_000], Some(MASK));
    play.bytes(CLIENT, &text[..40_000]);
    assert!(play.requests.snapshot(at).observer.held >= 39_000);
    play.report(ObserverEvent::Closed(CLIENT), b"");
    assert_eq!(play.requests.snapshot(at).observer.held, 0);
}

#[test]
fn reports_lost_bytes_and_malformed_frames() {
    let mut play = Play::session();
    let text = frame(0x81, delta("r", "Hello").as_bytes(), None);
    play.created().bytes(UPSTREAM, &text[..20]);
    let gap = ObserverEvent::Gap { direction: UPSTREAM, bytes: 10 };
    play.report(gap, b"").bytes(UPSTREAM, &text[30..]).server(&delta("r", "Hello"));
    let record = play.left(UPSTREAM);
    assert_eq!(record.websocket.unwrap().response_messages, 3, "including the lost one");
    assert_eq!(record.anomalies, [(ParseError::Gap, 1)]);
    assert_eq!(record.outcome, Outcome::Ok, "its close is not known");
    let call = record.call.unwrap();
    assert_eq!((call.complete, call.output.unwrap().counted), (Completeness::Unobserved, 1));

    let mut play = Play::session();
    play.created().bytes(CLIENT, &frame(0x81, b"not masked", None));
    let record = play.left(CLIENT);
    assert_eq!(record.anomalies, [(ParseError::BadFrame, 1)]);
    assert_eq!(record.call.unwrap().complete, Completeness::Unobserved);
}

#[test]
fn unknown_websocket_is_plain_http() {
    let mut play = Play::get("/chat/socket", Some("gpt-4o"));
    play.upgraded("WebSocket").client("hello").client("there").server(&delta("r", "Hello"));
    play.close(UPSTREAM, 1011);
    let record = play.left(UPSTREAM);
    assert!(record.call.is_none());
    let socket = record.websocket.unwrap();
    assert_eq!((socket.request_messages, socket.response_messages), (2, 1));
    assert_eq!(record.error_type, Name::new("websocket_1011"));
    assert_eq!(play.metric(&["tokengauge_websocket_messages_total"]), 3);
    assert_eq!(play.metric(&["tokengauge_tokens_total"]), 0);
}

#[test]
fn other_upgrades_are_only_bytes() {
    let mut play = Play::get("/v1/realtime", Some("gpt-4o"));
    play.upgraded("tls/1.2").server(&delta("r", "Hello"));
    let record = play.left(UPSTREAM);
    assert!(record.call.is_none() && record.websocket.is_none());
    assert_eq!(record.outcome, Outcome::Ok, "an unknown protocol cannot be truncated");
    assert!(record.anomalies.is_empty() && record.http.response_bytes > 0);
}

#[test]
fn refused_session_is_a_failed_call() {
    let mut play = Play::get("/v1/realtime", Some("no-such-model"));
    play.head(401, "content-type", "application/json");
    play.bytes(UPSTREAM, br#"{"error":{"type":"invalid_api_key","message":"no"}}"#);
    let record = play.end(Ending::Complete);
    assert_eq!((record.outcome, record.error_source), (Outcome::Error, ErrorSource::Client));
    assert_eq!(record.error_type, Name::new("invalid_api_key"));
    let call = record.call.unwrap();
    assert_eq!(call.series.model.as_str(), "other");
    assert_eq!(call.request.model, Name::new("no-such-model"));
}
