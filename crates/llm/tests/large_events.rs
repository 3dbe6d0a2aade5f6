//! Tests events above 1 MiB in every API format that can carry an image, audio or a file: they lose their content, and
//! not their type, token counts, finish reason or end.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokengauge_llm::dialect::Api;
use tokengauge_llm::frame::ParseError;
use tokengauge_llm::{ResponseParser, ResponseSummary};

/// A response whose messages contain `@` in place of a large string.
struct Case {
    path: &'static str,
    api: Option<Api>,
    /// Name of each server-sent event or AWS message, and its JSON.
    messages: &'static [(&'static str, &'static str)],
    /// Input tokens, output tokens and finish reason.
    expected: (Option<u64>, Option<u64>, Option<&'static str>),
}

const fn case(
    path: &'static str,
    messages: &'static [(&'static str, &'static str)],
    expected: (Option<u64>, Option<u64>, Option<&'static str>),
) -> Case {
    Case { path, api: None, messages, expected }
}

const RESPONSES: &[(&str, &str)] = &[
    (
        "response.created",
        r#"{"type":"response.created","response":{"id":"r","model":"gpt-5","status":"in_progress"}}"#,
    ),
    (
        "response.image_generation_call.partial_image",
        r#"{"type":"response.image_generation_call.partial_image","partial_image_b64":"@"}"#,
    ),
    (
        "response.output_item.done",
        r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"image_generation_call","result":"@"}}"#,
    ),
    (
        "response.output_text.delta",
        r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"Hello"}"#,
    ),
    (
        "response.completed",
        r#"{"type":"response.completed","response":{"id":"r","model":"gpt-5","status":"completed","output":[{"type":"image_generation_call","result":"@"},{"type":"message","content":[{"type":"output_text","text":"Hello"}]}],"usage":{"input_tokens":12,"output_tokens":34}}}"#,
    ),
];

const SSE: &[Case] = &[
    case("/v1/responses", RESPONSES, (Some(12), Some(34), Some("completed"))),
    case(
        "/v1/responses",
        &[(
            "",
            r#"{"response":{"usage":{"input_tokens":12,"output_tokens":34},"status":"incomplete","output":[{"result":"@"}]},"type":"response.incomplete"}"#,
        )],
        (Some(12), Some(34), Some("incomplete")),
    ),
    case(
        "/v1/chat/completions",
        &[
            ("", r#"{"choices":[{"index":0,"delta":{"content":"Hello"}}]}"#),
            (
                "",
                r#"{"choices":[{"index":0,"delta":{"audio":{"id":"a","data":"@","transcript":""},"images":[{"image_url":{"url":"@"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":34}}"#,
            ),
            ("", "[DONE]"),
        ],
        (Some(12), Some(34), Some("stop")),
    ),
    case(
        "/v1/messages",
        &[
            (
                "message_start",
                r#"{"type":"message_start","message":{"id":"m","model":"claude","usage":{"input_tokens":12,"output_tokens":1}}}"#,
            ),
            (
                "content_block_start",
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"web_fetch_tool_result","content":{"source":{"type":"base64","data":"@"}}}}"#,
            ),
            (
                "content_block_delta",
                r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello"}}"#,
            ),
            (
                "message_delta",
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"context":"@","usage":{"output_tokens":34}}"#,
            ),
            ("message_stop", r#"{"type":"message_stop"}"#),
        ],
        (Some(12), Some(34), Some("end_turn")),
    ),
    case(
        "/v1beta/models/gemini-2.5-flash-image:streamGenerateContent",
        GEMINI,
        (Some(12), Some(34), Some("STOP")),
    ),
    case(
        "/v1/images/generations",
        &[
            (
                "image_generation.partial_image",
                r#"{"type":"image_generation.partial_image","b64_json":"@"}"#,
            ),
            (
                "image_generation.completed",
                r#"{"type":"image_generation.completed","b64_json":"@","usage":{"input_tokens":12,"output_tokens":34,"total_tokens":46}}"#,
            ),
        ],
        (Some(12), Some(34), None),
    ),
    case(
        "/v1/audio/speech",
        &[
            ("", r#"{"type":"speech.audio.delta","audio":"@"}"#),
            (
                "",
                r#"{"type":"speech.audio.done","usage":{"input_tokens":12,"output_tokens":34},"audio":"@"}"#,
            ),
        ],
        (Some(12), Some(34), None),
    ),
    Case {
        path: "/v1beta/interactions",
        api: Some(Api::GeminiInteractions),
        messages: &[
            (
                "content.delta",
                r#"{"event_type":"content.delta","index":0,"delta":{"type":"image","data":"@"}}"#,
            ),
            (
                "interaction.complete",
                r#"{"event_type":"interaction.complete","interaction":{"id":"i","status":"completed","outputs":[{"type":"image","data":"@"}],"usage":{"total_input_tokens":12,"total_output_tokens":34}}}"#,
            ),
        ],
        expected: (Some(12), Some(34), Some("completed")),
    },
    case(
        "/v2/chat",
        &[
            (
                "content-delta",
                r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"Hello"}}}}"#,
            ),
            (
                "message-end",
                r#"{"type":"message-end","documents":["@"],"delta":{"finish_reason":"COMPLETE","usage":{"tokens":{"input_tokens":12,"output_tokens":34}}}}"#,
            ),
        ],
        (Some(12), Some(34), Some("COMPLETE")),
    ),
];

