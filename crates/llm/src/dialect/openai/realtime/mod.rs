//! Messages of a Realtime session → events.
//!
//! A session is many responses over one connection, some side by side, told apart by their ids; each is a choice of its
//! own here, numbered in the order in which they begin. What each reports of its usage adds up. Speech that the session
//! writes down for the client (input transcription) was generated too and is counted, under numbers from the other end,
//! since it is nobody's answer. Events have had two sets of names (`response.text.delta` became
//! `response.output_text.delta`); both are read, and what is unknown is passed over.

mod message;

use std::hash::{DefaultHasher, Hash, Hasher};

use message::{Message, RawUsage, read};

use crate::dialect::failure::Failure;
use crate::dialect::{Event, Part, RequestFacts, Usage};
use tokengauge_types::label::Name;

/// The most responses and transcriptions going on at once that are told apart; of more, the oldest is taken for over.
/// A voice session has two or three.
const MOST_GOING: usize = 64;

/// The most texts of one response of which it is known whether they came piece by piece.
const MOST_TEXTS: usize = 64;

/// The one type of error that is the client's mistake and leaves the session as it was.
const CLIENTS_MISTAKE: &str = "invalid_request_error";

/// Reads both sides of one session.
#[derive(Debug, Default)]
pub struct Realtime {
    facts: RequestFacts,
    accepted: bool,
    /// Of all responses so far.
    usage: Usage,
    going: Vec<Going>,
    responses: u32,
    transcriptions: u32,
    spoken: bool,
    failed: bool,
    error: Option<Name>,
}

/// A response, or a transcription, that has begun and is not over.
#[derive(Debug)]
struct Going {
    key: u64,
    choice: u32,
    /// The texts of which pieces came.
    pieces: Vec<u64>,
}

impl Realtime {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a message of the client.
    pub fn client(&mut self, message: &[u8], out: &mut impl FnMut(Event<'_>)) {
        read(message, out, |message, _| {
            if let "session.update" | "transcription_session.update" = &*message.kind.0
                && let Some(session) = &message.session.0
            {
                session.ask(&mut self.facts);
            }
        });
    }

    /// Reads a message of the server.
    pub fn server(&mut self, message: &[u8], out: &mut impl FnMut(Event<'_>)) {
        read(message, out, |message, out| self.said(message, out));
    }

    /// What the client asked for, as far as its messages say.
    pub const fn facts(&self) -> &RequestFacts {
        &self.facts
    }

    /// Whether the server has taken the session up: it has said something other than that something is wrong.
    pub const fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// Whether anything was generated.
    pub const fn has_spoken(&self) -> bool {
        self.spoken
    }

    /// Whether nothing is being generated: what comes next is text of its own.
    pub const fn is_idle(&self) -> bool {
        self.going.is_empty()
    }

    /// Whether the server's last word on its work was an error of its own. A response that ends well after it makes it
    /// good, and what the client did wrong is none.
    pub const fn has_failed(&self) -> bool {
        self.failed
    }

    /// The kind of the last error, whoever's it was.
    pub const fn error(&self) -> Option<&Name> {
        self.error.as_ref()
    }

    fn said(&mut self, message: &Message<'_>, out: &mut impl FnMut(Event<'_>)) {
        let kind = &*message.kind.0;
        self.accepted |= !kind.is_empty() && kind != "error";
        match kind {
            "error" => {
                let kind = self.note_error(&message.error);
                self.failed |= kind.as_deref() != Some(CLIENTS_MISTAKE);
            }
            "session.created"
            | "session.updated"
            | "transcription_session.created"
            | "transcription_session.updated" => {
                if let Some(session) = &message.session.0 {
                    let (id, model) = (session.id.some(), session.model());
                    out(Event::Started { id, model });
                }
            }
            "response.created" => {
                self.response(message);
            }
            "response.done" => self.response_done(message, out),
            "conversation.item.input_audio_transcription.delta" => {
                let going = self.transcription(message);
                self.say(going, &Piece::of_speech(message, false), out);
            }
            "conversation.item.input_audio_transcription.completed" => {
                let going = self.transcription(message);
                self.say(going, &Piece::of_speech(message, true), out);
                self.going.remove(going);
                self.report(message.usage.0.as_deref(), out);
            }
            "conversation.item.input_audio_transcription.failed" => {
                let going = self.transcription(message);
                self.going.remove(going);
            }
            _ => {
                if let Some(piece) = Piece::of_response(message) {
                    let going = self.response(message);
                    self.say(going, &piece, out);
                }
            }
        }
    }

    fn response_done(&mut self, message: &Message<'_>, out: &mut impl FnMut(Event<'_>)) {
        let going = self.response(message);
        let choice = self.going.remove(going).choice;
        let Some(response) = &message.response.0 else {
            return;
        };
        let status = response.status.some();
        self.failed = status == Some("failed");
        if let (true, Some(details)) = (self.failed, &response.status_details.0) {
            self.note_error(&details.error);
        }
        self.report(response.usage.0.as_ref(), out);
        if let Some(reason) = status {
            out(Event::Stopped { choice, reason });
        }
    }

