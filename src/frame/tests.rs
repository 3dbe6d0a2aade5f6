//! Each body is read whole, byte by byte and cut in two at every place; all must come out the same.

use proptest::prelude::*;

use super::*;

const STREAM: Option<&str> = Some("text/event-stream; charset=utf-8");
const JSON: Option<&str> = Some("application/json");

/// The frames of a body that comes in these pieces, in short; pieces of a whole body are joined.
fn cut(content_type: Option<&str>, pieces: &[&[u8]]) -> Vec<String> {
    collect(Framer::new(content_type), pieces)
}

fn collect(mut framer: Framer, pieces: &[&[u8]]) -> Vec<String> {
    let mut frames: Vec<String> = Vec::new();
    let mut body: Vec<u8> = Vec::new();
    let mut out = |frame: Frame<'_>| match frame {
        Frame::Event { name, data } => frames.push(format!("{}|{}", lossy(name), lossy(data))),
        Frame::Piece(piece) => body.extend_from_slice(piece),
        Frame::Whole => frames.push(format!("whole {}", lossy(&std::mem::take(&mut body)))),
        Frame::Odd(anomaly) => frames.push(format!("odd {}", anomaly.as_str())),
    };
    for piece in pieces {
        framer.push(piece, &mut out);
    }
    framer.finish(&mut out);
    frames
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The frames of a body, however it is cut.
fn frames(content_type: Option<&str>, body: &str) -> Vec<String> {
    let body = body.as_bytes();
    let whole = cut(content_type, &[body]);
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(cut(content_type, &bytes), whole, "byte by byte");
    for at in 0..=body.len() {
        let (first, second) = body.split_at(at);
        assert_eq!(cut(content_type, &[first, second]), whole, "cut at {at}");
    }
    whole
}

#[test]
fn the_standards_own_examples() {
    let stocks = "data: YHOO\ndata: +2\ndata: 10\n\n";
    assert_eq!(frames(STREAM, stocks), ["|YHOO\n+2\n10"]);

    // A comment; an id; an id without a value; and the last event, which the standard would drop.
    let four =
        ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event";
    assert_eq!(
        frames(STREAM, four),
        [
            "|first event",
            "|second event",
            "| third event",
            "odd unterminated"
        ]
    );

    let blanks = "data\n\ndata\ndata\n\ndata:";
    assert_eq!(
        frames(STREAM, blanks),
        ["|", "|\n", "|", "odd unterminated"]
    );

    let spaces = "data:test\n\ndata: test\n\n";
    assert_eq!(frames(STREAM, spaces), ["|test", "|test"]);

    let named = "event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\nevent: bare\n\n";
    assert_eq!(frames(STREAM, named), ["add|73857293", "remove|2153"]);
}

#[test]
fn every_line_end_and_any_mix_of_them() {
    for end in ["\n", "\r\n", "\r"] {
        let body =
            "data: a\ndata: b\n\n: note\n\nevent: x\nretry: 10\ndata: c\n\n".replace('\n', end);
        assert_eq!(frames(STREAM, &body), ["|a\nb", "x|c"], "{end:?}");
    }
    let mixed = "data: a\r\n\rdata: b\n\r\ndata: c\r\rdata: d\r\n\r\n";
    assert_eq!(frames(STREAM, mixed), ["|a", "|b", "|c", "|d"]);
}

#[test]
fn an_event_is_handed_out_with_its_last_byte_even_if_that_is_a_return() {
    let mut framer = Framer::new(STREAM);
    let mut seen = Vec::new();
    for piece in ["data: a\r\n\r", "\ndata: b\r\n", "\r\n"] {
        let mut count = 0;
        framer.push(piece.as_bytes(), &mut |_| count += 1);
        seen.push(count);
    }
    assert_eq!(seen, [1, 0, 1]);
}

#[test]
fn an_event_that_lies_whole_in_a_push_is_not_copied() {
    let body = b"event: e\ndata: text\n\n";
    let mut framer = Framer::new(STREAM);
    let mut seen = 0;
    framer.push(body, &mut |frame| {
        if let Frame::Event { name, data } = frame {
            let within = |part: &[u8]| body.as_ptr_range().contains(&part.as_ptr());
            assert!(within(name) && within(data));
            seen += 1;
        }
    });
    assert_eq!(seen, 1);
}

#[test]
fn a_body_that_lacks_its_last_blank_line_is_read() {
    assert_eq!(
        frames(STREAM, "data: a\n\ndata: [DONE]\n"),
        ["|a", "|[DONE]"]
    );
    assert_eq!(frames(STREAM, "data: a\n\n: bye"), ["|a"]);
}

