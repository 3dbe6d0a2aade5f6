//! Passes on values in the type that their field expects.
//!
//! Like [`lenient`](crate::dialect::lenient), which does the same for messages that are parsed into structs, this module
//! reads what is meant. A value without a meaning is recorded as a misfit.

use super::value::{Found, Value, ValueSink};
use crate::dialect::lenient::{record_misfit, whole_number};
use crate::dialect::token_count::parse_token_count;

/// The type of a value that a field reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expected {
    /// The format itself checks the type.
    Any,
    /// An object or a list. `may_be_text` is set if a string can contain it as JSON.
    Container {
        may_be_text: bool,
    },
    /// A string or, if `is_generated` is set, a piece of the generated text. Only generated text is counted, so it must
    /// not be read twice.
    Text {
        is_generated: bool,
    },
    /// A number of tokens, whose plausibility the format checks. `is_added` is set if the values of several members are
    /// added up.
    Tokens {
        is_added: bool,
    },
    /// A whole number, such as an index.
    Whole,
    /// A non-negative number, such as a duration.
    Number,
    Flag,
}

/// A field whose values have an expected type.
pub trait Typed: Copy {
    fn expected(self) -> Expected;
}

impl Expected {
    /// Returns whether a repeated member would be counted twice.
    const fn is_counted(self) -> bool {
        matches!(self, Self::Text { is_generated: true } | Self::Tokens { is_added: true })
    }

    /// Returns whether the text is a number of the expected kind.
    fn is_number(self, text: &str) -> bool {
        match self {
            Self::Tokens { .. } => parse_token_count(text).is_some(),
            Self::Whole => whole_number(text).is_some(),
            Self::Number => text.parse().is_ok_and(|it: f64| it.is_finite() && it >= 0.0),
            Self::Any | Self::Container { .. } | Self::Text { .. } | Self::Flag => false,
        }
    }
}

/// Passes `found` to `out`, or records a misfit.
pub fn deliver<F: Typed>(field: F, found: Found<'_>, out: &mut impl ValueSink<F>) {
    let expected = field.expected();
    if found.is_repeated && expected.is_counted() {
        return record_misfit();
    }
    let value = match (expected, found.value) {
        (Expected::Any, value)
        | (Expected::Container { .. }, value @ (Value::Object | Value::Array))
        | (
            Expected::Container { may_be_text: true },
            value @ (Value::Text(_) | Value::TextEnd(_) | Value::Number(_)),
        )
        | (Expected::Text { .. }, value @ (Value::Text(_) | Value::TextEnd(_)))
        | (_, value @ (Value::Null | Value::End)) => value,
        (_, value @ (Value::Object | Value::Array)) if !found.is_skipped => value,
        // The number as text. Some servers parse generated text that looks like a number.
        (Expected::Text { .. }, Value::Number(number)) => {
            out(field, Found { value: Value::Text(number), ..found });
            Value::TextEnd(number)
        }
        // The body is a list of vectors, without an object that has anything to read.
        (Expected::Container { .. }, _) if found.position.is_in_root_list() => return,
        // Only the whole string matters.
        (_, Value::Text(_)) => return,
        (_, Value::TextEnd("")) => Value::Null,
        (_, Value::TextEnd(text) | Value::Number(text)) if expected.is_number(text.trim()) => {
            Value::Number(text.trim())
        }
        (Expected::Flag, value @ Value::Bool(_)) => value,
        (Expected::Flag, Value::TextEnd("true" | "True") | Value::Number("1")) => Value::Bool(true),
        (Expected::Flag, Value::TextEnd("false" | "False") | Value::Number("0")) => {
            Value::Bool(false)
        }
        _ => return record_misfit(),
    };
    out(field, Found { value, ..found });
}
