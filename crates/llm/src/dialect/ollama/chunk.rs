//! Lines of a stream → events.

use std::time::Duration;

use serde::Deserialize;

use super::account;
use crate::dialect::called::called;
use crate::dialect::failure::Failure;
use crate::dialect::lenient::{Count, Flag, List, Object, Text, Written};
use crate::dialect::once::Once;
use crate::dialect::shapes::{Messages, say};
use crate::dialect::{Event, Part, Timings, Usage};

/// There is one choice only.
const CHOICE: u32 = 0;

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    model: Text<'a>,
    message: Object<Message<'a>>,
    /// What is generated without a chat stands at the top.
    response: Text<'a>,
    thinking: Text<'a>,
    done: Flag,
    done_reason: Text<'a>,
    error: Failure<'a>,
    prompt_eval_count: Count,
    eval_count: Count,
    total_duration: Count,
    load_duration: Count,
    prompt_eval_duration: Count,
    eval_duration: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Message<'a> {
    content: Text<'a>,
    thinking: Text<'a>,
    tool_calls: List<ToolCall<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ToolCall<'a> {
    id: Text<'a>,
    function: Object<Function<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Function<'a> {
    name: Text<'a>,
    arguments: Written,
}

#[derive(Debug, Default)]
pub struct Stream {
    once: Once,
    /// How many tool calls there were. Each comes whole.
    calls: u32,
}

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, _name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.once.started(None, chunk.model.some(), out);
        say(Part::Reasoning, CHOICE, &chunk.thinking.0, out);
        say(Part::Text, CHOICE, &chunk.response.0, out);
        if let Some(message) = &chunk.message.0 {
            say(Part::Reasoning, CHOICE, &message.thinking.0, out);
            say(Part::Text, CHOICE, &message.content.0, out);
            for call in message.tool_calls.iter() {
                let number = self.calls;
                let part = Part::Tool(number);
                self.calls = self.calls.saturating_add(1);
                if let Some(function) = &call.function.0 {
                    called((CHOICE, number), call.id.some(), function.name.some(), out);
                    say(part, CHOICE, &function.arguments.0, out);
                }
            }
        }
        if let Some(reason) = chunk.done_reason.some() {
            out(Event::Stopped { choice: CHOICE, reason });
        }
        account(chunk.usage(), chunk.timings(), out);
        if chunk.done.0 {
            out(Event::Done);
        }
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        &chunk.error
    }
}

impl Chunk<'_> {
    fn usage(&self) -> Usage {
        Usage { input: self.prompt_eval_count.0, output: self.eval_count.0, ..Usage::default() }
    }

    fn timings(&self) -> Timings {
        Timings {
            queue: None,
            load: nanoseconds(self.load_duration),
            prefill: nanoseconds(self.prompt_eval_duration),
            decode: nanoseconds(self.eval_duration),
            total: nanoseconds(self.total_duration),
        }
    }
}

pub fn nanoseconds(count: Count) -> Option<Duration> {
    count.0.map(Duration::from_nanos)
}
