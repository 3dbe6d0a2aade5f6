//! Values → YAML that every reader reads as these values.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::scalar;
use super::style::Style;

/// What stands behind a key's colon or an item's dash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// On the same line, with the blank before it; may be empty.
    pub(super) head: String,
    /// The lines below, each with its indentation and its end; may be empty.
    pub(super) below: String,
}

/// What a reader looks for first; other keys follow by the alphabet, as kubectl writes them.
const FIRST: [&str; 8] =
    ["apiVersion", "kind", "metadata", "name", "image", "key", "command", "args"];

/// Behind the colon of a key in `column`.
pub(super) fn behind_key(value: &Value, column: usize, style: &Style) -> Written {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            let column = column + style.step;
            Written { head: String::new(), below: lines(&mapping(entries, column, style), column) }
        }
        Value::Array(items) if !items.is_empty() => {
            let column = column + style.dash;
            Written { head: String::new(), below: lines(&sequence(items, column, style), column) }
        }
        // `env:`, as templates leave it.
        Value::Null => Written { head: String::new(), below: String::new() },
        Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => single(value, column + style.step, style),
    }
}

/// Behind a dash in `column`.
pub(super) fn behind_dash(value: &Value, column: usize, style: &Style) -> Written {
    let column = column + 2;
    let block = match value {
        Value::Object(entries) if !entries.is_empty() => mapping(entries, column, style),
        Value::Array(items) if !items.is_empty() => sequence(items, column, style),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => return single(value, column, style),
    };
    let block = lines(&block, column);
    let (head, below) = match block.split_once(style.newline) {
        Some((head, below)) => (head, below),
        None => (block.as_str(), ""),
    };
    Written { head: format!(" {}", head.trim_start()), below: below.to_owned() }
}

/// An entry of a mapping in `column`: whole lines, the first without its indentation.
pub(super) fn entry(key: &str, value: &Value, column: usize, style: &Style) -> String {
    let Written { head, below } = behind_key(value, column, style);
    format!("{}:{head}{}{below}", text(key), style.newline)
}

/// An item of a sequence in `column`: whole lines, the first without its indentation.
pub(super) fn item(value: &Value, column: usize, style: &Style) -> String {
    let Written { head, below } = behind_dash(value, column, style);
    format!("-{head}{}{below}", style.newline)
}

/// A whole document's content, from column 0 on; without an end where it is a single value.
pub(super) fn root(value: &Value, style: &Style) -> String {
    match value {
        Value::Object(entries) if !entries.is_empty() => lines(&mapping(entries, 0, style), 0),
        Value::Array(items) if !items.is_empty() => lines(&sequence(items, 0, style), 0),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => inline(value),
    }
}

fn mapping(entries: &Map<String, Value>, column: usize, style: &Style) -> Vec<String> {
    ordered(entries).into_iter().map(|(key, value)| entry(key, value, column, style)).collect()
}

fn sequence(items: &[Value], column: usize, style: &Style) -> Vec<String> {
    let item = |value| item(value, column, style);
    items.iter().map(item).collect()
}

pub(super) fn ordered(entries: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut ordered: Vec<_> = entries.iter().collect();
    let place = |key: &str| FIRST.iter().position(|first| *first == key);
    ordered.sort_by_key(|(key, _)| place(key).unwrap_or(FIRST.len()));
    ordered
}

fn lines(blocks: &[String], column: usize) -> String {
    let indented = |block: &String| format!("{}{block}", indent(column));
    blocks.iter().map(indented).collect()
}

pub(super) fn indent(column: usize) -> String {
    " ".repeat(column)
}

/// A value without values in it. Text of several lines stands below, in `column`.
fn single(value: &Value, column: usize, style: &Style) -> Written {
    if let Value::String(text) = value
        && style.literals
        && let Some(chomping) = literal(text)
    {
        let line = |line: &str| match line {
            "" => style.newline.to_owned(),
            line => format!("{}{line}{}", indent(column), style.newline),
        };
        return Written { head: format!(" |{chomping}"), below: text.lines().map(line).collect() };
    }
    Written { head: format!(" {}", inline(value)), below: String::new() }
}

/// The chomping indicator where this text can stand as a literal block that reads back the same everywhere.
fn literal(text: &str) -> Option<&'static str> {
    let body = text.strip_suffix('\n').unwrap_or(text);
    let seen = |c: char| c == '\n' || c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric();
    let fits = body.contains('\n')
        && !body.starts_with([' ', '\n', '#'])
        && !body.ends_with('\n')
        && text.chars().all(seen)
        && text.lines().all(|line| line.is_empty() || !line.trim().is_empty());
    fits.then_some(if text.ends_with('\n') { "" } else { "-" })
}

pub(super) fn inline(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => self::number(&number.to_string()),
        Value::String(value) => text(value),
        Value::Array(_) => "[]".to_owned(),
        Value::Object(_) => "{}".to_owned(),
    }
}

/// YAML 1.1 wants a fraction and a sign where there is an exponent.
fn number(json: &str) -> String {
    let Some((mantissa, exponent)) = json.split_once('e') else {
        return json.to_owned();
    };
    let fraction = if mantissa.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
    format!("{mantissa}{fraction}e{sign}{exponent}")
}

fn text(text: &str) -> String {
    let seen = |c: char| c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric();
    if scalar::is_plain_everywhere(text) {
        text.to_owned()
    } else if text.contains(['"', '\\']) && !text.contains('\'') && text.chars().all(seen) {
        // JSON in an annotation stays readable.
        format!("'{text}'")
    } else {
        quoted(text)
    }
}

/// Between double quotes, with JSON's escapes, which are YAML's too.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if is_invisible(c) => escape(c, &mut quoted),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Control characters, breaks and blanks that YAML 1.1 takes for line ends or that nobody sees, and what is no character.
fn is_invisible(c: char) -> bool {
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
