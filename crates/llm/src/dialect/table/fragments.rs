//! Collects the values of one message of a stream before they are interpreted, because the keys of a message can have
//! any order.

use std::ops::Range;

use super::{Field, Table};
use crate::dialect::json::{Position, Value};
use crate::dialect::lenient::whole_number;

/// Maximum size in bytes of a buffer that is kept for the next message. A message with one token is much smaller.
const KEPT: usize = 4 << 10;

/// The collected values of one message.
#[derive(Debug, Default)]
pub struct Fragments {
    pub text: String,
    /// Start of the current string in `text`.
    start: usize,
    pub list: Vec<Fragment>,
}

#[derive(Debug)]
pub struct Fragment {
    pub field: Field,
    pub target: Target,
    pub content: Content,
}

#[derive(Clone, Debug)]
pub enum Content {
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
            Value::TextEnd(_) => Content::Text(self.end()),
            Value::Number(number) => {
                self.text.push_str(number);
                match field {
                    Field::DigitsOrText => Content::Text(self.end()),
                    _ => Content::Number(self.end()),
                }
            }
            Value::Bool(flag) => Content::Flag(flag),
            Value::End if field == Field::Report => Content::End,
            Value::End | Value::Object | Value::Array | Value::Null => return,
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
    fn end(&mut self) -> Range<usize> {
        let start = std::mem::replace(&mut self.start, self.text.len());
        start..self.text.len()
    }

    pub fn clear(&mut self) {
        if self.text.capacity() > KEPT || self.list.capacity() > KEPT / size_of::<Fragment>() {
            *self = Self::default();
        }
        self.text.clear();
        self.list.clear();
        self.start = 0;
    }

    /// Returns the strings that are not empty.
    pub fn texts(&self) -> impl Iterator<Item = (Field, Target, &str)> {
        self.list.iter().filter_map(|fragment| {
            let Content::Text(range) = &fragment.content else {
                return None;
            };
            let text = self.text.get(range.clone()).unwrap_or_default();
            (!text.is_empty()).then_some((fragment.field, fragment.target, text))
        })
    }

    pub fn first(&self, field: Field) -> Option<&str> {
        self.texts().find(|(known, _, _)| *known == field).map(|(_, _, text)| text)
    }

    pub fn number(&self, field: Field) -> Option<u64> {
        let known = self.list.iter().find(|fragment| fragment.field == field);
        known.and_then(|fragment| self.count(fragment))
    }

    /// Returns the index that a tool call contains.
    pub fn call_index(&self, choice: u32, call: u32) -> Option<u32> {
        let is_index = |known: &&Fragment| {
            known.field == Field::CallIndex && known.target == Target { choice, call }
        };
        let index = self.list.iter().find(is_index).and_then(|fragment| self.count(fragment));
        index.and_then(|index| u32::try_from(index).ok())
    }

    fn count(&self, fragment: &Fragment) -> Option<u64> {
        match &fragment.content {
            Content::Number(range) => whole_number(self.text.get(range.clone())?),
            Content::Text(_) | Content::Flag(_) | Content::End => None,
        }
    }

    pub fn has_flag(&self, field: Field) -> bool {
        let is_set =
            |known: &Fragment| known.field == field && matches!(known.content, Content::Flag(true));
        self.list.iter().any(is_set)
    }

    /// Returns whether the message is the last one of its stream.
    pub fn is_last(&self, table: &Table) -> bool {
        let is_stop = |known: &Fragment| match (known.field, &known.content) {
            (Field::StopReason, Content::Text(range)) => !range.is_empty(),
            (Field::StopFlag(_), Content::Flag(flag)) => *flag,
            _ => false,
        };
        let is_end = |known: &Fragment| match (known.field, &known.content) {
            (Field::Done, Content::Flag(flag)) => *flag,
            (Field::FullText, Content::Text(_)) => table.full_text_is_last,
            (Field::DoneUnlessStopped, Content::Flag(flag)) => {
                *flag && !self.list.iter().any(is_stop)
            }
            (Field::Type, Content::Text(range)) => {
                self.text.get(range.clone()) == Some(table.last_type) && !range.is_empty()
            }
            _ => false,
        };
        self.list.iter().any(is_end)
    }
}

impl Fragment {
    /// Returns whether the field is a number. Protocol buffers write large numbers as strings.
    pub const fn is_number(&self) -> bool {
        matches!(self.field, Field::Count(_) | Field::Addend(_) | Field::Clock(..))
    }
}

impl Target {
    /// Returns the target of a value at `position`. `has_blocks` is set if there is one choice and the outermost list
    /// contains its content blocks.
    pub fn of(field: Field, position: Position<'_>, has_blocks: bool) -> Self {
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
