//! Reads token counts, and recognizes numbers that no call can have.
//!
//! A number that is negative, not whole or too large is read as [`IMPLAUSIBLE`]. Sums saturate, so a sum with such a
//! number is implausible, too. Before counts leave a format, implausible ones are replaced by a parse error.

use super::lenient::{FromAny, impl_lenient, record_misfit, whole};

/// Maximum plausible token count of one call: 100 times the longest context window, 10 million tokens. A larger number
/// is an error of the server, such as a negative number that was written without its sign, and would make counters and
/// cost useless.
pub const MAX_TOKENS: u64 = 1_000_000_000;

/// Replaces every number that is not plausible.
pub const IMPLAUSIBLE: u64 = u64::MAX;

/// A token count of a message. It may be written as a string.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TokenCount(pub Option<u64>);

impl FromAny<'_> for TokenCount {
    fn copied(text: &str) -> Self {
        let count = parse_token_count(text);
        if count.is_none() && !text.is_empty() {
            record_misfit();
        }
        Self(count)
    }

    fn number(number: u64) -> Self {
        Self(Some(if number <= MAX_TOKENS { number } else { IMPLAUSIBLE }))
    }

    fn float(number: f64) -> Self {
        Self(Some(token_count(number)))
    }
}

impl_lenient! {
    impl[] TokenCount;
}

/// Returns a number as a token count.
pub fn token_count(number: f64) -> u64 {
    whole(number).filter(|tokens| *tokens <= MAX_TOKENS).unwrap_or(IMPLAUSIBLE)
}

/// Parses a token count. Returns `None` if the text is not a number.
pub fn parse_token_count(text: &str) -> Option<u64> {
    text.trim().parse().ok().map(token_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plausible_numbers_are_counts() {
        for (json, expected) in [
            ("0", Some(0)),
            ("76.0", Some(76)),
            ("\"12\"", Some(12)),
            ("1e9", Some(MAX_TOKENS)),
            ("1000000000", Some(MAX_TOKENS)),
            ("1000000001", Some(IMPLAUSIBLE)),
            ("1e12", Some(IMPLAUSIBLE)),
            ("9223372036854775807", Some(IMPLAUSIBLE)),
            ("18446744073709551615", Some(IMPLAUSIBLE)),
            ("-9223372036854775808", Some(IMPLAUSIBLE)),
            ("1e300", Some(IMPLAUSIBLE)),
            ("-1", Some(IMPLAUSIBLE)),
            ("\"-1\"", Some(IMPLAUSIBLE)),
            ("12.5", Some(IMPLAUSIBLE)),
            ("\"many\"", None),
            ("null", None),
            ("{}", None),
            ("true", None),
        ] {
            let actual: TokenCount = serde_json::from_str(json).unwrap();
            assert_eq!(actual.0, expected, "{json}");
        }
    }
}
