//! Tests AWS event streams.

use super::encode::{event, exception, message, prelude, raw};
use super::*;

fn framer(cap: usize) -> impl Fn() -> Framer {
    move || Framer::AwsEventStream(AwsEventStream::new(cap))
}

#[test]
fn reads_a_typical_stream() {
    let body = [
        event("messageStart", r#"{"p":"abcdef","role":"assistant"}"#),
        event("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"Ebb"},"p":"ab"}"#),
        event("messageStop", r#"{"p":"a","stopReason":"end_turn"}"#),
        event("metadata", r#"{"metrics":{"latencyMs":310},"usage":{"outputTokens":2}}"#),
    ];
    let expected = [
        r#"messageStart|{"p":"abcdef","role":"assistant"}"#,
        r#"contentBlockDelta|{"contentBlockIndex":0,"delta":{"text":"Ebb"},"p":"ab"}"#,
        r#"messageStop|{"p":"a","stopReason":"end_turn"}"#,
        r#"metadata|{"metrics":{"latencyMs":310},"usage":{"outputTokens":2}}"#,
    ];
    assert_eq!(frames(AWS, body.concat()), expected);
    assert_in_place(AWS, &body.concat(), 4);
}

#[test]
fn reads_a_message_written_by_hand() {
    // Lengths 36 and 15 and their CRC, one string header, the payload, the CRC.
    let body = b"\x00\x00\x00\x24\x00\x00\x00\x0F\xC1\xDC\x4B\x3C\
        \x0B:event-type\x07\x00\x00hello\xD7\xB9\x3B\x07";
    assert_eq!(body, message(&[(":event-type", "")], b"hello").as_slice());
    assert_eq!(frames(AWS, body), ["|hello"]);
}

#[test]
fn reads_a_failure_inside_a_stream() {
    let throttled = exception("throttlingException", r#"{"message":"Too many requests"}"#);
    let error = [
        (":message-type", "error"),
        (":error-code", "InternalFailure"),
        (":error-message", "Try again"),
    ];
    let body = [
        event("chunk", "{}"),
        throttled,
        message(&error, b""),
        message(&error, b"{\"message\":\"Later\"}"),
    ];
    let expected = [
        "chunk|{}",
        "exception throttlingException|{\"message\":\"Too many requests\"}",
        "exception InternalFailure|Try again",
        "exception InternalFailure|{\"message\":\"Later\"}",
    ];
    assert_eq!(frames(AWS, body.concat()), expected);
}

#[test]
fn skips_headers_of_every_type() {
    let headers = b"\x01t\x00\x01f\x01\x01b\x02\x7F\x01s\x03\x01\x02\x01i\x04\x01\x02\x03\x04\
        \x01l\x05\x01\x02\x03\x04\x05\x06\x07\x08\x01x\x06\x00\x03\x0B:e\x01d\x08\x01\x02\x03\x04\x05\x06\x07\x08\
        \x01u\x09\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0A\x0B\x0C\x0D\x0E\x0F\x10\x0B:event-type\x07\x00\x05chunk";
    assert_eq!(frames(AWS, raw(headers, b"{}")), ["chunk|{}"]);
    assert_eq!(frames(AWS, raw(b"", b"{}")), ["|{}"]);
    assert_eq!(frames(AWS, raw(b"", b"")), ["|"]);
}

#[test]
fn broken_headers_affect_only_their_message() {
    let name = b"\x0B:event-type".as_slice();
    for broken in [
        b"\x05:e".as_slice(),
        name,
        &[name, b"\x07\x00"].concat(),
        &[name, b"\x07\x00\x05chun"].concat(),
        &[name, b"\x0A"].concat(),
        &[name, b"\x09uuid"].concat(),
    ] {
        let body = [raw(broken, b"{}"), event("chunk", "{}")].concat();
        assert_eq!(frames(AWS, body), ["error bad_frame", "chunk|{}"], "{broken:?}");
    }
}

#[test]
fn ignores_the_rest_after_a_wrong_checksum() {
    let good = event("chunk", "{\"bytes\":\"e30=\"}");
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        let body = [&good[..], &bad, &good].concat();
        let expected = ["chunk|{\"bytes\":\"e30=\"}", "error bad_frame"];
        assert_eq!(collect(framer(MAX_FRAME_BYTES)(), &[&body]), expected, "{at}");
    }
    let body = [&good[..], b"\0\0\0\x10{\"not\": \"a message\"}", &good].concat();
    assert_eq!(frames(AWS, body)[1..], ["error bad_frame"]);
}

#[test]
fn rejects_impossible_lengths_with_a_valid_checksum() {
    for (total, headers) in [(0, 0), (15, 0), (16, 1), (100, 85), (16, 0xFFFF_FFFF)] {
        let body = [prelude(total, headers), vec![0; 100]].concat();
        assert_eq!(cuts(framer(MAX_FRAME_BYTES), &body), ["error bad_frame"], "{total} {headers}");
    }
}

#[test]
fn skips_a_message_above_the_cap_and_reports_it_once() {
    let short = event("chunk", "{}");
    let cap = short.len();
    let body = [&short[..], &event("chunk", "{ }"), &short].concat();
    assert_eq!(cuts(framer(cap), &body), ["chunk|{}", "error oversize", "chunk|{}"]);
}

#[test]
fn a_message_of_four_gibibytes_takes_no_memory() {
    let mut framer = framer(MAX_FRAME_BYTES)();
    let mut odd = Vec::new();
    let mut out = |frame: Frame<'_>| odd.push(format!("{frame:?}"));
    framer.push(&prelude(0xFFFF_FFFF, 0), &mut out);
    for _ in 0..100 {
        framer.push(&[0; 1 << 16], &mut out);
        assert_eq!(held(&framer), 0);
    }
    framer.finish(&mut out);
    assert_eq!(odd, ["ParseError(Oversize)", "ParseError(Unterminated)"]);
}

#[test]
fn reports_an_unfinished_message() {
    let body = event("chunk", "{}");
    for end in 1..body.len() {
        let frames = collect(framer(MAX_FRAME_BYTES)(), &[&body, &body[..end]]);
        assert_eq!(frames, ["chunk|{}", "error unterminated"], "{end}");
    }
}

#[test]
fn ignores_the_rest_after_a_gap() {
    let body = event("chunk", "{}");
    assert!(after_gap(AWS, &body, &body).is_empty());
    assert!(after_gap(AWS, &body[..20], &body).is_empty());
    assert!(after_gap(AWS, &prelude(MAX_FRAME_BYTES + 1, 0), &body).is_empty());
}