const GEMINI: &[(&str, &str)] = &[
    (
        "",
        r#"{"candidates":[{"content":{"parts":[{"text":"Hello"}],"role":"model"},"index":0}],"modelVersion":"gemini"}"#,
    ),
    (
        "",
        r#"{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"@"}}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":34},"thoughtSignature":"@"}"#,
    ),
];

const LINES: &[Case] = &[
    case(
        "/api/chat",
        &[
            ("", r#"{"message":{"role":"assistant","content":"Hello"},"done":false}"#),
            (
                "",
                r#"{"message":{"role":"assistant","content":"","images":["@"]},"done":true,"done_reason":"stop","prompt_eval_count":12,"eval_count":34}"#,
            ),
        ],
        (Some(12), Some(34), Some("stop")),
    ),
    case(
        "/api/generate",
        &[(
            "",
            r#"{"image":"@","response":"Hello","done":true,"done_reason":"stop","prompt_eval_count":12,"eval_count":34}"#,
        )],
        (Some(12), Some(34), Some("stop")),
    ),
];

const AWS: &[Case] = &[case(
    "/model/m/converse-stream",
    &[
        ("messageStart", r#"{"role":"assistant"}"#),
        ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"Hello"},"p":"ab"}"#),
        (
            "contentBlockDelta",
            r#"{"contentBlockIndex":1,"delta":{"image":{"format":"png","source":{"bytes":"@"}}},"p":"ab"}"#,
        ),
        ("messageStop", r#"{"p":"@","stopReason":"end_turn"}"#),
        (
            "metadata",
            r#"{"trace":{"document":"@"},"usage":{"inputTokens":12,"outputTokens":34},"metrics":{"latencyMs":5}}"#,
        ),
    ],
    (Some(12), Some(34), Some("end_turn")),
)];

/// A Bedrock stream, whose messages are wrapped in base64.
const INVOKE: Case = case(
    "/model/anthropic.claude/invoke-with-response-stream",
    &[
        (
            "",
            r#"{"type":"message_start","message":{"id":"m","model":"claude","usage":{"input_tokens":12,"output_tokens":1}}}"#,
        ),
        (
            "",
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_result","content":[{"source":{"data":"@"}}]}}"#,
        ),
        (
            "",
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello"}}"#,
        ),
        (
            "",
            r#"{"file":"@","type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":34},"last":"@"}"#,
        ),
        ("", r#"{"type":"message_stop"}"#),
    ],
    (Some(12), Some(34), Some("end_turn")),
);

const BODIES: &[Case] = &[
    case(
        "/v1/responses",
        &[(
            "",
            r#"{"id":"r","status":"completed","usage":{"input_tokens":12,"output_tokens":34},"output":[{"type":"image_generation_call","result":"@"}]}"#,
        )],
        (Some(12), Some(34), Some("completed")),
    ),
    case(
        "/v1/chat/completions",
        &[(
            "",
            r#"{"choices":[{"message":{"audio":{"data":"@","transcript":"Hello"},"images":[{"image_url":{"url":"@"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":34}}"#,
        )],
        (Some(12), Some(34), Some("stop")),
    ),
    case(
        "/v1/images/generations",
        &[(
            "",
            r#"{"data":[{"b64_json":"@"},{"b64_json":"@"}],"usage":{"input_tokens":12,"output_tokens":34}}"#,
        )],
        (Some(12), Some(34), None),
    ),
    case(
        "/v1beta/models/gemini-2.5-flash-image:generateContent",
        &[(
            "",
            r#"{"candidates":[{"content":{"parts":[{"inlineData":{"data":"@"}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":34}}"#,
        )],
        (Some(12), Some(34), Some("STOP")),
    ),
    case(
        "/model/m/converse",
        &[(
            "",
            r#"{"output":{"message":{"content":[{"image":{"source":{"bytes":"@"}}}]}},"stopReason":"end_turn","usage":{"inputTokens":12,"outputTokens":34}}"#,
        )],
        (Some(12), Some(34), Some("end_turn")),
    ),
    case(
        "/v1/messages",
        &[(
            "",
            r#"{"content":[{"type":"document","source":{"data":"@"}}],"stop_reason":"end_turn","usage":{"input_tokens":12,"output_tokens":34}}"#,
        )],
        (Some(12), Some(34), Some("end_turn")),
    ),
    case(
        "/v1/embeddings",
        &[("", r#"{"data":[{"embedding":"@"}],"usage":{"prompt_tokens":12,"total_tokens":12}}"#)],
        (Some(12), None, None),
    ),
];

/// A string of 1.6 MB with all characters of base64, and a string with escapes.
fn large_strings() -> [String; 2] {
    ["iVBOR0+A/zQ=".repeat(135_000), "\\u00e9\\\"}]\\\\\\/x".repeat(100_000)]
}

fn parse(case: &Case, content_type: &str, body: &[u8], size: usize) -> ResponseSummary {
    let request = br#"{"model": "m", "stream": true, "messages": [], "max_tokens": 5}"#;
    let builder = ResponseParser::builder(case.path).content_type(content_type);
    let builder = match case.api {
        Some(api) => builder.api(api),
        None => builder.request_body(request),
    };
    let mut parser = builder.build().unwrap();
    body.chunks(size).for_each(|piece| parser.push(piece, |_, _| {}));
    parser.finish(|_, _| {})
}

/// Checks a response. `large` is the number of messages above the limit.
fn check(case: &Case, content_type: &str, body: &[u8], large: u32) {
    for size in [1_400, 16_384, body.len()] {
        let summary = parse(case, content_type, body, size);
        let at = format!("{} {content_type} in pieces of {size}", case.path);
        let usage = summary.usage.unwrap_or_default();
        let reason = summary.finish_reasons.first().map(|(_, reason)| reason.as_str().to_owned());
        let expected = (case.expected.0, case.expected.1, case.expected.2.map(str::to_owned));
        assert_eq!((usage.input, usage.output, reason), expected, "{at}");
        assert!(summary.is_complete && !summary.failed, "{at}");
        let errors: Vec<_> =
            (large > 0).then_some((ParseError::Oversize, large)).into_iter().collect();
        assert_eq!(summary.parse_errors, errors, "{at}");
    }
}

fn filled(case: &Case, large: &str) -> (Vec<(&'static str, String)>, u32) {
    let count = case.messages.iter().filter(|(_, json)| json.contains('@')).count();
    let fill = |(name, json): &(&'static str, &str)| (*name, json.replace('@', large));
    (case.messages.iter().map(fill).collect(), u32::try_from(count).unwrap())
}

fn sse(messages: &[(&str, String)]) -> String {
    let event = |(name, json): &(&str, String)| match *name {
        "" => format!("data: {json}\n\n"),
        name => format!("event: {name}\ndata: {json}\n\n"),
    };
    messages.iter().map(event).collect()
}

fn aws_message(event_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut headers = Vec::new();
    for (name, value) in [(":event-type", event_type), (":message-type", "event")] {
        headers.push(u8::try_from(name.len()).unwrap());
        headers.extend_from_slice(name.as_bytes());
        headers.push(7);
        headers.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let total = u32::try_from(headers.len() + payload.len() + 16).unwrap();
    let mut message = total.to_be_bytes().to_vec();
    message.extend_from_slice(&u32::try_from(headers.len()).unwrap().to_be_bytes());
    message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    message.extend_from_slice(&headers);
    message.extend_from_slice(payload);
    message.extend_from_slice(&crc32fast::hash(&message).to_be_bytes());
    message
}

#[test]
fn server_sent_events() {
    for case in SSE {
        for large in large_strings() {
            let (messages, count) = filled(case, &large);
            check(case, "text/event-stream", sse(&messages).as_bytes(), count);
            // Without blank lines.
            let body = sse(&messages).replace("\n\n", "\n");
            check(case, "text/event-stream", body.as_bytes(), count);
        }
    }
}

#[test]
fn json_lines() {
    for case in LINES {
        for large in large_strings() {
            let (messages, count) = filled(case, &large);
            let body: String = messages.iter().map(|(_, json)| format!("{json}\n")).collect();
            check(case, "application/x-ndjson", body.as_bytes(), count);
        }
    }
}

#[test]
fn elements_of_an_array() {
    let case = case(
        "/v1beta/models/gemini-2.5-flash-image:streamGenerateContent",
        GEMINI,
        (Some(12), Some(34), Some("STOP")),
    );
    for large in large_strings() {
        let (messages, count) = filled(&case, &large);
        let elements: Vec<&str> = messages.iter().map(|(_, json)| json.as_str()).collect();
        let body = format!("[{}]", elements.join(",\r\n"));
        check(&case, "application/json", body.as_bytes(), count);
    }
}

#[test]
fn aws_event_streams() {
    const TYPE: &str = "application/vnd.amazon.eventstream";
    for large in large_strings() {
        for case in AWS {
            let (messages, count) = filled(case, &large);
            let body: Vec<u8> = messages
                .iter()
                .flat_map(|(name, json)| aws_message(name, json.as_bytes()))
                .collect();
            check(case, TYPE, &body, count);
        }
        let (messages, count) = filled(&INVOKE, &large);
        let body: Vec<u8> = messages
            .iter()
            .flat_map(|(_, json)| {
                let wrapped = format!(r#"{{"bytes":"{}","p":"abcdef"}}"#, STANDARD.encode(json));
                aws_message("chunk", wrapped.as_bytes())
            })
            .collect();
        check(&INVOKE, TYPE, &body, count);
    }
}

#[test]
fn parts_of_a_sagemaker_stream() {
    let case = Case {
        path: "/endpoints/e/invocations-response-stream",
        api: None,
        messages: SSE[2].messages,
        expected: SSE[2].expected,
    };
    for large in large_strings() {
        let (messages, count) = filled(&case, &large);
        let body = aws_message("PayloadPart", sse(&messages).as_bytes());
        // The part is above the limit, too, but loses nothing.
        check(&case, "application/vnd.amazon.eventstream", &body, count);
    }
}

#[test]
fn whole_bodies() {
    for case in BODIES {
        for large in large_strings() {
            let (messages, _) = filled(case, &large);
            let [(_, body)] = messages.as_slice() else { unreachable!("one body") };
            check(case, "application/json", body.as_bytes(), 0);
        }
    }
}
