//! Tests watsonx.ai's responses: complete, byte by byte, and cut in two at every position.

use crate::dialect::testing::{JSON, STREAM, TestResponse, asked, failed, started, stopped, usage};
use crate::dialect::*;
use tokengauge_types::label::Name;

/// Returns a stream of server-sent events. Each event has a number, a name, and one of these messages.
fn stream(api: Api, messages: &[&str]) -> Vec<String> {
    let events = (1..).zip(messages);
    let body: String = events
        .map(|(number, message)| format!("id: {number}\nevent: message\ndata: {message}\n\n"))
        .collect();
    TestResponse::new(api, STREAM).read(body.as_bytes())
}

fn body(api: Api, body: &str) -> Vec<String> {
    TestResponse::new(api, JSON).read(body.as_bytes())
}

#[test]
fn reads_generation_streams() {
    let message = |text: &str, output: u32, input: u32, reason: &str| {
        format!(
            r#"{{"model_id":"ibm/granite-3-8b","created_at":"2025-05-01T10:00:00.000Z","results":[{{"generated_text":"{text}","generated_token_count":{output},"input_token_count":{input},"stop_reason":"{reason}"}}]}}"#
        )
    };
    let messages = [
        "{}".to_owned(),
        message("", 0, 8, "not_finished"),
        message("The", 1, 0, "not_finished"),
        message(" tide", 2, 0, "NOT_FINISHED"),
        message("", 3, 0, "eos_token"),
    ];
    let counts = |input, output| usage([input, Some(output), None, None, None]);
    assert_eq!(
        stream(Api::WatsonxGeneration, &messages.each_ref().map(String::as_str)),
        [
            started(None, Some("ibm/granite-3-8b")),
            counts(Some(8), 0),
            r#"0 Text "The""#.to_owned(),
            counts(None, 1),
            r#"0 Text " tide""#.to_owned(),
            counts(None, 2),
            stopped(0, "eos_token"),
            counts(None, 3),
        ]
    );
    let closed = TestResponse::new(Api::WatsonxGeneration, STREAM)
        .read(b"id: 9\nevent: close\ndata: {}\n\n");
    assert_eq!(closed, ["Done"]);
}

#[test]
fn reads_a_generation_body() {
    let answer = r#"{"model_id":"m","created_at":"x","results":[{"generated_text":"Br\u00east","generated_token_count":2,"input_token_count":7,"stop_reason":"max_tokens"}],"system":{"warnings":[{"message":"!","id":"w"}]}}"#;
    assert_eq!(
        body(Api::WatsonxGeneration, answer),
        [
            started(None, Some("m")),
            r#"0 Text "Brêst""#.to_owned(),
            stopped(0, "max_tokens"),
            usage([Some(7), Some(2), None, None, None]),
        ]
    );
}

#[test]
fn chat_is_openais_but_for_the_model() {
    let messages = [
        r#"{"id":"chat-1","model_id":"ibm/granite-3-8b","created":1,"choices":[{"index":0,"finish_reason":null,"delta":{"role":"assistant","content":""}}]}"#,
        r#"{"id":"chat-1","model_id":"ibm/granite-3-8b","created":1,"choices":[{"index":0,"finish_reason":null,"delta":{"content":"High"}}]}"#,
        r#"{"id":"chat-1","model_id":"ibm/granite-3-8b","created":1,"choices":[{"index":0,"finish_reason":"stop","delta":{"content":""}}]}"#,
        r#"{"id":"chat-1","model_id":"ibm/granite-3-8b","created":1,"choices":[],"usage":{"completion_tokens":2,"prompt_tokens":9,"total_tokens":11}}"#,
    ];
    let first = [started(Some("chat-1"), Some("ibm/granite-3-8b"))];
    let end = [
        r#"0 Text "High""#.to_owned(),
        stopped(0, "stop"),
        usage([Some(9), Some(2), None, None, None]),
    ];
    assert_eq!(stream(Api::WatsonxChat, &messages), [&first[..], &end].concat());
    let whole = r#"{"id":"chat-1","choices":[{"index":0,"message":{"role":"assistant","content":"High"},"finish_reason":"stop"}],"usage":{"completion_tokens":2,"prompt_tokens":9},"model_id":"m"}"#;
    let (id, model) = (started(Some("chat-1"), None), started(None, Some("m")));
    assert_eq!(body(Api::WatsonxChat, whole), [&[id][..], &end, &[model]].concat());
    assert_eq!(stream(Api::WatsonxChat, &["{\"a\" 1}"]), ["ParseError(BadJson)"]);
}

