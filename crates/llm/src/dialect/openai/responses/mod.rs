//! Reads the Responses API, in which a response is a list of items: messages, reasoning and tool calls, each with
//! texts.
//!
//! A stream can contain a text four times: in pieces, at the end of the text, in its item when the item is complete,
//! and in the response at the end. Some servers leave out some of these messages. [`ResponseTexts`] records the texts
//! that were read, so that each text is counted once, at its first occurrence.

mod items;
mod texts;
mod turn;

pub use turn::TurnMessage;

use serde::Deserialize;

use super::message_type::message_type;
use super::usage::RawUsage;
use crate::dialect::emit::{Preamble, emit_text};
use crate::dialect::errors::HasError;
use crate::dialect::finish::finish_reason;
use crate::dialect::json::{
    ErrorScanner, Expected, Found, JsonScanner, Outcome, Paths, Row, Typed, deliver,
};
use crate::dialect::lenient::{self, Code, Count, Text};
use crate::dialect::response::{ErrorReport, Format, Message, report_misfit};
use crate::dialect::{Api, Event, EventSink};
use crate::frame::ParseError;
use items::{ITEM_ROWS, ItemField, Items, OUTPUT_ROWS};
use texts::{TextId, TextLocation};

/// Reads a response. Only messages with a piece of text are parsed into a struct. Larger messages are scanned, because
/// they repeat the instructions and tools of the request.
#[derive(Debug)]
pub struct Responses {
    /// Whether the client fetches a stored response. Its text was counted when the response was generated, unless the
    /// response was generated in the background.
    is_stored: bool,
    /// Whether the items of the response are not read: the response is stored, or it is a compaction, which repeats
    /// messages of the request.
    skips_items: bool,
    /// Whether the response is still being generated.
    is_pending: bool,
    preamble: Preamble,
    items: Items,
    /// Whether the start of the response was read.
    has_begun: bool,
    /// Whether the response has a final status.
    has_ended: bool,
    status_failed: bool,
}

/// The meaning of a value in a response object.
#[derive(Clone, Copy, Debug)]
pub enum ResponseField {
    Id,
    Model,
    ServiceTier,
    SystemFingerprint,
    Usage,
    Status,
    Item(ItemField),
}

impl Typed for ResponseField {
    fn expected(self) -> Expected {
        match self {
            Self::Id
            | Self::Model
            | Self::ServiceTier
            | Self::SystemFingerprint
            | Self::Status
            | Self::Item(
                ItemField::CallId | ItemField::CallName | ItemField::Type | ItemField::PartType,
            ) => Expected::Text { is_generated: false },
            Self::Item(ItemField::Text(_) | ItemField::OnlyText(_)) => {
                Expected::Text { is_generated: true }
            }
            Self::Usage => Expected::Container { may_be_text: true },
            Self::Item(ItemField::Item | ItemField::Part) => {
                Expected::Container { may_be_text: false }
            }
        }
    }
}

/// Paths of the values in a JSON body that is a response.
static RESPONSE: Paths<ResponseField> =
    Paths::new(RESPONSE_ROWS).extends(OUTPUT_ROWS).with_errors();

const RESPONSE_ROWS: &[Row<ResponseField>] = &[
    ("id", ResponseField::Id),
    ("model", ResponseField::Model),
    ("service_tier", ResponseField::ServiceTier),
    ("system_fingerprint", ResponseField::SystemFingerprint),
    ("usage{}", ResponseField::Usage),
    ("status", ResponseField::Status),
];

/// Paths of the values in a stream message that contains a response.
static RESPONSE_MESSAGE: Paths<ResponseField> =
    Paths::new(RESPONSE_ROWS).extends(OUTPUT_ROWS).with_errors_of_message().unwraps(&["response"]);

/// Paths of the values in a stream message that contains an item.
static ITEM_MESSAGE: Paths<ResponseField> = Paths::new(ITEM_ROWS);

/// A stream message with a piece of text, a complete text or an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct TextMessage<'a> {
    output_index: Count,
    content_index: Count,
    summary_index: Count,
    delta: Text<'a>,
    /// The complete text, under the same key as in an item.
    text: Text<'a>,
    refusal: Text<'a>,
    transcript: Text<'a>,
    arguments: Text<'a>,
    input: Text<'a>,
    diff: Text<'a>,
    /// The code for a code interpreter.
    code: Code<'a>,
    error: HasError,
}

