//! Splits text into pieces, such as a word with the blank before it. This is the first of two steps of an encoding. The
//! second step, [`super::merge`], divides each piece into tokens, independent of the neighbouring pieces.
//!
//! A finite automaton reads the text byte by byte. A piece is *final* when later text cannot change its end. Until
//! then, the piece is *open*. The state of an open piece takes four machine words, so the automaton can stop after each
//! delta and continue with the next.

use super::layout::Step;

/// The split automaton of an encoding.
#[derive(Debug)]
pub struct Splitter {
    classes: [u8; 256],
    /// Table of the automaton. Each state has a row of `width` steps, one per class of bytes.
    steps: Vec<Step>,
    width: usize,
}

impl Splitter {
    /// Creates a splitter. `classes` contains the class of each byte. `steps` contains steps in the format of
    /// [`Step::to_bytes`].
    pub fn new(classes: &[u8], steps: &[u8]) -> Self {
        let classes = classes.first_chunk().copied().unwrap_or([0; 256]);
        let steps = steps.as_chunks().0.iter();
        Self {
            classes,
            steps: steps.map(|step| Step::from_bytes(*step)).collect(),
            width: classes.iter().max().map_or(1, |last| usize::from(*last) + 1),
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
        let at = usize::from(from.state()) * self.width + usize::from(class);
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
    pub fn read_on(&mut self, splitter: &Splitter, text: &[u8]) -> Option<usize> {
        for byte in text.get(self.read..)? {
            self.step = splitter.step(self.step, *byte);
            self.read += 1;
            #[cfg(test)]
            super::tests::work::add(1);
            if self.step.has_flag(Step::ACCEPTS) {
                self.end = self.read;
                self.drops_last = self.step.has_flag(Step::DROPS_LAST);
            }
            if self.step.has_flag(Step::IS_FINAL) {
                let end = self.known_end(text);
                *self = Self::new();
                return Some(end);
            }
        }
        None
    }

    /// Returns the end of the piece if `text` is complete. All of `text` must have been read.
    pub fn end_if_text_ends(&self, text: &[u8]) -> usize {
        if self.step.has_flag(Step::ACCEPTS_AT_END) {
            text.len()
        } else {
            self.known_end(text).min(text.len())
        }
    }

    /// Returns the end of the piece. The end is at least 1, so that the reader always advances.
    fn known_end(&self, text: &[u8]) -> usize {
        let end = if self.drops_last {
            let piece = text.get(..self.end).unwrap_or_default();
            piece.iter().rposition(|byte| !is_inside_character(*byte))
        } else {
            Some(self.end)
        };
        end.unwrap_or_default().max(1)
    }
}

const fn is_inside_character(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}
