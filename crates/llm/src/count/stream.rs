//! Counts the text of one part of one choice, with the model's tokenizer and in the standard encoding.

use super::{Encoding, TextCounter, Tokenizer};
use crate::dialect::Part;

/// The increase of the token counts by a piece of text.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TokenDelta {
    /// The increase of the highest count so far, in the model's own encoding. The count of a growing text can decrease,
    /// but a reported increase cannot be withdrawn. The sum can therefore exceed the final total by a few tokens.
    pub native: u32,
    /// The tokens that became final, in the standard encoding. They lag by one word. Together with
    /// [`TokenTotals::standard_unreported`](super::TokenTotals::standard_unreported), they add up to the exact total.
    pub standard: u32,
}

/// The encoding in which the text of every model is also counted, so that speeds are comparable across providers.
pub(super) const STANDARD: Encoding = Encoding::O200k;

#[derive(Debug)]
pub(super) struct Stream {
    choice: u32,
    part: Part,
    standard: TextCounter,
    /// The counter of the native tokenizer, if that is not the standard encoding.
    other: Option<Box<TextCounter>>,
    /// The native count reported so far, which is its highest value so far.
    native_told: u64,
    standard_told: u64,
    /// Bytes held at the last query.
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
            native_told: 0,
            standard_told: 0,
            held: 0,
        }
    }

    pub(super) fn is_of(&self, choice: u32, part: Part) -> bool {
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
        let native = self.native().count();
        TokenDelta {
            native: rise(&mut self.native_told, native),
            standard: rise(&mut self.standard_told, self.standard.decided()),
        }
    }

    pub(super) fn native_total(&mut self) -> u64 {
        self.native().total()
    }

    fn native(&mut self) -> &mut TextCounter {
        self.other.as_deref_mut().unwrap_or(&mut self.standard)
    }

    /// Returns the standard total and its part that was not reported before.
    pub(super) fn standard_total(&mut self) -> (u64, u32) {
        let total = self.standard.total();
        (total, rise(&mut self.standard_told, total))
    }

    /// Reports whether the native count is exact.
    pub(super) fn is_exact(&self) -> bool {
        self.other.as_deref().unwrap_or(&self.standard).is_exact()
    }

    /// Returns the bytes of text held at the last query, and now.
    pub(super) fn holds(&mut self) -> (usize, usize) {
        let other = self.other.as_deref().map_or(0, TextCounter::held);
        let now = self.standard.held() + other;
        (std::mem::replace(&mut self.held, now), now)
    }

    /// Counts the pending text as if it ended here.
    pub(super) fn settle(&mut self) {
        self.standard.settle();
        if let Some(other) = &mut self.other {
            other.settle();
        }
    }
}

/// Returns the increase of `now` over `told`, the value reported so far, and adds the increase to `told`.
pub(super) fn rise(told: &mut u64, now: u64) -> u32 {
    let rise = u32::try_from(now.saturating_sub(*told)).unwrap_or(u32::MAX);
    *told += u64::from(rise);
    rise
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_encoder_serves_where_native_is_standard() {
        let holds = |native| {
            let mut stream = Stream::new(0, Part::Text, &Tokenizer::BuiltIn(native));
            stream.push("unfinished");
            stream.holds().1
        };
        assert_eq!(2 * holds(STANDARD), holds(Encoding::Cl100k));
    }
}
