//! Parser for metrics pages in the Prometheus text format 0.0.4. OpenMetrics pages work too, because their samples have
//! the same form.
//!
//! The parser reads line by line in one pass and does not copy the page. A malformed line yields `None`, and parsing
//! continues. Comments (`HELP`, `TYPE`, `UNIT`, `EOF`), timestamps and exemplars are ignored, because the proxy needs
//! only names, labels and values.

use std::borrow::Cow;

/// Maximum length of a line in bytes; longer lines count as malformed. The longest lines of known engines list every
/// option of a cache as a label, and are far shorter.
const MAX_LINE_BYTES: usize = 16 << 10;

/// Maximum number of labels of a sample. Engines write about ten labels; the default limit of Prometheus is 30.
const MAX_LABELS: usize = 64;

/// One sample: `name{labels} value`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    pub name: &'a str,
    /// Validated text between the braces.
    labels: &'a str,
    /// Any float, including NaN and infinity.
    pub value: f64,
}

/// Returns the samples of `body`, in order. `None` means a malformed line. Comments and empty lines are skipped.
pub fn samples(body: &[u8]) -> impl Iterator<Item = Option<Sample<'_>>> {
    body.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.trim_ascii();
        let says_something = !line.is_empty() && line.first() != Some(&b'#');
        says_something.then(|| sample(line))
    })
}

impl<'a> Sample<'a> {
    /// Returns the value of the label `key`. As in Prometheus, an absent label has an empty value.
    pub fn label(&self, key: &str) -> Cow<'a, str> {
        let found = self.labels().find(|(name, _)| *name == key);
        found.map(|(_, value)| value).unwrap_or_default()
    }

    /// Returns the labels in the order of the text.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, Cow<'a, str>)> + use<'a> {
        let mut rest = self.labels;
        std::iter::from_fn(move || {
            let (name, value, after) = label(rest)?;
            rest = after;
            Some((name, unescaped(value)))
        })
    }
}

fn sample(line: &[u8]) -> Option<Sample<'_>> {
    if line.len() > MAX_LINE_BYTES {
        return None;
    }
    let line = std::str::from_utf8(line).ok()?;
    let (name, rest) = line.split_at(end_of(line, is_of_metric));
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let rest = rest.trim_ascii_start();
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => braced(inside)?,
        None => ("", rest),
    };
    let value = rest.split_ascii_whitespace().next()?;
    Some(Sample { name, labels, value: number(value)? })
}

/// Splits `inside` at the closing brace. Returns the labels and the text after the brace. `None` if a label is
/// malformed or there are too many.
fn braced(inside: &str) -> Option<(&str, &str)> {
    let mut rest = inside;
    for _ in 0..=MAX_LABELS {
        rest = rest.trim_ascii_start();
        if let Some(after) = rest.strip_prefix('}') {
            let length = inside.len() - rest.len();
            return Some((inside.get(..length)?, after));
        }
        (_, _, rest) = label(rest)?;
    }
    None
}

/// Parses one label `name="value"` and the comma that may follow. Returns the name, the raw value with its escape
/// sequences, and the remaining text.
fn label(text: &str) -> Option<(&str, &str, &str)> {
    let text = text.trim_ascii_start();
    let (name, rest) = text.split_at(end_of(text, is_of_label));
    let quoted = rest.trim_ascii_start().strip_prefix('=')?;
    let value = quoted.trim_ascii_start().strip_prefix('"')?;
    let length = closing_quote(value)?;
    let (value, rest) = (value.get(..length)?, value.get(length + 1..)?);
    let rest = rest.trim_ascii_start();
    let rest = match rest.strip_prefix(',') {
        Some(next) => next,
        None if rest.is_empty() || rest.starts_with('}') => rest,
        None => return None,
    };
    (!name.is_empty()).then_some((name, value, rest))
}

fn closing_quote(value: &str) -> Option<usize> {
    let mut escaped = false;
    value.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}

fn unescaped(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return value.into();
    }
    let mut text = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => match characters.next() {
                Some('n') => text.push('\n'),
                Some(known @ ('\\' | '"')) => text.push(known),
                // Unknown escapes are kept verbatim.
                Some(other) => text.extend(['\\', other]),
                None => text.push('\\'),
            },
            (character, false) => text.push(character),
        }
    }
    text.into()
}

/// Parses a floating-point number as Go writes it, for example `1e+06` or `+Inf`. Rust also accepts words such as
/// `infinity`, which is harmless here.
fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

