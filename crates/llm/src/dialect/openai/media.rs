//! Streams of the APIs for sound and images, whose messages are of many kinds, as those of Responses are.

use serde::Deserialize;

use super::named::kind;
use super::stream::Stream as Chat;
use super::usage::RawUsage;
use crate::dialect::lenient::{Object, Text};
use crate::dialect::repair;
use crate::dialect::{Api, Event, Part};
use crate::frame::Anomaly;

#[derive(Debug)]
pub struct Stream {
    api: Api,
    /// Whether any of the transcript came.
    spoken: bool,
    /// vLLM streams transcripts in the form of a chat, and errors have one form everywhere.
    chat: Chat,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Message<'a> {
    model: Text<'a>,
    delta: Text<'a>,
    /// The whole transcript; in Mistral's pieces, the piece.
    text: Text<'a>,
    usage: Object<Box<RawUsage>>,
}

impl Stream {
    pub fn new(api: Api, failed: bool) -> Self {
        Self { api, spoken: false, chat: Chat::new(api, failed) }
    }

    /// Reads one event of the stream.
    pub fn read(&mut self, name: &[u8], data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let data = data.trim_ascii();
        let kind = kind(name, data);
        match (self.api, &*kind) {
            // A failed answer has errors only.
            _ if self.chat.failed() => self.chat.read(name, data, out),
            (Api::OpenAiTranscription, "transcript.text.delta" | "transcription.text.delta") => {
                self.piece(data, out)
            }
            (Api::OpenAiTranscription, "transcript.text.done" | "transcription.done")
            | (Api::OpenAiSpeech, "speech.audio.done")
            | (Api::OpenAiImages, "image_generation.completed" | "image_edit.completed") => {
                self.last(data, out)
            }
            (_, "error") => self.chat.read(b"error", data, out),
            (_, "") => self.chat.read(name, data, out),
            _ => {}
        }
    }

    fn piece(&mut self, data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        self.message(data, out, |message, out| {
            let piece = message.delta.some().or(message.text.some());
            say(piece, out);
        });
        self.spoken = true;
    }

    /// Reads the last message, which repeats the whole.
    fn last(&mut self, data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let spoken = self.spoken;
        self.message(data, out, |message, out| {
            if let Some(model) = message.model.some() {
                let model = Some(model);
                out(Event::Started { id: None, model });
            }
            say(message.text.some().filter(|_| !spoken), out);
            if let Some(usage) = message.usage.0.as_ref().and_then(|raw| raw.harmonised()) {
                out(Event::Usage(usage));
            }
            out(Event::Done);
        });
    }

    fn message<Out: FnMut(Event<'_>)>(
        &self,
        data: &[u8],
        out: &mut Out,
        take: impl FnOnce(&Message<'_>, &mut Out),
    ) {
        match repair::read(data, &mut None) {
            Some((message, lossy)) => {
                if lossy {
                    out(Event::Odd(Anomaly::BadText));
                }
                take(&message, out);
            }
            None => out(Event::Odd(Anomaly::BadJson)),
        }
    }
}

fn say(text: Option<&str>, out: &mut impl FnMut(Event<'_>)) {
    if let Some(text) = text {
        let (choice, part) = (0, Part::Transcript);
        out(Event::Text { choice, part, text });
    }
}
