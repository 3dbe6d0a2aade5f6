//! An answer that is one message as a whole → events, as its bytes go by.

use super::usage::Counts;
use crate::dialect::blocks::Blocks;
use crate::dialect::called::called;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::once::Once;
use crate::dialect::shapes::{Body, count, say};
use crate::dialect::{Event, Part};

#[derive(Debug, Default)]
pub struct Message {
    short: Short,
    once: Once,
    blocks: Blocks,
    /// Id and name of the tool call that is being read.
    call: [Option<String>; 2],
    counts: Counts,
}

impl Body for Message {
    const KEYS: &'static [&'static str] = &[
        "id",
        "model",
        "content",
        "text",
        "thinking",
        "input",
        "name",
        "completion",
        "stop_reason",
        "usage",
        "service_tier",
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "cache_creation",
        "ephemeral_5m_input_tokens",
        "ephemeral_1h_input_tokens",
        "output_tokens_details",
        "thinking_tokens",
        // Of errors.
        "error",
        "type",
        "code",
        "status",
        "__type",
        "ErrorCode",
        "Output",
    ];
    const RAW: &'static [&'static str] = &["input"];

    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        match path {
            [Key("content"), At(_), Key("id" | "name")] => {
                let [id, name] = &mut self.call;
                if let Some(word) = self.short.word(value) {
                    *(if path.last() == Some(&Key("id")) { id } else { name }) = Some(word);
                }
            }
            [Key("content"), At(block)] if value == Value::End => {
                let [id, name] = std::mem::take(&mut self.call);
                if let Some(name) = name {
                    let number = self.blocks.call(u64::from(*block));
                    called((0, number), id.as_deref(), Some(&name), out);
                }
            }
            [Key("content"), ..] | [Key("completion")] => {
                if let (Some(part), Value::Text(text)) = (self.part(path), value) {
                    say(part, 0, text, out);
                }
            }
            [Key("id" | "model" | "stop_reason")] | [Key("usage"), Key("service_tier")] => {
                if let Some(word) = self.short.word(value) {
                    self.word(path, &word, out);
                }
            }
            [Key("usage"), rest @ ..] => self.count(rest, value, out),
            _ => {}
        }
    }
}

impl Message {
    fn part(&mut self, path: &[Step]) -> Option<Part> {
        Some(match path {
            [Key("completion" | "content")] | [Key("content"), At(_), Key("text")] => Part::Text,
            [Key("content"), At(_), Key("thinking")] => Part::Reasoning,
            [Key("content"), At(block), Key("input")] => {
                Part::Tool(self.blocks.call(u64::from(*block)))
            }
            _ => return None,
        })
    }

    fn word(&mut self, path: &[Step], word: &str, out: &mut impl FnMut(Event<'_>)) {
        match path {
            [Key("id")] => self.once.started(Some(word), None, out),
            [Key("model")] => self.once.started(None, Some(word), out),
            [_, Key("service_tier")] => self.once.tier(Some(word), None, out),
            _ => out(Event::Stopped { choice: 0, reason: word }),
        }
    }

    fn count(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        if let Some(number) = count(value) {
            self.counts.set(path, number);
        }
        if path.is_empty() && value == Value::End {
            let counts = std::mem::take(&mut self.counts);
            if let Some(usage) = counts.tally().usage() {
                out(Event::Usage(usage));
            }
        }
    }
}
