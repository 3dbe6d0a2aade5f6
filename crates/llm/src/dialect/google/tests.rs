//! Tests responses of Gemini and Vertex AI. Each body is read in one piece, byte by byte, and split in two at every
//! position.

use proptest::prelude::*;

use crate::dialect::testing::{
    JSON, STREAM, TestResponse, events, failed, started, stopped, usage,
};
use crate::dialect::*;
use tokengauge_types::label::Name;

const GENERATE: Api = Api::GeminiGenerateContent;

fn read(api: Api, status: u16, body: &str) -> Vec<String> {
    TestResponse::new(api, JSON).status(status).read(body.as_bytes())
}

/// Returns a stream of server-sent events with CRLF line ends, as Google sends them.
fn sse(messages: &[&str]) -> Vec<String> {
    let body = events(messages).replace('\n', "\r\n");
    TestResponse::new(GENERATE, STREAM).read(body.as_bytes())
}

/// Returns the same messages as one list, in Google's formatting.
fn array(messages: &[&str]) -> Vec<String> {
    let printed = messages.iter().map(|message| {
        let value: serde_json::Value = serde_json::from_str(message).unwrap();
        serde_json::to_string_pretty(&value).unwrap()
    });
    let body = format!("[{}\n]\n", printed.collect::<Vec<_>>().join("\n,\r\n"));
    read(GENERATE, 200, &body)
}

/// Returns a message whose only candidate has these parts.
fn parts(parts: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"index":0}}]}}"#)
}

/// Returns the events of a stream with one message per list of parts.
fn lines(lists: &[&str]) -> Vec<String> {
    let messages: Vec<String> = lists.iter().map(|list| parts(list)).collect();
    let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
    let streamed = sse(&messages);
    assert_eq!(array(&messages), streamed, "as an array");
    streamed
}

fn whole(parts_of: &str) -> Vec<String> {
    read(GENERATE, 200, &parts(parts_of))
}

fn counted(usage: Usage) -> String {
    format!("{:?}", Event::Usage(&usage))
}

const ORDINARY: [&str; 4] = [
    r#"{"candidates":[{"content":{"parts":[{"text":"**Weighing it**\n\nTwo ways.","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":11,"totalTokenCount":11,"promptTokensDetails":[{"modality":"TEXT","tokenCount":11}],"serviceTier":"standard"},"modelVersion":"gemini-x","responseId":"r-1"}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":"Good \"day"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":3,"totalTokenCount":54,"cachedContentTokenCount":8,"promptTokensDetails":[{"modality":"TEXT","tokenCount":11}],"thoughtsTokenCount":40,"serviceTier":"standard"},"modelVersion":"gemini-x","responseId":"r-1"}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":"\" é😀"}],"role":"model"},"finishReason":"STOP","index":0}],"modelVersion":"gemini-x","responseId":"r-1"}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":"","thoughtSignature":"c2ln"}],"role":"model"},"finishReason":"STOP","index":0,"safetyRatings":[]}],"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":2,"totalTokenCount":60,"toolUsePromptTokenCount":5,"toolUsePromptTokensDetails":[{"modality":"TEXT","tokenCount":5}],"cachedContentTokenCount":8,"cacheTokensDetails":[{"modality":"TEXT","tokenCount":8}],"promptTokensDetails":[{"modality":"TEXT","tokenCount":9},{"modality":"IMAGE","tokenCount":3}],"candidatesTokensDetails":[{"modality":"TEXT","tokenCount":2}],"thoughtsTokenCount":41},"modelVersion":"gemini-x","responseId":"r-1"}"#,
];

#[test]
fn reads_a_stream_of_events_and_a_list() {
    let modalities = |text| ByModality { text: Some(text), ..ByModality::default() };
    let first = Usage { input: Some(11), input_by: modalities(11), ..Usage::default() };
    let second = Usage { output: Some(43), cache_read: Some(8), reasoning: Some(40), ..first };
    let last = Usage {
        input: Some(17),
        output: Some(43),
        cache_read: Some(8),
        cache_read_by: modalities(8),
        reasoning: Some(41),
        input_by: ByModality { image: Some(3), ..modalities(14) },
        output_by: modalities(43),
        ..Usage::default()
    };
    let expected = [
        started(Some("r-1"), Some("gemini-x")),
        r#"0 Reasoning "**Weighing it**\n\nTwo ways.""#.to_owned(),
        r#"Tier { service_tier: Some("standard"), system_fingerprint: None }"#.to_owned(),
        counted(first),
        r#"0 Text "Good \"day""#.to_owned(),
        counted(second),
        r#"0 Text "\" é😀""#.to_owned(),
        stopped(0, "STOP"),
        stopped(0, "STOP"),
        counted(last),
    ];
    assert_eq!(sse(&ORDINARY), expected);
    assert_eq!(array(&ORDINARY), expected);
}

