//! Successful responses without an answer, and errors whose source depends on the provider.

use super::*;

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";

/// A request of each API, and a successful response without text.
const APIS: &[(&str, &str, &str)] = &[
    (
        "/v1/chat/completions",
        r#"{"messages":[{"role":"user","content":"Hi"}]}"#,
        r#"{"choices":[{"index":0,"message":{"content":""},"finish_reason":"stop"}]}"#,
    ),
    ("/v1/completions", r#"{"prompt":"Hi"}"#, r#"{"choices":[{"text":""}]}"#),
    ("/v1/embeddings", r#"{"input":"Hi"}"#, r#"{"data":[{"embedding":[0.1]}]}"#),
    ("/v1/responses", r#"{"input":"Hi"}"#, r#"{"id":"r","status":"queued","output":[]}"#),
    ("/v1/messages", r#"{"messages":[],"max_tokens":1}"#, r#"{"content":[]}"#),
    (
        "/v1beta/models/gemini-2.5-pro:generateContent",
        r#"{"contents":[]}"#,
        r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#,
    ),
    (
        "/v1beta/models/gemini-embedding-001:embedContent",
        r#"{"content":{}}"#,
        r#"{"embedding":{"values":[0.1]}}"#,
    ),
    ("/v1beta/interactions", r#"{"input":"Hi"}"#, r#"{"id":"i","status":"in_progress"}"#),
    ("/model/m/converse", r#"{"messages":[]}"#, r#"{"output":{},"stopReason":"end_turn"}"#),
    ("/v2/chat", r#"{"messages":[]}"#, r#"{"finish_reason":"COMPLETE"}"#),
    ("/v2/embed", r#"{"texts":["Hi"]}"#, r#"{"embeddings":{"float":[[0.1]]}}"#),
    ("/v2/rerank", r#"{"query":"Hi"}"#, r#"{"results":[{"index":0}]}"#),
    ("/rerank", r#"{"query":"Hi","texts":["a"]}"#, r#"[{"index":0,"score":0.1}]"#),
    ("/api/chat", r#"{"messages":[],"stream":false}"#, r#"{"model":"m","done":true}"#),
    ("/api/embed", r#"{"input":"Hi"}"#, r#"{"embeddings":[[0.1]]}"#),
    ("/completion", r#"{"prompt":"Hi"}"#, r#"{"content":"","stop":true}"#),
    ("/generate", r#"{"text":"Hi"}"#, r#"{"text":"","meta_info":{}}"#),
    ("/ml/v1/text/generation", r#"{"input":"Hi"}"#, r#"{"results":[{"generated_text":""}]}"#),
    (
        "/api/v1/services/aigc/text-generation/generation",
        r#"{"input":{"prompt":"Hi"}}"#,
        r#"{"output":{"text":""}}"#,
    ),
    ("/complete", r#"{"prompt":"Hi"}"#, r#"{"completions":[{"completion":""}]}"#),
];

struct Answer {
    outcome: Outcome,
    source: ErrorSource,
    error: String,
}

fn answer(path: &str, request: &str, (status, kind): (u16, &'static str), body: &str) -> Answer {
    let mut play = Play::request(path, request);
    play.head(200, status, kind);
    if !body.is_empty() {
        play.arrival(300, Direction::Response, body, 0);
    }
    let record = play.complete(400);
    let error = record.error_type.map(|kind| kind.to_string()).unwrap_or_default();
    Answer { outcome: record.outcome, source: record.error_source, error }
}

#[test]
fn a_response_without_an_answer_is_an_error_of_the_upstream() {
    for (path, request, _) in APIS {
        for (body, kind, error) in [
            ("", JSON, "empty_response"),
            ("", "text/html", "empty_response"),
            (" \n", JSON, "empty_response"),
            ("{}", JSON, "empty_response"),
            (r#"{"choices":[]}"#, JSON, "empty_response"),
            ("<html><body>Sign in</body></html>", "text/html", "invalid_response"),
            ("<!DOCTYPE html>", JSON, "invalid_response"),
            ("upstream connect error", "text/plain", "invalid_response"),
        ] {
            let answer = answer(path, request, (200, kind), body);
            let known = (answer.outcome, answer.source, &*answer.error);
            assert_eq!(known, (Outcome::Error, ErrorSource::Upstream, error), "{path} {body}");
        }
    }
}

#[test]
fn the_media_type_of_a_container_is_no_error() {
    let answer = |kind, body: &str| {
        let mut open = open("/endpoints/e/invocations");
        let host = "runtime.sagemaker.eu-west-1.amazonaws.com";
        Arc::make_mut(&mut open.route).server_address = Label::from_trusted(host);
        let mut play = Play::opened(open, r#"{"inputs":"Hi"}"#);
        play.head(200, 200, kind).arrival(300, Direction::Response, body, 0);
        let record = play.complete(400);
        assert!(record.call.is_some() && record.anomalies.is_empty(), "{kind} {body}");
        (record.outcome, record.error_type.map(|kind| kind.to_string()).unwrap_or_default())
    };
    for (kind, body) in [
        ("text/csv", "0.25,1\n"),
        ("text/csv; charset=utf-8", "0.25,1\n0.5,0\n"),
        ("application/x-npy", "\u{93}NUMPY\u{1}"),
        ("application/x-recordio-protobuf", "\u{a}\u{23}"),
        ("image/png", "\u{89}PNG"),
        (JSON, "[[0.25,1]]"),
    ] {
        assert_eq!(answer(kind, body), (Outcome::Ok, String::new()), "{kind} {body}");
    }
}

#[test]
fn an_error_in_a_successful_body_has_its_source() {
    for (path, request, _) in APIS {
        for (body, error, source) in [
            (r#"{"code":401,"success":false}"#, "401", ErrorSource::Client),
            (r#"{"code":503,"success":false,"msg":"Busy."}"#, "503", ErrorSource::Upstream),
            (r#"{"success":false}"#, "_OTHER", ErrorSource::Upstream),
            (r#"{"code":"500","message":"No."}"#, "500", ErrorSource::Upstream),
        ] {
            let answer = answer(path, request, (200, JSON), body);
            let known = (answer.outcome, answer.source, &*answer.error);
            assert_eq!(known, (Outcome::Error, source, error), "{path} {body}");
        }
    }
}

#[test]
fn an_empty_text_is_an_answer() {
    for (path, request, body) in APIS {
        let answer = answer(path, request, (200, JSON), body);
        assert_eq!((answer.outcome, &*answer.error), (Outcome::Ok, ""), "{path} {body}");
    }
    // A transcript of silence, a request that is only accepted, and a response that has no body.
    let form = "--x\r\n";
    assert_eq!(
        answer("/v1/audio/transcriptions", form, (200, "text/plain"), "").outcome,
        Outcome::Ok
    );
    let chat = APIS[0].1;
    for status in [202, 204, 302, 304] {
        let answer = answer(APIS[0].0, chat, (status, JSON), "");
        assert_eq!(answer.outcome, Outcome::Ok, "{status}");
    }
}

#[test]
fn an_empty_error_object_beside_an_answer_is_no_error() {
    for error in [
        "{}",
        r#"{"message":"","type":"","code":null}"#,
        r#"{"code":0,"message":"success"}"#,
        r#"{"message":null,"param":null}"#,
        "[]",
        "[{}]",
        "false",
        "0",
        r#""null""#,
    ] {
        for (path, request, body) in APIS.iter().filter(|(_, _, body)| body.starts_with('{')) {
            let body = body.replacen('{', &format!("{{\"error\":{error},"), 1);
            let answer = answer(path, request, (200, JSON), &body);
            assert_eq!((answer.outcome, &*answer.error), (Outcome::Ok, ""), "{path} {body}");
        }
        let beside = chunk(r#"{"content":"a"}"#, r#""stop""#).replacen(
            '{',
            &format!("{{\"error\":{error},"),
            1,
        );
        let body = format!("data: {beside}\n\ndata: [DONE]\n\n");
        let answer = answer(APIS[0].0, APIS[0].1, (200, STREAM), &body);
        assert_eq!((answer.outcome, &*answer.error), (Outcome::Ok, ""), "{body}");
    }
}

#[test]
fn a_stream_without_a_choice_is_an_error() {
    for body in [
        "data: [DONE]\n\n",
        "data: {\"choices\":[]}\n\ndata: [DONE]\n\n",
        "data: {\"choices\":[],\"usage\":{\"completion_tokens\":0}}\n\ndata: [DONE]\n\n",
    ] {
        let answer = answer(APIS[0].0, STREAMED, (200, STREAM), body);
        let known = (answer.outcome, answer.source, &*answer.error);
        assert_eq!(known, (Outcome::Error, ErrorSource::Upstream, "empty_response"), "{body}");
    }
    let refused = "data: {\"code\":401,\"success\":false}\n\n";
    let answer = answer(APIS[0].0, STREAMED, (200, STREAM), refused);
    assert_eq!((answer.outcome, &*answer.error), (Outcome::Error, "401"));
}

#[test]
fn an_error_event_without_data_is_an_error() {
    let first = format!("data: {}\n\n", chunk(r#"{"content":"a"}"#, "null"));
    for end in [
        "event: error\n: the worker is gone\n\ndata: [DONE]\n\n",
        "event: error\n\ndata: [DONE]\n\n",
        "event:error\r\n\r\n",
    ] {
        let answer = answer(APIS[0].0, STREAMED, (200, STREAM), &format!("{first}{end}"));
        assert_eq!((answer.outcome, answer.source), (Outcome::Error, ErrorSource::Upstream));
    }
}

#[test]
fn the_provider_decides_whose_error_a_status_is() {
    let play = |path: &str, host: &str, status, body: &str| {
        let mut open = open(path);
        Arc::make_mut(&mut open.route).server_address = Label::from_trusted(host);
        let mut play = Play::opened(open, r#"{"messages":[],"inputs":"Hi"}"#);
        play.head(200, status, JSON).arrival(300, Direction::Response, body, 0);
        play.complete(400).error_source
    };
    let (client, upstream) = (ErrorSource::Client, ErrorSource::Upstream);
    let sagemaker = "runtime.sagemaker.eu-west-1.amazonaws.com";
    let invoke = "/endpoints/e/invocations";
    let mistaken = r#"{"ErrorCode":"CLIENT_ERROR_FROM_MODEL","OriginalStatusCode":400}"#;
    let busy = r#"{"ErrorCode":"CLIENT_ERROR_FROM_MODEL","OriginalStatusCode":429}"#;
    let broken = r#"{"ErrorCode":"INTERNAL_FAILURE_FROM_MODEL","OriginalStatusCode":500}"#;
    let chat = "/openai/v1/chat/completions";
    for (path, host, status, body, expected) in [
        (invoke, sagemaker, 424, mistaken, client),
        (invoke, sagemaker, 424, busy, upstream),
        (invoke, sagemaker, 424, broken, upstream),
        (chat, "api.groq.com", 498, "{}", upstream),
        (chat, "api.example.com", 498, "{}", client),
        ("/generate", "10.0.0.1", 424, r#"{"error":"No.","error_type":"generation"}"#, upstream),
        ("/model/m/converse", "10.0.0.1", 400, r#"{"__type":"ThrottlingException"}"#, upstream),
        ("/model/m/converse", "10.0.0.1", 400, r#"{"__type":"ValidationException"}"#, client),
    ] {
        assert_eq!(play(path, host, status, body), expected, "{path} {host} {status} {body}");
    }
}

/// Returns the record of a request to a host that identifies no provider.
fn to_unknown_host(path: &str, request: &str, kind: &'static str, body: &str) -> Record {
    let mut open = open(path);
    Arc::make_mut(&mut open.route).server_address = Label::from_trusted("10.0.0.1");
    let mut play = Play::opened(open, request);
    play.head(200, 200, kind).arrival(300, Direction::Response, body, 0);
    play.complete(400)
}

#[test]
fn a_path_that_only_resembles_an_api_is_plain_http() {
    let events = "data: {\"type\":\"text-delta\",\"delta\":\"Hi\"}\n\ndata: [DONE]\n\n";
    for (path, request, kind, body) in [
        ("/api/chat", r#"{"messages":[]}"#, STREAM, events),
        ("/api/chat", r#"{"messages":[]}"#, JSON, r#"{"reply":"Hi"}"#),
        ("/surveys/4/responses", r#"{"answers":[1]}"#, JSON, r#"{"saved":true}"#),
        ("/generate", r#"{"prompt":"Hi"}"#, JSON, r#"{"image":"aGk="}"#),
        ("/v1/chat", r#"{"messages":[]}"#, JSON, r#"{"reply":"Hi"}"#),
        ("/orders/4/complete", r#"{"prompt":"Hi"}"#, JSON, r#"{"order":4}"#),
    ] {
        let record = to_unknown_host(path, request, kind, body);
        assert_eq!((record.outcome, record.error_type), (Outcome::Ok, None), "{path} {body}");
        assert!(record.call.is_none(), "{path} {body}");
    }
    // An answer, an error and a web page do not contradict the API. Nor does a path that only the API has.
    for (path, body, kind) in [
        ("/api/chat", r#"{"message":{"content":"Hi"},"done":true}"#, JSON),
        ("/api/chat", r#"{"error":"no such model"}"#, JSON),
        ("/api/chat", "<html>", "text/html"),
        ("/v1/chat/completions", r#"{"reply":"Hi"}"#, JSON),
    ] {
        let record = to_unknown_host(path, r#"{"messages":[]}"#, kind, body);
        assert!(record.call.is_some(), "{path} {body}");
    }
}

#[test]
fn lm_studio_is_read_in_its_own_format() {
    let request = r#"{"model":"m","input":"Hi","stream":true}"#;
    let body = concat!(
        "event: chat.start\ndata: {\"type\":\"chat.start\",\"model_instance_id\":\"m\"}\n\n",
        "event: message.delta\ndata: {\"type\":\"message.delta\",\"content\":\"Hello\"}\n\n",
        "event: chat.end\ndata: {\"type\":\"chat.end\",\"result\":{\"output\":[],",
        "\"stats\":{\"input_tokens\":3,\"total_output_tokens\":1}}}\n\n",
    );
    for path in ["/api/v1/chat", "/lmstudio/api/v1/chat", "/v1/chat"] {
        let record = to_unknown_host(path, request, STREAM, body);
        let call = record.call.unwrap();
        assert_eq!(
            (record.outcome, call.complete),
            (Outcome::Ok, Completeness::Complete),
            "{path}"
        );
        assert_eq!(call.series.operation.as_str(), "chat");
        assert_eq!(call.series.provider.as_str(), "lm_studio");
        assert_eq!(call.usage.unwrap().output, Some(1));
    }
}

#[test]
fn a_raw_prediction_is_read_by_its_body() {
    let endpoint = "/v1/projects/p/locations/l/endpoints/123:rawPredict";
    let mistral = "/v1/projects/p/locations/l/publishers/mistralai/models/m:rawPredict";
    let claude = "/v1/projects/p/locations/l/publishers/anthropic/models/c:rawPredict";
    let openai = r#"{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
    let text = r#"{"choices":[{"text":"Hi","finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
    let anthropic = r#"{"content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":1}}"#;
    let messages = r#"{"messages":[{"role":"user","content":"Hi"}],"max_tokens":9}"#;
    let versioned = r#"{"anthropic_version":"vertex-2023-10-16","messages":[],"max_tokens":9}"#;
    let late = r#"{"messages":[],"max_tokens":9,"anthropic_version":"vertex-2023-10-16"}"#;
    for (path, request, body, operation) in [
        (endpoint, messages, openai, "chat"),
        (mistral, messages, openai, "chat"),
        (endpoint, r#"{"prompt":"Hi"}"#, text, "text_completion"),
        (endpoint, versioned, anthropic, "chat"),
        (endpoint, late, anthropic, "chat"),
        (claude, versioned, anthropic, "chat"),
    ] {
        let record = to_unknown_host(path, request, JSON, body);
        let call = record.call.unwrap();
        assert_eq!((record.outcome, call.series.operation.as_str()), (Outcome::Ok, operation));
        let usage = call.usage.unwrap();
        assert_eq!((usage.input, usage.output), (Some(3), Some(1)), "{path} {request}");
        assert_eq!(call.output.unwrap().counted, 1, "{path} {request}");
    }
    let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let streamed = endpoint.replace("rawPredict", "streamRawPredict");
    let record = to_unknown_host(&streamed, messages, STREAM, stream);
    assert_eq!((record.outcome, record.call.unwrap().streamed), (Outcome::Ok, true));
    let custom = to_unknown_host(endpoint, r#"{"pixels":[1]}"#, JSON, r#"{"class":7}"#);
    assert!(custom.call.is_none());
}
