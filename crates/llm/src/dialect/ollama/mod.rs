//! Ollama's own formats: chat, generate and embed. A stream is lines of JSON, and a stream is what it answers with
//! unless the request says otherwise; a whole answer is the last line with all the text.

mod body;
mod chunk;
mod request;

use super::asked::Format;
use super::shapes::Shapes;
use super::{Event, Timings, Usage};
use crate::frame::Frame;

pub const REQUEST: Format = Format { keys: request::KEYS, take: request::take };

/// Reads the answer of one call.
#[derive(Debug)]
pub struct Response(Shapes<chunk::Stream, body::Whole>);

impl Response {
    /// `failed`: the status says that the answer is an error.
    pub fn new(failed: bool) -> Self {
        Self(Shapes::new(failed))
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.0.read(frame, out);
    }
}

/// Says the counts and clocks that stand at the end of an answer, as far as there are any.
fn account(usage: Usage, timings: Timings, out: &mut impl FnMut(Event<'_>)) {
    if usage != Usage::default() {
        out(Event::Usage(usage));
    }
    if timings != Timings::default() {
        out(Event::Timings(timings));
    }
}

#[cfg(test)]
mod tests;
