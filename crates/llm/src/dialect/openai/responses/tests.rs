//! Tests streams and bodies of the Responses API, split at every position, for the messages that each server sends.

use crate::dialect::testing::{
    JSON, STREAM, TestResponse, events, failed, started, stopped, usage,
};
use crate::dialect::*;

const API: Api = Api::OpenAiResponses;

/// Returns the events of a stream of these messages. Asserts that they are the same with and without event names.
fn stream(messages: &[&str]) -> Vec<String> {
    let bare = TestResponse::new(API, STREAM).read(events(messages).as_bytes());
    let named = TestResponse::new(API, JSON).cut(&[named(messages).as_bytes()]);
    assert_eq!(named, bare, "named");
    bare
}

/// Returns the messages as events whose name is the type of the message.
fn named(messages: &[&str]) -> String {
    let name = |message: &str| {
        let message: serde_json::Value = serde_json::from_str(message).ok()?;
        Some(format!("event: {}\n", message.get("type")?.as_str()?))
    };
    let event =
        |message: &&str| format!("{}data: {message}\n\n", name(message).unwrap_or_default());
    messages.iter().map(event).collect()
}

fn body(body: &str) -> Vec<String> {
    TestResponse::new(API, JSON).read(body.as_bytes())
}

const CREATED: &str = r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","error":null,"instructions":"Be \"brief\".","model":"gpt-x","output":[],"service_tier":"auto","text":{"format":{"type":"text"}},"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"usage":null}}"#;

#[test]
fn reads_a_stream() {
    let messages = [
        CREATED,
        &CREATED.replace("created", "in_progress"),
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
        r#"{"type":"response.reasoning_summary_part.added","item_id":"rs_1","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}"#,
        r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"Hm","obfuscation":"a1"}"#,
        r#"{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","output_index":0,"summary_index":0,"delta":"m.","obfuscation":""}"#,
        r#"{"type":"response.reasoning_summary_text.done","item_id":"rs_1","output_index":0,"summary_index":0,"text":"Hmm."}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Hmm."}],"encrypted_content":"zz"}}"#,
        r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":"","logprobs":[]}"#,
        r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":"Good\n","logprobs":[],"obfuscation":"xyz"}"#,
        r#"{"type":"response.output_text.delta","item_id":"msg_1","output_index":1,"content_index":0,"delta":"day","logprobs":[]}"#,
        r#"{"type":"response.output_text.annotation.added","output_index":1,"annotation":{"type":"url_citation","text":"no"}}"#,
        r#"{"type":"response.output_text.done","item_id":"msg_1","output_index":1,"content_index":0,"text":"Good\nday"}"#,
        r#"{"type":"response.content_part.done","item_id":"msg_1","output_index":1,"content_index":0,"part":{"type":"output_text","text":"Good\nday"}}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Good\nday"}]}}"#,
        r#"{"type":"response.completed","response":{"id":"resp_1","status":"completed","error":null,"model":"gpt-x","service_tier":"default","output":[
            {"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Hmm."}]},
            {"id":"msg_1","type":"message","content":[{"type":"output_text","text":"Good\nday"}]}],
            "usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4},"output_tokens":12,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":21}}}"#,
    ];
    let messages = messages.map(|message| message.replace('\n', " "));
    assert_eq!(
        stream(&messages.each_ref().map(String::as_str)),
        [
            started(Some("resp_1"), None),
            started(None, Some("gpt-x")),
            r#"0 Reasoning "Hmm.""#.to_owned(),
            r#"0 Text "Good\nday""#.to_owned(),
            stopped(0, "completed"),
            r#"Tier { service_tier: Some("default"), system_fingerprint: None }"#.to_owned(),
            usage([Some(9), Some(12), Some(4), None, Some(5)]),
        ]
    );
}

/// One message and one tool call in all forms in which a stream can contain them, from the smallest to the largest.
const FORMS: [&[&str]; 4] = [
    &[
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Let me"}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":" see"}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"a\""}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":":1}"}"#,
    ],
    &[
        r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"text":"Let me see"}"#,
        r#"{"arguments":"{\"a\":1}","name":"f","output_index":1,"type":"response.function_call_arguments.done"}"#,
    ],
    &[
        r#"{"item":{"content":[{"text":"Let me see","type":"output_text"}],"type":"message"},"output_index":0,"type":"response.output_item.done"}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","name":"f","arguments":"{\"a\":1}"}}"#,
    ],
    &[
        r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Let me see"}]},{"type":"function_call","arguments":"{\"a\":1}"}]}}"#,
    ],
];

