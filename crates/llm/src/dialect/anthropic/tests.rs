//! Tests requests and responses of Anthropic and compatible servers. Each body is also read split at every position.

use crate::budget::RequestBudget;
use crate::dialect::testing::{JSON, STREAM, TestResponse, asked, failed, started, stopped, usage};
use crate::dialect::*;
use crate::frame::Frame;
use tokengauge_types::label::Name;

/// Returns a stream whose events are named after the type of their message.
fn named(messages: &[&str]) -> String {
    let named = messages.iter().map(|message| {
        let (_, after) = message.split_once("\"type\":\"").unwrap_or_default();
        let kind = after.split('"').next().unwrap();
        format!("event: {kind}\ndata: {message}\n\n")
    });
    named.collect()
}

fn stream(messages: &[&str]) -> Vec<String> {
    TestResponse::new(Api::AnthropicMessages, STREAM).read(named(messages).as_bytes())
}

fn body(body: &str) -> Vec<String> {
    TestResponse::new(Api::AnthropicMessages, JSON).read(body.as_bytes())
}

fn tier(tier: &str) -> String {
    format!("{:?}", Event::Tier { service_tier: Some(tier), system_fingerprint: None })
}

/// Returns a delta message for the content block with this index.
fn delta(index: u32, fields: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{{fields}}}}}"#)
}

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-x-1","content":[],"stop_reason":null,"usage":{"input_tokens":20,"cache_creation_input_tokens":4,"cache_read_input_tokens":100,"output_tokens":3,"service_tier":"standard"}}          }"#;
const STOP: &str = r#"{"type":"message_stop"    }"#;

/// Returns the events of [`START`].
fn begun() -> [String; 3] {
    [
        started(Some("msg_1"), Some("claude-x-1")),
        tier("standard"),
        usage([Some(124), None, Some(100), Some(4), None]),
    ]
}

#[test]
fn reads_a_stream() {
    let messages = [
        START,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Good"}   }"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" \ud83d\ude00"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":12}}"#,
        STOP,
    ];
    let rest = [
        r#"0 Text "Good 😀""#.to_owned(),
        stopped(0, "end_turn"),
        usage([Some(124), Some(12), Some(100), Some(4), None]),
        "Done".to_owned(),
    ];
    assert_eq!(stream(&messages), [&begun()[..], &rest].concat());
}

