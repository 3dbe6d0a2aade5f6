//! What a word without quotes means: to Kubernetes, and to any reader of YAML.

use serde_json::{Number, Value};

/// What Kubernetes reads (`sigs.k8s.io/yaml`, that is `go.yaml.in/yaml/v2`, `resolve.go`).
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Meaning {
    Value(Value),
    /// `.inf` and `.nan`.
    NoJsonNumber,
}

pub(super) fn meaning(text: &str) -> Meaning {
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => return Meaning::NoJsonNumber,
        _ => number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number),
    };
    Meaning::Value(value)
}

/// Dates stay text, as they do for Kubernetes.
fn number(text: &str) -> Option<Number> {
    if text.starts_with('.') {
        return float(text);
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-')) {
        return None;
    }
    let plain = text.replace('_', "");
    integer(&plain).or_else(|| float(&plain))
}

/// As Go's `strconv.ParseInt` with base 0.
fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = if let Some(digits) = lower.strip_prefix("0x") {
        (16, digits)
    } else if let Some(digits) = lower.strip_prefix("0o") {
        (8, digits)
    } else if let Some(digits) = lower.strip_prefix("0b") {
        (2, digits)
    } else if lower.len() > 1
        && let Some(digits) = lower.strip_prefix('0')
    {
        (8, digits)
    } else {
        (10, lower.as_str())
    };
    if !digits.chars().all(|c| c.is_digit(base)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, base).ok()?;
    if negative {
        return 0_i64.checked_sub_unsigned(magnitude).map(Number::from);
    }
    // Only `ParseInt` takes a plus sign.
    if text.starts_with('+') && i64::try_from(magnitude).is_err() {
        return None;
    }
    Some(Number::from(magnitude))
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`, and finite.
fn float(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let well_formed = match mantissa.split_once('.') {
        Some(("", after)) => digits(after),
        Some((before, after)) => digits(before) && (after.is_empty() || digits(after)),
        None => digits(mantissa),
    };
    let exponent = exponent.map(|text| text.strip_prefix(['-', '+']).unwrap_or(text));
    if !well_formed || !exponent.is_none_or(digits) {
        return None;
    }
    Number::from_f64(text.parse().ok()?)
}

/// The text of a key: Kubernetes writes keys that are no strings as JSON would. `None` for a null, and for a fraction of
/// which Go would write an exponent.
pub(super) fn key(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) if number.is_f64() => fraction(number.as_f64()?),
        Value::Number(number) if number.is_i64() => Some(number.to_string()),
        Value::Number(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// As Go's `strconv.FormatFloat(…, 'g', -1, 32)`.
#[expect(clippy::cast_possible_truncation, reason = "sigs.k8s.io/yaml writes keys with 32 bits")]
fn fraction(value: f64) -> Option<String> {
    let short = value as f32;
    let size = short.abs();
    let usual = (1e-4..1e6).contains(&size) || size == 0.0;
    usual.then(|| short.to_string())
}

/// If every reader of YAML, of whatever version, takes these characters for this very string where no quotes stand. Too
/// strict is no error: such a text is quoted.
pub(super) fn is_plain_everywhere(text: &str) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    let indicator = "-?:,[]{}#&*!|>'\"%@`=<".contains(first);
    let dashed = first == '-' && text.trim_start_matches('-').starts_with(char::is_alphabetic);
    let harmless = |c: char| {
        c == ' '
            || (c.is_ascii_graphic() && !",[]{}".contains(c))
            || (!c.is_ascii() && c.is_alphanumeric())
    };
    let begins = (!indicator || dashed) && !text.starts_with([' ']) && !text.starts_with("---");
    begins
        && text.chars().all(harmless)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && meaning(text) == Meaning::Value(Value::String(text.to_owned()))
        && !is_number_somewhere(text)
}

/// Integers, fractions, base 60 and dates of YAML 1.1 and 1.2, and some more that nobody reads as such.
fn is_number_somewhere(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    let based = ["0x", "0o", "0b"].iter().any(|base| lower.starts_with(base));
    let dots = lower.matches('.').count();
    let bare = lower.trim_start_matches(|c: char| c.is_ascii_digit() || "_.:,".contains(c));
    let begins = lower.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let exponent = bare
        .strip_prefix('e')
        .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b"+-".contains(&b)));
    let dated = lower.len() >= 6
        && lower.bytes().take(4).all(|byte| byte.is_ascii_digit())
        && lower.as_bytes().get(4) == Some(&b'-');
    based
        || dated
        || matches!(lower.as_str(), ".inf" | ".nan" | "null" | "true" | "false")
        || (begins && dots <= 1 && (bare.is_empty() || exponent))
}
