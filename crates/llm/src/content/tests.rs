//! Tests the content captured from requests and responses of each API family against the GenAI semantic conventions.

use serde_json::json;

use super::*;
use crate::budget::RequestBudget;
use crate::dialect::{DetectedApi, RequestReader, ResponseReader};
use crate::frame::{Frame, Framer};

fn policy(max_bytes: usize, redact: &[&str]) -> Arc<CapturePolicy> {
    let entries: Vec<String> = redact.iter().map(|entry| (*entry).to_owned()).collect();
    let redact = Redactor::new(&entries).unwrap();
    Arc::new(CapturePolicy { max_bytes, redact })
}

/// Returns the content captured from a request and its response, whose bodies arrive in pieces of the given size.
fn captured(
    api: Api,
    policy: &Arc<CapturePolicy>,
    request: &str,
    answer: &str,
    pieces: usize,
) -> CapturedContent {
    let mut asked = RequestCapture::new(policy, &RequestBudget::default());
    request.as_bytes().chunks(pieces).for_each(|piece| asked.push(piece));
    let found = DetectedApi { api, model: None, stream: None, body_decides: false };
    let mut facts = RequestReader::new(&found);
    facts.push(request.as_bytes());
    let mut heard = asked.heard();
    let mut reader = ResponseReader::new(api, &facts.finish(), 200, &RequestBudget::default());
    let mut reasons = Vec::new();
    let mut take = |frame: Frame<'_>| {
        reader.read(&frame, &mut |event| {
            if let crate::dialect::Event::Stopped { reason, .. } = &event {
                reasons.push(Name::new(reason));
            }
            if let Some(heard) = &mut heard {
                heard.event(&event);
            }
        });
    };
    let kind = if answer.starts_with('{') { "application/json" } else { "text/event-stream" };
    let mut framer = Framer::new(Some(kind), api.json());
    answer.as_bytes().chunks(pieces).for_each(|piece| framer.push(piece, &mut take));
    framer.finish(&mut take);
    let content = assemble(api, asked, heard.as_ref(), &reasons);
    assert_valid(&content);
    content
}

/// Returns the captured content. Asserts that it is the same for every piece size.
fn call(api: Api, request: &str, answer: &str) -> CapturedContent {
    let policy = policy(CapturePolicy::MAX_BYTES, &["secrets"]);
    let whole = captured(api, &policy, request, answer, usize::MAX);
    for pieces in [1, 7] {
        assert_eq!(captured(api, &policy, request, answer, pieces), whole);
    }
    whole
}

