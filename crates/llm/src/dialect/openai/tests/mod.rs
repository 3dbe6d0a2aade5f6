//! Tests responses in OpenAI's formats. Each body is read in one piece, byte by byte, and split in two at every
//! position.

use crate::dialect::testing::{
    JSON, STREAM, TestResponse, events, failed, started, stopped, usage,
};
use crate::dialect::*;

mod habits;
mod media;

/// Returns the events of a response. Asserts that they are the same for every cut and every declared content type.
fn read(api: Api, status: u16, body: &[u8]) -> Vec<String> {
    let events = TestResponse::new(api, STREAM).status(status).read(body);
    let declared = TestResponse::new(api, JSON).status(status).cut(&[body]);
    assert_eq!(declared, events, "whatever the declared type");
    events
}

/// Returns a stream of these messages.
fn chat(messages: &[&str]) -> Vec<String> {
    stream(Api::OpenAiChat, messages)
}

fn stream(api: Api, messages: &[&str]) -> Vec<String> {
    read(api, 200, events(messages).as_bytes())
}

fn body(api: Api, body: &str) -> Vec<String> {
    read(api, 200, body.as_bytes())
}

#[test]
fn reads_a_stream() {
    let head = r#""id":"chatcmpl-7","object":"chat.completion.chunk","model":"gpt-x","service_tier":"default","system_fingerprint":"fp_1""#;
    let message = |rest: &str| format!("{{{head},{rest}}}");
    let messages = [
        message(
            r#""choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null}],"usage":null"#,
        ),
        message(
            r#""choices":[{"index":0,"delta":{"content":"Good"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"a1b2""#,
        ),
        message(
            r#""choices":[{"index":0,"delta":{"content":"\n\"day\" \u00e9\ud83d\ude00"},"finish_reason":null}],"usage":null"#,
        ),
        message(r#""choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null"#),
        message(
            r#""choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}"#,
        ),
        "[DONE]".to_owned(),
    ];
    assert_eq!(
        chat(&messages.each_ref().map(String::as_str)),
        [
            r#"Started { id: Some("chatcmpl-7"), model: Some("gpt-x") }"#.to_owned(),
            r#"Tier { service_tier: Some("default"), system_fingerprint: Some("fp_1") }"#
                .to_owned(),
            r#"0 Text "Good\n\"day\" é😀""#.to_owned(),
            stopped(0, "stop"),
            usage([Some(9), Some(12), Some(4), None, Some(0)]),
            "Done".to_owned(),
        ]
    );
}

#[test]
fn reports_a_late_model_once() {
    let first = r#"{"id":"","model":"","choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#;
    let later = r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}"#;
    let started = r#"Started { id: Some("c1"), model: Some("m") }"#;
    assert_eq!(chat(&[first, later, later]), [started, r#"0 Text "aa""#]);
    let renamed = r#"{"id":"c2","model":"n"}"#;
    assert_eq!(chat(&[r#"{"id":"c1"}"#, later, renamed]).len(), 3);
}

#[test]
fn counts_reasoning_in_several_places_once() {
    let of = |delta: &str| chat(&[&format!(r#"{{"choices":[{{"delta":{{{delta}}}}}]}}"#)]);
    let thought = [r#"0 Reasoning "hm""#];
    assert_eq!(of(r#""content":"","reasoning_content":"hm""#), thought);
    assert_eq!(of(r#""content":null,"reasoning":"hm""#), thought);
    assert_eq!(of(r#""reasoning_content":"hm","reasoning":"hm""#), thought);
    let details = r#""reasoning_details":[{"type":"reasoning.text","text":"hm"},{"type":"reasoning.encrypted","data":"zz"}]"#;
    assert_eq!(of(&format!(r#""reasoning":"hm",{details}"#)), thought);
    assert_eq!(of(details), thought);
    assert_eq!(of(r#""reasoning_details":[{"summary":"hm"}]"#), thought);
    let parts = r#""content":[{"type":"thinking","thinking":[{"type":"text","text":"h"},{"type":"text","text":"m"}]}]"#;
    assert_eq!(of(parts), thought);
    assert_eq!(of(&format!(r#"{parts},"reasoning_content":"hm""#)), thought);
    let both = r#""content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"so"}]"#;
    assert_eq!(of(both), [r#"0 Reasoning "hm""#, r#"0 Text "so""#]);
}

#[test]
fn counts_repeated_text_once() {
    let cumulative = [
        r#"{"choices":[{"index":0,"delta":{"content":"one"},"message":{"content":"one"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":" two"},"message":{"content":"one two"}}]}"#,
        r#"{"choices":[{"index":0,"message":{"content":"one two"},"finish_reason":"stop"}]}"#,
    ];
    assert_eq!(chat(&cumulative), [r#"0 Text "one two""#.to_owned(), stopped(0, "stop")]);
    let both = r#"{"choices":[{"index":0,"text":"one","delta":{"content":"one"}}]}"#;
    for api in [Api::OpenAiChat, Api::OpenAiCompletions] {
        assert_eq!(stream(api, &[both]), [r#"0 Text "one""#]);
    }
    let only_whole = r#"{"choices":[{"index":0,"message":{"content":"one"}}]}"#;
    assert_eq!(chat(&[only_whole]), [r#"0 Text "one""#]);
}

#[test]
fn reads_interleaved_choices() {
    let messages = [
        r#"{"choices":[{"delta":{"content":"a"},"index":1},{"delta":{"content":"b"},"index":0}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"length","index":1}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop","index":0}]}"#,
    ];
    let texts = [r#"1 Text "a""#.to_owned(), r#"0 Text "b""#.to_owned()];
    let ends = [stopped(1, "length"), stopped(0, "stop")];
    assert_eq!(chat(&messages), [texts, ends].concat());
}

/// Returns the texts for a stream in which each message has one of these lists of tool calls.
fn tools(calls: &[&str]) -> Vec<String> {
    let messages = calls
        .iter()
        .map(|call| format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{call}]}}}}]}}"#));
    let messages: Vec<String> = messages.collect();
    chat(&messages.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn assigns_fragments_to_calls() {
    let two = [r#"0 Tool(0) "{\"a\":1}""#, r#"0 Tool(1) "{}""#];
    let by_index = [
        r#"{"index":0,"id":"x","function":{"name":"f","arguments":""}}"#,
        r#"{"index":0,"function":{"arguments":"{\"a\""}}"#,
        r#"{"index":0,"id":"x","function":{"name":null,"arguments":":1}"}}"#,
        r#"{"index":1,"id":"y","function":{"name":"g","arguments":"{}"}}"#,
    ];
    assert_eq!(tools(&by_index), two);
    let no_index = [
        r#"{"id":"x","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"y","function":{"name":"g","arguments":"{}"}}"#,
    ];
    assert_eq!(tools(&no_index), two);
    let same_index = [
        r#"{"index":0,"id":"x","function":{"name":"f","arguments":"{\"a\":1}"}}"#,
        r#"{"index":0,"id":"y","function":{"name":"g","arguments":"{}"}}"#,
    ];
    assert_eq!(tools(&same_index), two);
    let custom = [r#"{"index":0,"id":"x","type":"custom","custom":{"name":"f","input":"ls"}}"#];
    assert_eq!(tools(&custom), [r#"0 Tool(0) "ls""#]);
    let legacy = r#"{"choices":[{"delta":{"function_call":{"name":"f","arguments":"{}"}}}]}"#;
    assert_eq!(chat(&[legacy]), [r#"0 Tool(0) "{}""#]);
}

#[test]
fn reads_refusals_and_audio_transcripts() {
    let message = r#"{"choices":[{"delta":{"refusal":"No.","audio":{"id":"a","transcript":"Hi","data":"AAAA"}}}]}"#;
    assert_eq!(chat(&[message]), [r#"0 Refusal "No.""#, r#"0 Transcript "Hi""#]);
}

#[test]
fn finds_usage_in_every_place() {
    let of = |fields: &str| chat(&[&format!("{{\"choices\":[],{fields}}}")]);
    let plain = [usage([Some(5), Some(2), None, None, None])];
    assert_eq!(of(r#""usage":{"prompt_tokens":5,"completion_tokens":2}"#), plain);
    assert_eq!(of(r#""usage":{"prompt_tokens":5.0,"completion_tokens":2.0}"#), plain);
    assert_eq!(
        of(r#""x_groq":{"id":"r","usage":{"prompt_tokens":5,"completion_tokens":2}}"#),
        plain
    );
    let in_choice =
        r#"{"choices":[{"index":0,"delta":{},"usage":{"prompt_tokens":5,"completion_tokens":2}}]}"#;
    assert_eq!(chat(&[in_choice]), plain);
    for (place, read, write) in [
        (r#""prompt_tokens_details":{"cached_tokens":3,"cache_write_tokens":1}"#, Some(3), Some(1)),
        (r#""cached_tokens":3"#, Some(3), None),
        (r#""prompt_cache_hit_tokens":3,"prompt_cache_miss_tokens":2"#, Some(3), None),
        (
            r#""prompt_tokens_details":{"cached_tokens":0},"cache_read_input_tokens":3,"cache_creation_input_tokens":1"#,
            Some(3),
            Some(1),
        ),
    ] {
        let fields = format!(r#""usage":{{"prompt_tokens":5,"completion_tokens":2,{place}}}"#);
        assert_eq!(of(&fields), [usage([Some(5), Some(2), read, write, None])], "{place}");
    }
    assert!(of(r#""usage":null"#).is_empty() && of(r#""usage":{}"#).is_empty());
}

#[test]
fn adds_reasoning_that_the_completion_excludes() {
    let of = |total: u64| {
        let counts = format!(r#""prompt_tokens":10,"completion_tokens":4,"total_tokens":{total}"#);
        let details = r#""completion_tokens_details":{"reasoning_tokens":3}"#;
        let streamed = chat(&[&format!(r#"{{"usage":{{{counts},{details}}}}}"#)]);
        assert_eq!(
            body(Api::OpenAiChat, &format!(r#"{{"usage":{{{details},{counts}}}}}"#)),
            streamed
        );
        streamed
    };
    assert_eq!(of(17), [usage([Some(10), Some(7), None, None, Some(3)])]);
    assert_eq!(of(14), [usage([Some(10), Some(4), None, None, Some(3)])]);
}

#[test]
fn adds_usage_of_several_prompts_only_for_completions() {
    let message = |choice: u32, prompt: u64| {
        format!(
            r#"{{"choices":[{{"index":{choice},"text":"","finish_reason":"length"}}],"usage":{{"prompt_tokens":{prompt},"completion_tokens":10}}}}"#
        )
    };
    let messages = [message(0, 6), message(1, 5), message(1, 5)];
    let messages = messages.each_ref().map(String::as_str);
    let last = |api| stream(api, &messages).pop().unwrap();
    assert_eq!(last(Api::OpenAiCompletions), usage([Some(11), Some(20), None, None, None]));
    assert_eq!(last(Api::OpenAiChat), usage([Some(5), Some(10), None, None, None]));
}

/// llama.cpp repeats the tokens of the prompt with each of its choices, although it reads the prompt once.
#[test]
fn counts_the_prompt_of_several_choices_once() {
    let message = |choice: u32| {
        format!(
            r#"{{"choices":[{{"index":{choice},"text":"","finish_reason":"length"}}],"usage":{{"prompt_tokens":9,"completion_tokens":20,"prompt_tokens_details":{{"cached_tokens":8}}}}}}"#
        )
    };
    let messages = [message(1), message(0)];
    let body = events(&messages.each_ref().map(String::as_str));
    let last = |request| {
        let response = TestResponse::new(Api::OpenAiCompletions, STREAM).to(request);
        response.read(body.as_bytes()).pop().unwrap()
    };
    let once = usage([Some(9), Some(40), Some(8), None, None]);
    assert_eq!(last(r#"{"prompt":"Hello","n":2}"#), once);
    let twice = usage([Some(18), Some(40), Some(16), None, None]);
    assert_eq!(last(r#"{"prompt":["Hello","Hello"]}"#), twice);
}

#[test]
fn reads_every_form_of_error() {
    let shapes = [
        (
            r#"{"error":{"message":"No such key.","type":"invalid_request_error","code":"invalid_api_key"}}"#,
            Some("invalid_request_error"),
        ),
        (
            r#"{"error":{"message":"Filtered.","type":null,"code":"content_filter","status":400}}"#,
            Some("content_filter"),
        ),
        (r#"{"error":{"code":503,"message":"Busy."}}"#, Some("503")),
        (r#"{"error":{"type":"This is a sentence.","message":"x"}}"#, None),
        (r#"{"error":{"type":"A sentence.","code":"c"}}"#, Some("c")),
        (r#"{"error":"Out of cards."}"#, None),
        (r#"{"error":"Too many.","error_type":"overloaded"}"#, Some("overloaded")),
        (
            r#"{"object":"error","message":"No.","type":"NotFoundError","code":404}"#,
            Some("NotFoundError"),
        ),
    ];
    for (shape, kind) in shapes {
        assert_eq!(body(Api::OpenAiChat, shape), [failed(kind)], "{shape}");
        assert_eq!(chat(&[shape]), [failed(kind)], "in the stream: {shape}");
        assert_eq!(read(Api::OpenAiEmbeddings, 400, shape.as_bytes()), [failed(kind)], "{shape}");
    }
    let listed = r#"[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}]"#;
    assert_eq!(body(Api::OpenAiChat, listed), [failed(Some("RESOURCE_EXHAUSTED"))]);
    for other in [
        r#"{"detail":"Unauthorized"}"#,
        r#"{"message":"no"}"#,
        "upstream connect error",
        "<html></html>",
    ] {
        assert_eq!(read_json(401, other), [failed(None)], "{other}");
        assert!(!read_json(200, other).contains(&failed(None)), "{other}");
    }
    assert!(body(Api::OpenAiChat, r#"{"error":null,"type":"x","code":"y"}"#).is_empty());
}

fn read_json(status: u16, body: &str) -> Vec<String> {
    TestResponse::new(Api::OpenAiChat, JSON).status(status).cut(&[body.as_bytes()])
}

#[test]
fn keeps_text_before_an_error_in_the_stream() {
    let late = r#"{"error":{"code":400,"message":"Limit."},"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":1}}"#;
    assert_eq!(
        chat(&[late, "[DONE]"]),
        [
            r#"0 Text "a""#.to_owned(),
            usage([None, Some(1), None, None, None]),
            failed(Some("400")),
            "Done".to_owned()
        ]
    );
    let named = "event: error\ndata: {\"message\":\"gone\",\"code\":\"c\"}\n\n";
    assert_eq!(read(Api::OpenAiChat, 200, named.as_bytes()), [failed(Some("c"))]);
    let text = "event: error\ndata: gone\n\n";
    assert_eq!(read(Api::OpenAiChat, 200, text.as_bytes()), [failed(None)]);
    let of_choice =
        r#"{"choices":[{"index":0,"delta":{},"error":{"code":502},"finish_reason":"error"}]}"#;
    assert_eq!(chat(&[of_choice]), [stopped(0, "error"), failed(Some("502"))]);
}

#[test]
fn reads_or_reports_fields_of_wrong_types() {
    let odd = r#"{"id":7,"model":["m"],"choices":[null,3,{"index":"0","delta":{"content":"a","tool_calls":{},"reasoning":[1],"audio":"x"},"finish_reason":{}}],"usage":[1],"error":false,"x_groq":"y"}"#;
    let read = [
        started(Some("7"), Some("m")),
        r#"0 Reasoning "1""#.to_owned(),
        r#"0 Text "a""#.to_owned(),
        "ParseError(BadJson)".to_owned(),
    ];
    assert_eq!(chat(&[odd]), read);
    for message in ["{}", "[]", "1", "null", "{\"choices\":null}", "{\"choices\":{\"a\":1}}"] {
        assert!(chat(&[message]).iter().all(|line| line == "ParseError(BadJson)"), "{message}");
    }
}

#[test]
fn reads_text_with_half_a_character() {
    let of = |text: &[u8]| {
        let parts = [&b"data: {\"choices\":[{\"delta\":{\"content\":\""[..], text, b"\"}}]}\n\n"];
        read(Api::OpenAiChat, 200, &parts.concat())
    };
    for text in [&b"a\\ud83d b"[..], b"a\\udE00 b", b"a\xF0\x9F b"] {
        assert_eq!(of(text), ["ParseError(BadText)", "0 Text \"a\u{FFFD} b\""]);
    }
    assert_eq!(of(b"\\\\ud83d \\ud83d\\ud83d\\ude00")[1], "0 Text \"\\\\ud83d \u{FFFD}😀\"");
    assert_eq!(of(b"a\"b"), ["ParseError(BadJson)"]);
}

#[test]
fn reads_messages_with_duplicate_keys() {
    let twice = r#"{"id":"a","id":"b","choices":[{"index":1,"index":1,"delta":{"content":"x"}}]}"#;
    let started = r#"Started { id: Some("b"), model: None }"#;
    assert_eq!(chat(&[twice]), [started, r#"1 Text "x""#]);
}

#[test]
fn reads_a_json_body() {
    let answer = r#"

    {"choices":[{"finish_reason":"tool_calls","index":0,"message":{"role":"assistant","content":"Let \ud83d\ude00 me",
      "reasoning":"hm","reasoning_content":"hm","reasoning_details":[{"text":"hm"}],"refusal":null,
      "tool_calls":[{"id":"x","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"y","custom":{"input":"ls"}}],
      "function_call":{"arguments":"{}"},"audio":{"data":"AAAA","transcript":"Hi"}},"delta":{"content":"Let"},"text":"Let"},
     {"index":1,"finish_reason":"stop","message":{"content":[{"type":"thinking","thinking":[{"text":"so"}]},{"type":"text","text":"B"}],"refusal":"No."}}],
     "id":"c1","model":"m","service_tier":"flex","system_fingerprint":null,
     "usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":3},"num_sources_used":0.1}}"#;
    assert_eq!(
        body(Api::OpenAiChat, answer),
        [
            stopped(0, "tool_calls"),
            r#"0 Text "Let 😀 me""#.to_owned(),
            r#"0 Reasoning "hm""#.to_owned(),
            r#"0 Tool(0) "{\"a\":1}""#.to_owned(),
            r#"0 Tool(1) "ls""#.to_owned(),
            r#"0 Tool(0) "{}""#.to_owned(),
            r#"0 Transcript "Hi""#.to_owned(),
            stopped(1, "stop"),
            r#"1 Reasoning "so""#.to_owned(),
            r#"1 Text "B""#.to_owned(),
            r#"1 Refusal "No.""#.to_owned(),
            r#"Started { id: Some("c1"), model: None }"#.to_owned(),
            r#"Started { id: None, model: Some("m") }"#.to_owned(),
            r#"Tier { service_tier: Some("flex"), system_fingerprint: None }"#.to_owned(),
            usage([Some(5), Some(2), Some(3), None, None]),
        ]
    );
}

#[test]
fn reads_completion_and_embedding_bodies() {
    let completion = r#"{"model":"m","choices":[{"text":"a","index":0,"finish_reason":"stop"},{"text":"b","index":1}]}"#;
    assert_eq!(
        body(Api::OpenAiCompletions, completion),
        [
            r#"Started { id: None, model: Some("m") }"#.to_owned(),
            r#"0 Text "a""#.to_owned(),
            stopped(0, "stop"),
            r#"1 Text "b""#.to_owned(),
        ]
    );
    let vectors = vec!["{\"embedding\":[0.25,-1e-9]}"; 50].join(",");
    let embeddings = format!(
        r#"{{"object":"list","data":[{vectors}],"model":"e","usage":{{"prompt_tokens":8,"total_tokens":8}}}}"#
    );
    let expected = [
        r#"Started { id: None, model: Some("e") }"#.to_owned(),
        usage([Some(8), None, None, None, None]),
    ];
    assert_eq!(body(Api::OpenAiEmbeddings, &embeddings), expected);
}

#[test]
fn keeps_what_precedes_malformed_input() {
    let cut_off = r#"{"model":"m","choices":[{"message":{"content":"Hel"#;
    let understood = [r#"Started { id: None, model: Some("m") }"#, r#"0 Text "Hel""#];
    assert_eq!(
        body(Api::OpenAiChat, cut_off),
        [&understood[..], &["ParseError(Unterminated)"]].concat()
    );
    let broken = format!("{cut_off}\" oops");
    assert_eq!(
        body(Api::OpenAiChat, &broken),
        [&understood[..], &["ParseError(BadJson)"]].concat()
    );
    let half = r#"{"choices":[{"message":{"content":"\ud83d"}}]}"#;
    assert_eq!(body(Api::OpenAiChat, half), ["0 Text \"\u{FFFD}\"", "ParseError(BadText)"]);
}

#[test]
fn reads_only_errors_after_an_error_status() {
    let answer =
        r#"{"model":"m","choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":1}}"#;
    assert_eq!(read(Api::OpenAiChat, 500, answer.as_bytes()), [failed(None)]);
    let streamed = format!("data: {answer}\n\n");
    assert_eq!(read(Api::OpenAiChat, 500, streamed.as_bytes()), [failed(None)]);
}

proptest::proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), status in 200..600_u16) {
        let framed = [b"data: {\"choices\":[", bytes.as_slice(), b"]}\n\n"].concat();
        for body in [&bytes, &framed] {
            for api in Api::ALL {
                let answer = TestResponse::new(*api, None).status(status);
                let pieces: Vec<&[u8]> = body.chunks(3).collect();
                proptest::prop_assert_eq!(answer.cut(&pieces), answer.cut(&[body]));
            }
        }
    }
}
