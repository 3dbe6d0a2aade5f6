//! Tests of token counts that are added up, contradict each other or are implausible, in all formats.

use super::*;
use crate::budget::RequestBudget;
use crate::dialect::testing::{JSON, TestResponse, usage as usage_event};
use crate::dialect::{Api, ResponseReader};
use crate::frame::Frame;

fn usage(input: u64, cache_read: u64, output: u64) -> UncachedUsage {
    UncachedUsage {
        input: Some(input),
        cache_read: Some(cache_read),
        output: Some(output),
        ..UncachedUsage::default()
    }
}

#[test]
fn adds_the_cache_and_overwrites_earlier_counts() {
    let mut known = UncachedUsage { cache_write: Some(3), ..usage(2, 10, 1) };
    assert_eq!(known.usage().input, Some(15));
    known.merge(usage(6, 0, 40));
    let usage = known.usage();
    let counts = (usage.input, usage.cache_read, usage.cache_write);
    assert_eq!((counts, usage.output), ((Some(9), Some(0), Some(3)), Some(40)));
    known.merge(UncachedUsage { output: Some(41), ..UncachedUsage::default() });
    assert_eq!(known.usage(), Usage { output: Some(41), ..usage });
}

#[test]
fn ignores_a_zero_input_after_a_count() {
    let mut known = UncachedUsage::default();
    assert_eq!(known.usage(), Usage::default());
    known.merge(usage(0, 0, 0));
    assert_eq!(known.usage().input, Some(0));
    known.merge(usage(17, 0, 1));
    known.merge(usage(0, 0, 9));
    let usage = known.usage();
    assert_eq!((usage.input, usage.output), (Some(17), Some(9)));
}

#[test]
fn saturates() {
    let known = usage(u64::MAX, u64::MAX, u64::MAX);
    assert_eq!(known.usage().input, Some(u64::MAX));
}

