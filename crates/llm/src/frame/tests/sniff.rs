//! Tests the detection of the framing from the first bytes.

use super::*;

const TEXT: Option<&str> = Some("text/plain");

#[test]
fn detects_events_with_every_content_type() {
    for lead in
        ["", "\n\n", "\u{FEFF}", ": hello\n\n", "\r\n : \r\n", "id: 1\n", "event\n", "retry: 5\r\n"]
    {
        let body = format!("{lead}data: a\n\n");
        let others = [None, TEXT, Some("TEXT/Event-Stream"), Some("application/octet-stream")];
        for declared in
            ALL_DECLARED.into_iter().chain(others.map(|other| (other, JsonFraming::Lines)))
        {
            assert_eq!(frames(declared, &body), ["|a"], "{lead:?} {declared:?}");
        }
    }
    assert_eq!(frames(SSE, "unknown: field\ndata: a\n\n"), ["|a"]);
}

#[test]
fn a_json_body_is_one_message_with_every_content_type() {
    for lead in ["", "\n  \n\t", "\u{FEFF}", "\r\n"] {
        let body = format!("{lead}{{\"error\":1}}");
        for declared in
            [SSE, JSON, ELEMENTS, AWS, (None, JsonFraming::Single), (None, JsonFraming::Array)]
        {
            assert_eq!(frames(declared, &body), ["whole {\"error\":1}"], "{lead:?} {declared:?}");
        }
    }
    assert_eq!(frames(JSON, "[1,2]"), ["whole [1,2]"]);
    assert_eq!(frames((None, JsonFraming::Lines), "[1,2]"), ["whole [1,2]"]);
}

#[test]
fn other_text_is_one_message_unless_declared_as_events() {
    for declared in [JSON, LINES, ELEMENTS, AWS, (TEXT, JsonFraming::Lines)] {
        for text in ["<html>no</html>", "database", "dat", "404 page not found\n", "upstream gone"]
        {
            assert_eq!(frames(declared, text), [format!("whole {text}")], "{declared:?}");
        }
        assert!(frames(declared, "").is_empty() && frames(declared, " \n ").is_empty());
    }
    assert!(frames(SSE, "upstream gone").len() == 1 && frames(SSE, "").is_empty());
}

#[test]
fn json_lines_have_many_content_types() {
    let one = "{\"a\":1}\n";
    for name in [
        "application/x-ndjson",
        "application/ndjson; charset=utf-8",
        "application/jsonl",
        "application/x-jsonlines",
        "Application/Stream+JSON",
        "application/json-seq",
        "application/geo+json-seq",
    ] {
        for json in [JsonFraming::Single, JsonFraming::Lines, JsonFraming::Array] {
            assert_eq!(frames((Some(name), json), one), ["|{\"a\":1}"], "{name}");
        }
    }
    // If the API streams JSON lines, every content type except JSON's own selects lines.
    for name in [None, TEXT, SSE.0, Some("application/octet-stream")] {
        assert_eq!(frames((name, JsonFraming::Lines), one), ["|{\"a\":1}"], "{name:?}");
    }
    assert_eq!(frames(LINES, "[1]\n[2]\n"), ["|[1]", "|[2]"]);
    assert_eq!(frames(LINES, "\u{1E}{}\n\u{1E}{}\n"), ["|{}", "|{}"]);
}

#[test]
fn a_second_value_declared_as_json_makes_json_lines() {
    let json = |name| (Some(name), JsonFraming::Lines);
    for name in ["application/json", "application/json; charset=utf-8", "application/problem+json"]
    {
        assert_eq!(frames(json(name), "{\"a\":1}\n"), ["whole {\"a\":1}\n"]);
        assert_eq!(frames(json(name), " {\"a\":\n\"}{\"} "), ["whole {\"a\":\n\"}{\"} "]);
        assert_eq!(frames(json(name), "{}{\"a\":1}\n"), ["|{}", "|{\"a\":1}"]);
        assert_eq!(frames(json(name), "{\"a\":1}\r\n\r\n{}"), ["|{\"a\":1}", "|{}"]);
        assert_eq!(frames(json(name), "{\"a\":1} oops"), ["whole {\"a\":1} oops"]);
        assert_eq!(frames(json(name), "{\"a\":"), ["whole {\"a\":"]);
    }
}