#[test]
fn counts_a_text_once_at_its_first_occurrence() {
    let said = [r#"0 Text "Let me see""#, r#"0 Tool(0) "{\"a\":1}""#];
    let end = r#"Stopped { choice: 0, reason: "completed" }"#;
    for first in 0..FORMS.len() {
        let form = FORMS.get(first..).unwrap().concat();
        let events = stream(&form);
        let position = |line: &str| events.iter().position(|event| event == line);
        assert!(
            position(said[0]).is_some() && position(said[1]).is_some() && position(end).is_some(),
            "{first}: {events:?}"
        );
        assert_eq!(events.len(), 3, "{first}: {events:?}");
    }
    // Each form alone, because some servers leave out the others.
    for form in FORMS.get(..3).unwrap() {
        let empty = r#"{"type":"response.completed","response":{"output":[]}}"#;
        let events = stream(&[form, &[empty][..]].concat());
        assert_eq!(events, [said[0], said[1], end]);
    }
}

#[test]
fn identifies_texts_by_place_and_not_by_id() {
    let rotating = [
        r#"{"type":"response.output_text.delta","item_id":"a","output_index":0,"content_index":0,"delta":"one"}"#,
        r#"{"type":"response.output_text.delta","item_id":"b","output_index":0,"content_index":0,"delta":" two"}"#,
        r#"{"type":"response.output_text.done","item_id":"c","output_index":0,"content_index":0,"text":"one two"}"#,
        r#"{"type":"response.output_text.done","item_id":"c","output_index":0,"content_index":1,"text":" three"}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"d","type":"message","content":[{"type":"output_text","text":"one two"},{"type":"output_text","text":" three"}]}}"#,
    ];
    assert_eq!(stream(&rotating), [r#"0 Text "one two three""#]);
    let call = |index: u32, delta: &str| {
        format!(
            r#"{{"type":"response.function_call_arguments.delta","item_id":"same","output_index":{index},"delta":"{delta}"}}"#
        )
    };
    let calls = [call(3, "a"), call(5, "b"), call(3, "c"), call(5, "d")];
    assert_eq!(
        stream(&calls.each_ref().map(String::as_str)),
        [r#"0 Tool(0) "a""#, r#"0 Tool(1) "b""#, r#"0 Tool(0) "c""#, r#"0 Tool(1) "d""#]
    );
    let no_index = r#"{"type":"response.output_text.delta","delta":"a"}"#;
    assert_eq!(stream(&[no_index, no_index]), [r#"0 Text "aa""#]);
}

#[test]
fn counts_text_that_only_the_whole_response_has() {
    let delta =
        r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"See"}"#;
    let end = r#"{"type":"response.completed","response":{"output":[{"type":"message","content":[{"type":"output_text","text":"See"}]},{"type":"function_call","arguments":"{}"},{"type":"custom_tool_call","input":"ls"}]}}"#;
    assert_eq!(
        stream(&[delta, end]),
        [
            r#"0 Text "See""#.to_owned(),
            r#"0 Tool(0) "{}""#.to_owned(),
            r#"0 Tool(1) "ls""#.to_owned(),
            stopped(0, "completed")
        ]
    );
}

#[test]
fn assigns_every_kind_of_text_to_a_part() {
    for (kind, part) in [
        ("output_text", "Text"),
        ("refusal", "Refusal"),
        ("reasoning_text", "Reasoning"),
        ("reasoning_summary_text", "Reasoning"),
        ("function_call_arguments", "Tool(0)"),
        ("custom_tool_call_input", "Tool(0)"),
        ("mcp_call_arguments", "Tool(0)"),
        ("code_interpreter_call_code", "Tool(0)"),
        ("code_interpreter_call.code", "Tool(0)"),
        ("apply_patch_call_operation_diff", "Tool(0)"),
        ("audio.transcript", "Transcript"),
    ] {
        let delta = format!(r#"{{"type":"response.{kind}.delta","delta":"so"}}"#);
        assert_eq!(stream(&[&delta]), [format!("0 {part} \"so\"")]);
    }
    for (kind, field, part) in [
        ("refusal", "refusal", "Refusal"),
        ("custom_tool_call_input", "input", "Tool(0)"),
        ("code_interpreter_call_code", "code", "Tool(0)"),
        ("apply_patch_call_operation_diff", "diff", "Tool(0)"),
        ("audio.transcript", "transcript", "Transcript"),
    ] {
        let done = format!(r#"{{"type":"response.{kind}.done","{field}":"so"}}"#);
        assert_eq!(stream(&[&done, &done]), [format!("0 {part} \"so\"")]);
    }
    for ignored in [
        r#"{"type":"response.audio.delta","delta":"AAAA"}"#,
        r#"{"type":"response.image_generation_call.partial_image","partial_image_b64":"AAAA"}"#,
        r#"{"type":"response.web_search_call.searching","output_index":0}"#,
        r#"{"type":"response.of_tomorrow.delta","delta":"AAAA"}"#,
        r#"{"type":"keepalive","sequence_number":3}"#,
        "{}",
    ] {
        assert!(stream(&[ignored]).is_empty(), "{ignored}");
    }
    let part = r#"{"type":"response.output_text.delta","delta":{"text":"a"}}"#;
    assert_eq!(stream(&[part]), [r#"0 Text "a""#]);
}

#[test]
fn counts_reasoning_in_two_forms_once() {
    let text = r#"{"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"hm"}"#;
    let summary = r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"hm"}"#;
    let item = r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","content":[{"type":"reasoning_text","text":"hm"}],"summary":[{"type":"summary_text","text":"hm"}]}}"#;
    for form in [&[text, summary, item][..], &[summary, text, item], &[text], &[summary], &[item]] {
        assert_eq!(stream(form), [r#"0 Reasoning "hm""#]);
    }
}

#[test]
fn reads_the_final_status() {
    for (last, reason) in [
        (r#""response.completed","response":{"status":"completed"}"#, "completed"),
        (
            r#""response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}"#,
            "incomplete",
        ),
        (r#""response.incomplete","response":{}"#, "incomplete"),
        (r#""response.cancelled","response":{"status":"cancelled"}"#, "cancelled"),
        (r#""response.done","response":{}"#, "completed"),
    ] {
        assert_eq!(
            stream(&[&format!("{{\"type\":{last}}}"), "[DONE]"]),
            [stopped(0, reason), "Done".to_owned()]
        );
    }
    let zero = r#"{"type":"response.incomplete","response":{"status":"incomplete","usage":{"input_tokens":0,"output_tokens":0,"total_tokens":0}}}"#;
    assert_eq!(
        stream(&[zero]),
        [stopped(0, "incomplete"), usage([Some(0), Some(0), None, None, None])]
    );
}

#[test]
fn reports_an_error_once_with_its_kind() {
    let last = |error: &str| {
        format!(
            r#"{{"type":"response.failed","response":{{"status":"failed","error":{error},"usage":null}}}}"#
        )
    };
    let named = last(r#"{"code":"rate_limit_exceeded","message":"Too many."}"#);
    let nested = r#"{"type":"error","sequence_number":2,"error":{"type":"insufficient_quota","code":"q","message":"No."}}"#;
    let flat = r#"{"type":"error","code":"server_error","message":"Oh.","param":null}"#;
    let end = stopped(0, "failed");
    assert_eq!(stream(&[&named]), [end.clone(), failed(Some("rate_limit_exceeded"))]);
    assert_eq!(stream(&[nested, &named]), [failed(Some("insufficient_quota")), end.clone()]);
    assert_eq!(stream(&[flat, flat]), [failed(Some("server_error"))]);
    assert_eq!(stream(&[&last("null")]), [end, failed(None)]);
    let bare = r#"{"error":{"code":503,"message":"Busy."}}"#;
    assert_eq!(stream(&[bare]), [failed(Some("503"))]);
    let text = TestResponse::new(API, STREAM).read(b"event: error\ndata: gone\n\n");
    assert_eq!(text, [failed(None)]);
}

#[test]
fn reads_only_errors_after_an_error_status() {
    let said = r#"{"type":"response.output_text.delta","delta":"x"}"#;
    let error = r#"{"type":"error","error":{"code":"c"}}"#;
    let refused = |body: &str| TestResponse::new(API, None).status(500).read(body.as_bytes());
    assert_eq!(refused(&events(&[error, said, "[DONE]"])), [failed(Some("c"))]);
    assert_eq!(refused(&events(&[said])), [failed(None)]);
    assert_eq!(
        refused(r#"{"error":{"message":"m","type":"invalid_request_error"}}"#),
        [failed(Some("invalid_request_error"))]
    );
    assert_eq!(refused(r#"{"detail":"Unauthorized"}"#), [failed(None)]);
    assert_eq!(refused("<html></html>"), [failed(None)]);
}

#[test]
fn reads_messages_with_malformed_text() {
    let of = |text: &[u8]| {
        let parts = [
            &b"event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\""[..],
            text,
            b"\",\"logprobs\":[{\"logprob\":-Infinity}]}\n\n",
        ];
        TestResponse::new(API, STREAM).read(&parts.concat())
    };
    assert_eq!(of(b"a"), [r#"0 Text "a""#]);
    for text in [&b"a\\ud83d b"[..], b"a\xF0\x9F b"] {
        assert_eq!(of(text), ["ParseError(BadText)", "0 Text \"a\u{FFFD} b\""]);
    }
    assert_eq!(of(b"a\"b"), ["ParseError(BadJson)"]);
    let sorted = br#"data: {"delta":"a\udc00","logprobs":NaN,"type":"response.output_text.delta"}"#;
    assert_eq!(
        TestResponse::new(API, STREAM).read(&[&sorted[..], b"\n\n"].concat()),
        ["ParseError(BadText)", "0 Text \"a\u{FFFD}\""]
    );
    assert_eq!(
        stream(&["{\"type\":\"response.completed\",\"response\":{"])[0],
        "ParseError(BadJson)"
    );
    assert_eq!(stream(&["gone"]), ["ParseError(BadJson)"]);
}

#[test]
fn reads_a_json_body() {
    let answer = r#"{"id":"resp_1","object":"response","status":"completed","error":null,"instructions":"Be brief.","model":"gpt-x","output":[
        {"id":"rs_1","type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"h\u00e9"},{"type":"reasoning_text","text":"m"}]},
        {"id":"mcp_1","type":"mcp_call","name":"f","arguments":"{}","output":"a page","error":null},
        {"id":"ci_1","type":"code_interpreter_call","code":"1+1","outputs":[{"type":"logs","logs":"2"}]},
        {"id":"fs_1","type":"file_search_call","queries":["q"],"results":[{"text":"no"}]},
        {"id":"ig_1","type":"image_generation_call","result":"AAAA","prompt":"no"},
        {"id":"ct_1","type":"custom_tool_call","input":"ls"},
        {"id":"msg_1","type":"message","role":"assistant","content":[
            {"type":"output_text","text":"So","annotations":[{"text":"no"}],"logprobs":[{"token":"no"}]},
            {"type":"refusal","refusal":"No."},{"type":"output_audio","transcript":"Hi","data":"AAAA"}]}],
        "service_tier":"flex","text":{"format":{"type":"text"}},"tools":[{"type":"function","name":"f"}],
        "usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"output_tokens":12,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":21},
        "tool_usage":{"image_gen":{"input_tokens":1,"output_tokens":1}},"metadata":{"model":"no"}}"#;
    assert_eq!(
        body(answer),
        [
            started(Some("resp_1"), None),
            stopped(0, "completed"),
            started(None, Some("gpt-x")),
            r#"0 Reasoning "hém""#.to_owned(),
            r#"0 Tool(0) "{}""#.to_owned(),
            r#"0 Tool(1) "1+1""#.to_owned(),
            r#"0 Tool(2) "ls""#.to_owned(),
            r#"0 Text "So""#.to_owned(),
            r#"0 Refusal "No.""#.to_owned(),
            r#"0 Transcript "Hi""#.to_owned(),
            r#"Tier { service_tier: Some("flex"), system_fingerprint: None }"#.to_owned(),
            usage([Some(9), Some(12), Some(4), Some(2), Some(5)]),
        ]
    );
}

#[test]
fn reads_failed_and_unfinished_bodies() {
    let of = |fields: &str| body(&format!("{{\"object\":\"response\",{fields}}}"));
    for status in ["queued", "in_progress"] {
        assert!(of(&format!(r#""status":"{status}","output":[],"usage":null"#)).is_empty());
    }
    assert_eq!(
        of(r#""status":"failed","error":{"code":"server_error","message":"Oh."}"#),
        [stopped(0, "failed"), failed(Some("server_error"))]
    );
    assert_eq!(of(r#""status":"failed","error":null"#), [stopped(0, "failed"), failed(None)]);
    assert_eq!(of(r#""error":{"type":"t"}"#), [failed(Some("t"))]);
    let strings = r#""output":[{"type":"message","content":"So"},7,null,{"arguments":{"a":1}}],"usage":{"input_tokens":"9","output_tokens":12.0}"#;
    assert_eq!(
        of(strings),
        [
            r#"0 Text "So""#.to_owned(),
            r#"0 Tool(0) "{\"a\":1}""#.to_owned(),
            usage([Some(9), Some(12), None, None, None]),
            "ParseError(BadJson)".to_owned()
        ]
    );
}

#[test]
fn reports_a_compaction_by_the_server() {
    let item = r#"{"id":"cmp_1","type":"compaction","encrypted_content":"zz"}"#;
    let whole = format!(r#"{{"object":"response","status":"completed","output":[{item}]}}"#);
    assert_eq!(body(&whole), [stopped(0, "completed"), "Compacted".to_owned()]);
    let done = format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{item}}}"#);
    assert_eq!(stream(&[&done]), ["Compacted"]);
}

#[test]
fn reads_only_the_usage_of_a_compaction() {
    let object = r#"{"id":"resp_1","object":"response.compaction","created_at":1790000000,"output":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"compaction","encrypted_content":"zz"}],"usage":{"input_tokens":139,"input_tokens_details":{"cached_tokens":0},"output_tokens":438,"output_tokens_details":{"reasoning_tokens":64},"total_tokens":577}}"#;
    let read = TestResponse::new(Api::OpenAiCompaction, JSON).read(object.as_bytes());
    let counts = usage([Some(139), Some(438), Some(0), None, Some(64)]);
    assert_eq!(read, [started(Some("resp_1"), None), counts]);
}

#[test]
fn reads_the_usage_of_a_fetched_response_when_it_is_final() {
    let stored = |status: &str, usage: &str| {
        let object = format!(
            r#"{{"id":"resp_1","background":true,"status":"{status}","output":[],"usage":{usage}}}"#
        );
        TestResponse::new(Api::OpenAiStoredResponse, JSON).read(object.as_bytes())
    };
    let started = started(Some("resp_1"), None);
    let counts = r#"{"input_tokens":9,"output_tokens":3}"#;
    for status in ["queued", "in_progress"] {
        assert_eq!(stored(status, counts), [started.as_str()], "{status}");
    }
    let final_counts = usage([Some(9), Some(3), None, None, None]);
    for status in ["completed", "incomplete", "failed", "cancelled"] {
        assert_eq!(stored(status, counts), [started.as_str(), &final_counts], "{status}");
        assert_eq!(stored(status, "null"), [started.as_str()], "{status}");
    }
}

#[test]
fn does_not_count_the_text_of_a_fetched_response() {
    let stored = Api::OpenAiStoredResponse;
    let object = r#"{"id":"resp_1","status":"failed","error":{"code":"c"},"model":"m","output":[{"type":"message","content":[{"type":"output_text","text":"a"}]}],"usage":{"input_tokens":1,"output_tokens":1}}"#;
    let counts = usage([Some(1), Some(1), None, None, None]);
    let head = [started(Some("resp_1"), None), started(None, Some("m")), counts.clone()];
    assert_eq!(TestResponse::new(stored, JSON).read(object.as_bytes()), head);
    let last = format!(r#"{{"type":"response.completed","response":{object}}}"#);
    let form = [&[CREATED][..], FORMS[0], FORMS[2], &[&last]].concat();
    let replayed = TestResponse::new(stored, STREAM).read(named(&form).as_bytes());
    let head = [started(Some("resp_1"), None), started(None, Some("gpt-x"))];
    assert_eq!(replayed, [&head[..], &[counts, "Done".to_owned()]].concat());
    let missing = TestResponse::new(stored, JSON).status(404);
    assert_eq!(missing.read(br#"{"error":{"type":"not_found"}}"#), [failed(Some("not_found"))]);
    let counted = TestResponse::new(Api::OpenAiInputTokens, JSON);
    let count = br#"{"object":"response.input_tokens","input_tokens":18}"#;
    assert!(counted.read(count).is_empty());
}

#[test]
fn bounds_known_texts() {
    let delta = |index: usize| {
        format!(r#"{{"type":"response.output_text.delta","output_index":{index},"delta":"a"}}"#)
    };
    let done = r#"{"type":"response.output_text.done","output_index":5000,"text":"b"}"#;
    let messages: Vec<String> = (0..3_000).map(delta).chain([done.to_owned()]).collect();
    let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
    let said = TestResponse::new(API, STREAM).cut(&[events(&messages).as_bytes()]);
    assert_eq!(said, [format!("0 Text {:?}", "a".repeat(3_000))]);
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120), which in 0..6_usize) {
        let kind = ["response.output_text.delta", "response.output_item.done", "response.completed", "response.created", "error", "x"][which];
        let framed = [b"event: ", kind.as_bytes(), b"\ndata: {\"response\":{\"output\":[{\"content\":[", &bytes, b"]}]}}\n\n"].concat();
        for api in [API, Api::OpenAiStoredResponse] {
            let answer = TestResponse::new(api, STREAM);
            let pieces: Vec<&[u8]> = framed.chunks(7).collect();
            proptest::prop_assert_eq!(answer.cut(&pieces), answer.cut(&[&framed]));
        }
    }
}
