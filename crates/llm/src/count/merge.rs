//! Divides one piece of text into tokens by byte pair encoding, and returns the lengths of the tokens.
//!
//! At first, each byte is a part. The algorithm repeatedly joins two neighbouring parts that form a token. It selects
//! the pair whose token has the lowest rank, and the leftmost of equal pairs. If no pair forms a token, the parts are
//! the tokens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::table::Vocabulary;

/// Maximum length of a piece, in bytes, for a linear search of the lowest rank. For longer pieces, a heap is faster.
/// Pieces of Chinese and Japanese text are rarely longer.
const MAX_LINEAR_BYTES: usize = 128;

/// Key of two neighbours that form no token, higher than all other keys. Keys are signed, because x86-64 without
/// extensions compares several numbers at once only if they are signed.
const NO_TOKEN: i32 = i32::MAX;

/// The result of merging a piece, from which the merge can be resumed when the piece grows.
///
/// A sequence of tokens is the result of a merge exactly if every two adjacent tokens are the result of merging their
/// bytes. When bytes are added, it therefore suffices to merge the last few tokens again, together with the new bytes.
/// If this leaves the first of these tokens unchanged, the tokens before it are unchanged, too. This is nearly always
/// the case. Otherwise, more tokens are merged again.
#[derive(Clone, Copy, Debug)]
pub struct Merged {
    /// Length of the piece, in bytes.
    length: usize,
    tokens: u64,
    /// Lengths of the last eight tokens, one byte each. The lowest byte is for the last token. 0 marks an unknown
    /// length.
    last: u64,
}

/// Minimum length in bytes of a piece for which an earlier result is reused. A shorter piece is divided from the start,
/// which is as fast.
const MIN_RESUMED_BYTES: usize = 8;

/// Number of tokens that each attempt merges again, in the order of the attempts.
const REMERGED_TOKENS: [u32; 3] = [2, 4, 8];

impl Vocabulary {
    /// Divides `piece` into tokens. Continues from `before`, the result for a prefix of the piece.
    pub fn merge(&self, piece: &[u8], before: Merged) -> Merged {
        // In English text, nine of ten pieces are a single token.
        if self.rank(piece).is_some() {
            let mut whole = Merged::EMPTY;
            whole.add(piece.len());
            whole
        } else {
            before.extend_to(self, piece)
        }
    }

    /// Returns the number of tokens in `piece`.
    pub fn count(&self, piece: &[u8]) -> u64 {
        self.merge(piece, Merged::EMPTY).tokens()
    }
}

impl Merged {
    pub const EMPTY: Self = Self { length: 0, tokens: 0, last: 0 };

    pub const fn length(&self) -> usize {
        self.length
    }

    pub const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Returns the result for `piece`. `self` is the result for a prefix of the piece.
    pub fn extend_to(self, vocabulary: &Vocabulary, piece: &[u8]) -> Self {
        let again = |last: &u32| self.merge_last_tokens(*last, vocabulary, piece);
        let resumed =
            (self.length >= MIN_RESUMED_BYTES).then(|| REMERGED_TOKENS.iter().find_map(again));
        resumed.flatten().unwrap_or_else(|| {
            let mut merged = Self::EMPTY;
            for_each_token(vocabulary, piece, |length| merged.add(length));
            merged
        })
    }

    /// Divides the last `last` tokens again, together with the new bytes of `piece`. Returns `None` if the first of
    /// these tokens changes, or if too few token lengths are known.
    fn merge_last_tokens(
        mut self,
        last: u32,
        vocabulary: &Vocabulary,
        piece: &[u8],
    ) -> Option<Self> {
        let mut first_was = 0;
        for _ in 0..last {
            first_was = usize::from(self.remove_last_token()?);
        }
        let all = self.length == 0;
        let mut first_is = None;
        for_each_token(vocabulary, piece.get(self.length..)?, |length| {
            first_is.get_or_insert(length);
            self.add(length);
        });
        (all || first_is == Some(first_was)).then_some(self)
    }

    /// Removes the last token and returns its length.
    fn remove_last_token(&mut self) -> Option<u8> {
        let [length, ..] = self.last.to_le_bytes();
        self.last >>= u8::BITS;
        self.length -= usize::from(length);
        self.tokens = self.tokens.checked_sub(1)?;
        (length > 0).then_some(length)
    }

    /// Appends a token of `length` bytes. A token of 256 or more bytes, which no vocabulary has, would prevent a
    /// continuation.
    pub fn add(&mut self, length: usize) {
        self.length += length;
        self.tokens += 1;
        self.last = self.last << u8::BITS | u64::from(u8::try_from(length).unwrap_or(0));
    }
}

