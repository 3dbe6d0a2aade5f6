use super::*;
use crate::dialect::{ByModality, Usage};

/// Returns the events for these messages in short form. Client messages begin with `>`.
fn events(messages: &[&str]) -> (Realtime, Vec<String>) {
    let (mut reader, mut events_seen) = (Realtime::new(), Vec::new());
    for message in messages {
        let mut out = |event: Event<'_>| events_seen.push(short(&event));
        match message.strip_prefix('>') {
            Some(message) => reader.client(message.as_bytes(), &mut out),
            None => reader.server(message.as_bytes(), &mut out),
        }
    }
    (reader, events_seen)
}

fn short(event: &Event<'_>) -> String {
    match event {
        Event::Text { choice, part, text } => format!("{choice} {part:?} {text}"),
        Event::Stopped { choice, reason } => format!("{choice} stopped {reason}"),
        Event::Usage(Usage { input, output, cache_read, .. }) => {
            let number = |count: &Option<u64>| count.map_or("-".to_owned(), |n| n.to_string());
            format!("usage {} {} {}", number(input), number(output), number(cache_read))
        }
        Event::Timings(timings) => format!("{timings:?}"),
        Event::Started { id, model } => format!("started {id:?} {model:?}"),
        Event::ParseError(error) => format!("odd {}", error.as_str()),
        Event::Failed { .. }
        | Event::Tier { .. }
        | Event::Call { .. }
        | Event::Compacted
        | Event::Answered
        | Event::Done => {
            format!("{event:?}")
        }
    }
}

fn delta(name: &str, response: &str, delta: &str) -> String {
    format!(
        r#"{{"type":"response.{name}.delta","event_id":"event_1","response_id":"{response}","item_id":"item_1",
           "output_index":0,"content_index":0,"delta":"{delta}"}}"#
    )
}

fn done(response: &str, status: &str, input: u32, output: u32) -> String {
    let total = input + output;
    format!(
        r#"{{"event_id":"event_9","response":{{"object":"realtime.response","id":"{response}","status":"{status}",
           "status_details":{{"type":"{status}","error":{{"type":"server_error","code":"x"}}}},
           "output":[{{"id":"item_1","type":"message","content":[{{"type":"audio","transcript":"no"}}]}}],
           "usage":{{"total_tokens":{total},"input_tokens":{input},"output_tokens":{output},
           "input_token_details":{{"text_tokens":100,"audio_tokens":20,"cached_tokens":64,
           "cached_tokens_details":{{"text_tokens":64,"audio_tokens":0}}}},
           "output_token_details":{{"text_tokens":10,"audio_tokens":30}}}}}},"type":"response.done"}}"#
    )
}

const CREATED: &str = r#"{"type":"session.created","event_id":"event_0","session":{"type":"realtime",
    "object":"realtime.session","id":"sess_1","model":"gpt-realtime-2025-08-28","output_modalities":["audio"],
    "audio":{"input":{"transcription":{"model":"whisper-1"}}}}}"#;

#[test]
fn reads_the_transcript_of_speech() {
    let (reader, events_seen) = events(&[
        CREATED,
        r#"{"type":"input_audio_buffer.speech_stopped","event_id":"e","audio_end_ms":900,"item_id":"item_0"}"#,
        r#"{"type":"response.created","response":{"id":"resp_1","status":"in_progress","usage":null}}"#,
        &delta("output_audio_transcript", "resp_1", "Hello"),
        &delta("output_audio", "resp_1", "UklGRg=="),
        &delta("output_audio_transcript", "resp_1", " there"),
        r#"{"type":"response.output_audio_transcript.done","response_id":"resp_1","item_id":"item_1",
           "output_index":0,"content_index":0,"transcript":"Hello there"}"#,
        &done("resp_1", "completed", 120, 40),
        r#"{"type":"rate_limits.updated","rate_limits":[{"name":"tokens","limit":9,"remaining":1,"reset_seconds":2.5}]}"#,
    ]);
    assert_eq!(
        events_seen,
        [
            r#"started Some("sess_1") Some("gpt-realtime-2025-08-28")"#,
            "0 Transcript Hello",
            "0 Transcript  there",
            "usage 120 40 64",
            "0 stopped completed",
        ]
    );
    assert!(reader.is_accepted() && reader.has_generated() && reader.is_idle());
    assert!(!reader.has_failed());
}

