//! Replicate's streams: server-sent events whose data is text as it stands. An event's lines are joined by line ends,
//! which are the text's own, and an empty one is an empty token.

use std::borrow::Cow;

use serde::Deserialize;

use super::asked::{Asked, Format};
use super::failure::Failure;
use super::json::{Step, Value};
use super::lenient::Text;
use super::shapes::{Body, Messages, Shapes, say};
use super::{Event, Part};
use crate::frame::{Anomaly, Frame};

/// A stream is fetched: nothing is asked for in its request.
pub const REQUEST: Format = Format { keys: &[], take };

fn take(_asked: &mut Asked, _path: &[Step], _value: Value<'_>) {}

/// The reason of a stream that did not end by itself.
const ERROR: &str = "error";

/// How the end is called where no reason is given.
const DONE: &str = "done";

/// Reads the answer of one call.
#[derive(Debug)]
pub struct Response {
    /// The status says that the answer is an error.
    failed: bool,
    /// What is no text.
    rest: Shapes<Ends, Nothing>,
}

impl Response {
    /// `failed`: the status says that the answer is an error.
    pub fn new(failed: bool) -> Self {
        Self { failed, rest: Shapes::new(failed) }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        match frame {
            Frame::Event { name, data } if *name == b"output" && !self.failed => {
                let text = String::from_utf8_lossy(data);
                if let Cow::Owned(_) = text {
                    out(Event::Odd(Anomaly::BadText));
                }
                say(Part::Text, 0, &text, out);
            }
            // Other events (logs) are no part of the answer, and no JSON.
            Frame::Event { name, .. } if !matches!(*name, b"done" | b"error") && !self.failed => {}
            Frame::Event { .. }
            | Frame::Exception { .. }
            | Frame::Stray(_)
            | Frame::Piece(_)
            | Frame::Whole
            | Frame::Odd(_) => self.rest.read(frame, out),
        }
    }
}

/// Reads the event that a stream ends with.
#[derive(Debug, Default)]
pub struct Ends;

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct End<'a> {
    reason: Text<'a>,
    error: Failure<'a>,
}

impl Messages for Ends {
    type Message<'a> = End<'a>;

    fn message(&mut self, name: &[u8], end: &End<'_>, out: &mut impl FnMut(Event<'_>)) {
        if name == b"done" {
            let (choice, reason) = (0, end.reason.some().unwrap_or(DONE));
            out(Event::Stopped { choice, reason });
            out(Event::Done);
        }
    }

    fn error<'m>(end: &'m End<'_>) -> &'m Failure<'m> {
        match &*end.reason.0 {
            ERROR => &Failure::Message,
            _ => &end.error,
        }
    }
}

/// What is no stream is an error.
#[derive(Debug, Default)]
pub struct Nothing;

impl Body for Nothing {
    const KEYS: &'static [&'static str] = &["error", "type", "code", "status"];

    fn value(&mut self, _: &[Step], _: Value<'_>, _: &mut impl FnMut(Event<'_>)) {}
}

#[cfg(test)]
mod tests;
