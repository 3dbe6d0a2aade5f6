//! Tests values of an unexpected type at every path of every API format. The value is read as what it means, or a parse
//! error is counted. Nothing is counted twice.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokengauge_llm::ResponseParser;
use tokengauge_llm::dialect::{Api, Event, Part, Usage};
use tokengauge_llm::frame::ParseError;

/// A healthy response. A JSON body has one message and is not a stream.
struct Sample {
    path: &'static str,
    api: Api,
    is_stream: bool,
    messages: &'static [&'static str],
}

const fn stream(path: &'static str, api: Api, messages: &'static [&'static str]) -> Sample {
    Sample { path, api, is_stream: true, messages }
}

const fn body(path: &'static str, api: Api, message: &'static [&'static str; 1]) -> Sample {
    Sample { path, api, is_stream: false, messages: message }
}

const SAMPLES: &[Sample] = &[
    stream(
        "/v1/chat/completions",
        Api::OpenAiChat,
        &[
            r#"{"id":"c","model":"m","service_tier":"flex","system_fingerprint":"f","choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"Think"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"Hello"}},{"index":1,"delta":{"content":[{"type":"text","text":"Other"}],"refusal":"No"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":"{\"a\":1}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"audio":{"transcript":"Spoken"}},"finish_reason":"stop"},{"index":1,"delta":{},"finish_reason":"length"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":34,"total_tokens":46,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":5}}}"#,
        ],
    ),
    body(
        "/v1/chat/completions",
        Api::OpenAiChat,
        &[
            r#"{"id":"c","model":"m","service_tier":"flex","system_fingerprint":"f","choices":[{"index":0,"message":{"reasoning_content":"Think","content":"Hello","refusal":"No","tool_calls":[{"id":"t","function":{"name":"f","arguments":"{\"a\":1}"}}],"audio":{"transcript":"Spoken"}},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":34,"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":5}}}"#,
        ],
    ),
    body(
        "/v1/completions",
        Api::OpenAiCompletions,
        &[
            r#"{"id":"c","model":"m","choices":[{"index":0,"text":"Hello","finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":34}}"#,
        ],
    ),
    body(
        "/v1/embeddings",
        Api::OpenAiEmbeddings,
        &[
            r#"{"model":"m","data":[{"embedding":[0.5]}],"usage":{"prompt_tokens":12,"total_tokens":12}}"#,
        ],
    ),
    stream(
        "/v1/responses",
        Api::OpenAiResponses,
        &[
            r#"{"type":"response.created","response":{"id":"r","model":"m","service_tier":"flex"}}"#,
            r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hello"}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"a\":1}"}"#,
            r#"{"type":"response.completed","response":{"id":"r","status":"completed","usage":{"input_tokens":12,"output_tokens":34,"output_tokens_details":{"reasoning_tokens":5}}}}"#,
        ],
    ),
    body(
        "/v1/responses",
        Api::OpenAiResponses,
        &[
            r#"{"id":"r","model":"m","status":"completed","output":[{"type":"reasoning","summary":[{"text":"Think"}]},{"type":"message","content":[{"type":"output_text","text":"Hello"}]},{"type":"function_call","call_id":"t","name":"f","arguments":"{\"a\":1}"}],"usage":{"input_tokens":12,"output_tokens":34}}"#,
        ],
    ),
    stream(
        "/v1/messages",
        Api::AnthropicMessages,
        &[
            r#"{"type":"message_start","message":{"id":"a","model":"m","usage":{"input_tokens":12,"cache_read_input_tokens":3,"output_tokens":1}}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Think"}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hello"}}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":34}}"#,
            r#"{"type":"message_stop"}"#,
        ],
    ),
    body(
        "/v1/messages",
        Api::AnthropicMessages,
        &[
            r#"{"id":"a","model":"m","content":[{"type":"thinking","thinking":"Think"},{"type":"text","text":"Hello"},{"type":"tool_use","id":"t","name":"f","input":{"a":1}}],"stop_reason":"end_turn","usage":{"input_tokens":12,"cache_creation_input_tokens":2,"cache_read_input_tokens":3,"output_tokens":34}}"#,
        ],
    ),
    stream(
        "/v1beta/models/m:streamGenerateContent",
        Api::GeminiGenerateContent,
        &[
            r#"{"responseId":"g","modelVersion":"m","candidates":[{"index":0,"content":{"parts":[{"text":"Think","thought":true},{"text":"Hello"}]}}]}"#,
            r#"{"candidates":[{"index":0,"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":34,"thoughtsTokenCount":5,"cachedContentTokenCount":3,"promptTokensDetails":[{"modality":"TEXT","tokenCount":12}]}}"#,
        ],
    ),
    body(
        "/v1beta/models/m:generateContent",
        Api::GeminiGenerateContent,
        &[
            r#"{"responseId":"g","modelVersion":"m","candidates":[{"index":0,"content":{"parts":[{"text":"Think","thought":true},{"text":"Hello"},{"functionCall":{"name":"f","args":{"a":1}}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":34}}"#,
        ],
    ),
    body(
        "/v1beta/interactions",
        Api::GeminiInteractions,
        &[
            r#"{"id":"g","model":"m","status":"completed","outputs":[{"type":"text","text":"Hello"},{"type":"function_call","arguments":{"a":1}}],"usage":{"total_input_tokens":12,"total_output_tokens":34}}"#,
        ],
    ),
    body(
        "/model/m/converse",
        Api::BedrockConverse,
        &[
            r#"{"output":{"message":{"content":[{"text":"Hello"},{"reasoningContent":{"reasoningText":{"text":"Think"}}},{"toolUse":{"toolUseId":"t","name":"f","input":{"a":1}}}]}},"stopReason":"end_turn","usage":{"inputTokens":12,"outputTokens":34},"metrics":{"latencyMs":5}}"#,
        ],
    ),
    stream(
        "/api/chat",
        Api::OllamaChat,
        &[
            r#"{"model":"m","message":{"content":"Hello","thinking":"Think"},"done":false}"#,
            r#"{"model":"m","message":{"content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},"done":true,"done_reason":"stop","prompt_eval_count":12,"eval_count":34,"total_duration":5000,"eval_duration":4000}"#,
        ],
    ),
    stream(
        "/api/generate",
        Api::OllamaGenerate,
        &[
            r#"{"model":"m","response":"Hello","done":false}"#,
            r#"{"model":"m","response":"","done":true,"done_reason":"stop","prompt_eval_count":12,"eval_count":34}"#,
        ],
    ),
    stream(
        "/v2/chat",
        Api::CohereV2Chat,
        &[
            r#"{"id":"c","type":"message-start","delta":{"message":{"role":"assistant"}}}"#,
            r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"Hello"}}}}"#,
            r#"{"type":"tool-call-delta","index":1,"delta":{"message":{"tool_calls":{"function":{"arguments":"{\"a\":1}"}}}}}"#,
            r#"{"type":"message-end","delta":{"finish_reason":"COMPLETE","usage":{"tokens":{"input_tokens":12,"output_tokens":34}}}}"#,
        ],
    ),
    body(
        "/v2/chat",
        Api::CohereV2Chat,
        &[
            r#"{"id":"c","finish_reason":"COMPLETE","message":{"content":[{"type":"text","text":"Hello"}],"tool_calls":[{"function":{"arguments":"{\"a\":1}"}}]},"usage":{"tokens":{"input_tokens":12,"output_tokens":34}}}"#,
        ],
    ),
    body(
        "/v1/chat",
        Api::CohereV1Chat,
        &[
            r#"{"generation_id":"c","text":"Hello","finish_reason":"COMPLETE","meta":{"tokens":{"input_tokens":12,"output_tokens":34}}}"#,
        ],
    ),
    stream(
        "/generate_stream",
        Api::TgiGenerate,
        &[
            r#"{"token":{"text":"Hello","special":false}}"#,
            r#"{"token":{"text":"</s>","special":true},"generated_text":"Hello","details":{"finish_reason":"eos_token","input_length":12,"generated_tokens":34}}"#,
        ],
    ),
    stream(
        "/completion",
        Api::LlamaCppCompletion,
        &[
            r#"{"index":0,"content":"Hello","stop":false}"#,
            r#"{"index":0,"content":"","stop":true,"stop_type":"eos","model":"m","tokens_evaluated":12,"tokens_predicted":34,"timings":{"prompt_ms":1.5,"predicted_ms":2.5}}"#,
        ],
    ),
    body(
        "/generate",
        Api::SglangGenerate,
        &[
            r#"{"text":"Hello","meta_info":{"id":"s","finish_reason":{"type":"stop"},"prompt_tokens":12,"completion_tokens":34,"cached_tokens":3,"e2e_latency":0.5}}"#,
        ],
    ),
    stream(
        "/v2/models/m/generate_stream",
        Api::TritonGenerate,
        &[
            r#"{"model_name":"m","text_output":"Hello","num_input_tokens":12,"num_output_tokens":34,"finish_reason":"stop"}"#,
        ],
    ),
    body(
        "/ml/v1/text/generation",
        Api::WatsonxGeneration,
        &[
            r#"{"model_id":"m","results":[{"generated_text":"Hello","input_token_count":12,"generated_token_count":34,"stop_reason":"eos_token"}]}"#,
        ],
    ),
    body(
        "/api/v1/services/aigc/text-generation/generation",
        Api::DashScopeGeneration,
        &[
            r#"{"request_id":"d","output":{"choices":[{"message":{"content":"Hello","reasoning_content":"Think"},"finish_reason":"stop"}]},"usage":{"input_tokens":12,"output_tokens":34}}"#,
        ],
    ),
    body(
        "/client/v4/accounts/a/ai/run/m",
        Api::CloudflareRun,
        &[
            r#"{"result":{"response":"Hello","usage":{"prompt_tokens":12,"completion_tokens":34}},"success":true}"#,
        ],
    ),
    body(
        "/complete",
        Api::AlephAlphaComplete,
        &[
            r#"{"completions":[{"completion":"Hello","finish_reason":"end_of_text"}],"num_tokens_prompt_total":12,"num_tokens_generated":34}"#,
        ],
    ),
];

