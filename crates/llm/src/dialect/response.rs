//! Reads a response in one API format, either a stream of messages or one JSON body.
//!
//! [`FormatReader`] contains the logic that all formats share: frames, end markers, malformed text, error statuses and
//! repeated errors.

use std::fmt;

use serde::Deserialize;

use super::delta_template::{DeltaTemplate, ObservedMessage};
use super::errors::ErrorDetail;
use super::json::{
    ErrorScanner, Found, JsonScanner, Outcome, Paths, Typed, Value, deliver, identifier,
};
use super::lenient::{self, List};
use super::repair;
use super::{Event, EventSink};
use crate::budget::RequestBudget;
use crate::frame::{Frame, ParseError};

/// An API format. Translates stream messages, and the values of a JSON body, into events.
pub trait Format: fmt::Debug {
    /// The meaning of a value of a JSON body.
    type Field: Typed + fmt::Debug + 'static;

    /// Top-level members that the format ignores in messages with text. These members may differ in messages that a
    /// [`DeltaTemplate`] reads.
    const IGNORED: &'static [&'static str] = &[];

    /// Returns the paths of the values that are read from a JSON body.
    fn paths(&self) -> &'static Paths<Self::Field>;

    /// Returns whether every JSON object between server-sent events is an error, regardless of its keys.
    fn bare_object_is_error(&self) -> bool {
        false
    }

    /// Translates one message of a stream. Errors in the message are emitted as [`Event::Failed`].
    fn message(&mut self, message: Message<'_>, out: &mut impl EventSink);

    /// Returns whether a value of this field, even an empty one, shows that a JSON body is a response of the format.
    fn is_answer(field: Self::Field) -> bool;

    /// Translates one value of a JSON body.
    fn value(&mut self, field: Self::Field, found: Found<'_>, out: &mut impl EventSink);

    /// Ends a JSON body. `is_error` is set if the body describes an error. The format can change the flag.
    fn end(&mut self, _is_error: &mut bool, _out: &mut impl EventSink) {}
}

/// A message of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Message<'m> {
    /// Name of the server-sent event. Empty if the event has no name.
    pub name: &'m [u8],
    /// The message without surrounding white space. Never empty.
    pub data: &'m [u8],
    /// Whether only an error is read from the message. Set if the HTTP status is an error or the event is named
    /// `error`.
    pub is_error: bool,
}

/// A parsed message that can contain an error.
pub trait ErrorReport {
    fn is_error(&self) -> bool {
        false
    }

    /// Returns whether the message has nothing that every message of the format has. Its keys then show whether it is
    /// an error.
    fn may_be_error(&self) -> bool {
        false
    }

    /// Returns the paths of errors in messages of this format.
    fn error_paths() -> &'static Paths<()> {
        &MESSAGE_ERROR
    }
}

/// Paths of errors in messages whose `type` is not the kind of an error. Two formats wrap the error: Code Assist in
/// `response`, and Realtime in `response.status_details`.
pub static MESSAGE_ERROR: Paths<()> =
    Paths::new(&[]).with_errors_of_message().unwraps(&["response", "status_details"]);

/// Paths of errors in any object. The `type` of the object can be the kind of the error.
pub static ANY_ERROR: Paths<()> = Paths::new(&[]).with_errors();

/// Scans a message that contains an error.
pub fn scan_errors(paths: &'static Paths<()>, data: &[u8]) -> ErrorScanner {
    let mut scanner = JsonScanner::new(paths);
    scanner.scan(data, &mut ignore);
    scanner.into_errors()
}

