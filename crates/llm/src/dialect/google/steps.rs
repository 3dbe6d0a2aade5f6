//! Messages of a streamed interaction → events.
//!
//! An interaction is a list of steps: what was thought, what was answered, what tools were called with and what they
//! returned. Each is begun, grows by deltas and is ended. The first version of this API called a step an output's
//! content; both are read.

use serde::Deserialize;

use super::calls::Calls;
use super::stream::say;
use super::usage::RawUsage;
use crate::dialect::failure::Failure;
use crate::dialect::lenient::{Count, Object, Text, Written};
use crate::dialect::once::Once;
use crate::dialect::{Event, Part, repair};
use crate::frame::Anomaly;

#[derive(Debug)]
pub struct Steps {
    /// The status says that this is an error and nothing else.
    failed: bool,
    once: Once,
    calls: Calls,
    /// The step whose call was last written.
    calling: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Message<'a> {
    index: Count,
    #[serde(alias = "content")]
    step: Object<Step<'a>>,
    delta: Object<Step<'a>>,
    interaction: Object<Box<Interaction<'a>>>,
    /// Of the interaction, where it changed.
    status: Text<'a>,
    error: Failure<'a>,
}

/// A step as it begins, or what is added to it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Step<'a> {
    text: Text<'a>,
    /// Of a summary of what was thought.
    content: Object<Summary<'a>>,
    /// What a tool is called with: an object, or a piece of one that is written out.
    arguments: Written,
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

impl Steps {
    pub fn new(failed: bool) -> Self {
        Self { failed, once: Once::default(), calls: Calls::default(), calling: None }
    }

    /// Reads one message of the stream.
    pub fn read(&mut self, data: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let data = data.trim_ascii();
        if data.is_empty() {
            return;
        }
        if data == b"[DONE]" {
            if !self.failed {
                out(Event::Done);
            }
            return;
        }
        match repair::read::<Message<'_>>(data, &mut None) {
            Some((message, lossy)) => {
                if lossy {
                    out(Event::Odd(Anomaly::BadText));
                }
                self.message(&message, out);
            }
            None if self.failed => out(Event::Failed { kind: None }),
            None => out(Event::Odd(Anomaly::BadJson)),
        }
    }

    fn message(&mut self, message: &Message<'_>, out: &mut impl FnMut(Event<'_>)) {
        let interaction = message.interaction.0.as_deref();
        if !self.failed {
            if let Some(interaction) = interaction {
                let model = interaction.model.some().or(interaction.agent.some());
                self.once.started(interaction.id.some(), model, out);
                self.once.tier(interaction.service_tier.some(), None, out);
            }
            // A step begins with empty arguments where deltas are to follow.
            let begun = message.step.0.as_ref();
            let begun = begun.filter(|step| step.arguments.0 != "{}");
            for step in begun.into_iter().chain(&message.delta.0) {
                self.step(message.index.0, step, out);
            }
        }
        if self.failed || !message.error.is_none() {
            let kind = message.error.kind();
            out(Event::Failed { kind });
        }
        if self.failed {
            return;
        }
        if let Some(interaction) = interaction {
            let usage = interaction.usage.0.as_ref();
            if let Some(usage) = usage.and_then(RawUsage::harmonised) {
                out(Event::Usage(usage));
            }
            ended(&interaction.status.0, out);
        }
        ended(&message.status.0, out);
    }

    fn step(&mut self, index: Option<u64>, step: &Step<'_>, out: &mut impl FnMut(Event<'_>)) {
        say(out, 0, Part::Text, &step.text.0);
        if let Some(summary) = &step.content.0 {
            say(out, 0, Part::Reasoning, &summary.text.0);
        }
        let arguments = step.arguments.0.as_str();
        if arguments.is_empty() {
            return;
        }
        let part = if index.is_some() && self.calling == index {
            self.calls.current(0)
        } else {
            self.calls.begin(0)
        };
        self.calling = index;
        say(out, 0, part, arguments);
    }
}

/// Says what a status says of an interaction's end, if it has come to one.
pub fn ended(status: &str, out: &mut impl FnMut(Event<'_>)) {
    match status {
        "" | "in_progress" | "queued" => return,
        "failed" => out(Event::Failed { kind: None }),
        _ => {}
    }
    out(Event::Stopped { choice: 0, reason: status });
}
