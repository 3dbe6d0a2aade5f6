//! Reads OpenAI's formats, which most providers use: chat completions, completions, embeddings, Responses, and the APIs
//! for audio, images and moderation.
//!
//! Providers deviate from these formats. Usage and reasoning can be in other places, and fields can be null, repeated
//! or absent. Deviations are detected from the message alone, because another proxy can hide the provider.

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

pub use chat::Chat;
pub use media::MediaReader;
pub use realtime::Realtime;
pub use request::{REQUEST, REQUEST_ROWS};
pub use responses::{Responses, TurnMessage};

use super::response::FormatReader;
use super::{Api, Reader, RequestFacts};
use crate::budget::RequestBudget;

pub fn reader(api: Api, request: &RequestFacts, failed: bool, budget: &RequestBudget) -> Reader {
    match api {
        Api::OpenAiResponses | Api::OpenAiStoredResponse | Api::OpenAiCompaction => {
            FormatReader::new(Responses::new(api), failed).with_templates(budget).into()
        }
        Api::OpenAiTranscription | Api::OpenAiSpeech | Api::OpenAiImages => {
            MediaReader::new(api, failed).into()
        }
        _ => {
            let chat = Chat::new(api).with_request(request);
            FormatReader::new(chat, failed).with_templates(budget).into()
        }
    }
}

#[cfg(test)]
mod tests;
