//! Writes values as YAML text that every YAML version reads as the same values.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::scalar;
use super::style::Style;

/// Text of a value after the colon of a key or after the dash of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EntryValue {
    /// Text in the same line, starting with a blank. Empty if the value starts in the next line.
    pub(super) head: String,
    /// Complete lines below the key or the dash, with indentation and line ends.
    pub(super) below: String,
}

/// Keys that are written first, such as `name`. The other keys follow in alphabetical order, as in the output of
/// kubectl.
const FIRST_KEYS: [&str; 8] =
    ["apiVersion", "kind", "metadata", "name", "image", "key", "command", "args"];

/// Returns the text of a mapping value. `column` is the column of its key.
pub(super) fn mapping_value(value: &Value, column: usize, style: &Style) -> EntryValue {
    let inner = column + style.mapping_indent;
    match block(value, inner, column + style.list_indent, style) {
        Some(below) => EntryValue { head: String::new(), below },
        // A null value is written as a key without a value, such as `env:`. Templates often use this form.
        None if value.is_null() => EntryValue { head: String::new(), below: String::new() },
        None => leaf(value, inner, style),
    }
}

/// Returns the text of a list item. `column` is the column of its dash.
pub(super) fn item_value(value: &Value, column: usize, style: &Style) -> EntryValue {
    let column = column + 2;
    let Some(block) = block(value, column, column, style) else {
        return leaf(value, column, style);
    };
    let (head, below) = block.split_once(style.newline).unwrap_or((&block, ""));
    EntryValue { head: format!(" {}", head.trim_start()), below: below.to_owned() }
}

/// Returns the lines of a mapping entry or, if `key` is `None`, of a list item. The entry starts in `column`.
pub(super) fn entry(key: Option<&str>, value: &Value, column: usize, style: &Style) -> String {
    let (start, EntryValue { head, below }) = match key {
        Some(key) => (format!("{}:", string(key)), mapping_value(value, column, style)),
        None => ("-".to_owned(), item_value(value, column, style)),
    };
    format!("{}{start}{head}{}{below}", indent(column), style.newline)
}

/// Returns the text of a whole document. The text of a scalar has no line end.
pub(super) fn document(value: &Value, style: &Style) -> String {
    block(value, 0, 0, style).unwrap_or_else(|| inline(value))
}

/// Returns the entries of a mapping in the column `keys`, or the items of a list in the column `dashes`. Returns
/// `None` for a scalar or an empty collection.
fn block(value: &Value, keys: usize, dashes: usize, style: &Style) -> Option<String> {
    let lines: String = match value {
        Value::Object(entries) => {
            let entries = ordered(entries).into_iter();
            entries.map(|(key, value)| entry(Some(key), value, keys, style)).collect()
        }
        Value::Array(items) => items.iter().map(|item| entry(None, item, dashes, style)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    };
    Some(lines).filter(|lines| !lines.is_empty())
}

pub(super) fn ordered(entries: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut ordered: Vec<_> = entries.iter().collect();
    let rank = |key: &str| FIRST_KEYS.iter().position(|first| *first == key);
    ordered.sort_by_key(|(key, _)| rank(key).unwrap_or(FIRST_KEYS.len()));
    ordered
}

pub(super) fn indent(column: usize) -> String {
    " ".repeat(column)
}

/// Returns the text of a scalar or an empty collection. A string with several lines becomes a literal block (`|`) in
/// `column`.
fn leaf(value: &Value, column: usize, style: &Style) -> EntryValue {
    if let Value::String(text) = value
        && style.literals
        && let Some(chomping) = literal_chomping(text)
    {
        let line = |line: &str| {
            let indent = if line.is_empty() { String::new() } else { indent(column) };
            format!("{indent}{line}{}", style.newline)
        };
        let below = text.lines().map(line).collect();
        return EntryValue { head: format!(" |{chomping}"), below };
    }
    EntryValue { head: format!(" {}", inline(value)), below: String::new() }
}

/// Returns the chomping indicator of a literal block (`|`): `-` or empty. Returns `None` if some parser would not read
/// the same text back.
fn literal_chomping(text: &str) -> Option<&'static str> {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let fits = body.contains('\n')
        && !body.starts_with([' ', '\n', '#'])
        && !body.ends_with('\n')
        && text.chars().all(|c| c == '\n' || is_visible(c))
        && text.lines().all(|line| line.is_empty() || !line.trim().is_empty());
    fits.then_some(if text.ends_with('\n') { "" } else { "-" })
}

/// Writes a scalar or an empty collection in one line.
pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => number(&value.to_string()),
        Value::String(value) => string(value),
        Value::Array(_) => "[]".to_owned(),
        Value::Object(_) => "{}".to_owned(),
    }
}

/// Writes a number with an exponent. YAML 1.1 requires a fraction and a sign, as in `1.0e+3`.
fn number(json: &str) -> String {
    let Some((mantissa, exponent)) = json.split_once('e') else { return json.to_owned() };
    let fraction = if mantissa.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
    format!("{mantissa}{fraction}e{sign}{exponent}")
}

fn string(text: &str) -> String {
    if scalar::is_plain_string(text) {
        text.to_owned()
    } else if text.contains(['"', '\\']) && !text.contains('\'') && text.chars().all(is_visible) {
        // Single quotes keep JSON in annotations readable.
        format!("'{text}'")
    } else {
        quoted(text)
    }
}

fn is_visible(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric()
}

/// Writes a string in double quotes, with JSON escapes, which YAML supports.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    for c in Value::from(text).to_string().chars() {
        if needs_escape(c) {
            escape(c, &mut quoted);
        } else {
            quoted.push(c);
        }
    }
    quoted
}

/// Returns whether a character must be escaped: control characters, invisible characters, line ends of YAML 1.1, and
/// characters for private use.
fn needs_escape(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{a0}' | '\u{2028}'..='\u{202e}' | '\u{200b}'..='\u{200f}' | '\u{feff}')
        || matches!(c, '\u{fff0}'..='\u{ffff}' | '\u{e000}'..='\u{f8ff}')
}

fn escape(c: char, out: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        // Writing to a string cannot fail.
        let _written = write!(out, "\\u{unit:04x}");
    }
}
