//! Interactions: lists of steps (thoughts, answers, calls of tools and their results).
//!
//! In a stream, a step begins, grows by deltas and ends. The first version of the API called a step the content of an
//! output. Both versions are read.

use serde::Deserialize;

use super::calls::CandidateCalls;
use super::usage::RawUsage;
use crate::dialect::emit::{Preamble, emit_text};
use crate::dialect::error_field::ERROR_ROWS;
use crate::dialect::errors::ErrorValue;
use crate::dialect::json::{Paths, Position, ShortText, SmallObject, Value};
use crate::dialect::lenient::{Count, JsonText, Object, Text};
use crate::dialect::response::{ErrorReport, Format, Message};
use crate::dialect::{Event, Part};

#[derive(Debug)]
pub struct Interactions {
    /// The interaction was generated, and counted, earlier and is only fetched.
    is_stored: bool,
    preamble: Preamble,
    calls: CandidateCalls,
    /// The step whose arguments were read last.
    last_call: Option<u64>,
    /// The current step of a body has called its tool.
    has_called: bool,
    text: ShortText,
    object: SmallObject,
}

/// Meaning of a value of a JSON body.
#[derive(Clone, Copy, Debug)]
pub enum InteractionField {
    Id,
    Model,
    ServiceTier,
    Status,
    Usage,
    Step,
    Text,
    Summary,
    Arguments,
}

static PATHS: Paths<InteractionField> = Paths::new(&[
    ("id", InteractionField::Id),
    ("model|agent", InteractionField::Model),
    ("service_tier", InteractionField::ServiceTier),
    ("status", InteractionField::Status),
    ("usage{}", InteractionField::Usage),
    ("steps|outputs.*", InteractionField::Step),
    ("steps|outputs.*.text", InteractionField::Text),
    ("steps|outputs.*.content.*.text", InteractionField::Text),
    ("steps|outputs.*.summary.*.text", InteractionField::Summary),
    ("steps|outputs.*.arguments{}", InteractionField::Arguments),
])
.with_errors(ERROR_ROWS);

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Chunk<'a> {
    index: Count,
    #[serde(alias = "content")]
    step: Object<Step<'a>>,
    delta: Object<Step<'a>>,
    interaction: Object<Box<Interaction<'a>>>,
    /// Of the interaction, if it changes.
    status: Text<'a>,
    error: ErrorValue<'a>,
}

/// The start of a step, or a piece of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Step<'a> {
    text: Text<'a>,
    /// Of a summary of a thought.
    content: Object<Summary<'a>>,
    /// Arguments of a tool: an object, or a piece of JSON text.
    arguments: JsonText,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Summary<'a> {
    text: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Interaction<'a> {
    id: Text<'a>,
    model: Text<'a>,
    agent: Text<'a>,
    status: Text<'a>,
    service_tier: Text<'a>,
    usage: Object<RawUsage<'a>>,
}

impl Format for Interactions {
    type Field = InteractionField;

    fn paths(&self) -> &'static Paths<InteractionField> {
        &PATHS
    }

    fn message(&mut self, message: Message<'_>, out: &mut impl FnMut(Event<'_>)) {
        let mut status = String::new();
        message.parse::<Chunk<'_>, _>(&mut None, out, |chunk, out| {
            self.chunk(chunk, out);
            status.push_str(&chunk.status.0);
        });
        emit_status(&status, out);
    }

    fn value(
        &mut self,
        field: InteractionField,
        _: Position<'_>,
        value: Value<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let part = match field {
            InteractionField::Text => Part::Text,
            InteractionField::Summary => Part::Reasoning,
            InteractionField::Arguments if matches!(value, Value::Text(_)) => {
                if std::mem::replace(&mut self.has_called, true) {
                    self.calls.current(0)
                } else {
                    self.calls.begin(0)
                }
            }
            InteractionField::Arguments => return,
            InteractionField::Step => {
                if value == Value::Object {
                    self.has_called = false;
                }
                return;
            }
            InteractionField::Usage => {
                if let Some(json) = self.object.feed(value) {
                    self.usage(&serde_json::from_str(&json).unwrap_or_default(), out);
                }
                return;
            }
            InteractionField::Id
            | InteractionField::Model
            | InteractionField::ServiceTier
            | InteractionField::Status => {
                if let Some(word) = self.text.feed(value) {
                    self.word(field, &word, out);
                }
                return;
            }
        };
        if let Value::Text(text) = value {
            self.emit_text(part, text, out);
        }
    }
}

impl Interactions {
    pub fn new(is_stored: bool) -> Self {
        Self {
            is_stored,
            preamble: Preamble::default(),
            calls: CandidateCalls::default(),
            last_call: None,
            has_called: false,
            text: ShortText::default(),
            object: SmallObject::default(),
        }
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let interaction = chunk.interaction.0.as_deref();
        if let Some(interaction) = interaction {
            let model = interaction.model.some().or(interaction.agent.some());
            self.preamble.started(interaction.id.some(), model, out);
            self.preamble.tier(interaction.service_tier.some(), None, out);
        }
        // A step begins with empty arguments if deltas follow.
        let begun = chunk.step.0.as_ref().filter(|step| step.arguments.0 != "{}");
        for step in begun.into_iter().chain(&chunk.delta.0) {
            self.step(chunk.index.0, step, out);
        }
        if let Some(interaction) = interaction {
            if let Some(usage) = &interaction.usage.0 {
                self.usage(usage, out);
            }
            emit_status(&interaction.status.0, out);
        }
    }

    fn step(&mut self, index: Option<u64>, step: &Step<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.emit_text(Part::Text, &step.text.0, out);
        if let Some(summary) = &step.content.0 {
            self.emit_text(Part::Reasoning, &summary.text.0, out);
        }
        let arguments = step.arguments.0.as_str();
        if arguments.is_empty() {
            return;
        }
        let part = if index.is_some() && self.last_call == index {
            self.calls.current(0)
        } else {
            self.calls.begin(0)
        };
        self.last_call = index;
        self.emit_text(part, arguments, out);
    }

    /// Reads a short string of a body.
    fn word(&mut self, field: InteractionField, word: &str, out: &mut impl FnMut(Event<'_>)) {
        match field {
            InteractionField::Id => self.preamble.started(Some(word), None, out),
            InteractionField::Model => self.preamble.started(None, Some(word), out),
            InteractionField::ServiceTier => self.preamble.tier(Some(word), None, out),
            InteractionField::Status => emit_status(word, out),
            InteractionField::Usage
            | InteractionField::Step
            | InteractionField::Text
            | InteractionField::Summary
            | InteractionField::Arguments => {}
        }
    }

    fn usage(&mut self, usage: &RawUsage<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.preamble.tier(usage.tier(), None, out);
        if let Some(usage) = usage.usage().filter(|_| !self.is_stored) {
            out(Event::Usage(usage));
        }
    }

    fn emit_text(&self, part: Part, text: &str, out: &mut impl FnMut(Event<'_>)) {
        if !self.is_stored {
            emit_text(0, part, text, out);
        }
    }
}

impl ErrorReport for Chunk<'_> {
    fn is_error(&self) -> bool {
        !self.error.is_none()
    }

    fn error_kind(&self) -> Option<&str> {
        self.error.kind()
    }
}

/// Emits the final status of an interaction.
fn emit_status(status: &str, out: &mut impl FnMut(Event<'_>)) {
    match status {
        "" | "in_progress" | "queued" => return,
        "failed" => out(Event::Failed { kind: None }),
        _ => {}
    }
    out(Event::Stopped { choice: 0, reason: status });
}
