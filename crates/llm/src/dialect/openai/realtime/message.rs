//! One message of a Realtime session, as far as it is read; strings are borrowed from it.

use serde::Deserialize;

use crate::dialect::failure::Failure;
use crate::dialect::lenient::{Count, Object, Text};
use crate::dialect::{ByModality, Event, RequestFacts, Usage, repair};
use crate::frame::Anomaly;
use tokengauge_types::label::Name;

/// One message of either side, as far as it is read.
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
    pub error: Failure<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Session<'a> {
    pub id: Text<'a>,
    model: Text<'a>,
    audio: Object<Audio<'a>>,
    /// Where the transcription stood at first.
    input_audio_transcription: Object<Transcription<'a>>,
    max_output_tokens: Count,
    /// Its first name.
    max_response_output_tokens: Count,
    reasoning: Object<Reasoning<'a>>,
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
struct Reasoning<'a> {
    effort: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Response<'a> {
    pub id: Text<'a>,
    pub status: Text<'a>,
    pub status_details: Object<Details<'a>>,
    pub usage: Object<RawUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Details<'a> {
    pub error: Failure<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RawUsage {
    input_tokens: Count,
    output_tokens: Count,
    input_token_details: Object<InputDetails>,
    output_token_details: Object<OutputDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Count,
    text_tokens: Count,
    audio_tokens: Count,
    image_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Count,
    text_tokens: Count,
    audio_tokens: Count,
}

impl Session<'_> {
    /// A session that only transcribes has no model but that of its transcription.
    pub fn model(&self) -> Option<&str> {
        let audio = self.audio.0.as_ref();
        let input = audio.and_then(|audio| audio.input.0.as_ref());
        let transcription = input.and_then(|input| input.transcription.0.as_ref());
        let transcription = transcription.or(self.input_audio_transcription.0.as_ref());
        let transcribes = transcription.and_then(|transcription| transcription.model.some());
        self.model.some().or(transcribes)
    }

    pub fn ask(&self, facts: &mut RequestFacts) {
        if let Some(model) = self.model.some() {
            facts.model = Name::new(model);
        }
        let most = self.max_output_tokens.0;
        if let Some(most) = most.or(self.max_response_output_tokens.0) {
            facts.max_tokens = i64::try_from(most).ok();
        }
        if let Some(reasoning) = &self.reasoning.0 {
            facts.reasoning_level = Name::new(&reasoning.effort.0);
        }
    }
}

impl RawUsage {
    pub fn harmonised(&self) -> Usage {
        let input = self.input_token_details.0.as_ref();
        let output = self.output_token_details.0.as_ref();
        Usage {
            input: self.input_tokens.0,
            output: self.output_tokens.0,
            cache_read: input.and_then(|input| input.cached_tokens.0),
            cache_write: None,
            reasoning: output.and_then(|output| output.reasoning_tokens.0),
            input_by: input.map_or_else(ByModality::default, |input| ByModality {
                text: input.text_tokens.0,
                audio: input.audio_tokens.0,
                image: input.image_tokens.0,
                ..ByModality::default()
            }),
            output_by: output.map_or_else(ByModality::default, |output| ByModality {
                text: output.text_tokens.0,
                audio: output.audio_tokens.0,
                ..ByModality::default()
            }),
        }
    }
}

/// Hands `message` to `take`, as it stands or with its text repaired.
pub fn read<O: FnMut(Event<'_>)>(
    message: &[u8],
    out: &mut O,
    mut take: impl FnMut(&Message<'_>, &mut O),
) {
    if let Ok(message) = serde_json::from_slice(message) {
        return take(&message, out);
    }
    let repaired = repair::tree(message);
    let read = repaired.as_ref().and_then(|repaired| Message::deserialize(&repaired.tree).ok());
    match read {
        Some(message) => {
            if repaired.as_ref().is_some_and(|repaired| repaired.lossy) {
                out(Event::Odd(Anomaly::BadText));
            }
            take(&message, out);
        }
        None => out(Event::Odd(Anomaly::BadJson)),
    }
}
