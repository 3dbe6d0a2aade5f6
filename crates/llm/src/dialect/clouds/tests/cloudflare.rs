//! Tests Workers AI's responses: complete, byte by byte, and cut in two at every position.

use crate::dialect::testing::{JSON, STREAM, TestResponse, asked, events, failed, usage};
use crate::dialect::*;

const API: Api = Api::CloudflareRun;

fn stream(messages: &[&str]) -> Vec<String> {
    TestResponse::new(API, STREAM).read(events(messages).as_bytes())
}

fn body(body: &str) -> Vec<String> {
    TestResponse::new(API, JSON).read(body.as_bytes())
}

#[test]
fn reads_a_stream() {
    let messages = [
        r#"{"response":"In ","p":"abcdef"}"#,
        r#"{"response":1903,"p":"ab"}"#,
        r#"{"response":".","p":"abc","tool_calls":[]}"#,
        r#"{"response":"","tool_calls":[{"name":"f","arguments":{"a": 1}},{"name":"g","arguments":"{}"}]}"#,
        r#"{"response":"","usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}"#,
        "[DONE]",
    ];
    assert_eq!(
        stream(&messages),
        [
            r#"0 Text "In 1903.""#.to_owned(),
            r#"0 Tool(0) "{\"a\":1}""#.to_owned(),
            r#"0 Tool(1) "{}""#.to_owned(),
            usage([Some(9), Some(4), None, None, None]),
            "Done".to_owned(),
        ]
    );
    assert_eq!(stream(&messages[..1]), [r#"0 Text "In ""#]);
}

#[test]
fn reads_json_bodies() {
    let answer = r#"{"result":{"response":"High","tool_calls":[{"arguments":{"a": "x"},"name":"f"}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}},"success":true,"errors":[],"messages":[]}"#;
    assert_eq!(
        body(answer),
        [
            r#"0 Text "High""#.to_owned(),
            r#"0 Tool(0) "{\"a\":\"x\"}""#.to_owned(),
            usage([Some(9), Some(1), None, None, None]),
        ]
    );
    let by_schema = r#"{"result":{"response":{"tide": [1, 2]}},"success":true}"#;
    assert_eq!(body(by_schema), [r#"0 Text "{\"tide\":[1,2]}""#]);
}

#[test]
fn reads_errors_of_bodies_and_streams() {
    let error = r#"{"result":null,"success":false,"errors":[{"code":7009,"message":"Upstream service unavailable"}],"messages":[]}"#;
    let kind = [failed(Some("7009"))];
    assert_eq!(TestResponse::new(API, JSON).status(500).read(error.as_bytes()), kind);
    assert_eq!(body(error), kind);
    assert_eq!(stream(&[error]), kind);
    assert_eq!(stream(&["{\"a\" 1}"]), ["ParseError(BadJson)"]);
}

#[test]
fn reads_all_facts_of_a_request() {
    let facts = asked(
        API,
        r#"{"messages":[{"role":"user","content":"b\u00e9"}],"stream":true,"max_tokens":20,"temperature":0.5,"top_p":0.9,"top_k":40,"seed":7,
          "frequency_penalty":1,"presence_penalty":-1,"response_format":{"type":"json_schema"},"tools":[{"name":"f"}]}"#,
    );
    let expected = RequestFacts {
        api: Some(API),
        stream: Some(true),
        max_tokens: Some(20),
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(40),
        frequency_penalty: Some(1.0),
        presence_penalty: Some(-1.0),
        seed: Some(7),
        output_type: Some("json"),
        prompt_bytes: 3,
        tools: true,
        ..RequestFacts::default()
    };
    assert_eq!(facts, expected);
}

#[test]
fn ignores_requests_to_other_models() {
    let api = |body| asked(API, body).api;
    assert_eq!(api(r#"{"prompt":"a"}"#), Some(API));
    assert_eq!(api(r#"{"prompt":"a","num_steps":4}"#), None);
    assert_eq!(api(r#"{"width":512,"prompt":"a"}"#), None);
    assert_eq!(api(r#"{"text":["a"]}"#), None);
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120), status in 200..600_u16) {
        let framed = [b"data: {\"response\":\"", bytes.as_slice(), b"\"}\n\n"].concat();
        for body in [&framed, &bytes] {
            let answer = TestResponse::new(API, None).status(status);
            let pieces: Vec<&[u8]> = body.chunks(3).collect();
            proptest::prop_assert_eq!(answer.cut(&pieces), answer.cut(&[body]));
        }
    }
}