#[test]
fn what_the_body_is_shows_in_its_first_bytes() {
    let event = ["|a"];
    for lead in [
        "",
        "\n\n",
        "\u{FEFF}",
        ": hello\n\n",
        "\r\n : \r\n",
        "id: 1\n",
        "event\n",
        "retry: 5\r\n",
    ] {
        let body = format!("{lead}data: a\n\n");
        for content_type in [
            STREAM,
            JSON,
            None,
            Some("TEXT/Event-Stream"),
            Some("application/octet-stream"),
        ] {
            assert_eq!(
                frames(content_type, &body),
                event,
                "{lead:?} {content_type:?}"
            );
        }
    }
    for lead in ["", "\n  \n\t", "\u{FEFF}", "\r\n"] {
        let body = format!("{lead}{{\"error\":1}}");
        for content_type in [STREAM, JSON, None] {
            assert_eq!(
                frames(content_type, &body),
                ["whole {\"error\":1}"],
                "{lead:?}"
            );
        }
    }
    assert_eq!(frames(JSON, "<html>no</html>"), ["whole <html>no</html>"]);
    assert_eq!(frames(JSON, "database"), ["whole database"]);
    assert_eq!(frames(None, "dat"), ["whole dat"]);
    assert_eq!(frames(STREAM, "unknown: field\ndata: a\n\n"), event);
    assert!(frames(STREAM, "").is_empty() && frames(JSON, " \n ").is_empty());
}

#[test]
fn whether_it_is_a_stream_is_known_from_its_first_byte_that_tells() {
    let mut framer = Framer::new(JSON);
    for blank in [" ", "\n", "da"] {
        framer.push(blank.as_bytes(), &mut |_| {});
        assert_eq!(framer.is_stream(), None);
    }
    framer.push(b"ta:", &mut |_| {});
    assert_eq!(framer.is_stream(), Some(true));
}

/// What a parser holds back.
fn held(framer: &Framer) -> usize {
    match framer {
        Framer::Sse(sse) => sse.capacity(),
        Framer::Unknown(_) | Framer::Whole(_) => 0,
    }
}

fn small(cap: usize) -> Framer {
    Framer::Sse(Sse::new(cap))
}

#[test]
fn an_event_above_the_cap_is_skipped_to_its_end_and_said_once() {
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
            assert_eq!(frames, ["|a", "odd oversize", "|a"], "{size}");
        }
    }
    // Exactly the cap fits.
    let fits = format!("data: {}\n\n", "x".repeat(24));
    assert_eq!(collect(small(30), &[fits.as_bytes()]).len(), 1);
    assert_eq!(collect(small(29), &[fits.as_bytes()]), ["odd oversize"]);
}

#[test]
fn a_peer_that_never_ends_its_line_cannot_make_it_grow() {
    let mut framer = small(1000);
    let mut odd = 0;
    framer.push(b"data: ", &mut |_| {});
    for _ in 0..10_000 {
        framer.push(&[b'x'; 100], &mut |_| odd += 1);
        assert!(held(&framer) <= 2048);
    }
    assert_eq!(odd, 1);
}

#[test]
fn comments_without_blank_lines_neither_grow_nor_hide_an_event() {
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
fn nothing_is_held_between_events() {
    let mut framer = Framer::new(STREAM);
    framer.push(b"event: e\ndata: 1\nda", &mut |_| {});
    assert!(held(&framer) > 0);
    framer.push(b"ta: 2\n\n", &mut |_| {});
    assert_eq!(held(&framer), 0);
}

#[test]
fn after_a_gap_reading_resumes_at_the_next_blank_line() {
    for before in ["data: a\n\ndata: b", "data: a\n\ndata: b\n", "data: a\n\n"] {
        let mut framer = Framer::new(STREAM);
        let mut frames = Vec::new();
        framer.push(before.as_bytes(), &mut |frame| {
            frames.push(format!("{frame:?}"))
        });
        framer.gap();
        let rest = b"rest\ndata: lost\n\ndata: c\n\n";
        framer.push(rest, &mut |frame| frames.push(format!("{frame:?}")));
        framer.finish(&mut |frame| frames.push(format!("{frame:?}")));
        assert_eq!(frames.len(), 2, "{before:?}: {frames:?}");
    }
}

#[test]
fn after_a_gap_a_whole_body_is_given_up() {
    let mut framer = Framer::new(JSON);
    let mut frames = 0;
    framer.push(b"{\"a\":", &mut |_| frames += 1);
    framer.gap();
    framer.push(b"1}", &mut |_| frames += 1);
    framer.finish(&mut |_| frames += 1);
    assert_eq!(frames, 1);

    let mut lost_early = Framer::new(STREAM);
    lost_early.gap();
    lost_early.push(b"x\n\ndata: a\n\n", &mut |_| frames += 1);
    assert_eq!((frames, lost_early.is_stream()), (2, Some(true)));
}

/// Bytes that mean something to the parser, above all.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "data", "event", ":", " ", "\n", "\r", "\r\n", "\n\n", "x", "{", "\u{FEFF}", ": c", "é",
    ]);
    let word = words.prop_map(|word| word.as_bytes().to_vec());
    let any = prop::collection::vec(any::<u8>(), 0..4);
    prop::collection::vec(prop_oneof![8 => word, 1 => any], 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn cuts_never_change_what_is_read(body in soup(), sizes in prop::collection::vec(1..9_usize, 1..8)) {
        let mut pieces = Vec::new();
        let mut rest = body.as_slice();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*size).min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        for content_type in [STREAM, JSON] {
            prop_assert_eq!(cut(content_type, &pieces), cut(content_type, &[&body]));
        }
        prop_assert_eq!(collect(small(12), &pieces), collect(small(12), &[&body]));
    }
}
