//! Byte pair encoding inside one piece: of all neighbours whose joined bytes are a token, join those of the lowest rank
//! (the leftmost of equals), until there are none. What remains are the tokens; only their number is wanted here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::table::Vocabulary;

/// Up to this length looking through all parts for the lowest rank is quicker than keeping them in a heap; pieces of
/// Chinese and Japanese prose are hardly longer.
const SHORT: usize = 128;

/// The rank of neighbours that make no token: above all others.
const NEVER: u32 = u32::MAX;

/// How many tokens `piece` has.
pub fn count(vocabulary: &Vocabulary, piece: &[u8]) -> u64 {
    let parts = if piece.len() <= SHORT {
        Row::new(vocabulary, piece).merge()
    } else {
        Chain::new(vocabulary, piece).merge()
    };
    parts as u64
}

/// The parts of a short piece: a linked list in arrays, by start.
struct Row<'a> {
    vocabulary: &'a Vocabulary,
    piece: &'a [u8],
    /// The rank of each part joined with the next, above its own start: the least is the leftmost of the lowest.
    keys: [u32; SHORT],
    /// Start of the part before; of no meaning for the first.
    befores: [u8; SHORT],
    /// End of each part, which is the start of the next.
    ends: [u8; SHORT],
}

impl<'a> Row<'a> {
    fn new(vocabulary: &'a Vocabulary, piece: &'a [u8]) -> Self {
        let mut row = Self {
            vocabulary,
            piece,
            keys: [NEVER; SHORT],
            befores: [0; SHORT],
            ends: [0; SHORT],
        };
        for (before, start) in row.befores.iter_mut().skip(1).zip(0..) {
            *before = start;
        }
        for (end, number) in row.ends.iter_mut().zip(1..) {
            *end = number;
        }
        for ((key, pair), start) in row.keys.iter_mut().zip(piece.windows(2)).zip(0..) {
            *key = Self::key(vocabulary, pair, start);
        }
        row
    }

    fn merge(mut self) -> usize {
        let mut count = self.piece.len();
        while let Some(start) = self.lowest() {
            if self.join(start).is_none() {
                break;
            }
            count -= 1;
        }
        count
    }

    /// The start of the part to be joined with the next.
    fn lowest(&self) -> Option<u8> {
        let keys = self.keys.get(..self.piece.len())?;
        let key = keys.iter().copied().min().filter(|key| *key != NEVER)?;
        let [start, ..] = key.to_le_bytes();
        Some(start)
    }

    /// Joins the part at `start` with the next. `None` is never met: parts that have a rank have a next.
    fn join(&mut self, start: u8) -> Option<()> {
        let next = self.end(start)?;
        let end = self.end(next)?;
        *self.keys.get_mut(usize::from(next))? = NEVER;
        *self.ends.get_mut(usize::from(start))? = end;
        if let Some(before) = self.befores.get_mut(usize::from(end)) {
            *before = start;
        }
        self.rank_again(start)?;
        if start > 0 {
            self.rank_again(*self.befores.get(usize::from(start))?)?;
        }
        Some(())
    }

    fn rank_again(&mut self, start: u8) -> Option<()> {
        let key = self
            .end(start)
            .and_then(|next| self.end(next))
            .and_then(|end| self.piece.get(usize::from(start)..usize::from(end)))
            .map_or(NEVER, |bytes| Self::key(self.vocabulary, bytes, start));
        *self.keys.get_mut(usize::from(start))? = key;
        Some(())
    }

    fn end(&self, start: u8) -> Option<u8> {
        self.ends.get(usize::from(start)).copied()
    }

    fn key(vocabulary: &Vocabulary, bytes: &[u8], start: u8) -> u32 {
        vocabulary
            .rank(bytes)
            .map_or(NEVER, |rank| rank << u8::BITS | u32::from(start))
    }
}

/// The parts of a long piece as a linked list in one vector, and a heap of their ranks: n log n for a run of any length.
struct Chain<'a> {
    vocabulary: &'a Vocabulary,
    piece: &'a [u8],
    /// By start.
    parts: Vec<Part>,
    /// Rank and start. Outdated entries stay and are passed over.
    heap: BinaryHeap<Reverse<(u32, usize)>>,
}

#[derive(Clone, Copy)]
struct Part {
    /// Start of the part before; of no meaning for the first.
    before: usize,
    /// End of this one, which is the start of the next.
    end: usize,
    /// The rank of this part joined with the next; `NEVER` too where this part was itself joined with the one before.
    rank: u32,
}

impl<'a> Chain<'a> {
    fn new(vocabulary: &'a Vocabulary, piece: &'a [u8]) -> Self {
        let parts: Vec<Part> = (0..piece.len())
            .map(|start| Part {
                before: start.saturating_sub(1),
                end: start + 1,
                rank: piece
                    .get(start..start + 2)
                    .and_then(|pair| vocabulary.rank(pair))
                    .unwrap_or(NEVER),
            })
            .collect();
        let heap = parts
            .iter()
            .zip(0..)
            .filter(|(part, _)| part.rank != NEVER)
            .map(|(part, start)| Reverse((part.rank, start)))
            .collect();
        Self {
            vocabulary,
            piece,
            parts,
            heap,
        }
    }

    fn merge(mut self) -> usize {
        let mut count = self.parts.len();
        while let Some(Reverse((rank, start))) = self.heap.pop() {
            if self.parts.get(start).is_some_and(|part| part.rank == rank)
                && self.join(start).is_some()
            {
                count -= 1;
            }
        }
        count
    }

    /// Joins the part at `start` with the next. `None` is never met: parts that have a rank have a next.
    fn join(&mut self, start: usize) -> Option<()> {
        let next = self.parts.get(start)?.end;
        let joined = self.parts.get_mut(next)?;
        joined.rank = NEVER;
        let end = joined.end;
        if let Some(after) = self.parts.get_mut(end) {
            after.before = start;
        }
        let part = self.parts.get_mut(start)?;
        part.end = end;
        let before = part.before;
        self.rank_again(start);
        if start > 0 {
            self.rank_again(before);
        }
        Some(())
    }

    fn rank_again(&mut self, start: usize) {
        let end_of = |start: usize| self.parts.get(start).map(|part| part.end);
        let rank = end_of(start)
            .and_then(end_of)
            .and_then(|end| self.piece.get(start..end))
            .and_then(|bytes| self.vocabulary.rank(bytes))
            .unwrap_or(NEVER);
        if let Some(part) = self.parts.get_mut(start) {
            part.rank = rank;
        }
        if rank != NEVER {
            self.heap.push(Reverse((rank, start)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::Encoding;

    #[test]
    fn the_heap_counts_what_the_row_counts() {
        let letters = ["a", "e", "中", "=", " ", "\u{300}", "lo", "é"];
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let length = random.usize(1..40);
            let piece: String = (0..length)
                .map(|_| letters[random.usize(..letters.len())])
                .collect();
            let piece = piece.as_bytes();
            for vocabulary in Encoding::ALL.map(Encoding::vocabulary) {
                assert_eq!(
                    Chain::new(vocabulary, piece).merge(),
                    Row::new(vocabulary, piece).merge()
                );
            }
        }
    }
}