#[test]
fn reads_both_versions_of_event_names() {
    let (_, events_seen) = events(&[
        &delta("text", "r", "a"),
        &delta("output_text", "r", "b"),
        &delta("audio_transcript", "r", "c"),
        &delta("function_call_arguments", "r", "{}"),
        &delta("mcp_call_arguments", "r", "{}"),
        &delta("audio", "r", "AAAA"),
        &delta("output_text", "r", ""),
        &delta("something_new", "r", "x"),
    ]);
    assert_eq!(
        events_seen,
        ["0 Text a", "0 Text b", "0 Transcript c", "0 Tool(0) {}", "0 Tool(0) {}"]
    );
}

#[test]
fn adds_usage_of_responses_and_numbers_them() {
    let (reader, events_seen) = events(&[
        &delta("output_text", "resp_1", "one"),
        &delta("output_text", "resp_2", "side by side"),
        &done("resp_1", "completed", 200, 50),
        &delta("output_text", "resp_2", "still"),
        &done("resp_2", "cancelled", 250, 45),
        &done("resp_3", "incomplete", 121, 40),
    ]);
    assert_eq!(
        events_seen,
        [
            "0 Text one",
            "1 Text side by side",
            "usage 200 50 64",
            "0 stopped completed",
            "1 Text still",
            "usage 450 95 128",
            "1 stopped cancelled",
            "usage 571 135 192",
            "2 stopped incomplete",
        ]
    );
    assert!(reader.is_idle());
    let usage = reader.usage;
    assert_eq!((usage.input_by.text, usage.input_by.audio), (Some(300), Some(60)));
    assert_eq!((usage.output_by.text, usage.output_by.audio), (Some(30), Some(90)));
}

#[test]
fn adds_every_count_of_the_usage() {
    let done = r#"{"type":"response.done","response":{"status":"completed","usage":{"input_tokens":90,"output_tokens":40,
        "input_token_details":{"text_tokens":1,"image_tokens":2,"audio_tokens":3,"video_tokens":4,"cached_tokens":5,
        "cache_write_tokens":6},
        "output_token_details":{"text_tokens":7,"image_tokens":8,"audio_tokens":9,"video_tokens":10,"reasoning_tokens":11}}}}"#;
    let (reader, _) = events(&[done, done]);
    let by = |text, image, audio, video| ByModality {
        text: Some(text),
        image: Some(image),
        audio: Some(audio),
        video: Some(video),
        document: None,
    };
    let twice = Usage {
        input: Some(180),
        output: Some(80),
        cache_read: Some(10),
        cache_write: Some(12),
        reasoning: Some(22),
        input_by: by(2, 4, 6, 8),
        output_by: by(14, 16, 18, 20),
        ..Usage::default()
    };
    assert_eq!(reader.usage, twice);
}

#[test]
fn an_implausible_usage_does_not_spoil_the_sum() {
    let odd = done("r2", "completed", 0, 0).replace("\"output_tokens\":0", "\"output_tokens\":-1");
    let first = done("r1", "completed", 150, 40);
    let (reader, _) = events(&[&first, &odd, &first.replace("r1", "r3")]);
    assert_eq!((reader.usage.input, reader.usage.output), (Some(300), Some(80)));
}

