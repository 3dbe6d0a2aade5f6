//! Counts the tokens of a growing text. The total is the same for every way of splitting the text into deltas.
//!
//! The sum of separately encoded deltas is wrong by up to a factor of two, because tokens span deltas. Encoding the
//! whole text at each delta is quadratic. An encoding first splits the text into pieces, and later text can change only
//! the last one or two boundaries. The decided pieces are therefore counted once. Only the tail, usually one word, is
//! counted again for each query.

use std::cmp::Ordering;
use std::sync::Arc;

use super::custom::LEAD;
use super::merge::Merged;
use super::split::OpenPiece;
use super::table::Vocabulary;
use super::{CustomTokenizer, Encoding, estimate};

/// Maximum tail length in bytes that is counted at every query. No word is longer.
const SHORT_TAIL: usize = 256;

/// A longer tail (a run of `=` or blanks, a base64 blob) is counted again only after it has grown by an eighth.
/// Otherwise the cost would be quadratic.
const GROWTH: usize = 8;

/// Maximum tail length in bytes, which bounds the memory of a stream. A longer tail is cut off and counted as if the
/// text ended there, and the count becomes an estimate. A cut may add a token or two per 64 KiB, out of the 8,000 or
/// more tokens of such a run.
pub(super) const LONGEST_TAIL: usize = 64 * 1024;

/// Number of bytes of a delta processed at a time, so that a long delta is not copied into the tail at once.
const STRETCH: usize = 4 * 1024;

/// Capacity in bytes to which a tail shrinks after it was longer. Thousands of streams may be open at a time.
const ROOMY: usize = 1024;

/// Counts the tokens of one growing text.
#[derive(Clone, Debug)]
pub struct TextCounter {
    rules: Rules,
    /// Tokens of the text before the tail.
    decided: u64,
    /// The text that is not decided, after [`LEAD`] once a custom tokenizer has decided some text.
    tail: Vec<u8>,
    /// The last count of the tail.
    counted: Counted,
    exact: bool,
}

/// How text is decided and counted.
#[derive(Clone, Debug)]
enum Rules {
    /// `open` is the first piece of the tail.
    BuiltIn { encoding: Encoding, open: OpenPiece },
    /// Text before a safe position is decided. If the tokenizer has no such positions, the tail is the whole text.
    Custom { tokenizer: Arc<CustomTokenizer>, has_lead: bool },
}

impl TextCounter {
    pub const fn new(encoding: Encoding) -> Self {
        Self::with_rules(Rules::BuiltIn { encoding, open: OpenPiece::new() })
    }

    pub const fn custom(tokenizer: Arc<CustomTokenizer>) -> Self {
        Self::with_rules(Rules::Custom { tokenizer, has_lead: false })
    }

    const fn with_rules(rules: Rules) -> Self {
        Self { rules, decided: 0, tail: Vec::new(), counted: Counted::NOTHING, exact: true }
    }

    /// Appends `delta` to the text.
    pub fn push(&mut self, delta: &str) {
        for now in in_stretches(delta) {
            let from = self.tail.len();
            self.tail.extend_from_slice(now.as_bytes());
            match &self.rules {
                Rules::BuiltIn { .. } => self.decide_pieces(),
                Rules::Custom { .. } => self.decide_to_last_cut(from),
            }
            if self.tail.len() > LONGEST_TAIL {
                self.settle();
            }
        }
    }

    /// Returns the token count of the text so far. It may fall by a few when text arrives (`'v` is two tokens, `'ve`
    /// one). While the tail is longer than 256 bytes, the count may lag by an eighth of the tail.
    pub fn count(&mut self) -> u64 {
        let (length, before) = (self.tail.len(), self.counted.length);
        if length <= SHORT_TAIL || length >= before + before / GROWTH {
            return self.total();
        }
        self.decided + self.counted.tokens
    }

    /// Returns the token count of the text so far at any cost. Intended for the end of the text.
    pub fn total(&mut self) -> u64 {
        // A tail only grows between counts, so an equal length means an equal tail.
        if self.tail.len() != self.counted.length {
            self.counted = self.count_tail();
        }
        self.decided + self.counted.tokens
    }

    /// Returns the tokens that no later text can change. The value never falls and never exceeds a later total.
    pub const fn decided(&self) -> u64 {
        self.decided
    }

    /// Reports whether the count is exact: the text was cut only at safe positions, and all of it could be encoded.
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// Returns the allocated memory in bytes.
    pub const fn held(&self) -> usize {
        self.tail.capacity()
    }

    /// Counts the tail as if the text ended here, and frees its memory.
    pub fn settle(&mut self) {
        let was_empty = self.tail.is_empty();
        self.decided = self.total();
        self.exact &= was_empty;
        self.tail = Vec::new();
        self.counted = Counted::NOTHING;
        match &mut self.rules {
            Rules::BuiltIn { open, .. } => *open = OpenPiece::new(),
            Rules::Custom { .. } if was_empty => {}
            Rules::Custom { .. } => self.begin_with_lead(0),
        }
    }

    /// Counts the decided pieces of the tail and removes them.
    fn decide_pieces(&mut self) {
        let Self { rules: Rules::BuiltIn { encoding, open }, decided, tail, counted, .. } = self
        else {
            return;
        };
        let tables = encoding.tables();
        let mut start = 0;
        while let Some(rest) = tail.get(start..)
            && let Some(end) = open.read_on(&tables.splitter, rest)
            && let Some(piece) = rest.get(..end)
        {
            let before = if start == 0 { counted.first } else { Merged::NOTHING };
            *decided += merge(&tables.vocabulary, piece, before).tokens();
            start += end;
        }
        if start > 0 {
            tail.drain(..start);
            self.counted = Counted::NOTHING;
            self.shrink_tail();
        }
    }