/// A count that no call can have, in each format: no number, and one parse error.
#[test]
fn implausible_counts_are_parse_errors() {
    let formats: [(Api, &str, Option<&str>); 12] = [
        (Api::OpenAiChat, r#"{"usage":{"prompt_tokens":9,"completion_tokens":N}}"#, Some("9")),
        (Api::OpenAiChat, r#"{"usage":{"prompt_tokens":9,"total_tokens":N}}"#, Some("9")),
        (Api::OpenAiEmbeddings, r#"{"usage":{"prompt_tokens":N}}"#, None),
        (Api::OpenAiResponses, r#"{"usage":{"input_tokens":9,"output_tokens":N}}"#, Some("9")),
        (Api::AnthropicMessages, r#"{"content":[],"usage":{"input_tokens":N}}"#, None),
        (Api::GeminiGenerateContent, r#"{"usageMetadata":{"promptTokenCount":N}}"#, None),
        (Api::GeminiInteractions, r#"{"usage":{"total_input_tokens":N}}"#, None),
        (Api::BedrockConverse, r#"{"usage":{"inputTokens":N}}"#, None),
        (
            Api::CohereV2Chat,
            r#"{"usage":{"tokens":{"input_tokens":9,"output_tokens":N}}}"#,
            Some("9"),
        ),
        (Api::OllamaChat, r#"{"prompt_eval_count":9,"eval_count":N}"#, Some("9")),
        (Api::DashScopeGeneration, r#"{"usage":{"input_tokens":9,"output_tokens":N}}"#, Some("9")),
        (
            Api::SglangGenerate,
            r#"{"meta_info":{"prompt_tokens":9,"completion_tokens":N}}"#,
            Some("9"),
        ),
    ];
    let numbers =
        ["1e12", "9223372036854775807", "18446744073709551615", "-5", "0.5", "1000000001"];
    for (api, body, input) in formats {
        for number in numbers {
            let body = body.replace('N', number);
            let events = TestResponse::new(api, JSON).read(body.as_bytes());
            let error = "ParseError(BadCount)".to_owned();
            let input =
                input.map(|input| usage_event([input.parse().ok(), None, None, None, None]));
            let expected: Vec<String> = [error].into_iter().chain(input).collect();
            assert_eq!(events, expected, "{api:?} {body}");
        }
        let fine = TestResponse::new(api, JSON).read(body.replace('N', "1e7").as_bytes());
        assert!(!fine.iter().any(|event| event.contains("ParseError")), "{api:?}: {fine:?}");
    }
}

/// Returns the token counts of a body as its format reports them.
fn reported(api: Api, body: &str) -> Usage {
    let counts = std::cell::Cell::new(Usage::default());
    let mut reader =
        ResponseReader::new(api, &RequestFacts::default(), 200, &RequestBudget::default());
    let mut out = |event: Event<'_>| {
        if let Event::Usage(usage) = event {
            counts.set(*usage);
        }
    };
    reader.read(&Frame::BodyChunk(body.as_bytes()), &mut out);
    reader.read(&Frame::BodyEnd, &mut out);
    counts.get()
}

/// Bodies whose total shows what the other counts include. The expected counts are input, output, cache reads, reasoning
/// and output that only the total shows.
const TOTALS: &[(Api, &str, [Option<u64>; 5])] = &[
    // Thoughts beside the answer, as defined, and inside it.
    (
        Api::GeminiGenerateContent,
        r#"{"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":50,"thoughtsTokenCount":40,"totalTokenCount":99}}"#,
        [Some(9), Some(90), None, Some(40), None],
    ),
    (
        Api::GeminiGenerateContent,
        r#"{"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":50,"thoughtsTokenCount":40,"totalTokenCount":59}}"#,
        [Some(9), Some(50), None, Some(40), None],
    ),
    (
        Api::GeminiGenerateContent,
        r#"{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":7,"totalTokenCount":298}}"#,
        [Some(3), Some(295), None, None, Some(288)],
    ),
    // Prompts of tools beside the prompt, and inside it.
    (
        Api::GeminiGenerateContent,
        r#"{"usageMetadata":{"promptTokenCount":9,"toolUsePromptTokenCount":5,"candidatesTokenCount":2,"totalTokenCount":16}}"#,
        [Some(14), Some(2), None, None, None],
    ),
    (
        Api::GeminiGenerateContent,
        r#"{"usageMetadata":{"promptTokenCount":9,"toolUsePromptTokenCount":5,"candidatesTokenCount":2,"totalTokenCount":11}}"#,
        [Some(9), Some(2), None, None, None],
    ),
    (
        Api::BedrockConverse,
        r#"{"usage":{"inputTokens":4,"outputTokens":145,"totalTokens":1634,"cacheReadInputTokens":1485}}"#,
        [Some(1489), Some(145), Some(1485), None, None],
    ),
    (
        Api::BedrockConverse,
        r#"{"usage":{"inputTokens":1489,"outputTokens":145,"totalTokens":1634,"cacheReadInputTokens":1485}}"#,
        [Some(1489), Some(145), Some(1485), None, None],
    ),
    // The total excludes cached tokens that cannot be inside the input.
    (
        Api::BedrockConverse,
        r#"{"usage":{"inputTokens":4,"outputTokens":145,"totalTokens":149,"cacheReadInputTokens":1485}}"#,
        [Some(1489), Some(145), Some(1485), None, None],
    ),
    (
        Api::AnthropicMessages,
        r#"{"content":[],"usage":{"input_tokens":90,"output_tokens":5,"cache_read_input_tokens":80}}"#,
        [Some(170), Some(5), Some(80), None, None],
    ),
    (
        Api::AnthropicMessages,
        r#"{"content":[],"usage":{"input_tokens":90,"output_tokens":5,"cache_read_input_tokens":80,"total_tokens":95}}"#,
        [Some(90), Some(5), Some(80), None, None],
    ),
    (
        Api::DashScopeGeneration,
        r#"{"usage":{"input_tokens":9,"output_tokens":5,"total_tokens":54,"output_tokens_details":{"reasoning_tokens":40}}}"#,
        [Some(9), Some(45), None, Some(40), None],
    ),
    (
        Api::CloudflareRun,
        r#"{"result":{"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":20}}}"#,
        [Some(9), Some(11), None, None, Some(7)],
    ),
    (
        Api::OpenAiResponses,
        r#"{"usage":{"input_tokens":9,"output_tokens":4,"total_tokens":63,"output_tokens_details":{"reasoning_tokens":50}}}"#,
        [Some(9), Some(54), None, Some(50), None],
    ),
    // Mistral counts audio only in the total.
    (
        Api::OpenAiTranscription,
        r#"{"text":"","usage":{"prompt_audio_seconds":203,"prompt_tokens":4,"completion_tokens":635,"total_tokens":3264}}"#,
        [Some(2629), Some(635), None, None, None],
    ),
    // An API that generates nothing has no hidden output.
    (
        Api::OpenAiEmbeddings,
        r#"{"usage":{"prompt_tokens":9,"completion_tokens":0,"total_tokens":20}}"#,
        [Some(9), Some(0), None, None, None],
    ),
];

#[test]
fn the_total_decides_in_every_format_what_a_count_includes() {
    for (api, body, expected) in TOTALS {
        let Usage { input, output, cache_read, reasoning, unlisted, output_in_doubt, .. } =
            reported(*api, body);
        assert_eq!([input, output, cache_read, reasoning, unlisted], *expected, "{body}");
        assert!(!output_in_doubt, "{body}");
    }
}

#[test]
fn parts_that_exceed_their_whole_are_left_out_in_every_format() {
    for (api, body) in [
        (
            Api::CohereV2Chat,
            r#"{"usage":{"tokens":{"input_tokens":9,"output_tokens":4,"reasoning_tokens":5}}}"#,
        ),
        (
            Api::DashScopeGeneration,
            r#"{"usage":{"input_tokens":9,"output_tokens":4,"output_tokens_details":{"reasoning_tokens":5}}}"#,
        ),
        (
            Api::AnthropicMessages,
            r#"{"content":[],"usage":{"input_tokens":9,"output_tokens":4,"output_tokens_details":{"thinking_tokens":5}}}"#,
        ),
        (
            Api::OpenAiResponses,
            r#"{"usage":{"input_tokens":9,"output_tokens":4,"output_tokens_details":{"reasoning_tokens":5}}}"#,
        ),
    ] {
        let usage = reported(api, body);
        let counts = (usage.input, usage.output, usage.reasoning, usage.output_in_doubt);
        assert_eq!(counts, (Some(9), Some(4), None, true), "{body}");
    }
    let sglang = r#"{"meta_info":{"prompt_tokens":9,"completion_tokens":4,"cached_tokens":10}}"#;
    let usage = reported(Api::SglangGenerate, sglang);
    assert_eq!((usage.input, usage.cache_read, usage.output_in_doubt), (Some(9), None, false));
}

#[test]
fn divides_cache_writes_by_lifetime_in_every_format() {
    let both = r#"{"ephemeral_5m_input_tokens":30,"ephemeral_1h_input_tokens":70}"#;
    for (api, body, input) in [
        (Api::AnthropicMessages, format!(r#"{{"content":[],"usage":{{"input_tokens":9,"cache_creation_input_tokens":100,"cache_creation":{both}}}}}"#), 109),
        (Api::BedrockInvoke, format!(r#"{{"content":[],"usage":{{"input_tokens":9,"cache_creation_input_tokens":100,"cache_creation":{both}}}}}"#), 109),
        (Api::BedrockConverse, r#"{"usage":{"inputTokens":9,"cacheWriteInputTokens":100,"cacheDetails":[{"ttl":"1h","inputTokens":70},{"ttl":"5m","inputTokens":30}]}}"#.to_owned(), 109),
        (Api::OpenAiChat, format!(r#"{{"usage":{{"prompt_tokens":109,"cache_creation_input_tokens":100,"cache_creation":{both}}}}}"#), 109),
        (Api::OpenAiChat, format!(r#"{{"usage":{{"prompt_tokens":109,"prompt_tokens_details":{{"cache_creation":{both}}}}}}}"#), 109),
        (Api::OpenAiChat, format!(r#"{{"usage":{{"prompt_tokens":109,"prompt_tokens_details":{{"cached_tokens":0,"cache_creation_token_details":{both}}}}}}}"#), 109),
    ] {
        let usage = reported(api, &body);
        let counts = (usage.cache_write, usage.cache_write_5m, usage.cache_write_1h);
        assert_eq!((usage.input, counts), (Some(input), (Some(100), Some(30), Some(70))), "{body}");
    }
    let too_many = format!(
        r#"{{"content":[],"usage":{{"input_tokens":9,"cache_creation_input_tokens":50,"cache_creation":{both}}}}}"#
    );
    let usage = reported(Api::AnthropicMessages, &too_many);
    let counts = (usage.cache_write, usage.cache_write_5m, usage.cache_write_1h);
    assert_eq!(counts, (Some(50), None, None));
}
