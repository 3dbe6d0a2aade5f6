//! Generates the text of simulated responses: sentences, in pieces of at most one token. Equal seeds give equal text.

use fastrand::Rng;

/// A generated text. `ends` contains the end of each piece (a word or a punctuation mark), as a byte offset.
pub struct Sentences {
    pub text: String,
    pub ends: Vec<usize>,
}

impl Sentences {
    /// Generates a text of `pieces` pieces.
    ///
    /// A piece is a punctuation mark, or a word with the space before it. A test checks that no piece has more than
    /// one token in o200k_base, so n pieces have at most n tokens. Tokens are still counted with the encoder, because
    /// the encoder can join neighbouring pieces into one token.
    pub fn write(random: &mut Rng, pieces: u32) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(pieces as usize));
        let mut place = SentencePosition::Start;
        for _ in 0..pieces {
            place = place.write(random, &mut text);
            ends.push(text.len());
        }
        Self { text, ends }
    }

    /// Returns the text as tool arguments, `{"query":"…"}`. The JSON before the text and the JSON after it are
    /// separate pieces.
    pub fn as_arguments(&self) -> Self {
        const JSON_PREFIX: &str = "{\"query\":\"";
        let text = format!("{JSON_PREFIX}{}\"}}", self.text);
        let mut ends = vec![JSON_PREFIX.len()];
        ends.extend(self.ends.iter().map(|end| end + JSON_PREFIX.len()));
        ends.push(text.len());
        Self { text, ends }
    }
}

/// Position in a sentence, which determines the next piece.
#[derive(Clone, Copy)]
enum SentencePosition {
    Start,
    /// After this number of words.
    Word(u32),
    /// After a comma that follows this number of words.
    Comma(u32),
    /// After a full stop.
    Stop,
}

impl SentencePosition {
    fn write(self, random: &mut Rng, out: &mut String) -> Self {
        match self {
            Self::Start | Self::Stop => {
                if matches!(self, Self::Stop) {
                    out.push(' ');
                }
                out.push_str(pick(random, &OPENERS));
                Self::Word(1)
            }
            Self::Word(length) if length > random.u32(6..18) => {
                out.push('.');
                Self::Stop
            }
            Self::Word(length) if length > 2 && random.u32(0..12) == 0 => {
                out.push(',');
                Self::Comma(length)
            }
            Self::Word(length) | Self::Comma(length) => {
                let words: &[&str] = if random.u32(0..16) == 0 { &MULTIBYTE_WORDS } else { &WORDS };
                out.push(' ');
                out.push_str(pick(random, words));
                Self::Word(length + 1)
            }
        }
    }
}

fn pick(random: &mut Rng, words: &[&'static str]) -> &'static str {
    words.get(random.usize(0..words.len())).copied().unwrap_or_default()
}

const OPENERS: [&str; 20] = [
    "The", "A", "This", "When", "Every", "One", "After", "Before", "Most", "In", "If", "It",
    "With", "Then", "Here", "For", "Each", "Some", "From", "We",
];

const WORDS: [&str; 120] = [
    "the", "of", "and", "a", "to", "in", "is", "that", "for", "it", "with", "as", "on", "by", "at",
    "from", "model", "token", "stream", "request", "answer", "time", "first", "last", "queue",
    "engine", "memory", "batch", "step", "rate", "second", "number", "part", "word", "line",
    "page", "river", "city", "train", "light", "water", "stone", "paper", "garden", "winter",
    "summer", "morning", "evening", "music", "letter", "story", "question", "reason", "place",
    "house", "street", "window", "door", "table", "book", "road", "bridge", "sea", "wind", "cloud",
    "rain", "snow", "fire", "tree", "leaf", "field", "bird", "horse", "fish", "friend", "child",
    "teacher", "doctor", "driver", "small", "large", "quiet", "early", "late", "long", "short",
    "green", "blue", "old", "new", "open", "clear", "slow", "fast", "warm", "cold", "simple",
    "whole", "near", "far", "under", "over", "between", "through", "while", "because", "without",
    "again", "always", "often", "never", "runs", "waits", "reads", "writes", "counts", "grows",
    "moves", "turns", "keeps",
];

/// Words whose characters take several bytes or tokens. With plain English text only, tests would miss counting errors
/// for such characters.
const MULTIBYTE_WORDS: [&str; 24] = [
    "für", "über", "être", "très", "niño", "mañana", "não", "são", "и", "не", "что", "для", "του",
    "και", "的", "日", "في", "من", "है", "के", "여", "이", "också", "için",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::count;

    #[test]
    fn every_piece_is_at_most_one_token() {
        for word in WORDS.iter().chain(&MULTIBYTE_WORDS).chain(&OPENERS) {
            assert_eq!(count(&format!(" {word}")), 1, "{word}");
        }
        for word in OPENERS {
            assert_eq!(count(word), 1, "{word}");
        }
    }

    #[test]
    fn text_has_the_requested_number_of_pieces() {
        for seed in 0..200 {
            let Sentences { text, ends } = Sentences::write(&mut Rng::with_seed(seed), 150);
            assert_eq!(ends.len(), 150);
            assert_eq!(ends.last(), Some(&text.len()));
            assert!(ends.iter().all(|&end| text.is_char_boundary(end)));
            let tokens = count(&text);
            assert!((140..=150).contains(&tokens), "{tokens} tokens: {text}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_text() {
        let text = |seed| Sentences::write(&mut Rng::with_seed(seed), 40).text;
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }
}
