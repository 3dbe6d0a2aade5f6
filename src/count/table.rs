//! The vocabulary of an encoding: from bytes to rank, read in place.

use super::layout::{self, Slot};
use super::merge;

/// Tokens of an encoding and their ranks. `build/vocabulary.rs` writes it.
#[derive(Debug)]
pub struct Vocabulary {
    /// All tokens one after another, by rank.
    bytes: &'static [u8],
    /// Where each ends in `bytes`.
    ends: &'static [[u8; 4]],
    /// A hash table, open addressing, of a power of two places.
    slots: &'static [[u8; 4]],
}

impl Vocabulary {
    pub const fn new(bytes: &'static [u8], ends: &'static [u8], slots: &'static [u8]) -> Self {
        Self {
            bytes,
            ends: ends.as_chunks().0,
            slots: slots.as_chunks().0,
        }
    }

    /// How many tokens a piece has.
    pub fn count(&self, piece: &[u8]) -> u64 {
        #[cfg(test)]
        super::tests::work::add(piece.len());
        // Nine of ten pieces of English text are tokens themselves.
        if self.rank(piece).is_some() {
            1
        } else {
            merge::count(self, piece)
        }
    }

    /// The rank of the token with these bytes: the lower, the earlier it is merged.
    #[inline]
    pub fn rank(&self, bytes: &[u8]) -> Option<u32> {
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
            if slot.may_hold(hash) && self.token(rank) == Some(bytes) {
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

#[cfg(test)]
mod tests {
    use super::super::Encoding;

    #[test]
    fn every_token_has_the_rank_that_tiktoken_gives_it() {
        for (encoding, oracle, size) in [
            (
                Encoding::O200k,
                tiktoken_rs::o200k_base_singleton(),
                199_998,
            ),
            (
                Encoding::Cl100k,
                tiktoken_rs::cl100k_base_singleton(),
                100_256,
            ),
        ] {
            for rank in 0..size {
                let token = oracle.decode_bytes(&[rank]).unwrap();
                assert_eq!(encoding.vocabulary().rank(&token), Some(rank));
                assert_eq!(encoding.vocabulary().token(rank), Some(token.as_slice()));
            }
            assert_eq!(encoding.vocabulary().token(size), None);
        }
    }

    #[test]
    fn what_is_not_a_token_has_no_rank() {
        for encoding in Encoding::ALL {
            for bytes in [&b""[..], b"tokengauge", &[0xFF, 0xFE], &[b'q'; 200]] {
                assert_eq!(encoding.vocabulary().rank(bytes), None);
            }
        }
    }
}