#[test]
fn ignores_messages_without_content() {
    let mut response = anthropic_response();
    for message in [
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","title":"T"}]}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"redacted_thinking","data":"qqq"}}"#,
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"compaction","content":null}}"#,
        &delta(0, r#""type":"signature_delta","signature":"Eq""#),
        &delta(
            0,
            r#""type":"citations_delta","citation":{"type":"char_location","cited_text":"A","document_title":"B"}"#,
        ),
        &delta(3, r#""type":"compaction_delta","content":"So far …""#),
        &delta(0, r#""type":"text_delta","text":"""#),
        &delta(0, r#""type":"input_json_delta","partial_json":"""#),
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"vertex_event"}"#,
    ] {
        let frame = Frame::Event { name: b"vertex_event", data: message.as_bytes() };
        response.read(&frame, &mut |event| panic!("{event:?} of {message}"));
    }
}

fn anthropic_response() -> ResponseReader {
    ResponseReader::new(
        Api::AnthropicMessages,
        &RequestFacts::default(),
        200,
        &RequestBudget::default(),
    )
}

#[test]
fn reads_thinking_and_text_at_the_start_of_a_block() {
    let messages = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"H","signature":""}}"#,
        &delta(0, r#""type":"thinking_delta","thinking":"mm""#),
        &delta(0, r#""type":"signature_delta","signature":"Eq""#),
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":"S"}}"#,
        &delta(1, r#""text":"o","type":"text_delta""#),
    ];
    assert_eq!(stream(&messages), [r#"0 Reasoning "Hmm""#, r#"0 Text "So""#]);
}

#[test]
fn numbers_tools_separately_from_other_blocks() {
    let start = |index: u32, kind: &str| {
        format!(
            r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"{kind}","id":"t","name":"f","input":{{}}}}}}"#
        )
    };
    let piece = |index, text: &str| {
        delta(index, &format!(r#""type":"input_json_delta","partial_json":"{text}""#))
    };
    let messages = [
        start(1, "tool_use"),
        piece(1, ""),
        piece(1, "{"),
        piece(1, "}"),
        start(3, "server_tool_use"),
        piece(3, "[1"),
        piece(1, " "),
        start(4, "some_tool_use"),
        piece(4, "[]"),
        // A second message in the same stream begins its own blocks.
        start(1, "tool_use"),
        piece(1, "{}"),
    ];
    let messages = messages.each_ref().map(String::as_str);
    assert_eq!(
        stream(&messages),
        [
            r#"0 Tool(0) "{}""#,
            r#"0 Tool(1) "[1""#,
            r#"0 Tool(0) " ""#,
            r#"0 Tool(2) "[]""#,
            r#"0 Tool(3) "{}""#
        ]
    );
}

#[test]
fn a_tool_call_that_comes_whole_counts_once() {
    let messages = [
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"f","input":{"a": [1, "é"]}}}"#,
        &delta(0, r#""type":"input_json_delta","partial_json":"{\"a\":[1,\"é\"]}""#),
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","name":"f","input":{}}}"#,
        &delta(0, r#""type":"input_json_delta","partial_json":"{}""#),
    ];
    assert_eq!(stream(&messages), [r#"0 Tool(0) "{\"a\":[1,\"é\"]}""#, r#"0 Tool(1) "{}""#]);
}

#[test]
fn overwrites_counts_field_by_field() {
    let message = |counts: &str| {
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"tool_use"}},"usage":{{{counts}}}}}"#
        )
    };
    let last = |counts: &str| {
        let lines = stream(&[START, &message(counts)]);
        lines.last().unwrap().clone()
    };
    let all = r#""input_tokens":6,"cache_creation_input_tokens":30,"cache_read_input_tokens":200,"output_tokens":90,"output_tokens_details":{"thinking_tokens":40},"iterations":[{"input_tokens":999,"output_tokens":999}]"#;
    assert_eq!(last(all), usage([Some(236), Some(90), Some(200), Some(30), Some(40)]));
    let of_gateway = r#""input_tokens":7,"cache_read_input_tokens":null,"output_tokens":9.0"#;
    assert_eq!(last(of_gateway), usage([Some(111), Some(9), Some(100), Some(4), None]));
    let filled = r#""input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":9"#;
    assert_eq!(last(filled), usage([Some(124), Some(9), Some(100), Some(4), None]));
    let by_time = r#""output_tokens":9,"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":2}"#;
    let counts = Usage {
        input: Some(123),
        output: Some(9),
        cache_read: Some(100),
        cache_write: Some(3),
        cache_write_5m: Some(1),
        cache_write_1h: Some(2),
        ..Usage::default()
    };
    assert_eq!(last(by_time), format!("{:?}", Event::Usage(&counts)));
}

