//! Collects short strings that arrive in pieces, with a limit on their length.

use super::Value;
use tokengauge_types::label::LONGEST_NAME;

/// Maximum length in bytes of a collected object. Objects with token counts have less than 1 KiB.
const LONGEST_OBJECT: usize = 8 << 10;

/// Collects one string. A string of more than `LONGEST` bytes is truncated.
#[derive(Debug, Default)]
pub struct BoundedText<const LONGEST: usize> {
    text: String,
    /// Whether a character did not fit. No later character is added then, even if it would fit.
    is_cut: bool,
}

/// Collects a string for a [`Name`](tokengauge_types::label::Name).
pub type ShortText = BoundedText<LONGEST_NAME>;

/// Collects a small object as JSON text. A truncated object is not valid JSON and is therefore ignored.
pub type SmallObject = BoundedText<LONGEST_OBJECT>;

impl<const LONGEST: usize> BoundedText<LONGEST> {
    fn push(&mut self, piece: &str) {
        if !self.is_cut && self.text.len() + piece.len() <= LONGEST {
            self.text.push_str(piece);
            return;
        }
        for character in piece.chars() {
            self.is_cut |= self.text.len() + character.len_utf8() > LONGEST;
            if self.is_cut {
                return;
            }
            self.text.push(character);
        }
    }

    /// Returns the string and starts the next one.
    fn take(&mut self) -> String {
        std::mem::take(self).text
    }

    /// Adds a value. Returns the string when it is complete and not empty. A number is complete at once.
    pub fn feed(&mut self, value: Value<'_>) -> Option<String> {
        match value {
            Value::Text(piece) => {
                self.push(piece);
                None
            }
            Value::TextEnd => Some(self.take()).filter(|word| !word.is_empty()),
            Value::Number(number) => Some(number.to_owned()),
            Value::Object | Value::Array | Value::End | Value::Bool(_) | Value::Null => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncates_at_the_same_position_for_every_cut() {
        let text = "a".to_owned() + &"\u{20ac}".repeat(85) + "bcd";
        let mut whole = ShortText::default();
        whole.push(&text);
        let mut pieces = ShortText::default();
        for character in text.chars() {
            pieces.push(character.encode_utf8(&mut [0; 4]));
        }
        let cut = whole.take();
        assert_eq!((cut.len(), pieces.take()), (LONGEST_NAME, cut));

        let longer = text.replacen('a', "aa", 1);
        for character in longer.chars() {
            pieces.push(character.encode_utf8(&mut [0; 4]));
        }
        assert_eq!(pieces.take().len(), LONGEST_NAME - 2, "no later character is added");
        pieces.push("next");
        assert_eq!(pieces.take(), "next");
    }
}
