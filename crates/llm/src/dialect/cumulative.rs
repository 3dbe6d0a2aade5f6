//! Streams that repeat the whole text in every message, and prompts that a response repeats.
//!
//! Some engines send the text so far or only the new piece, depending on a server option that no message shows. The
//! second text decides: a text that starts with the text so far repeats it, any other is a piece. Only the length and a
//! hash of the text so far are kept.

use std::hash::{DefaultHasher, Hasher};

use super::RequestFacts;

/// From this length on, a text that starts with the text so far is a repetition and not a coincidence.
const CERTAIN: usize = 8;

/// The most choices whose texts are tracked, more than any client requests.
const MOST_CHOICES: usize = 128;

/// The texts of each choice of a response.
#[derive(Debug, Default)]
pub struct CumulativeTexts {
    first: CumulativeText,
    known: Vec<CumulativeText>,
}

impl CumulativeTexts {
    /// Creates texts that are known to repeat, each after `echoed` bytes that were not generated.
    pub const fn after(echoed: usize) -> Self {
        Self { first: CumulativeText::after(echoed), known: Vec::new() }
    }

    /// Returns the part of `text` that extends the text of this choice received so far.
    pub fn new_suffix<'t>(&mut self, choice: u32, text: &'t str) -> &'t str {
        let position = usize::try_from(choice).unwrap_or(usize::MAX);
        if position >= MOST_CHOICES {
            return "";
        }
        if self.known.len() <= position {
            self.known.resize(position + 1, self.first);
        }
        let known = self.known.get_mut(position);
        known.map(|known| known.new_suffix(text)).unwrap_or_default()
    }
}

/// The text of one choice.
#[derive(Clone, Copy, Debug, Default)]
struct CumulativeText {
    mode: Mode,
    /// Length of the text so far.
    length: usize,
    hash: u64,
    /// A text has repeated and extended the text so far.
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
            Mode::Repeats => self.repeated(text),
            Mode::Pieces => text,
            Mode::Unknown if self.length == 0 => {
                self.remember(text);
                text
            }
            // The last message of both modes may be empty.
            Mode::Unknown if text.is_empty() => text,
            Mode::Unknown => self.decide(text),
        }
    }

    /// Reads a text after the first, which may decide the mode.
    fn decide<'t>(&mut self, text: &'t str) -> &'t str {
        let start = text.as_bytes().get(..self.length);
        let repeats = start.is_some_and(|start| hash(start) == self.hash);
        if !repeats {
            // A text that is truncated at a stop sequence is shorter than before.
            if self.was_extended && text.len() < self.length {
                return "";
            }
            self.mode = Mode::Pieces;
            return text;
        }
        let suffix = tail(text, self.length);
        if !suffix.is_empty() {
            if self.was_extended || self.length >= CERTAIN {
                self.mode = Mode::Repeats;
            }
            self.was_extended = true;
        }
        self.remember(text);
        suffix
    }

    fn repeated<'t>(&mut self, text: &'t str) -> &'t str {
        let suffix = tail(text, self.length);
        self.length = self.length.max(text.len());
        suffix
    }

    fn remember(&mut self, text: &str) {
        self.length = text.len();
        self.hash = hash(text.as_bytes());
    }
}

/// Returns `text` from `start`, or from the next character boundary.
fn tail(text: &str, start: usize) -> &str {
    (start..text.len()).take(4).find_map(|start| text.get(start..)).unwrap_or_default()
}

/// Skips the prompt at the start of each text of a body that arrives in pieces.
#[derive(Debug, Default)]
pub struct PromptEcho {
    bytes: usize,
    /// Bytes of the prompt that the current text has yet to repeat.
    left: usize,
}

impl PromptEcho {
    /// `by_default`: the format repeats the prompt unless the request says otherwise.
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

    /// Returns the generated part of a piece.
    pub fn strip<'t>(&mut self, piece: &'t str) -> &'t str {
        let text = tail(piece, self.left);
        self.left = self.left.saturating_sub(piece.len());
        text
    }

    /// Ends a text.
    pub const fn end(&mut self) {
        self.left = self.bytes;
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
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
