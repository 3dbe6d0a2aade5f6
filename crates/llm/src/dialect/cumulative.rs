//! Handles streams in which each message repeats the whole text so far, and responses that begin with the prompt.
//!
//! Some engines send either the whole text so far or only the new text, depending on a server option. If the second
//! text starts with the first text, the stream is cumulative. Only the length and a hash of the text so far are kept.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::RequestFacts;

/// Minimum length in bytes of a repeated text that proves a cumulative stream. A shorter match may be a coincidence.
const MIN_REPEATED_BYTES: usize = 8;

/// Maximum number of choices whose texts are tracked. No client requests more.
const MAX_CHOICES: usize = 128;

/// Tracks the text of each choice of a response.
#[derive(Debug, Default)]
pub struct CumulativeTexts {
    first: CumulativeText,
    known: Vec<CumulativeText>,
}

impl CumulativeTexts {
    /// Creates a tracker for a stream that is known to be cumulative. The first `echoed` bytes of each text are the
    /// repeated prompt.
    pub const fn after(echoed: usize) -> Self {
        Self { first: CumulativeText::after(echoed), known: Vec::new() }
    }

    /// Returns the part of `text` that the earlier texts of this choice do not contain.
    pub fn new_suffix<'t>(&mut self, choice: u32, text: &'t str) -> &'t str {
        let position = usize::try_from(choice).unwrap_or(usize::MAX);
        if position >= MAX_CHOICES {
            return "";
        }
        if self.known.len() <= position {
            self.known.resize(position + 1, self.first);
        }
        let known = self.known.get_mut(position);
        known.map(|known| known.new_suffix(text)).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct CumulativeText {
    mode: Mode,
    /// Length of the text so far.
    length: usize,
    hash: u64,
    /// Whether a message has repeated the text so far and added to it.
    was_extended: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Mode {
    #[default]
    Unknown,
    Repeats,
    Pieces,
}

impl CumulativeText {
    const fn after(echoed: usize) -> Self {
        Self { mode: Mode::Repeats, length: echoed, hash: 0, was_extended: true }
    }

    fn new_suffix<'t>(&mut self, text: &'t str) -> &'t str {
        match self.mode {
            Mode::Repeats => self.suffix_after_repetition(text),
            Mode::Pieces => text,
            Mode::Unknown if self.length == 0 => {
                self.remember(text);
                text
            }
            // In both modes, the last message may be empty.
            Mode::Unknown if text.is_empty() => text,
            Mode::Unknown => self.detect_mode(text),
        }
    }

    /// Reads a later text while the mode is unknown. This text may show the mode.
    fn detect_mode<'t>(&mut self, text: &'t str) -> &'t str {
        let start = text.as_bytes().get(..self.length);
        let repeats = start.is_some_and(|start| hash(start) == self.hash);
        if !repeats {
            // If the server truncates the text at a stop sequence, the text is shorter than before.
            if self.was_extended && text.len() < self.length {
                return "";
            }
            self.mode = Mode::Pieces;
            return text;
        }
        let suffix = text_from(text, self.length);
        if !suffix.is_empty() {
            if self.was_extended || self.length >= MIN_REPEATED_BYTES {
                self.mode = Mode::Repeats;
            }
            self.was_extended = true;
        }
        self.remember(text);
        suffix
    }

    fn suffix_after_repetition<'t>(&mut self, text: &'t str) -> &'t str {
        let suffix = text_from(text, self.length);
        self.length = self.length.max(text.len());
        suffix
    }

    fn remember(&mut self, text: &str) {
        self.length = text.len();
        self.hash = hash(text.as_bytes());
    }
}

/// Returns the part of `text` from `start`, or from the next character boundary after `start`.
fn text_from(text: &str, start: usize) -> &str {
    (start..text.len()).take(4).find_map(|start| text.get(start..)).unwrap_or_default()
}

/// Removes the repeated prompt from the start of each text. The body may arrive in pieces.
#[derive(Debug, Default)]
pub struct PromptEcho {
    bytes: usize,
    /// Number of prompt bytes that the current text has not repeated yet.
    left: usize,
}

impl PromptEcho {
    /// Creates a filter for the response to `request`. `by_default`: the format repeats the prompt if the request does
    /// not choose.
    pub fn new(request: &RequestFacts, by_default: bool) -> Self {
        let bytes = match request.echo.unwrap_or(by_default) {
            true => usize::try_from(request.prompt_bytes).unwrap_or(usize::MAX),
            false => 0,
        };
        Self { bytes, left: bytes }
    }

    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the generated part of a piece, without the repeated prompt.
    pub fn strip<'t>(&mut self, piece: &'t str) -> &'t str {
        let text = text_from(piece, self.left);
        self.left = self.left.saturating_sub(piece.len());
        text
    }

    pub const fn end(&mut self) {
        self.left = self.bytes;
    }
}

fn hash(bytes: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> String {
        let mut text_so_far = CumulativeText::default();
        texts.iter().map(|text| text_so_far.new_suffix(text)).collect()
    }

    #[test]
    fn emits_repeated_text_once_and_joins_pieces() {
        assert_eq!(read(&["The", "The cat", "The cat sat.", "The cat sat."]), "The cat sat.");
        assert_eq!(read(&["The", " cat", " sat", ".", ""]), "The cat sat.");
        assert_eq!(read(&["", "H", "Hé", "Hé!"]), "Hé!");
        assert_eq!(read(&["", "ha", " ha", " ha"]), "ha ha ha");
    }

    #[test]
    fn does_not_mistake_similar_pieces_for_repetitions() {
        assert_eq!(read(&["a", "b", "a", "ab", "a"]), "abaaba");
        let list = ["1", ".", "1", ".", "1", "1."];
        assert_eq!(read(&list), list.concat());
    }

    #[test]
    fn emits_nothing_for_a_truncated_text() {
        assert_eq!(read(&["So", "So it", "So it is</s>", "So it is"]), "So it is</s>");
        assert_eq!(read(&["A", "AB", "A"]), "AB");
        assert_eq!(read(&["Once upon a", "Once upon a time", "Once"]), "Once upon a time");
    }

    #[test]
    fn skips_the_prompt() {
        let mut text_so_far = CumulativeText::after("Frère".len());
        assert_eq!(text_so_far.new_suffix("Frère"), "");
        assert_eq!(text_so_far.new_suffix("Frère Jac"), " Jac");
        assert_eq!(text_so_far.new_suffix("Frère Jacques"), "ques");
        assert_eq!(CumulativeText::after(4).new_suffix("Fré"), "");
        assert_eq!(CumulativeText::after(3).new_suffix("Fré!"), "!");
    }

    proptest::proptest! {
        #[test]
        fn never_panics(texts in proptest::collection::vec(".{0,6}", 0..8), echoed in 0_usize..9) {
            let mut text_so_far = CumulativeText::after(echoed);
            texts.iter().for_each(|text| { text_so_far.new_suffix(text); });
            let repeated: Vec<String> = (1..=texts.len()).map(|count| texts.iter().take(count).cloned().collect()).collect();
            proptest::prop_assert_eq!(read(&repeated.iter().map(String::as_str).collect::<Vec<_>>()), texts.concat());
        }
    }
}
