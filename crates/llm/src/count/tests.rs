//! Tests the encoders against their reference implementation, tiktoken-rs.

use proptest::prelude::*;
use tiktoken_rs::CoreBPE;

use super::{Encoding, TextCounter, estimate};

/// Counts the bytes that the code processes, because a test that measures time would be unreliable.
pub(super) mod work {
    use std::cell::Cell;

    thread_local! {
        static BYTES: Cell<usize> = const { Cell::new(0) };
    }

    /// Adds bytes that the split automaton read or that a merge processed.
    pub(in super::super) fn add(bytes: usize) {
        BYTES.set(BYTES.get() + bytes);
    }

    pub(super) fn measure(act: impl FnOnce()) -> usize {
        let before = BYTES.get();
        act();
        BYTES.get() - before
    }
}

pub(super) fn oracle(encoding: Encoding) -> &'static CoreBPE {
    match encoding {
        Encoding::O200k => tiktoken_rs::o200k_base_singleton(),
        Encoding::Cl100k => tiktoken_rs::cl100k_base_singleton(),
        Encoding::P50k => tiktoken_rs::p50k_base_singleton(),
        Encoding::R50k => tiktoken_rs::r50k_base_singleton(),
    }
}

fn true_count(encoding: Encoding, text: &str) -> u64 {
    oracle(encoding).encode_ordinary(text).len() as u64
}

/// One character of each class that the split patterns distinguish, and the letters of English contractions.
const CLASSES: [char; 14] =
    [' ', '\n', '\t', 'a', 'A', 's', '\'', 'r', 'e', '1', '.', '/', '中', '\u{300}'];

/// Tests `encoder`, which has read `text`, with all continuations of up to `depth` characters.
fn try_all(encoding: Encoding, encoder: &TextCounter, text: &mut String, depth: usize) {
    if depth == 0 {
        return;
    }
    for character in CLASSES {
        let length = text.len();
        text.push(character);
        let mut longer = encoder.clone();
        longer.push(character.encode_utf8(&mut [0; 4]));
        let count = longer.count();
        assert_eq!(count, true_count(encoding, text), "{text:?}");
        assert_eq!(longer.total(), count, "{text:?}");
        assert!((encoder.final_tokens()..=count).contains(&longer.final_tokens()), "{text:?}");
        try_all(encoding, &longer, text, depth - 1);
        text.truncate(length);
    }
}

#[test]
fn short_texts_match_tiktoken_at_each_character() {
    for encoding in Encoding::ALL {
        try_all(encoding, &TextCounter::new(encoding), &mut String::new(), 4);
    }
}

/// Parts of random texts, with every character class and every known edge case.
const ATOMS: [&str; 108] = [
    // White space of all kinds. The split is before the last blank, and newlines attach to the preceding text.
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    " \n",
    "\n  ",
    "\t\t",
    "\u{85}",
    "\u{2028}",
    "\u{a0}",
    "\u{3000}",
    "\u{b}",
    "\u{200b}",
    "\u{feff}",
    // Words, changes of case, and contractions in both cases and with the long s.
    "a",
    "the",
    " the",
    "Hello",
    " World",
    "camelCase",
    "HTTPServer",
    "snake_case",
    "iPhone",
    "ABC",
    "A",
    "don",
    "'t",
    "'s",
    "'re",
    "'ve",
    "'LL",
    "'D",
    "'m",
    "'ſ",
    "'x",
    "'",
    "''",
    "s",
    "r",
    "e",
    "l",
    "v",
    "re",
    "ll",
    // Digits of several scripts, grouped by three.
    "1",
    "12",
    "345",
    "6789",
    "3.14",
    "1,000",
    "٣",
    "५",
    "Ⅷ",
    "²",
    // Punctuation and code. These characters absorb a preceding blank and following newlines, and in o200k also `/`.
    ".",
    ",",
    "...",
    "!",
    "?\n\n",
    "//",
    "/",
    "/\n",
    "(foo",
    ");",
    "{\"a\": [1, 2]}",
    "==",
    "->",
    "#",
    "```rust\n",
    "**",
    "|",
    "<|endoftext|>",
    "<|im_start|>",
    "<mask> ",
    "<|",
    "|>",
    "_",
    "$",
    // Scripts without case, whose letters count as both upper and lower case in o200k.
    "中",
    "中文",
    "，然后",
    "。",
    "你好，世界",
    "日本語",
    "カタカナ",
    "ー",
    "한국어",
    // Marks, titlecase, modifiers, right-to-left scripts, and scripts with combining vowels.
    "\u{300}",
    "e\u{301}",
    "É",
    "straße",
    "ǅ",
    "ʰ",
    "नमस्ते",
    "สวัสดี",
    "مرحبا",
    "שלום",
    "Привет",
    // Emoji with joiners, selectors, flags and keycaps, and the replacement character.
    "👩\u{200d}👩\u{200d}👧",
    "❤\u{fe0f}Love",
    "🇩🇪",
    "1\u{fe0f}\u{20e3}",
    "🎉",
    "\u{fffd}",
];

