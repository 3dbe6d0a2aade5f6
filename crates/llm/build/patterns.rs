//! The split patterns of the encodings, in a form that a finite automaton can follow.
//!
//! The published patterns end in `\s+(?!\S)|\s+`, and a look-ahead is not regular. Three patterns in order of priority
//! say the same: (0) everything before the look-ahead, and white space up to the end of the text; (1) two or more white
//! space characters, of which the last is given back (it begins the next piece: ` word`); (2) a single one. At the end
//! of the text (0) outranks (1); before a visible character only (1) and (2) are left. Possessive quantifiers (`++`)
//! become greedy ones: in these patterns giving characters back never makes a match.

/// The pattern of [`o200k`], [`cl100k`] and [`p50k`] whose match ends before its last character.
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

/// GPT-2's: contractions in lower case only, digits not grouped, and newlines like any other white space.
pub fn p50k() -> [String; 3] {
    const FIRST: [&str; 5] =
        [r"'(?:[sdmt]|ll|ve|re)", r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+", r"\s+$"];
    [FIRST.join("|"), r"\s+\s".to_owned(), r"\s".to_owned()]
}
