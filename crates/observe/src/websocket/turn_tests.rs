//! Tests of sessions of the Responses API, and of compressed messages.

use flate2::{Compress, Compression, FlushCompress};

use super::tests::*;
use tokengauge_llm::dialect::Operation;
use tokengauge_measure::load::RequestPhase;
use tokengauge_measure::record::{Completeness, Outcome, Record};
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::event::{Direction, Ending, ErrorSource, ObserverEvent, ResponseHead};
use tokengauge_types::label::Name;

fn responses() -> Play {
    let mut play = Play::get("/v1/responses", None);
    play.upgraded("websocket");
    play
}

/// Returns the request of a turn.
fn create(model: &str) -> String {
    format!(
        r#"{{"type":"response.create","model":"{model}","store":false,"input":[{{"type":"message","role":"user",
        "content":[{{"type":"input_text","text":"Say hello"}}]}}],"max_output_tokens":50}}"#
    )
}

fn created(id: &str) -> String {
    format!(
        r#"{{"type":"response.created","response":{{"id":"{id}","model":"gpt-5-2025","status":"in_progress"}}}}"#
    )
}

fn text(delta: &str) -> String {
    format!(
        r#"{{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"{delta}"}}"#
    )
}

fn ended(kind: &str, id: &str, output: u64) -> String {
    format!(
        r#"{{"type":"response.{kind}","response":{{"id":"{id}","model":"gpt-5-2025","status":"{kind}","output":[],
           "usage":{{"input_tokens":100,"input_tokens_details":{{"cached_tokens":64}},"output_tokens":{output},
           "output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{}}}}}}}"#,
        100 + output
    )
}

fn turn(play: &mut Play, id: &str, output: u64) {
    play.client(&create("gpt-5"))
        .server(&created(id))
        .server(&text("Hello"))
        .server(&text(" world"))
        .server(&ended("completed", id, output));
}

/// Returns the records of the turns so far.
fn turns(play: &Play) -> Vec<Record> {
    std::mem::take(&mut *play.records.lock().unwrap())
}

#[test]
fn each_response_of_a_session_is_a_call() {
    let mut play = responses();
    turn(&mut play, "resp_1", 20);
    turn(&mut play, "resp_2", 30);
    let records = turns(&play);
    assert_eq!(records.len(), 2, "each is recorded when it ends");
    for (record, (id, output)) in records.iter().zip([("resp_1", 20), ("resp_2", 30)]) {
        assert_eq!((record.outcome, record.http.status), (Outcome::Ok, Some(200)));
        assert!(record.is_turn && record.websocket.is_none());
        let timestamps = &record.timestamps;
        assert_eq!(timestamps.time_to_first_token().unwrap().as_millis(), 200);
        assert_eq!(timestamps.duration().unwrap().as_millis(), 400);
        let call = record.call.as_ref().unwrap();
        assert_eq!(call.series.operation, Operation::Chat);
        assert_eq!(call.series.model.as_str(), "gpt-5");
        assert!(call.streamed && call.complete == Completeness::Complete);
        assert_eq!(call.response_id, Name::new(id));
        assert_eq!(call.response_model, Name::new("gpt-5-2025"));
        assert_eq!(call.request.max_tokens, Some(50));
        assert!(call.finish_reasons().eq([&Name::new("completed").unwrap()]));
        let usage = call.usage.unwrap();
        assert_eq!(
            (usage.input, usage.output, usage.cache_read),
            (Some(100), Some(output), Some(64))
        );
        assert_eq!(call.output.as_ref().unwrap().counted, 2);
    }
    assert_ne!(records[0].trace.server_span, records[1].trace.server_span);
    let session = play.close(CLIENT, 1000).left(CLIENT);
    assert_eq!((session.outcome, session.call.is_none()), (Outcome::Ok, true));
    assert!(!session.is_turn);
    assert_eq!(session.websocket.unwrap().response_messages, 8);
    assert_eq!(records[0].trace.parent, Some(session.trace.server_span));
    let total = |name: &str| play.metric(&[&format!("{name}{{")]);
    assert_eq!(total("tokengauge_requests_started_total"), 3);
    assert_eq!(total("tokengauge_requests_finished_total"), 3);
    assert_eq!(total("http_server_request_duration_seconds_count"), 1, "one HTTP request");
}

#[test]
fn a_turn_is_reported_while_it_is_open() {
    let mut play = responses();
    turn(&mut play, "resp_1", 20);
    play.client(&create("gpt-5")).server(&created("resp_2")).server(&text("Hello"));
    let at = MonotonicInstant::from_millis(play.millis);
    let views = play.requests.streams(at);
    let phases: Vec<_> = views.iter().map(|view| (view.phase, view.tokens)).collect();
    assert_eq!(phases, [(RequestPhase::Unstreamed, 0), (RequestPhase::Streaming, 1)]);
}

#[test]
fn a_turn_can_fail_while_the_session_goes_on() {
    let mut play = responses();
    play.client(&create("gpt-5")).server(
        r#"{"type":"error","status":429,"error":{"type":"rate_limit_error","code":"rate_limit_exceeded","message":"slow"}}"#,
    );
    play.client(&create("gpt-5")).server(&created("resp_1")).server(
        r#"{"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":"server_error","message":"x"}}}"#,
    );
    turn(&mut play, "resp_2", 20);
    play.client(&create("gpt-5")).server(&ended("incomplete", "resp_3", 50));
    let records = turns(&play);
    let actual: Vec<_> = records
        .iter()
        .map(|it| (it.http.status.unwrap(), it.outcome, it.error_type.as_ref().map(Name::as_str)))
        .collect();
    let expected = [
        (429, Outcome::Error, Some("rate_limit_error")),
        (200, Outcome::Error, Some("server_error")),
        (200, Outcome::Ok, None),
        (200, Outcome::Ok, None),
    ];
    assert_eq!(actual, expected);
}

#[test]
fn a_turn_that_is_open_at_the_end_of_the_session_is_cut() {
    for (first, outcome, source) in [
        (CLIENT, Outcome::Cancelled, ErrorSource::Client),
        (UPSTREAM, Outcome::Truncated, ErrorSource::Upstream),
    ] {
        let mut play = responses();
        play.client(&create("gpt-5")).server(&created("resp_1")).server(&text("Hello"));
        play.left(first);
        let [record] = turns(&play).try_into().unwrap();
        assert_eq!((record.outcome, record.error_source), (outcome, source));
        assert_eq!(play.requests.in_flight(), 0);
    }
}

#[test]
fn messages_outside_a_turn_and_requests_without_end_are_bounded() {
    let mut play = responses();
    play.server(r#"{"type":"codex.rate_limits"}"#)
        .server(&text("stray"))
        .server(r#"{"type":"error","error":{"code":"websocket_connection_limit_reached"}}"#);
    for _ in 0..1_000 {
        play.client(&create("gpt-5"));
    }
    assert_eq!(play.requests.in_flight(), 17, "the session and 16 turns");
    // The request of this response was too large to be read.
    let mut play = responses();
    play.server(&created("resp_1")).server(&text("Hello")).server(&ended("completed", "resp_1", 5));
    let [record] = turns(&play).try_into().unwrap();
    assert_eq!(record.call.unwrap().usage.unwrap().output, Some(5));
}

#[test]
fn lost_bytes_of_a_turn_are_not_a_complete_response() {
    let mut play = responses();
    play.client(&create("gpt-5")).server(&created("resp_1"));
    let message = frame(0x81, text("Hello").as_bytes(), None);
    let (first, second) = message.split_at(10);
    play.bytes(UPSTREAM, first);
    let lost = second.len() as u64;
    play.report(ObserverEvent::Gap { direction: UPSTREAM, bytes: lost }, b"");
    play.server(&ended("completed", "resp_1", 7));
    let [record] = turns(&play).try_into().unwrap();
    let call = record.call.unwrap();
    assert_eq!((record.outcome, call.complete), (Outcome::Ok, Completeness::Unobserved));
    assert_eq!(call.usage.unwrap().output, Some(7));
}

#[test]
fn another_websocket_below_this_path_has_no_calls() {
    for path in ["/v1/responses/resp_1", "/v1/chat/completions", "/socket"] {
        let mut play = Play::get(path, None);
        play.upgraded("websocket").client(&create("gpt-5")).server(&created("resp_1"));
        play.close(CLIENT, 1000).left(CLIENT);
        assert!(turns(&play).is_empty(), "{path}");
    }
}

/// A session whose peers have agreed on compression.
struct Compressed {
    play: Play,
    senders: [Compress; 2],
    resets: bool,
}

impl Compressed {
    fn open(path: &str, extensions: &str) -> Self {
        let mut play = Play::get(path, Some("gpt-5"));
        let headers = [("upgrade", "websocket"), ("sec-websocket-extensions", extensions)];
        let head = ResponseHead {
            status: 101,
            version: http::Version::HTTP_11,
            headers: headers
                .map(|(name, value)| (name, Name::new(value).unwrap()))
                .into_iter()
                .collect(),
            length: None,
            from_proxy: false,
        };
        play.report(ObserverEvent::ResponseHead(Box::new(head)), b"");
        play.report(ObserverEvent::Upgraded, b"");
        let sender = || Compress::new(Compression::default(), false);
        Self { play, senders: [sender(), sender()], resets: extensions.contains("no_context") }
    }

    fn send(&mut self, direction: Direction, text: &str) {
        let [client, server] = &mut self.senders;
        let (sender, mask) =
            if direction == CLIENT { (client, Some(MASK)) } else { (server, None) };
        if self.resets {
            sender.reset();
        }
        let mut payload = Vec::with_capacity(text.len() + 64);
        sender.compress_vec(text.as_bytes(), &mut payload, FlushCompress::Sync).unwrap();
        payload.truncate(payload.len() - 4);
        self.play.bytes(direction, &frame(0xc1, &payload, mask));
    }
}

#[test]
fn compressed_sessions_are_read() {
    let both = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
    for extensions in ["permessage-deflate", both] {
        let mut session = Compressed::open("/v1/responses", extensions);
        for id in ["resp_1", "resp_2"] {
            session.send(CLIENT, &create("gpt-5"));
            session.send(UPSTREAM, &created(id));
            session.send(UPSTREAM, &text("Hello"));
            session.send(UPSTREAM, &ended("completed", id, 20));
        }
        let records = turns(&session.play);
        assert_eq!(records.len(), 2, "{extensions}");
        for record in records {
            let call = record.call.unwrap();
            assert_eq!((record.outcome, call.complete), (Outcome::Ok, Completeness::Complete));
            assert_eq!(call.usage.unwrap().output, Some(20));
        }
        let record = session.play.close(CLIENT, 1000).left(CLIENT);
        assert!(!record.websocket.unwrap().compressed);

        let mut session = Compressed::open("/v1/realtime", extensions);
        session.send(UPSTREAM, CREATED);
        session.send(UPSTREAM, &delta("resp_1", "Hello"));
        session.send(UPSTREAM, &done("resp_1", "completed", 20));
        let record = session.play.close(CLIENT, 1000).left(CLIENT);
        let call = record.call.unwrap();
        assert_eq!((call.usage.unwrap().output, call.complete), (Some(20), Completeness::Complete));
    }
}

#[test]
fn an_open_turn_is_drained_with_its_session() {
    let mut play = responses();
    play.client(&create("gpt-5")).server(&created("resp_1")).server(&text("Hello"));
    play.end(Ending::Drained);
    let [record] = turns(&play).try_into().unwrap();
    assert_eq!((record.outcome, record.error_source), (Outcome::Truncated, ErrorSource::Proxy));
}