/// What was read from a response.
#[derive(Debug, Default, PartialEq)]
struct Reading {
    texts: BTreeMap<String, String>,
    other: Vec<String>,
    usage: Usage,
    is_odd: bool,
}

impl Reading {
    fn add(&mut self, event: &Event<'_>) {
        match event {
            Event::Text { choice, part, text } => {
                let key = format!("{choice} {part:?}");
                self.texts.entry(key).or_default().push_str(text);
            }
            Event::Usage(usage) => self.usage.merge(**usage),
            Event::ParseError(error) => {
                assert!(matches!(error, ParseError::BadJson | ParseError::BadCount), "{error:?}");
                self.is_odd = true;
            }
            event @ (Event::Started { .. }
            | Event::Call { .. }
            | Event::Stopped { .. }
            | Event::Failed { .. }
            | Event::Tier { .. }
            | Event::Timings(_)
            | Event::Compacted
            | Event::Answered
            | Event::Done) => self.other.push(format!("{event:?}")),
        }
    }

    fn text_bytes(&self) -> usize {
        self.texts.values().map(String::len).sum()
    }
}

impl Sample {
    fn read(&self, messages: &[String]) -> Reading {
        let content_type = match (self.is_stream, self.path) {
            (false, _) => "application/json",
            (true, "/api/chat" | "/api/generate") => "application/x-ndjson",
            (true, _) => "text/event-stream",
        };
        let mut parser = ResponseParser::builder(self.path)
            .api(self.api)
            .content_type(content_type)
            .build()
            .unwrap();
        let mut reading = Reading::default();
        for message in messages {
            let bytes = match content_type {
                "application/json" => message.clone(),
                "application/x-ndjson" => format!("{message}\n"),
                _ => format!("data: {message}\n\n"),
            };
            parser.push(bytes.as_bytes(), |event, _| reading.add(event));
        }
        parser.finish(|event, _| reading.add(event));
        reading
    }

