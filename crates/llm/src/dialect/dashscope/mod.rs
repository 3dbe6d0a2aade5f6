//! Alibaba's own formats, DashScope: generation and embeddings.
//!
//! A stream says the whole text so far in each message, unless the request asks for what is new alone. Its messages are
//! server-sent events; which of both a request wants stands in a header.

mod body;
mod chunk;
mod request;

use super::asked::Format;
use super::lenient::Count;
use super::shapes::Shapes;
use super::{Event, Usage};
use crate::frame::Frame;

pub const REQUEST: Format = Format { keys: request::KEYS, take: request::take };

/// What stands, as a word, for no reason.
const NO_REASON: &str = "null";

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

/// The counts of an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    input: Count,
    output: Count,
    total: Count,
    cached: Count,
    reasoning: Count,
}

impl Counts {
    fn tell(self, out: &mut impl FnMut(Event<'_>)) {
        let usage = Usage {
            // Embeddings have only the total, and that is input.
            input: self.input.0.or(self.total.0.filter(|_| self.output.0.is_none())),
            output: self.output.0,
            cache_read: self.cached.0,
            reasoning: self.reasoning.0,
            ..Usage::default()
        };
        if usage != Usage::default() {
            out(Event::Usage(usage));
        }
    }
}

fn stopped(choice: u32, reason: &str, out: &mut impl FnMut(Event<'_>)) {
    if !reason.is_empty() && reason != NO_REASON {
        out(Event::Stopped { choice, reason });
    }
}

#[cfg(test)]
mod tests;
