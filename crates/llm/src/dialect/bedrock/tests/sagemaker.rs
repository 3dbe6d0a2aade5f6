//! Tests responses of SageMaker containers, complete and cut into parts.

use super::*;
use crate::dialect::testing::{events, failed, started, stopped, usage};

const API: Api = Api::SageMakerInvocations;

/// Returns the response cut into parts of `length` bytes.
fn parts(body: &str, length: usize) -> Vec<String> {
    let headers = [
        (":message-type", "event"),
        (":event-type", "PayloadPart"),
        (":content-type", "application/octet-stream"),
    ];
    let framed: Vec<u8> =
        body.as_bytes().chunks(length).flat_map(|part| encode::message(&headers, part)).collect();
    TestResponse::new(API, AWS).cut(&[&framed])
}

fn cut(body: &str) -> Vec<String> {
    let whole = parts(body, body.len());
    for length in 1..40 {
        assert_eq!(parts(body, length), whole, "in parts of {length}");
    }
    whole
}

const TGI: [&str; 3] = [
    r#"{"index":1,"token":{"id":1,"text":" Hi","logprob":-0.5,"special":false},"generated_text":null,"details":null}"#,
    r#"{"index":2,"token":{"id":2,"text":" é","logprob":-0.5,"special":false},"generated_text":null,"details":null}"#,
    r#"{"index":3,"token":{"id":3,"text":"</s>","logprob":-0.5,"special":true},"generated_text":" Hi é","details":{"finish_reason":"eos_token","generated_tokens":3,"seed":null}}"#,
];

fn of_tgi() -> [String; 3] {
    [
        r#"0 Text " Hi é""#.to_owned(),
        stopped(0, "eos_token"),
        usage([None, Some(3), None, None, None]),
    ]
}

#[test]
fn reads_tgi_events_and_lines_cut_anywhere() {
    assert_eq!(cut(&events(&TGI)), of_tgi());
    assert_eq!(cut(&(TGI.join("\n") + "\n")), of_tgi());
}

#[test]
fn a_container_may_speak_openais_format() {
    let messages = [
        r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"Hi"}}]}"#,
        r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#,
        "[DONE]",
    ];
    let expected = [
        started(Some("c1"), Some("m")),
        r#"0 Text "Hi""#.to_owned(),
        stopped(0, "stop"),
        usage([Some(3), Some(1), None, None, None]),
    ];
    let mut lines = cut(&events(&messages));
    assert_eq!(lines.pop().unwrap(), "Done");
    assert_eq!(lines, expected);
    assert_eq!(cut(&messages[..2].concat()), expected);
    // Without SageMaker, the container sends the same messages without the AWS framing.
    let alone = TestResponse::new(API, Some("text/event-stream"));
    assert_eq!(alone.read(events(&messages).as_bytes())[..4], expected);
}

#[test]
fn an_error_may_come_in_the_stream() {
    let cut_off = [TGI[0], r#"{"error":"Out of memory.","error_type":"generation"}"#];
    assert_eq!(cut(&events(&cut_off)), [r#"0 Text " Hi""#.to_owned(), failed(Some("generation"))]);
    let thrown = encode::exception("ModelStreamError", r#"{"Message":"No."}"#);
    let lines = TestResponse::new(API, AWS).read(&thrown);
    assert_eq!(lines, [failed(Some("ModelStreamError"))]);
}

#[test]
fn reads_json_bodies() {
    for (answer, expected) in [
        (
            r#"[{"generated_text":"Hi","details":{"finish_reason":"length","generated_tokens":4,"tokens":[{"text":"no"}]}}]"#,
            vec![
                r#"0 Text "Hi""#.to_owned(),
                stopped(0, "length"),
                usage([None, Some(4), None, None, None]),
            ],
        ),
        (r#"{"generated_text":"Hi"}"#, vec![r#"0 Text "Hi""#.to_owned()]),
        (
            r#"{"generated_texts":["Hi","Ho"]}"#,
            vec![r#"0 Text "Hi""#.to_owned(), r#"1 Text "Ho""#.to_owned()],
        ),
        (
            r#"[{"generation":{"role":"assistant","content":" Hi"}}]"#,
            vec![r#"0 Text " Hi""#.to_owned()],
        ),
        (
            r#"{"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop","stop_reason":"</s>"}]}"#,
            vec![r#"0 Text "Hi""#.to_owned(), stopped(0, "stop")],
        ),
        ("[[0.25,1]]", vec![]),
        ("[0.25,1]", vec![]),
    ] {
        assert_eq!(body(API, answer), expected, "{answer}");
    }
    let failure = r#"{"ErrorCode":"CLIENT_ERROR_FROM_MODEL","LogStreamArn":"arn","Message":"No.","OriginalMessage":"{\"error\":\"no\"}","OriginalStatusCode":422}"#;
    let answer = TestResponse::new(API, JSON).status(424);
    assert_eq!(answer.read(failure.as_bytes()), [failed(Some("CLIENT_ERROR_FROM_MODEL"))]);
}
