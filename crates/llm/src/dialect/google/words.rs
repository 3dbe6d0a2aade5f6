//! The words for why a candidate ended or a prompt was refused.
//!
//! A client may ask for enums as integers (`enum-encoding=int`, which some of Google's own libraries do). Those that
//! Gemini and Vertex AI number alike are given back their names; the others stay digits, because one number stands for
//! two words.

const FINISH: [&str; 6] =
    ["FINISH_REASON_UNSPECIFIED", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER"];

const BLOCK: [&str; 5] =
    ["BLOCK_REASON_UNSPECIFIED", "SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT"];

/// Why a candidate ended; `None` where nothing is said.
pub fn finish(word: &str) -> Option<&str> {
    named(word, &FINISH)
}

/// Why a prompt was refused; `None` where it was not.
pub fn block(word: &str) -> Option<&str> {
    named(word, &BLOCK)
}

fn named<'a>(word: &'a str, names: &[&'static str]) -> Option<&'a str> {
    let number = word.parse::<usize>().ok();
    let word = number.and_then(|number| names.get(number).copied()).unwrap_or(word);
    // The first value of an enum stands for none.
    (!word.is_empty() && !word.ends_with("_UNSPECIFIED")).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_words_where_both_apis_agree() {
        let told = |word| (finish(word), block(word));
        assert_eq!(told("1"), (Some("STOP"), Some("SAFETY")));
        assert_eq!(told("5"), (Some("OTHER"), Some("5")));
        assert_eq!(told("12"), (Some("12"), Some("12")));
        assert_eq!(told("NEW_WORD"), (Some("NEW_WORD"), Some("NEW_WORD")));
        for none in ["", "0", "FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"] {
            assert_eq!(told(none), (None, None), "{none}");
        }
    }
}
