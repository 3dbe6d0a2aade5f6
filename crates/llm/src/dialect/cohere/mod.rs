//! Cohere's formats: the first version of chat and generate, the second of chat, embeddings, and reranking, which others
//! took over.
//!
//! The versions are told by the message alone. Cohere reports two sets of counts: what it bills and what the model saw,
//! with the template around it; only the latter are tokens of the call, except for embeddings, where they are the same
//! and only the former is told.

mod body;
mod chunk;
mod request;
mod stream;
mod usage;

use body::Body;
use stream::Stream;

use super::asked::Format;
use super::failure::Told;
use super::{Api, Event};
use crate::frame::Frame;
use tokengauge_types::label::Name;

pub const REQUEST: Format = Format { keys: request::KEYS, take: request::take };

/// Reads the answer of one call.
#[derive(Debug)]
pub struct Response {
    api: Api,
    /// The status says that the answer is an error.
    failed: bool,
    told: Told,
    /// Each made when the first frame of its kind comes.
    stream: Option<Box<Stream>>,
    body: Option<Box<Body>>,
}

impl Response {
    /// `failed`: the status says that the answer is an error.
    pub const fn new(api: Api, _model: Option<&Name>, failed: bool) -> Self {
        Self { api, failed, told: Told::Nothing, stream: None, body: None }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        let mut told = self.told;
        self.frame(frame, &mut |event| {
            if told.admits(&event) {
                out(event);
            }
        });
        self.told = told;
    }

    fn frame(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        let (api, failed) = (self.api, self.failed);
        match frame {
            Frame::Event { name, data } => {
                let stream = || Box::new(Stream::new(failed));
                self.stream.get_or_insert_with(stream).read(name, data, out);
            }
            Frame::Exception { .. } => out(Event::Failed { kind: None }),
            Frame::Stray(_) => {}
            Frame::Piece(bytes) => {
                let body = || Box::new(Body::new(api, failed));
                self.body.get_or_insert_with(body).piece(bytes, out);
            }
            Frame::Whole => {
                if let Some(body) = self.body.take() {
                    body.end(out);
                }
            }
            Frame::Odd(anomaly) => out(Event::Odd(*anomaly)),
        }
    }
}

/// Says that a choice ended. Two of Cohere's reasons are errors.
fn stopped(choice: u32, reason: &str, out: &mut impl FnMut(Event<'_>)) {
    out(Event::Stopped { choice, reason });
    if matches!(reason, "ERROR" | "TIMEOUT") {
        let kind = Some(reason);
        out(Event::Failed { kind });
    }
}

#[cfg(test)]
mod tests;
