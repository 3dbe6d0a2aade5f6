//! Counts the tokens of a growing text. The count does not depend on how the text is divided into deltas.
//!
//! It would be wrong to encode each delta separately, because tokens span deltas: the sum can be wrong by a factor of
//! two. To encode the whole text at each delta would take quadratic time. An encoding first splits the text into
//! pieces, and later text can change only the last one or two pieces. The pieces before are *final* and counted once.
//! The rest of the text is the *tail*, usually one word. Only the tail is counted again for each query.

use std::cmp::Ordering;
use std::sync::Arc;

use super::custom::LEAD;
use super::merge::Merged;
use super::split::OpenPiece;
use super::table::Vocabulary;
use super::{CustomTokenizer, Encoding, estimate};

/// Maximum length in bytes of a tail that every query counts again. The tail is the end of the text, without a final
/// count. No word is longer.
const MAX_RECOUNTED_BYTES: usize = 256;

/// A tail longer than [`MAX_RECOUNTED_BYTES`], such as base64 data, is counted again only after growth by an eighth.
/// Counting at every query would take quadratic time.
const RECOUNT_GROWTH_DIVISOR: usize = 8;

/// Maximum length of the tail (the text without a final count), in bytes. A longer tail is counted as if the text ended
/// there, and the total becomes an estimate. The cut adds at most two tokens per 64 KiB, which contain 8,000 tokens or
/// more.
pub(super) const MAX_TAIL_BYTES: usize = 64 * 1024;

/// Number of bytes of a delta that are processed in one step, so that a long delta is not copied as a whole.
const STEP_BYTES: usize = 4 * 1024;

/// Capacity in bytes to which the buffer of the tail shrinks, because thousands of streams can be open.
const SHRUNK_TAIL_CAPACITY: usize = 1024;

/// Number of tokens at the end of a piece that later text can still change. [`Merged`] divides the same number of
/// tokens again, which is enough in nearly all cases.
const UNCERTAIN_TOKENS: u64 = 8;

/// Counts the tokens of one text while the text grows.
#[derive(Clone, Debug)]
pub struct TextCounter {
    algorithm: Algorithm,
    /// Number of tokens in the text before the tail.
    final_tokens: u64,
    /// End of the text, without a final count. After a cut for a custom tokenizer, the tail begins with [`LEAD`].
    tail: Vec<u8>,
    /// The result of the last count of the tail.
    counted: TailCount,
    exact: bool,
}

/// How a text is divided and counted, which depends on the kind of tokenizer.
#[derive(Clone, Debug)]
enum Algorithm {
    /// A built-in encoding. `open` is the last piece of the text so far, usually a word. Later text can extend it.
    BuiltIn { encoding: Encoding, open: OpenPiece },
    /// A custom tokenizer. The tail starts at the last safe cut position. Without safe positions, the tail is the
    /// whole text.
    Custom { tokenizer: Arc<CustomTokenizer>, has_lead: bool },
}

impl TextCounter {
    pub const fn new(encoding: Encoding) -> Self {
        Self::with_algorithm(Algorithm::BuiltIn { encoding, open: OpenPiece::new() })
    }

    pub const fn custom(tokenizer: Arc<CustomTokenizer>) -> Self {
        Self::with_algorithm(Algorithm::Custom { tokenizer, has_lead: false })
    }