/// Divides `piece` into tokens, and calls `out` with the length of each token.
fn for_each_token(vocabulary: &Vocabulary, piece: &[u8], out: impl FnMut(usize)) {
    #[cfg(test)]
    super::tests::work::add(piece.len());
    if piece.len() <= MAX_LINEAR_BYTES {
        let mut row = LinearMerge::new(vocabulary, piece);
        row.merge();
        row.for_each_length(out);
    } else {
        let mut chain = HeapMerge::new(vocabulary, piece);
        chain.merge();
        chain.for_each_length(out);
    }
}

/// Merges a short piece. The parts form a linked list in arrays. A part's index is its start.
struct LinearMerge<'a> {
    vocabulary: &'a Vocabulary,
    piece: &'a [u8],
    /// One key for each part, which describes the pair of this part and the next one. The upper bits contain the rank
    /// of the token that the pair would form, and the lower bits the start of the part. The pair to merge next has the
    /// lowest key: the lowest rank, and the leftmost pair among equal ranks.
    keys: [i32; MAX_LINEAR_BYTES],
    /// Start of the preceding part. Undefined for the first part.
    preceding: [u8; MAX_LINEAR_BYTES],
    /// End of each part. The next part starts there.
    ends: [u8; MAX_LINEAR_BYTES],
}

impl<'a> LinearMerge<'a> {
    /// Initial values of the arrays, when each byte is a part.
    const INITIAL_PRECEDING: [u8; MAX_LINEAR_BYTES] = shifted_indices(0, 1);
    const INITIAL_ENDS: [u8; MAX_LINEAR_BYTES] = shifted_indices(1, 0);

    fn new(vocabulary: &'a Vocabulary, piece: &'a [u8]) -> Self {
        let mut row = Self {
            vocabulary,
            piece,
            keys: [NO_TOKEN; MAX_LINEAR_BYTES],
            preceding: Self::INITIAL_PRECEDING,
            ends: Self::INITIAL_ENDS,
        };
        for ((key, pair), start) in row.keys.iter_mut().zip(piece.windows(2)).zip(0..) {
            *key = Self::key(vocabulary, pair, start);
        }
        row
    }

    fn merge(&mut self) {
        while let Some(start) = self.find_lowest_pair() {
            if self.join(start).is_none() {
                break;
            }
        }
    }

    fn for_each_length(&self, mut out: impl FnMut(usize)) {
        let mut start = 0;
        while usize::from(start) < self.piece.len()
            && let Some(end) = self.end(start)
        {
            out(usize::from(end - start));
            start = end;
        }
    }

    /// Returns the start of the part to join with the next part. Returns `None` if no two neighbours form a token.
    fn find_lowest_pair(&self) -> Option<u8> {
        let keys = self.keys.get(..self.piece.len())?;
        let key = keys.iter().copied().min().filter(|key| *key != NO_TOKEN)?;
        let [start, ..] = key.to_le_bytes();
        Some(start)
    }

    /// Joins the part at `start` with the next part. Always returns `Some`, because a part with a rank has a next part.
    fn join(&mut self, start: u8) -> Option<()> {
        let next = self.end(start)?;
        let end = self.end(next)?;
        *self.keys.get_mut(usize::from(next))? = NO_TOKEN;
        *self.ends.get_mut(usize::from(start))? = end;
        if let Some(before) = self.preceding.get_mut(usize::from(end)) {
            *before = start;
        }
        self.update_rank(start)?;
        if start > 0 {
            self.update_rank(*self.preceding.get(usize::from(start))?)?;
        }
        Some(())
    }

    fn update_rank(&mut self, start: u8) -> Option<()> {
        let key = self
            .end(start)
            .and_then(|next| self.end(next))
            .and_then(|end| self.piece.get(usize::from(start)..usize::from(end)))
            .map_or(NO_TOKEN, |bytes| Self::key(self.vocabulary, bytes, start));
        *self.keys.get_mut(usize::from(start))? = key;
        Some(())
    }

    fn end(&self, start: u8) -> Option<u8> {
        self.ends.get(usize::from(start)).copied()
    }

    fn key(vocabulary: &Vocabulary, bytes: &[u8], start: u8) -> i32 {
        let key = vocabulary.rank(bytes).map(|rank| rank << u8::BITS | u32::from(start));
        key.and_then(|key| key.try_into().ok()).unwrap_or(NO_TOKEN)
    }
}

/// Returns an array in which each element is its index, plus `ahead`, minus `behind`.
const fn shifted_indices(ahead: u8, behind: u8) -> [u8; MAX_LINEAR_BYTES] {
    let mut numbers = [0; MAX_LINEAR_BYTES];
    let mut rest: &mut [u8] = &mut numbers;
    let mut place = 0_u8;
    while let [number, later @ ..] = rest {
        *number = (place + ahead).saturating_sub(behind);
        place += 1;
        rest = later;
    }
    numbers
}

/// Merges a long piece of n bytes in O(n log n) time. The parts form a linked list in a vector, with a heap of ranks.
struct HeapMerge<'a> {
    vocabulary: &'a Vocabulary,
    piece: &'a [u8],
    /// The parts, indexed by start.
    parts: Vec<Part>,
    /// Rank and start of each pair that forms a token. Outdated entries remain in the heap and are skipped.
    heap: BinaryHeap<Reverse<(u32, usize)>>,
}