impl Responses {
    pub fn new(api: Api) -> Self {
        Self {
            is_stored: api == Api::OpenAiStoredResponse,
            skips_items: matches!(api, Api::OpenAiStoredResponse | Api::OpenAiCompaction),
            is_pending: false,
            preamble: Preamble::default(),
            items: Items::default(),
            has_begun: false,
            has_ended: false,
            status_failed: false,
        }
    }

    /// Reads the last message of a stream. The message contains the final status and repeats the whole response.
    fn last(&mut self, kind: &str, data: &[u8], out: &mut impl EventSink) {
        self.items.texts.begin_repetition();
        let errors = self.response(data, out);
        if self.is_stored {
            return out(Event::Done);
        }
        if !self.has_ended {
            let reason = match kind.rsplit('.').next() {
                None | Some("done") => "completed",
                Some(reason) => reason,
            };
            out(Event::Stopped { choice: 0, reason });
        }
        if errors.is_error() || self.status_failed || kind == "response.failed" {
            let kind = errors.kind();
            out(Event::Failed { kind });
        }
    }

    /// Reads the response object in a message.
    fn response(&mut self, data: &[u8], out: &mut impl EventSink) -> ErrorScanner {
        self.is_pending = false;
        scan(&RESPONSE_MESSAGE, data, out, |field, found, out| {
            self.value(field, found, out);
        })
    }

    /// Reads a completed item. Of a tool call that was read before, reads only the id and the name. Skips other known
    /// items.
    fn item(&mut self, message: Message<'_>, out: &mut impl EventSink) {
        let mut item = None;
        message.parse::<TextMessage<'_>, _>(&mut None, out, |message, _| {
            item = Some(index(message.output_index));
        });
        let Some(item) = item else {
            return;
        };
        let items = &mut self.items;
        let is_known_call = items.texts.call(item).is_some();
        if !is_known_call && items.texts.contains_item(item) {
            return;
        }
        scan(&ITEM_MESSAGE, message.data, out, |field, found, out| {
            if let ResponseField::Item(field) = field {
                items.read(field, (item, found.position.last()), found.value, is_known_call, out);
            }
        });
    }

    fn text_message(&mut self, kind: &str, message: Message<'_>, out: &mut impl EventSink) {
        let skips_items = self.skips_items;
        message.parse::<TextMessage<'_>, _>(&mut None, out, |message, out| {
            if let Some((location, is_complete)) = text_type(kind).filter(|_| !skips_items) {
                self.text(message, location, is_complete, out);
            }
        });
    }

    fn text(
        &mut self,
        message: &TextMessage<'_>,
        location: TextLocation,
        is_complete: bool,
        out: &mut impl EventSink,
    ) {
        let piece = match location {
            TextLocation::Summary => message.summary_index,
            TextLocation::Tool => Count(None),
            _ => message.content_index,
        };
        let id = TextId { item: index(message.output_index), location, piece: index(piece) };
        let texts = &mut self.items.texts;
        let text = match is_complete {
            false => message.delta.some(),
            true => message.complete().filter(|_| !texts.contains(id)),
        };
        if let Some(text) = text
            && let Some(part) = texts.part(id)
        {
            emit_text(0, part, text, out);
        }
    }

    fn read_string(&mut self, field: ResponseField, word: &str, out: &mut impl EventSink) {
        match field {
            ResponseField::Id => self.preamble.emit_started(Some(word), None, out),
            ResponseField::Model => self.preamble.emit_started(None, Some(word), out),
            // This is the requested tier. A later message names the tier that processes the request.
            ResponseField::ServiceTier if word == "auto" => {}
            ResponseField::ServiceTier => self.preamble.emit_tier(Some(word), None, out),
            ResponseField::SystemFingerprint => self.preamble.emit_tier(None, Some(word), out),
            ResponseField::Status if matches!(word, "queued" | "in_progress") => {
                self.is_pending = true;
            }
            ResponseField::Status if !self.is_stored => {
                if let Some(reason) = finish_reason(word) {
                    self.has_ended = true;
                    self.status_failed |= reason == "failed";
                    out(Event::Stopped { choice: 0, reason });
                }
            }
            ResponseField::Status | ResponseField::Usage | ResponseField::Item(_) => {}
        }
    }
}

impl Format for Responses {
    type Field = ResponseField;

