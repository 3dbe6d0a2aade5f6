//! OpenAI's formats, which most providers share: chat completions, completions, embeddings, Responses, and the APIs for
//! sound, images and moderation.
//!
//! Providers deviate: in the places of usage and reasoning, and in fields that are null, repeated or absent. A deviation
//! is detected by the message alone, because a proxy in front may hide the provider.

mod chat;
mod chunk;
mod media;
mod message_type;
mod realtime;
mod request;
mod responses;
mod tools;
mod transcript;
mod usage;

pub use realtime::Realtime;
pub use request::{REQUEST_ROWS, request_paths};

use super::response::FormatReader;
use super::{Api, Event, RequestFacts};
use crate::frame::Frame;
use chat::Chat;
use media::MediaReader;
use responses::Responses;

/// Reads the response of one call.
#[derive(Debug)]
pub enum Reader {
    Chat(Box<FormatReader<Chat>>),
    Responses(Box<FormatReader<Responses>>),
    Media(Box<MediaReader>),
}

pub fn reader(api: Api, _: &RequestFacts, failed: bool) -> Reader {
    if matches!(api, Api::OpenAiResponses | Api::OpenAiStoredResponse) {
        Reader::Responses(Box::new(FormatReader::new(Responses::new(api), failed)))
    } else if matches!(api, Api::OpenAiTranscription | Api::OpenAiSpeech | Api::OpenAiImages) {
        Reader::Media(Box::new(MediaReader::new(api, failed)))
    } else {
        Reader::Chat(Box::new(FormatReader::new(Chat::new(api), failed)))
    }
}

impl Reader {
    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        match self {
            Self::Chat(reader) => reader.read(frame, out),
            Self::Responses(reader) => reader.read(frame, out),
            Self::Media(reader) => reader.read(frame, out),
        }
    }
}

#[cfg(test)]
mod tests;
