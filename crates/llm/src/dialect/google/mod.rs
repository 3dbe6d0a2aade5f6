//! Google's formats, of Gemini and of Vertex AI alike: generateContent, interactions, embeddings and what stands beside
//! them.
//!
//! A streamed generateContent is server-sent events or one array, of the same messages; it has no end mark, so that it
//! came to its end is known by the finish reason of each candidate.

mod body;
mod calls;
mod chunk;
mod parts;
mod request;
mod steps;
mod stray;
mod stream;
mod usage;
mod words;

use body::Body;
use steps::Steps;
use stray::Stray;
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
    steps: Option<Box<Steps>>,
    stray: Option<Box<Stray>>,
    body: Option<Box<Body>>,
}

impl Response {
    /// `failed`: the status says that the answer is an error.
    pub const fn new(api: Api, _model: Option<&Name>, failed: bool) -> Self {
        Self {
            api,
            failed,
            told: Told::Nothing,
            stream: None,
            steps: None,
            stray: None,
            body: None,
        }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        let mut told = self.told;
        let stored = self.api == Api::GeminiStoredInteraction;
        self.frame(frame, &mut |event| {
            // What is fetched was generated before, and counted then.
            if stored && matches!(event, Event::Text { .. } | Event::Usage(_)) {
                return;
            }
            if told.admits(&event) {
                out(event);
            }
        });
        self.told = told;
    }

    fn frame(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        let failed = self.failed;
        let interaction =
            matches!(self.api, Api::GeminiInteractions | Api::GeminiStoredInteraction);
        match frame {
            Frame::Event { data, .. } if interaction => {
                let steps = || Box::new(Steps::new(failed));
                self.steps.get_or_insert_with(steps).read(data, out);
            }
            Frame::Event { data, .. } => {
                let stream = || Box::new(Stream::new(failed));
                self.stream.get_or_insert_with(stream).read(data, out);
            }
            Frame::Exception { .. } => out(Event::Failed { kind: None }),
            Frame::Stray(line) => self.stray.get_or_insert_default().line(line, out),
            Frame::Piece(bytes) => {
                let body = || Box::new(Body::new(interaction, failed));
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

#[cfg(test)]
mod tests;
