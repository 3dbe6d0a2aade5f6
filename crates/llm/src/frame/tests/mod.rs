//! Tests the framers. Each body is read in one piece, byte by byte, and split in two at every position. All results
//! must be equal.

mod aws;
mod elements;
pub(crate) mod encode;
mod lines;
mod oversize;
mod peers;
mod sniff;
mod sse;

use proptest::prelude::*;

use super::*;

/// The content type of a response and the JSON framing of its API.
type Declared = (Option<&'static str>, JsonFraming);

const SSE: Declared = (Some("text/event-stream; charset=utf-8"), JsonFraming::Single);
const JSON: Declared = (Some("application/json"), JsonFraming::Single);
const LINES: Declared = (Some("application/x-ndjson"), JsonFraming::Lines);
const ELEMENTS: Declared = (Some("application/json; charset=UTF-8"), JsonFraming::Array);
const AWS: Declared = (Some("application/vnd.amazon.eventstream"), JsonFraming::Single);

const ALL_DECLARED: [Declared; 5] = [SSE, JSON, LINES, ELEMENTS, AWS];

/// Returns the frames of a body. Asserts that they are the same for every split.
fn frames((content_type, json): Declared, body: impl AsRef<[u8]>) -> Vec<String> {
    cuts(|| Framer::new(content_type, json), body.as_ref())
}

/// Returns the frames that `framer` finds in a body. Asserts that they are the same for every split.
fn cuts(framer: impl Fn() -> Framer, body: &[u8]) -> Vec<String> {
    let whole = collect(framer(), &[body]);
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(collect(framer(), &bytes), whole, "byte by byte");
    for at in 0..=body.len() {
        let (first, second) = body.split_at(at);
        assert_eq!(collect(framer(), &[first, second]), whole, "cut at {at}");
    }
    whole
}

/// Returns an abbreviated form of the frames of a body that arrives in `pieces`. Joins the chunks of a single message.
fn collect(mut framer: Framer, pieces: &[&[u8]]) -> Vec<String> {
    let mut frames: Vec<String> = Vec::new();
    let mut body: Vec<u8> = Vec::new();
    let mut out = |frame: Frame<'_>| match frame {
        Frame::Event { name, data } => frames.push(format!("{}|{}", lossy(name), lossy(data))),
        Frame::Exception { name, data } => {
            frames.push(format!("exception {}|{}", lossy(name), lossy(data)));
        }
        Frame::BareJson(line) => frames.push(format!("stray {}", lossy(line))),
        Frame::BodyChunk(piece) => body.extend_from_slice(piece),
        Frame::BodyEnd => frames.push(format!("whole {}", lossy(&std::mem::take(&mut body)))),
        Frame::ParseError(error) => frames.push(format!("error {}", error.as_str())),
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

/// Returns the number of frames that each push completes.
fn counts(mut framer: Framer, pieces: &[&str]) -> Vec<usize> {
    let mut seen = Vec::new();
    for piece in pieces {
        let mut count = 0;
        framer.push(piece.as_bytes(), &mut |_| count += 1);
        seen.push(count);
    }
    seen
}

/// Splits a body into pieces of these sizes, repeated in order.
fn pieces<'a>(body: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut rest = body;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Returns the memory in bytes that a framer holds.
fn held(framer: &Framer) -> usize {
    match framer {
        Framer::Sse(sse) => sse.capacity(),
        Framer::JsonLines(values) | Framer::JsonArray(values) => values.capacity(),
        Framer::AwsEventStream(aws) => aws.capacity(),
        Framer::Unknown(_) | Framer::SingleMessage(_) => 0,
    }
}

/// Returns each stream framer, with a small cap.
fn small(cap: usize) -> [Framer; 4] {
    [
        Framer::Sse(Sse::new(cap)),
        Framer::JsonLines(JsonValues::lines(cap)),
        Framer::JsonArray(JsonValues::array(cap)),
        Framer::AwsEventStream(AwsEventStream::new(cap)),
    ]
}

/// Pushes a body as one piece. Asserts that every event borrows from the body instead of a copy.
fn assert_in_place((content_type, json): Declared, body: &[u8], events: usize) {
    let mut framer = Framer::new(content_type, json);
    let mut seen = 0;
    framer.push(body, &mut |frame| {
        let Frame::Event { name, data } = frame else {
            panic!("{frame:?}");
        };
        let within = |part: &[u8]| part.is_empty() || body.as_ptr_range().contains(&part.as_ptr());
        assert!(within(name) && within(data));
        seen += 1;
    });
    assert_eq!((seen, held(&framer)), (events, 0));
}

/// Returns the frames of the bytes that follow lost bytes.
fn after_gap((content_type, json): Declared, before: &[u8], after: &[u8]) -> Vec<String> {
    let mut framer = Framer::new(content_type, json);
    framer.push(before, &mut |_| {});
    framer.gap();
    assert_eq!(held(&framer), 0);
    collect(framer, &[after])
}

#[test]
fn ignores_a_single_message_after_a_gap() {
    assert!(after_gap(JSON, b"{\"a\":", b"1}").is_empty());
    assert!(after_gap(JSON, b"", b"{\"a\":1}").is_empty());
}

#[test]
fn an_endless_frame_takes_bounded_memory() {
    let leads: [&[u8]; 4] =
        [b"data: ", b"{\"text\":\"", b"[{\"text\":\"", &encode::prelude(1000, 10)];
    for (mut framer, lead) in small(1000).into_iter().zip(leads) {
        let mut odd = 0;
        framer.push(lead, &mut |_| odd += 1);
        for _ in 0..1000 {
            framer.push(&[b'x'; 7], &mut |_| odd += 1);
            assert!(held(&framer) <= 1000);
        }
        // What stays of the frame is its beginning without the string.
        assert!(odd == 1 && held(&framer) <= 20, "{framer:?}");
    }
}

#[test]
fn can_be_reused_after_the_end_of_a_body() {
    for mut framer in small(100) {
        framer.push(b"[{\"a\": \"b", &mut |_| {});
        framer.finish(&mut |_| {});
        assert_eq!(held(&framer), 0);
    }
}

/// Generates bytes, most of which have a meaning to one of the framers.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "data",
        "event",
        ":",
        " ",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        "x",
        "{",
        "\u{FEFF}",
        ": c",
        "é",
        "}",
        "[",
        "]",
        ",",
        "\"",
        "\\",
        "\\\"",
        "{\"a\":1}",
        "{\"a\":[\"]\"]}",
        "\u{1E}",
        "1",
        "\0",
    ]);
    let word = words.prop_map(|word| word.as_bytes().to_vec());
    let any = prop::collection::vec(any::<u8>(), 0..4);
    let message = (0..3_usize, "[a-z]{0,20}")
        .prop_map(|(cut, text)| encode::event("e", &text).split_off(cut / 2));
    let part = prop_oneof![80 => word, 10 => any, 5 => message];
    prop::collection::vec(part, 0..60).prop_map(|parts| parts.concat())
}

