//! Tests server-sent events against the HTML standard (9.2.5 and 9.2.6).

use super::*;

fn small(cap: usize) -> Framer {
    Framer::Sse(Sse::new(cap))
}

#[test]
fn reads_the_examples_of_the_standard() {
    let stocks = "data: YHOO\ndata: +2\ndata: 10\n\n";
    assert_eq!(frames(SSE, stocks), ["|YHOO\n+2\n10"]);

    // A comment, an id, an id without a value, and a last event that the standard drops.
    let four =
        ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event";
    assert_eq!(
        frames(SSE, four),
        ["|first event", "|second event", "| third event", "error unterminated"]
    );

    let blanks = "data\n\ndata\ndata\n\ndata:";
    assert_eq!(frames(SSE, blanks), ["|", "|\n", "|", "error unterminated"]);

    let spaces = "data:test\n\ndata: test\n\n";
    assert_eq!(frames(SSE, spaces), ["|test", "|test"]);

    let named = "event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\nevent: bare\n\n";
    assert_eq!(frames(SSE, named), ["add|73857293", "remove|2153"]);
}

#[test]
fn emits_an_error_event_without_data() {
    let body = "data: a\n\nevent: error\n: no worker\n\nevent: ping\n\ndata: [DONE]\n\n";
    assert_eq!(frames(SSE, body), ["|a", "error|", "|[DONE]"]);
    assert_eq!(frames(SSE, "event: error\n\n"), ["error|"]);
}

#[test]
fn accepts_every_line_end_and_any_mix() {
    for end in ["\n", "\r\n", "\r"] {
        let body =
            "data: a\ndata: b\n\n: note\n\nevent: x\nretry: 10\ndata: c\n\n".replace('\n', end);
        assert_eq!(frames(SSE, &body), ["|a\nb", "x|c"], "{end:?}");
    }
    let mixed = "data: a\r\n\rdata: b\n\r\ndata: c\r\rdata: d\r\n\r\n";
    assert_eq!(frames(SSE, mixed), ["|a", "|b", "|c", "|d"]);
}

#[test]
fn a_field_name_ends_at_the_first_colon_and_one_space() {
    let body = "data:a: b\n\ndata:  a\n\ndata::\n\ndata:\ta\n\ndata: a \n\nevent:  e:f \ndata\n\n";
    assert_eq!(frames(SSE, body), ["|a: b", "| a", "|:", "|\ta", "|a ", " e:f |"]);
}

#[test]
fn ignores_fields_that_the_standard_does_not_define() {
    for line in [
        "Data: b",
        "data : b",
        " data: b",
        "dat: b",
        "datas: b",
        "\u{FEFF}data: b",
        "dataa",
        "x",
        ":data: b",
        ": b",
        "Event: b",
        "id: 7",
        "id",
        "id: \0",
        "retry: 3000",
        "retry: soon",
        "retry",
        "\0",
    ] {
        assert_eq!(frames(SSE, format!("data: a\n{line}\ndata: c\n\n")), ["|a\nc"], "{line:?}");
    }
}

#[test]
fn the_last_name_counts_until_the_blank_line() {
    let body = "event: a\nevent: b\ndata: 1\n\ndata: 2\n\nevent: c\n\ndata: 3\n\nevent: d\nevent\ndata: 4\n\n";
    assert_eq!(frames(SSE, body), ["b|1", "|2", "|3", "|4"]);
}

#[test]
fn ignores_a_byte_order_mark_only_at_the_start() {
    let body = "\u{FEFF}data: a\n\n\u{FEFF}data: b\n\ndata: \u{FEFF}c\n\n";
    assert_eq!(frames(SSE, body), ["|a", "|\u{FEFF}c"]);
}

#[test]
fn passes_on_bytes_that_are_not_utf8() {
    let body = b"data: \0\xFF\xC3\ndata: \xE2\x82\n\n";
    let mut seen = Vec::new();
    small(100).push(body, &mut |frame| {
        if let Frame::Event { data, .. } = frame {
            seen.push(data.to_vec());
        }
    });
    assert_eq!(seen, [b"\0\xFF\xC3\n\xE2\x82".to_vec()]);
    frames(SSE, body);
}

