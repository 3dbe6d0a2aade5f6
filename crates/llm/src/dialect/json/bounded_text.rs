//! Collects the beginning of a string that arrives in pieces.

#[derive(Debug, Default)]
pub struct BoundedText {
    text: String,
    /// Whether a character did not fit. All later characters are then dropped.
    is_cut: bool,
}

impl BoundedText {
    /// Appends a piece. The text is truncated at `longest` bytes.
    pub fn push(&mut self, piece: &str, longest: usize) {
        if self.is_cut {
            return;
        }
        let mut end = piece.len().min(longest.saturating_sub(self.text.len()));
        while !piece.is_char_boundary(end) {
            end -= 1;
        }
        self.text.push_str(piece.get(..end).unwrap_or_default());
        self.is_cut = end < piece.len();
    }

    pub const fn as_str(&self) -> &str {
        self.text.as_str()
    }

    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    pub fn clear(&mut self) {
        self.text.clear();
        self.is_cut = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: usize = 256;

    #[test]
    fn truncates_at_the_same_position_for_every_cut() {
        let text = "a".to_owned() + &"\u{20ac}".repeat(85) + "bcd";
        let mut whole = BoundedText::default();
        whole.push(&text, LONGEST);
        let mut pieces = BoundedText::default();
        for character in text.chars() {
            pieces.push(character.encode_utf8(&mut [0; 4]), LONGEST);
        }
        assert_eq!((whole.as_str().len(), pieces.as_str()), (LONGEST, whole.as_str()));

        pieces.clear();
        let longer = text.replacen('a', "aa", 1);
        for character in longer.chars() {
            pieces.push(character.encode_utf8(&mut [0; 4]), LONGEST);
        }
        assert_eq!(pieces.as_str().len(), LONGEST - 2, "no later character is added");
        pieces.clear();
        pieces.push("next", LONGEST);
        assert_eq!(pieces.as_str(), "next");
    }
}