    /// Members that may differ: the message number, and padding against traffic analysis.
    const IGNORED: &'static [&'static str] = &["sequence_number", "obfuscation"];

    fn paths(&self) -> &'static Paths<ResponseField> {
        &RESPONSE
    }

    fn message(&mut self, message: Message<'_>, out: &mut impl EventSink) {
        let kind = message_type(message.name, message.data);
        report_misfit(out);
        match &*kind {
            "error" => self.text_message(&kind, Message { is_error: true, ..message }, out),
            _ if message.is_error => self.text_message(&kind, message, out),
            // Each of these messages contains everything that is known at the start, so only the first one is read.
            "response.created" | "response.queued" | "response.in_progress" => {
                let is_first = !std::mem::replace(&mut self.has_begun, true);
                if is_first {
                    self.response(message.data, out);
                }
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.done" => self.last(&kind, message.data, out),
            "response.output_item.done" if !self.skips_items => self.item(message, out),
            kind if text_type(kind).is_some() || !kind.starts_with("response.") => {
                self.text_message(kind, message, out);
            }
            _ => {}
        }
    }

    fn is_answer(field: ResponseField) -> bool {
        matches!(field, ResponseField::Status | ResponseField::Item(_))
    }

    fn value(&mut self, field: ResponseField, found: Found<'_>, out: &mut impl EventSink) {
        match field {
            ResponseField::Usage => {
                // A later poll of a stored response contains its final usage.
                if let Some(json) = found.value.word()
                    && !(self.is_stored && self.is_pending)
                {
                    RawUsage::emit(json, false, out);
                }
            }
            ResponseField::Item(field) => {
                if !self.skips_items {
                    let id = (found.position.list(0), found.position.last());
                    self.items.read(field, id, found.value, false, out);
                }
            }
            field => {
                if let Some(word) = found.value.word() {
                    self.read_string(field, word, out);
                }
            }
        }
    }

    /// Decides whether the request failed. A request that fetches a stored response has succeeded, even if the stored
    /// response contains an error.
    fn end(&mut self, is_error: &mut bool, _: &mut impl EventSink) {
        *is_error = (*is_error || self.status_failed) && !self.is_stored;
    }
}

impl TextMessage<'_> {
    /// Returns the complete text, if the message contains it.
    fn complete(&self) -> Option<&str> {
        [
            &*self.text.0,
            &*self.refusal.0,
            &*self.arguments.0,
            &*self.input.0,
            &*self.transcript.0,
            &*self.code.0,
            &*self.diff.0,
        ]
        .into_iter()
        .find(|text| !text.is_empty())
    }
}

impl ErrorReport for TextMessage<'_> {
    fn is_error(&self) -> bool {
        self.error.0
    }
}

/// Returns the location of the text in messages of this type, and whether the text is complete. Earlier names of the
/// types are accepted.
fn text_type(kind: &str) -> Option<(TextLocation, bool)> {
    let (what, extent) = kind.strip_prefix("response.")?.rsplit_once('.')?;
    let is_complete = extent == "done";
    if !is_complete && extent != "delta" {
        return None;
    }
    let location = match what {
        "output_text" => TextLocation::Text,
        "refusal" => TextLocation::Refusal,
        "reasoning_text" | "reasoning" => TextLocation::Reasoning,
        "reasoning_summary_text" | "reasoning_summary" => TextLocation::Summary,
        "function_call_arguments"
        | "custom_tool_call_input"
        | "mcp_call_arguments"
        | "mcp_call.arguments"
        | "code_interpreter_call_code"
        | "code_interpreter_call.code"
        | "apply_patch_call_operation_diff"
        | "shell_call_command" => TextLocation::Tool,
        "audio.transcript" | "output_audio_transcript" => TextLocation::Transcript,
        _ => return None,
    };
    Some((location, is_complete))
}

/// Scans a message and returns the error that the message describes. Emits a parse error if the message is malformed.
fn scan<Out: EventSink>(
    paths: &'static Paths<ResponseField>,
    data: &[u8],
    out: &mut Out,
    mut read: impl FnMut(ResponseField, Found<'_>, &mut Out),
) -> ErrorScanner {
    let mut scanner = JsonScanner::new(paths);
    lenient::take_misfit();
    let outcome = scanner.scan(data, &mut |field, found| {
        deliver(field, found, &mut |field, found: Found<'_>| read(field, found, out));
    });
    report_misfit(out);
    match outcome {
        Outcome::Complete if scanner.is_lossy() => out(Event::ParseError(ParseError::BadText)),
        Outcome::Complete => {}
        Outcome::Cut | Outcome::Malformed => out(Event::ParseError(ParseError::BadJson)),
    }
    scanner.into_errors()
}

/// Returns an index, or 0 if it is absent.
fn index(count: Count) -> u32 {
    u32::try_from(count.0.unwrap_or_default()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
