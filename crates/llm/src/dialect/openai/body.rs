//! An answer that is one message as a whole → events, as its bytes go by.

use super::lines::Lines;
use super::object::{KEYS, Object};
use crate::dialect::json::{Outcome, Skimmer};
use crate::dialect::{Api, Event, Part};
use crate::frame::Anomaly;

#[derive(Debug)]
pub struct Body {
    content: Content,
    object: Object,
}

/// What the body is made of.
#[derive(Debug)]
enum Content {
    Json(Skimmer),
    /// A transcript without any JSON around it.
    Transcript(Lines),
    /// Speech.
    Sound,
}

impl Body {
    /// `first`: the first byte.
    pub fn new(api: Api, failed: bool, first: Option<u8>) -> Self {
        let is_object = failed || first == Some(b'{');
        let content = if api == Api::OpenAiTranscription && !is_object {
            Content::Transcript(Lines::default())
        } else if api == Api::OpenAiSpeech && !is_object {
            Content::Sound
        } else {
            Content::Json(Skimmer::new(KEYS))
        };
        Self { content, object: Object::new(api, failed) }
    }

    pub fn piece(&mut self, bytes: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let object = &mut self.object;
        match &mut self.content {
            Content::Json(skimmer) => {
                skimmer.push(bytes, &mut |path, value| object.take(path, value, out));
            }
            Content::Transcript(lines) => lines.push(bytes, &mut |text| transcript(text, out)),
            Content::Sound => {}
        }
    }

    /// The message is over. `failed`: the status says that it is an error.
    pub fn end(mut self, failed: bool, out: &mut impl FnMut(Event<'_>)) {
        let object = &mut self.object;
        let (outcome, lossy) = match &mut self.content {
            Content::Json(skimmer) => {
                let outcome = skimmer.finish(&mut |path, value| object.take(path, value, out));
                (outcome, skimmer.lossy())
            }
            Content::Transcript(lines) => {
                lines.finish(&mut |text| transcript(text, out));
                (Outcome::Complete, false)
            }
            Content::Sound => (Outcome::Complete, false),
        };
        object.end(out);
        match outcome {
            // What comes with an error status may be a web page or nothing; that is not odd.
            _ if failed => {}
            // Sound may begin with any byte.
            Outcome::Broken | Outcome::Cut if object.is_speech() => {}
            Outcome::Broken => out(Event::Odd(Anomaly::BadJson)),
            Outcome::Cut => out(Event::Odd(Anomaly::Unterminated)),
            Outcome::Complete if lossy => out(Event::Odd(Anomaly::BadText)),
            Outcome::Complete => {}
        }
    }
}

fn transcript(text: &str, out: &mut impl FnMut(Event<'_>)) {
    let (choice, part) = (0, Part::Transcript);
    out(Event::Text { choice, part, text });
}
