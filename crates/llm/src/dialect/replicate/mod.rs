//! Reads Replicate's responses: streams of server-sent events whose data is plain text.
//!
//! If an event has several lines of data, the line ends between them belong to the text. An event without data is an
//! empty token.

use std::borrow::Cow;

use super::emit::emit_text;
use super::request::RequestPaths;
use super::table::{Field, Table, TableReader};
use super::{Event, EventSink, Part, RequestFacts};
use crate::frame::{Frame, ParseError};

/// Describes the event that ends a stream. A body that is not a stream is an error.
static LAST_EVENT: Table = Table {
    last_event: "done",
    ..Table::new(&[("reason", Field::StopReason), ("", Field::Report)])
};

/// Reads nothing: a client fetches a stream with a GET request, which has no body.
pub static REQUEST: RequestPaths = RequestPaths::new(&[]);

#[derive(Debug)]
pub struct Replicate {
    /// Whether the status is an error.
    failed: bool,
    /// Reads all frames except text.
    other: TableReader,
}

impl Replicate {
    pub fn new(failed: bool) -> Self {
        Self { failed, other: LAST_EVENT.reader(&RequestFacts::default(), failed) }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl EventSink) {
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
            _ => {
                let mut has_reason = false;
                self.other.read(frame, &mut |event| {
                    has_reason |= matches!(event, Event::Stopped { .. });
                    if event == Event::Done && !has_reason {
                        out(Event::Stopped { choice: 0, reason: "done" });
                    }
                    out(event);
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
