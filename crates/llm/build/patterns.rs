//! The split patterns of the encodings, in a form that a finite automaton can execute.
//!
//! The published patterns end in `\s+(?!\S)|\s+`. A look-ahead is not regular. Three patterns in order of priority are
//! equivalent:
//!
//! - 0: everything before the look-ahead, and white space up to the end of the text.
//! - 1: two or more white space characters, without the last one, which begins the next piece (` word`).
//! - 2: a single white space character.
//!
//! At the end of the text, pattern 0 has priority over pattern 1. Before a visible character, only 1 and 2 can match.
//! Possessive quantifiers (`++`) become greedy quantifiers. In these patterns, backtracking into such a quantifier
//! never produces a match.

/// Index of the pattern in [`o200k`], [`cl100k`] and [`p50k`] whose piece excludes the last matched character.
pub const DROPS_LAST: usize = 1;

pub fn o200k() -> [String; 3] {
    const UPPER: &str = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]";
    const LOWER: &str = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]";
    const CONTRACTION: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
    let first = [
        format!(r"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTION}"),
        format!(r"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTION}"),
        r"\p{N}{1,3}".to_owned(),
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*".to_owned(),
        r"\s*[\r\n]+".to_owned(),
        r"\s+$".to_owned(),
    ];
    [first.join("|"), r"\s+\s".to_owned(), r"\s+".to_owned()]
}

pub fn cl100k() -> [String; 3] {
    const FIRST: [&str; 6] = [
        r"'(?i:[sdmt]|ll|ve|re)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s+$",
        r"\s*[\r\n]",
    ];
    [FIRST.join("|"), r"\s+\s".to_owned(), r"\s".to_owned()]
}

/// Returns the GPT-2 patterns: lower-case contractions, ungrouped digits, newlines treated like other white space.
pub fn p50k() -> [String; 3] {
    const FIRST: [&str; 5] =
        [r"'(?:[sdmt]|ll|ve|re)", r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+", r"\s+$"];
    [FIRST.join("|"), r"\s+\s".to_owned(), r"\s".to_owned()]
}
