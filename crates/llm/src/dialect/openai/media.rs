//! Reads responses of the APIs for audio and images.

use serde::Deserialize;

use super::chat::{Chat, ChatField};
use super::message_type::message_type;
use super::transcript::Transcript;
use super::usage::RawUsage;
use crate::dialect::emit::{emit_text, emit_usage};
use crate::dialect::json::{Found, Paths};
use crate::dialect::lenient::{Object, Text};
use crate::dialect::response::{ErrorReport, Format, FormatReader, Message, report_misfit};
use crate::dialect::{Api, Event, EventSink, Part};
use crate::frame::{Frame, ParseError};

/// Reads a response whose body is not necessarily JSON.
#[derive(Debug)]
pub struct MediaReader {
    api: Api,
    failed: bool,
    json: FormatReader<Media>,
    /// The type of the body's content. `None` before the first byte.
    content: Option<Content>,
}

#[derive(Debug)]
enum Content {
    Json,
    Transcript(Transcript),
    Sound,
}

/// Reads streams, whose messages have types, and JSON bodies.
#[derive(Debug)]
pub struct Media {
    api: Api,
    /// Whether some text of the transcript has arrived.
    has_text: bool,
    /// Reads transcripts that vLLM streams in the chat format. Also reads errors and JSON bodies, which have the same
    /// form in all these APIs.
    chat: Chat,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct TypedMessage<'a> {
    model: Text<'a>,
    delta: Text<'a>,
    /// The whole transcript. In Mistral's messages, a piece of the transcript.
    text: Text<'a>,
    usage: Object<Box<RawUsage>>,
}

impl MediaReader {
    pub fn new(api: Api, failed: bool) -> Self {
        let media = Media { api, has_text: false, chat: Chat::new(api) };
        Self { api, failed, json: FormatReader::new(media, failed), content: None }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl EventSink) {
        match frame {
            Frame::BodyChunk(bytes) => {
                let is_json = self.failed || bytes.first() == Some(&b'{');
                let content = match self.api {
                    Api::OpenAiTranscription if !is_json => {
                        Content::Transcript(Transcript::default())
                    }
                    Api::OpenAiSpeech if !is_json => Content::Sound,
                    _ => Content::Json,
                };
                match self.content.get_or_insert(content) {
                    Content::Json => self.json.read(frame, out),
                    Content::Transcript(transcript) => {
                        transcript
                            .push(bytes, &mut |text| emit_text(0, Part::Transcript, text, out));
                    }
                    Content::Sound => {}
                }
            }
            Frame::BodyEnd => match self.content.take() {
                Some(Content::Transcript(mut transcript)) => {
                    transcript.finish(&mut |text| emit_text(0, Part::Transcript, text, out));
                }
                Some(Content::Json) => self.json.read(frame, &mut |event| {
                    // Audio data can begin with any byte, so it is not an error if it is not text.
                    let is_sound = self.api == Api::OpenAiSpeech
                        && matches!(
                            event,
                            Event::ParseError(ParseError::BadJson | ParseError::Unterminated)
                        );
                    if !is_sound {
                        out(event);
                    }
                }),
                Some(Content::Sound) | None => {}
            },
            _ => self.json.read(frame, out),
        }
    }
}

impl Format for Media {
    type Field = ChatField;

    fn paths(&self) -> &'static Paths<ChatField> {
        self.chat.paths()
    }

    fn message(&mut self, message: Message<'_>, out: &mut impl EventSink) {
        let kind = message_type(message.name, message.data);
        report_misfit(out);
        match (self.api, &*kind) {
            _ if message.is_error => self.chat.message(message, out),
            (Api::OpenAiTranscription, "transcript.text.delta" | "transcription.text.delta") => {
                self.has_text = true;
                message.parse::<TypedMessage<'_>, _>(&mut None, out, |message, out| {
                    let piece = message.delta.some().or(message.text.some());
                    emit_text(0, Part::Transcript, piece.unwrap_or_default(), out);
                });
            }
            (Api::OpenAiTranscription, "transcript.text.done" | "transcription.done")
            | (Api::OpenAiSpeech, "speech.audio.done")
            | (Api::OpenAiImages, "image_generation.completed" | "image_edit.completed") => {
                let is_new = !self.has_text;
                message.parse::<TypedMessage<'_>, _>(&mut None, out, |message, out| {
                    message.emit_last(is_new, out);
                });
            }
            (_, "error") => self.chat.message(Message { is_error: true, ..message }, out),
            (_, "") => self.chat.message(message, out),
            _ => {}
        }
    }

    fn is_answer(field: ChatField) -> bool {
        Chat::is_answer(field)
    }

    fn value(&mut self, field: ChatField, found: Found<'_>, out: &mut impl EventSink) {
        self.chat.value(field, found, out);
    }
}

impl TypedMessage<'_> {
    /// Emits the last message, which repeats the whole transcript.
    fn emit_last(&self, is_new: bool, out: &mut impl EventSink) {
        if let Some(model) = self.model.some() {
            out(Event::Started { id: None, model: Some(model) });
        }
        if is_new {
            emit_text(0, Part::Transcript, &self.text.0, out);
        }
        emit_usage(self.usage.0.as_ref().map(|raw| raw.usage()).unwrap_or_default(), out);
        out(Event::Done);
    }
}

/// Contains no errors, because messages with errors have another type.
impl ErrorReport for TypedMessage<'_> {}
