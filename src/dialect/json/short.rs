//! Collects one short string out of its pieces.

use crate::label::LONGEST_NAME;

/// The string at the path that is being read, if it is short. What is longer than a name may be is cut, not refused:
/// the rest of it would not be kept anyway.
#[derive(Debug, Default)]
pub struct Short(String);

impl Short {
    pub fn push(&mut self, piece: &str) {
        for character in piece.chars() {
            if self.0.len() + character.len_utf8() > LONGEST_NAME {
                return;
            }
            self.0.push(character);
        }
    }

    /// The string is over: gives it up and begins the next.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.0)
    }
}
