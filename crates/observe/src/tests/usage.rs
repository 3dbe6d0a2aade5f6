//! Tests of calls whose reported token counts contradict each other, or leave a part of the output out.

use super::*;
use tokengauge_llm::dialect::{ByModality, Usage};
use tokengauge_measure::record::Call;

/// Returns the call of a stream with 4 tokens of reasoning, 6 tokens of text and this usage object.
fn call(usage: &str) -> Call {
    reasoned(" word word word word", usage)
}

fn reasoned(reasoning: &str, usage: &str) -> Call {
    let mut play = Play::stream(STREAMED);
    if !reasoning.is_empty() {
        play.delta(300, &format!(r#"{{"reasoning_content":"{reasoning}"}}"#));
    }
    play.delta(400, r#"{"content":" word word word word word word"}"#);
    play.event(500, &chunk("{}", r#""stop""#));
    play.event(510, &format!(r#"{{"choices":[],"usage":{usage}}}"#)).event(510, "[DONE]");
    play.complete(520).call.unwrap()
}

/// Returns N, its source and the hidden tokens.
fn output(call: &Call) -> (f64, Option<Source>, u64) {
    let output = call.output.unwrap();
    (output.tokens, output.source, output.hidden)
}

#[test]
fn parts_never_exceed_the_whole() {
    for (usage, kept) in [
        // Reasoning exceeds the output, and the total excludes it.
        (
            r#"{"prompt_tokens":90,"completion_tokens":293,"total_tokens":383,"completion_tokens_details":{"reasoning_tokens":321}}"#,
            [Some(90), Some(293), None, None],
        ),
        (
            r#"{"prompt_tokens":90,"completion_tokens":293,"completion_tokens_details":{"reasoning_tokens":321}}"#,
            [Some(90), Some(293), None, None],
        ),
        (
            r#"{"prompt_tokens":90,"completion_tokens":20,"total_tokens":110,"prompt_tokens_details":{"cached_tokens":91}}"#,
            [Some(90), Some(20), None, None],
        ),
        (
            r#"{"prompt_tokens":90,"completion_tokens":20,"total_tokens":110,"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":40}}"#,
            [Some(90), Some(20), None, None],
        ),
        (
            r#"{"prompt_tokens":90,"completion_tokens":20,"total_tokens":110,"completion_tokens_details":{"audio_tokens":21}}"#,
            [Some(90), Some(20), None, None],
        ),
    ] {
        let Usage { input, output, cache_read, reasoning, .. } = call(usage).usage.unwrap();
        assert_eq!([input, output, cache_read, reasoning], kept, "{usage}");
        assert_eq!(call(usage).usage.unwrap().output_by, ByModality::default(), "{usage}");
    }
}

#[test]
fn counts_the_output_if_the_reported_output_is_contradictory() {
    for usage in [
        r#"{"prompt_tokens":90,"completion_tokens":293,"total_tokens":383,"completion_tokens_details":{"reasoning_tokens":321}}"#,
        r#"{"prompt_tokens":90,"completion_tokens":293,"completion_tokens_details":{"reasoning_tokens":321}}"#,
        // The total is less than its parts.
        r#"{"prompt_tokens":90,"completion_tokens":293,"total_tokens":100}"#,
    ] {
        assert_eq!(output(&call(usage)), (10.0, Some(Source::Counted), 0), "{usage}");
    }
    let filler = r#"{"prompt_tokens":90,"completion_tokens":12,"total_tokens":0}"#;
    assert_eq!(
        output(&call(filler)),
        (12.0, Some(Source::Reported), 0),
        "a total of 0 is no report"
    );
}

#[test]
fn the_total_decides_whether_a_part_is_inside_or_beside() {
    let inside = r#"{"prompt_tokens":90,"completion_tokens":500,"total_tokens":590,"completion_tokens_details":{"reasoning_tokens":321}}"#;
    let beside = r#"{"prompt_tokens":90,"completion_tokens":179,"total_tokens":590,"completion_tokens_details":{"reasoning_tokens":321}}"#;
    for usage in [inside, beside] {
        let call = call(usage);
        let reported = call.usage.unwrap();
        assert_eq!((reported.output, reported.reasoning), (Some(500), Some(321)), "{usage}");
        // 4 of the 321 reasoning tokens were streamed.
        assert_eq!(output(&call), (183.0, Some(Source::Reported), 317), "{usage}");
    }
    let cached_beside = r#"{"prompt_tokens":90,"completion_tokens":20,"total_tokens":310,"prompt_tokens_details":{"cached_tokens":200}}"#;
    let reported = call(cached_beside).usage.unwrap();
    assert_eq!((reported.input, reported.cache_read), (Some(290), Some(200)));
}

#[test]
fn tokens_that_only_the_total_shows_are_hidden_output() {
    let usage = r#"{"prompt_tokens":3,"completion_tokens":7,"total_tokens":298}"#;
    let silent = reasoned("", usage);
    let reported = silent.usage.unwrap();
    assert_eq!((reported.input, reported.output), (Some(3), Some(295)));
    assert_eq!(output(&silent), (7.0, Some(Source::Reported), 288));
    // 4 of the 288 tokens were streamed as reasoning.
    assert_eq!(output(&call(usage)), (11.0, Some(Source::Reported), 284));
}

#[test]
fn streamed_reasoning_leaves_the_reported_count_exact() {
    let usage = r#"{"prompt_tokens":9,"completion_tokens":200,"total_tokens":209}"#;
    assert_eq!(output(&call(usage)), (200.0, Some(Source::Reported), 0));
    let without_total = r#"{"prompt_tokens":9,"completion_tokens":200}"#;
    assert_eq!(output(&call(without_total)), (200.0, Some(Source::Reported), 0));
}
