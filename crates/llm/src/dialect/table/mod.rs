//! Formats that a table describes.
//!
//! A [`Table`] maps the paths of a format to [`Field`]s. The same rows read a JSON body and the messages of a stream: a
//! body emits its text as it arrives, a message is collected first, because its keys may come in any order.

mod fragments;
mod reader;

pub use reader::{TableFormat, TableReader};

use super::json::{Paths, Row};
use super::response::FormatReader;
use super::{Part, RequestFacts, Usage};

/// Meaning of a value.
///
/// The first list on a path holds the choices. A tool call is an element of the innermost list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Field {
    Id,
    Model,
    ServiceTier,
    /// Index of the choice that a message of a stream belongs to.
    Choice,
    Text(Part),
    /// Generated text of one token of a stream.
    Token,
    /// Whether the token is a mark and not text.
    SpecialToken,
    /// The whole text. A stream repeats it at its end, where it is read only if no piece came before.
    FullText,
    /// Text that is sent as a number if it has only digits.
    DigitsOrText,
    /// Index of the content block that a message of a stream belongs to.
    Block,
    /// Index of a tool call of a stream.
    CallIndex,
    CallId,
    CallName,
    Arguments,
    /// Arguments at the start of a content block, `{}` if pieces follow.
    FirstArguments,
    /// The whole arguments of a call, like [`Self::FullText`].
    FullArguments,
    StopReason,
    /// A flag that is set if the choice stopped for this reason.
    StopFlag(&'static str),
    /// Kind of the error that stopped the choice.
    StopError,
    /// An object with counts, for [`Table::parse_usage`].
    Usage,
    Count(Counter),
    /// One of several counts that add up.
    Addend(Counter),
    Clock(Phase, Unit),
    /// An object whose end completes the counts.
    Report,
    /// A flag that is set in the last message of a stream.
    Done,
    /// The same, unless the message has a reason to stop.
    DoneUnlessStopped,
    /// Type of a message of a stream.
    Type,
    /// A code that only errors have.
    ErrorCode,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Counter {
    Input,
    /// Input tokens that later messages of a stream report as 0.
    InputOnce,
    Output,
    /// Input and output. Used as the input if no output is reported.
    Total,
    CacheRead,
    Reasoning,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
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

/// How the texts of consecutive messages relate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Texts {
    /// Each message has a new piece.
    Pieces,
    /// Each message has the whole text, or a new piece: the first two texts decide.
    MaybeCumulative,
    /// Each message has the prompt and the whole text.
    PromptAndCumulative,
}

/// Whose counts a message reports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Counts {
    /// Those of the response so far.
    Response,
    /// Those of one of its results.
    Result,
    /// The output of this message alone.
    Message,
}

/// A format.
#[derive(Debug)]
pub struct Table {
    pub paths: Paths<Field>,
    pub texts: Texts,
    pub counts: Counts,
    /// Values of the reason that mean that the choice has not stopped.
    pub no_reasons: &'static [&'static str],
    /// Reasons to stop that are errors, each with the kind of the error.
    pub error_reasons: &'static [(&'static str, Option<&'static str>)],
    /// Name of the event that ends a stream.
    pub last_event: &'static str,
    /// [`Field::Type`] of the message that ends a stream.
    pub last_type: &'static str,
    /// [`Field::Type`] of messages that repeat the text so far.
    pub repeating_type: &'static str,
    /// Every message numbers its tool calls from 0. Numbers continue across the messages of a stream.
    pub numbers_calls: bool,
    /// Only the last message of a stream has the whole text.
    pub full_text_is_last: bool,
    /// There is one choice, and the lists hold its content blocks. Tool calls are numbered by block.
    pub has_blocks: bool,
    /// A JSON object among server-sent events is an error, whatever its keys.
    pub bare_object_is_error: bool,
    pub parse_usage: fn(&str) -> Option<Usage>,
}

impl Table {
    pub const fn new(rows: &'static [Row<Field>]) -> Self {
        Self {
            paths: Paths::new(rows).with_errors(),
            texts: Texts::Pieces,
            counts: Counts::Response,
            no_reasons: &[],
            error_reasons: &[],
            last_event: "",
            last_type: "",
            repeating_type: "",
            numbers_calls: false,
            full_text_is_last: false,
            has_blocks: false,
            bare_object_is_error: true,
            parse_usage: |_| None,
        }
    }

    /// Reads an object under one of these keys of the root as if it were the root.
    pub const fn unwraps(self, wrappers: &'static [&'static str]) -> Self {
        Self { paths: self.paths.unwraps(wrappers), ..self }
    }

    /// Returns a reader of a response. `failed`: the status says that it is an error.
    pub fn reader(&'static self, request: &RequestFacts, failed: bool) -> TableReader {
        FormatReader::new(TableFormat::new(self, request), failed)
    }
}