/// Ignores a value, for scanners that collect only errors.
const fn ignore((): (), _: Found<'_>) {}

impl<'m> Message<'m> {
    /// Creates a message whose event has no name.
    pub const fn from_data(data: &'m [u8]) -> Self {
        Self { name: b"", data: data.trim_ascii(), is_error: false }
    }

    /// Parses the message, passes it to `read`, and then emits the error that the message contains. Skips `read` if
    /// only errors are read. `buffer` holds the repaired text of a malformed message.
    pub fn parse<M: Deserialize<'m> + ErrorReport, Out: EventSink>(
        self,
        buffer: &'m mut Option<repair::Repaired>,
        out: &mut Out,
        read: impl FnOnce(&M, &mut Out),
    ) {
        // Serde would also read a list as a struct, with the first element as the first field.
        let is_object = self.data.first() == Some(&b'{');
        match is_object.then(|| repair::read::<M>(self.data, buffer)).flatten() {
            Some((message, is_lossy)) => {
                report_lossy(is_lossy, out);
                self.deliver(&message, out, read);
            }
            None => self.malformed(out),
        }
    }

    /// Like [`Self::parse`], but also accepts a list of messages.
    pub fn parse_all<M: Deserialize<'m> + ErrorReport, Out: EventSink>(
        self,
        buffer: &'m mut Option<repair::Repaired>,
        out: &mut Out,
        mut read: impl FnMut(&M, &mut Out),
    ) {
        if !self.data.starts_with(b"[") {
            return self.parse(buffer, out, read);
        }
        match repair::read::<List<M>>(self.data, buffer) {
            Some((messages, is_lossy)) => {
                report_lossy(is_lossy, out);
                messages.iter().for_each(|message| self.deliver(message, out, &mut read));
            }
            None => self.malformed(out),
        }
    }

    fn deliver<M: ErrorReport, Out: EventSink>(
        self,
        message: &M,
        out: &mut Out,
        read: impl FnOnce(&M, &mut Out),
    ) {
        if !self.is_error {
            read(message, out);
            report_misfit(out);
        }
        let is_error = self.is_error || message.is_error();
        if is_error || message.may_be_error() {
            let errors = scan_errors(M::error_paths(), self.data);
            if is_error || errors.is_error() {
                out(Event::Failed { kind: errors.kind() });
            }
        }
    }

    fn malformed(self, out: &mut impl EventSink) {
        if !self.is_error {
            out(Event::ParseError(ParseError::BadJson));
        }
    }
}

fn report_lossy(is_lossy: bool, out: &mut impl EventSink) {
    if is_lossy {
        out(Event::ParseError(ParseError::BadText));
    }
}

/// Reports a value without a meaning that was read since the last call.
pub fn report_misfit(out: &mut impl EventSink) {
    if lenient::take_misfit() {
        out(Event::ParseError(ParseError::BadJson));
    }
}

/// Reads JSON objects on lines between server-sent events. Servers and gateways report errors on such lines.
///
/// Contains the scanner of an object that is still incomplete.
#[derive(Debug)]
struct BareErrors(Option<Box<JsonScanner<()>>>);

impl BareErrors {
    /// Reads a line that is not a field of an event. Returns the errors of an object that is complete.
    fn push(&mut self, line: &[u8]) -> Option<ErrorScanner> {
        if self.0.is_none() && !matches!(line.first(), Some(b'{' | b'[')) {
            return None;
        }
        let new = || Box::new(JsonScanner::new(&ANY_ERROR));
        let mut scanner = self.0.take().unwrap_or_else(new);
        scanner.push(line, &mut ignore);
        scanner.push(b"\n", &mut ignore);
        match scanner.finish(&mut ignore) {
            Outcome::Complete => return Some(scanner.into_errors()),
            Outcome::Cut => self.0 = Some(scanner),
            Outcome::Malformed => {}
        }
        None
    }
}

/// Reads one response in the format `F`.
#[derive(Debug)]
pub struct FormatReader<F: Format> {
    format: F,
    body: Option<Box<JsonScanner<F::Field>>>,
    /// Whether the body has a value without a meaning.
    has_misfit: bool,
    bare_errors: BareErrors,
    /// Whether the HTTP status is an error. The response is then read only as an error.
    failed: bool,
    detail: ErrorDetail,
    /// Whether the stream has ended.
    is_done: bool,
    /// Whether the JSON body has a value of [`Format::is_answer`].
    is_answer: bool,
    /// `None` if every message is parsed.
    template: Option<DeltaTemplate>,
}

impl<F: Format> FormatReader<F> {
    /// Creates a reader. `failed` is set if the HTTP status is an error.
    pub const fn new(format: F, failed: bool) -> Self {
        Self {
            format,
            body: None,
            has_misfit: false,
            bare_errors: BareErrors(None),
            failed,
            detail: ErrorDetail::None,
            is_done: false,
            is_answer: false,
            template: None,
        }
    }

