//! Assembles the captured response from the parsed events.

use serde_json::Value;

use super::{CapturePolicy, MAX_PARTS, REDACTION_MARGIN, Redactor, TruncatableText, parts};
use crate::dialect::{Event, Part};
use tokengauge_types::label::Name;

/// Maximum number of captured choices, the same as for finish reasons.
const MAX_CHOICES: u32 = 128;

/// The content of the response received so far.
#[derive(Debug)]
pub struct ResponseCapture {
    /// Number of bytes that can still be captured.
    room: usize,
    pieces: Vec<Piece>,
    cut: bool,
}

/// One part of one choice: text, reasoning, a refusal or a tool call.
#[derive(Debug)]
struct Piece {
    choice: u32,
    part: Part,
    text: TruncatableText,
    id: Option<Name>,
    name: Option<Name>,
}

impl ResponseCapture {
    pub const fn new(policy: &CapturePolicy) -> Self {
        Self { room: policy.max_bytes + REDACTION_MARGIN, pieces: Vec::new(), cut: false }
    }

    pub fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Text { choice, part, text } => {
                let mut room = self.room;
                if let Some(piece) = self.piece_mut(*choice, *part) {
                    piece.text.push(text, &mut room);
                    self.cut |= piece.text.cut;
                }
                self.room = room;
            }
            Event::Call { choice, number, id, name } => {
                if let Some(piece) = self.piece_mut(*choice, Part::Tool(*number)) {
                    piece.id = id.and_then(Name::new).or(piece.id.take());
                    piece.name = name.and_then(Name::new).or(piece.name.take());
                }
            }
            Event::Started { .. }
            | Event::Usage(_)
            | Event::Stopped { .. }
            | Event::Failed { .. }
            | Event::Tier { .. }
            | Event::Timings(_)
            | Event::Compacted
            | Event::Answered
            | Event::Done
            | Event::ParseError(_) => {}
        }
    }

    pub(super) const fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns one message for each choice that has content, in the order of choices.
    pub(super) fn messages(&self, redact: &Redactor, reasons: &[Option<Name>]) -> Vec<Value> {
        let mut choices: Vec<u32> = self.pieces.iter().map(|piece| piece.choice).collect();
        choices.sort_unstable();
        choices.dedup();
        let mut messages = Vec::new();
        for (place, choice) in choices.into_iter().enumerate() {
            let of_choice = self.pieces.iter().filter(|piece| piece.choice == choice);
            let parts = of_choice.map(|piece| piece.write(redact)).collect();
            let mut message = parts::message("assistant", None, parts);
            parts::add(
                &mut message,
                "finish_reason",
                reasons.get(place).and_then(Option::as_ref).map(Name::as_str),
            );
            messages.push(message);
        }
        messages
    }

    /// Returns the piece that the text of `part` continues. A tool call continues its piece even after other pieces.
    /// Any other part continues only the last piece of its choice.
    fn piece_mut(&mut self, choice: u32, part: Part) -> Option<&mut Piece> {
        let same = |piece: &Piece| piece.choice == choice && piece.part == part;
        let known = match part {
            Part::Tool(_) => self.pieces.iter().rposition(same),
            Part::Text | Part::Reasoning | Part::Refusal | Part::Transcript => {
                let last = self.pieces.iter().rposition(|piece| piece.choice == choice);
                last.filter(|at| self.pieces.get(*at).is_some_and(same))
            }
        };
        if known.is_none() {
            if choice >= MAX_CHOICES || self.pieces.len() >= MAX_PARTS {
                self.cut = true;
                return None;
            }
            self.pieces.push(Piece {
                choice,
                part,
                text: TruncatableText::default(),
                id: None,
                name: None,
            });
        }
        let at = known.unwrap_or(self.pieces.len() - 1);
        self.pieces.get_mut(at)
    }
}

impl Piece {
    fn write(&self, redact: &Redactor) -> Value {
        match self.part {
            Part::Text | Part::Transcript => parts::text(&self.text.finish(redact)),
            Part::Reasoning => parts::reasoning(&self.text.finish(redact)),
            Part::Refusal => parts::refusal(&self.text.finish(redact)),
            Part::Tool(_) => {
                let clean = |name: &Option<Name>| {
                    name.as_ref().map(|name| redact.text(name.as_str(), false))
                };
                let mut arguments = parts::arguments(&self.text.text);
                if arguments.is_string() || self.text.cut {
                    arguments = self.text.finish(redact).into();
                } else {
                    redact.value(&mut arguments);
                }
                let (id, name) = (clean(&self.id), clean(&self.name));
                parts::tool_call(id.as_deref(), name.as_deref(), arguments)
            }
        }
    }
}