    /// Returns the messages with sorted keys, like the changed messages.
    fn messages(&self) -> Vec<String> {
        let sorted = |json: &&str| serde_json::from_str::<Value>(json).unwrap().to_string();
        self.messages.iter().map(sorted).collect()
    }

    /// Reads the response with another text for one message.
    fn with(&self, number: usize, message: String) -> Reading {
        let mut messages = self.messages();
        *messages.get_mut(number).unwrap() = message;
        self.read(&messages)
    }
}

/// Returns the pointers to all values below the root. Arguments of a tool call are left out, because any JSON is valid
/// there.
fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    let members: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(list) => {
            list.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    let is_text = |key: &str, value: &Value| {
        matches!(key, "input" | "args" | "arguments") && value.is_object()
    };
    for (key, value) in members.into_iter().filter(|(key, value)| !is_text(key, value)) {
        let at = format!("{at}/{key}");
        all.push(at.clone());
        pointers(value, &at, all);
    }
}

fn replaced(message: &Value, pointer: &str, by: &Value) -> String {
    let mut message = message.clone();
    *message.pointer_mut(pointer).unwrap() = by.clone();
    message.to_string()
}

/// Returns values of other types, each with the value that it means, if any.
fn odd_values(value: &Value) -> Vec<(Value, Option<Value>)> {
    let object = json!({"x": 1});
    match value {
        Value::String(text) => vec![
            (json!(17), Some(json!("17"))),
            (json!(1.5), Some(json!("1.5"))),
            (json!(true), None),
            (object, None),
            (json!([[{"x": 1}]]), None),
            (json!({"text": text}), Some(value.clone())),
        ],
        Value::Number(number) => vec![
            (json!(number.to_string()), Some(value.clone())),
            (json!(number.as_f64().unwrap() + 0.25), None),
            (json!("many"), None),
            (json!(true), None),
            (json!(-1), None),
            // Triton repeats a count for each sequence of a batch.
            (json!([number]), Some(value.clone())),
            (object, None),
        ],
        Value::Bool(flag) => vec![
            (json!(flag.to_string()), Some(value.clone())),
            (json!(i32::from(*flag)), Some(value.clone())),
            (json!("many"), None),
            (json!(17), None),
            (object, None),
        ],
        Value::Object(_) => vec![
            (json!([value]), Some(value.clone())),
            (json!("text"), None),
            (json!(17), None),
            (json!(true), None),
        ],
        Value::Array(list) => {
            let single = match list.as_slice() {
                [Value::Object(single)] => Some((json!(single), Some(value.clone()))),
                _ => None,
            };
            let others = [(json!(17), None), (json!(true), None)];
            others.into_iter().chain(single).collect()
        }
        Value::Null => Vec::new(),
    }
}

