//! Text out of nothing: deterministic sentences whose pieces are one token each.

use fastrand::Rng;

/// Appends sentences of `pieces` pieces to `out` and says where each piece ends.
///
/// A piece is a word with the space before it, or a mark: one token of o200k_base at most (a test holds that), so an
/// answer of n pieces has n tokens at most. Counting is still left to the encoder, since neighbours may merge.
pub fn write(random: &mut Rng, pieces: usize, out: &mut String) -> Vec<usize> {
    let mut ends = Vec::with_capacity(pieces);
    let mut place = Place::Start;
    for _ in 0..pieces {
        place = place.write(random, out);
        ends.push(out.len());
    }
    ends
}

/// Where in a sentence the next piece stands.
#[derive(Clone, Copy)]
enum Place {
    Start,
    /// This many words into a sentence.
    Word(u32),
    /// After a comma.
    Comma(u32),
    /// After a full stop.
    Stop,
}

impl Place {
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
                let words: &[&str] = if random.u32(0..16) == 0 { &FOREIGN } else { &WORDS };
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

/// One byte is not one character, and one character is not one token: a text of plain English would hide both.
const FOREIGN: [&str; 24] = [
    "für", "über", "être", "très", "niño", "mañana", "não", "são", "и", "не", "что", "для", "του",
    "και", "的", "日", "في", "من", "है", "के", "여", "이", "också", "için",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::count;

    #[test]
    fn every_piece_is_one_token_at_most() {
        for word in WORDS.iter().chain(&FOREIGN).chain(&OPENERS) {
            assert_eq!(count(&format!(" {word}")), 1, "{word}");
        }
        for word in OPENERS {
            assert_eq!(count(word), 1, "{word}");
        }
    }

    #[test]
    fn a_text_has_as_many_pieces_as_asked_and_no_more_tokens() {
        for seed in 0..200 {
            let mut text = String::new();
            let ends = write(&mut Rng::with_seed(seed), 150, &mut text);
            assert_eq!(ends.len(), 150);
            assert_eq!(ends.last(), Some(&text.len()));
            assert!(ends.iter().all(|&end| text.is_char_boundary(end)));
            let tokens = count(&text);
            assert!((140..=150).contains(&tokens), "{tokens} tokens: {text}");
        }
    }

    #[test]
    fn the_same_seed_writes_the_same_text() {
        let text = |seed| {
            let mut out = String::new();
            write(&mut Rng::with_seed(seed), 40, &mut out);
            out
        };
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }
}
