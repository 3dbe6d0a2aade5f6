//! Byte pair encoding inside one piece: of all neighbours whose joined bytes are a token, join those of the lowest rank
//! (the leftmost of equals), until there are none. What remains are the tokens; only their number is wanted here.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::table::Vocabulary;

/// Up to this length looking through all parts for the lowest rank is quicker than keeping them in a heap; the longest
/// piece in Chinese and Japanese prose measures 130 bytes.
const SHORT: usize = 128;

/// The rank of neighbours that make no token.
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

/// The parts of a short piece, side by side.
struct Row<'a> {
    vocabulary: &'a Vocabulary,
    piece: &'a [u8],
    parts: usize,
    /// Where each part starts, and behind the last one the end of the piece.
    starts: [usize; SHORT + 1],
    /// The rank of each part joined with the next.
    ranks: [u32; SHORT],
}

impl<'a> Row<'a> {
    fn new(vocabulary: &'a Vocabulary, piece: &'a [u8]) -> Self {
        let mut row = Self {
            vocabulary,
            piece,
            parts: piece.len(),
            starts: std::array::from_fn(|at| at),
            ranks: [NEVER; SHORT],
        };
        for (rank, pair) in row.ranks.iter_mut().zip(piece.windows(2)) {
            *rank = vocabulary.rank(pair).unwrap_or(NEVER);
        }
        row
    }

    fn merge(mut self) -> usize {
        while let Some(at) = self.lowest() {
            self.starts.copy_within(at + 2..=self.parts, at + 1);
            self.ranks.copy_within(at + 1..self.parts, at);
            self.parts -= 1;
            self.rank_again(at);
            if let Some(before) = at.checked_sub(1) {
                self.rank_again(before);
            }
        }
        self.parts
    }

    /// Which part is to be joined with the next.
    fn lowest(&self) -> Option<usize> {
        let ranks = self.ranks.get(..self.parts)?;
        // Two passes: the first compares eight ranks at a time.
        let lowest = ranks.iter().copied().min().filter(|rank| *rank != NEVER)?;
        ranks.iter().position(|rank| *rank == lowest)
    }

    fn rank_again(&mut self, at: usize) {
        let joined = match self.starts.get(at..).unwrap_or_default() {
            [start, _, end, ..] if at + 1 < self.parts => self.piece.get(*start..*end),
            _ => None,
        };
        if let Some(rank) = self.ranks.get_mut(at) {
            *rank = joined
                .and_then(|bytes| self.vocabulary.rank(bytes))
                .unwrap_or(NEVER);
        }
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
