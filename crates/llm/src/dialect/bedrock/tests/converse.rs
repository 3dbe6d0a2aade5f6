//! Converse: streams and JSON bodies.

use super::*;
use crate::dialect::testing::{failed, started, stopped, usage};

const API: Api = Api::BedrockConverse;

/// Name and payload of an event.
type Message<'a> = (&'a str, &'a str);

#[test]
fn reads_a_stream() {
    let messages = [
        ("messageStart", r#"{"p":"abcdef","role":"assistant"}"#),
        ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"Good"},"p":"ab"}"#),
        (
            "contentBlockDelta",
            r#"{"contentBlockIndex":0,"delta":{"text":" \"day\""},"p":"abcdefghijk"}"#,
        ),
        ("contentBlockStop", r#"{"contentBlockIndex":0,"p":"a"}"#),
        ("messageStop", r#"{"stopReason":"end_turn","p":"abc"}"#),
        (
            "metadata",
            r#"{"metrics":{"latencyMs":593},"p":"ab","serviceTier":{"type":"flex"},"trace":{"guardrail":{"usage":{"inputTokens":9}},"promptRouter":{"invokedModelId":"arn:m"}},
              "usage":{"cacheReadInputTokenCount":5,"cacheReadInputTokens":5,"cacheWriteInputTokenCount":2,"cacheWriteInputTokens":2,"inputTokens":10,"outputTokens":4,"totalTokens":21}}"#,
        ),
    ];
    assert_eq!(
        stream(API, &messages),
        [
            r#"0 Text "Good \"day\"""#.to_owned(),
            stopped(0, "end_turn"),
            r#"Tier { service_tier: Some("flex"), system_fingerprint: None }"#.to_owned(),
            started(None, Some("arn:m")),
            took(593),
            usage([Some(17), Some(4), Some(5), Some(2), None]),
        ]
    );
}

#[test]
fn reasoning_tools_and_what_is_neither() {
    let block = |index: u32, delta: &str| {
        let payload = format!(r#"{{"contentBlockIndex":{index},"delta":{{{delta}}}}}"#);
        ("contentBlockDelta", payload)
    };
    let start = |index: u32, kind: &str| {
        let payload = format!(
            r#"{{"contentBlockIndex":{index},"start":{{"{kind}":{{"toolUseId":"t","name":"f"}}}}}}"#
        );
        ("contentBlockStart", payload)
    };
    let messages = [
        block(0, r#""reasoningContent":{"text":"Hm"}"#),
        block(0, r#""reasoningContent":{"signature":"Eq"}"#),
        block(0, r#""reasoningContent":{"redactedContent":"cXE="}"#),
        start(1, "toolUse"),
        block(1, r#""toolUse":{"input":""}"#),
        block(1, r#""toolUse":{"input":"{\"a\""}"#),
        block(1, r#""toolUse":{"input":":1}"}"#),
        start(2, "toolResult"),
        block(2, r#""toolResult":[{"text":"no"}]"#),
        block(3, r#""citation":{"title":"no"}"#),
        start(4, "toolUse"),
        block(4, r#""toolUse":{"input":"{}"}"#),
    ];
    let messages: Vec<Message<'_>> =
        messages.iter().map(|(name, payload)| (*name, payload.as_str())).collect();
    assert_eq!(
        stream(API, &messages),
        [r#"0 Reasoning "Hm""#, r#"0 Tool(0) "{\"a\":1}""#, r#"0 Tool(1) "{}""#]
    );
}

#[test]
fn an_exception_ends_the_stream() {
    let said =
        encode::event("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"a"}}"#);
    let thrown = encode::exception("throttlingException", r#"{"message":"Too many tokens."}"#);
    let lines = TestResponse::new(API, AWS).read(&[said, thrown].concat());
    assert_eq!(lines, [r#"0 Text "a""#.to_owned(), failed(Some("throttlingException"))]);
}

#[test]
fn reads_a_json_body() {
    let answer = r#"{"metrics":{"latencyMs":3514},"output":{"message":{"content":[
        {"reasoningContent":{"reasoningText":{"text":"Hm","signature":"Eq"}}},
        {"toolUse":{"input":{"query": "a b"},"name":"f","toolUseId":"t"}},
        {"toolResult":{"content":[{"text":"no"}],"toolUseId":"t"}},
        {"text":"So"},
        {"citationsContent":{"content":[{"text":" it"}],"citations":[{"title":"no","sourceContent":[{"text":"no"}]}]}},
        {"toolUse":{"input":{},"name":"g","toolUseId":"u"}}],"role":"assistant"}},
        "serviceTier":{"type":"priority"},"stopReason":"tool_use",
        "usage":{"inputTokens":141,"outputTokens":322,"serverToolUsage":{},"totalTokens":463,"cacheReadInputTokens":0},
        "trace":{"promptRouter":{"invokedModelId":"arn:m"}}}"#;
    assert_eq!(
        body(API, answer),
        [
            took(3514),
            r#"0 Reasoning "Hm""#.to_owned(),
            r#"0 Tool(0) "{\"query\":\"a b\"}""#.to_owned(),
            r#"0 Text "So it""#.to_owned(),
            r#"0 Tool(1) "{}""#.to_owned(),
            r#"Tier { service_tier: Some("priority"), system_fingerprint: None }"#.to_owned(),
            stopped(0, "tool_use"),
            usage([Some(141), Some(322), Some(0), None, None]),
            started(None, Some("arn:m")),
        ]
    );
}

#[test]
fn reads_the_kind_of_an_error() {
    let answer = TestResponse::new(API, JSON).status(400);
    for (shape, kind) in [
        (r#"{"message":"Too long."}"#, None),
        (
            r#"{"__type":"com.amazon.coral.validate#ValidationException","message":"No."}"#,
            Some("ValidationException"),
        ),
        (
            r#"{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException"},"Version":"1.0"}"#,
            Some("UnknownOperationException"),
        ),
        (
            r#"{"message":"No.","__type":"ThrottlingException:http://internal/"}"#,
            Some("ThrottlingException"),
        ),
        ("<UnknownOperationException/>", None),
    ] {
        assert_eq!(answer.read(shape.as_bytes()), [failed(kind)], "{shape}");
    }
}

#[test]
fn reads_nothing_from_token_counting() {
    let api = Api::BedrockCountTokens;
    assert!(body(api, r#"{"inputTokens":15}"#).is_empty());
    let answer = TestResponse::new(api, JSON).status(400);
    assert_eq!(answer.read(br#"{"message":"No."}"#), [failed(None)]);
}