    fn say(&mut self, going: usize, piece: &Piece<'_>, out: &mut impl FnMut(Event<'_>)) {
        let Some(going) = self.going.get_mut(going) else {
            return;
        };
        if piece.text.is_empty() || (piece.whole && going.has_pieces(piece.place)) {
            return;
        }
        going.note_piece(piece.place);
        self.spoken = true;
        let (choice, part, text) = (going.choice, piece.part, piece.text);
        out(Event::Text { choice, part, text });
    }

    /// Adds up what is reported of one response, and tells the sum.
    fn report(&mut self, usage: Option<&RawUsage>, out: &mut impl FnMut(Event<'_>)) {
        let Some(usage) = usage.map(RawUsage::harmonised) else {
            return;
        };
        let sum = &mut self.usage;
        for (total, more) in [
            (&mut sum.input, usage.input),
            (&mut sum.output, usage.output),
            (&mut sum.cache_read, usage.cache_read),
            (&mut sum.reasoning, usage.reasoning),
            (&mut sum.input_by.text, usage.input_by.text),
            (&mut sum.input_by.audio, usage.input_by.audio),
            (&mut sum.input_by.image, usage.input_by.image),
            (&mut sum.output_by.text, usage.output_by.text),
            (&mut sum.output_by.audio, usage.output_by.audio),
        ] {
            if let Some(more) = more {
                *total = Some(total.unwrap_or(0).saturating_add(more));
            }
        }
        if self.usage != Usage::default() {
            out(Event::Usage(self.usage));
        }
    }

    fn note_error(&mut self, failure: &Failure<'_>) -> Option<String> {
        let kind = failure.kind()?;
        self.error = Name::new(kind);
        Some(kind.to_owned())
    }

    /// Where the response that `message` belongs to stands in the list of those going on.
    fn response(&mut self, message: &Message<'_>) -> usize {
        let own = message.response.0.as_ref();
        let id = own.and_then(|response| response.id.some());
        let key = hash(&("response", id.or(message.response_id.some())));
        self.place(key).unwrap_or_else(|| {
            let choice = self.responses;
            self.responses = choice.saturating_add(1);
            self.begin(key, choice)
        })
    }

    fn transcription(&mut self, message: &Message<'_>) -> usize {
        let key = hash(&("item", message.item_id.some(), message.content_index.0));
        self.place(key).unwrap_or_else(|| {
            let choice = u32::MAX.saturating_sub(self.transcriptions);
            self.transcriptions = self.transcriptions.saturating_add(1);
            self.begin(key, choice)
        })
    }

    fn place(&self, key: u64) -> Option<usize> {
        self.going.iter().position(|going| going.key == key)
    }

    fn begin(&mut self, key: u64, choice: u32) -> usize {
        if self.going.len() == MOST_GOING {
            self.going.remove(0);
        }
        self.going.push(Going { key, choice, pieces: Vec::new() });
        self.going.len() - 1
    }
}

impl Going {
    fn has_pieces(&self, text: u64) -> bool {
        self.pieces.len() == MOST_TEXTS || self.pieces.contains(&text)
    }

    fn note_piece(&mut self, text: u64) {
        if !self.has_pieces(text) {
            self.pieces.push(text);
        }
    }
}

/// Generated text: a piece of it, or all of it once more when it is done, which counts where no pieces came.
struct Piece<'a> {
    part: Part,
    text: &'a str,
    whole: bool,
    /// Which text of its response it belongs to.
    place: u64,
}

impl<'a> Piece<'a> {
    fn of_response(message: &'a Message<'_>) -> Option<Self> {
        let kind = message.kind.0.strip_prefix("response.")?;
        let (stem, whole) = match kind.strip_suffix(".delta") {
            Some(stem) => (stem, false),
            None => (kind.strip_suffix(".done")?, true),
        };
        let output = message.output_index.0.unwrap_or(0);
        let (part, all) = match stem {
            "output_text" | "text" => (Part::Text, &message.text),
            "output_audio_transcript" | "audio_transcript" => {
                (Part::Transcript, &message.transcript)
            }
            "function_call_arguments" | "mcp_call_arguments" => {
                let call = u32::try_from(output).unwrap_or(u32::MAX);
                (Part::Tool(call), &message.arguments)
            }
            _ => return None,
        };
        Some(Self {
            part,
            text: if whole { &all.0 } else { &message.delta.0 },
            whole,
            place: hash(&(part, output, message.content_index.0.unwrap_or(0))),
        })
    }

    fn of_speech(message: &'a Message<'_>, whole: bool) -> Self {
        Self {
            part: Part::Transcript,
            text: if whole { &message.transcript.0 } else { &message.delta.0 },
            whole,
            place: 0,
        }
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
