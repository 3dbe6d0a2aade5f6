//! The formats that OpenAI began and most others speak: chat completions, completions, embeddings, Responses, and the
//! APIs for sound, images and moderation.
//!
//! Each provider has habits of its own (where usage stands, where reasoning is, which fields are null, doubled or left
//! out). They are told by the message alone, never by who sent it: a proxy in front may hide that.

mod body;
mod choices;
mod chunk;
mod lines;
mod media;
mod named;
mod object;
mod realtime;
mod request;
mod responses;
mod stream;
mod tools;
mod usage;

use body::Body;
pub use realtime::Realtime;

use super::asked::Format;
use super::{Api, Event};
use crate::frame::Frame;

pub const REQUEST: Format = Format { keys: request::KEYS, take: request::take };

/// Reads the answer of one call.
#[derive(Debug)]
pub struct Response {
    api: Api,
    /// The status says that the answer is an error.
    failed: bool,
    /// Each made when the first frame of its kind comes.
    stream: Option<Stream>,
    body: Option<Box<Body>>,
}

/// An answer that comes as a stream, by the form of its messages.
#[derive(Debug)]
enum Stream {
    Chat(Box<stream::Stream>),
    Responses(Box<responses::Stream>),
    Media(Box<media::Stream>),
}

impl Response {
    pub const fn new(api: Api, failed: bool) -> Self {
        Self { api, failed, stream: None, body: None }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        let (api, failed) = (self.api, self.failed);
        match frame {
            Frame::Event { name, data } => {
                let stream = || Stream::new(api, failed);
                self.stream.get_or_insert_with(stream).read(name, data, out);
            }
            Frame::Exception { .. } => out(Event::Failed { kind: None }),
            Frame::Stray(line) if !failed => self.stray(line, out),
            Frame::Stray(_) => {}
            Frame::Piece(bytes) => {
                let body = || Box::new(Body::new(api, failed, bytes.first().copied()));
                self.body.get_or_insert_with(body).piece(bytes, out);
            }
            Frame::Whole => {
                if let Some(body) = self.body.take() {
                    body.end(failed, out);
                }
            }
            Frame::Odd(anomaly) => out(Event::Odd(*anomaly)),
        }
    }

    /// What stands bare in a stream is an error that a server or a gateway wrote there, or nothing that is known.
    fn stray(&self, line: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let mut stream = stream::Stream::new(self.api, false);
        stream.read(b"", line, &mut |event| {
            if let Event::Failed { .. } = event {
                out(event);
            }
        });
    }
}

impl Stream {
    fn new(api: Api, failed: bool) -> Self {
        if matches!(api, Api::OpenAiResponses | Api::OpenAiStoredResponse) {
            Self::Responses(Box::new(responses::Stream::new(api, failed)))
        } else if matches!(api, Api::OpenAiTranscription | Api::OpenAiSpeech | Api::OpenAiImages) {
            Self::Media(Box::new(media::Stream::new(api, failed)))
        } else {
            Self::Chat(Box::new(stream::Stream::new(api, failed)))
        }
    }

    fn read(&mut self, name: &[u8], data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        match self {
            Self::Chat(stream) => stream.read(name, data, out),
            Self::Responses(stream) => stream.read(name, data, out),
            Self::Media(stream) => stream.read(name, data, out),
        }
    }
}

#[cfg(test)]
mod tests;
