//! Durations in PromQL expressions.

use crate::alerts::span::{Divisor, Span};

/// Divides each duration in `expr`, such as windows, offsets and subquery steps.
///
/// A duration is a word that begins with a digit and that [`Span`] can parse. Names such as `rate5m` do not begin with
/// a digit and are not changed. Quoted text is skipped.
pub(super) fn divided(expr: &str, by: Divisor) -> String {
    let mut out = String::with_capacity(expr.len());
    let mut rest = expr;
    while let Some(first) = rest.chars().next() {
        let length = token(rest, first);
        let (token, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        match token.parse::<Span>() {
            Ok(span) if first.is_ascii_digit() => out.push_str(&by.divide(span).to_string()),
            Ok(_) | Err(_) => out.push_str(token),
        }
        rest = after;
    }
    out
}

/// Returns the length in bytes of the first token of `text`. A token is a quoted text, a word (a name, number
/// or duration) or a single character.
fn token(text: &str, first: char) -> usize {
    match first {
        '"' | '\'' | '`' => quoted(text, first),
        // Inside a name, a colon is part of the name. Between the two durations of a subquery, a colon is a
        // separate token.
        ':' => 1,
        first if first.is_ascii_digit() => end_of(text, |c| c != ':' && is_word(c)),
        first if is_word(first) => end_of(text, is_word),
        first => first.len_utf8(),
    }
}

fn end_of(text: &str, within: impl Fn(char) -> bool) -> usize {
    text.find(|c| !within(c)).unwrap_or(text.len())
}

const fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.')
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped && quote != '`';
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn divides_durations_only() {
        let by = Divisor(NonZeroU32::new(60).unwrap());
        for (expr, expected) in [
            ("rate(x[5m])", "rate(x[5s])"),
            ("x offset 1h30m > 30", "x offset 1m30s > 30"),
            ("max_over_time(a[1d:5m])", "max_over_time(a[24m:5s])"),
            (
                "count_over_time(a:b:c3m[6h:5m] offset 30m) >= 36",
                "count_over_time(a:b:c3m[6m:5s] offset 30s) >= 36",
            ),
            ("slo:sli_error:ratio_rate5m", "slo:sli_error:ratio_rate5m"),
            ("x{w=\"5m\", y='\\'5m'}[1m]", "x{w=\"5m\", y='\\'5m'}[1s]"),
            ("x > 14.4 and y > 1e3", "x > 14.4 and y > 1e3"),
            (
                "label_replace(x, \"a\", `5m\\`, \"\", \"1m\")",
                "label_replace(x, \"a\", `5m\\`, \"\", \"1m\")",
            ),
        ] {
            assert_eq!(divided(expr, by), expected);
        }
    }
}