#[test]
fn emits_json_between_events_line_by_line() {
    let body = "data: {\"a\":1}\n\n{\n  \"error\": {\n    \"code\": 499,\n\t\"details\": [\n    ]\n  }\n}\n\ndata: b\n\n";
    let expected = [
        "|{\"a\":1}",
        "stray {",
        "stray   \"error\": {",
        "stray     \"code\": 499,",
        "stray \t\"details\": [",
        "stray     ]",
        "stray   }",
        "stray }",
        "|b",
    ];
    assert_eq!(frames(SSE, body), expected);
    assert_eq!(frames(SSE, body.replace('\n', "\r\n")), expected);

    let last = "data: a\n\n{\"error\":{\"data\":1}}";
    assert_eq!(frames(SSE, last), ["|a", "stray {\"error\":{\"data\":1}}"]);
    let within = "data: a\n[1]\ndata: b\n\n";
    assert_eq!(frames(SSE, within), ["stray [1]", "|a\nb"]);
    let named = "data: a\n\nerror: {\"code\":500}\n\nerror: no\nerrors:{}\n";
    assert_eq!(frames(SSE, named), ["|a", "stray  {\"code\":500}"]);
}

#[test]
fn json_between_events_is_bounded_like_events() {
    let lines = "{\"a\":1}\n".repeat(20);
    let body = format!("data: a\n\n{lines}\ndata: b\n\n");
    let frames = cuts(|| small(30), body.as_bytes());
    let strays = ["stray {\"a\":1}"; 4];
    assert_eq!(frames, [&["|a"][..], &strays, &["error oversize", "|b"]].concat());
    let long = format!("data: a\n\n{{\"a\":\"{}\"}}\n\ndata: b\n\n", "x".repeat(40));
    assert_eq!(cuts(|| small(30), long.as_bytes()), ["|a", "error oversize", "|b"]);
}

#[test]
fn emits_an_event_at_its_last_byte_even_if_it_is_a_return() {
    let mut framer = small(MAX_FRAME_BYTES);
    let mut seen = Vec::new();
    for piece in ["data: a\r\n\r", "\ndata: b\r\n", "\r\n"] {
        let mut count = 0;
        framer.push(piece.as_bytes(), &mut |_| count += 1);
        seen.push(count);
    }
    assert_eq!(seen, [1, 0, 1]);
}

#[test]
fn reads_a_body_without_its_last_blank_line() {
    assert_eq!(frames(SSE, "data: a\n\ndata: [DONE]\n"), ["|a", "|[DONE]"]);
    assert_eq!(frames(SSE, "data: a\n\n: bye"), ["|a"]);
}

#[test]
fn skips_an_event_above_the_cap_and_reports_it_once() {
    let long = "x".repeat(40);
    let short = "data: a\n\n";
    let bodies = [
        format!("{short}data: {long}\ndata: {long}\n\n{short}"),
        format!("{short}data: 12345\ndata: 12345\ndata: 12345\nevent: e\n\n{short}"),
    ];
    for body in bodies {
        for size in 1..body.len() {
            let pieces: Vec<&[u8]> = body.as_bytes().chunks(size).collect();
            let frames = collect(small(30), &pieces);
            assert_eq!(frames, ["|a", "error oversize", "|a"], "{size}");
        }
    }
    // An event of exactly the cap fits.
    let fits = format!("data: {}\n\n", "x".repeat(24));
    assert_eq!(collect(small(30), &[fits.as_bytes()]).len(), 1);
    assert_eq!(collect(small(29), &[fits.as_bytes()]), ["error oversize"]);
}

#[test]
fn the_cap_applies_to_an_incomplete_line() {
    let pieces = ["data: 12345678901234567890\n", "data: ", "\ndata: a\n", "\ndata: a\n\n"];
    assert_eq!(counts(small(30), &pieces), [0, 1, 0, 1]);

    let mut framer = small(100);
    for byte in format!("event: {}\ndata: {}", "n".repeat(40), "x".repeat(40)).bytes() {
        framer.push(&[byte], &mut |frame| panic!("{frame:?}"));
        assert!(held(&framer) <= 100);
    }
}

