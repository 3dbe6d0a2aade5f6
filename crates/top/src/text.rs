//! Text from another process, such as a model name: bounded, and without characters that control a terminal.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// Maximum length in characters. A process limits names to 256 bytes, so only a hostile document has longer text.
const MAX_CHARS: usize = 256;

/// One line of text of at most [`MAX_CHARS`] characters. Control characters and invisible characters are replaced by
/// `�`.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Text(String);

impl Text {
    /// Cleans and shortens `text`.
    pub fn new(text: &str) -> Self {
        let mut chars = text.chars();
        let kept = chars.by_ref().take(MAX_CHARS).filter(|c| !is_variation_selector(*c));
        let mut clean: String = kept.map(visible).collect();
        if chars.next().is_some() {
            clean.pop();
            clean.push('…');
        }
        Self(clean)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the character that stands for `c` on a screen. Terminals disagree on the width of invisible characters, such
/// as joiners, and some change the direction of writing or end the line.
fn visible(c: char) -> char {
    let is_invisible = matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    if c.is_control() || is_invisible { char::REPLACEMENT_CHARACTER } else { c }
}

/// Returns whether the character only selects a form of the character before it.
const fn is_variation_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}')
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::new(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_characters_that_control_a_terminal() {
        let text = Text::new("a\x1b[31mb\u{9b}2J\r\n\u{202e}c\u{7f}模\u{200d}❤\u{fe0f}");
        assert_eq!(text.as_str(), "a�[31mb�2J���c�模�❤");
    }

    #[test]
    fn limits_the_length() {
        let text = Text::new(&"é".repeat(10_000));
        assert_eq!(text.as_str().chars().count(), MAX_CHARS);
        assert!(text.as_str().ends_with('…'));
        assert_eq!(Text::new(&"x".repeat(MAX_CHARS)).as_str().len(), MAX_CHARS);
    }
}
