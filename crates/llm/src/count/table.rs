//! The vocabulary of an encoding, which maps the bytes of each token to its number (the rank).

use super::layout::{self, Slot};

/// The tokens of an encoding and their ranks.
#[derive(Clone, Debug)]
pub struct Vocabulary {
    /// All tokens, concatenated in the order of ranks.
    bytes: Vec<u8>,
    /// The end of each token in `bytes`.
    ends: Vec<u32>,
    /// A hash table with open addressing.
    slots: Vec<Slot>,
    /// The rank + 1 of each pair of bytes. 0 marks a pair that is not a token.
    pairs: Vec<u32>,
}

impl Vocabulary {
    /// Creates a vocabulary. `bytes` contains all tokens in the order of ranks, and `lengths` contains their lengths.
    /// The length 0 marks a rank that never occurs in text.
    pub fn new(bytes: Vec<u8>, lengths: &[u8]) -> Self {
        // At least half of the slots stay empty. The most frequent search in a merge is for bytes that are not a token.
        // It then ends after one or two slots.
        let mut slots = vec![Slot::EMPTY; 2 * lengths.len()];
        let mut pairs = vec![0; layout::PAIRS];
        let mut ends = Vec::with_capacity(lengths.len());
        let (mut end, mut rest) = (0, bytes.as_slice());
        for (rank, length) in (0..Slot::MAX_RANKS).zip(lengths) {
            let (token, later) = rest.split_at_checked(usize::from(*length)).unwrap_or_default();
            (end, rest) = (end + u32::from(*length), later);
            ends.push(end);
            match token {
                [] => {}
                [first, second] => set(pairs.get_mut(layout::pair(*first, *second)), rank + 1),
                _ => set(
                    empty_slot_mut(&mut slots, layout::hash(token)),
                    Slot::new(layout::hash(token), rank),
                ),
            }
        }
        Self { bytes, ends, slots, pairs }
    }

    /// Returns the rank of the token with these bytes, or `None` if no token has these bytes. Tokens of a lower rank
    /// are formed first.
    #[inline]
    pub fn rank(&self, bytes: &[u8]) -> Option<u32> {
        match bytes {
            [first, second] => self.rank_of_pair(*first, *second),
            _ => self.find(bytes),
        }
    }

    #[inline]
    fn rank_of_pair(&self, first: u8, second: u8) -> Option<u32> {
        self.pairs.get(layout::pair(first, second))?.checked_sub(1)
    }

    fn find(&self, bytes: &[u8]) -> Option<u32> {
        let hash = layout::hash(bytes);
        let mut at = first_slot(hash, self.slots.len());
        // The loop ends, because at least half of the slots are empty.
        loop {
            let slot = *self.slots.get(at)?;
            let rank = slot.rank()?;
            if slot.may_hold(hash) && self.token(rank).is_some_and(|token| are_equal(token, bytes))
            {
                return Some(rank);
            }
            at = if at + 1 < self.slots.len() { at + 1 } else { 0 };
        }
    }

    fn token(&self, rank: u32) -> Option<&[u8]> {
        let end_of = |rank: u32| Some(*self.ends.get(rank as usize)? as usize);
        let start = match rank.checked_sub(1) {
            Some(before) => end_of(before)?,
            None => 0,
        };
        self.bytes.get(start..end_of(rank)?)
    }
}

/// Returns an empty slot for a new token with this hash.
fn empty_slot_mut(slots: &mut [Slot], hash: u64) -> Option<&mut Slot> {
    let (before, from) = slots.split_at_mut(first_slot(hash, slots.len()));
    let mut places = from.iter_mut().chain(before);
    places.find(|slot| **slot == Slot::EMPTY)
}

fn set<T>(place: Option<&mut T>, value: T) {
    if let Some(place) = place {
        *place = value;
    }
}

/// Returns the index of the first slot to search for this hash: the lower half of the hash as a fraction of 2³², times
/// the number of slots.
#[inline]
const fn first_slot(hash: u64, places: usize) -> usize {
    (((hash & 0xFFFF_FFFF) * places as u64) >> 32) as usize
}

/// Returns whether two texts are equal. Short texts are compared as two overlapping words, because this is faster than
/// a library call.
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
    fn every_token_has_the_rank_of_tiktoken() {
        for (encoding, size) in [
            (Encoding::O200k, 199_998),
            (Encoding::Cl100k, 100_256),
            (Encoding::P50k, 50_281),
            (Encoding::R50k, 50_256),
        ] {
            let vocabulary = &encoding.tables().vocabulary;
            for rank in (0..size).filter(|rank| (encoding, *rank) != END_OF_TEXT) {
                let token = oracle(encoding).decode_bytes(&[rank]).unwrap();
                assert_eq!(vocabulary.rank(&token), Some(rank));
                assert_eq!(vocabulary.token(rank), Some(token.as_slice()));
            }
            assert_eq!(vocabulary.token(size), None);
        }
    }

    /// A special token in the middle of the ranks. All other special tokens come after the ordinary tokens.
    const END_OF_TEXT: (Encoding, u32) = (Encoding::P50k, 50_256);

    #[test]
    fn special_tokens_and_p50k_blanks_in_r50k_have_no_rank() {
        for encoding in Encoding::ALL {
            assert_eq!(encoding.tables().vocabulary.rank(b"<|endoftext|>"), None);
            assert_eq!(encoding.tables().vocabulary.rank(b""), None);
        }
        assert_eq!(Encoding::P50k.tables().vocabulary.rank(b"   "), Some(50_258));
        assert_eq!(Encoding::R50k.tables().vocabulary.rank(b"   "), None);
    }

    #[test]
    fn other_texts_have_no_rank() {
        for encoding in Encoding::ALL {
            for bytes in [&b""[..], b"tokengauge", &[0xFF, 0xFE], &[b'q'; 200]] {
                assert_eq!(encoding.tables().vocabulary.rank(bytes), None);
            }
        }
    }

    #[test]
    fn texts_are_equal_if_every_byte_is() {
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