#[derive(Clone, Copy)]
struct Part {
    /// Start of the preceding part. Undefined for the first part.
    before: usize,
    /// End of this part. The next part starts there.
    end: usize,
    /// Rank of the token that this part and the next part form. `None` if they form no token, or if this part was
    /// joined with the preceding part.
    rank: Option<u32>,
}

impl<'a> HeapMerge<'a> {
    fn new(vocabulary: &'a Vocabulary, piece: &'a [u8]) -> Self {
        let parts: Vec<Part> = (0..piece.len())
            .map(|start| Part {
                before: start.saturating_sub(1),
                end: start + 1,
                rank: piece.get(start..start + 2).and_then(|pair| vocabulary.rank(pair)),
            })
            .collect();
        let heap = parts
            .iter()
            .zip(0..)
            .filter_map(|(part, start)| Some(Reverse((part.rank?, start))))
            .collect();
        Self { vocabulary, piece, parts, heap }
    }

    fn merge(&mut self) {
        while let Some(Reverse((rank, start))) = self.heap.pop() {
            if self.parts.get(start).is_some_and(|part| part.rank == Some(rank)) {
                self.join(start);
            }
        }
    }

    fn for_each_length(&self, mut out: impl FnMut(usize)) {
        let mut start = 0;
        while let Some(part) = self.parts.get(start) {
            out(part.end - start);
            start = part.end;
        }
    }

    /// Joins the part at `start` with the next part. Always returns `Some`, because a part with a rank has a next part.
    fn join(&mut self, start: usize) -> Option<()> {
        let next = self.parts.get(start)?.end;
        let joined = self.parts.get_mut(next)?;
        joined.rank = None;
        let end = joined.end;
        if let Some(after) = self.parts.get_mut(end) {
            after.before = start;
        }
        let part = self.parts.get_mut(start)?;
        part.end = end;
        let before = part.before;
        self.update_rank(start);
        if start > 0 {
            self.update_rank(before);
        }
        Some(())
    }

    fn update_rank(&mut self, start: usize) {
        let end_of = |start: usize| self.parts.get(start).map(|part| part.end);
        let rank = end_of(start)
            .and_then(end_of)
            .and_then(|end| self.piece.get(start..end))
            .and_then(|bytes| self.vocabulary.rank(bytes));
        if let Some(part) = self.parts.get_mut(start) {
            part.rank = rank;
        }
        if let Some(rank) = rank {
            self.heap.push(Reverse((rank, start)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Encoding;

    /// Generates pieces of a few letters in random order, so that possible merges overlap.
    fn pieces(seed: u64, longest: usize) -> impl Iterator<Item = String> {
        let letters = ["a", "e", "中", "=", " ", "\u{300}", "lo", "é", "好", "the", "A"];
        let mut random = fastrand::Rng::with_seed(seed);
        std::iter::repeat_with(move || {
            let length = random.usize(1..longest);
            let letter = |_| letters[random.usize(..letters.len())];
            (0..length).map(letter).collect()
        })
    }

    fn lengths(vocabulary: &Vocabulary, piece: &[u8]) -> Vec<usize> {
        let mut lengths = Vec::new();
        for_each_token(vocabulary, piece, |length| lengths.push(length));
        lengths
    }

    #[test]
    fn heap_and_linear_search_give_the_same_tokens() {
        for piece in pieces(7, 40).take(2_000) {
            let piece = piece.as_bytes();
            for vocabulary in Encoding::ALL.map(|encoding| &encoding.tables().vocabulary) {
                let mut long = Vec::new();
                let mut chain = HeapMerge::new(vocabulary, piece);
                chain.merge();
                chain.for_each_length(|length| long.push(length));
                assert_eq!(long, lengths(vocabulary, piece));
            }
        }
    }

    #[test]
    fn a_resumed_merge_equals_a_merge_from_the_start() {
        let mut random = fastrand::Rng::with_seed(8);
        for piece in pieces(9, 60).take(1_000) {
            let piece = piece.as_bytes();
            let step = random.usize(1..16);
            for vocabulary in Encoding::ALL.map(|encoding| &encoding.tables().vocabulary) {
                let mut merged = Merged::EMPTY;
                for end in (1..=piece.len()).step_by(step) {
                    let now = &piece[..end];
                    merged = merged.extend_to(vocabulary, now);
                    let lengths = lengths(vocabulary, now);
                    assert_eq!(merged.length(), end);
                    assert_eq!(merged.tokens(), lengths.len() as u64);
                    let last = merged.last.to_le_bytes();
                    let known = last.into_iter().map(usize::from).take_while(|n| *n > 0);
                    assert!(known.zip(lengths.iter().rev()).all(|(is, was)| is == *was));
                    assert!(last[0] > 0, "the last token is always known");
                }
            }
        }
    }
}
