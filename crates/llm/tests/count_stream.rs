//! Runs the example `count_stream` on its recording.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../examples/count_stream.rs"]
#[expect(dead_code, reason = "only the example itself calls its main function")]
mod example;

use std::fs;

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/chat.sse");

fn run(body: &[u8]) -> String {
    let mut out = Vec::new();
    example::count_stream(&mut &*body, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn prints_events_tokens_and_usage() {
    let output = run(&fs::read(RECORDING).unwrap());
    for line in [
        r#"text "Token": +1 tokens"#,
        "usage: input Some(14), output Some(9)",
        "Done",
        "model: gpt-4o-2024-08-06",
        "counted text tokens: 9 (o200k_base)",
        "reported input tokens: 14",
        "reported output tokens: 9",
        "finish reason of choice 0: stop",
        "complete: true",
    ] {
        assert!(output.lines().any(|it| it == line), "no line {line:?} in\n{output}");
    }
}

#[test]
fn truncated_stream_is_incomplete() {
    let body = fs::read(RECORDING).unwrap();
    let output = run(&body[..600]);
    assert!(output.contains("complete: false"), "{output}");
    assert!(output.contains("reported output tokens: unknown"), "{output}");
}
