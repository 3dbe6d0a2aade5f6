//! An answer that is one message as a whole → events.

use super::account;
use super::chunk::nanoseconds;
use crate::dialect::called::called;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::lenient::Count;
use crate::dialect::shapes::Body;
use crate::dialect::{Event, Part, Timings, Usage};

#[derive(Debug, Default)]
pub struct Whole {
    short: Short,
    usage: Usage,
    timings: Timings,
}

impl Body for Whole {
    const KEYS: &'static [&'static str] = &[
        "model",
        "message",
        "content",
        "thinking",
        "tool_calls",
        "function",
        "arguments",
        "name",
        "response",
        "done_reason",
        "prompt_eval_count",
        "eval_count",
        "total_duration",
        "load_duration",
        "prompt_eval_duration",
        "eval_duration",
        "error",
        "errors",
        "type",
        "code",
        "error_type",
    ];

    const RAW: &'static [&'static str] = &["arguments"];

    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        match (path, value) {
            ([], Value::End) => account(self.usage, self.timings, out),
            ([Key("model" | "done_reason")], value) => self.word(path, value, out),
            ([Key(name)], Value::Number(_)) => self.count(name, Count::of(value)),
            ([Key("message"), Key("tool_calls"), At(call), Key("function"), Key("name")], _) => {
                let name = self.short.word(value);
                called((0, *call), None, name.as_deref(), out);
            }
            (path, Value::Text(text)) => {
                if let Some(part) = part(path) {
                    let choice = 0;
                    out(Event::Text { choice, part, text });
                }
            }
            _ => {}
        }
    }
}

impl Whole {
    fn word(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        let Some(word) = self.short.word(value) else {
            return;
        };
        if let [Key("model")] = path {
            let (id, model) = (None, Some(&*word));
            out(Event::Started { id, model });
        } else {
            let (choice, reason) = (0, &*word);
            out(Event::Stopped { choice, reason });
        }
    }

    fn count(&mut self, name: &str, count: Count) {
        let (usage, timings) = (&mut self.usage, &mut self.timings);
        match name {
            "prompt_eval_count" => usage.input = count.0,
            "eval_count" => usage.output = count.0,
            "total_duration" => timings.total = nanoseconds(count),
            "load_duration" => timings.load = nanoseconds(count),
            "prompt_eval_duration" => timings.prefill = nanoseconds(count),
            "eval_duration" => timings.decode = nanoseconds(count),
            _ => {}
        }
    }
}

/// The part that a text belongs to.
fn part(path: &[Step]) -> Option<Part> {
    Some(match path {
        [Key("response")] | [Key("message"), Key("content")] => Part::Text,
        [Key("thinking")] | [Key("message"), Key("thinking")] => Part::Reasoning,
        [Key("message"), Key("tool_calls"), At(call), Key("function"), Key("arguments")] => {
            Part::Tool(*call)
        }
        _ => return None,
    })
}