/// Generates runs that no entry of [`ATOMS`] contains: letters, blanks, punctuation, and capitals after a letter
/// without case.
fn run() -> impl Strategy<Value = String> {
    let letter = prop_oneof![
        Just("x"),
        Just(" "),
        Just("="),
        Just("\n"),
        Just("中"),
        Just("A"),
        Just("中A")
    ];
    (letter, 1..48_usize).prop_map(|(letter, times)| letter.repeat(times))
}

pub(super) fn text() -> impl Strategy<Value = String> {
    let atom = prop_oneof![
        30 => prop::sample::select(&ATOMS[..]).prop_map(str::to_owned),
        1 => run(),
        2 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(atom, 1..16).prop_map(|atoms| atoms.concat())
}

/// Divides `text` into deltas. `lengths` contains their lengths in characters, and is repeated.
pub(super) fn deltas<'a>(text: &'a str, lengths: &'a [usize]) -> impl Iterator<Item = &'a str> {
    let mut rest = text;
    lengths.iter().cycle().map_while(move |length| {
        let end = rest.char_indices().nth(*length).map_or(rest.len(), |(at, _)| at);
        let (delta, later) = rest.split_at(end);
        rest = later;
        (!delta.is_empty()).then_some(delta)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn texts_match_tiktoken_at_every_delta(
        text in text(),
        lengths in prop::collection::vec(1..24_usize, 1..5),
    ) {
        for encoding in Encoding::ALL {
            let mut encoder = TextCounter::new(encoding);
            let mut read = String::new();
            let mut decided = 0;
            for delta in deltas(&text, &lengths) {
                encoder.push(delta);
                read.push_str(delta);
                prop_assert!(encoder.final_tokens() >= decided);
                decided = encoder.final_tokens();
                let counted = true_count(encoding, &read);
                // If a piece is longer than 256 bytes, `count` can lag. `total` is always exact.
                if read.len() <= 256 {
                    prop_assert_eq!(encoder.count(), counted);
                }
                prop_assert_eq!(encoder.total(), counted);
            }
            prop_assert!(decided <= encoder.total());
            prop_assert_eq!(encoder.total(), encoding.count(&text));
        }
    }
}

#[test]
fn long_runs_take_work_proportional_to_their_length() {
    const LENGTH: usize = 16 * 1024;
    for run in [
        "====",
        "    ",
        "aaaa",
        "AAAA",
        "\n\n\n\n",
        " \n \n",
        "1234",
        "''''",
        "中A",
        "中",
        "\u{300}\u{300}",
    ] {
        let text = run.repeat(LENGTH / run.len());
        for encoding in Encoding::ALL {
            let mut encoder = TextCounter::new(encoding);
            let work = work::measure(|| {
                for delta in deltas(&text, &[4]) {
                    encoder.push(delta);
                    encoder.count();
                }
            });
            // If the tail were counted at every delta, the work would be 2,000 times the length.
            assert!(work <= 16 * LENGTH, "{run:?}: {work}");
            assert_eq!(encoder.total(), true_count(encoding, &text), "{run:?}");
        }
    }
}

#[test]
fn a_piece_is_not_counted_again_when_it_is_decided() {
    let word = " tokengauge";
    let mut encoder = TextCounter::new(Encoding::O200k);
    let work = work::measure(|| {
        for _ in 0..100 {
            encoder.push(word);
            encoder.count();
        }
    });
    // Each byte is read once and merged once. The blank after each word is read twice.
    assert_eq!(work, 100 * 2 * word.len() + 99);
}

#[test]
fn capitals_after_a_letter_without_case_are_read_twice() {
    let text = "中".to_owned() + &"A".repeat(16 * 1024) + " ";
    let mut encoder = TextCounter::new(Encoding::O200k);
    let work = work::measure(|| encoder.push(&text));
    assert!(work <= 4 * text.len(), "{work}");
    assert_eq!(encoder.total(), true_count(Encoding::O200k, &text));
}

#[test]
fn a_piece_is_decided_when_its_last_byte_arrives() {
    let mut encoder = TextCounter::new(Encoding::O200k);
    for (delta, decided) in
        [("12", 0), ("3", 1), ("don", 1), ("'t", 2), (" ", 2), (" ", 2), ("x", 3), ("\n", 4)]
    {
        encoder.push(delta);
        assert_eq!(encoder.final_tokens(), decided, "{delta:?}");
    }
}

#[test]
fn special_tokens_count_as_ordinary_text() {
    for encoding in Encoding::ALL {
        assert_eq!(encoding.count("<|endoftext|>"), true_count(encoding, "<|endoftext|>"));
        assert!(encoding.count("<|endoftext|>") > 1);
        assert_eq!(encoding.count(""), 0);
    }
}

#[test]
fn estimates_a_quarter_of_the_bytes() {
    assert_eq!([0, 1, 2, 5, 6, 4_000].map(estimate), [0, 0, 1, 1, 2, 1_000]);
    assert_eq!(estimate(u64::MAX), 1 << 62);
}
