//! A message of a Realtime session. Its strings are borrowed from the received text.

use serde::Deserialize;

use super::super::usage::RawUsage;
use crate::dialect::lenient::{Count, Object, Text};
use crate::dialect::response::ErrorReport;

/// A message of the client or the server.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Message<'a> {
    #[serde(rename = "type")]
    pub kind: Text<'a>,
    pub response_id: Text<'a>,
    pub item_id: Text<'a>,
    pub output_index: Count,
    pub content_index: Count,
    pub delta: Text<'a>,
    pub text: Text<'a>,
    pub transcript: Text<'a>,
    pub arguments: Text<'a>,
    pub session: Object<Box<Session<'a>>>,
    pub response: Object<Box<Response<'a>>>,
    pub usage: Object<Box<RawUsage>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Session<'a> {
    pub id: Text<'a>,
    model: Text<'a>,
    audio: Object<Audio<'a>>,
    /// Place of the transcription settings in earlier versions of the API.
    input_audio_transcription: Object<Transcription<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Audio<'a> {
    input: Object<AudioInput<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct AudioInput<'a> {
    transcription: Object<Transcription<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Transcription<'a> {
    model: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Response<'a> {
    pub id: Text<'a>,
    pub status: Text<'a>,
    pub usage: Object<Box<RawUsage>>,
}

impl Session<'_> {
    /// Returns the model of the session. If a session only transcribes, returns the model of the transcription.
    pub fn model(&self) -> Option<&str> {
        let audio = self.audio.0.as_ref();
        let input = audio.and_then(|audio| audio.input.0.as_ref());
        let transcription = input.and_then(|input| input.transcription.0.as_ref());
        let transcription = transcription.or(self.input_audio_transcription.0.as_ref());
        let transcribes = transcription.and_then(|transcription| transcription.model.some());
        self.model.some().or(transcribes)
    }
}

/// Reports no errors. The session handles errors itself, because errors of the client do not affect the session.
impl ErrorReport for Message<'_> {}
