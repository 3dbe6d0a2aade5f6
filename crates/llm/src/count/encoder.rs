//! Counting the tokens of a text while it arrives: the same total for every way of cutting it into deltas.
//!
//! Encoding each delta alone and adding up is wrong by up to a factor of two, for tokens straddle deltas; encoding the
//! whole text again at each delta is quadratic. But an encoding first cuts the text into pieces, and later text can
//! move only the last cut or two. So what is decided is counted once, and the tail behind it (a word, as a rule) is
//! counted anew whenever the number is asked for.

use std::cmp::Ordering;

use super::Encoding;
use super::merge::Merged;
use super::split::OpenPiece;

/// Up to this length the tail is counted whenever the count is asked for; no word is as long.
pub(super) const SHORT_TAIL: usize = 256;

/// A longer tail (a run of `=`, of blanks, a base64 blob) is counted again only when it has grown by an eighth, or it
/// would cost its square.
pub(super) const GROWTH: usize = 8;

/// A tail that has become this long is cut off and counted as if the text ended there: it bounds the memory of a stream.
/// The cut may cost a token or two per 64 KiB, of the 8,000 or more that such a run has; the count is an estimate then.
pub(super) const LONGEST_TAIL: usize = 64 * 1024;

/// So much of a delta is taken in at a time, so that a whole answer in one delta is not copied into the tail at once.
const STRETCH: usize = 4 * 1024;

/// A tail that once was longer gives its memory back: thousands of streams are open at a time.
pub(super) const ROOMY: usize = 1024;

/// Counts one growing text.
#[derive(Clone, Debug)]
pub struct TextCounter {
    encoding: Encoding,
    /// Tokens of the pieces before the tail.
    decided: u64,
    /// The text behind the last piece that is decided.
    tail: Vec<u8>,
    /// The first piece of the tail.
    open: OpenPiece,
    /// What was last counted of the tail.
    counted: Counted,
    exact: bool,
}

impl TextCounter {
    pub const fn new(encoding: Encoding) -> Self {
        Self {
            encoding,
            decided: 0,
            tail: Vec::new(),
            open: OpenPiece::new(),
            counted: Counted::NOTHING,
            exact: true,
        }
    }

    pub const fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The text goes on with `delta`.
    pub fn push(&mut self, delta: &str) {
        for now in in_stretches(delta) {
            self.tail.extend_from_slice(now.as_bytes());
            self.decide();
            if self.tail.len() > LONGEST_TAIL {
                self.settle();
            }
        }
    }

    /// The tokens of the text so far. It may fall by a few when text arrives (`'v` is two tokens, `'ve` one). While the
    /// tail is longer than 256 bytes it may be an eighth of the tail behind.
    pub fn count(&mut self) -> u64 {
        let (length, before) = (self.tail.len(), self.counted.length);
        // A tail only ever grows, so one of the same length is the same.
        let grown = length != before;
        if grown && (length <= SHORT_TAIL || length >= before + before / GROWTH) {
            self.counted = self.count_tail();
        }
        self.decided + self.counted.tokens
    }

    /// The tokens of the text so far, exactly, whatever it costs: for its end.
    pub fn total(&self) -> u64 {
        self.decided + self.count_tail().tokens
    }

    /// The tokens that stay whatever follows. Never falls, and never exceeds the total of any longer text.
    pub const fn decided(&self) -> u64 {
        self.decided
    }

    /// Whether this is the count of the text as a whole: no piece of it was cut in two.
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// Bytes that are held.
    pub const fn held(&self) -> usize {
        self.tail.capacity()
    }

    /// Counts the tail as if the text ended here, and holds nothing.
    pub fn settle(&mut self) {
        if !self.tail.is_empty() {
            self.decided += self.count_tail().tokens;
            self.exact = false;
        }
        self.tail = Vec::new();
        self.open = OpenPiece::new();
        self.counted = Counted::NOTHING;
    }

    /// Counts the pieces of the tail that are decided, and lets go of them.
    fn decide(&mut self) {
        let mut start = 0;
        while let Some(rest) = self.tail.get(start..)
            && let Some(end) = self.open.read_on(&self.encoding.tables().splitter, rest)
            && let Some(piece) = rest.get(..end)
        {
            let before = if start == 0 { self.counted.first } else { Merged::NOTHING };
            self.decided += self.merge(piece, before).tokens();
            start += end;
        }
        if start > 0 {
            self.let_go(start);
        }
    }

    fn let_go(&mut self, bytes: usize) {
        self.tail.drain(..bytes);
        self.counted = Counted::NOTHING;
        if self.tail.capacity() > ROOMY && self.tail.len() <= ROOMY {
            self.tail.shrink_to(ROOMY);
        }
    }

    /// Counts the tail as if the text ended here.
    fn count_tail(&self) -> Counted {
        let first_length = self.open.end_if_text_ends(&self.tail);
        let Some((first, rest)) = self.tail.split_at_checked(first_length) else {
            return Counted::NOTHING;
        };
        if first.is_empty() {
            return Counted::NOTHING;
        }
        let first_merged = self.merge(first, self.counted.first);
        Counted {
            length: self.tail.len(),
            // At most one more piece in the encodings there are.
            tokens: first_merged.tokens() + self.encoding.count_bytes(rest),
            first: first_merged,
        }
    }

    /// The tokens of `piece`, of whose bytes some of the first, or more than all, were merged `before`.
    fn merge(&self, piece: &[u8], before: Merged) -> Merged {
        match before.length().cmp(&piece.len()) {
            // Where each delta is a token, the piece was just counted when the next one decides it.
            Ordering::Equal => before,
            Ordering::Less => self.encoding.tables().vocabulary.merge(piece, before),
            Ordering::Greater => self.encoding.tables().vocabulary.merge(piece, Merged::NOTHING),
        }
    }
}

/// What a count of the tail found. Its first piece is kept apart: it is often the next one to be decided, or grows.
#[derive(Clone, Copy, Debug)]
struct Counted {
    length: usize,
    tokens: u64,
    first: Merged,
}

impl Counted {
    const NOTHING: Self = Self { length: 0, tokens: 0, first: Merged::NOTHING };
}

/// `delta` in parts of whole characters that are taken in one at a time.
pub(super) fn in_stretches(delta: &str) -> impl Iterator<Item = &str> {
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
