//! Tests responses of the APIs for audio, images, moderations and embeddings.

use super::{body, failed, started, stopped, stream, usage};
use crate::dialect::testing::{STREAM, TestResponse};
use crate::dialect::*;

const TRANSCRIPTION: Api = Api::OpenAiTranscription;

/// Returns the events of a response whose headers declare no framing.
fn plain(api: Api, status: u16, body: &[u8]) -> Vec<String> {
    TestResponse::new(api, None).status(status).read(body)
}

fn text(text: &str) -> String {
    format!("0 Transcript {text:?}")
}

/// Returns the line of a usage event: input and output, each divided into text, image and audio.
fn split(input: (u64, [u64; 3]), output: (u64, [u64; 3])) -> String {
    let by = |[text, image, audio]: [u64; 3]| ByModality {
        text: Some(text).filter(|tokens| *tokens > 0),
        image: Some(image).filter(|tokens| *tokens > 0),
        audio: Some(audio).filter(|tokens| *tokens > 0),
        ..ByModality::default()
    };
    let usage = Usage {
        input: Some(input.0),
        output: Some(output.0),
        input_by: by(input.1),
        output_by: by(output.1),
        ..Usage::default()
    };
    format!("{:?}", Event::Usage(&usage))
}

#[test]
fn reads_a_transcript_in_json() {
    let tokens = r#"{"text":"Good day.","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":0,"audio_tokens":14},"output_tokens":5,"total_tokens":19}}"#;
    assert_eq!(
        body(TRANSCRIPTION, tokens),
        [text("Good day."), split((14, [0, 0, 14]), (5, [0; 3]))]
    );
    let verbose = r#"{"task":"transcribe","language":"english","duration":2.5,"text":"Good day.","segments":[{"id":0,"text":"Good day.","tokens":[1,2],"avg_logprob":-0.3}],"words":[{"word":"Good"}],"usage":{"type":"duration","seconds":3}}"#;
    assert_eq!(body(TRANSCRIPTION, verbose), [text("Good day.")]);
    let llama = r#"{"type":"transcript.text.done","text":"Good day.","usage":{"type":"tokens","input_tokens":14,"output_tokens":5,"input_tokens_details":{"cached_tokens":2}}}"#;
    assert_eq!(
        body(TRANSCRIPTION, llama),
        [text("Good day."), usage([Some(14), Some(5), Some(2), None, None])]
    );
    let mistral = r#"{"model":"voxtral","text":"Good day.","language":"en","segments":[],"usage":{"prompt_audio_seconds":3,"prompt_tokens":14,"completion_tokens":5,"total_tokens":19}}"#;
    assert_eq!(
        body(TRANSCRIPTION, mistral),
        [
            started(None, Some("voxtral")),
            text("Good day."),
            usage([Some(14), Some(5), None, None, None])
        ]
    );
}

#[test]
fn reads_a_transcript_in_plain_text_and_in_subtitles() {
    let said = [text("Good day.\nTwo 42 é")];
    for body in [
        "Good day.\nTwo 42 é\n",
        "Good day.\r\n\r\nTwo 42 é",
        "1\n00:00:00,000 --> 00:00:02,000\nGood day.\n\n2\n00:00:02,000 --> 00:00:03,000\nTwo 42 é\n\n",
        "WEBVTT\n\n00:00.000 --> 00:02.000\nGood day.\n\n00:02.000 --> 00:03.000 align:start\nTwo 42 é\n",
    ] {
        assert_eq!(plain(TRANSCRIPTION, 200, body.as_bytes()), said, "{body}");
    }
    // A number belongs to a cue only if times follow.
    assert_eq!(plain(TRANSCRIPTION, 200, b"[Music]\n7\n8"), [text("[Music]\n7\n8")]);
    let long =
        format!("{}é\r\n3\r\nend --> of a {}long one\r\n", "so ".repeat(60), "line ".repeat(40));
    let joined = long.trim_end().replace("\r\n", "\n");
    assert_eq!(plain(TRANSCRIPTION, 200, long.as_bytes()), [text(&joined)]);
    assert_eq!(plain(TRANSCRIPTION, 502, b"Bad gateway"), [failed(None)]);
}

#[test]
fn reads_a_streamed_transcript() {
    let done = r#"{"type":"transcript.text.done","text":"Good day.","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"text_tokens":4,"audio_tokens":10},"output_tokens":5}}"#;
    let messages = [
        r#"{"type":"transcript.text.delta","delta":"Good"}"#,
        r#"{"type":"transcript.text.delta","delta":" day."}"#,
        r#"{"type":"transcript.text.segment","text":"Good day.","speaker":"A"}"#,
        done,
        "[DONE]",
    ];
    let end = [split((14, [4, 0, 10]), (5, [0; 3])), "Done".to_owned()];
    assert_eq!(stream(TRANSCRIPTION, &messages), [&[text("Good day.")][..], &end].concat());
    assert_eq!(stream(TRANSCRIPTION, &[done]), [&[text("Good day.")][..], &end].concat());
    let cut_off = stream(TRANSCRIPTION, &messages[..2]);
    assert_eq!(cut_off, [text("Good day.")]);
}