#[test]
fn reads_errors_of_bodies_and_streams() {
    let error = r#"{"errors":[{"code":"model_not_supported","message":"No."}],"trace":"t","status_code":404}"#;
    for api in [Api::WatsonxGeneration, Api::WatsonxChat] {
        let kind = [failed(Some("model_not_supported"))];
        let refused = TestResponse::new(api, JSON).status(404);
        assert_eq!(refused.read(error.as_bytes()), kind);
        let named = format!("id: 1\nevent: error\ndata: {error}\n\n");
        assert_eq!(TestResponse::new(api, STREAM).read(named.as_bytes()), kind);
        assert_eq!(body(api, error), kind);
        assert_eq!(TestResponse::new(api, None).status(502).read(b"<html></html>"), [failed(None)]);
    }
    let within = stream(Api::WatsonxGeneration, &[error]);
    assert_eq!(within, [failed(Some("model_not_supported"))]);
    let ended = r#"{"results":[{"generated_text":"","stop_reason":"error"}]}"#;
    let expected = [stopped(0, "error"), failed(None)];
    assert_eq!(stream(Api::WatsonxGeneration, &[ended]), expected);
    assert_eq!(body(Api::WatsonxGeneration, ended), expected);
}

#[test]
fn reads_all_facts_of_a_request() {
    let generation = asked(
        Api::WatsonxGeneration,
        r#"{"model_id":"m","input":"b\u00e9","parameters":{"decoding_method":"sample","max_new_tokens":20,"min_new_tokens":1,"temperature":0.5,
          "top_p":0.9,"top_k":40,"random_seed":7,"stop_sequences":["a","b"],"time_limit":1000},"project_id":"p"}"#,
    );
    let common = RequestFacts {
        model: Name::new("m"),
        max_tokens: Some(20),
        temperature: Some(0.5),
        top_p: Some(0.9),
        seed: Some(7),
        stop_sequences: Some(2),
        ..RequestFacts::default()
    };
    let expected = RequestFacts { top_k: Some(40), prompt_bytes: 3, ..common.clone() };
    assert_eq!(generation, expected);
    let chat = asked(
        Api::WatsonxChat,
        r#"{"model_id":"m","messages":[{"role":"user","content":[{"type":"text","text":"four"}]}],"max_tokens":20,"temperature":0.5,
          "top_p":0.9,"seed":7,"stop":["a","b"],"tools":[{"type":"function"}],"response_format":{"type":"json_object"},"project_id":"p"}"#,
    );
    let expected =
        RequestFacts { prompt_bytes: 4, tools: true, output_type: Some("json"), ..common };
    assert_eq!(chat, expected);
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120), status in 200..600_u16) {
        let framed = [b"event: message\ndata: {\"model_id\":\"m\",\"results\":[{\"generated_text\":\"", bytes.as_slice(), b"\"}]}\n\n"].concat();
        for body in [&framed, &bytes] {
            for api in [Api::WatsonxGeneration, Api::WatsonxChat] {
                let answer = TestResponse::new(api, None).status(status);
                let pieces: Vec<&[u8]> = body.chunks(3).collect();
                proptest::prop_assert_eq!(answer.cut(&pieces), answer.cut(&[body]));
            }
        }
    }
}