fn read(text: Option<&String>) -> Value {
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

fn sse(messages: &[&str]) -> String {
    messages.iter().map(|message| format!("data: {message}\n\n")).collect()
}

/// The requirements of the JSON schemas of gen_ai.input.messages, gen_ai.output.messages, gen_ai.system_instructions
/// and gen_ai.tool.definitions: the required fields of each type of part, and their types. Parts of other types are
/// allowed and require only their type.
const REQUIRED: &[(&str, &[(&str, &str)])] = &[
    ("text", &[("content", "string")]),
    ("reasoning", &[("content", "string")]),
    ("tool_call", &[("name", "string")]),
    ("tool_call_response", &[("response", "any")]),
    ("uri", &[("modality", "string"), ("uri", "string")]),
    ("file", &[("modality", "string"), ("file_id", "string")]),
    ("blob", &[("modality", "string"), ("content", "string")]),
];

fn assert_valid(content: &CapturedContent) {
    let list = |text: &Option<String>| {
        let list: Option<Vec<Value>> =
            text.as_ref().map(|text| serde_json::from_str(text).unwrap());
        assert!(
            list.as_ref().is_none_or(|items| !items.is_empty()),
            "an empty list must be absent"
        );
        list.unwrap_or_default()
    };
    for message in list(&content.input_messages).iter().chain(&list(&content.output_messages)) {
        assert!(message["role"].is_string(), "{message}");
        assert!(message.get("name").is_none_or(Value::is_string), "{message}");
        assert!(message.get("finish_reason").is_none_or(Value::is_string), "{message}");
        message["parts"].as_array().unwrap().iter().for_each(part);
    }
    list(&content.system_instructions).iter().for_each(part);
    for tool in list(&content.tool_definitions) {
        assert!(tool["type"].is_string() && tool["name"].is_string(), "{tool}");
        let parameters = tool.get("parameters");
        assert!(parameters.is_none_or(Value::is_object), "{tool}");
    }
}

fn part(part: &Value) {
    let kind = part["type"].as_str().unwrap_or_else(|| panic!("no type: {part}"));
    let required = REQUIRED.iter().find(|(known, _)| *known == kind);
    for (field, of) in required.map_or(&[][..], |(_, fields)| fields) {
        let value = part.get(field).unwrap_or_else(|| panic!("no {field}: {part}"));
        assert!(*of == "any" || value.is_string(), "{field} of {part}");
    }
    assert!(part.get("id").is_none_or(Value::is_string), "{part}");
}

fn chat_request() -> Value {
    json!({
        "model": "gpt-4o",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "name": "ann", "content": [
                {"type": "text", "text": "Weather here?"},
                {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": "{\"at\":\"Rome\"}"}},
            ]},
            {"role": "tool", "tool_call_id": "call_0", "content": "rain"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "weather", "description": "Of a place", "parameters": {"type": "object"}}},
            {"type": "web_search"},
        ],
    })
}

