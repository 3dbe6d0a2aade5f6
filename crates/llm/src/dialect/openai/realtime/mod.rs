//! Reads sessions of the Realtime API, which run over a WebSocket.
//!
//! A session has many responses, and some of them run in parallel. Messages name their response by its id. Each
//! response is a choice, numbered in the order of their start, and the usage of all responses is added up. The
//! transcription of the user's speech is generated text, too. A transcription belongs to no response, so it is counted
//! as a choice that is numbered down from the maximum. Both versions of event names are read: `response.text.delta` and
//! the newer `response.output_text.delta`. Unknown events are skipped.

mod message;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

use message::Message;

use super::usage::RawUsage;
use crate::dialect::emit::emit_usage;
use crate::dialect::fault::blames_client;
use crate::dialect::json::JsonScanner;
use crate::dialect::request::{RequestField, RequestPaths, RequestState};
use crate::dialect::response::{self, MESSAGE_ERROR, scan_errors};
use crate::dialect::{Event, EventSink, Part, RequestFacts, Usage};
use crate::frame::ParseError;
use tokengauge_types::label::Name;

/// Maximum number of responses and transcriptions in progress. If there are more, the oldest one counts as ended. A
/// voice session has two or three.
const MAX_ACTIVE: usize = 64;

/// Maximum number of texts per response that are recorded as read in pieces, so that they are not read again.
const MAX_TEXTS: usize = 64;

/// The settings that a client requests for its session.
static SETTINGS: RequestPaths = RequestPaths::new(&[
    ("session.model", RequestField::Model),
    // Earlier versions of the API have the longer name.
    ("session.max_output_tokens|max_response_output_tokens", RequestField::MaxTokens),
    ("session.reasoning.effort", RequestField::ReasoningLevel),
]);

/// Reads the messages of both sides of a session.
#[derive(Debug, Default)]
pub struct Realtime {
    settings: RequestState,
    accepted: bool,
    /// Sum of the usage of all responses so far.
    usage: Usage,
    active: Vec<ActiveResponse>,
    responses: u32,
    transcriptions: u32,
    has_generated: bool,
    failed: bool,
    error: Option<Name>,
}

/// A response or a transcription in progress.
#[derive(Debug)]
struct ActiveResponse {
    key: u64,
    choice: u32,
    /// Hashes of the texts that arrive in pieces.
    pieces: Vec<u64>,
}