#[test]
fn counts_a_text_without_pieces_once() {
    let whole = |index: u32| {
        format!(
            r#"{{"type":"response.function_call_arguments.done","response_id":"r","item_id":"i","output_index":{index},
               "arguments":"{{\"x\":1}}"}}"#
        )
    };
    let (_, events_seen) =
        events(&[&delta("function_call_arguments", "r", "{"), &whole(0), &whole(1), &whole(1)]);
    assert_eq!(events_seen, ["0 Tool(0) {", r#"0 Tool(1) {"x":1}"#]);
}

#[test]
fn counts_input_transcription_separately() {
    let speech = |event: &str, item: &str, rest: &str| {
        format!(
            r#"{{"type":"conversation.item.input_audio_transcription.{event}","item_id":"{item}","content_index":0,{rest}}}"#
        )
    };
    let (reader, events_seen) = events(&[
        &speech("delta", "item_1", r#""delta":"Good""#),
        &delta("output_text", "r", "Hm"),
        &speech("delta", "item_2", r#""delta":"cut""#),
        &speech(
            "completed",
            "item_1",
            r#""transcript":"Good morning","usage":{"type":"tokens","input_tokens":9,"output_tokens":2}"#,
        ),
        &speech("failed", "item_2", r#""error":{"type":"server_error"}"#),
        &speech(
            "completed",
            "item_3",
            r#""transcript":"All at once","usage":{"type":"duration","seconds":3}"#,
        ),
    ]);
    let (first, second) = (u32::MAX, u32::MAX - 1);
    assert_eq!(
        events_seen,
        [
            format!("{first} Transcript Good"),
            "0 Text Hm".to_owned(),
            format!("{second} Transcript cut"),
            "usage 9 2 -".to_owned(),
            format!("{} Transcript All at once", u32::MAX - 2),
        ]
    );
    assert!(!reader.is_idle() && !reader.has_failed());
}

#[test]
fn reads_the_model_of_a_transcription_session() {
    for session in [
        r#"{"id":"sess_2","type":"transcription","audio":{"input":{"transcription":{"model":"gpt-4o-transcribe"}}}}"#,
        r#"{"id":"sess_2","model":"","input_audio_transcription":{"model":"gpt-4o-transcribe"}}"#,
    ] {
        let created = format!(r#"{{"type":"transcription_session.created","session":{session}}}"#);
        assert_eq!(events(&[&created]).1, [r#"started Some("sess_2") Some("gpt-4o-transcribe")"#]);
    }
}

#[test]
fn a_successful_response_clears_an_error() {
    let error = |kind: &str| {
        format!(r#"{{"type":"error","error":{{"type":"{kind}","code":"c","message":"no"}}}}"#)
    };
    let ends = |messages: &[&str]| {
        let reader = events(messages).0;
        (reader.has_failed(), reader.error().map(Name::to_string))
    };
    let named = |name: &str| Some(name.to_owned());
    let server = error("server_error");
    let client = error("invalid_request_error");
    assert_eq!(ends(&[&server]), (true, named("server_error")));
    assert_eq!(ends(&[&server, &done("r", "completed", 1, 1)]), (false, named("server_error")));
    assert_eq!(ends(&[&client]), (false, named("invalid_request_error")));
    assert_eq!(ends(&[&done("r", "failed", 1, 1)]), (true, named("server_error")));
    assert_eq!(ends(&[r#"{"type":"error","error":"in words"}"#]), (true, None));
    assert!(!events(&[&server]).0.is_accepted());
}

#[test]
fn reads_facts_of_client_messages() {
    let (reader, events_seen) = events(&[
        r#">{"type":"input_audio_buffer.append","audio":"AAAA"}"#,
        r#">{"type":"session.update","session":{"type":"realtime","model":"gpt-realtime","max_output_tokens":4096,
           "reasoning":{"effort":"low"},"instructions":"Speak \"model\": slowly"}}"#,
        r#">{"type":"response.create","response":{"max_output_tokens":"inf"}}"#,
        r#">{"type":"session.update","session":{"max_response_output_tokens":"inf"}}"#,
    ]);
    assert_eq!(events_seen, [""; 0]);
    let facts = reader.facts();
    assert_eq!(facts.model, Name::new("gpt-realtime"));
    assert_eq!(facts.max_tokens, Some(4096));
    assert_eq!(facts.reasoning_level, Name::new("low"));
    assert!(!reader.is_accepted(), "only the server can accept a session");
}

#[test]
fn reports_and_skips_malformed_messages() {
    let (reader, events_seen) = events(&[
        "",
        "7",
        r#"{"type":"response.output_text.delta""#,
        r#"{"type":"response.output_text.delta","response_id":"r","delta":"half \ud83d"}"#,
        r#"{"type":7,"response":[],"session":"x","delta":{},"usage":1}"#,
        r#"{"type":"response.done","response":null}"#,
        r#"{"type":"session.created"}"#,
        ">{",
    ]);
    let bad = "odd bad_json";
    assert_eq!(events_seen, [bad, bad, bad, "odd bad_text", "0 Text half \u{FFFD}", bad, bad]);
    assert!(!reader.is_idle(), "the response has not ended");
}

#[test]
fn bounds_active_responses() {
    let mut reader = Realtime::new();
    for number in 0..1_000 {
        let text = delta("output_text", &format!("resp_{number}"), "x");
        reader.server(text.as_bytes(), &mut |_| {});
        let text = text.replace("\"content_index\":0", &format!("\"content_index\":{number}"));
        reader.server(text.as_bytes(), &mut |_| {});
    }
    assert_eq!(reader.active.len(), MAX_ACTIVE);
    let mut one = Realtime::new();
    for number in 0..1_000 {
        let text = delta("output_text", "r", "x");
        let text = text.replace("\"content_index\":0", &format!("\"content_index\":{number}"));
        one.server(text.as_bytes(), &mut |_| {});
    }
    assert_eq!(one.active.first().map(|response| response.pieces.len()), Some(MAX_TEXTS));
}