fn end_of(text: &str, is_inside: fn(u8) -> bool) -> usize {
    text.bytes().position(|byte| !is_inside(byte)).unwrap_or(text.len())
}

const fn is_of_metric(byte: u8) -> bool {
    is_of_label(byte) || byte == b':'
}

const fn is_of_label(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Name, labels and value.
    type Read<'a> = (&'a str, Vec<(&'a str, String)>, f64);

    fn one(line: &str) -> Option<Read<'_>> {
        let sample = samples(line.as_bytes()).next()??;
        let labels = sample.labels().map(|(name, value)| (name, value.into()));
        Some((sample.name, labels.collect(), sample.value))
    }

    #[test]
    fn samples_are_parsed_in_every_form_that_the_formats_allow() {
        let plain = |line| one(line).map(|(name, _, value)| (name, value));
        assert_eq!(plain("a 1"), Some(("a", 1.0)));
        assert_eq!(plain("\t a:b_c \t 2.5e-1\r"), Some(("a:b_c", 0.25)));
        assert_eq!(plain("a 1 1395066363000"), Some(("a", 1.0)));
        assert_eq!(plain("a_total 1 # {trace_id=\"x\"} 0.5 1.2"), Some(("a_total", 1.0)));
        assert_eq!(plain("a{} +Inf"), Some(("a", f64::INFINITY)));
        assert_eq!(plain("a{}-Inf"), Some(("a", f64::NEG_INFINITY)));
        assert!(plain("a NaN").unwrap().1.is_nan());
        assert_eq!(plain("a 1.7976931348623157e+308"), Some(("a", f64::MAX)));
    }

    #[test]
    fn label_values_may_contain_quotes_braces_and_commas() {
        let (_, labels, value) = one(r#"a { x = "} 7", y="\"\\\n\t,é", } 3"#).unwrap();
        let expected = [("x", "} 7".to_owned()), ("y", "\"\\\n\\t,é".to_owned())];
        assert_eq!((labels.as_slice(), value), (expected.as_slice(), 3.0));
        let line = r#"a{x="1",y="2"} 0"#;
        let sample = samples(line.as_bytes()).next().unwrap().unwrap();
        assert_eq!((&*sample.label("y"), &*sample.label("z")), ("2", ""));
    }

    #[test]
    fn a_malformed_line_is_reported_and_the_next_line_is_parsed() {
        for line in [
            "a",
            "a{",
            "a{x} 1",
            "a{x=1} 1",
            "a{x=\"1} 1",
            "a{x=\"1\"",
            "a{x=\"1\"y=\"2\"} 1",
            "a one",
            "1a 1",
            "{\"a.b\"} 1",
            "<html>",
            "\u{e9} 1",
            "a{,} 1",
        ] {
            assert_eq!(one(line), None, "{line}");
        }
        let long = format!("a{{x=\"{}\"}} 1", "y".repeat(MAX_LINE_BYTES));
        assert_eq!(one(&long), None);
        let many = format!("a{{{}}} 1", "x=\"\",".repeat(MAX_LABELS + 1));
        assert_eq!(one(&many), None);
        let body = b"# HELP a b\n\n# TYPE a gauge\n\xff 1\na 1\n# EOF";
        let read: Vec<bool> = samples(body).map(|sample| sample.is_some()).collect();
        assert_eq!(read, [false, true]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(body in proptest::collection::vec(any::<u8>(), 0..400)) {
            for sample in samples(&body).flatten() {
                prop_assert!(sample.labels().count() <= MAX_LABELS);
            }
        }

        #[test]
        fn a_rendered_sample_parses_to_the_same_values(
            name in "[a-z_:][a-z0-9_:]{0,9}",
            labels in proptest::collection::vec(("[a-z_][a-z0-9_]{0,5}", ".{0,9}"), 0..9),
            value in any::<f64>(),
        ) {
            let quote = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let written: Vec<String> = labels.iter().map(|(key, text)| format!("{key}=\"{}\"", quote(text))).collect();
            let line = format!("{name}{{{}}} {value:?} 17", written.join(","));
            let (read_name, read_labels, read_value) = one(&line).unwrap();
            let read_labels: Vec<(String, String)> =
                read_labels.into_iter().map(|(key, text)| (key.to_owned(), text)).collect();
            prop_assert_eq!(read_name, name);
            prop_assert_eq!(read_labels, labels);
            prop_assert!(read_value.to_bits() == value.to_bits() || value.is_nan() && read_value.is_nan());
        }
    }
}
