//! A scalar and its tag → the value that both say.

use serde_json::Value;
use serde_saphyr::granit_parser::{ScalarStyle, Tag};

use super::error::Error;
use super::scalar::{self, Meaning};

pub(super) fn scalar_value(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    line: usize,
) -> Result<Value, Error> {
    let string = || Ok(Value::String(text.to_owned()));
    let Some(tag) = tag else {
        if style != ScalarStyle::Plain {
            return string();
        }
        return plain(text, line);
    };
    if tag.handle().is_empty() && tag.suffix() == "!" {
        return string();
    }
    let wanted = match tag.core_suffix() {
        Some("str") => return string(),
        Some(wanted @ ("bool" | "float" | "int" | "null")) => wanted,
        _ => return Err(unread(tag, line)),
    };
    match (wanted, plain(text, line)?) {
        ("bool", value @ Value::Bool(_)) | ("null", value @ Value::Null) => Ok(value),
        ("int", Value::Number(number)) if !number.is_f64() => Ok(Value::Number(number)),
        ("float", Value::Number(number)) => Ok(number.as_f64().into()),
        _ => Err(Error::NotOfTag { line, text: text.to_owned(), tag: wanted.to_owned() }),
    }
}

fn plain(text: &str, line: usize) -> Result<Value, Error> {
    match scalar::meaning(text) {
        Meaning::Value(value) => Ok(value),
        Meaning::NoJsonNumber => Err(Error::NoJsonNumber { line, text: text.to_owned() }),
    }
}

pub(super) fn expect_tag(tag: Option<&Tag>, wanted: &str, line: usize) -> Result<(), Error> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema_tag(wanted) => Err(unread(tag, line)),
        Some(_) | None => Ok(()),
    }
}

fn unread(tag: &Tag, line: usize) -> Error {
    Error::Tag { line, tag: format!("{}{}", tag.original_handle(), tag.suffix()) }
}