fn chat_answer() -> String {
    sse(&[
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning_content":"Hm"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"It "}}]}"#,
        r#"{"choices":[{"index":1,"delta":{"refusal":"No."}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"rains."}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"umbrella","arguments":""}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"n\":"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"2}"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
        r#"{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ])
}

#[test]
fn captures_a_chat_with_tools() {
    let content = call(Api::OpenAiChat, &chat_request().to_string(), &chat_answer());
    assert_eq!(
        read(content.input_messages.as_ref()),
        json!([
            {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
            {"role": "user", "name": "ann", "parts": [
                {"type": "text", "content": "Weather here?"},
                {"type": "uri", "modality": "image", "uri": "https://a/b.png"},
            ]},
            {"role": "assistant", "parts": [
                {"type": "tool_call", "id": "call_0", "name": "weather", "arguments": {"at": "Rome"}},
            ]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_0", "response": "rain"}]},
        ])
    );
    assert_eq!(
        read(content.output_messages.as_ref()),
        json!([
            {"role": "assistant", "finish_reason": "tool_calls", "parts": [
                {"type": "reasoning", "content": "Hm"},
                {"type": "text", "content": "It rains."},
                {"type": "tool_call", "id": "call_1", "name": "umbrella", "arguments": {"n": 2}},
            ]},
            {"role": "assistant", "finish_reason": "stop", "parts": [{"type": "refusal", "content": "No."}]},
        ])
    );
    assert_eq!(
        read(content.tool_definitions.as_ref()),
        json!([
            {"type": "function", "name": "weather", "description": "Of a place", "parameters": {"type": "object"}},
            {"type": "web_search", "name": "web_search"},
        ])
    );
    assert_eq!(
        (content.truncated, content.left_out),
        (false, 1),
        "the image in the request is left out"
    );
}

#[test]
fn captures_and_redacts_stop_sequences() {
    let answer = r#"{"choices":[{"index":0,"finish_reason":"stop","message":{"content":"Hi"}}]}"#;
    for (api, request, expected) in [
        (Api::OpenAiChat, r#""stop":"END""#, &["END"][..]),
        (
            Api::OpenAiChat,
            r#""stop":["a",7,"sk-proj-abcdefghijklmnopqrstuvwxyz123456"]"#,
            &["a", REDACTED],
        ),
        (Api::AnthropicMessages, r#""stop_sequences":["\n\n"]"#, &["\n\n"]),
        (Api::GeminiGenerateContent, r#""generationConfig":{"stopSequences":["x"]}"#, &["x"]),
        (Api::BedrockConverse, r#""inferenceConfig":{"stopSequences":["x"]}"#, &["x"]),
        (Api::OllamaChat, r#""options":{"stop":["x","y"]}"#, &["x", "y"]),
        (Api::OpenAiChat, r#""stop":null"#, &[]),
    ] {
        let content = call(api, &format!("{{\"messages\":[],{request}}}"), answer);
        assert_eq!(content.stop_sequences, expected, "{request}");
    }
}

#[test]
fn captures_tool_calls_of_a_non_streaming_chat() {
    let answer = json!({"id": "x", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": "Hi", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}}]});
    let content = call(Api::OpenAiChat, r#"{"prompt":"never"}"#, &answer.to_string());
    let parts = &read(content.output_messages.as_ref())[0]["parts"];
    let call = json!({"type": "tool_call", "id": "call_1", "name": "f", "arguments": {"a": 1}});
    assert_eq!(*parts, json!([{"type": "text", "content": "Hi"}, call]));
}

#[test]
fn converts_responses_items() {
    let request = json!({"instructions": "Be kind.", "text": {"format": {"type": "text"}}, "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "c0", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c0", "output": "done"},
        {"type": "computer_call"},
    ], "tools": [{"type": "function", "name": "f", "parameters": {}}]});
    let answer = sse(&[
        r#"{"type":"response.created","response":{"id":"r","status":"in_progress"}}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Hello"}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"a\":1}"}"#,
        r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"i","type":"function_call","arguments":"{\"a\":1}","call_id":"c1","name":"g"}}"#,
        r#"{"type":"response.completed","response":{"id":"r","status":"completed","output":[]}}"#,
    ]);
    let content = call(Api::OpenAiResponses, &request.to_string(), &answer);
    assert_eq!(
        read(content.system_instructions.as_ref()),
        json!([{"type": "text", "content": "Be kind."}])
    );
    assert_eq!(
        read(content.input_messages.as_ref()),
        json!([
            {"role": "user", "parts": [{"type": "text", "content": "Hi"}]},
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "c0", "name": "f", "arguments": {}}]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c0", "response": "done"}]},
        ])
    );
    assert_eq!(
        read(content.output_messages.as_ref()),
        json!([{"role": "assistant", "finish_reason": "completed", "parts": [
            {"type": "text", "content": "Hello"},
            {"type": "tool_call", "id": "c1", "name": "g", "arguments": {"a": 1}},
        ]}])
    );
    assert_eq!(content.left_out, 1, "an unknown type is left out");
}

#[test]
fn converts_anthropic_blocks() {
    let request = json!({"system": [{"type": "text", "text": "Be kind."}], "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm", "signature": "x"},
            {"type": "tool_use", "id": "t0", "name": "f", "input": {"a": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t0", "content": "done"},
            {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
        ]},
    ], "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}},
        {"type": "web_search_20250305", "name": "web_search"}]});
    let answer =
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n\n"
            .to_owned()
            + &sse(&[
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Yes"}}"#,
                r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"g","input":{}}}"#,
                r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"b\":2}"}}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
                r#"{"type":"message_stop"}"#,
            ]);
    let content = call(Api::AnthropicMessages, &request.to_string(), &answer);
    assert_eq!(
        read(content.input_messages.as_ref()),
        json!([
            {"role": "user", "parts": [{"type": "text", "content": "Hi"}]},
            {"role": "assistant", "parts": [
                {"type": "reasoning", "content": "Hm"},
                {"type": "tool_call", "id": "t0", "name": "f", "arguments": {"a": 1}},
            ]},
            {"role": "user", "parts": [{"type": "tool_call_response", "id": "t0", "response": "done"}]},
        ])
    );
    let output = json!([{"role": "assistant", "finish_reason": "tool_use", "parts": [
        {"type": "text", "content": "Yes"},
        {"type": "tool_call", "id": "t1", "name": "g", "arguments": {"b": 2}},
    ]}]);
    assert_eq!(read(content.output_messages.as_ref()), output);
    assert_eq!(read(content.tool_definitions.as_ref())[1]["type"], "web_search_20250305");
    assert_eq!(content.left_out, 1);
    let whole = json!({"id": "m", "type": "message", "role": "assistant", "content": [
        {"type": "text", "text": "Yes"},
        {"type": "tool_use", "id": "t1", "name": "g", "input": {"b": 2}},
    ], "stop_reason": "tool_use"});
    let content = call(Api::AnthropicMessages, &request.to_string(), &whole.to_string());
    assert_eq!(read(content.output_messages.as_ref()), output);
}

#[test]
fn converts_gemini_contents() {
    let request = json!({"systemInstruction": {"parts": [{"text": "Be kind."}]}, "contents": [
        {"role": "user", "parts": [{"text": "Hi"}, {"inlineData": {"data": "AAAA"}},
            {"fileData": {"mimeType": "audio/wav", "fileUri": "gs://a/b"}}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"r": 2}}}]},
    ], "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT"}}]}, {"googleSearch": {}}]});
    let answer = sse(&[
        r#"{"candidates":[{"content":{"parts":[{"text":"So","thought":true}],"role":"model"}}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"Yes"},{"functionCall":{"id":"c","name":"g","args":{"b":2}}}]},"finishReason":"STOP"}]}"#,
    ]);
    let content = call(Api::GeminiGenerateContent, &request.to_string(), &answer);
    assert_eq!(
        read(content.input_messages.as_ref()),
        json!([
            {"role": "user", "parts": [
                {"type": "text", "content": "Hi"},
                {"type": "uri", "modality": "audio", "uri": "gs://a/b"},
            ]},
            {"role": "assistant", "parts": [{"type": "tool_call", "name": "f", "arguments": {"a": 1}}]},
            {"role": "user", "parts": [{"type": "tool_call_response", "id": "f", "response": {"r": 2}}]},
        ])
    );
    let parts = json!([
        {"type": "reasoning", "content": "So"},
        {"type": "text", "content": "Yes"},
        {"type": "tool_call", "id": "c", "name": "g", "arguments": {"b": 2}},
    ]);
    assert_eq!(read(content.output_messages.as_ref())[0]["parts"], parts);
    let tools = json!([
        {"type": "function", "name": "f", "parameters": {"type": "OBJECT"}},
        {"type": "googleSearch", "name": "googleSearch"},
    ]);
    assert_eq!(read(content.tool_definitions.as_ref()), tools);
    let whole = json!({"candidates": [{"content": {"parts": [{"text": "So", "thought": true}, {"text": "Yes"},
        {"functionCall": {"id": "c", "name": "g", "args": {"b": 2}}}]}, "finishReason": "STOP"}]});
    let content = call(Api::GeminiGenerateContent, &request.to_string(), &whole.to_string());
    assert_eq!(read(content.output_messages.as_ref())[0]["parts"], parts);
}

