//! Tests responses in the models' own formats: streams that Bedrock wraps, and JSON bodies.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use super::*;
use crate::dialect::testing::{failed, started, stopped, usage};

const API: Api = Api::BedrockInvoke;

/// Returns a Bedrock stream that wraps these messages of a model.
fn wrapped(messages: &[&str]) -> Vec<u8> {
    let messages = messages.iter();
    messages
        .flat_map(|message| {
            let bytes = STANDARD.encode(message);
            encode::event("chunk", &format!(r#"{{"bytes":"{bytes}","p":"abcdefg"}}"#))
        })
        .collect()
}

fn invoked(messages: &[&str]) -> Vec<String> {
    TestResponse::new(API, AWS).read(&wrapped(messages))
}

/// Returns the metrics field that Bedrock adds to the last message.
fn measured(input: u64, output: u64) -> String {
    format!(
        r#""amazon-bedrock-invocationMetrics":{{"inputTokenCount":{input},"outputTokenCount":{output},"invocationLatency":738,"firstByteLatency":378}}"#
    )
}

/// Returns the events that every stream ends with.
fn ended() -> [String; 2] {
    [took(738), "Done".to_owned()]
}

#[test]
fn claude_keeps_its_own_counts() {
    let last = format!(r#"{{"type":"message_stop",{}}}"#, measured(16, 97));
    let messages = [
        r#"{"type":"message_start","message":{"id":"msg_bdrk_1","model":"claude-x","content":[],"usage":{"input_tokens":16,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Why é"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":133}}"#,
        &last,
    ];
    let expected = [
        started(Some("msg_bdrk_1"), Some("claude-x")),
        usage([Some(16), None, None, None, None]),
        r#"0 Text "Why é""#.to_owned(),
        stopped(0, "end_turn"),
        usage([Some(16), Some(133), None, None, None]),
        "Done".to_owned(),
    ];
    assert_eq!(invoked(&messages), [&expected[..], &ended()].concat());
}

#[test]
fn ignores_the_name_of_the_model() {
    let answer = TestResponse::new(API, AWS);
    let said = wrapped(&[r#"{"generation":"Hi"}"#]);
    for model in ["anthropic.claude-x", "arn:aws:bedrock:eu-west-1:1:imported-model/x"] {
        let lines = answer.model(model).read(&said);
        assert_eq!(lines, [r#"0 Text "Hi""#], "{model}");
    }
}

#[test]
fn uses_counts_of_bedrock_if_the_format_has_none() {
    let last = format!(
        r#"{{"completion":"th","stop_reason":"stop_sequence","stop":"\n\nHuman:",{}}}"#,
        measured(16, 63)
    );
    let messages = [r#"{"completion":" Nor","stop_reason":null,"stop":null}"#, &last];
    let expected = [
        r#"0 Text " North""#.to_owned(),
        stopped(0, "stop_sequence"),
        usage([Some(16), Some(63), None, None, None]),
    ];
    assert_eq!(invoked(&messages), [&expected[..], &ended()].concat());

    let cached = r#"{"type":"ping","amazon-bedrock-invocationMetrics":{"inputTokenCount":5,"outputTokenCount":2,"cacheReadInputTokenCount":7,"cacheWriteInputTokenCount":1}}"#;
    let lines = invoked(&[cached]);
    assert_eq!(lines[0], usage([Some(13), Some(2), Some(7), Some(1), None]));
}

/// Found by fuzzing: a response with an error status that contains the messages of a successful call.
#[test]
fn an_error_s_counts_are_nobody_s() {
    let last = format!(r#"{{"type":"message_stop",{}}}"#, measured(16, 97));
    let lines = TestResponse::new(API, AWS).status(503).read(&wrapped(&[&last]));
    let told = |line: &&String| !line.starts_with("Failed") && *line != "Done";
    assert_eq!(lines.iter().find(told), None);
}

#[test]
fn reads_named_events_of_nova() {
    let metadata = format!(
        r#"{{"metadata":{{"usage":{{"inputTokens":30,"outputTokens":55,"cacheReadInputTokenCount":3,"cacheWriteInputTokenCount":0}},"metrics":{{}},"trace":{{}}}},{}}}"#,
        measured(30, 55)
    );
    let messages = [
        r#"{"messageStart":{"role":"assistant"}}"#,
        r#"{"contentBlockDelta":{"delta":{"reasoningContent":{"reasoningText":{"text":"Hm"}}},"contentBlockIndex":0}}"#,
        r#"{"contentBlockDelta":{"delta":{"text":"On"},"contentBlockIndex":0},"amazon-bedrock-guardrailAction":"NONE"}"#,
        r#"{"contentBlockStop":{"contentBlockIndex":0}}"#,
        r#"{"contentBlockStart":{"start":{"toolUse":{"toolUseId":"t","name":"f"}},"contentBlockIndex":1}}"#,
        r#"{"contentBlockDelta":{"delta":{"toolUse":{"input":"{}"}},"contentBlockIndex":1}}"#,
        r#"{"messageStop":{"stopReason":"tool_use"}}"#,
        &metadata,
    ];
    let expected = [
        r#"0 Reasoning "Hm""#.to_owned(),
        r#"0 Text "On""#.to_owned(),
        r#"0 Tool(0) "{}""#.to_owned(),
        stopped(0, "tool_use"),
        usage([Some(33), Some(55), Some(3), Some(0), None]),
    ];
    assert_eq!(invoked(&messages), [&expected[..], &ended()].concat());

    let whole = r#"{"output":{"message":{"content":[{"text":"On"},{"toolUse":{"name":"f","toolUseId":"t","input":{"a":1}}}],"role":"assistant"}},
        "stopReason":"tool_use","usage":{"inputTokens":427,"outputTokens":162,"totalTokens":589,"cacheReadInputTokenCount":2,"cacheWriteInputTokenCount":0}}"#;
    assert_eq!(
        body(API, whole),
        [
            r#"0 Text "On""#.to_owned(),
            r#"0 Tool(0) "{\"a\":1}""#.to_owned(),
            stopped(0, "tool_use"),
            // The total shows that the input includes the cached tokens.
            usage([Some(427), Some(162), Some(2), Some(0), None]),
        ]
    );
}

#[test]
fn titan() {
    let last = format!(
        r#"{{"outputText":" you","index":0,"totalOutputTextTokenCount":10.0,"completionReason":"LENGTH",{}}}"#,
        measured(5, 10)
    );
    let messages = [r#"{"outputText":"Hi","index":0.0,"inputTextTokenCount":5.0}"#, &last];
    let expected = [
        r#"0 Text "Hi""#.to_owned(),
        usage([Some(5), None, None, None, None]),
        r#"0 Text " you""#.to_owned(),
        stopped(0, "LENGTH"),
        usage([None, Some(10), None, None, None]),
    ];
    assert_eq!(invoked(&messages), [&expected[..], &ended()].concat());

    let whole = r#"{"inputTextTokenCount":5,"results":[{"tokenCount":3,"outputText":"Hi","completionReason":"FINISH"},{"tokenCount":4,"outputText":"Ho","completionReason":"LENGTH"}]}"#;
    let lines = body(API, whole);
    for line in [
        &stopped(1, "LENGTH"),
        r#"0 Text "Hi""#,
        r#"1 Text "Ho""#,
        &stopped(0, "FINISH"),
        &usage([Some(5), Some(7), None, None, None]),
    ] {
        assert!(lines.iter().any(|known| known == line), "{line}");
    }
}

#[test]
fn llama() {
    let last = format!(
        r#"{{"generation":"","prompt_token_count":null,"generation_token_count":2,"stop_reason":"stop",{}}}"#,
        measured(7, 2)
    );
    let messages = [
        r#"{"generation":"Hi","prompt_token_count":7,"generation_token_count":1,"stop_reason":null}"#,
        &last,
    ];
    let expected = [
        r#"0 Text "Hi""#.to_owned(),
        usage([Some(7), Some(1), None, None, None]),
        stopped(0, "stop"),
        usage([None, Some(2), None, None, None]),
    ];
    assert_eq!(invoked(&messages), [&expected[..], &ended()].concat());

    let whole = r#"{"generation":"Hi","prompt_token_count":7,"generation_token_count":2,"stop_reason":"length"}"#;
    let lines = body(API, whole);
    assert_eq!(lines[0], r#"0 Text "Hi""#);
    assert_eq!(lines[1..], [stopped(0, "length"), usage([Some(7), Some(2), None, None, None])]);
}

#[test]
fn reads_mistral_completions_and_chats() {
    let last = format!(r#"{{"outputs":[{{"text":"","stop_reason":"stop"}}],{}}}"#, measured(4, 2));
    let messages = [r#"{"outputs":[{"text":" Hi","stop_reason":null}]}"#, &last];
    let expected = [
        r#"0 Text " Hi""#.to_owned(),
        stopped(0, "stop"),
        usage([Some(4), Some(2), None, None, None]),
    ];
    assert_eq!(invoked(&messages), [&expected[..], &ended()].concat());
    let whole = r#"{"outputs":[{"text":" Hi","stop_reason":"stop"}]}"#;
    assert_eq!(body(API, whole), [r#"0 Text " Hi""#.to_owned(), stopped(0, "stop")]);

    let last = format!(
        r#"{{"choices":[{{"index":0,"message":{{"content":" you"}},"stop_reason":"stop"}}],{}}}"#,
        measured(4, 2)
    );
    let messages = [
        r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"stop_reason":null}]}"#,
        &last,
    ];
    let expected = [
        r#"0 Text "Hi you""#.to_owned(),
        stopped(0, "stop"),
        usage([Some(4), Some(2), None, None, None]),
    ];
    assert_eq!(invoked(&messages), [&expected[..], &ended()].concat());
    let whole = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Hi","tool_calls":[{"id":"t","function":{"name":"f","arguments":"{}"}}]},"stop_reason":"tool_calls"}]}"#;
    assert_eq!(
        body(API, whole),
        [r#"0 Text "Hi""#.to_owned(), r#"0 Tool(0) "{}""#.to_owned(), stopped(0, "tool_calls")]
    );
}

#[test]
fn cohere_may_answer_in_one_message() {
    let one = format!(
        r#"{{"generations":[{{"finish_reason":"MAX_TOKENS","id":"g1","text":" Hi"}}],"id":"x","prompt":"no",{}}}"#,
        measured(4, 2)
    );
    let expected = [
        r#"0 Text " Hi""#.to_owned(),
        stopped(0, "MAX_TOKENS"),
        usage([Some(4), Some(2), None, None, None]),
    ];
    assert_eq!(invoked(&[&one]), [&expected[..], &ended()].concat());

    let pieces = [
        r#"{"text":" Hi","is_finished":false,"index":0}"#,
        r#"{"text":" Ho","is_finished":false,"index":1}"#,
        r#"{"is_finished":true,"finish_reason":"COMPLETE","index":1}"#,
        r#"{"is_finished":true,"finish_reason":"COMPLETE","index":0,"response":{"generations":[{"text":" Hi"}]},"generations":[{"text":" Hi"}]}"#,
    ];
    let expected = [
        r#"0 Text " Hi""#.to_owned(),
        r#"1 Text " Ho""#.to_owned(),
        stopped(1, "COMPLETE"),
        stopped(0, "COMPLETE"),
    ];
    assert_eq!(invoked(&pieces), expected);

    let whole = r#"{"generations":[{"finish_reason":"COMPLETE","id":"g","text":"Hi"},{"finish_reason":"MAX_TOKENS","text":"Ho"}],"id":"x","prompt":"no"}"#;
    assert_eq!(
        body(API, whole),
        [
            stopped(0, "COMPLETE"),
            r#"0 Text "Hi""#.to_owned(),
            stopped(1, "MAX_TOKENS"),
            r#"1 Text "Ho""#.to_owned(),
        ]
    );
}

#[test]
fn cohere_chats() {
    let pieces = [
        r#"{"is_finished":false,"event_type":"stream-start","generation_id":"g1"}"#,
        r#"{"is_finished":false,"event_type":"text-generation","text":"Hi"}"#,
        r#"{"is_finished":false,"event_type":"tool-calls-chunk","tool_call_delta":{"index":0,"parameters":"{}"}}"#,
        r#"{"is_finished":false,"event_type":"tool-calls-generation","tool_calls":[{"name":"f","parameters":{}}]}"#,
        r#"{"is_finished":true,"event_type":"stream-end","response":{"text":"Hi","chat_history":[{"message":"Hi"}]},"finish_reason":"COMPLETE"}"#,
    ];
    assert_eq!(
        invoked(&pieces),
        [
            started(Some("g1"), None),
            r#"0 Text "Hi""#.to_owned(),
            r#"0 Tool(0) "{}""#.to_owned(),
            stopped(0, "COMPLETE"),
        ]
    );
    let only_whole = [
        r#"{"event_type":"tool-calls-generation","tool_calls":[{"name":"f","parameters":{"a": 1}},{"name":"g","parameters":{}}]}"#,
    ];
    assert_eq!(invoked(&only_whole), [r#"0 Tool(0) "{\"a\":1}""#, r#"0 Tool(1) "{}""#]);
    let whole = r#"{"response_id":"r","text":"Hi","generation_id":"g1","chat_history":[{"role":"CHATBOT","message":"Hi","text":"no"}],"finish_reason":"COMPLETE","tool_calls":[{"name":"f","parameters":{"a": 1}}]}"#;
    assert_eq!(
        body(API, whole),
        [
            r#"0 Text "Hi""#.to_owned(),
            started(Some("g1"), None),
            stopped(0, "COMPLETE"),
            r#"0 Tool(0) "{\"a\":1}""#.to_owned(),
        ]
    );
}

#[test]
fn reads_jurassic_bodies() {
    let whole = r#"{"id":1234,"prompt":{"text":"no","tokens":[{"text":"no"}]},"completions":[{"data":{"text":"Hi","tokens":[{"text":"no"}]},"finishReason":{"reason":"endoftext"}}]}"#;
    assert_eq!(body(API, whole), [r#"0 Text "Hi""#.to_owned(), stopped(0, "endoftext")]);
}

#[test]
fn reads_models_with_openai_formats() {
    let last = format!(
        r#"{{"id":"c1","choices":[],"usage":{{"prompt_tokens":9,"completion_tokens":2}},{}}}"#,
        measured(9, 3)
    );
    let messages = [
        r#"{"id":"c1","model":"openai.gpt-oss-x","choices":[{"index":0,"delta":{"role":"assistant","reasoning":"Hm"}}]}"#,
        r#"{"id":"c1","model":"openai.gpt-oss-x","choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}"#,
        &last,
    ];
    let expected = [
        started(Some("c1"), Some("openai.gpt-oss-x")),
        r#"0 Reasoning "Hm""#.to_owned(),
        r#"0 Text "Hi""#.to_owned(),
        stopped(0, "stop"),
        usage([Some(9), Some(2), None, None, None]),
    ];
    assert_eq!(invoked(&messages), [&expected[..], &ended()].concat());

    // DeepSeek's completions.
    let pieces = [
        r#"{"choices":[{"index":0,"text":"Hi","stop_reason":null}]}"#,
        r#"{"choices":[{"index":0,"text":"","stop_reason":"length"}]}"#,
    ];
    let expected = [r#"0 Text "Hi""#.to_owned(), stopped(0, "length")];
    assert_eq!(invoked(&pieces), expected);
    let whole = r#"{"choices":[{"text":"Hi","stop_reason":"length"}]}"#;
    assert_eq!(body(API, whole), expected);
    let whole = r#"{"id":"c1","object":"chat.completion","choices":[{"finish_reason":"stop","index":0,"message":{"content":"Hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    assert_eq!(
        body(API, whole),
        [
            started(Some("c1"), None),
            stopped(0, "stop"),
            r#"0 Text "Hi""#.to_owned(),
            usage([Some(9), Some(2), None, None, None]),
        ]
    );
}

#[test]
fn claude_answers_whole_in_both_formats() {
    let message = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":10,"cache_creation_input_tokens":8,"cache_read_input_tokens":5,"output_tokens":15}}"#;
    assert_eq!(
        body(API, message),
        [
            started(Some("msg_1"), None),
            started(None, Some("claude-x")),
            r#"0 Text "Hi""#.to_owned(),
            stopped(0, "end_turn"),
            usage([Some(23), Some(15), Some(5), Some(8), None]),
        ]
    );
    let complete = r#"{"type":"completion","completion":" Hi","stop_reason":"stop_sequence","stop":"\n\nHuman:"}"#;
    assert_eq!(body(API, complete), [r#"0 Text " Hi""#.to_owned(), stopped(0, "stop_sequence")]);
}

#[test]
fn reads_usage_of_embeddings() {
    let api = Api::BedrockEmbeddings;
    let titan =
        r#"{"embedding":[0.25,-1e-9],"embeddingsByType":{"float":[0.25]},"inputTextTokenCount":8}"#;
    assert_eq!(body(api, titan), [usage([Some(8), None, None, None, None])]);
    let cohere = r#"{"embeddings":{"float":[[0.25,1]]},"id":"e","response_type":"embeddings_by_type","texts":["no"]}"#;
    assert!(body(api, cohere).is_empty());
    let nova = r#"{"embeddings":[{"embeddingType":"TEXT","embedding":[0.1]}]}"#;
    assert!(body(api, nova).is_empty());
}

#[test]
fn reads_only_errors_if_no_key_shows_the_format() {
    let error = r#"{"error":{"type":"server_error"}}"#;
    assert_eq!(invoked(&[error]), [failed(Some("server_error"))]);
    assert_eq!(body(API, error), [failed(Some("server_error"))]);
    assert!(invoked(&[r#"{"type":"ping"}"#, "{}"]).is_empty());
    assert_eq!(invoked(&["{"]), ["ParseError(BadJson)"]);
    assert!(body(API, r#"{"id":"x","more":{"text":"no"}}"#).is_empty());
    let padded = format!(r#"{{"padding":"{}","generation":"Hi"}}"#, "x".repeat(1 << 15));
    let answer = TestResponse::new(API, JSON).cut(&[padded.as_bytes()]);
    assert_eq!(answer, [r#"0 Text "Hi""#]);
    let pieces: Vec<&[u8]> = padded.as_bytes().chunks(1000).collect();
    assert_eq!(TestResponse::new(API, JSON).cut(&pieces), answer);
}

#[test]
fn reports_malformed_wrapped_messages() {
    for payload in [r#"{"bytes":"*"}"#, r#"{"bytes":7}"#, "{}", "x"] {
        let odd = stream(API, &[("chunk", payload)]);
        assert_eq!(odd, ["ParseError(BadJson)"], "{payload}");
    }
}

#[test]
fn an_exception_may_come_first_or_late() {
    let thrown = encode::exception("modelStreamErrorException", r#"{"message":"No."}"#);
    let expected = failed(Some("modelStreamErrorException"));
    assert_eq!(TestResponse::new(API, AWS).read(&thrown), std::slice::from_ref(&expected));
    let said = wrapped(&[r#"{"generation":"Hi"}"#]);
    assert_eq!(
        TestResponse::new(API, AWS).read(&[said, thrown].concat()),
        [r#"0 Text "Hi""#.to_owned(), expected]
    );
}

#[test]
fn reads_only_the_error_after_an_error_status() {
    let answer = TestResponse::new(API, JSON).status(400);
    for (shape, kind) in [
        (r#"{"message":"No."}"#, None),
        (r#"{"message":"No.","__type":"ValidationException"}"#, Some("ValidationException")),
        (r#"{"content":[{"text":"a"}],"generation":"b"}"#, None),
    ] {
        assert_eq!(answer.read(shape.as_bytes()), [failed(kind)], "{shape}");
    }
}

const LEADS: [&str; 8] = [
    "",
    r#"{"type":"content_block_delta","delta":{"text":""#,
    r#"{"contentBlockDelta":{"delta":{"text":""#,
    r#"{"generation":""#,
    r#"{"choices":[{"text":""#,
    r#"{"outputs":[{"text":""#,
    r#"{"generations":[{"text":""#,
    r#"{"amazon-bedrock-invocationMetrics":{"inputTokenCount":"#,
];

proptest! {
    #[test]
    fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), status in 200..600_u16) {
        for lead in LEADS {
            let message = [lead.as_bytes(), &bytes, b"\"}"].concat();
            let payload = format!(r#"{{"bytes":"{}"}}"#, STANDARD.encode(&message));
            let framed = encode::event("chunk", &payload);
            let part = encode::message(&[(":event-type", "PayloadPart"), (":message-type", "event")], &message);
            for (api, body) in [(API, &framed), (API, &message), (Api::SageMakerInvocations, &part)] {
                let answer = TestResponse::new(api, None).status(status);
                let pieces: Vec<&[u8]> = body.chunks(7).collect();
                prop_assert_eq!(answer.cut(&pieces), answer.cut(&[body]));
            }
        }
    }
}
