//! Collects the values of one message of a stream before they are interpreted, because the keys of a message can have
//! any order.

use std::ops::Range;

use super::{Field, Table};
use crate::dialect::finish::finish_reason;
use crate::dialect::json::{Position, Value};
use crate::dialect::lenient::whole_number;

/// Maximum size in bytes of a buffer that is reused for the next message. A message with one token is much smaller.
const MAX_REUSED_BYTES: usize = 4 << 10;

/// The collected values of one message.
#[derive(Debug, Default)]
pub struct Fragments {
    text: String,
    /// Start of the current string in `text`.
    start: usize,
    list: Vec<Fragment>,
}

#[derive(Debug)]
struct Fragment {
    field: Field,
    target: Target,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Text(Range<usize>),
    Number(Range<usize>),
    Flag(bool),
    End,
}

/// The choice and the tool call to which a value belongs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Target {
    pub choice: u32,
    pub call: u32,
}

impl Fragments {
    pub fn push(&mut self, field: Field, target: Target, value: Value<'_>) {
        let content = match value {
            Value::Text(piece) => return self.text.push_str(piece),
            Value::TextEnd(_) => Content::Text(self.end_string()),
            Value::Number(number) => {
                self.text.push_str(number);
                match field {
                    Field::DigitsOrText => Content::Text(self.end_string()),
                    _ => Content::Number(self.end_string()),
                }
            }
            Value::Bool(flag) => Content::Flag(flag),
            Value::End if field == Field::Report => Content::End,
            Value::End | Value::Object | Value::Array | Value::Null | Value::TextLength(_) => {
                return;
            }
        };
        if let (Content::Text(range), Some(last)) = (&content, self.list.last_mut())
            && let Content::Text(before) = &mut last.content
            && matches!(field, Field::Text(_))
            && (last.field, last.target) == (field, target)
        {
            // The value continues the previous text.
            before.end = range.end;
            return;
        }
        self.list.push(Fragment { field, target, content });
    }

    /// Ends the current string and returns its range in `text`.
    fn end_string(&mut self) -> Range<usize> {
        let start = std::mem::replace(&mut self.start, self.text.len());
        start..self.text.len()
    }

    pub fn clear(&mut self) {
        if self.text.capacity() > MAX_REUSED_BYTES
            || self.list.capacity() > MAX_REUSED_BYTES / size_of::<Fragment>()
        {
            *self = Self::default();
        }
        self.text.clear();
        self.list.clear();
        self.start = 0;
    }

    /// Returns the values in their order. A string is returned as a [`Value::TextEnd`].
    pub fn values(&self) -> impl Iterator<Item = (Field, Target, Value<'_>)> {
        let text = |range: &Range<usize>| self.text.get(range.clone()).unwrap_or_default();
        self.list.iter().map(move |Fragment { field, target, content }| {
            let value = match content {
                Content::Text(range) => Value::TextEnd(text(range)),
                Content::Number(range) => Value::Number(text(range)),
                Content::Flag(flag) => Value::Bool(*flag),
                Content::End => Value::End,
            };
            (*field, *target, value)
        })
    }

    /// Returns the strings that are not empty.
    pub fn texts(&self) -> impl Iterator<Item = (Field, Target, &str)> {
        self.values().filter_map(|(field, target, value)| Some((field, target, value.string()?)))
    }

    pub fn first(&self, field: Field) -> Option<&str> {
        self.texts().find(|(known, _, _)| *known == field).map(|(_, _, text)| text)
    }

    pub fn number(&self, field: Field) -> Option<u32> {
        let known = self.values().find(|(known, _, _)| *known == field);
        known.and_then(|(_, _, value)| index(value))
    }

    /// Returns the index that a tool call contains.
    pub fn call_index(&self, choice: u32, call: u32) -> Option<u32> {
        let call = (Field::CallIndex, Target { choice, call });
        let known = self.values().find(|(field, target, _)| (*field, *target) == call);
        known.and_then(|(_, _, value)| index(value))
    }

    pub fn has_flag(&self, field: Field) -> bool {
        self.values().any(|(known, _, value)| known == field && value == Value::Bool(true))
    }

    /// Returns whether the message is the last one of its stream.
    pub fn is_last(&self, table: &Table) -> bool {
        let is_stop = |(field, _, value): (Field, Target, Value<'_>)| match field {
            Field::StopReason => value.string().and_then(finish_reason).is_some(),
            Field::StopFlag(_) => value == Value::Bool(true),
            _ => false,
        };
        self.values().any(|(field, _, value)| match field {
            Field::Done => value == Value::Bool(true),
            Field::FullText => table.full_text_is_last && matches!(value, Value::TextEnd(_)),
            Field::DoneUnlessStopped => value == Value::Bool(true) && !self.values().any(is_stop),
            Field::Type => value.string() == Some(table.last_type),
            _ => false,
        })
    }
}

/// Returns a number as an index.
fn index(value: Value<'_>) -> Option<u32> {
    match value {
        Value::Number(number) => u32::try_from(whole_number(number)?).ok(),
        _ => None,
    }
}

impl Target {
    /// Returns the choice and the tool call of a value at `position`. `has_blocks`: there is one choice, and the
    /// outermost list contains its content blocks.
    pub fn for_field(field: Field, position: Position<'_>, has_blocks: bool) -> Self {
        if has_blocks {
            return Self { choice: 0, call: position.list(0) };
        }
        let is_call = matches!(
            field,
            Field::CallId
                | Field::CallName
                | Field::CallIndex
                | Field::Arguments
                | Field::FirstArguments
                | Field::FullArguments
        );
        let choice = match (is_call, position.lists()) {
            (true, 0 | 1) | (false, 0) => position.root(),
            _ => position.list(0),
        };
        Self { choice, call: if is_call { position.last() } else { 0 } }
    }
}
