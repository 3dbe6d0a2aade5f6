//! Tests of requests of the Model Context Protocol, with one fixture for each kind of exchange.

use super::{Play, at, open};
use crate::mcp_sessions::McpSessions;
use tokengauge_llm::frame::ParseError;
use tokengauge_measure::record::{Mcp, McpOperation, McpSession, Outcome, Record};
use tokengauge_types::event::{Direction, Ending, Headers, ObserverEvent, ResponseHead};
use tokengauge_types::label::Name;

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../../tests/fixtures/mcp/", $name, ".http"))
    };
}

/// Splits a message of a fixture into its first line, headers and body.
fn message(text: &'static str) -> (&'static str, Vec<(&'static str, Name)>, &'static str) {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let first = lines.next().unwrap();
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (name, Name::new(value).unwrap())
    });
    (first, headers.collect(), body.trim_end())
}

/// Plays a fixture: the request from 100 ms, the response headers at 200 ms, and the body at 300 ms in pieces of the
/// given size.
fn play(fixture: &'static str, pieces: usize) -> Play {
    let (request, response) = fixture.split_once("\n---\n").unwrap();
    let (line, headers, body) = message(request);
    let (method, path) = line.split_once(' ').unwrap();
    let mut opened = open(path);
    opened.method = method.parse().unwrap();
    opened.headers = headers.into_iter().collect();
    let mut play = Play::opened(opened, body);
    let (status, headers, body) = message(response);
    let head = ResponseHead {
        status: status.trim().parse().unwrap(),
        version: http::Version::HTTP_11,
        headers: headers.into_iter().collect::<Headers>(),
        length: None,
        from_proxy: false,
    };
    play.apply_event(200, ObserverEvent::ResponseHead(Box::new(head)), b"");
    let body = if body.is_empty() { String::new() } else { format!("{body}\n\n") };
    for piece in body.as_bytes().chunks(pieces) {
        play.arrival(300, Direction::Response, std::str::from_utf8(piece).unwrap(), 0);
    }
    play
}

/// Returns the record of a fixture. Asserts that cuts of the response make no difference, and that no content is kept.
fn record(fixture: &'static str) -> Record {
    let record = play(fixture, usize::MAX).complete(400);
    let cut = play(fixture, 1).complete(400);
    assert_eq!(format!("{:?}", cut.mcp), format!("{:?}", record.mcp));
    assert!(!format!("{record:?}").contains("secret"), "content is not kept");
    let headers = &record.http;
    for headers in [&headers.request_headers, &headers.response_headers] {
        assert_eq!(headers.get("mcp-session-id"), None, "the session is recorded only once");
    }
    assert_eq!(record.outcome, Outcome::Ok);
    record
}

fn mcp(fixture: &'static str) -> Mcp {
    let record = record(fixture);
    assert!(record.call.is_none());
    assert_eq!(record.anomalies, []);
    *record.mcp.unwrap()
}

fn only(mcp: &Mcp) -> &McpOperation {
    mcp.only_operation().unwrap()
}

fn text(name: Option<&Name>) -> Option<&str> {
    name.map(Name::as_str)
}

#[test]
fn reads_the_negotiated_version_and_the_session() {
    let mcp = mcp(fixture!("initialize"));
    assert_eq!(text(mcp.session.as_ref()), Some("1868a90c6f8e4ea5"));
    assert_eq!(text(mcp.protocol_version.as_ref()), Some("2025-06-18"));
    let operation = only(&mcp);
    assert_eq!(text(operation.message.method.as_ref()), Some("initialize"));
    assert_eq!(text(operation.message.id.as_ref()), Some("0"));
    // A JSON body is complete at its end.
    assert_eq!((operation.answered, operation.client_error()), (Some(at(400)), None));
}

#[test]
fn a_notification_ends_with_its_acknowledgement() {
    let mcp = mcp(fixture!("notification"));
    let operation = only(&mcp);
    assert_eq!(text(operation.message.method.as_ref()), Some("notifications/initialized"));
    assert_eq!((&operation.message.id, operation.answered), (&None, Some(at(200))));
}

#[test]
fn a_tool_call_ends_with_its_response_in_the_stream() {
    let mcp = mcp(fixture!("tool-stream"));
    let operation = only(&mcp);
    assert_eq!(text(operation.tool()), Some("get-weather"));
    assert_eq!((operation.answered, operation.client_error()), (Some(at(300)), None));
    let failed = self::mcp(fixture!("tool-error"));
    assert_eq!(text(only(&failed).client_error().as_ref()), Some("tool_error"));
    let unknown = self::mcp(fixture!("unknown-tool"));
    assert_eq!(only(&unknown).error_code, Some(-32_602));
    assert_eq!(only(&unknown).server_error(), None);
}