#[test]
fn holds_back_a_bounded_part_of_an_ambiguous_body() {
    let mut framer = Framer::new(JSON.0, JsonFraming::Lines);
    let mut length = 0;
    framer.push(b"{\"text\":\"", &mut |_| {});
    while framer.is_stream().is_none() {
        assert!(length <= 1 << 16);
        framer.push(&[b'x'; 100], &mut |frame| {
            if let Frame::BodyChunk(piece) = frame {
                length += piece.len();
            }
        });
    }
    assert_eq!(framer.is_stream(), Some(false));
    assert_eq!(length % 100, b"{\"text\":\"".len());

    // The result is the same for every split.
    let long = format!("{{\"text\":\"{}\"}}\n{{}}\n", "x".repeat(1 << 16));
    let whole = collect(Framer::new(JSON.0, JsonFraming::Lines), &[long.as_bytes()]);
    assert_eq!(whole, [format!("whole {long}")]);
}

#[test]
fn an_array_is_a_stream_if_the_api_streams_arrays() {
    for name in [JSON.0, None, TEXT, SSE.0, LINES.0] {
        assert_eq!(frames((name, JsonFraming::Array), "\n[{}]"), ["|{}"], "{name:?}");
    }
}

#[test]
fn detects_an_aws_message_by_its_checksum() {
    let body = encode::event("chunk", "{}");
    for declared in ALL_DECLARED.into_iter().chain([(None, JsonFraming::Lines)]) {
        assert_eq!(frames(declared, &body), ["chunk|{}"], "{declared:?}");
    }
    let mut broken = body;
    broken[8] ^= 1;
    assert_eq!(frames(AWS, &broken), ["error bad_frame"]);
    assert_eq!(frames(AWS, &broken[..11]), ["error unterminated"]);
    assert_eq!(frames((None, JsonFraming::Single), &broken), [format!("whole {}", lossy(&broken))]);
    assert_eq!(frames((None, JsonFraming::Single), b"\0\0\0"), ["whole \0\0\0"]);
}

#[test]
fn is_stream_is_known_at_the_first_significant_byte() {
    let known = |(content_type, json): Declared, pieces: &[&str]| -> Vec<Option<bool>> {
        let mut framer = Framer::new(content_type, json);
        let mut after = |piece: &&str| {
            framer.push(piece.as_bytes(), &mut |_| {});
            framer.is_stream()
        };
        pieces.iter().map(&mut after).collect()
    };
    assert_eq!(known(JSON, &[" ", "\n", "da", "ta:"]), [None, None, None, Some(true)]);
    assert_eq!(known(JSON, &["{"]), [Some(false)]);
    assert_eq!(known(LINES, &["{"]), [Some(true)]);
    assert_eq!(known(ELEMENTS, &["["]), [Some(true)]);
    assert_eq!(known(AWS, &["\0", "{"]), [None, None]);
    let doubtful = (JSON.0, JsonFraming::Lines);
    assert_eq!(known(doubtful, &["{", "}", "\n", "{"]), [None, None, None, Some(true)]);
}

#[test]
fn a_gap_at_the_start_selects_the_declared_framing() {
    let rest = b"x\n\ndata: {}\n\n{}\n";
    assert_eq!(after_gap(SSE, b"", rest), ["|{}", "stray {}"]);
    assert_eq!(after_gap(SSE, b"da", rest), ["|{}", "stray {}"]);
    assert_eq!(after_gap(LINES, b"", rest), ["|data: {}", "|{}"]);
    for declared in [JSON, ELEMENTS, AWS, (JSON.0, JsonFraming::Lines)] {
        assert!(after_gap(declared, b"", rest).is_empty(), "{declared:?}");
    }
    assert!(after_gap((JSON.0, JsonFraming::Lines), b"{}\n", b"{}\n{}\n").is_empty());
}
