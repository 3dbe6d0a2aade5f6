//! Collects one short string out of its pieces.

use super::Value;
use tokengauge_types::label::LONGEST_NAME;

/// The string at the path that is being read, if it is short. What is longer than a name may be is cut, not refused:
/// the rest of it would not be kept anyway.
#[derive(Debug, Default)]
pub struct Short {
    text: String,
    /// A character did not fit: no later one belongs to it, be it short enough.
    is_cut: bool,
}

impl Short {
    pub fn push(&mut self, piece: &str) {
        for character in piece.chars() {
            self.is_cut |= self.text.len() + character.len_utf8() > LONGEST_NAME;
            if self.is_cut {
                return;
            }
            self.text.push(character);
        }
    }

    /// The string is over: gives it up and begins the next.
    pub fn take(&mut self) -> String {
        std::mem::take(self).text
    }

    /// Takes a value; what it says once it is whole, if it is a number or a string with anything in it.
    pub fn word(&mut self, value: Value<'_>) -> Option<String> {
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
    fn a_long_string_is_cut_at_the_same_place_however_it_comes() {
        let text = "a".to_owned() + &"\u{20ac}".repeat(85) + "bcd";
        let mut whole = Short::default();
        whole.push(&text);
        let mut pieces = Short::default();
        for character in text.chars() {
            pieces.push(character.encode_utf8(&mut [0; 4]));
        }
        let cut = whole.take();
        assert_eq!((cut.len(), pieces.take()), (LONGEST_NAME, cut));

        let longer = text.replacen('a', "aa", 1);
        for character in longer.chars() {
            pieces.push(character.encode_utf8(&mut [0; 4]));
        }
        assert_eq!(pieces.take().len(), LONGEST_NAME - 2, "without what would fit again");
        pieces.push("next");
        assert_eq!(pieces.take(), "next");
    }
}