#[test]
fn a_stream_that_ends_early_leaves_the_call_unanswered() {
    let mut play = play(fixture!("tool-stream"), usize::MAX);
    play.apply_event(350, ObserverEvent::Gap { direction: Direction::Response, bytes: 9 }, b"");
    let (whole, _) = play.end(400, Ending::ClientDisconnected);
    assert_eq!(whole.outcome, Outcome::Cancelled);
    assert!(whole.mcp.unwrap().operations[0].answered.is_some(), "the response came before");
    let (request, _) = fixture!("tool-stream").split_once("\n---\n").unwrap();
    let mut play = Play::opened(open("/mcp"), message(request).2);
    play.head(200, 200, "text/event-stream").event(300, r#"{"jsonrpc":"2.0","method":"ping"}"#);
    let (record, _) = play.end(400, Ending::ClientDisconnected);
    assert_eq!(record.mcp.unwrap().operations[0].answered, None);
}

#[test]
fn each_message_of_a_batch_is_an_operation() {
    let mcp = mcp(fixture!("batch"));
    assert!(mcp.only_operation().is_none());
    let [read, prompt, cancelled] = mcp.operations.as_slice() else { panic!("{mcp:?}") };
    assert_eq!(text(read.message.resource.as_ref()), Some("file:///a"));
    assert_eq!((read.error_code, read.answered), (Some(-32_603), Some(at(400))));
    assert_eq!((text(prompt.prompt()), prompt.error_code), (Some("review"), None));
    assert_eq!(cancelled.answered, Some(at(200)));
}

#[test]
fn streams_responses_and_ends_of_sessions_have_no_operation() {
    for fixture in [fixture!("server-stream"), fixture!("server-response"), fixture!("end")] {
        let mcp = mcp(fixture);
        assert_eq!(mcp.operations, [], "{fixture}");
        assert_eq!(text(mcp.session.as_ref()), Some("1868a90c6f8e4ea5"));
    }
}

#[test]
fn other_requests_stay_plain_http() {
    assert!(record(fixture!("other-json")).mcp.is_none());
    let other_path = || {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"eth_call"}"#;
        let mut play = Play::opened(open("/rpc"), body);
        play.head(200, 200, "application/json");
        play.complete(300)
    };
    assert!(other_path().mcp.is_none());
    let mut broken = Play::opened(open("/mcp"), "{]");
    broken.head(200, 400, "application/json");
    let record = broken.complete(300);
    assert!(record.mcp.is_none());
    assert!(!record.anomalies.iter().any(|(error, _)| *error == ParseError::BadJson));
}

/// Returns the sessions that ended after these records, which end at these times in seconds.
fn ended(records: &[(u64, Record)]) -> Vec<McpSession> {
    let mut sessions = McpSessions::default();
    let mut ended = Vec::new();
    for (second, record) in records {
        sessions.record(at(second * 1_000), record, &mut |session| ended.push(session));
    }
    ended
}

#[test]
fn a_session_lasts_from_initialize_to_delete_or_404_or_its_last_request() {
    let [start, call, end, other] =
        [fixture!("initialize"), fixture!("tool-error"), fixture!("end"), fixture!("other-json")]
            .map(record);
    let seconds = |records: &[(u64, Record)]| {
        let ended = ended(records);
        let session = ended.iter().map(|session| {
            (session.duration.as_millis(), text(session.error_type.as_ref()).map(str::to_owned))
        });
        session.collect::<Vec<_>>()
    };
    // The first request was accepted at 100 ms.
    let deleted = [(1, start.clone()), (5, call.clone()), (9, end.clone())];
    assert_eq!(seconds(&deleted), [(8_900, None)]);
    let mut gone = call.clone();
    gone.http.status = Some(404);
    gone.error_type = Name::new("404");
    assert_eq!(seconds(&[(1, start.clone()), (7, gone)]), [(6_900, Some("404".to_owned()))]);
    let idle = [(1, start.clone()), (5, call.clone()), (5 + 30 * 60, other)];
    assert_eq!(seconds(&idle), [(4_900, None)]);
    assert_eq!(seconds(&[(5, call), (9, end)]), [], "the start was not observed");
    let many = (0..1_025).map(|n| {
        let mut record = start.clone();
        record.mcp.as_mut().unwrap().session = Name::new(&format!("s-{n}"));
        (1 + n, record)
    });
    assert_eq!(seconds(&many.collect::<Vec<_>>()).len(), 1, "the oldest session ended");
}
