//! Tests of sessions that clients send without configuration.

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;

use super::*;
use tokengauge_types::event::{MAX_SESSION_BYTES, SessionRule, ValueHasher};

const DETECT: SessionRule = SessionRule { detect: true, hasher: None };

/// Returns the record of a request with these headers and this body.
fn record(path: &str, headers: &[(&'static str, &str)], body: &str, rule: &SessionRule) -> Record {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    let map: HeaderMap = headers.iter().map(pair).collect();
    let identity = CallerIdentity::detect(&map, None, rule);
    let head = RequestHead { identity, session_rule: rule.clone(), ..open(path) };
    let mut play = Play::opened(head, body);
    play.head(200, 200, "application/json");
    play.complete(300)
}

/// Returns the session and its source.
fn session(
    path: &str,
    headers: &[(&'static str, &str)],
    body: &str,
) -> Option<(String, &'static str)> {
    let caller = record(path, headers, body, &DETECT).caller;
    caller.session.map(|id| (id.to_string(), caller.session_source.unwrap().as_str()))
}

fn claude(user_id: &str) -> String {
    let user_id = serde_json::to_string(user_id).unwrap();
    format!(
        r#"{{"model":"claude","max_tokens":1,"metadata":{{"user_id":{user_id}}},"messages":[]}}"#
    )
}

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

#[test]
fn the_body_is_preferred_to_weaker_headers_only() {
    let body = claude("user_a_account__session_s-body");
    for (header, expected) in [
        ("x-claude-code-session-id", ("h", "x-claude-code-session-id")),
        ("session-id", ("s-body", "metadata.user_id")),
        ("x-opencode-session", ("s-body", "metadata.user_id")),
    ] {
        let (id, source) = session(MESSAGES, &[(header, "h")], &body).unwrap();
        assert_eq!((id.as_str(), source), expected);
    }
    let key = r#"{"model":"m","input":"x","prompt_cache_key":"k","conversation":{"id":"conv_1"}}"#;
    let of = |id: &str, source| Some((id.to_owned(), source));
    assert_eq!(session(RESPONSES, &[], key), of("k", "prompt_cache_key"));
    assert_eq!(session(RESPONSES, &[("session-id", "h")], key), of("h", "session-id"));
    let conversation = r#"{"model":"m","input":"x","conversation":"conv_1"}"#;
    assert_eq!(session(RESPONSES, &[], conversation), of("conv_1", "conversation"));
    assert_eq!(session(RESPONSES, &[], r#"{"model":"m","input":"x"}"#), None);
}

#[test]
fn a_user_without_a_session_is_no_session() {
    let plain = record(MESSAGES, &[], &claude("u"), &DETECT);
    for user in [
        "",
        "u-17",
        "user_a_session_b",
        "account_session_b",
        "user_a_account_b_session_",
        "{}",
        "{\"session_id\":null}",
        "{\"session_id\":\"\"}",
        "{\"session_id\":{\"a\":1}}",
        "{\"session_id\":\"cut",
        "{\"session_id\":\"a\\u0000b\"}",
    ] {
        let record = record(MESSAGES, &[], &claude(user), &DETECT);
        assert_eq!(record.caller.session, None, "{user}");
        assert_eq!(record.anomalies, plain.anomalies, "{user}: no error of the response");
    }
    let found = session(MESSAGES, &[], &claude(r#"{"device_id":"d","session_id":"s-1"}"#));
    assert_eq!(found, Some(("s-1".to_owned(), "metadata.user_id")));
}

#[test]
fn long_and_unprintable_values_of_a_body_are_refused() {
    let chat = "/v1/chat/completions";
    let long = "x".repeat(10_000);
    let longer = "x".repeat(MAX_SESSION_BYTES + 1);
    let control = "a\u{0}b".to_owned();
    for refused in [&long, &longer, &control, "a\nb", "\u{7f}", " "] {
        let value = serde_json::to_string(refused).unwrap();
        let body = format!(r#"{{"model":"m","messages":[],"prompt_cache_key":{value}}}"#);
        assert_eq!(session(chat, &[], &body), None, "{refused:.10}");
    }
    let markup = r#"{"model":"m","messages":[],"prompt_cache_key":"<b>\u00e9</b>"}"#;
    let found = Some(("<b>\u{e9}</b>".to_owned(), "prompt_cache_key"));
    assert_eq!(session(chat, &[], markup), found);
    let wrong_types = r#"{"model":"m","messages":[],"prompt_cache_key":{"a":[1]},"metadata":7}"#;
    assert_eq!(session(chat, &[], wrong_types), None);
}

#[test]
fn hashes_every_id_or_none() {
    let body = r#"{"model":"m","input":"x","conversation":"conv_1"}"#;
    let hasher = Arc::new(ValueHasher::new(b"k"));
    let hash = |text: &str| hasher.hash(text.as_bytes());
    let rule = SessionRule { detect: true, hasher: Some(Arc::clone(&hasher)) };
    let sent = [("session-id", "s-1"), ("x-claude-code-agent-id", "a-1")];
    let headers = record(RESPONSES, &sent, body, &rule);
    assert_eq!((headers.caller.session, headers.caller.sub_agent), (hash("s-1"), hash("a-1")));
    assert_eq!(headers.call.unwrap().request.conversation, hash("conv_1"));
    let in_body = record(RESPONSES, &[], body, &rule);
    assert_eq!(in_body.caller.session, hash("conv_1"));
    let off = record(RESPONSES, &sent, body, &SessionRule::default());
    assert_eq!(off.caller, CallerIdentity::default());
    assert_eq!(off.call.unwrap().request.conversation, Name::new("conv_1"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Bytes that are not UTF-8 included, no value of a body becomes an id that is too long or not printable.
    #[test]
    fn every_session_is_bounded_and_printable(
        text in "\\PC{0,300}|[ -~\\t\\n\\x00]{0,300}",
        is_user in any::<bool>(),
    ) {
        let value = if is_user { format!("user_a_account_b_session_{text}") } else { text };
        let quoted = serde_json::to_string(&value).unwrap();
        let key = if is_user { r#""metadata":{"user_id""# } else { r#""prompt_cache_key""# };
        let end = if is_user { "}}" } else { "}" };
        let body = format!("{{\"model\":\"m\",\"messages\":[],{key}:{quoted}{end}");
        if let Some((id, _)) = session("/v1/chat/completions", &[], &body) {
            prop_assert!((1..=MAX_SESSION_BYTES).contains(&id.len()));
            prop_assert!(!id.chars().any(char::is_control));
            prop_assert!(value.ends_with(id.as_str()) || value.trim_end().ends_with(id.as_str()));
        }
    }
}