#[test]
fn reads_streamed_transcripts_of_mistral_and_vllm() {
    let mistral = [
        r#"{"type":"transcription.language","audio_language":"en"}"#,
        r#"{"type":"transcription.text.delta","text":"Good day."}"#,
        r#"{"type":"transcription.done","model":"voxtral","text":"Good day.","usage":{"prompt_tokens":14,"completion_tokens":5}}"#,
    ];
    let counts = usage([Some(14), Some(5), None, None, None]);
    assert_eq!(
        stream(TRANSCRIPTION, &mistral),
        [text("Good day."), started(None, Some("voxtral")), counts.clone(), "Done".to_owned()]
    );
    let vllm = [
        r#"{"id":"t","object":"transcription.chunk","model":"whisper","choices":[{"delta":{"content":"Good day."}}]}"#,
        r#"{"id":"t","object":"transcription.chunk","model":"whisper","choices":[{"delta":{"content":""},"finish_reason":"stop"}]}"#,
        r#"{"id":"t","choices":[],"usage":{"prompt_tokens":14,"completion_tokens":5}}"#,
        "[DONE]",
    ];
    assert_eq!(
        stream(TRANSCRIPTION, &vllm),
        [
            started(Some("t"), Some("whisper")),
            text("Good day."),
            stopped(0, "stop"),
            counts,
            "Done".to_owned()
        ]
    );
}

#[test]
fn ignores_audio_but_reads_errors() {
    let sounds: [&[u8]; 3] = [b"ID3\x04\x00{\"error\":{}}", b"RIFF\xFF\xFE", b"{\x00\x01"];
    for sound in sounds {
        assert_eq!(plain(Api::OpenAiSpeech, 200, sound), [""; 0]);
    }
    let messages = [
        r#"{"type":"speech.audio.delta","audio":"AAAA"}"#,
        r#"{"type":"speech.audio.done","usage":{"input_tokens":7,"output_tokens":90,"total_tokens":97}}"#,
    ];
    assert_eq!(
        stream(Api::OpenAiSpeech, &messages),
        [usage([Some(7), Some(90), None, None, None]), "Done".to_owned()]
    );
    assert!(body(Api::OpenAiSpeech, r#"{"audio_data":"AAAA"}"#).is_empty());
    let refused = br#"{"error":{"type":"invalid_request_error"}}"#;
    let expected = [failed(Some("invalid_request_error"))];
    assert_eq!(plain(Api::OpenAiSpeech, 400, refused), expected);
    assert_eq!(plain(Api::OpenAiSpeech, 200, refused), expected);
}

#[test]
fn reads_usage_of_images() {
    let counts = r#""usage":{"input_tokens":50,"input_tokens_details":{"text_tokens":10,"image_tokens":40},"output_tokens":1056,"output_tokens_details":{"image_tokens":1056,"text_tokens":0},"total_tokens":1106}"#;
    let expected = split((50, [10, 40, 0]), (1056, [0, 1056, 0]));
    let whole = format!(
        r#"{{"created":1,"data":[{{"b64_json":"AAAA","revised_prompt":"a cat"}}],{counts}}}"#
    );
    assert_eq!(body(Api::OpenAiImages, &whole), *std::slice::from_ref(&expected));
    for kind in ["image_generation", "image_edit"] {
        let partial = format!(
            r#"{{"type":"{kind}.partial_image","b64_json":"AAAA","partial_image_index":0}}"#
        );
        let last = format!(r#"{{"type":"{kind}.completed","b64_json":"AAAA",{counts}}}"#);
        assert_eq!(
            stream(Api::OpenAiImages, &[&partial, &last]),
            [expected.clone(), "Done".to_owned()]
        );
        assert!(stream(Api::OpenAiImages, &[&partial]).is_empty());
    }
    let url = r#"{"created":1,"data":[{"url":"https://images.example/1"}]}"#;
    assert!(body(Api::OpenAiImages, url).is_empty());
}

#[test]
fn reads_an_error_in_a_media_stream() {
    let flat = r#"{"type":"error","code":"moderation_blocked","message":"No."}"#;
    let nested = r#"{"type":"error","error":{"type":"image_generation_server_error","code":"c"}}"#;
    for api in [TRANSCRIPTION, Api::OpenAiSpeech, Api::OpenAiImages] {
        assert_eq!(stream(api, &[flat]), [failed(Some("moderation_blocked"))]);
        let kind = Some("image_generation_server_error");
        assert_eq!(stream(api, &[nested]), [failed(kind)]);
        let named = format!("event: error\ndata: {nested}\n\n");
        assert_eq!(TestResponse::new(api, STREAM).read(named.as_bytes()), [failed(kind)]);
        let refused = TestResponse::new(api, STREAM).status(500);
        assert_eq!(refused.read(format!("{named}{named}").as_bytes()), [failed(kind)]);
        assert_eq!(stream(api, &["gone"]), ["ParseError(BadJson)"]);
    }
}

#[test]
fn reads_moderations_and_embeddings() {
    let moderation = r#"{"id":"modr-1","model":"omni","results":[{"flagged":false,"categories":{"hate":false}}]}"#;
    let head = [started(Some("modr-1"), None), started(None, Some("omni"))];
    assert_eq!(body(Api::OpenAiModerations, moderation), head);
    let embeddings = |usage: &str| {
        body(
            Api::OpenAiEmbeddings,
            &format!(r#"{{"data":[{{"embedding":[0.1]}}],"usage":{usage}}}"#),
        )
    };
    let eight = [usage([Some(8), None, None, None, None])];
    assert_eq!(embeddings(r#"{"total_tokens":8}"#), eight);
    assert_eq!(embeddings(r#"{"prompt_tokens":8,"total_tokens":8}"#), eight);
    let chat = r#"{"usage":{"total_tokens":8}}"#;
    assert!(body(Api::OpenAiChat, chat).is_empty());
}