/// Returns a usage object with 23,000 input and 1,000 output tokens, and these iterations.
fn iterations(iterations: &str) -> String {
    format!(r#""usage":{{"input_tokens":23000,"output_tokens":1000,"iterations":[{iterations}]}}"#)
}

const COMPACTION: &str = r#"{"type":"compaction","input_tokens":180000,"output_tokens":3500,"cache_read_input_tokens":0}"#;
const MESSAGE: &str = r#"{"type":"message","input_tokens":23000,"output_tokens":1000}"#;

#[test]
fn keeps_the_lifetimes_of_the_start_of_a_stream() {
    let start = r#"{"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":4,"cache_creation_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":30,"ephemeral_1h_input_tokens":70}}}}"#;
    let last = |counts: &str| {
        let delta = format!(r#"{{"type":"message_delta","delta":{{}},"usage":{{{counts}}}}}"#);
        stream(&[start, &delta]).pop().unwrap()
    };
    let counts = |cache_write, lifetimes: (Option<u64>, Option<u64>)| {
        let usage = Usage {
            input: Some(4 + cache_write),
            output: Some(9),
            cache_write: Some(cache_write),
            cache_write_5m: lifetimes.0,
            cache_write_1h: lifetimes.1,
            ..Usage::default()
        };
        format!("{:?}", Event::Usage(&usage))
    };
    let repeated = r#""output_tokens":9,"cache_creation_input_tokens":100"#;
    assert_eq!(last(repeated), counts(100, (Some(30), Some(70))));
    assert_eq!(last(r#""output_tokens":9"#), counts(100, (Some(30), Some(70))));
    let more = r#""output_tokens":9,"cache_creation_input_tokens":150"#;
    assert_eq!(last(more), counts(150, (Some(30), Some(70))));
    let fewer = r#""output_tokens":9,"cache_creation_input_tokens":50"#;
    assert_eq!(last(fewer), counts(50, (None, None)));
}

#[test]
fn adds_compaction_to_the_message() {
    let counts = |input, output, compaction| Usage {
        input: Some(input),
        output: Some(output),
        compaction,
        ..Usage::default()
    };
    let twice = r#"{"type":"compaction","input_tokens":1,"output_tokens":2,"cache_creation_input_tokens":4},{"type":"message","input_tokens":8,"output_tokens":16}"#;
    let advisor =
        r#"{"type":"advisor_message","model":"other","input_tokens":99,"output_tokens":99}"#;
    let fallback = r#"{"type":"fallback_message","input_tokens":7,"output_tokens":7}"#;
    let read = Usage { cache_read: Some(0), ..counts(203_000, 4_500, Some(3_500)) };
    let both =
        Usage { cache_read: Some(0), cache_write: Some(4), ..counts(203_013, 4_518, Some(3_502)) };
    let plain = counts(23_000, 1_000, None);
    for (list, expected) in [
        (format!("{COMPACTION},{MESSAGE}"), read),
        (format!("{COMPACTION},{advisor},{MESSAGE}"), read),
        (format!("{COMPACTION},{MESSAGE},{twice}"), both),
        (COMPACTION.to_owned(), Usage { input: Some(180_000), output: Some(3_500), ..read }),
        (MESSAGE.to_owned(), plain),
        (format!("{MESSAGE},{advisor}"), plain),
        (format!("{COMPACTION},{MESSAGE},{fallback}"), plain),
        (String::new(), plain),
    ] {
        let usage = iterations(&list);
        let expected = format!("{:?}", Event::Usage(&expected));
        let whole = format!(r#"{{"type":"message","content":[],{usage}}}"#);
        assert_eq!(body(&whole), [expected.as_str()], "{list}");
        let delta = format!(r#"{{"type":"message_delta","delta":{{}},{usage}}}"#);
        assert_eq!(stream(&[&delta]), [expected.as_str()], "{list}");
        for api in [Api::BedrockInvoke, Api::AnthropicMessages] {
            let invoked = TestResponse::new(api, JSON).read(whole.as_bytes());
            assert_eq!(invoked, [expected.as_str()], "{api:?} {list}");
        }
    }
}

#[test]
fn uses_the_first_output_count_only_without_another() {
    let outputs = |messages: &[&str]| {
        let lines = stream(messages);
        let mut usages = lines.into_iter().filter(|line| line.starts_with("Usage"));
        usages.next_back().unwrap()
    };
    assert_eq!(outputs(&[START]), usage([Some(124), None, Some(100), Some(4), None]));
    assert_eq!(outputs(&[START, STOP]), usage([None, Some(3), None, None, None]));
    let delta = r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":5}}"#;
    assert_eq!(
        outputs(&[START, delta, STOP]),
        usage([Some(124), Some(5), Some(100), Some(4), None])
    );
}

#[test]
fn a_message_that_begins_twice_is_named_once() {
    let other = START.replace("msg_1", "msg_2");
    let lines = stream(&[START, START, &other]);
    assert_eq!(lines[..3], begun());
    assert!(lines[3..].iter().all(|line| line == &begun()[2]));
}

#[test]
fn a_refusal_is_a_reason_to_stop() {
    let messages = [
        START,
        r#"{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"x"}},"usage":{"output_tokens":5}}"#,
        STOP,
    ];
    let lines = stream(&messages);
    assert_eq!(lines[3], stopped(0, "refusal"));
    assert_eq!(lines[5], "Done");
}

#[test]
fn keeps_text_before_an_error_in_the_stream() {
    let messages = [
        START,
        &delta(0, r#""type":"text_delta","text":"a""#),
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
    ];
    let rest = [r#"0 Text "a""#.to_owned(), failed(Some("overloaded_error"))];
    assert_eq!(stream(&messages), [&begun()[..], &rest].concat());
    let nameless = "event: error\ndata: gone\n\n";
    assert_eq!(
        TestResponse::new(Api::AnthropicMessages, STREAM).read(nameless.as_bytes()),
        [failed(None)]
    );
}

#[test]
fn the_older_format_ends_its_lines_otherwise() {
    let stream = concat!(
        "event: completion\r\ndata: {\"type\":\"completion\",\"id\":\"compl_1\",\"completion\":\" Hi\",\"stop_reason\":null,\"model\":\"claude-2.1\",\"stop\":null,\"log_id\":\"compl_1\"   }\r\n\r\n",
        "event: ping\r\ndata: {\"type\": \"ping\"}\r\n\r\n",
        "event: completion\r\ndata: {\"type\":\"completion\",\"id\":\"compl_1\",\"completion\":\" you\",\"stop_reason\":\"stop_sequence\",\"model\":\"claude-2.1\",\"stop\":\"\\n\\nHuman:\",\"log_id\":\"compl_1\"}\r\n\r\n",
    );
    let expected = [
        started(Some("compl_1"), Some("claude-2.1")),
        r#"0 Text " Hi you""#.to_owned(),
        stopped(0, "stop_sequence"),
    ];
    let complete = TestResponse::new(Api::AnthropicComplete, STREAM);
    assert_eq!(complete.read(stream.as_bytes()), expected);
    let whole = r#"{"type":"completion","id":"compl_1","model":"claude-2.1","completion":" Hi you","stop_reason":"stop_sequence","stop":"\n\nHuman:","log_id":"compl_1"}"#;
    let mut whole = TestResponse::new(Api::AnthropicComplete, JSON).read(whole.as_bytes());
    assert_eq!(whole.remove(0), started(Some("compl_1"), None));
    assert_eq!(whole.remove(0), started(None, Some("claude-2.1")));
    assert_eq!(whole, expected[1..]);
}

#[test]
fn reads_a_json_body() {
    let answer = r#"{"container":{"id":"container_1"},"model":"claude-x-1","id":"msg_1","type":"message","role":"assistant","content":[
      {"signature":"Eq","thinking":"Hmm","type":"thinking"},{"type":"redacted_thinking","data":"qq"},
      {"type":"text","text":"So \ud83d\ude00","citations":[{"type":"char_location","cited_text":"no","text":"no"}]},
      {"id":"s","input":{"command": "ls"},"name":"bash","type":"server_tool_use"},
      {"type":"bash_tool_result","tool_use_id":"s","content":{"stdout":"no","text":"no","content":[{"type":"text","text":"no"}]}},
      {"type":"compaction","content":"no"},
      {"type":"tool_use","id":"t","name":"f","input":{}}],
      "stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":4,"cache_creation_input_tokens":426,"cache_read_input_tokens":14210,
      "cache_creation":{"ephemeral_1h_input_tokens":0,"ephemeral_5m_input_tokens":426},"output_tokens":290,"output_tokens_details":{"thinking_tokens":15},
      "iterations":[{"input_tokens":9,"output_tokens":9}],"server_tool_use":{"web_search_requests":0},"service_tier":"priority"}}"#;
    let counts = Usage {
        input: Some(14_640),
        output: Some(290),
        cache_read: Some(14_210),
        cache_write: Some(426),
        cache_write_5m: Some(426),
        cache_write_1h: Some(0),
        reasoning: Some(15),
        ..Usage::default()
    };
    assert_eq!(
        body(answer),
        [
            started(None, Some("claude-x-1")),
            started(Some("msg_1"), None),
            r#"0 Reasoning "Hmm""#.to_owned(),
            r#"0 Text "So 😀""#.to_owned(),
            r#"0 Tool(0) "{\"command\":\"ls\"}""#.to_owned(),
            r#"0 Tool(1) "{}""#.to_owned(),
            stopped(0, "tool_use"),
            tier("priority"),
            format!("{:?}", Event::Usage(&counts)),
        ]
    );
    let by_time = r#"{"usage":{"input_tokens":1,"cache_creation":{"ephemeral_1h_input_tokens":2,"ephemeral_5m_input_tokens":3}}}"#;
    let counts = Usage {
        input: Some(6),
        cache_write: Some(5),
        cache_write_5m: Some(3),
        cache_write_1h: Some(2),
        ..Usage::default()
    };
    assert_eq!(body(by_time), [format!("{:?}", Event::Usage(&counts))]);
}

#[test]
fn reads_errors_of_gateways_and_models() {
    for (shape, kind) in [
        (
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: x"},"request_id":"req_1"}"#,
            Some("not_found_error"),
        ),
        (
            r#"{"error":{"message":"no","type":"authentication_error"},"type":"error"}"#,
            Some("authentication_error"),
        ),
        (
            r#"[{"error":{"code":429,"message":"RateLimits.","status":"RESOURCE_EXHAUSTED"}}]"#,
            Some("RESOURCE_EXHAUSTED"),
        ),
        (r#"{"error":{"code":402,"message":"Credits."}}"#, Some("402")),
        (
            r#"{"__type":"com.amazon.coral.service#ThrottlingException","message":"Slow."}"#,
            Some("ThrottlingException"),
        ),
        (r#"{"type":"error","error":"No."}"#, None),
    ] {
        assert_eq!(body(shape), [failed(kind)], "{shape}");
        for api in [Api::AnthropicMessages, Api::AnthropicCountTokens] {
            let answer = TestResponse::new(api, JSON).status(400);
            assert_eq!(answer.read(shape.as_bytes()), [failed(kind)], "{shape}");
        }
    }
    for other in [r#"{"message":"no"}"#, "<html></html>", "upstream error", "{"] {
        let answer = TestResponse::new(Api::AnthropicMessages, JSON).status(529);
        assert_eq!(answer.read(other.as_bytes()), [failed(None)], "{other}");
    }
}

#[test]
fn reads_only_errors_after_an_error_status() {
    let answer = TestResponse::new(Api::AnthropicMessages, STREAM).status(500);
    let error = r#"{"type":"error","error":{"type":"api_error"}}"#;
    let stream = named(&[error, START, error]);
    assert_eq!(answer.read(stream.as_bytes()), [failed(Some("api_error"))]);
    let whole = r#"{"id":"msg_1","content":[{"text":"a"}],"usage":{"input_tokens":1}}"#;
    assert_eq!(answer.read(whole.as_bytes()), [failed(None)]);
}

#[test]
fn reads_nothing_from_token_counting() {
    let counted = TestResponse::new(Api::AnthropicCountTokens, JSON);
    assert!(counted.read(br#"{"input_tokens":14}"#).is_empty());
}

#[test]
fn reads_or_reports_fields_of_wrong_types() {
    let odd = r#"{"type":["x"],"index":"a","message":3,"delta":{"text":{},"thinking":1,"partial_json":null,"stop_reason":[]},"usage":"none","content_block":[],"error":null,"completion":{}}"#;
    assert_eq!(stream(&[odd]), [r#"0 Reasoning "1""#, "ParseError(BadJson)"]);
    let empty = r#"{"type":"x","message":{},"delta":{"text":"","thinking":null},"usage":[],"content_block":[]}"#;
    assert!(stream(&[empty]).is_empty());
    for broken in ["[]", "3", "{\"delta\":"] {
        let framed = format!("data: {broken}\n\n");
        let answer = TestResponse::new(Api::AnthropicMessages, STREAM);
        assert_eq!(answer.read(framed.as_bytes()), ["ParseError(BadJson)"], "{broken}");
    }
    assert_eq!(body("{\"content\":[{\"text\":\"a"), [r#"0 Text "a""#, "ParseError(Unterminated)"]);
}

#[test]
fn reads_text_with_half_a_character() {
    let half = delta(0, r#""type":"text_delta","text":"a\ud83d b""#);
    assert_eq!(stream(&[&half]), ["ParseError(BadText)", "0 Text \"a\u{FFFD} b\""]);
    let twice = r#"{"type":"content_block_delta","index":0,"index":0,"delta":{"text":"a"}}"#;
    assert_eq!(stream(&[twice]), [r#"0 Text "a""#]);
}

#[test]
fn reads_all_facts_of_a_request() {
    let facts = asked(
        Api::AnthropicMessages,
        r#"{"model":"claude-x","max_tokens":1024,"temperature":0.5,"top_p":0.9,"top_k":40,"stop_sequences":["a","b"],"stream":true,
          "system":[{"type":"text","text":"12"}],"service_tier":"auto","thinking":{"type":"enabled","budget_tokens":2048},
          "output_config":{"effort":"high","format":{"type":"json_schema","schema":{"type":"object"}}},
          "tools":[{"name":"f","input_schema":{"type":"object","model":"no"}}],"metadata":{"user_id":"u"},
          "messages":[{"role":"user","content":"345"},{"role":"user","content":[{"type":"text","text":"67"},
            {"type":"image","source":{"type":"base64","data":"AAAA"}},
            {"type":"tool_result","content":"8"},{"type":"tool_result","content":[{"type":"text","text":"9"}]}]}]}"#,
    );
    let expected = RequestFacts {
        api: Some(Api::AnthropicMessages),
        model: Name::new("claude-x"),
        stream: Some(true),
        max_tokens: Some(1024),
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(40),
        stop_sequences: Some(2),
        reasoning_level: Name::new("high"),
        reasoning: true,
        service_tier: Name::new("auto"),
        output_type: Some("json"),
        prompt_bytes: 9,
        tools: true,
        ..RequestFacts::default()
    };
    assert_eq!(facts, expected);
}

#[test]
fn a_request_in_the_older_format() {
    let facts = asked(
        Api::AnthropicComplete,
        r#"{"model":"claude-2.1","prompt":"\n\nHuman: Hi\n\nAssistant:","max_tokens_to_sample":3,"stream":false,"system":"no"}"#,
    );
    assert_eq!(facts.api, Some(Api::AnthropicComplete));
    assert_eq!((facts.max_tokens, facts.stream), (Some(3), Some(false)));
    assert_eq!(facts.prompt_bytes, 25);
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), status in 200..600_u16) {
        for lead in ["", "data: {\"delta\":{\"text\":\"", "{\"content\":[{\"input\":{"] {
            let body = [lead.as_bytes(), &bytes, b"\"}}\n\n"].concat();
            let answer = TestResponse::new(Api::AnthropicMessages, None).status(status);
            let pieces: Vec<&[u8]> = body.chunks(3).collect();
            proptest::prop_assert_eq!(answer.cut(&pieces), answer.cut(&[&body]));
        }
    }
}
