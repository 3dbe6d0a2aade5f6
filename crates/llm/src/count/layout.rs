//! Defines the format of the packed encodings and their tables, which the build script writes and the program reads.

use std::io;

/// An encoding as it is stored in the program, at a third of its size. Data that can be computed quickly is left out,
/// such as the hash table.
#[derive(Debug, Default, PartialEq)]
pub struct Packed {
    /// Length of each token in bytes, in the order of ranks (token numbers). 0 marks a rank that never occurs in text.
    pub lengths: Vec<u8>,
    /// All tokens, concatenated.
    pub tokens: Vec<u8>,
    /// The class of each byte.
    pub classes: Vec<u8>,
    /// Table of the split automaton. Each state has a row of [`ROW_STEPS`] steps, one per class of bytes.
    pub steps: Vec<u8>,
}

impl Packed {
    /// Writes all parts. The length of each part precedes it, in bytes. Numbers are little-endian.
    pub fn write(&self, to: &mut impl io::Write) -> io::Result<()> {
        for part in [&self.lengths, &self.tokens, &self.classes, &self.steps] {
            to.write_all(&(part.len() as u64).to_le_bytes())?;
            to.write_all(part)?;
        }
        Ok(())
    }

    pub fn read(from: &mut impl io::Read) -> io::Result<Self> {
        let mut part = || -> io::Result<Vec<u8>> {
            let mut length = [0; 8];
            from.read_exact(&mut length)?;
            let length = usize::try_from(u64::from_le_bytes(length)).map_err(io::Error::other)?;
            let mut part = vec![0; length];
            from.read_exact(&mut part)?;
            Ok(part)
        };
        Ok(Self { lengths: part()?, tokens: part()?, classes: part()?, steps: part()? })
    }
}

/// Number of steps in a row of the split automaton: a power of two, so that an index needs no multiplication. The
/// encodings have up to 126 classes of bytes.
pub const ROW_STEPS: usize = 128;

/// One step of the split automaton, in 16 bits. A step contains the number of the next state, and flags about the text
/// since the start of the piece.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Step(u16);

impl Step {
    /// The start state, which has number 1. No byte of the piece was read yet. State 0 means that the piece cannot
    /// become longer.
    pub const START: Self = Self(1 << Self::STATE_SHIFT);
    /// Replaces a missing step. It ends every piece.
    pub const MISSING: Self = Self(u16::MAX);
    /// Flag: the text read so far can be a piece.
    pub const ACCEPTS: u16 = 1;
    /// Flag: the last character is not part of the piece but begins the next piece. The pattern `\s+(?!\S)` requires
    /// this before a visible character.
    pub const DROPS_LAST: u16 = 1 << 1;
    /// Flag: later text cannot change the length of the piece.
    pub const IS_FINAL: u16 = 1 << 2;
    /// Flag: if the text ends here, the whole text read so far is the piece.
    pub const ACCEPTS_AT_END: u16 = 1 << 3;

    const STATE_SHIFT: u32 = 4;
    /// Maximum number of states, which must fit into 12 bits. The largest automaton has 2,100 states before equal rows are merged.
    pub const MAX_STATES: u16 = 1 << (u16::BITS - Self::STATE_SHIFT);

    /// Creates a step. `state` must be less than [`Self::MAX_STATES`].
    pub const fn new(state: u16, flags: u16) -> Self {
        Self(state << Self::STATE_SHIFT | flags)
    }

    pub const fn from_bytes(bytes: [u8; 2]) -> Self {
        Self(u16::from_le_bytes(bytes))
    }

    pub const fn to_bytes(self) -> [u8; 2] {
        self.0.to_le_bytes()
    }

    pub const fn state(self) -> u16 {
        self.0 >> Self::STATE_SHIFT
    }

    /// Returns the step with the same flags to another state.
    pub const fn with_state(self, state: u16) -> Self {
        Self::new(state, self.0 & ((1 << Self::STATE_SHIFT) - 1))
    }

    pub const fn has_flag(self, flag: u16) -> bool {
        self.0 & flag != 0
    }
}

/// One slot of the hash table that maps the bytes of a token to its rank (the token number). The slot contains rank + 1
/// and a tag, which is a part of the hash. An empty slot is 0. A token with another tag needs no comparison of bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Slot(u32);

impl Slot {
    pub const EMPTY: Self = Self(0);
    /// Number of bits for a rank. The largest vocabulary has 199,998 ranks.
    const RANK_BITS: u32 = 18;
    pub const MAX_RANKS: u32 = (1 << Self::RANK_BITS) - 1;

    /// Creates a slot. `rank` must be less than [`Self::MAX_RANKS`].
    pub const fn new(hash: u64, rank: u32) -> Self {
        Self(Self::tag(hash) | (rank + 1))
    }

    /// Returns the rank in this slot. Returns `None` for an empty slot.
    pub const fn rank(self) -> Option<u32> {
        (self.0 & Self::MAX_RANKS).checked_sub(1)
    }

    pub const fn may_hold(self, hash: u64) -> bool {
        self.0 & !Self::MAX_RANKS == Self::tag(hash)
    }

    /// Returns the tag of a hash: its highest bits. The lower half of the hash selects the slot.
    const fn tag(hash: u64) -> u32 {
        (hash >> 32) as u32 & !Self::MAX_RANKS
    }
}

/// Number of entries in the table of byte pairs. At the start of a merge, all pairs of adjacent bytes are looked up in
/// this table, because it is faster than the hash table. An entry is the rank + 1, or 0 for a pair that is not a
/// token.
pub const PAIRS: usize = 1 << 16;

/// Returns the index of a pair in the table of pairs.
pub const fn pair(first: u8, second: u8) -> usize {
    u16::from_be_bytes([first, second]) as usize
}

/// Hashes the bytes of a token. A token has 6 bytes on average, so short tokens are read as two overlapping words.
pub fn hash(bytes: &[u8]) -> u64 {
    let length = bytes.len() as u64;
    if let (Some(head), Some(tail)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>())
        && length <= 8
    {
        let word =
            u64::from(u32::from_le_bytes(*head)) << 32 | u64::from(u32::from_le_bytes(*tail));
        return mix(word, length);
    }
    let Some(tail) = bytes.last_chunk::<8>() else {
        let word = bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        return mix(word, length);
    };
    let (words, _) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(length, |hash, word| mix(u64::from_le_bytes(*word), hash));
    mix(u64::from_le_bytes(*tail), hash)
}

/// Multiplies two words and combines both halves of the product, so that every input bit affects every output bit. The
/// constants are the first bits of π and e.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the half that is cut off is the other operand"
)]
const fn mix(word: u64, seed: u64) -> u64 {
    let product = (word ^ 0x2432_F6A8_885A_308D) as u128 * (seed ^ 0xADF8_5458_A2BB_4A9A) as u128;
    (product >> 64) as u64 ^ product as u64
}