#[test]
fn converts_bedrock_blocks() {
    let request = json!({"system": [{"text": "Be kind."}], "messages": [
        {"role": "user", "content": [{"text": "Hi"}, {"image": {"format": "png"}}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t0", "name": "f", "input": {"a": 1}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "t0", "content": [{"text": "done"}]}}]},
    ], "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}}]}});
    let whole = json!({"output": {"message": {"role": "assistant", "content": [
        {"text": "Yes"}, {"toolUse": {"toolUseId": "t1", "name": "g", "input": {"b": 2}}}]}},
        "stopReason": "tool_use"});
    let content = call(Api::BedrockConverse, &request.to_string(), &whole.to_string());
    let input = read(content.input_messages.as_ref());
    assert_eq!(input[0]["parts"], json!([{"type": "text", "content": "Hi"}]));
    assert_eq!(input[1]["parts"][0]["name"], "f");
    assert_eq!(input[2]["parts"][0]["response"], json!([{"text": "done"}]));
    assert_eq!(
        read(content.output_messages.as_ref()),
        json!([{"role": "assistant", "finish_reason": "tool_use", "parts": [
            {"type": "text", "content": "Yes"},
            {"type": "tool_call", "id": "t1", "name": "g", "arguments": {"b": 2}},
        ]}])
    );
    assert_eq!(read(content.tool_definitions.as_ref())[0]["parameters"], json!({"type": "object"}));
    assert_eq!(content.left_out, 1);
}

#[test]
fn converts_chats_and_prompts_of_cohere_ollama_and_others() {
    let input = |api, request: Value, answer: &str| {
        let content = call(api, &request.to_string(), answer);
        (read(content.input_messages.as_ref()), read(content.output_messages.as_ref()))
    };
    let user = |text: &str| json!([{"role": "user", "parts": [{"type": "text", "content": text}]}]);
    let chat = json!({"messages": [{"role": "user", "content": "Hi"}]});
    let answer = json!({"message": {"role": "assistant", "content": "Yes",
        "tool_calls": [{"function": {"name": "g", "arguments": {"b": 2}}}]}, "done": true, "done_reason": "stop"});
    let (asked, answered) = input(Api::OllamaChat, chat.clone(), &answer.to_string());
    assert_eq!(asked, user("Hi"));
    let call = json!({"type": "tool_call", "name": "g", "arguments": {"b": 2}});
    assert_eq!(answered[0]["parts"], json!([{"type": "text", "content": "Yes"}, call]));
    let answer = sse(&[
        r#"{"type":"tool-call-start","index":0,"delta":{"message":{"tool_calls":{"id":"t","type":"function","function":{"name":"g","arguments":""}}}}}"#,
        r#"{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"{}"}}}}}"#,
        r#"{"type":"message-end","delta":{"finish_reason":"TOOL_CALL"}}"#,
    ]);
    let (asked, answered) = input(Api::CohereV2Chat, chat.clone(), &answer);
    assert_eq!((asked, &answered[0]["parts"][0]["name"]), (user("Hi"), &json!("g")));
    let first = json!({"preamble": "p", "message": "Hi", "chat_history": [{"role": "CHATBOT", "message": "Yo"}]});
    let (asked, _) = input(Api::CohereV1Chat, first, "");
    assert_eq!(asked[0]["role"], "assistant");
    assert_eq!(asked[1], user("Hi")[0]);
    for (api, request) in [
        (Api::OpenAiCompletions, json!({"prompt": "Hi"})),
        (Api::OpenAiEmbeddings, json!({"input": ["Hi"]})),
        (Api::OpenAiModerations, json!({"input": [{"type": "text", "text": "Hi"}]})),
        (Api::TgiGenerate, json!({"inputs": "Hi"})),
        (Api::SglangGenerate, json!({"text": "Hi"})),
        (Api::OllamaGenerate, json!({"prompt": "Hi"})),
        (Api::BedrockInvokeText, json!({"inputText": "Hi"})),
        (
            Api::BedrockInvoke,
            json!({"anthropic_version": "a", "messages": [{"role": "user", "content": "Hi"}]}),
        ),
        (
            Api::DashScopeGeneration,
            json!({"input": {"messages": [{"role": "user", "content": "Hi"}]}}),
        ),
        (Api::ReplicateStream, json!({"input": {"prompt": "Hi"}})),
    ] {
        assert_eq!(input(api, request, "").0, user("Hi"), "{}", api.as_str());
    }
}

#[test]
fn counts_content_that_is_left_out() {
    let none = |request: &str| {
        let content = call(Api::OpenAiChat, request, "");
        (content.input_messages, content.left_out)
    };
    assert_eq!(none("--form\r\nContent-Disposition"), (None, 1));
    assert_eq!(none(r#"{"unheard": "of"}"#), (None, 1));
    assert_eq!(none(r#"{"prompt": [1, 2, 3]}"#), (None, 3));
    assert_eq!(none(""), (None, 0));
}

#[test]
fn truncates_long_text_and_removes_partial_secrets() {
    let key = "sk-abcdefghijklmnopqrstuvwxyz0123456789";
    let long = |text: &str| json!({"messages": [{"role": "user", "content": text}]}).to_string();
    let chunk = |text: &str| {
        sse(&[&json!({"choices": [{"index": 0, "delta": {"content": text}}]}).to_string()])
    };
    let policy = policy(1 << 10, &["secrets"]);
    // The key begins at each position around the two limits.
    for before in (960..1100).chain(5_040..5_160) {
        let text = format!("{} {key} {}", "a".repeat(before), "b".repeat(6_000));
        let content = captured(Api::OpenAiChat, &policy, &long(&text), &chunk(&text), usize::MAX);
        assert!(content.truncated);
        for told in [content.input_messages, content.output_messages] {
            let told = told.unwrap();
            assert!(!told.contains("sk-") && told.len() < 1_200, "{before}: {told}");
            assert!(told.contains("aaa"));
        }
    }
    let content = captured(Api::OpenAiChat, &policy, &long("short"), &chunk("short"), usize::MAX);
    assert!(!content.truncated);
}

#[test]
fn redacts_secrets_in_every_field() {
    let key = "sk-abcdefghijklmnopqrstuvwxyz";
    let request = json!({"messages": [
        {"role": "user", "name": key, "content": key},
        {"role": "tool", "tool_call_id": key, "content": {"key": [key]}},
        {"role": "assistant", "tool_calls": [{"id": key, "function": {"name": key, "arguments": format!("{{\"{key}\":\"{key}\"}}")}}]},
    ], "tools": [{"type": "function", "function": {"name": key, "description": key, "parameters": {"default": key}}}],
    "instructions": key});
    let arguments = json!({"a": key}).to_string();
    let answer = sse(&[
        &json!({"choices": [{"index": 0, "delta": {"content": "sk-abcdefghij"}}]}).to_string(),
        &json!({"choices": [{"index": 0, "delta": {"content": "klmnopqrstuvwxyz"}}]}).to_string(),
        &json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": key,
            "function": {"name": key, "arguments": arguments}}]}}]})
        .to_string(),
    ]);
    let content = call(Api::OpenAiChat, &request.to_string(), &answer);
    let told = format!("{content:?}");
    assert!(!told.contains("sk-"), "{told}");
    assert_eq!(told.matches(REDACTED).count(), 16, "{told}");
}

#[test]
fn all_captures_share_a_budget_and_return_it() {
    let policy = policy(1 << 20, &[]);
    let budget = RequestBudget::default();
    let mut held: Vec<RequestCapture> = Vec::new();
    loop {
        let asked = RequestCapture::new(&policy, &budget);
        if !asked.has_room() {
            break;
        }
        held.push(asked);
    }
    assert_eq!(held.len(), budget.captures.limit() / (2 * (policy.max_bytes + REDACTION_MARGIN)));
    let mut late = RequestCapture::new(&policy, &budget);
    late.push(br#"{"prompt":"Hi"}"#);
    assert!(late.heard().is_none());
    let content = assemble(Api::OpenAiChat, late, None, &[]);
    assert_eq!((content.input_messages, content.truncated), (None, true));
    drop(held);
    assert_eq!(budget.captures.used(), 0);
    assert!(RequestCapture::new(&policy, &budget).has_room());
}

#[test]
fn captures_a_request_up_to_a_gap() {
    let policy = policy(1 << 10, &[]);
    let mut asked = RequestCapture::new(&policy, &RequestBudget::default());
    asked.push(br#"{"messages":[{"role":"user","content":"one"},{"role":"us"#);
    asked.gap();
    asked.push(br#"er","content":"two"}]}"#);
    let content = assemble(Api::OpenAiChat, asked, None, &[]);
    assert!(content.truncated);
    let input = read(content.input_messages.as_ref());
    assert_eq!(input, json!([{"role": "user", "parts": [{"type": "text", "content": "one"}]}]));
}
