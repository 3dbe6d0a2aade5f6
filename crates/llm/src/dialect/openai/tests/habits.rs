//! Tests how single providers deviate from the formats of chat completions and completions.

use std::time::Duration;

use super::{body, chat, failed, read, stopped, stream, usage};
use crate::dialect::*;

/// Returns the line of a timings event in milliseconds: queue, prefill, decode and total.
fn timings([queue, prefill, decode, total]: [Option<u64>; 4]) -> String {
    let timings = Timings {
        queue: queue.map(Duration::from_millis),
        load: None,
        prefill: prefill.map(Duration::from_millis),
        decode: decode.map(Duration::from_millis),
        total: total.map(Duration::from_millis),
    };
    format!("{:?}", Event::Timings(&timings))
}

#[test]
fn reads_durations_of_each_backend() {
    let all = [Some(250), Some(500), Some(1500), Some(2000)];
    let groq = r#"{"prompt_tokens":5,"completion_tokens":2,"queue_time":0.25,"prompt_time":0.5,"completion_time":1.5,"total_time":2.0}"#;
    let mistral_rs = r#"{"prompt_tokens":5,"completion_tokens":2,"total_prompt_time_sec":0.5,"total_completion_time_sec":1.5,"total_time_sec":2,"avg_tok_per_sec":1.0}"#;
    let counts = usage([Some(5), Some(2), None, None, None]);
    for (fields, counted, expected) in [
        (format!(r#""usage":{groq}"#), true, all),
        (format!(r#""x_groq":{{"id":"r","usage":{groq}}}"#), true, all),
        (format!(r#""usage":{mistral_rs}"#), true, [None, all[1], all[2], all[3]]),
        (r#""time_info":{"queue_time":0.25,"prompt_time":0.5,"completion_time":1.5,"total_time":2,"created":1754000000}"#.to_owned(), false, all),
        (r#""timings":{"cache_n":27,"prompt_n":1,"prompt_ms":500.0,"predicted_n":2,"predicted_ms":1500}"#.to_owned(), false, [None, all[1], all[2], None]),
        (r#""perf_metrics":{"prompt-tokens":5,"server-processing-time":"2.0"}"#.to_owned(), false, [None, None, None, all[3]]),
        (r#""stats":{"tokens_per_second":40.5,"time_to_first_token":0.1,"generation_time":1.5}"#.to_owned(), false, [None, None, all[2], None]),
        (r#""usage":{"completion_tokens":null,"total_latency":2.0,"queue_time":-1.0,"prompt_time":"Indeterminate"}"#.to_owned(), false, [None, None, None, all[3]]),
    ] {
        let mut lines = vec![timings(expected)];
        if counted {
            lines.insert(0, counts.clone());
        }
        let message = format!("{{\"choices\":[],{fields}}}");
        assert_eq!(chat(&[&message]), lines, "{fields}");
        assert_eq!(body(Api::OpenAiChat, &message), lines, "{fields}");
    }
}

#[test]
fn splits_usage_by_modality() {
    let message = r#"{"choices":[],"usage":{"prompt_tokens":60,"completion_tokens":30,
        "prompt_tokens_details":{"audio_tokens":20,"text_tokens":30,"image_tokens":8,"video_tokens":2,"cached_tokens":0},
        "completion_tokens_details":{"audio_tokens":18,"text_tokens":12,"image_tokens":0,"reasoning_tokens":0}}}"#;
    let expected = Usage {
        input: Some(60),
        output: Some(30),
        cache_read: Some(0),
        reasoning: Some(0),
        input_by: ByModality {
            text: Some(30),
            image: Some(8),
            audio: Some(20),
            video: Some(2),
            document: None,
        },
        output_by: ByModality { text: Some(12), audio: Some(18), ..ByModality::default() },
        ..Usage::default()
    };
    let expected = [format!("{:?}", Event::Usage(&expected))];
    assert_eq!(chat(&[&message.replace('\n', " ")]), expected);
    assert_eq!(body(Api::OpenAiChat, message), expected);
}

#[test]
fn splits_cached_tokens_by_modality() {
    let message = r#"{"choices":[],"usage":{"input_tokens":60,"output_tokens":30,"input_token_details":{
        "cached_tokens":16,"cached_tokens_details":{"text_tokens":10,"audio_tokens":6,"image_tokens":0},"text_tokens":40}}}"#;
    let expected = Usage {
        input: Some(60),
        output: Some(30),
        cache_read: Some(16),
        input_by: ByModality { text: Some(40), ..ByModality::default() },
        cache_read_by: ByModality { text: Some(10), audio: Some(6), ..ByModality::default() },
        ..Usage::default()
    };
    assert_eq!(body(Api::OpenAiChat, message), [format!("{:?}", Event::Usage(&expected))]);
    // The parts exceed the cached tokens.
    let message = message.replace("\"cached_tokens\":16", "\"cached_tokens\":15");
    let expected = Usage { cache_read: Some(15), cache_read_by: ByModality::default(), ..expected };
    assert_eq!(body(Api::OpenAiChat, &message), [format!("{:?}", Event::Usage(&expected))]);
}

#[test]
fn reads_numbers_as_strings_and_under_several_names() {
    let counts = r#"{"usage":{"prompt_tokens":"5","input_tokens":0,"completion_tokens":"2","output_tokens":2,"prompt_tokens_details":{"cached_tokens":"3","cache_creation_input_tokens":1}}}"#;
    let expected = [usage([Some(5), Some(2), Some(3), Some(1), None])];
    assert_eq!(chat(&[counts]), expected);
    assert_eq!(body(Api::OpenAiChat, counts), expected);
    let choice = r#"{"choices":[{"index":"1","delta":{"content":"a"}}]}"#;
    assert_eq!(chat(&[choice]), [r#"1 Text "a""#]);
}

#[test]
fn reads_errors_with_a_successful_status() {
    for (message, kind) in [
        (r#"{"base_resp":{"status_code":1004,"status_msg":"Who are you?"}}"#, "1004"),
        (r#"{"choices":null,"base_resp":{"status_code":"2013"}}"#, "2013"),
        (
            r#"{"success":false,"errors":[{"code":7003,"message":"No route."}],"result":null}"#,
            "7003",
        ),
        (r#"{"x_groq":{"id":"r","error":{"code":"over_capacity"}}}"#, "over_capacity"),
        (r#"{"error":[{"code":"first","message":"x"},{"code":"second"}]}"#, "first"),
        (r#"{"error":"No.","error_code":"over_capacity"}"#, "over_capacity"),
        (
            r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#,
            "overloaded_error",
        ),
    ] {
        assert_eq!(chat(&[message]), [failed(Some(kind))], "{message}");
        assert_eq!(body(Api::OpenAiChat, message), [failed(Some(kind))], "{message}");
    }
    for fine in [
        r#"{"base_resp":{"status_code":0,"status_msg":"success"},"code":0,"errors":[],"error":null}"#,
        r#"{"error":"","errors":null,"base_resp":null}"#,
    ] {
        assert!(chat(&[fine]).is_empty() && body(Api::OpenAiChat, fine).is_empty());
    }
    let baidu = br#"{"error_code":336003,"error_msg":"No."}"#;
    assert_eq!(read(Api::OpenAiChat, 400, baidu)[0], failed(Some("336003")));
}

#[test]
fn reads_bare_errors_in_a_stream() {
    let said = r#"data: {"choices":[{"delta":{"content":"a"}}]}"#;
    let bare = |line: &str| read(Api::OpenAiChat, 200, format!("{said}\n\n{line}\n\n").as_bytes());
    let text = r#"0 Text "a""#.to_owned();
    assert_eq!(bare(r#"{"error":{"code":"c","message":"x"}}"#), [text.clone(), failed(Some("c"))]);
    assert_eq!(bare(r#"{"choices":[{"delta":{"content":"b"}}]}"#), ["0 Text \"a\""]);
    assert_eq!(bare("{"), [text]);
}

#[test]
fn reports_an_error_status_once() {
    let error = r#"{"error":{"code":"c"}}"#;
    let body = super::events(&[error, error, "[DONE]"]);
    assert_eq!(read(Api::OpenAiChat, 500, body.as_bytes()), [failed(Some("c"))]);
}

#[test]
fn ends_writers_completions_with_each_message() {
    let messages = [r#"{"value":"Sure"}"#, r#"{"value":","}"#, r#"{"value":""}"#];
    assert_eq!(
        stream(Api::OpenAiCompletions, &messages),
        [r#"0 Text "Sure""#, "Done", r#"0 Text ",""#, "Done"]
    );
}

#[test]
fn finds_reasoning_of_other_providers() {
    let of = |delta: &str| {
        let streamed = chat(&[&format!(r#"{{"choices":[{{"delta":{{{delta}}}}}]}}"#)]);
        let whole = format!(r#"{{"choices":[{{"message":{{{delta}}}}}]}}"#);
        assert_eq!(body(Api::OpenAiChat, &whole), streamed);
        streamed
    };
    let copilot = r#""content":null,"reasoning_text":"hm","reasoning_opaque":"zz""#;
    assert_eq!(of(copilot), [r#"0 Reasoning "hm""#]);
    let databricks = r#""content":[{"type":"reasoning","summary":[{"type":"summary_text","text":"hm","signature":""}]},{"type":"text","text":"so"}]"#;
    assert_eq!(of(databricks), [r#"0 Reasoning "hm""#, r#"0 Text "so""#]);
}

#[test]
fn reads_completions_in_the_form_of_messages() {
    let of = |choice: &str| body(Api::OpenAiCompletions, &format!(r#"{{"choices":[{choice}]}}"#));
    let said = [r#"0 Text "a""#.to_owned(), stopped(0, "stop")];
    for choice in [
        r#"{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}"#,
        r#"{"index":0,"text":"a","message":{"content":"a"},"finish_reason":"stop"}"#,
        r#"{"index":0,"message":{"content":"a"},"text":"a","finish_reason":"stop"}"#,
    ] {
        assert_eq!(of(choice), said, "{choice}");
    }
}

#[test]
fn reads_messages_with_nan_and_infinity() {
    let of = |logprobs: &str| {
        format!(
            r#"{{"choices":[{{"delta":{{"content":"NaN \"-Infinity\""}},"logprobs":{{"content":[{{"token":"\\","logprob":{logprobs},"top":[-1e-3]}}]}}}}]}}"#
        )
    };
    for logprobs in ["NaN", "Infinity", "-Infinity"] {
        assert_eq!(chat(&[&of(logprobs)]), [r#"0 Text "NaN \"-Infinity\"""#]);
        let whole = of(logprobs).replace("delta", "message");
        assert_eq!(body(Api::OpenAiChat, &whole), [r#"0 Text "NaN \"-Infinity\"""#]);
    }
    assert_eq!(chat(&[&of("Nope")]), ["ParseError(BadJson)"]);
}

#[test]
fn treats_usage_in_every_chunk_as_cumulative() {
    let message = |tokens: u32| {
        format!(
            r#"{{"choices":[{{"index":0,"delta":{{"content":"a"}}}}],"usage":{{"prompt_tokens":5,"completion_tokens":{tokens}}}}}"#
        )
    };
    let said = chat(&[&message(1), &message(2)]);
    assert_eq!(said.last().unwrap(), &usage([Some(5), Some(2), None, None, None]));
}

#[test]
fn reads_the_cost_that_a_provider_reports() {
    for (fields, ticks) in [
        // OpenRouter. With an own key, the upstream charges its account in addition.
        (
            r#""cost":0.0033789,"is_byok":false,"cost_details":{"upstream_inference_cost":0.0033789}"#,
            33_789_000,
        ),
        (
            r#""cost":0.001,"is_byok":true,"cost_details":{"upstream_inference_cost":0.02}"#,
            210_000_000,
        ),
        (r#""cost":"0.5","cost_details":null"#, 5_000_000_000),
        (r#""cost":2"#, 20_000_000_000),
        // Perplexity and xAI.
        (
            r#""cost":{"input_tokens_cost":0.001,"request_cost":0.006,"total_cost":0.00703}"#,
            70_300_000,
        ),
        (r#""cost_in_usd_ticks":37756000"#, 37_756_000),
        (r#""cost":0"#, 0),
    ] {
        let message = format!(r#"{{"choices":[],"usage":{{"prompt_tokens":5,{fields}}}}}"#);
        let cost_ticks = Some(ticks);
        let expected = Usage { input: Some(5), cost_ticks, ..Usage::default() };
        let expected = [format!("{:?}", Event::Usage(&expected))];
        assert_eq!(chat(&[&message]), expected, "{fields}");
        assert_eq!(body(Api::OpenAiChat, &message), expected, "{fields}");
    }
}

#[test]
fn reads_the_cost_of_vercels_ai_gateway() {
    let gateway = r#"{"routing":{"finalProvider":"openai","attempts":[{"success":true,"cost":9}]},"cost":"0.0042","marketCost":"0.01"}"#;
    let metadata =
        format!(r#""provider_metadata":{{"openai":{{"responseId":"r"}},"gateway":{gateway}}}"#);
    let counted = Usage { input: Some(5), output: Some(2), ..Usage::default() };
    let (counts, cost) = (r#""usage":{"prompt_tokens":5,"completion_tokens":2}"#, Some(42_000_000));
    let priced = format!("{:?}", Event::Usage(&Usage { cost_ticks: cost, ..counted }));
    let only = format!("{:?}", Event::Usage(&Usage { cost_ticks: cost, ..Usage::default() }));
    let counted = format!("{:?}", Event::Usage(&counted));
    for message in [
        format!(r#"{{"choices":[{{"index":0,"delta":{{{metadata}}}}}],{counts}}}"#),
        format!(r#"{{"choices":[],{counts},{metadata}}}"#),
    ] {
        assert!(chat(&[&message]).contains(&priced), "{message}: {:?}", chat(&[&message]));
    }
    for message in [
        format!(r#"{{"choices":[{{"index":0,"message":{{"content":"a",{metadata}}}}}],{counts}}}"#),
        format!(r#"{{"choices":[],{counts},{metadata}}}"#),
    ] {
        let events = body(Api::OpenAiChat, &message);
        assert!(events.contains(&only) && events.contains(&counted), "{message}: {events:?}");
    }
}

#[test]
fn refuses_a_cost_that_no_call_can_have() {
    let reported = Usage { input: Some(5), ..Usage::default() };
    let reported = format!("{:?}", Event::Usage(&reported));
    let bad = format!("{:?}", Event::ParseError(crate::frame::ParseError::BadCount));
    for cost in ["-0.5", "1e9", "10001", r#"{"total_cost":-1}"#] {
        let message = format!(r#"{{"choices":[],"usage":{{"prompt_tokens":5,"cost":{cost}}}}}"#);
        assert_eq!(chat(&[&message]), [bad.clone(), reported.clone()], "{cost}");
    }
    for cost in ["null", "[]", "true", r#""free""#, r#"{"currency":"USD"}"#] {
        let message = format!(r#"{{"choices":[],"usage":{{"prompt_tokens":5,"cost":{cost}}}}}"#);
        let events = chat(&[&message]);
        assert!(events.contains(&reported), "{cost}: {events:?}");
    }
}