#[test]
fn comments_take_no_memory_and_hide_no_event() {
    let mut framer = small(100);
    let mut seen = 0;
    for _ in 0..1000 {
        framer.push(b": keep", &mut |_| seen += 1);
        framer.push(b"alive\n", &mut |_| seen += 1);
        assert_eq!(held(&framer), 0);
    }
    framer.push(b"data: a\n\n", &mut |_| seen += 10);
    assert_eq!(seen, 10);
}

#[test]
fn holds_no_memory_between_events() {
    let mut framer = small(MAX_FRAME_BYTES);
    framer.push(b"event: e\ndata: 1\nda", &mut |_| {});
    assert!(held(&framer) > 0);
    framer.push(b"ta: 2\n\n", &mut |_| {});
    assert_eq!(held(&framer), 0);
}

#[test]
fn does_not_copy_an_event_that_arrives_in_one_push() {
    assert_in_place(SSE, b"event: e\ndata: text\n\ndata: b\r\n\r\n", 2);
}

#[test]
fn resumes_at_the_next_blank_line_after_a_gap() {
    for before in ["data: a\n\ndata: b", "data: a\n\ndata: b\n", "data: a\n\n"] {
        let rest = b"rest\ndata: lost\n\ndata: c\n\n";
        assert_eq!(after_gap(SSE, before.as_bytes(), rest), ["|c"], "{before:?}");
    }
}

#[test]
fn a_line_with_json_is_an_event_of_its_own_if_another_line_follows() {
    let body = "data: {\"a\":1}\ndata: {\"b\":\"}\"}\ndata: [DONE]\n\ndata: {\"c\":1}\n\n";
    let expected = ["|{\"a\":1}", "|{\"b\":\"}\"}", "|[DONE]", "|{\"c\":1}"];
    for end in ["\n", "\r\n", "\r"] {
        assert_eq!(frames(SSE, body.replace('\n', end)), expected);
        // The last line end is missing, too.
        let cut = body.trim_end().replace('\n', end);
        let with_error = [&expected[..], &["error unterminated"]].concat();
        assert_eq!(frames(SSE, cut), with_error);
    }
    let named = "event: a\ndata: {}\nid: 1\nevent: b\ndata: [{}]\n: note\ndata:{} \n\ndata: {}\n\n";
    assert_eq!(frames(SSE, named), ["a|{}", "b|[{}]", "b|{} ", "|{}"]);
    let one_bad = "data: {\"a\":1}\ndata: oops\n\n";
    assert_eq!(frames(SSE, one_bad), ["|{\"a\":1}\noops"]);
}

#[test]
fn lines_of_one_json_value_are_joined() {
    for json in [
        "{\n\"a\":\n{}\n}",
        "{\"a\":[\n1]\n}",
        "[\n{}\n,\n{}]",
        "{\"a\": \"{\n}\"}",
        "1\n2",
        "{}x\n{}",
    ] {
        let body = format!("data: {}\n\n", json.replace('\n', "\ndata: "));
        assert_eq!(frames(SSE, body), [format!("|{json}")]);
    }
}

#[test]
fn emits_json_lines_without_blank_lines_as_they_arrive() {
    let pieces =
        ["data: {\"a\":1}\n", "data: {\"b\":1}\n", "data: {\"c\":1}", "\n", "\n", "data: {}\n\n"];
    assert_eq!(counts(small(100), &pieces), [0, 2, 0, 1, 0, 1]);
    // No memory is held, and the size limit applies to each line.
    let mut framer = small(30);
    let mut seen = 0;
    for _ in 0..100 {
        framer.push(b"data: {\"a\":1}\n", &mut |frame| {
            assert!(matches!(frame, Frame::Event { .. }), "{frame:?}");
            seen += 1;
        });
        assert!(held(&framer) <= 8);
    }
    framer.finish(&mut |_| seen += 1);
    assert_eq!(seen, 100);
}
