//! Tests DashScope's responses: complete, byte by byte, and cut in two at every position.

use crate::dialect::testing::{JSON, STREAM, TestResponse, asked, failed, started, stopped, usage};
use crate::dialect::*;
use tokengauge_types::label::Name;

const API: Api = Api::DashScopeGeneration;

/// Returns a stream of server-sent events. Each event has a number, a name, the status, and one of these messages.
fn stream(messages: &[&str]) -> Vec<String> {
    let events = (1..).zip(messages);
    let body: String = events
        .map(|(number, message)| {
            format!("id:{number}\nevent:result\n:HTTP_STATUS/200\ndata:{message}\n\n")
        })
        .collect();
    TestResponse::new(API, STREAM).read(body.as_bytes())
}

fn message(message: &str, reason: &str, output: u32) -> String {
    format!(
        r#"{{"output":{{"choices":[{{"message":{{"role":"assistant",{message}}},"finish_reason":"{reason}"}}]}},"usage":{{"total_tokens":{},"output_tokens":{output},"input_tokens":9}},"request_id":"r-1"}}"#,
        9 + output
    )
}

#[test]
fn a_stream_that_repeats_itself_and_one_that_does_not() {
    let counts = |output| usage([Some(9), Some(output), None, None, None]);
    let expected = [
        started(Some("r-1"), None),
        r#"0 Reasoning "A tide""#.to_owned(),
        counts(2),
        r#"0 Reasoning " table.""#.to_owned(),
        counts(4),
        r#"0 Text "High""#.to_owned(),
        counts(5),
        r#"0 Text " at noon""#.to_owned(),
        stopped(0, "stop"),
        counts(7),
    ];
    let of = |pieces: [[&str; 2]; 4]| {
        let mut output = [2, 4, 5, 7].into_iter();
        let messages = pieces.map(|[reasoning, text]| {
            let output = output.next().unwrap();
            let reason = if output == 7 { "stop" } else { "null" };
            let parts = format!(r#""content":"{text}","reasoning_content":"{reasoning}""#);
            message(&parts, reason, output)
        });
        stream(&messages.each_ref().map(String::as_str))
    };
    let whole = "A tide table.";
    let repeated = [["A tide", ""], [whole, ""], [whole, "High"], [whole, "High at noon"]];
    assert_eq!(of(repeated), expected);
    let new = [["A tide", ""], [" table.", ""], ["", "High"], ["", " at noon"]];
    assert_eq!(of(new), expected);
}

#[test]
fn reads_tool_calls_and_parts() {
    let call = |index: u32, arguments: &str| {
        format!(
            r#"{{"index":{index},"id":"c","type":"function","function":{{"name":"f","arguments":"{arguments}"}}}}"#
        )
    };
    let calls =
        |calls: &str| message(&format!(r#""content":"","tool_calls":[{calls}]"#), "null", 1);
    let fragments = [calls(&call(0, r#"{\"a\""#)), calls(&call(0, ":1}")), calls(&call(1, "{}"))];
    let texts: Vec<String> = stream(&fragments.each_ref().map(String::as_str))
        .into_iter()
        .filter(|line| line.starts_with("0 "))
        .collect();
    let expected = [r#"0 Tool(0) "{\"a\"""#, r#"0 Tool(0) ":1}""#, r#"0 Tool(1) "{}""#];
    assert_eq!(texts, expected);
    let parts = message(r#""content":[{"text":"a"},{"image":"http://x"},{"text":"b"}]"#, "stop", 2);
    assert_eq!(stream(&[&parts])[1], r#"0 Text "ab""#);
    let older = r#"{"output":{"text":"a","finish_reason":"stop"},"usage":{"output_tokens":1,"input_tokens":2}}"#;
    assert_eq!(stream(&[older])[..2], [r#"0 Text "a""#.to_owned(), stopped(0, "stop")]);
}

#[test]
fn reads_json_bodies() {
    let answer = r#"{"status_code":200,"request_id":"r-1","code":"","message":"","output":{"text":null,"finish_reason":null,"choices":[{"finish_reason":"tool_calls",
      "message":{"role":"assistant","content":"Yes","reasoning_content":"hm","tool_calls":[{"function":{"name":"f","arguments":"{}"},"id":"c","index":0}]}}]},
      "usage":{"input_tokens":22,"output_tokens":17,"total_tokens":39,"prompt_tokens_details":{"cached_tokens":20},"output_tokens_details":{"reasoning_tokens":3}}}"#;
    assert_eq!(
        TestResponse::new(API, JSON).read(answer.as_bytes()),
        [
            started(Some("r-1"), None),
            stopped(0, "tool_calls"),
            r#"0 Text "Yes""#.to_owned(),
            r#"0 Reasoning "hm""#.to_owned(),
            r#"0 Tool(0) "{}""#.to_owned(),
            usage([Some(22), Some(17), Some(20), None, Some(3)]),
        ]
    );
    let parts = r#"{"output":{"choices":[{"message":{"content":[{"text":"a"},{"text":"b"}]}}]}}"#;
    assert_eq!(TestResponse::new(API, JSON).read(parts.as_bytes()), [r#"0 Text "ab""#]);
    let older = r#"{"output":{"text":"a","finish_reason":"stop"}}"#;
    let expected = [r#"0 Text "a""#.to_owned(), stopped(0, "stop")];
    assert_eq!(TestResponse::new(API, JSON).read(older.as_bytes()), expected);
    let embeddings = r#"{"output":{"embeddings":[{"embedding":[0.5],"text_index":0}]},"usage":{"total_tokens":6},"request_id":"r"}"#;
    let read = TestResponse::new(Api::DashScopeEmbeddings, JSON).read(embeddings.as_bytes());
    let counts = usage([Some(6), None, None, None, None]);
    assert_eq!(read, [counts, started(Some("r"), None)]);
}

#[test]
fn reads_errors_of_bodies_and_streams() {
    let error = r#"{"code":"DataInspectionFailed","message":"No.","request_id":"r"}"#;
    let kind = [failed(Some("DataInspectionFailed"))];
    assert_eq!(TestResponse::new(API, JSON).status(400).read(error.as_bytes()), kind);
    let named = format!("id:1\nevent:error\n:HTTP_STATUS/400\ndata:{error}\n\n");
    assert_eq!(TestResponse::new(API, STREAM).read(named.as_bytes()), kind);
    assert_eq!(stream(&[error])[1..], kind);
    assert_eq!(stream(&["{\"a\" 1}"]), ["ParseError(BadJson)"]);
}

#[test]
fn reads_all_facts_of_a_request() {
    let facts = asked(
        API,
        r#"{"model":"qwen-plus","input":{"messages":[{"role":"system","content":"b\u00e9"},{"role":"user","content":[{"text":"four"},{"image":"http://x"}]}]},
          "parameters":{"result_format":"message","incremental_output":true,"max_tokens":20,"temperature":0.5,"top_p":0.9,"top_k":40,"seed":7,"n":2,
          "stop":["a","b"],"presence_penalty":1,"response_format":{"type":"json_object"},"tools":[{"type":"function"}]}}"#,
    );
    let expected = RequestFacts {
        model: Name::new("qwen-plus"),
        stream: Some(true),
        max_tokens: Some(20),
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(40),
        presence_penalty: Some(1.0),
        seed: Some(7),
        choices: Some(2),
        stop_sequences: Some(2),
        output_type: Some("json"),
        prompt_bytes: 7,
        tools: true,
        ..RequestFacts::default()
    };
    assert_eq!(facts, expected);
    let embeddings = r#"{"model":"e","input":{"texts":["ab","c"]},"parameters":{"dimension":64,"incremental_output":false}}"#;
    let facts = asked(Api::DashScopeEmbeddings, embeddings);
    assert_eq!((facts.prompt_bytes, facts.dimensions, facts.stream), (3, Some(64), None));
    assert_eq!(asked(API, r#"{"input":{"prompt":"abc"}}"#).prompt_bytes, 3);
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120), status in 200..600_u16) {
        let framed = [b"data:{\"output\":{\"choices\":[{\"message\":{\"content\":\"", bytes.as_slice(), b"\"}}]}}\n\n"].concat();
        for body in [&framed, &bytes] {
            let answer = TestResponse::new(API, None).status(status);
            let pieces: Vec<&[u8]> = body.chunks(3).collect();
            proptest::prop_assert_eq!(answer.cut(&pieces), answer.cut(&[body]));
        }
    }
}