/// Generates typical beginnings of bodies.
fn lead() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        Vec::new(),
        b"[".to_vec(),
        b"{".to_vec(),
        b"data: ".to_vec(),
        encode::event("e", "{}"),
    ])
}

proptest! {
    #[test]
    fn cuts_do_not_change_the_result(
        lead in lead(),
        soup in soup(),
        sizes in prop::collection::vec(1..9_usize, 1..8),
    ) {
        let body = [lead, soup].concat();
        let pieces = pieces(&body, &sizes);
        let doubtful = (JSON.0, JsonFraming::Lines);
        for (content_type, json) in ALL_DECLARED.into_iter().chain([doubtful]) {
            let framer = || Framer::new(content_type, json);
            prop_assert_eq!(collect(framer(), &pieces), collect(framer(), &[&body]));
        }
        for (cut, whole) in small(12).into_iter().zip(small(12)) {
            prop_assert_eq!(collect(cut, &pieces), collect(whole, &[&body]));
        }
    }

    #[test]
    fn memory_is_bounded_by_the_cap(
        body in soup(),
        size in 1..40_usize,
        gap in 0..20_usize,
    ) {
        for mut framer in small(32) {
            for (at, piece) in body.chunks(size).enumerate() {
                framer.push(piece, &mut |_| {});
                // The data of an event and the current line are two vectors, and both grow by doubling.
                let events = matches!(framer, Framer::Sse(_));
                let most = if events { 64 } else { 32 };
                prop_assert!(held(&framer) <= most);
                if at == gap {
                    framer.gap();
                }
            }
            framer.finish(&mut |_| {});
            prop_assert_eq!(held(&framer), 0);
        }
    }
}
