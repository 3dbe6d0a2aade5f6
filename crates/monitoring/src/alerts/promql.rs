//! PromQL with placeholders for the parts that all rules share, and PromQL durations.

use std::fmt::Display;

use crate::alerts::span::{Divisor, Span};
use crate::alerts::values::Values;

/// Labels that identify a deployment, for both scraped and OTLP series. Labels that a series lacks stay absent.
pub(super) const SCOPE: &str = "cluster, k8s_cluster_name, namespace, k8s_namespace_name, job";

/// A template whose placeholders are words between `<` and `>`:
///
/// - `<scope>`: the labels that identify a deployment, for `by (…)`;
/// - `{<only>}`, or `{<only>, …}`: the configured matchers for every metric selector;
/// - any other: a value passed to [`Template::with`].
#[derive(Clone, Debug)]
pub(super) struct Template {
    marks: Vec<(String, String)>,
}

impl Template {
    pub(super) fn new(values: &Values) -> Self {
        let only = values.selector.as_str();
        let (alone, before) = if only.is_empty() {
            (String::new(), String::new())
        } else {
            (format!("{{{only}}}"), format!("{only}, "))
        };
        Self {
            marks: vec![
                ("<scope>".to_owned(), SCOPE.to_owned()),
                ("{<only>}".to_owned(), alone),
                ("<only>, ".to_owned(), before),
            ],
        }
    }

    /// Adds a value for the placeholder `<name>`.
    pub(super) fn with(mut self, name: &str, value: impl Display) -> Self {
        self.marks.push((format!("<{name}>"), value.to_string()));
        self
    }

    /// Replaces the placeholders in `text` and removes the common indentation of its lines.
    pub(super) fn fill(&self, text: &str) -> String {
        let filled = |text: String, (mark, value): &(String, String)| text.replace(mark, value);
        self.marks.iter().fold(dedented(text), filled)
    }
}

/// Removes the common indentation and the empty lines of `text`.
fn dedented(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let common = lines().map(indent).min().unwrap_or_default();
    let cut: Vec<&str> = lines().filter_map(|line| line.get(common..)).collect();
    cut.join("\n")
}

/// Divides each duration in `expr`: windows, offsets and subquery steps.
///
/// A duration is a word that begins with a digit and that [`Span`] can parse. Names cannot contain such a word
/// (`rate5m` does not begin with a digit). Quoted text is skipped.
pub(super) fn divided(expr: &str, by: Divisor) -> String {
    let mut out = String::with_capacity(expr.len());
    let mut rest = expr;
    while let Some(first) = rest.chars().next() {
        let length = token(rest, first);
        let (token, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        match token.parse::<Span>() {
            Ok(span) if first.is_ascii_digit() => out.push_str(&by.of(span).to_string()),
            Ok(_) | Err(_) => out.push_str(token),
        }
        rest = after;
    }
    out
}

/// Returns the length in bytes of the first token of `text`: quoted text, a word (name, number or duration), or a
/// character.
fn token(text: &str, first: char) -> usize {
    match first {
        '"' | '\'' | '`' => quoted(text, first),
        // A colon belongs to a name only inside it. Between the two durations of a subquery, it is a separate token.
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
    fn durations_are_divided_and_nothing_else_is() {
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

    #[test]
    fn marks_are_filled_and_an_empty_selector_leaves_no_trace() {
        let text = "
            sum by (<scope>) (x{<only>}) > <least>
              and y{<only>, a=\"b\"}
        ";
        let mut values = crate::alerts::values::defaults();
        let template = Template::new(&values).with("least", 5);
        assert_eq!(template.fill(text), format!("sum by ({SCOPE}) (x) > 5\n  and y{{a=\"b\"}}"));
        values.selector = "team=\"a\"".parse().unwrap();
        let template = Template::new(&values).with("least", 5);
        assert_eq!(
            template.fill(text),
            format!("sum by ({SCOPE}) (x{{team=\"a\"}}) > 5\n  and y{{team=\"a\", a=\"b\"}}")
        );
    }
}