    /// Enables a [`DeltaTemplate`], which reads messages that differ only in their text and in ignored members. Only
    /// for formats in which such messages do not change the state. The first message with the text may change it.
    pub fn with_templates(mut self, budget: &RequestBudget) -> Self {
        self.template = Some(DeltaTemplate::new(budget));
        self
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl EventSink) {
        match frame {
            Frame::Event { name, data } => self.message(name, data.trim_ascii(), out),
            Frame::Exception { name, .. } => {
                let kind = std::str::from_utf8(name).ok().and_then(identifier);
                self.fail(kind, out);
            }
            Frame::BareJson(line) => self.bare(line.trim_ascii(), out),
            Frame::BodyChunk(bytes) => self.piece(bytes, out),
            Frame::BodyEnd => self.end(out),
            Frame::ParseError(anomaly) => out(Event::ParseError(*anomaly)),
        }
    }

    fn message(&mut self, name: &[u8], data: &[u8], out: &mut impl EventSink) {
        if data.is_empty() {
            if name == b"error" {
                self.fail(None, out);
            }
            return;
        }
        if let Some(event) = self.template.as_ref().and_then(|known| known.read(name, data)) {
            return out(event);
        }
        let (detail, is_done) = (&mut self.detail, &mut self.is_done);
        if data == b"[DONE]" {
            if !self.failed && !*is_done {
                out(Event::Done);
            }
            return;
        }
        let mut observed = ObservedMessage::new(data);
        let mut out = detail.filter(out);
        let mut out = |event: Event<'_>| {
            *is_done |= matches!(event, Event::Done);
            observed.event(&event);
            out(event);
        };
        let is_error = self.failed || name == b"error";
        self.format.message(Message { name, data, is_error }, &mut out);
        if is_error {
            out(Event::Failed { kind: None });
        }
        if let Some(template) = &mut self.template {
            template.learn(name, &observed, F::IGNORED);
        }
    }

    #[cfg(test)]
    pub(super) fn matches_template(&self, name: &[u8], data: &[u8]) -> bool {
        self.template.as_ref().is_some_and(|known| known.read(name, data).is_some())
    }

    fn bare(&mut self, line: &[u8], out: &mut impl EventSink) {
        if let Some(errors) = self.bare_errors.push(line)
            && (self.format.bare_object_is_error() || errors.is_error())
        {
            self.fail(errors.kind(), out);
        }
    }

    /// Emits an error that was found outside the messages of the format.
    fn fail(&mut self, kind: Option<&str>, out: &mut impl EventSink) {
        self.detail.filter(out)(Event::Failed { kind });
    }

    fn piece(&mut self, bytes: &[u8], out: &mut impl EventSink) {
        let (format, failed, detail) = (&mut self.format, self.failed, &mut self.detail);
        let new = || Box::new(JsonScanner::new(format.paths()));
        let body = self.body.get_or_insert_with(new);
        let is_answer = &mut self.is_answer;
        let mut out = detail.filter(out);
        body.push(bytes, &mut |field, found| {
            if !failed {
                deliver(field, found, &mut |field, found: Found<'_>| {
                    *is_answer |= found.value != Value::Null && F::is_answer(field);
                    format.value(field, found, &mut out);
                });
            }
        });
        self.has_misfit |= lenient::take_misfit();
    }

    fn end(&mut self, out: &mut impl EventSink) {
        let Some(mut body) = self.body.take() else {
            return;
        };
        let (format, failed, detail) = (&mut self.format, self.failed, &mut self.detail);
        let is_answer = self.is_answer;
        let mut out = detail.filter(out);
        let outcome = body.finish(&mut |field, found| {
            if !failed {
                deliver(field, found, &mut |field, found: Found<'_>| {
                    format.value(field, found, &mut out);
                });
            }
        });
        let has_misfit = std::mem::take(&mut self.has_misfit) | lenient::take_misfit();
        let mut is_error = failed || body.errors().is_error();
        if !failed {
            format.end(&mut is_error, &mut out);
        }
        if is_error {
            let kind = body.errors().kind();
            out(Event::Failed { kind });
        }
        if is_answer {
            out(Event::Answered);
        }
        // The body of an error status can be a web page or empty. Both are not malformed.
        match outcome {
            _ if failed => {}
            Outcome::Malformed => out(Event::ParseError(ParseError::BadJson)),
            Outcome::Cut => out(Event::ParseError(ParseError::Unterminated)),
            Outcome::Complete if has_misfit => out(Event::ParseError(ParseError::BadJson)),
            Outcome::Complete if body.is_lossy() => out(Event::ParseError(ParseError::BadText)),
            Outcome::Complete => {}
        }
    }
}
