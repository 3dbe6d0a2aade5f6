//! Provides the stream of `docs/reference/outcomes.md`, up to each of the moments at which it can end.

pub const PATH: &str = "/v1/chat/completions";
pub const BODY: &str =
    r#"{"model":"gpt-4o","stream":true,"messages":[{"role":"user","content":"Say hello"}]}"#;

/// The moments after the response headers, in order. Each one comes with the events since the previous moment.
const MOMENTS: [(&str, &[&str]); 5] = [
    ("before the first byte", &[]),
    (
        "before the first token",
        &[
            r#"{"id":"c","model":"gpt-4o","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
        ],
    ),
    (
        "mid-stream",
        &[
            r#"{"id":"c","model":"gpt-4o","choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}"#,
            r#"{"id":"c","model":"gpt-4o","choices":[{"index":0,"delta":{"content":" world"},"finish_reason":null}]}"#,
        ],
    ),
    (
        "after the finish reason",
        &[
            r#"{"id":"c","model":"gpt-4o","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        ],
    ),
    (
        "after the last event",
        &[
            r#"{"id":"c","model":"gpt-4o","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}"#,
            "[DONE]",
        ],
    ),
];

/// Returns the response body up to `moment`, or `None` for a moment before the response headers.
pub fn until(moment: &str) -> Option<String> {
    let last = MOMENTS.iter().position(|(name, _)| *name == moment);
    if last.is_none() {
        assert_eq!(moment, "before the head");
    }
    let events = MOMENTS[..=last?].iter().flat_map(|(_, events)| *events);
    Some(events.map(|event| format!("data: {event}\n\n")).collect())
}
