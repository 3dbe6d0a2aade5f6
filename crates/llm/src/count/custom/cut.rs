//! Finds positions at which a growing text can be cut, so that the tokens of its parts add up to the tokens of the
//! whole.
//!
//! A user-supplied tokenizer guarantees no such position: it can rewrite the text, split it by any pattern or not at
//! all, and treat the beginning of a text differently. But nearly all tokenizers separate words at the blank between
//! them. Most tokenizers also separate Chinese and Japanese punctuation from the word before it. `probe.rs` tests each
//! tokenizer for these properties when it is loaded.

/// Letter that is put before the text after a cut. Without this letter, some tokenizers would insert or remove a blank
/// at the beginning. The tokens of the letter are subtracted from the count.
pub(in super::super) const LEAD: &str = "a";

/// Kinds of positions at which a text can be cut without changing the number of its tokens.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Cuts {
    /// Before a blank between two letters or digits.
    pub words: bool,
    /// Before a blank between two visible characters, if one of them is an ASCII sign. Such blanks are frequent in
    /// code.
    pub signs: bool,
    /// Before Chinese or Japanese punctuation that ends a clause, between two letters or digits.
    pub clauses: bool,
}

/// Punctuation marks that end a clause.
pub(super) const CLAUSE_ENDS: [char; 7] = ['，', '。', '、', '；', '：', '？', '！'];

impl Cuts {
    /// Returns the last safe position in `text` after the character boundary `from`.
    pub fn last(self, text: &str, from: usize) -> Option<usize> {
        if self == Self::default() {
            return None;
        }
        let from = two_characters_before(text, from);
        let places = self.places(text.get(from..)?);
        Some(from + places.last()?)
    }

    /// Returns all safe positions in `text`, in order.
    pub(super) fn places(self, text: &str) -> impl Iterator<Item = usize> {
        let middle = text.char_indices().skip(1);
        let triples = text.chars().zip(middle).zip(text.chars().skip(2));
        triples.filter_map(move |((before, (at, sign)), after)| {
            let between_words = before.is_alphanumeric() && after.is_alphanumeric();
            let is_safe = match sign {
                ' ' if between_words => self.words,
                ' ' => self.signs && is_visible(before) && is_visible(after),
                _ => self.clauses && between_words && CLAUSE_ENDS.contains(&sign),
            };
            is_safe.then_some(at)
        })
    }
}

fn is_visible(character: char) -> bool {
    character.is_ascii_graphic() || character.is_alphanumeric()
}

/// Returns the position two characters before `from`. Whether a position is safe depends on three characters, and the
/// third may have arrived just now.
fn two_characters_before(text: &str, from: usize) -> usize {
    let before = text.get(..from).unwrap_or_default().chars().rev();
    let bytes: usize = before.take(2).map(char::len_utf8).sum();
    from - bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Cuts = Cuts { words: true, signs: true, clauses: true };

    #[test]
    fn finds_positions_before_a_single_sign_between_letters() {
        for (text, places) in [
            ("", &[][..]),
            ("a b", &[1]),
            ("a  b", &[]),
            ("a b c", &[1, 3]),
            ("a. b", &[2]),
            ("= (", &[1]),
            ("a  =", &[]),
            ("“ b", &[]),
            ("a b.", &[1]),
            (" a b ", &[2]),
            ("a\nb", &[]),
            ("好，世", &[3]),
            ("好，“世", &[]),
            ("é é", &[2]),
            ("1 2", &[1]),
        ] {
            assert_eq!(ALL.places(text).collect::<Vec<_>>(), places, "{text:?}");
        }
        let none = Cuts::default();
        assert_eq!(none.places("a b，c").count(), 0);
        assert_eq!(none.last("a b，c", 0), None);
        let words = Cuts { words: true, ..none };
        assert_eq!(words.places("a b，c = d").collect::<Vec<_>>(), [1]);
        let signs = Cuts { signs: true, ..none };
        assert_eq!(signs.places("a b，c = d").collect::<Vec<_>>(), [7, 9]);
    }

    #[test]
    fn finds_a_position_once_when_its_last_character_arrives() {
        let text = "hé lo，世 b";
        let mut found = Vec::new();
        for (at, character) in text.char_indices() {
            let now = text.get(..at + character.len_utf8()).unwrap();
            found.extend(ALL.last(now, at));
        }
        assert_eq!(found, ALL.places(text).collect::<Vec<_>>());
        assert_eq!(ALL.last(text, 0), found.last().copied());
    }
}
