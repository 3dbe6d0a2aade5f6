//! Replicate: streams of server-sent events whose data is plain text.
//!
//! The lines of an event are joined by line ends, which belong to the text. An empty event is an empty token.

use std::borrow::Cow;

use serde::Deserialize;

use super::emit::emit_text;
use super::error_field::ERROR_ROWS;
use super::errors::ErrorValue;
use super::json::{Paths, Position, Value};
use super::lenient::Text;
use super::request::RequestPaths;
use super::response::{ErrorReport, Format, FormatReader, Message};
use super::{Api, Event, Part, RequestFacts};
use crate::frame::{Frame, ParseError};

/// A body that is not a stream is an error.
static PATHS: Paths<()> = Paths::new(&[]).with_errors(ERROR_ROWS);

/// A stream is fetched, so its request has no body.
static REQUEST: RequestPaths = RequestPaths::new(&[]);

/// Reads the response of one call.
#[derive(Debug)]
pub struct Reader {
    /// The status says that the response is an error.
    failed: bool,
    /// Reads all frames but text.
    other: FormatReader<LastEvent>,
}

/// The event that ends a stream.
#[derive(Debug)]
pub struct LastEvent;

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct End<'a> {
    reason: Text<'a>,
    error: ErrorValue<'a>,
}

pub const fn reader(_: Api, _: &RequestFacts, failed: bool) -> Reader {
    Reader { failed, other: FormatReader::new(LastEvent, failed) }
}

pub const fn request_paths(_: Api) -> &'static RequestPaths {
    &REQUEST
}

impl Reader {
    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        match frame {
            Frame::Event { name: b"output", data } if !self.failed => {
                let text = String::from_utf8_lossy(data);
                if let Cow::Owned(_) = text {
                    out(Event::ParseError(ParseError::BadText));
                }
                emit_text(0, Part::Text, &text, out);
            }
            // Other events, such as logs, are not part of the response.
            Frame::Event { name, .. } if !matches!(*name, b"done" | b"error") && !self.failed => {}
            Frame::Event { .. }
            | Frame::Exception { .. }
            | Frame::BareJson(_)
            | Frame::BodyChunk(_)
            | Frame::BodyEnd
            | Frame::ParseError(_) => self.other.read(frame, out),
        }
    }
}

impl Format for LastEvent {
    type Field = ();

    fn paths(&self) -> &'static Paths<()> {
        &PATHS
    }

    fn message(&mut self, message: Message<'_>, out: &mut impl FnMut(Event<'_>)) {
        message.parse::<End<'_>, _>(&mut None, out, |end, out| {
            if message.name == b"done" {
                out(Event::Stopped { choice: 0, reason: end.reason.some().unwrap_or("done") });
                out(Event::Done);
            }
        });
    }

    fn value(&mut self, (): (), _: Position<'_>, _: Value<'_>, _: &mut impl FnMut(Event<'_>)) {}
}

impl ErrorReport for End<'_> {
    fn is_error(&self) -> bool {
        self.reason.0 == "error" || !self.error.is_none()
    }

    fn error_kind(&self) -> Option<&str> {
        self.error.kind()
    }
}

#[cfg(test)]
mod tests;
