//! The vocabulary of an encoding: from bytes to rank, read in place.

use super::layout::{self, Slot};
use super::merge::Merged;

/// Tokens of an encoding and their ranks. `build/vocabulary.rs` writes it.
#[derive(Clone, Copy, Debug)]
pub struct Vocabulary {
    /// All tokens one after another, by rank.
    bytes: &'static [u8],
    /// Where each ends in `bytes`.
    ends: &'static [[u8; 4]],
    /// A hash table, open addressing, of a power of two places.
    slots: &'static [[u8; 4]],
    /// By pair of bytes.
    pairs: &'static [[u8; 4]],
    /// Ranks from here on are not looked at.
    ranks: u32,
}

impl Vocabulary {
    pub const fn new(
        bytes: &'static [u8],
        ends: &'static [u8],
        slots: &'static [u8],
        pairs: &'static [u8],
    ) -> Self {
        Self {
            bytes,
            ends: ends.as_chunks().0,
            slots: slots.as_chunks().0,
            pairs: pairs.as_chunks().0,
            ranks: u32::MAX,
        }
    }

    /// The same tables without the tokens of rank `ranks` and higher.
    pub const fn below(self, ranks: u32) -> Self {
        Self { ranks, ..self }
    }

    /// The tokens of a piece, which begins with the bytes that were merged `before`.
    pub fn merge(&self, piece: &[u8], before: Merged) -> Merged {
        // Nine of ten pieces of English text are tokens themselves.
        if self.rank(piece).is_some() {
            let mut whole = Merged::NOTHING;
            whole.add(piece.len());
            whole
        } else {
            before.grown_to(self, piece)
        }
    }

    /// How many tokens a piece has.
    pub fn count(&self, piece: &[u8]) -> u64 {
        self.merge(piece, Merged::NOTHING).tokens()
    }

    /// The rank of the token with these bytes: the lower, the earlier it is merged.
    #[inline]
    pub fn rank(&self, bytes: &[u8]) -> Option<u32> {
        let rank = match bytes {
            [first, second] => self.rank_of_pair(*first, *second),
            _ => self.find(bytes),
        };
        rank.filter(|rank| *rank < self.ranks)
    }

    #[inline]
    fn rank_of_pair(&self, first: u8, second: u8) -> Option<u32> {
        let rank = self.pairs.get(layout::pair(first, second))?;
        u32::from_le_bytes(*rank).checked_sub(1)
    }

    fn find(&self, bytes: &[u8]) -> Option<u32> {
        let hash = layout::hash(bytes);
        let mask = self.slots.len() - 1;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the mask keeps fewer bits than a usize has"
        )]
        let mut at = hash as usize & mask;
        // Half of the places are empty, so this ends.
        loop {
            let slot = Slot::from_bytes(*self.slots.get(at)?);
            let rank = slot.rank()?;
            if slot.may_hold(hash)
                && self
                    .token(rank)
                    .is_some_and(|token| are_equal(token, bytes))
            {
                return Some(rank);
            }
            at = (at + 1) & mask;
        }
    }

    fn token(&self, rank: u32) -> Option<&'static [u8]> {
        let end_of = |rank: u32| {
            let end = *self.ends.get(rank as usize)?;
            Some(u32::from_le_bytes(end) as usize)
        };
        let start = match rank.checked_sub(1) {
            Some(before) => end_of(before)?,
            None => 0,
        };
        self.bytes.get(start..end_of(rank)?)
    }
}

/// Compares short texts in two overlapping words: calling the library for six bytes takes longer than comparing them.
#[inline]
fn are_equal(one: &[u8], two: &[u8]) -> bool {
    if one.len() != two.len() || one.len() > 16 {
        return one == two;
    }
    if let (Some(a), Some(b)) = (one.first_chunk::<8>(), two.first_chunk::<8>()) {
        return a == b && one.last_chunk::<8>() == two.last_chunk::<8>();
    }
    if let (Some(a), Some(b)) = (one.first_chunk::<4>(), two.first_chunk::<4>()) {
        return a == b && one.last_chunk::<4>() == two.last_chunk::<4>();
    }
    one.iter().eq(two)
}

#[cfg(test)]
mod tests {
    use super::super::Encoding;
    use super::super::tests::oracle;

    #[test]
    fn every_token_has_the_rank_that_tiktoken_gives_it() {
        for (encoding, size) in [
            (Encoding::O200k, 199_998),
            (Encoding::Cl100k, 100_256),
            (Encoding::P50k, 50_281),
            (Encoding::R50k, 50_256),
        ] {
            let vocabulary = encoding.vocabulary();
            for rank in (0..size).filter(|rank| (encoding, *rank) != END_OF_TEXT) {
                let token = oracle(encoding).decode_bytes(&[rank]).unwrap();
                assert_eq!(vocabulary.rank(&token), Some(rank));
                assert_eq!(vocabulary.token(rank), Some(token.as_slice()));
            }
            if encoding != Encoding::R50k {
                assert_eq!(vocabulary.token(size), None);
            }
        }
    }

    /// The one special token that has ordinary ones behind it.
    const END_OF_TEXT: (Encoding, u32) = (Encoding::P50k, 50_256);

    #[test]
    fn special_tokens_have_no_rank_and_r50k_has_none_of_the_blanks_of_p50k() {
        for encoding in Encoding::ALL {
            assert_eq!(encoding.vocabulary().rank(b"<|endoftext|>"), None);
            assert_eq!(encoding.vocabulary().rank(b""), None);
        }
        assert_eq!(Encoding::P50k.vocabulary().rank(b"   "), Some(50_258));
        assert_eq!(Encoding::R50k.vocabulary().rank(b"   "), None);
    }

    #[test]
    fn what_is_not_a_token_has_no_rank() {
        for encoding in Encoding::ALL {
            for bytes in [&b""[..], b"tokengauge", &[0xFF, 0xFE], &[b'q'; 200]] {
                assert_eq!(encoding.vocabulary().rank(bytes), None);
            }
        }
    }

    #[test]
    fn texts_are_equal_where_every_byte_is() {
        for length in 0..40 {
            let text: Vec<u8> = (0..length).collect();
            assert!(super::are_equal(&text, &text));
            assert!(!super::are_equal(&text, &[text.as_slice(), &[0]].concat()));
            for place in 0..text.len() {
                let mut other = text.clone();
                other[place] = 0xFF;
                assert!(!super::are_equal(&text, &other), "{length} {place}");
            }
        }
    }
}