impl Realtime {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a message that the client sent.
    pub fn client(&mut self, data: &[u8], out: &mut impl EventSink) {
        response::Message::from_data(data).parse::<Message<'_>, _>(&mut None, out, |message, _| {
            if let "session.update" | "transcription_session.update" = &*message.kind.0 {
                let mut scanner = JsonScanner::new(&SETTINGS);
                scanner.scan(data, &mut |field, found| self.settings.read(field, found));
            }
        });
    }

    /// Reads a message that the server sent.
    pub fn server(&mut self, data: &[u8], out: &mut impl EventSink) {
        response::Message::from_data(data).parse::<Message<'_>, _>(
            &mut None,
            out,
            |message, out| self.server_message(message, data, out),
        );
    }

    /// Returns the settings that the client has requested so far.
    pub const fn facts(&self) -> &RequestFacts {
        &self.settings.facts
    }

    /// Returns whether the server has accepted the session: it has sent a message other than an error.
    pub const fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// Returns whether any text was generated.
    pub const fn has_generated(&self) -> bool {
        self.has_generated
    }

    /// Returns whether no response is in progress.
    pub const fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Returns whether the last response failed or the server caused the last error. Errors that the client caused do
    /// not count.
    pub const fn has_failed(&self) -> bool {
        self.failed
    }

    /// Returns the kind of the last error of the client or the server.
    pub const fn error(&self) -> Option<&Name> {
        self.error.as_ref()
    }

    fn server_message(&mut self, message: &Message<'_>, data: &[u8], out: &mut impl EventSink) {
        let kind = &*message.kind.0;
        self.accepted |= !kind.is_empty() && kind != "error";
        match kind {
            "error" => {
                let errors = scan_errors(&MESSAGE_ERROR, data);
                self.failed |= !errors.kind().is_some_and(blames_client);
                self.record_error(errors.kind());
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
            "response.done" => self.response_done(message, data, out),
            "conversation.item.input_audio_transcription.delta" => {
                let active = self.transcription(message);
                self.emit(active, &Piece::from_transcription(message, false), out);
            }
            "conversation.item.input_audio_transcription.completed" => {
                let active = self.transcription(message);
                self.emit(active, &Piece::from_transcription(message, true), out);
                self.active.remove(active);
                self.add_usage(message.usage.0.as_deref(), out);
            }
            "conversation.item.input_audio_transcription.failed" => {
                let active = self.transcription(message);
                self.active.remove(active);
            }
            _ => {
                if let Some(piece) = Piece::from_response(message) {
                    let active = self.response(message);
                    self.emit(active, &piece, out);
                }
            }
        }
    }

    fn response_done(&mut self, message: &Message<'_>, data: &[u8], out: &mut impl EventSink) {
        let active = self.response(message);
        let choice = self.active.remove(active).choice;
        let Some(response) = &message.response.0 else {
            return;
        };
        let status = response.status.some();
        self.failed = status == Some("failed");
        if self.failed {
            self.record_error(scan_errors(&MESSAGE_ERROR, data).kind());
        }
        self.add_usage(response.usage.0.as_deref(), out);
        if let Some(reason) = status {
            out(Event::Stopped { choice, reason });
        }
    }

    fn emit(&mut self, active: usize, piece: &Piece<'_>, out: &mut impl EventSink) {
        let Some(active) = self.active.get_mut(active) else {
            return;
        };
        if piece.text.is_empty() || (piece.is_complete && active.has_pieces(piece.text_id)) {
            return;
        }
        active.record_piece(piece.text_id);
        self.has_generated = true;
        let (choice, part, text) = (active.choice, piece.part, piece.text);
        out(Event::Text { choice, part, text });
    }

    /// Adds the usage of one response, and emits the sum of all responses.
    fn add_usage(&mut self, usage: Option<&RawUsage>, out: &mut impl EventSink) {
        let mut usage = usage.map(RawUsage::usage_by_all_modalities).unwrap_or_default();
        if usage.remove_implausible() {
            out(Event::ParseError(ParseError::BadCount));
        }
        if usage != Usage::default() {
            self.usage = self.usage.sum(usage);
            emit_usage(self.usage, out);
        }
    }

    fn record_error(&mut self, kind: Option<&str>) {
        self.error = kind.and_then(Name::new).or(self.error.take());
    }

    /// Returns the position of the message's response in the list of active responses.
    fn response(&mut self, message: &Message<'_>) -> usize {
        let own = message.response.0.as_ref();
        let id = own.and_then(|response| response.id.some());
        let key = hash(&("response", id.or(message.response_id.some())));
        self.find_active(key).unwrap_or_else(|| {
            let choice = self.responses;
            self.responses = choice.saturating_add(1);
            self.add_active(key, choice)
        })
    }

    fn transcription(&mut self, message: &Message<'_>) -> usize {
        let key = hash(&("item", message.item_id.some(), message.content_index.0));
        self.find_active(key).unwrap_or_else(|| {
            let choice = u32::MAX.saturating_sub(self.transcriptions);
            self.transcriptions = self.transcriptions.saturating_add(1);
            self.add_active(key, choice)
        })
    }

    fn find_active(&self, key: u64) -> Option<usize> {
        self.active.iter().position(|active| active.key == key)
    }

    fn add_active(&mut self, key: u64, choice: u32) -> usize {
        if self.active.len() == MAX_ACTIVE {
            self.active.remove(0);
        }
        self.active.push(ActiveResponse { key, choice, pieces: Vec::new() });
        self.active.len() - 1
    }
}

impl ActiveResponse {
    fn has_pieces(&self, text: u64) -> bool {
        self.pieces.len() == MAX_TEXTS || self.pieces.contains(&text)
    }

    fn record_piece(&mut self, text: u64) {
        if !self.has_pieces(text) {
            self.pieces.push(text);
        }
    }
}

/// Generated text of one message: a delta, or the complete text after the last delta. A complete text is used only if
/// none of its deltas was read.
struct Piece<'a> {
    part: Part,
    text: &'a str,
    is_complete: bool,
    /// Hash that identifies the text within its response.
    text_id: u64,
}

impl<'a> Piece<'a> {
    fn from_response(message: &'a Message<'_>) -> Option<Self> {
        let kind = message.kind.0.strip_prefix("response.")?;
        let (stem, is_complete) = match kind.strip_suffix(".delta") {
            Some(stem) => (stem, false),
            None => (kind.strip_suffix(".done")?, true),
        };
        let output = message.output_index.0.unwrap_or(0);
        let (part, complete) = match stem {
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
            text: if is_complete { &complete.0 } else { &message.delta.0 },
            is_complete,
            text_id: hash(&(part, output, message.content_index.0.unwrap_or(0))),
        })
    }

    fn from_transcription(message: &'a Message<'_>, is_complete: bool) -> Self {
        Self {
            part: Part::Transcript,
            text: if is_complete { &message.transcript.0 } else { &message.delta.0 },
            is_complete,
            text_id: 0,
        }
    }
}

fn hash(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

#[cfg(test)]
mod tests;
