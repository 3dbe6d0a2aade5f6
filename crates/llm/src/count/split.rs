//! Splits text into pieces, such as a word with the blank before it. This is the first of two steps of an encoding. The
//! second step, [`super::merge`], divides each piece into tokens, independent of the neighbouring pieces.
//!
//! A finite automaton reads the text byte by byte. A piece is *final* when later text cannot change its end. Until
//! then, the piece is *open*. The state of an open piece takes four machine words, so the automaton can stop after each
//! delta and continue with the next.

use super::layout::{ROW_STEPS, Step};

/// The split automaton of an encoding.
#[derive(Debug)]
pub struct Splitter {
    classes: [u8; 256],
    /// Table of the automaton. Each state has a row of [`ROW_STEPS`] steps, one per class of bytes.
    steps: Vec<Step>,
}

impl Splitter {
    /// Creates a splitter. `classes` contains the class of each byte. `steps` contains steps in the format of
    /// [`Step::to_bytes`].
    pub fn new(classes: &[u8], steps: &[u8]) -> Self {
        let steps = steps.as_chunks().0.iter();
        Self {
            classes: classes.first_chunk().copied().unwrap_or([0; 256]),
            steps: steps.map(|step| Step::from_bytes(*step)).collect(),
        }
    }

    /// Returns the end of the first piece of `text`, if no text follows. The end is 0 only for an empty text.
    pub fn first_piece(&self, text: &[u8]) -> usize {
        let mut open = OpenPiece::new();
        open.read_on(self, text).unwrap_or_else(|| open.end_if_text_ends(text))
    }

    #[inline]
    fn step(&self, from: Step, byte: u8) -> Step {
        let class = self.classes.get(usize::from(byte)).copied().unwrap_or(0);
        let at = usize::from(from.state()) * ROW_STEPS + usize::from(class);
        // The table has a row for every target state. If the table were truncated, every piece would end here.
        self.steps.get(at).copied().unwrap_or(Step::MISSING)
    }
}

/// The last piece of a growing text. Later text can still change the end of this piece.
#[derive(Clone, Copy, Debug)]
pub struct OpenPiece {
    step: Step,
    /// Number of bytes read since the piece began.
    read: usize,
    /// The end of the piece according to the bytes read so far.
    end: usize,
    /// Whether the last character before `end` belongs to the next piece.
    drops_last: bool,
}

impl OpenPiece {
    pub const fn new() -> Self {
        Self { step: Step::START, read: 0, end: 0, drops_last: false }
    }

    /// Reads the new part of `text`, which begins with the piece. Returns the end of the piece if later text cannot
    /// change it. The next piece starts at this end, and a few bytes after the end are read again.
    #[inline]
    pub fn read_on(&mut self, splitter: &Splitter, text: &[u8]) -> Option<usize> {
        // Local variables stay in registers.
        let Self { mut step, mut end, mut drops_last, read } = *self;
        for (byte, read) in text.get(read..)?.iter().zip(read + 1..) {
            step = splitter.step(step, *byte);
            if step.has_flag(Step::ACCEPTS) {
                (end, drops_last) = (read, step.has_flag(Step::DROPS_LAST));
            }
            if step.has_flag(Step::IS_FINAL) {
                #[cfg(test)]
                super::tests::work::add(read - self.read);
                *self = Self::new();
                return Some(known_end(end, drops_last, text));
            }
        }
        #[cfg(test)]
        super::tests::work::add(text.len() - self.read);
        *self = Self { step, read: text.len(), end, drops_last };
        None
    }

    /// Returns the end of the piece if `text` is complete. All of `text` must have been read.
    pub fn end_if_text_ends(&self, text: &[u8]) -> usize {
        if self.step.has_flag(Step::ACCEPTS_AT_END) {
            text.len()
        } else {
            known_end(self.end, self.drops_last, text).min(text.len())
        }
    }
}

/// Returns the end of a piece of `text` that was accepted at `end`. The result is at least 1, so that the reader always
/// advances.
fn known_end(end: usize, drops_last: bool, text: &[u8]) -> usize {
    let end = if drops_last {
        let piece = text.get(..end).unwrap_or_default();
        piece.iter().rposition(|byte| !is_inside_character(*byte))
    } else {
        Some(end)
    };
    end.unwrap_or_default().max(1)
}

const fn is_inside_character(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}
