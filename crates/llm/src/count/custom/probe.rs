//! Finds the positions at which a text can be cut without a change of its token count, for a custom tokenizer. Each kind
//! of position is tested with many texts: the two parts together must have as many tokens as the whole text.
//!
//! This is a test and not a proof. However, the test covers the whole tokenizer and does not depend on an analysis of
//! its components. Each token that contains a candidate position is also tested. `tests.rs` applies the test to
//! tokenizers of every family.

use super::{CustomTokenizer, Cuts, LEAD};

/// Number of random texts. With this number, a rare character occurs next to every sign about twenty times.
const TEXTS: usize = 400;

/// Number of atoms (entries of [`ATOMS`]) per text.
const ATOMS_PER_TEXT: usize = 12;

/// Maximum number of tested tokens that contain a candidate position. A few tokens are enough to show that the
/// position is unsafe.
const MAX_SPANNING_TOKENS: usize = 1_000;

/// Returns the kinds of positions at which a text can be cut safely for this tokenizer.
pub(super) fn cuts(given: &CustomTokenizer) -> Cuts {
    let spanning: Vec<String> = spanning(given).take(MAX_SPANNING_TOKENS).collect();
    let texts: Vec<String> = texts().chain(spanning).collect();
    let holds = |cuts: Cuts| texts.iter().all(|text| is_safe(given, text, cuts));
    let Cuts { words, signs, clauses } = Cuts::default();
    Cuts {
        words: holds(Cuts { words: true, signs, clauses }),
        signs: holds(Cuts { words, signs: true, clauses }),
        clauses: holds(Cuts { words, signs, clauses: true }),
    }
}

fn is_safe(given: &CustomTokenizer, text: &str, cuts: Cuts) -> bool {
    let mut places = cuts.places(text).peekable();
    if places.peek().is_none() {
        return true;
    }
    let whole = given.count(text);
    let in_parts = |place| {
        let (before, behind) = text.split_at_checked(place)?;
        let behind = given.count(&(LEAD.to_owned() + behind))?;
        Some(given.count(before)? + behind.checked_sub(given.lead())?)
    };
    whole.is_some() && places.all(|place| in_parts(place) == whole)
}

/// Returns test texts from tokens that contain a candidate position, or that include the blanks next to them.
fn spanning(given: &CustomTokenizer) -> impl Iterator<Item = String> {
    let tokens = given.tokens();
    let inside = tokens.flat_map(|token| [from_bytes(&token), token.replace('▁', " ")]);
    let beside = given
        .greedy()
        .flat_map(|token| [format!("a {token} b"), format!("a{token} b"), format!("a {token}b")]);
    let has_place = |text: &String| ALL.places(text).next().is_some();
    beside.chain(inside).filter(has_place)
}

const ALL: Cuts = Cuts { words: true, signs: true, clauses: true };

/// Decodes a token of a vocabulary that writes each byte as a visible character. Most bytes are the character with the
/// same number. The other bytes are consecutive characters from U+0100.
fn from_bytes(token: &str) -> String {
    let seen = |byte: u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    let byte = |character: char| match u32::from(character) {
        number if seen(number) => u8::try_from(number).ok(),
        number => {
            let turn = usize::try_from(number.checked_sub(0x100)?).ok()?;
            let mut unseen = (0..=u8::MAX).filter(|byte| !seen(u32::from(*byte)));
            unseen.nth(turn)
        }
    };
    let bytes: Option<Vec<u8>> = token.chars().map(byte).collect();
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

/// Returns random texts, which are the same in every run.
fn texts() -> impl Iterator<Item = String> {
    let atoms: Vec<&str> = ATOMS.split('¦').collect();
    let mut random = fastrand::Rng::with_seed(1);
    (0..TEXTS).map(move |_| {
        let atom = |_| atoms.get(random.usize(..atoms.len())).copied();
        (0..ATOMS_PER_TEXT).filter_map(atom).collect()
    })
}

/// Parts of the random texts: words, numbers, signs and blanks, separated by `¦`. Parts that begin or end at a
/// candidate position occur several times, so that most texts contain such positions.
const ATOMS: &str = concat!(
    " =¦ (¦ {¦ ->¦, ¦; ¦: ¦. ¦) ¦ \"¦ 'a'¦ #¦ /¦ //¦ <b>¦ `a` ¦ the¦ of¦ a¦ x¦ I¦ World¦ 7¦ 2024¦",
    " can¦ é¦ и¦ 中¦ 한국어¦ मैं¦ م¦the¦ing¦Straße¦HTTPServer¦iPhone¦don't¦we'LL¦'s¦1¦345¦3.14¦٣¦५¦ ¦  ¦",
    "    ¦\n¦\n\n¦\r\n¦\t¦\u{a0}¦\u{3000}¦。¦，¦，然后¦、¦；¦：¦？¦！¦中¦好¦龘¦𠮷¦カタカナ¦สวัสดี¦नमस्ते¦مرحبا¦.¦,¦...¦",
    "!¦(foo¦{\"a\": ¦_¦<|end|>¦🎉¦👩\u{200d}👧¦e\u{301}",
);
