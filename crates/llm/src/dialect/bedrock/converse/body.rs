//! An answer that is one message as a whole → events, as its bytes go by.

use super::super::counts;
use crate::dialect::blocks::Blocks;
use crate::dialect::called::called;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::shapes::{Body, count, say};
use crate::dialect::tally::Tally;
use crate::dialect::{Event, Part};

#[derive(Debug, Default)]
pub struct Message {
    short: Short,
    blocks: Blocks,
    /// Id and name of the tool call that is being read.
    call: [Option<String>; 2],
    tally: Tally,
}

impl Body for Message {
    const KEYS: &'static [&'static str] = &[
        "output",
        "message",
        "content",
        "text",
        "toolUse",
        "toolUseId",
        "name",
        "input",
        "reasoningContent",
        "reasoningText",
        "citationsContent",
        "stopReason",
        "usage",
        "inputTokens",
        "outputTokens",
        "cacheReadInputTokens",
        "cacheReadInputTokenCount",
        "cacheWriteInputTokens",
        "cacheWriteInputTokenCount",
        "metrics",
        "latencyMs",
        "serviceTier",
        "trace",
        "promptRouter",
        "invokedModelId",
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
            [Key("output"), Key("message"), Key("content"), At(block), rest @ ..] => {
                if let (Some(part), Value::Text(text)) = (self.part(*block, rest), value) {
                    say(part, 0, text, out);
                }
                self.call(*block, rest, value, out);
            }
            [Key("stopReason")] => {
                if let Some(reason) = &self.short.word(value) {
                    out(Event::Stopped { choice: 0, reason });
                }
            }
            [Key("serviceTier"), Key("type")] => {
                if let Some(tier) = &self.short.word(value) {
                    out(Event::Tier { service_tier: Some(tier), system_fingerprint: None });
                }
            }
            [Key("trace"), Key("promptRouter"), Key("invokedModelId")] => {
                if let Some(model) = self.short.word(value) {
                    out(Event::Started { id: None, model: Some(&model) });
                }
            }
            [Key("usage")] if value == Value::End => {
                if let Some(usage) = std::mem::take(&mut self.tally).usage() {
                    out(Event::Usage(usage));
                }
            }
            [Key("usage"), rest @ ..] => {
                if let Some(count) = count(value) {
                    counts::set(&mut self.tally, rest, count);
                }
            }
            [Key("metrics"), Key("latencyMs")] => {
                if let Some(latency) = count(value) {
                    out(Event::Timings(counts::took(latency)));
                }
            }
            _ => {}
        }
    }
}

impl Message {
    fn call(
        &mut self,
        block: u32,
        path: &[Step],
        value: Value<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let [id, name] = &mut self.call;
        let place = match path {
            [Key("toolUse"), Key("toolUseId")] => id,
            [Key("toolUse"), Key("name")] => name,
            [Key("toolUse")] if value == Value::End => {
                let number = self.blocks.call(u64::from(block));
                let [id, name] = std::mem::take(&mut self.call);
                return called((0, number), id.as_deref(), name.as_deref(), out);
            }
            _ => return,
        };
        if let Some(word) = self.short.word(value) {
            *place = Some(word);
        }
    }

    /// The part that a text in a content block belongs to.
    fn part(&mut self, block: u32, path: &[Step]) -> Option<Part> {
        Some(match path {
            [Key("text")] | [Key("citationsContent"), Key("content"), At(_), Key("text")] => {
                Part::Text
            }
            [Key("reasoningContent"), Key("reasoningText"), Key("text")] => Part::Reasoning,
            [Key("toolUse"), Key("input")] => Part::Tool(self.blocks.call(u64::from(block))),
            _ => return None,
        })
    }
}