/// Returns whether a value of an unusual type has a meaning of its own at this place.
fn is_meaningful(pointer: &str, odd: &Value) -> bool {
    let key = pointer.rsplit('/').next().unwrap_or_default();
    match key {
        // Any JSON: the arguments of a tool call, and a response in Cloudflare's JSON mode.
        "arguments" | "response" => true,
        // A text without its list of parts. A part of DashScope has no type.
        "content" => {
            odd.is_string()
                || odd.is_number()
                || pointer.starts_with("/output/choices") && !odd.is_boolean()
        }
        // A name without its object.
        "finish_reason" => odd.is_string() || odd.is_number(),
        "latencyMs" | "predicted_ms" | "prompt_ms" | "e2e_latency" => odd.is_f64(),
        // A vector of any form.
        _ => pointer == "/data/0",
    }
}

/// Writes `value` as JSON. Writes the member at `pointer` twice.
fn with_repetition(value: &Value, at: &str, pointer: &str) -> String {
    match value {
        Value::Object(map) => {
            let mut members = Vec::new();
            for (key, value) in map {
                let at = format!("{at}/{key}");
                let member = format!("{}:{}", json!(key), with_repetition(value, &at, pointer));
                if at == pointer {
                    members.push(member.clone());
                }
                members.push(member);
            }
            format!("{{{}}}", members.join(","))
        }
        Value::Array(list) => {
            let element = |(number, value): (usize, &Value)| {
                with_repetition(value, &format!("{at}/{number}"), pointer)
            };
            let elements: Vec<String> = list.iter().enumerate().map(element).collect();
            format!("[{}]", elements.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// Calls `check` for each value of each sample that is read.
fn for_each_value(mut check: impl FnMut(&Sample, usize, &Value, &str, &Reading, &Reading)) {
    let mut checked = 0;
    for sample in SAMPLES {
        let whole = sample.read(&sample.messages());
        let counts =
            (whole.usage.input, whole.usage.output.is_some() || sample.path == "/v1/embeddings");
        assert!(
            !whole.is_odd && counts.0.is_some_and(|it| it >= 12) && counts.1,
            "{}: {whole:?}",
            sample.path
        );
        for (number, message) in sample.messages.iter().enumerate() {
            let message: Value = serde_json::from_str(message).unwrap();
            let mut all = Vec::new();
            pointers(&message, "", &mut all);
            for pointer in all {
                let absent = sample.with(number, replaced(&message, &pointer, &Value::Null));
                if absent != whole {
                    checked += 1;
                    check(sample, number, &message, &pointer, &whole, &absent);
                }
            }
        }
    }
    assert!(checked > 150, "{checked} values are read");
}

#[test]
fn null_is_absent() {
    for_each_value(|sample, number, message, pointer, _, absent| {
        let parent = pointer.rsplit_once('/').unwrap().0;
        let mut without = message.clone();
        if let Some(Value::Object(object)) = without.pointer_mut(parent) {
            object.remove(pointer.rsplit_once('/').unwrap().1);
            let removed = sample.with(number, without.to_string());
            assert_eq!(*absent, removed, "{} {pointer}", sample.path);
        }
        assert!(!absent.is_odd, "{} {pointer}", sample.path);
    });
}

#[test]
fn odd_values_are_read_as_what_they_mean_or_counted() {
    let mut failures = Vec::new();
    for_each_value(|sample, number, message, pointer, whole, _| {
        for (odd, meant) in odd_values(message.pointer(pointer).unwrap()) {
            let reading = sample.with(number, replaced(message, pointer, &odd));
            let is_understood = meant.is_some_and(|meant| {
                sample.with(number, replaced(message, pointer, &meant)) == reading
            });
            if is_meaningful(pointer, &odd) {
                continue;
            }
            let is_double = reading.usage.input > whole.usage.input.max(Some(17))
                || reading.text_bytes() > whole.text_bytes() + 8;
            if !reading.is_odd && !is_understood || is_double {
                failures.push(format!(
                    "{} {} {pointer} = {odd}: {reading:?}",
                    sample.path, sample.is_stream
                ));
            }
        }
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn repeated_keys_are_not_counted_twice() {
    let mut failures = Vec::new();
    for_each_value(|sample, number, message, pointer, whole, _| {
        let reading = sample.with(number, with_repetition(message, "", pointer));
        let is_same = reading.usage == whole.usage && reading.texts == whole.texts;
        if !is_same {
            failures.push(format!("{} {} {pointer}: {reading:?}", sample.path, sample.is_stream));
        }
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn parts_are_read_as_one_text() {
    let sample = SAMPLES.first().unwrap();
    let text = |part: Part| format!("0 {part:?}");
    let reading = sample
        .with(1, r#"{"choices":{"delta":{"content":{"type":"text","text":"Hi"}}}}"#.to_owned());
    assert_eq!(reading.texts.get(&text(Part::Text)).map(String::as_str), Some("Hi"));
    let arguments = r#"{"choices":[{"delta":{"tool_calls":{"id":"t","function":{"name":"f","arguments":{"a":1}}}}}]}"#;
    let reading = sample.with(2, arguments.to_owned());
    assert_eq!(reading.texts.get(&text(Part::Tool(0))).map(String::as_str), Some(r#"{"a":1}"#));
    assert!(!reading.is_odd);
}

/// Many responses are read on one thread, in turns.
#[test]
fn an_odd_value_of_one_response_is_not_counted_for_another() {
    let parser = |kind| {
        let builder = ResponseParser::builder("/v1/chat/completions").api(Api::OpenAiChat);
        builder.content_type(kind).build().unwrap()
    };
    let (mut healthy, mut reading) = (parser("application/json"), Reading::default());
    let body = r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    healthy.push(body.as_bytes(), |event, _| reading.add(event));
    let failed = "event: error\ndata: {\"error\":{\"message\":\"No.\"},\"model\":{\"x\":1}}\n\n";
    parser("text/event-stream").push(failed.as_bytes(), |_, _| {});
    healthy.finish(|event, _| reading.add(event));
    assert!(!reading.is_odd, "{reading:?}");
}