    const fn with_algorithm(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            final_tokens: 0,
            tail: Vec::new(),
            counted: TailCount::EMPTY,
            exact: true,
        }
    }

    /// Appends `delta` to the text.
    pub fn push(&mut self, delta: &str) {
        for now in split_delta(delta) {
            let from = self.tail.len();
            self.tail.extend_from_slice(now.as_bytes());
            match &self.algorithm {
                Algorithm::BuiltIn { .. } => self.count_final_pieces(),
                Algorithm::Custom { .. } => self.count_to_last_cut(from),
            }
            if self.tail.len() > MAX_TAIL_BYTES {
                self.count_and_free_tail();
            }
        }
    }

    /// Returns the number of tokens in the text so far. The next text can decrease the count by a few tokens: `'v` has
    /// two tokens, and `'ve` has one. In a tail (the text without a final count) of more than 256 bytes, up to an
    /// eighth may not be counted yet.
    pub fn count(&mut self) -> u64 {
        let (length, before) = (self.tail.len(), self.counted.length);
        if length <= MAX_RECOUNTED_BYTES || length >= before + before / RECOUNT_GROWTH_DIVISOR {
            return self.total();
        }
        self.final_tokens + self.counted.tokens
    }

    /// Returns the number of tokens in the text so far, including all of the tail. Intended for the end of the text,
    /// because counting a long tail is costly.
    pub fn total(&mut self) -> u64 {
        // A tail only grows between two counts. If its length is the same, the tail is the same.
        if self.tail.len() != self.counted.length {
            self.counted = self.count_tail();
        }
        self.final_tokens + self.counted.tokens
    }

    /// Returns the number of final tokens, which later text cannot change. This number never decreases.
    pub const fn final_tokens(&self) -> u64 {
        self.final_tokens
    }

    /// Returns the number of tokens that later text probably does not change. A later total is lower only in rare long
    /// runs.
    ///
    /// The number includes at least one token of the tail (the text without a final count), and all except the last few
    /// tokens of a long tail.
    pub fn stable_tokens(&mut self) -> u64 {
        let tail = self.count().saturating_sub(self.final_tokens);
        self.final_tokens + tail.min(tail.saturating_sub(UNCERTAIN_TOKENS).max(1))
    }

    /// Returns whether the count is exact. The count is an estimate if the text was cut at an unsafe position or
    /// contains characters without a token.
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// Returns the memory that the tail uses, in bytes.
    pub const fn tail_capacity(&self) -> usize {
        self.tail.capacity()
    }

    /// Counts the rest of the text as if the text ended here, and frees its memory.
    pub fn count_and_free_tail(&mut self) {
        let was_empty = self.tail.is_empty();
        self.final_tokens = self.total();
        self.exact &= was_empty;
        self.tail = Vec::new();
        self.counted = TailCount::EMPTY;
        match &mut self.algorithm {
            Algorithm::BuiltIn { open, .. } => *open = OpenPiece::new(),
            Algorithm::Custom { .. } if was_empty => {}
            Algorithm::Custom { .. } => self.begin_with_lead(0),
        }
    }

    /// Counts the pieces that later text cannot change, and removes these pieces from the start of the tail.
    fn count_final_pieces(&mut self) {
        let Self {
            algorithm: Algorithm::BuiltIn { encoding, open },
            final_tokens,
            tail,
            counted,
            ..
        } = self
        else {
            return;
        };
        let tables = encoding.tables();
        let mut start = 0;
        while let Some(rest) = tail.get(start..)
            && let Some(end) = open.read_on(&tables.splitter, rest)
            && let Some(piece) = rest.get(..end)
        {
            let before = if start == 0 { counted.first } else { Merged::EMPTY };
            *final_tokens += merge(&tables.vocabulary, piece, before).tokens();
            start += end;
        }
        if start > 0 {
            tail.drain(..start);
            self.counted = TailCount::EMPTY;
            self.shrink_tail();
        }
    }

    /// Counts the text before the last safe cut position after `from`, and removes this text from the tail.
    fn count_to_last_cut(&mut self, from: usize) {
        let Algorithm::Custom { tokenizer, .. } = &self.algorithm else { return };
        let text = std::str::from_utf8(&self.tail).unwrap_or_default();
        let place = tokenizer.cuts().last(text, from).filter(|place| *place > LEAD.len());
        let Some(place) = place else { return };
        // If each delta is one word, the text before `place` was counted by the previous query.
        self.final_tokens += if self.counted.length == place {
            self.counted.tokens
        } else {
            self.custom_tokens_before(place)
        };
        self.begin_with_lead(place);
        self.shrink_tail();
    }

    /// Replaces the first `bytes` bytes of the tail with the prefix [`LEAD`].
    fn begin_with_lead(&mut self, bytes: usize) {
        drop(self.tail.splice(..bytes, LEAD.bytes()));
        self.counted = TailCount { length: LEAD.len(), ..TailCount::EMPTY };
        if let Algorithm::Custom { has_lead, .. } = &mut self.algorithm {
            *has_lead = true;
        }
    }

    fn shrink_tail(&mut self) {
        if self.tail.capacity() > SHRUNK_TAIL_CAPACITY && self.tail.len() <= SHRUNK_TAIL_CAPACITY {
            self.tail.shrink_to(SHRUNK_TAIL_CAPACITY);
        }
    }

    /// Counts the tail as if the text ended here.
    fn count_tail(&mut self) -> TailCount {
        let length = self.tail.len();
        let (encoding, first_length) = match &self.algorithm {
            Algorithm::BuiltIn { encoding, open } => (encoding, open.end_if_text_ends(&self.tail)),
            Algorithm::Custom { .. } => {
                let tokens = self.custom_tokens_before(length);
                return TailCount { length, tokens, first: Merged::EMPTY };
            }
        };
        let Some((first, rest)) =
            self.tail.split_at_checked(first_length).filter(|(first, _)| !first.is_empty())
        else {
            return TailCount::EMPTY;
        };
        let first = merge(&encoding.tables().vocabulary, first, self.counted.first);
        // In the existing encodings, at most one more piece follows.
        TailCount { length, tokens: first.tokens() + encoding.count_bytes(rest), first }
    }

    fn custom_tokens_before(&mut self, place: usize) -> u64 {
        let Algorithm::Custom { tokenizer, has_lead } = &self.algorithm else { return 0 };
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

/// Divides `piece` into tokens. If `before` is the result of a shorter prefix of `piece`, the division continues from
/// this result.
fn merge(vocabulary: &Vocabulary, piece: &[u8], before: Merged) -> Merged {
    match before.length().cmp(&piece.len()) {
        // If each delta is one token, the previous query counted the piece just before this delta made it final.
        Ordering::Equal => before,
        Ordering::Less => vocabulary.merge(piece, before),
        Ordering::Greater => vocabulary.merge(piece, Merged::EMPTY),
    }
}

/// Result of counting the tail. The first piece has its own result, because usually this piece grows or is completed
/// next.
#[derive(Clone, Copy, Debug)]
struct TailCount {
    length: usize,
    tokens: u64,
    first: Merged,
}

impl TailCount {
    const EMPTY: Self = Self { length: 0, tokens: 0, first: Merged::EMPTY };
}

/// Divides `delta` into parts of whole characters, which are processed one after the other.
fn split_delta(delta: &str) -> impl Iterator<Item = &str> {
    let mut rest = delta;
    std::iter::from_fn(move || {
        let mut end = rest.len().min(STEP_BYTES);
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
    fn an_endless_run_takes_bounded_memory_and_one_or_two_tokens_per_cut() {
        for run in ["=", "中A"] {
            let text = run.repeat(300 * 1024 / run.len());
            let mut encoder = TextCounter::new(Encoding::Cl100k);
            for _ in 0..text.len() / run.len() / 64 {
                encoder.push(&run.repeat(64));
                assert!(encoder.tail.len() <= MAX_TAIL_BYTES);
            }
            let cuts = (text.len() / MAX_TAIL_BYTES) as u64;
            let off = encoder.total().abs_diff(Encoding::Cl100k.count(&text));
            assert!(off <= 2 * cuts, "{off} off in {cuts} cuts");
            assert!(encoder.final_tokens() > 0);
            assert!(!encoder.is_exact());
        }
    }

    #[test]
    fn a_delta_of_any_size_leaves_only_the_open_piece() {
        let mut encoder = TextCounter::new(Encoding::O200k);
        encoder.push(&"All work and no play. ".repeat(10_000));
        assert_eq!(encoder.tail, b" ");
        encoder.push(&"x".repeat(20_000));
        assert!(encoder.tail.capacity() >= 20_000);
        encoder.push(" y");
        assert!(encoder.tail_capacity() <= SHRUNK_TAIL_CAPACITY);
        assert!(encoder.is_exact());
    }

    #[test]
    fn long_deltas_are_divided_between_characters() {
        let text = "a".to_owned() + &"é".repeat(STEP_BYTES);
        let parts: Vec<&str> = split_delta(&text).collect();
        assert_eq!(parts[0].len(), STEP_BYTES - 1);
        assert_eq!(parts.concat(), text);
        assert_eq!(split_delta("").count(), 0);
    }
}
