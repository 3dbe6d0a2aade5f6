//! An answer that is one message as a whole → events.

use super::{Counts, stopped};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::lenient::Count;
use crate::dialect::shapes::Body;
use crate::dialect::{Event, Part};

#[derive(Debug, Default)]
pub struct Whole {
    short: Short,
    counts: Counts,
}

impl Body for Whole {
    const KEYS: &'static [&'static str] = &[
        "request_id",
        "output",
        "text",
        "finish_reason",
        "choices",
        "message",
        "content",
        "reasoning_content",
        "tool_calls",
        "function",
        "arguments",
        "usage",
        "input_tokens",
        "output_tokens",
        "total_tokens",
        "prompt_tokens_details",
        "cached_tokens",
        "output_tokens_details",
        "reasoning_tokens",
        "error",
        "errors",
        "type",
        "code",
        "error_type",
    ];

    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        match path {
            [Key("request_id")] => {
                if let Some(id) = self.short.word(value) {
                    let (id, model) = (Some(&*id), None);
                    out(Event::Started { id, model });
                }
            }
            [Key("output"), Key("choices"), At(choice), rest @ ..] => {
                self.choice(*choice, rest, value, out);
            }
            [Key("output"), rest @ ..] => self.choice(0, rest, value, out),
            [Key("usage")] if value == Value::End => self.counts.tell(out),
            [Key("usage"), rest @ ..] => self.count(rest, Count::of(value)),
            _ => {}
        }
    }
}

impl Whole {
    fn choice(
        &mut self,
        choice: u32,
        path: &[Step],
        value: Value<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        if let [Key("finish_reason")] = path {
            if let Some(reason) = self.short.word(value) {
                stopped(choice, &reason, out);
            }
            return;
        }
        if let (Some(part), Value::Text(text)) = (part(path), value) {
            out(Event::Text { choice, part, text });
        }
    }

    fn count(&mut self, path: &[Step], count: Count) {
        let counts = &mut self.counts;
        match path {
            [Key("input_tokens")] => counts.input = count,
            [Key("output_tokens")] => counts.output = count,
            [Key("total_tokens")] => counts.total = count,
            [Key("prompt_tokens_details"), Key("cached_tokens")] => counts.cached = count,
            [Key("output_tokens_details"), Key("reasoning_tokens")] => counts.reasoning = count,
            _ => {}
        }
    }
}

/// The part that a text belongs to; `path` is the way to it from the choice, or from the output without choices.
fn part(path: &[Step]) -> Option<Part> {
    Some(match path {
        [Key("text")]
        | [Key("message"), Key("content")]
        | [Key("message"), Key("content"), At(_), Key("text")] => Part::Text,
        [Key("message"), Key("reasoning_content")] => Part::Reasoning,
        [Key("message"), Key("tool_calls"), At(call), Key("function"), Key("arguments")] => {
            Part::Tool(*call)
        }
        _ => return None,
    })
}