#[test]
fn reads_the_same_from_a_json_body() {
    let [.., last] = ORDINARY;
    let text = r#"{"text":"Hm.","thought":true},{"text":"Good"},{"text":" day","thoughtSignature":"c2ln"}"#;
    let body = last.replace(r#"{"text":"","thoughtSignature":"c2ln"}"#, text);
    let pretty: serde_json::Value = serde_json::from_str(&body).unwrap();
    let pretty = serde_json::to_string_pretty(&pretty).unwrap();
    let lines = read(GENERATE, 200, &body);
    let usage = sse(&[last]).pop().unwrap();
    assert_eq!(
        lines,
        [
            r#"0 Reasoning "Hm.""#.to_owned(),
            r#"0 Text "Good day""#.to_owned(),
            stopped(0, "STOP"),
            usage,
            started(None, Some("gemini-x")),
            started(Some("r-1"), None),
        ]
    );
    let mut sorted = [lines, read(GENERATE, 200, &pretty)];
    sorted.iter_mut().for_each(|lines| lines.sort());
    assert_eq!(sorted[0], sorted[1], "in any order of keys");
}

#[test]
fn detects_a_thought_at_the_end_of_its_text() {
    let long = "x".repeat(70_000);
    for (before, after, part) in [
        (r#""thought":true,"#, "", "Reasoning"),
        ("", r#","thought":true"#, "Reasoning"),
        ("", r#","thought":false"#, "Text"),
    ] {
        let short = whole(&format!(r#"{{{before}"text":"Hm."{after}}}"#));
        assert_eq!(short, [format!(r#"0 {part} "Hm.""#)]);
    }
    // Text of this length is not held back, because no thought is as long.
    let body = parts(&format!(r#"{{"text":"{long}","thought":true}},{{"text":"b"}}"#));
    let lines = TestResponse::new(GENERATE, JSON).cut(&[body.as_bytes()]);
    assert_eq!(lines, [format!("0 Text \"{long}b\"")]);
    // Text that is held back when the body is cut off still counts.
    let cut = r#"{"candidates":[{"content":{"parts":[{"text":"Half a sen"#;
    assert_eq!(read(GENERATE, 200, cut), [r#"0 Text "Half a sen""#, "ParseError(Unterminated)"]);
}

#[test]
fn reads_arguments_as_text() {
    let calls = r#"{"functionCall":{"name":"f","args":{"city" : "Rome, \"IT\"", "days":[1, 2]},"id":"c1"},"thoughtSignature":"c2ln"},{"functionCall":{"name":"g","args":{}}},{"functionCall":{"name":"h"}},{"functionCall":{"name":"i","args":null}}"#;
    let expected =
        [r#"0 Tool(0) "{\"city\":\"Rome, \\\"IT\\\"\",\"days\":[1,2]}""#, r#"0 Tool(1) "{}""#];
    assert_eq!(lines(&[calls]), expected);
    assert_eq!(whole(calls), expected);
    let later = r#"{"functionCall":{"name":"j","args":{"a":1}}}"#;
    assert_eq!(lines(&[calls, later])[2], r#"0 Tool(4) "{\"a\":1}""#);
    let lone = r#"{"functionCall":{"name":"f","args":{"a":"\ud83d"}}},{"text":"\ud83d"}"#;
    assert_eq!(
        sse(&[&parts(lone)]),
        ["ParseError(BadText)", r#"0 Tool(0) "{\"a\":\"�\"}""#, "0 Text \"\u{FFFD}\""]
    );
}

#[test]
fn reads_streamed_arguments_as_values() {
    let messages = [
        r#"{"functionCall":{"name":"f","willContinue":true}}"#,
        r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.city","stringValue":"Ro","willContinue":true}],"willContinue":true}}"#,
        r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.city","stringValue":"me"}],"willContinue":true}}"#,
        r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.days","numberValue":1.50},{"jsonPath":"$.now","boolValue":true},{"jsonPath":"$.no","nullValue":null}]}}"#,
        r#"{"functionCall":{"name":"g","willContinue":true}}"#,
        r#"{"functionCall":{"partialArgs":[{"jsonPath":"$.id","stringValue":"A"}],"willContinue":true}}"#,
        r#"{"functionCall":{}}"#,
    ];
    let streamed = sse(&messages.map(parts).each_ref().map(String::as_str));
    assert_eq!(streamed, [r#"0 Tool(0) "Rome1.50true""#, r#"0 Tool(1) "A""#]);
}

#[test]
fn counts_code_but_not_its_output_or_images() {
    let list = r#"{"text":"So:"},{"executableCode":{"language":"PYTHON","code":"print(1)\n"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1\n"}},{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="}},{"toolCall":{"toolType":"GOOGLE_SEARCH_WEB","args":{"queries":["x"]},"id":"t"}},{"toolResponse":{"toolType":"GOOGLE_SEARCH_WEB","response":{"text":"y"}}},{"text":"1."}"#;
    let expected = [
        r#"0 Text "So:""#,
        r#"0 Tool(0) "print(1)\n""#,
        r#"0 Tool(1) "{\"queries\":[\"x\"]}""#,
        r#"0 Text "1.""#,
    ];
    assert_eq!(lines(&[list]), expected);
    assert_eq!(whole(list), expected);
}

#[test]
fn ends_each_candidate() {
    let messages = [
        r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"index":1},{"content":{"parts":[{"text":"b"}]}}]}"#,
        r#"{"candidates":[{"finishReason":"STOP","index":1}]}"#,
        r#"{"candidates":[{"content":{"role":"model"},"finishReason":"RECITATION","finishMessage":"…"}]}"#,
    ];
    let expected = [r#"1 Text "ab""#.to_owned(), stopped(1, "STOP"), stopped(0, "RECITATION")];
    assert_eq!(sse(&messages), expected);
    let both = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"},{"content":{"parts":[{"text":"b"},{"functionCall":{"name":"f","args":[]}}]},"finishReason":"MAX_TOKENS","index":1}]}"#;
    assert_eq!(
        read(GENERATE, 200, both),
        [
            r#"0 Text "a""#.to_owned(),
            stopped(0, "STOP"),
            r#"1 Text "b""#.to_owned(),
            r#"1 Tool(0) "[]""#.to_owned(),
            stopped(1, "MAX_TOKENS"),
        ]
    );
}

#[test]
fn reads_enums_as_numbers_and_numbers_as_strings() {
    let message = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":1}],"usageMetadata":{"promptTokenCount":"7","candidatesTokenCount":2.0,"trafficType":1,"promptTokensDetails":[{"modality":1,"tokenCount":3},{"modality":4,"tokenCount":"4"},{"modality":9,"tokenCount":1}]}}"#;
    let expected = Usage {
        input: Some(7),
        output: Some(2),
        input_by: ByModality { text: Some(3), audio: Some(4), ..ByModality::default() },
        ..Usage::default()
    };
    let expected = [r#"0 Text "a""#.to_owned(), stopped(0, "STOP"), counted(expected)];
    assert_eq!(array(&[message]), expected);
    assert_eq!(read(GENERATE, 200, message), expected);
    let unknown = r#"{"candidates":[{"finishReason":"FINISH_REASON_UNSPECIFIED"}]}"#;
    assert_eq!(sse(&[unknown]), [] as [String; 0]);
    assert_eq!(read(GENERATE, 200, unknown), [] as [String; 0]);
}

#[test]
fn reads_the_reason_for_a_refused_prompt() {
    let blocked = r#"{"promptFeedback":{"blockReason":"PROHIBITED_CONTENT","safetyRatings":[{"category":"x","blocked":true}]},"usageMetadata":{"promptTokenCount":9,"totalTokenCount":9}}"#;
    let expected = [stopped(0, "PROHIBITED_CONTENT"), usage([Some(9), None, None, None, None])];
    assert_eq!(sse(&[blocked]), expected);
    assert_eq!(array(&[blocked]), expected);
    assert_eq!(read(GENERATE, 200, blocked), expected);
    let rated = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"promptFeedback":{"blockReason":"BLOCK_REASON_UNSPECIFIED","safetyRatings":[]}}"#;
    assert_eq!(sse(&[rated]), [r#"0 Text "a""#]);
}

#[test]
fn reads_a_wrapped_response() {
    let wrapped = ORDINARY.map(|message| format!(r#"{{"response":{message},"traceId":"t"}}"#));
    let wrapped = wrapped.each_ref().map(String::as_str);
    assert_eq!(sse(&wrapped), sse(&ORDINARY));
    assert_eq!(read(GENERATE, 200, wrapped[2]), read(GENERATE, 200, ORDINARY[2]));
    let found = DetectedApi { api: GENERATE, model: None, stream: Some(true), body_decides: false };
    let mut reader = RequestReader::new(&found);
    reader.push(br#"{"model":"gemini-x","project":"p","request":{"contents":[{"parts":[{"text":"abc"}]}],"generationConfig":{"topK":3}}}"#);
    let facts = reader.finish();
    assert_eq!((facts.model, facts.prompt_bytes, facts.top_k), (Name::new("gemini-x"), 3, Some(3)));
}

#[test]
fn reads_a_named_tier() {
    let tier = |usage: &str| sse(&[&format!(r#"{{"usageMetadata":{{{usage}}}}}"#)]);
    let said =
        |word| [format!("Tier {{ service_tier: Some({word:?}), system_fingerprint: None }}")];
    assert_eq!(tier(r#""trafficType":"PROVISIONED_THROUGHPUT""#), said("PROVISIONED_THROUGHPUT"));
    assert_eq!(tier(r#""serviceTier":"flex""#), said("flex"));
    assert_eq!(tier(r#""trafficType":1,"serviceTier":"""#), [] as [String; 0]);
    assert_eq!(tier(r#""trafficType":"TRAFFIC_TYPE_UNSPECIFIED""#), [] as [String; 0]);
}

const ERROR: &str = r#"{
  "error": {
    "code": 429,
    "message": "RateLimits { exceeded.",
    "status": "RESOURCE_EXHAUSTED",
    "details": [
      {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "status": "no",
        "violations": [
          1
        ]
      }
    ]
  }
}
"#;

#[test]
fn reads_an_error_before_the_response() {
    let exhausted = [failed(Some("RESOURCE_EXHAUSTED"))];
    for api in [
        GENERATE,
        Api::GeminiInteractions,
        Api::GeminiCountTokens,
        Api::GeminiEmbeddings,
        Api::VertexPredict,
        Api::VertexImages,
    ] {
        assert_eq!(read(api, 429, ERROR), exhausted, "{api:?}");
        assert_eq!(read(api, 429, &format!("[{ERROR}]")), exhausted, "{api:?}");
    }
    let streamed = TestResponse::new(GENERATE, STREAM).status(429);
    assert_eq!(streamed.read(ERROR.as_bytes()), exhausted);
    let page = "<!DOCTYPE html>\n<title>Error 404 (Not DetectedApi)!!1</title>";
    assert_eq!(read(GENERATE, 404, page), [failed(None)]);
    let number = r#"{"error":{"code":404,"message":"No."}}"#;
    assert_eq!(read(GENERATE, 404, number), [failed(Some("404"))]);
    assert_eq!(read(GENERATE, 500, r#"{"error":"No."}"#), [failed(None)]);
    let answer = ORDINARY[1];
    assert_eq!(read(GENERATE, 500, answer), [failed(None)]);
    assert_eq!(read(GENERATE, 200, ERROR), exhausted);
}

#[test]
fn reads_an_error_inside_a_stream() {
    let text = parts(r#"{"text":"First"}"#);
    let expected = [r#"0 Text "First""#.to_owned(), failed(Some("RESOURCE_EXHAUSTED"))];
    let one_line: String = ERROR.lines().map(str::trim).collect();
    // The error is an event, a list element, or bare JSON between events.
    assert_eq!(sse(&[&text, &one_line]), expected);
    assert_eq!(sse(&[&text, &one_line, &one_line]), expected);
    assert_eq!(sse(&[&text, &format!("[{one_line}]")]), expected);
    assert_eq!(array(&[&text, &one_line]), expected);
    for stray in [ERROR, &one_line, &format!("[{ERROR}]")] {
        let body = format!("data: {text}\r\n\r\n{stray}\r\n");
        assert_eq!(TestResponse::new(GENERATE, STREAM).read(body.as_bytes()), expected, "{stray}");
    }
    let nothing = format!("data: {text}\n\n{{\"a\": {{\"error\": 1}}}}\n");
    assert_eq!(TestResponse::new(GENERATE, STREAM).read(nothing.as_bytes()), expected[..1]);
}

#[test]
fn reports_malformed_json() {
    let text = parts(r#"{"text":"a"}"#);
    assert_eq!(
        sse(&["{\"candidates\":", &text, "[DONE]"]),
        ["ParseError(BadJson)", r#"0 Text "a""#, "Done"]
    );
    assert_eq!(read(GENERATE, 200, "no"), ["ParseError(BadJson)"]);
    let wrong = r#"{"candidates":[1,{"content":"x","finishReason":{}},{"content":{"parts":[null,{"text":7,"thought":"no","functionCall":[]}]}}],"usageMetadata":[],"modelVersion":3,"promptFeedback":"x"}"#;
    let read =
        [started(None, Some("3")), r#"1 Text "7""#.to_owned(), "ParseError(BadJson)".to_owned()];
    assert_eq!(sse(&[wrong]), read);
}

/// Returns the events of a streamed interaction.
fn steps(messages: &[&str]) -> Vec<String> {
    let body = events(messages);
    TestResponse::new(Api::GeminiInteractions, STREAM).read(body.as_bytes())
}

#[test]
fn reads_a_streamed_interaction() {
    let messages = [
        r#"{"event_type":"interaction.created","interaction":{"id":"v1_a","model":"gemini-x","object":"interaction","status":"in_progress"}}"#,
        r#"{"event_type":"interaction.status_update","interaction_id":"v1_a","status":"in_progress"}"#,
        r#"{"event_type":"step.start","index":0,"step":{"type":"thought"}}"#,
        r#"{"event_type":"step.delta","index":0,"delta":{"type":"thought_summary","content":{"type":"text","text":"Hm."}}}"#,
        r#"{"event_type":"step.delta","index":0,"delta":{"type":"thought_signature","signature":"c2ln"}}"#,
        r#"{"event_type":"step.stop","index":0}"#,
        r#"{"event_type":"step.start","index":1,"step":{"arguments":{},"id":"c1","name":"add","type":"function_call"}}"#,
        r#"{"event_type":"step.delta","index":1,"delta":{"arguments":"{\"x\":","type":"arguments_delta"}}"#,
        r#"{"event_type":"step.delta","index":1,"delta":{"arguments":"2}","type":"arguments_delta"}}"#,
        r#"{"event_type":"step.start","index":2,"step":{"type":"google_search_call"}}"#,
        r#"{"event_type":"step.delta","index":2,"delta":{"type":"google_search_call","arguments":{"queries": ["x"]}}}"#,
        r#"{"event_type":"step.delta","index":3,"delta":{"type":"google_search_result","result":[{"text":"no"}]}}"#,
        r#"{"event_type":"step.start","index":4,"step":{"type":"model_output"}}"#,
        r#"{"event_type":"step.delta","index":4,"delta":{"type":"text","text":"Five."}}"#,
        r#"{"event_type":"step.delta","index":4,"delta":{"type":"text_annotation","annotations":[{"start_index":0}]}}"#,
        r#"{"event_type":"interaction.completed","interaction":{"id":"v1_a","status":"requires_action","service_tier":"standard","usage":{"total_tokens":100,"total_input_tokens":20,"input_tokens_by_modality":[{"modality":"text","tokens":20}],"total_cached_tokens":4,"total_output_tokens":30,"total_tool_use_tokens":9,"tool_use_tokens_by_modality":[{"modality":"text","tokens":9}],"total_thought_tokens":41}}}"#,
        "[DONE]",
    ];
    let reported = Usage {
        input: Some(29),
        output: Some(71),
        cache_read: Some(4),
        reasoning: Some(41),
        input_by: ByModality { text: Some(29), ..ByModality::default() },
        ..Usage::default()
    };
    assert_eq!(
        steps(&messages),
        [
            started(Some("v1_a"), None),
            started(None, Some("gemini-x")),
            r#"0 Reasoning "Hm.""#.to_owned(),
            r#"0 Tool(0) "{\"x\":2}""#.to_owned(),
            r#"0 Tool(1) "{\"queries\":[\"x\"]}""#.to_owned(),
            r#"0 Text "Five.""#.to_owned(),
            r#"Tier { service_tier: Some("standard"), system_fingerprint: None }"#.to_owned(),
            stopped(0, "requires_action"),
            counted(reported),
            "Done".to_owned(),
        ]
    );
}

#[test]
fn reads_an_interaction_of_the_first_version() {
    let messages = [
        r#"{"event_type":"interaction.start","interaction":{"id":"v1_b","status":"in_progress","agent":"researcher"}}"#,
        r#"{"event_type":"content.start","index":0,"content":{"type":"text","text":"One"}}"#,
        r#"{"event_type":"content.delta","index":0,"delta":{"type":"text","text":" two"}}"#,
        r#"{"event_type":"content.delta","index":1,"delta":{"type":"function_call","name":"f","arguments":{"a":1},"id":"c"}}"#,
        r#"{"event_type":"interaction.complete","interaction":{"id":"v1_b","status":"completed","outputs":[{"text":"One two"}]}}"#,
    ];
    let expected = [
        started(Some("v1_b"), None),
        started(None, Some("researcher")),
        r#"0 Text "One two""#.to_owned(),
        r#"0 Tool(0) "{\"a\":1}""#.to_owned(),
        stopped(0, "completed"),
    ];
    assert_eq!(steps(&messages), expected);
    let body = r#"{"id":"v1_b","agent":"researcher","outputs":[{"type":"text","text":"One two"},{"type":"function_call","arguments":{"a":1}}],"status":"completed"}"#;
    assert_eq!(read(Api::GeminiInteractions, 200, body), expected);
}

#[test]
fn reads_a_failed_interaction() {
    let broke = r#"{"event_type":"error","error":{"code":"gateway_timeout","message":"No."}}"#;
    assert_eq!(steps(&[broke]), [failed(Some("gateway_timeout"))]);
    let status = r#"{"event_type":"interaction.status_update","status":"failed"}"#;
    assert_eq!(
        steps(&[status, broke]),
        [stopped(0, "failed"), failed(None), failed(Some("gateway_timeout"))]
    );
    assert_eq!(steps(&[broke, status])[1..], [stopped(0, "failed")]);
    assert_eq!(steps(&["{"]), ["ParseError(BadJson)"]);
    let whole = r#"{"id":"v1_c","status":"cancelled"}"#;
    assert_eq!(read(Api::GeminiInteractions, 200, whole)[1..], [stopped(0, "cancelled")]);
}

const INTERACTION: &str = r#"{"id":"v1_d","model":"gemini-x","object":"interaction","service_tier":"standard","status":"completed","steps":[{"type":"thought","summary":[{"type":"text","text":"Hm."}],"signature":"c2ln"},{"type":"function_call","name":"add","arguments":{"x": 7}},{"type":"function_call","name":"add","arguments":{"x": 8}},{"type":"model_output","content":[{"type":"text","text":"Fif"},{"type":"text","text":"teen"}]}],"usage":{"total_input_tokens":65,"total_output_tokens":17,"total_thought_tokens":47,"total_cached_tokens":0,"total_tool_use_tokens":0,"raw_prompt_token":95}}"#;

#[test]
fn reads_a_non_streaming_interaction() {
    let expected = [
        started(Some("v1_d"), None),
        started(None, Some("gemini-x")),
        r#"Tier { service_tier: Some("standard"), system_fingerprint: None }"#.to_owned(),
        stopped(0, "completed"),
        r#"0 Reasoning "Hm.""#.to_owned(),
        r#"0 Tool(0) "{\"x\":7}""#.to_owned(),
        r#"0 Tool(1) "{\"x\":8}""#.to_owned(),
        r#"0 Text "Fifteen""#.to_owned(),
        usage([Some(65), Some(64), Some(0), None, Some(47)]),
    ];
    assert_eq!(read(Api::GeminiInteractions, 200, INTERACTION), expected);
    // The text of a fetched interaction was counted when it was generated.
    let fetched = read(Api::GeminiStoredInteraction, 200, INTERACTION);
    let is_text = |event: &&String| event.contains(" Text ") || event.contains(" Reasoning ");
    assert!(!fetched.iter().any(|event| is_text(&event)), "{fetched:?}");
    assert_eq!(fetched.last(), expected.last());
}

#[test]
fn reads_no_text_of_embeddings_and_counts() {
    let nothing: [String; 0] = [];
    let counted = r#"{"totalTokens":7,"promptTokensDetails":[{"modality":"TEXT","tokenCount":7}]}"#;
    assert_eq!(read(Api::GeminiCountTokens, 200, counted), nothing);
    let old = r#"{"embedding":{"values":[0.1,-2e-5]}}"#;
    assert_eq!(read(Api::GeminiEmbeddings, 200, old), nothing);
    let new = r#"{"embeddings":[{"values":[0.1]}],"usageMetadata":{"promptTokenCount":4}}"#;
    let four = [usage([Some(4), None, None, None, None])];
    assert_eq!(read(Api::GeminiEmbeddings, 200, new), four);
    let vertex = r#"{"predictions":[{"embeddings":{"values":[0.1],"statistics":{"truncated":false,"token_count":3}}},{"embeddings":{"statistics":{"token_count":1.0}}}],"metadata":{"billableCharacterCount":9}}"#;
    assert_eq!(read(Api::VertexPredict, 200, vertex), four);
    let image = r#"{"predictions":[{"mimeType":"image/png","bytesBase64Encoded":"iVBORw0KGgo="}]}"#;
    assert_eq!(read(Api::VertexImages, 200, image), nothing);
}

fn asked(api: Api, body: &str) -> RequestFacts {
    let found = DetectedApi { api, model: Name::new("m"), stream: Some(true), body_decides: false };
    let read = |pieces: &[&[u8]]| {
        let mut reader = RequestReader::new(&found);
        pieces.iter().for_each(|piece| reader.push(piece));
        reader.finish()
    };
    let whole = read(&[body.as_bytes()]);
    let bytes: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
    assert_eq!(read(&bytes), whole);
    whole
}

#[test]
fn reads_all_facts_of_a_request() {
    let camel = r#"{"contents":[{"role":"user","parts":[{"text":"d\u00e9"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"text":"x"}]}],"systemInstruction":{"parts":[{"text":"two"}]},"tools":[{"functionDeclarations":[{"name":"f"}]}],"generationConfig":{"temperature":0.5,"topP":1,"topK":40.0,"candidateCount":2,"maxOutputTokens":99,"stopSequences":["a","b"],"seed":-7,"presencePenalty":0.25,"frequencyPenalty":-1.5,"responseMimeType":"application/json","responseSchema":{"type":"OBJECT"},"thinkingConfig":{"thinkingBudget":512,"includeThoughts":true}},"serviceTier":"flex","model":"models/other"}"#;
    let expected = RequestFacts {
        model: Name::new("m"),
        stream: Some(true),
        max_tokens: Some(99),
        temperature: Some(0.5),
        top_p: Some(1.0),
        top_k: Some(40),
        frequency_penalty: Some(-1.5),
        presence_penalty: Some(0.25),
        seed: Some(-7),
        choices: Some(2),
        stop_sequences: Some(2),
        reasoning_level: Name::new("512"),
        service_tier: Name::new("flex"),
        output_type: Some("json"),
        prompt_bytes: 7,
        tools: true,
        ..RequestFacts::default()
    };
    assert_eq!(asked(GENERATE, camel), expected);
    let mut snake = camel.to_owned();
    for (from, to) in [
        ("systemInstruction", "system_instruction"),
        ("generationConfig", "generation_config"),
        ("topP", "top_p"),
        ("topK", "top_k"),
        ("candidateCount", "candidate_count"),
        ("maxOutputTokens", "max_output_tokens"),
        ("stopSequences", "stop_sequences"),
        ("presencePenalty", "presence_penalty"),
        ("frequencyPenalty", "frequency_penalty"),
        ("responseMimeType", "response_mime_type"),
        ("thinkingConfig", "thinking_config"),
        ("thinkingBudget", "thinking_budget"),
        ("serviceTier", "service_tier"),
    ] {
        snake = snake.replace(from, to);
    }
    assert_eq!(asked(GENERATE, &snake), expected);
}

#[test]
fn reads_the_requested_output() {
    let of = |config: &str| asked(GENERATE, &format!(r#"{{"generationConfig":{{{config}}}}}"#));
    let level = |config| of(config).reasoning_level;
    assert_eq!(
        level(r#""thinkingConfig":{"thinkingBudget":-1,"thinkingLevel":"HIGH"}"#),
        Name::new("HIGH")
    );
    assert_eq!(
        level(r#""thinkingConfig":{"thinkingLevel":"low","thinkingBudget":0}"#),
        Name::new("low")
    );
    let output = |config| of(config).output_type;
    assert_eq!(output(r#""responseModalities":["TEXT","IMAGE"]"#), Some("image"));
    assert_eq!(output(r#""responseModalities":["AUDIO","TEXT"]"#), Some("speech"));
    assert_eq!(output(r#""responseMimeType":"text/plain""#), Some("text"));
    assert_eq!(of(r#""candidateCount":1,"topK":0.5,"seed":"x""#), of(""));
}

#[test]
fn reads_facts_of_other_requests() {
    let counted = r#"{"generateContentRequest":{"model":"models/x","contents":[{"parts":[{"text":"abc"}]}]}}"#;
    assert_eq!(asked(Api::GeminiCountTokens, counted).prompt_bytes, 3);
    let one = r#"{"content":{"parts":[{"text":"abc"}]},"outputDimensionality":256}"#;
    let batch = r#"{"requests":[{"model":"models/x","content":{"parts":[{"text":"ab"}]},"output_dimensionality":256},{"content":{"parts":[{"text":"c"}]}}]}"#;
    for body in [one, batch] {
        let facts = asked(Api::GeminiEmbeddings, body);
        assert_eq!((facts.prompt_bytes, facts.dimensions), (3, Some(256)));
    }
    let predict = r#"{"instances":[{"content":"ab","task_type":"x"},{"content":"c"}],"parameters":{"outputDimensionality":8}}"#;
    let facts = asked(Api::VertexPredict, predict);
    assert_eq!((facts.prompt_bytes, facts.dimensions), (3, Some(8)));
    assert_eq!(facts.api, Some(Api::VertexPredict));
    let draw = r#"{"instances":[{"prompt":"a cat"}],"parameters":{"sampleCount":4}}"#;
    let facts = asked(Api::VertexImages, draw);
    assert_eq!((facts.prompt_bytes, facts.choices), (5, Some(4)));
    assert_eq!(facts.api, None);
}

#[test]
fn reads_facts_of_an_interaction() {
    let facts = |body: &str| {
        let mut reader = RequestReader::new(&DetectedApi {
            api: Api::GeminiInteractions,
            model: None,
            stream: None,
            body_decides: true,
        });
        reader.push(body.as_bytes());
        reader.finish()
    };
    let interaction = facts(
        r#"{"model":"gemini-x","input":[{"type":"user_input","content":[{"type":"text","text":"abc"}]},{"type":"text","text":"d"}],"system_instruction":"ef","stream":true,"generation_config":{"thinking_level":"medium","max_output_tokens":9,"top_p":0.5},"response_modalities":["IMAGE"],"tools":[{"type":"function"}]}"#,
    );
    let expected = RequestFacts {
        api: Some(Api::GeminiInteractions),
        model: Name::new("gemini-x"),
        stream: Some(true),
        max_tokens: Some(9),
        top_p: Some(0.5),
        reasoning_level: Name::new("medium"),
        output_type: Some("image"),
        prompt_bytes: 6,
        tools: true,
        ..RequestFacts::default()
    };
    assert_eq!(interaction, expected);
    let agent = facts(r#"{"agent":"researcher","input":"abc","background":true}"#);
    assert_eq!((agent.model, agent.prompt_bytes), (Name::new("researcher"), 3));
    assert_eq!(facts(r#"{"type":2,"data":{"name":"x"}}"#).api, None);
}

proptest! {
    #[test]
    fn never_panics_and_cuts_do_not_matter(
        words in prop::collection::vec(prop::sample::select(vec![
            "data: ", "\r\n", "\n\n", "{", "}", "[", "]", ",", ":", "\"candidates\":[{\"content\":{\"parts\":[",
            "{\"text\":\"a\"", "\"thought\":true", "\"functionCall\":{\"name\":\"f\",\"args\":{", "\"error\":{\"status\":\"X\"",
            "\"usageMetadata\":{\"promptTokenCount\":1", "\"finishReason\":\"STOP\"", "\"steps\":[{\"arguments\":[", "é", "\\ud83d",
        ]), 0..30),
        noise in prop::collection::vec(any::<u8>(), 0..4),
        size in 1..9_usize,
        failed: bool,
    ) {
        let mut body = words.concat().into_bytes();
        body.extend(noise);
        for api in [GENERATE, Api::GeminiInteractions, Api::VertexPredict] {
            let answer = TestResponse::new(api, JSON).status(if failed { 500 } else { 200 });
            let pieces: Vec<&[u8]> = body.chunks(size).collect();
            prop_assert_eq!(answer.cut(&pieces), answer.cut(&[&body]));
        }
    }
}
