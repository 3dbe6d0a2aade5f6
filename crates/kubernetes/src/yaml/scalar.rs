//! Values of YAML scalars, as Kubernetes reads them and as other YAML parsers may read them.

use serde_json::{Number, Value};
use serde_saphyr::granit_parser::{ScalarStyle, Tag};

use super::YamlError;

/// Returns the value of a scalar. A tag such as `!!str` sets the type.
pub(super) fn scalar_value(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    line: usize,
) -> Result<Value, YamlError> {
    let plain = || {
        plain_value(text).ok_or_else(|| YamlError::NotJsonNumber { line, text: text.to_owned() })
    };
    let string = || Ok(Value::String(text.to_owned()));
    let Some(tag) = tag else {
        return if style == ScalarStyle::Plain { plain() } else { string() };
    };
    if tag.handle().is_empty() && tag.suffix() == "!" {
        return string();
    }
    let tag = match tag.core_suffix() {
        Some("str") => return string(),
        Some(tag @ ("bool" | "float" | "int" | "null")) => tag,
        _ => return Err(unsupported_tag(tag, line)),
    };
    match (tag, plain()?) {
        ("bool", value @ Value::Bool(_)) | ("null", value @ Value::Null) => Ok(value),
        ("int", Value::Number(number)) if !number.is_f64() => Ok(Value::Number(number)),
        ("float", Value::Number(number)) => Ok(number.as_f64().into()),
        _ => Err(YamlError::TagMismatch { line, text: text.to_owned(), tag: tag.to_owned() }),
    }
}

/// Returns an error if a list or mapping has a tag other than the expected one.
pub(super) fn check_tag(tag: Option<&Tag>, expected: &str, line: usize) -> Result<(), YamlError> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema_tag(expected) => Err(unsupported_tag(tag, line)),
        Some(_) | None => Ok(()),
    }
}

fn unsupported_tag(tag: &Tag, line: usize) -> YamlError {
    YamlError::UnsupportedTag { line, tag: format!("{}{}", tag.original_handle(), tag.suffix()) }
}

/// Returns the value that Kubernetes reads from an unquoted scalar. Returns `None` for `.inf` and `.nan`, which JSON
/// does not support.
///
/// Source: `resolve.go` of `go.yaml.in/yaml/v2`, which `sigs.k8s.io/yaml` uses.
fn plain_value(text: &str) -> Option<Value> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => return None,
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    })
}

/// Parses a number. Returns `None` for other text, such as a date, which Kubernetes reads as a string.
fn number(text: &str) -> Option<Number> {
    if text.starts_with('.') {
        return float(text);
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-')) {
        return None;
    }
    let digits = text.replace('_', "");
    integer(&digits).or_else(|| float(&digits))
}

/// Parses an integer with the rules of Go's `strconv.ParseInt` with base 0, such as `0x1f` or `0o17`.
fn integer(text: &str) -> Option<Number> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let prefixes = [("0x", 16), ("0o", 8), ("0b", 2), ("0", 8)];
    let (base, digits) = prefixes
        .into_iter()
        .find_map(|(prefix, base)| Some((base, lower.strip_prefix(prefix)?)))
        .filter(|_| lower != "0")
        .unwrap_or((10, &lower));
    if !digits.chars().all(|c| c.is_digit(base)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, base).ok()?;
    if is_negative {
        return 0_i64.checked_sub_unsigned(magnitude).map(Number::from);
    }
    // Go reads larger numbers with `ParseUint`, which rejects a plus sign.
    if text.starts_with('+') && i64::try_from(magnitude).is_err() {
        return None;
    }
    Some(Number::from(magnitude))
}

/// Parses a finite number such as `-1.5e3`. The syntax is `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
/// Rust's `f64::from_str` has the same syntax, but also accepts names for infinity and NaN.
fn float(text: &str) -> Option<Number> {
    let is_named = text.contains(|c: char| !c.is_ascii_digit() && !"+-.eE".contains(c));
    Number::from_f64(text.parse().ok().filter(|_| !is_named)?)
}

/// Converts a mapping key to a string, as Kubernetes does. Returns `None` for null, and for fractions that Go would
/// write with an exponent.
pub(super) fn key(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) if number.is_f64() => fraction(number.as_f64()?),
        Value::Number(number) if number.is_i64() => Some(number.to_string()),
        Value::Number(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Formats a fraction in the same way as Go's `strconv.FormatFloat(…, 'g', -1, 32)`.
#[expect(clippy::cast_possible_truncation, reason = "sigs.k8s.io/yaml writes keys with 32 bits")]
fn fraction(value: f64) -> Option<String> {
    let value = value as f32;
    let size = value.abs();
    let has_no_exponent = (1e-4..1e6).contains(&size) || size == 0.0;
    has_no_exponent.then(|| value.to_string())
}

/// Returns whether a string can be written without quotes, because parsers of every YAML version read the same string
/// back. If in doubt, returns false, which only adds quotes.
pub(super) fn is_plain_string(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    let is_indicator = "-?:,[]{}#&*!|>'\"%@`=<".contains(first);
    let is_flag = first == '-' && text.trim_start_matches('-').starts_with(char::is_alphabetic);
    let is_harmless = |c: char| {
        c == ' '
            || (c.is_ascii_graphic() && !",[]{}".contains(c))
            || (!c.is_ascii() && c.is_alphanumeric())
    };
    (!is_indicator || is_flag)
        && !text.starts_with([' '])
        && !text.starts_with("---")
        && text.chars().all(is_harmless)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && matches!(plain_value(text), Some(Value::String(_)))
        && !may_be_number(text)
}

/// Returns whether some YAML parser may read the unquoted text as a number or a date. Numbers include integers,
/// fractions and base 60 numbers such as `1:30`.
fn may_be_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    let has_base = ["0x", "0o", "0b"].iter().any(|base| lower.starts_with(base));
    let rest = lower.trim_start_matches(|c: char| c.is_ascii_digit() || "_.:,".contains(c));
    let starts_like_number = lower.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let is_exponent = rest
        .strip_prefix('e')
        .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b"+-".contains(&b)));
    let starts_like_date = lower.len() >= 6
        && lower.bytes().take(4).all(|byte| byte.is_ascii_digit())
        && lower.as_bytes().get(4) == Some(&b'-');
    has_base
        || starts_like_date
        || matches!(lower.as_str(), ".inf" | ".nan" | "null" | "true" | "false")
        || (starts_like_number
            && lower.matches('.').count() <= 1
            && (rest.is_empty() || is_exponent))
}
