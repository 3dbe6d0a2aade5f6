//! Fuzzes token counting. The count of the pieces must equal the count of the whole text, and both must equal the
//! reference's count.

use std::collections::BTreeMap;

use tokengauge_llm::count::{Encoding, TextCounter, TokenCounter};
use tokengauge_llm::dialect::{Part, TextKind};

use super::script::{Script, in_pieces};

const PARTS: [Part; 6] =
    [Part::Text, Part::Reasoning, Part::Tool(0), Part::Tool(7), Part::Refusal, Part::Transcript];

const MODELS: [&str; 4] = ["gpt-4o", "gpt-4", "claude-sonnet-4-5", "text-davinci-003"];

/// Maximum bytes of a text. More text covers nothing new, except runs longer than any text that the counter examines
/// repeatedly.
const LONGEST: usize = 2_000;

/// Maximum bytes for the reference, whose time is quadratic in the length of a run without blanks.
const LONGEST_REFERRED: usize = 300;

pub fn tokens(input: &[u8]) {
    let mut script = Script::new(input);
    let model = script.pick(&MODELS);
    let cuts = script.cuts();
    let text = script.rest();
    let text = String::from_utf8_lossy(text.get(..LONGEST).unwrap_or(text));
    for encoding in Encoding::ALL {
        grows(encoding, &text, cuts);
    }
    apart(model, &text, cuts);
}

/// Tests one text that grows.
fn grows(encoding: Encoding, text: &str, cuts: [usize; 2]) {
    let whole = encoding.count(text);
    if text.len() <= LONGEST_REFERRED {
        let referred = reference(encoding, text);
        assert_eq!(whole, referred, "{}: {text:?}", encoding.as_str());
    }
    let mut encoder = TextCounter::new(encoding);
    let mut decided = 0;
    for piece in pieces(text, cuts) {
        encoder.push(piece);
        encoder.count();
        assert!(encoder.final_tokens() >= decided, "a count decreased");
        decided = encoder.final_tokens();
        assert!(decided <= encoder.total() && decided <= whole);
    }
    assert_eq!(encoder.total(), whole, "{}: {text:?}", encoding.as_str());
}

/// Tests several concurrent texts. The first byte of each piece selects its part.
fn apart(model: &str, text: &str, cuts: [usize; 2]) {
    let mut counter = TokenCounter::default();
    counter.set_model(model);
    let mut texts: BTreeMap<(u32, usize), String> = BTreeMap::new();
    let (mut told, mut told_native) = (0, 0);
    for piece in pieces(text, cuts) {
        let first = usize::from(piece.as_bytes()[0]);
        let (choice, part) = (u32::from(first > 0x60), first % PARTS.len());
        let added = counter.push(choice, PARTS[part], piece);
        told += u64::from(added.standard);
        told_native += u64::from(added.native);
        texts.entry((choice, part)).or_default().push_str(piece);
    }
    let totals = counter.finish();
    let sum = |encoding: Encoding| texts.values().map(|text| encoding.count(text)).sum::<u64>();
    let native = tokengauge_llm::count::encoding_for_model(model).unwrap_or(Encoding::O200k);
    assert_eq!(totals.native, sum(native), "{model}");
    assert_eq!(totals.standard, sum(Encoding::O200k), "the standard count differs");
    assert_eq!(totals.by_kind.iter().sum::<u64>(), totals.native);
    assert_eq!(told + u64::from(totals.standard_unreported), totals.standard);
    let rest: u64 = totals.native_unreported.into_iter().map(u64::from).sum();
    assert_eq!(told_native + rest, totals.native, "{model}");
    for (kind, tokens) in TextKind::ALL.into_iter().zip(totals.by_kind) {
        let of_kind = |(_, part): &(u32, usize)| PARTS[*part].kind() == kind;
        assert_eq!(tokens > 0, texts.keys().any(of_kind), "{}", kind.as_str());
    }
}

/// Cuts at character boundaries, into pieces of about these sizes.
fn pieces(text: &str, cuts: [usize; 2]) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut end = 0;
    for piece in in_pieces(text.as_bytes(), cuts) {
        end += piece.len();
        if end > start && text.is_char_boundary(end) {
            pieces.push(text.get(start..end).unwrap());
            start = end;
        }
    }
    pieces
}

fn reference(encoding: Encoding, text: &str) -> u64 {
    let reference = match encoding {
        Encoding::O200k => tiktoken_rs::o200k_base_singleton(),
        Encoding::Cl100k => tiktoken_rs::cl100k_base_singleton(),
        Encoding::P50k => tiktoken_rs::p50k_base_singleton(),
        Encoding::R50k => tiktoken_rs::r50k_base_singleton(),
    };
    reference.encode_ordinary(text).len() as u64
}
