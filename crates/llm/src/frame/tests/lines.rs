//! Tests lines of JSON.

use super::*;

fn framer(cap: usize) -> impl Fn() -> Framer {
    move || Framer::JsonLines(JsonValues::lines(cap))
}

#[test]
fn reads_a_chat_in_lines() {
    let body = concat!(
        r#"{"model":"qwen3:4b","created_at":"2026-03-01T09:00:00.1Z","message":{"role":"assistant","content":"Low "},"done":false}"#,
        "\n",
        r#"{"model":"qwen3:4b","created_at":"2026-03-01T09:00:00.2Z","message":{"role":"assistant","content":"tide: {\"at\": \"06:12\"}]}"},"done":false}"#,
        "\n",
        r#"{"model":"qwen3:4b","created_at":"2026-03-01T09:00:00.3Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","eval_count":9}"#,
        "\n",
    );
    let expected: Vec<String> = body.lines().map(|line| format!("|{line}")).collect();
    assert_eq!(frames(LINES, body), expected);
    assert_eq!(frames(LINES, body.replace('\n', "\r\n")), expected);
    assert_eq!(frames(LINES, body.replace('\n', "\n\n \r\n")), expected);
    assert_eq!(frames(LINES, body.replace('\n', "")), expected);
    assert_eq!(frames(LINES, body.replace('\n', "\r")), expected);
    assert_eq!(frames(LINES, body.trim_end()), expected);
}

#[test]
fn emits_a_value_at_its_closing_bracket() {
    let pieces = ["{\"a\":{", "}", "}", "\n", "{\"b\":\"}\"", "}{}", "[[1],", "[2]]", "\r\n"];
    assert_eq!(counts(framer(100)(), &pieces), [0, 0, 1, 0, 0, 2, 0, 1, 0]);
}

#[test]
fn does_not_copy_values_that_arrive_in_one_push() {
    assert_in_place(LINES, b"{\"a\":1}\n{\"b\":\n2}{}\r\n[3]\n", 4);
    assert_in_place(LINES, b"{}\nnull\n", 2);
}

#[test]
fn brackets_and_quotes_in_strings_are_text() {
    for value in [
        r#"{"a":"}{][","b":"\"}"}"#,
        r#"{"a":"\\"}"#,
        r#"{"a":"\\\"}{"}"#,
        r#"{"a\"}":"\u005d\n"}"#,
        r#""}{""#,
        r#"[["\\"],"]"]"#,
        "{\"a\":\"caf\u{e9} \u{1F980}\"}",
        "{\"nul\":\"\0\"}",
    ] {
        let twice = format!("{value}\n{value}\n");
        assert_eq!(frames(LINES, format!("{{}}\n{twice}{value}")).len(), 4, "{value}");
        assert_eq!(cuts(framer(100), twice.as_bytes()), [format!("|{value}"), format!("|{value}")]);
    }
    let latin = b"{\"a\":\"\xE9\xFF\"}\n{}\n";
    assert_eq!(frames(LINES, latin), ["|{\"a\":\"\u{FFFD}\u{FFFD}\"}", "|{}"]);
}

#[test]
fn a_value_may_be_spread_over_lines() {
    let pretty =
        "{\n  \"error\": {\n    \"message\": \"no\"\n  },\n  \"at\": [\n    {\n    }\n  ]\n}";
    assert_eq!(frames(LINES, format!("{pretty}\n{{}}\n")), [format!("|{pretty}"), "|{}".into()]);
}

#[test]
fn an_incomplete_line_does_not_affect_the_next_line() {
    for broken in ["{\"a\":[1,", "{\"a\":\"tex", "{\"a\":\"tex\\", "{\"a\":{\"b\":1]", "\"tex"] {
        let expected = ["|{}".into(), format!("|{broken}"), "|{\"b\":2}".into()];
        for between in ["\n", "\r\n", "\r\n\r\n", "\n\u{1E}"] {
            let body = format!("{{}}{between}{broken}{between}{{\"b\":2}}\n");
            assert_eq!(frames(LINES, body), expected);
        }
    }
}

#[test]
fn text_that_is_not_a_value_is_one_line() {
    let body = "{}\nnull\n 12 \r\nupstream gone: {\"a\":1}\n{}} x\n{}";
    let expected = ["|{}", "|null", "|12", "|upstream gone: {\"a\":1}", "|{}", "|} x", "|{}"];
    assert_eq!(frames(LINES, body), expected);
    assert_eq!(frames(LINES, "{}\nnull"), ["|{}", "|null"]);
}

#[test]
fn reports_an_unfinished_value() {
    for rest in ["{\"a\":1", "{\"a\":\"}", "[1,2", "\"tex", "{\n"] {
        assert_eq!(frames(LINES, format!("{{}}\n{rest}")), ["|{}", "error unterminated"]);
    }
}

#[test]
fn skips_a_line_above_the_cap_and_reports_it_once() {
    let long = "x".repeat(40);
    for (line, odd) in [
        (format!("{{\"a\":\"{long}}}{{\"}}"), "error oversize"),
        (format!("{{\"a\":\n\"{long}\"\n,\"b\":1}}"), "error oversize"),
        (format!("{{\"a\":\"{long}"), "error oversize"),
        (format!("{{\"a\":[{long}"), "error oversize"),
        (long.clone(), "error oversize"),
    ] {
        let body = format!("{{}}\n{line}\n{{\"a\":1}}\n");
        assert_eq!(cuts(framer(30), body.as_bytes()), ["|{}", odd, "|{\"a\":1}"], "{line}");
    }
    // A value of exactly the cap fits.
    assert_eq!(cuts(framer(7), b"{\"a\":1}"), ["|{\"a\":1}"]);
    assert_eq!(cuts(framer(6), b"{\"a\":1}{}"), ["error oversize", "|{}"]);
    assert_eq!(cuts(framer(6), b"{\"a\":1"), ["error unterminated"]);
    assert_eq!(cuts(framer(5), b"{\"a\":1"), ["error oversize", "error unterminated"]);
}

#[test]
fn deep_nesting_takes_bounded_memory() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let body = format!("{{}}\n{deep}\n{{}}\n");
    let frames = collect(framer(MAX_FRAME_BYTES)(), &[body.as_bytes()]);
    assert_eq!(frames, ["|{}", &format!("|{deep}"), "|{}"]);
    let endless = "{\"a\":".repeat(1 << 20);
    let frames = collect(framer(MAX_FRAME_BYTES)(), &[endless.as_bytes(), b"\n{}\n"]);
    assert_eq!(frames, ["error oversize", "|{}"]);
}

#[test]
fn resumes_at_the_next_line_after_a_gap() {
    for before in ["{}\n{\"a\":\"", "{}\n{\"a\":[", "{}\n", "{}", "{}\nnul"] {
        let rest = b"lost\"}\r\n{\"b\":1}\n{}";
        assert_eq!(after_gap(LINES, before.as_bytes(), rest), ["|{\"b\":1}", "|{}"], "{before}");
    }
}