    /// Counts the text before the last safe position after `from`, and removes it.
    fn decide_to_last_cut(&mut self, from: usize) {
        let Rules::Custom { tokenizer, .. } = &self.rules else { return };
        let text = std::str::from_utf8(&self.tail).unwrap_or_default();
        let place = tokenizer.cuts().last(text, from).filter(|place| *place > LEAD.len());
        let Some(place) = place else { return };
        // If each delta is one word, the text before `place` was just counted.
        self.decided += if self.counted.length == place {
            self.counted.tokens
        } else {
            self.custom_tokens_before(place)
        };
        self.begin_with_lead(place);
        self.shrink_tail();
    }

    /// Replaces the first `bytes` of the tail by [`LEAD`].
    fn begin_with_lead(&mut self, bytes: usize) {
        drop(self.tail.splice(..bytes, LEAD.bytes()));
        self.counted = Counted { length: LEAD.len(), ..Counted::NOTHING };
        if let Rules::Custom { has_lead, .. } = &mut self.rules {
            *has_lead = true;
        }
    }

    fn shrink_tail(&mut self) {
        if self.tail.capacity() > ROOMY && self.tail.len() <= ROOMY {
            self.tail.shrink_to(ROOMY);
        }
    }

    /// Counts the tail as if the text ended here.
    fn count_tail(&mut self) -> Counted {
        let length = self.tail.len();
        let (encoding, first_length) = match &self.rules {
            Rules::BuiltIn { encoding, open } => (encoding, open.end_if_text_ends(&self.tail)),
            Rules::Custom { .. } => {
                let tokens = self.custom_tokens_before(length);
                return Counted { length, tokens, first: Merged::NOTHING };
            }
        };
        let Some((first, rest)) =
            self.tail.split_at_checked(first_length).filter(|(first, _)| !first.is_empty())
        else {
            return Counted::NOTHING;
        };
        let first = merge(&encoding.tables().vocabulary, first, self.counted.first);
        // The existing encodings have at most one more piece here.
        Counted { length, tokens: first.tokens() + encoding.count_bytes(rest), first }
    }

    fn custom_tokens_before(&mut self, place: usize) -> u64 {
        let Rules::Custom { tokenizer, has_lead } = &self.rules else { return 0 };
        let text = self.tail.get(..place).and_then(|text| std::str::from_utf8(text).ok());
        let text = text.unwrap_or_default();
        let lead = if *has_lead { tokenizer.lead() } else { 0 };
        match tokenizer.count(text) {
            Some(tokens) => tokens.saturating_sub(lead),
            None => {
                self.exact = false;
                estimate(text.len() as u64)
            }
        }
    }
}

/// Merges `piece`. `before` is an earlier merge, which may cover a prefix of the piece or more than the piece.
fn merge(vocabulary: &Vocabulary, piece: &[u8], before: Merged) -> Merged {
    match before.length().cmp(&piece.len()) {
        // If each delta is one token, the piece was counted just before the next delta decides it.
        Ordering::Equal => before,
        Ordering::Less => vocabulary.merge(piece, before),
        Ordering::Greater => vocabulary.merge(piece, Merged::NOTHING),
    }
}

/// The result of counting the tail. Its first piece is separate, because it is usually decided next or grows.
#[derive(Clone, Copy, Debug)]
struct Counted {
    length: usize,
    tokens: u64,
    first: Merged,
}

impl Counted {
    const NOTHING: Self = Self { length: 0, tokens: 0, first: Merged::NOTHING };
}

/// Splits `delta` between characters into parts that are processed one at a time.
fn in_stretches(delta: &str) -> impl Iterator<Item = &str> {
    let mut rest = delta;
    std::iter::from_fn(move || {
        let mut end = rest.len().min(STRETCH);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (now, later) = rest.split_at_checked(end)?;
        rest = later;
        (!now.is_empty()).then_some(now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_end_holds_a_bounded_tail_and_costs_a_token_or_two_per_cut() {
        for run in ["=", "中A"] {
            let text = run.repeat(300 * 1024 / run.len());
            let mut encoder = TextCounter::new(Encoding::Cl100k);
            for _ in 0..text.len() / run.len() / 64 {
                encoder.push(&run.repeat(64));
                assert!(encoder.tail.len() <= LONGEST_TAIL);
            }
            let cuts = (text.len() / LONGEST_TAIL) as u64;
            let off = encoder.total().abs_diff(Encoding::Cl100k.count(&text));
            assert!(off <= 2 * cuts, "{off} off in {cuts} cuts");
            assert!(encoder.decided() > 0);
            assert!(!encoder.is_exact());
        }
    }

    #[test]
    fn a_delta_of_any_size_leaves_only_the_open_piece_and_little_memory() {
        let mut encoder = TextCounter::new(Encoding::O200k);
        encoder.push(&"All work and no play. ".repeat(10_000));
        assert_eq!(encoder.tail, b" ");
        encoder.push(&"x".repeat(20_000));
        assert!(encoder.tail.capacity() >= 20_000);
        encoder.push(" y");
        assert!(encoder.held() <= ROOMY);
        assert!(encoder.is_exact());
    }

    #[test]
    fn a_long_delta_is_cut_between_characters() {
        let text = "a".to_owned() + &"é".repeat(STRETCH);
        let parts: Vec<&str> = in_stretches(&text).collect();
        assert_eq!(parts[0].len(), STRETCH - 1);
        assert_eq!(parts.concat(), text);
        assert_eq!(in_stretches("").count(), 0);
    }
}
