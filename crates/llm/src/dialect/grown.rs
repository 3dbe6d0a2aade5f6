//! Text of which each message repeats all that came before, and text that comes in pieces.
//!
//! Some engines send the one or the other by a switch that no message tells. What follows the first text does: a text
//! that begins with all that was said before repeats it, any other is a piece. Only the length of what was said is kept,
//! and a hash of it.

use std::hash::{DefaultHasher, Hasher};

use super::RequestFacts;

/// From this many bytes on, a text that begins with all that was said is no piece that does so by chance.
const CERTAIN: usize = 8;

/// The most choices whose texts are told apart; more than anyone asks for.
const MOST_CHOICES: usize = 128;

/// The texts of each choice of an answer.
#[derive(Debug, Default)]
pub struct Growing {
    first: Grown,
    known: Vec<Grown>,
}

impl Growing {
    /// Texts that are known to repeat what came before, and at their head so many bytes that were not generated.
    pub const fn after(echoed: usize) -> Self {
        Self { first: Grown::after(echoed), known: Vec::new() }
    }

    /// What `text` says that was not said before in this choice.
    pub fn news<'t>(&mut self, choice: u32, text: &'t str) -> &'t str {
        let position = usize::try_from(choice).unwrap_or(usize::MAX);
        if position >= MOST_CHOICES {
            return "";
        }
        if self.known.len() <= position {
            self.known.resize(position + 1, self.first);
        }
        let grown = self.known.get_mut(position);
        grown.map(|grown| grown.news(text)).unwrap_or_default()
    }
}

/// The texts of one choice.
#[derive(Clone, Copy, Debug, Default)]
struct Grown {
    manner: Manner,
    /// How many bytes were said, and their hash.
    said: usize,
    hash: u64,
    /// A text has repeated what was said and gone on.
    went_on: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Manner {
    #[default]
    Unknown,
    Repeats,
    Pieces,
}

impl Grown {
    const fn after(echoed: usize) -> Self {
        Self { manner: Manner::Repeats, said: echoed, hash: 0, went_on: true }
    }

    /// What `text` says that was not said before.
    fn news<'t>(&mut self, text: &'t str) -> &'t str {
        match self.manner {
            Manner::Repeats => self.repeated(text),
            Manner::Pieces => text,
            Manner::Unknown if self.said == 0 => {
                self.say(text);
                text
            }
            // The end of both: a last message that has nothing to say.
            Manner::Unknown if text.is_empty() => text,
            Manner::Unknown => self.tell(text),
        }
    }

    /// Tells from the second text on which it is.
    fn tell<'t>(&mut self, text: &'t str) -> &'t str {
        let repeats = text.as_bytes().get(..self.said).is_some_and(|head| hash(head) == self.hash);
        if !repeats {
            // A text that is cut to the stop sequence in its middle is shorter than it was.
            if self.went_on && text.len() < self.said {
                return "";
            }
            self.manner = Manner::Pieces;
            return text;
        }
        let news = tail(text, self.said);
        if !news.is_empty() {
            if self.went_on || self.said >= CERTAIN {
                self.manner = Manner::Repeats;
            }
            self.went_on = true;
        }
        self.say(text);
        news
    }

    fn repeated<'t>(&mut self, text: &'t str) -> &'t str {
        let news = tail(text, self.said);
        self.said = self.said.max(text.len());
        news
    }

    fn say(&mut self, text: &str) {
        self.said = text.len();
        self.hash = hash(text.as_bytes());
    }
}

/// What stands in `text` from `start` on, or from the next character where that is within one.
fn tail(text: &str, start: usize) -> &str {
    (start..text.len()).take(4).find_map(|start| text.get(start..)).unwrap_or_default()
}

/// The prompt at the head of each text of an answer that is read piecemeal.
#[derive(Debug, Default)]
pub struct Echo {
    bytes: usize,
    /// How much of it is still to come in the text that is being read.
    left: usize,
}

impl Echo {
    /// If the request asks for the prompt again, or else if that is the format's `custom`.
    pub fn new(asked: &RequestFacts, custom: bool) -> Self {
        let bytes = match asked.echo.unwrap_or(custom) {
            true => usize::try_from(asked.prompt_bytes).unwrap_or(usize::MAX),
            false => 0,
        };
        Self { bytes, left: bytes }
    }

    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What of a piece of a text was generated.
    pub fn pass<'t>(&mut self, piece: &'t str) -> &'t str {
        let text = tail(piece, self.left);
        self.left = self.left.saturating_sub(piece.len());
        text
    }

    /// A text is over.
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
        let mut grown = Grown::default();
        texts.iter().map(|text| grown.news(text)).collect()
    }

    #[test]
    fn what_repeats_is_said_once_and_pieces_are_joined() {
        assert_eq!(read(&["The", "The cat", "The cat sat.", "The cat sat."]), "The cat sat.");
        assert_eq!(read(&["The", " cat", " sat", ".", ""]), "The cat sat.");
        assert_eq!(read(&["", "H", "Hé", "Hé!"]), "Hé!");
        assert_eq!(read(&["", "ha", " ha", " ha"]), "ha ha ha");
    }

    #[test]
    fn pieces_that_are_alike_are_no_repetition_once_it_is_known() {
        assert_eq!(read(&["a", "b", "a", "ab", "a"]), "abaaba");
        let list = ["1", ".", "1", ".", "1", "1."];
        assert_eq!(read(&list), list.concat());
    }

    #[test]
    fn a_text_that_is_cut_at_its_end_says_nothing_new() {
        assert_eq!(read(&["So", "So it", "So it is</s>", "So it is"]), "So it is</s>");
        assert_eq!(read(&["A", "AB", "A"]), "AB");
        assert_eq!(read(&["Once upon a", "Once upon a time", "Once"]), "Once upon a time");
    }

    #[test]
    fn what_was_not_generated_is_passed_over() {
        let mut grown = Grown::after("Frère".len());
        assert_eq!(grown.news("Frère"), "");
        assert_eq!(grown.news("Frère Jac"), " Jac");
        assert_eq!(grown.news("Frère Jacques"), "ques");
        assert_eq!(Grown::after(4).news("Fré"), "");
        assert_eq!(Grown::after(3).news("Fré!"), "!");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(texts in proptest::collection::vec(".{0,6}", 0..8), echoed in 0_usize..9) {
            let mut grown = Grown::after(echoed);
            texts.iter().for_each(|text| { grown.news(text); });
            let repeated: Vec<String> = (1..=texts.len()).map(|count| texts.iter().take(count).cloned().collect()).collect();
            proptest::prop_assert_eq!(read(&repeated.iter().map(String::as_str).collect::<Vec<_>>()), texts.concat());
        }
    }
}
