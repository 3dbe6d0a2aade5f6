//! Counts the tokens of a growing text. The total is the same for every way of splitting the text into deltas.
//!
//! The sum of separately encoded deltas is wrong by up to a factor of two, because tokens span deltas. Encoding the
//! whole text at each delta is quadratic. An encoding first splits the text into pieces, and later text can change only
//! the last one or two boundaries. The decided pieces are therefore counted once. Only the tail, usually one word, is
//! counted again for each query.

use std::cmp::Ordering;

use super::Encoding;
use super::merge::Merged;
use super::split::OpenPiece;

/// Maximum tail length in bytes that is counted at every query. No word is longer.
pub(super) const SHORT_TAIL: usize = 256;

/// A longer tail (a run of `=` or blanks, a base64 blob) is counted again only after it has grown by an eighth.
/// Otherwise the cost would be quadratic.
pub(super) const GROWTH: usize = 8;

/// Maximum tail length in bytes, which bounds the memory of a stream. A longer tail is cut off and counted as if the
/// text ended there, and the count becomes an estimate. A cut may add a token or two per 64 KiB, out of the 8,000 or
/// more tokens of such a run.
pub(super) const LONGEST_TAIL: usize = 64 * 1024;

/// Number of bytes of a delta processed at a time, so that a long delta is not copied into the tail at once.
const STRETCH: usize = 4 * 1024;

/// Capacity in bytes to which a tail shrinks after it was longer. Thousands of streams may be open at a time.
pub(super) const ROOMY: usize = 1024;

/// Counts the tokens of one growing text.
#[derive(Clone, Debug)]
pub struct TextCounter {
    encoding: Encoding,
    /// Tokens of the pieces before the tail.
    decided: u64,
    /// The text after the last decided piece.
    tail: Vec<u8>,
    /// The first piece of the tail.
    open: OpenPiece,
    /// The last count of the tail.
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

    /// Appends `delta` to the text.
    pub fn push(&mut self, delta: &str) {
        for now in in_stretches(delta) {
            self.tail.extend_from_slice(now.as_bytes());
            self.decide();
            if self.tail.len() > LONGEST_TAIL {
                self.settle();
            }
        }
    }

    /// Returns the token count of the text so far. It may fall by a few when text arrives (`'v` is two tokens, `'ve`
    /// one). While the tail is longer than 256 bytes, the count may lag by an eighth of the tail.
    pub fn count(&mut self) -> u64 {
        let (length, before) = (self.tail.len(), self.counted.length);
        // A tail only grows between counts, so an equal length means an equal tail.
        let grown = length != before;
        if grown && (length <= SHORT_TAIL || length >= before + before / GROWTH) {
            self.counted = self.count_tail();
        }
        self.decided + self.counted.tokens
    }

    /// Returns the exact token count at any cost. Intended for the end of the text.
    pub fn total(&self) -> u64 {
        self.decided + self.count_tail().tokens
    }

    /// Returns the tokens that no later text can change. The value never falls and never exceeds a later total.
    pub const fn decided(&self) -> u64 {
        self.decided
    }

    /// Reports whether the count is exact: no piece of the text was cut in two.
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// Returns the allocated memory in bytes.
    pub const fn held(&self) -> usize {
        self.tail.capacity()
    }

    /// Counts the tail as if the text ended here, and frees its memory.
    pub fn settle(&mut self) {
        if !self.tail.is_empty() {
            self.decided += self.count_tail().tokens;
            self.exact = false;
        }
        self.tail = Vec::new();
        self.open = OpenPiece::new();
        self.counted = Counted::NOTHING;
    }

    /// Counts the decided pieces of the tail and removes them.
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
            // The existing encodings have at most one more piece here.
            tokens: first_merged.tokens() + self.encoding.count_bytes(rest),
            first: first_merged,
        }
    }

    /// Merges `piece`. `before` is an earlier merge, which may cover a prefix of the piece or more than the piece.
    fn merge(&self, piece: &[u8], before: Merged) -> Merged {
        match before.length().cmp(&piece.len()) {
            // If each delta is one token, the piece was counted just before the next delta decides it.
            Ordering::Equal => before,
            Ordering::Less => self.encoding.tables().vocabulary.merge(piece, before),
            Ordering::Greater => self.encoding.tables().vocabulary.merge(piece, Merged::NOTHING),
        }
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
