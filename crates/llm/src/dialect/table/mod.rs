//! Describes API formats as tables.
//!
//! A [`Table`] maps the paths of a format to [`Field`]s, the meanings of the values. The same rows read JSON bodies and
//! stream messages. The text of a body is emitted as it arrives. The values of a message are collected first, because
//! its keys can have any order.

mod fragments;
mod reader;

pub use reader::{TableFormat, TableReader};

use super::json::{Expected, Paths, Row, Typed};
use super::response::FormatReader;
use super::{Part, RequestFacts, Usage};

/// The meaning of a value at a path.
///
/// The first list on a path contains the choices. The innermost list contains the tool calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field {
    Id,
    Model,
    ServiceTier,
    /// Index of the choice to which a message of a stream belongs.
    Choice,
    Text(Part),
    /// Text of one token of a stream.
    Token,
    /// Whether the token is a special token, which is not part of the text.
    SpecialToken,
    /// The whole text, which a stream repeats in its last message. Ignored if a delta of the text was read before.
    FullText,
    /// Text that the backend sends as a number if the text consists of digits.
    DigitsOrText,
    /// Index of the content block to which a message of a stream belongs.
    Block,
    /// Index of a tool call in a stream.
    CallIndex,
    CallId,
    CallName,
    Arguments,
    /// Tool call arguments at the start of a content block. `{}` means that the arguments follow in pieces.
    FirstArguments,
    /// The whole arguments of a tool call. Ignored if a delta of the arguments was read before.
    FullArguments,
    StopReason,
    /// A flag which shows that the choice stopped for the named reason.
    StopFlag(&'static str),
    /// The kind of the error that stopped the choice.
    StopError,
    /// An object with token counts, which [`Table::parse_usage`] parses.
    Usage,
    Count(Counter),
    /// One of several counts whose sum is the counter.
    Addend(Counter),
    Clock(TimingPhase, Unit),
    /// An object after whose end all counts are known.
    Report,
    /// A flag that is set in the last message of a stream.
    Done,
    /// Like [`Self::Done`], but ignored if the message has a stop reason.
    DoneUnlessStopped,
    /// The type of a message of a stream.
    Type,
    /// A code that only errors contain.
    ErrorCode,
    /// A result that is not text, such as a vector.
    Result,
}

impl Field {
    /// Returns whether a count, duration or flag is read after all texts of its message.
    const fn follows_texts(self) -> bool {
        matches!(
            self,
            Self::StopFlag(_)
                | Self::Usage
                | Self::Count(_)
                | Self::Addend(_)
                | Self::Clock(..)
                | Self::Report
        )
    }
}

impl Typed for Field {
    fn expected(self) -> Expected {
        match self {
            Self::Id
            | Self::Model
            | Self::ServiceTier
            | Self::CallId
            | Self::CallName
            | Self::Type
            | Self::StopReason
            | Self::StopError => Expected::Text { is_generated: false },
            Self::Text(_)
            | Self::Token
            | Self::FullText
            | Self::DigitsOrText
            | Self::Arguments
            | Self::FirstArguments
            | Self::FullArguments => Expected::Text { is_generated: true },
            Self::Count(_) => Expected::Tokens { is_added: false },
            Self::Addend(_) => Expected::Tokens { is_added: true },
            Self::Choice | Self::Block | Self::CallIndex | Self::Clock(_, Unit::Nanoseconds) => {
                Expected::Whole
            }
            Self::Clock(_, Unit::Seconds | Unit::Milliseconds) => Expected::Number,
            Self::SpecialToken | Self::StopFlag(_) | Self::Done | Self::DoneUnlessStopped => {
                Expected::Flag
            }
            Self::Usage => Expected::Container { may_be_text: true },
            Self::Report => Expected::Container { may_be_text: false },
            Self::ErrorCode | Self::Result => Expected::Any,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counter {
    Input,
    /// Input tokens, reported only once. Later messages of the stream report 0, which is ignored.
    InputOnce,
    Output,
    /// Sum of input and output tokens. Counts as input if no output is reported. Otherwise, the total shows which parts
    /// are beside input and output.
    Total,
    CacheRead,
    Reasoning,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimingPhase {
    Load,
    Prefill,
    Decode,
    Total,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    Seconds,
    Milliseconds,
    Nanoseconds,
}

/// How the texts of consecutive messages are related.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Texts {
    /// Each message contains a new piece of text.
    Pieces,
    /// Each message contains either the whole text so far or only a delta. The first two texts of a stream show which.
    MaybeCumulative,
    /// Each message contains the prompt and the whole text so far.
    PromptAndCumulative,
}

/// What the token counts of a message cover.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counts {
    /// The response so far.
    Response,
    /// One result of the response.
    Result,
    /// The output of this message only.
    Message,
}

/// An API format, described by rows and a few properties.
#[derive(Debug)]
pub struct Table {
    pub paths: Paths<Field>,
    pub texts: Texts,
    pub counts: Counts,
    /// Name of the event that ends a stream.
    pub last_event: &'static str,
    /// Value of [`Field::Type`] in the message that ends a stream.
    pub last_type: &'static str,
    /// Value of [`Field::Type`] in messages that repeat the text so far.
    pub repeating_type: &'static str,
    /// Whether every message numbers its tool calls from 0. The reader then continues the numbers across messages.
    pub numbers_calls: bool,
    /// Whether only the last message of a stream contains the whole text.
    pub full_text_is_last: bool,
    /// Whether a response has one choice with a list of content blocks. Tool calls are then numbered by block.
    pub has_blocks: bool,
    /// Whether every JSON object on a line of its own, outside a server-sent event, is an error.
    pub bare_object_is_error: bool,
    /// Parses an object with token counts.
    pub parse_usage: fn(&str) -> Usage,
}

impl Table {
    pub const fn new(rows: &'static [Row<Field>]) -> Self {
        Self {
            paths: Paths::new(rows).with_errors(),
            texts: Texts::Pieces,
            counts: Counts::Response,
            last_event: "",
            last_type: "",
            repeating_type: "",
            numbers_calls: false,
            full_text_is_last: false,
            has_blocks: false,
            bare_object_is_error: true,
            parse_usage: |_| Usage::default(),
        }
    }

    /// Reads an object under one of these top-level keys as if it were the root.
    pub const fn unwraps(self, wrappers: &'static [&'static str]) -> Self {
        Self { paths: self.paths.unwraps(wrappers), ..self }
    }

    /// Returns a reader for the response to `request`. `failed` is set if the status is an error.
    pub fn reader(&'static self, request: &RequestFacts, failed: bool) -> TableReader {
        FormatReader::new(TableFormat::new(self, request), failed)
    }
}
