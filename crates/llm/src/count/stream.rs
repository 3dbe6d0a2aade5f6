//! Counts one part of a choice (text, reasoning or a tool call), with the model's tokenizer and in the standard
//! encoding.

use super::{Encoding, TextCounter, Tokenizer};
use crate::dialect::Part;

/// The tokens that a piece of text adds to the counts of its response.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TokenDelta {
    /// Added tokens in the model's encoding that later text cannot change. The last tokens of a word are added later.
    /// The sum of all values, plus [`TokenTotals::native_unreported`](super::TokenTotals::native_unreported), is the
    /// exact total.
    pub native: u32,
    /// Number of tokens that this text adds in the model's encoding, compared with the highest count so far. 0 if the
    /// text only makes the last token longer. The count of a growing text can decrease, so the sum can exceed the
    /// final total by a few tokens.
    pub chunk: u32,
    /// Added tokens in the standard encoding that later text cannot change. The tokens of the last word are added
    /// later. The sum of all values, plus
    /// [`TokenTotals::standard_unreported`](super::TokenTotals::standard_unreported), is the exact total.
    pub standard: u32,
}

/// The standard encoding. The text of every model is counted in this encoding, too, so that token rates of different
/// providers can be compared.
pub(super) const STANDARD: Encoding = Encoding::O200k;

#[derive(Debug)]
pub(super) struct Stream {
    choice: u32,
    part: Part,
    standard: TextCounter,
    /// Counter with the model's tokenizer. `None` if the model uses the standard encoding.
    other: Option<Box<TextCounter>>,
    /// The native tokens reported so far.
    native_reported: u64,
    /// The highest native count so far.
    native_highest: u64,
    standard_reported: u64,
    /// Memory of the text without a final count, in bytes, at the last query.
    held: usize,
}

impl Stream {
    pub(super) fn new(choice: u32, part: Part, native: &Tokenizer) -> Self {
        let other = match native {
            Tokenizer::BuiltIn(STANDARD) => None,
            Tokenizer::BuiltIn(encoding) => Some(TextCounter::new(*encoding)),
            Tokenizer::Custom(given) => Some(TextCounter::custom(given.clone())),
        };
        Self {
            choice,
            part,
            standard: TextCounter::new(STANDARD),
            other: other.map(Box::new),
            native_reported: 0,
            native_highest: 0,
            standard_reported: 0,
            held: 0,
        }
    }

    pub(super) fn matches(&self, choice: u32, part: Part) -> bool {
        self.choice == choice && self.part == part
    }

    pub(super) const fn part(&self) -> Part {
        self.part
    }

    pub(super) fn push(&mut self, text: &str) -> TokenDelta {
        self.standard.push(text);
        if let Some(other) = &mut self.other {
            other.push(text);
        }
        let native = self.native();
        let (stable, count) = (native.stable_tokens(), native.count());
        TokenDelta {
            native: record_increase(&mut self.native_reported, stable),
            chunk: record_increase(&mut self.native_highest, count),
            standard: record_increase(&mut self.standard_reported, self.standard.final_tokens()),
        }
    }

    /// Returns the total with the model's tokenizer, and the part of the total that was not reported before.
    pub(super) fn native_total(&mut self) -> (u64, u32) {
        let total = self.native().total();
        (total, record_increase(&mut self.native_reported, total))
    }

    fn native(&mut self) -> &mut TextCounter {
        self.other.as_deref_mut().unwrap_or(&mut self.standard)
    }

    /// Returns the total in the standard encoding, and the part of the total that was not reported before.
    pub(super) fn standard_total(&mut self) -> (u64, u32) {
        let total = self.standard.total();
        (total, record_increase(&mut self.standard_reported, total))
    }

    /// Returns whether the native count is exact.
    pub(super) fn is_exact(&self) -> bool {
        self.other.as_deref().unwrap_or(&self.standard).is_exact()
    }

    /// Returns the memory of the text without a final count, in bytes: at the last query, and now.
    pub(super) fn update_held_bytes(&mut self) -> (usize, usize) {
        let other = self.other.as_deref().map_or(0, TextCounter::tail_capacity);
        let now = self.standard.tail_capacity() + other;
        (std::mem::replace(&mut self.held, now), now)
    }

    /// Counts the pending text as if it ended here, and frees the memory of this text.
    pub(super) fn count_and_free_tail(&mut self) {
        self.standard.count_and_free_tail();
        if let Some(other) = &mut self.other {
            other.count_and_free_tail();
        }
    }
}

/// Returns the increase from `reported` to `now`, and adds the increase to `reported`. Returns 0 if `now` is lower.
pub(super) fn record_increase(reported: &mut u64, now: u64) -> u32 {
    let increase = u32::try_from(now.saturating_sub(*reported)).unwrap_or(u32::MAX);
    *reported += u64::from(increase);
    increase
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_with_the_standard_encoding_need_one_counter() {
        let holds = |native| {
            let mut stream = Stream::new(0, Part::Text, &Tokenizer::BuiltIn(native));
            stream.push("unfinished");
            stream.update_held_bytes().1
        };
        assert_eq!(2 * holds(STANDARD), holds(Encoding::Cl100k));
    }
}
