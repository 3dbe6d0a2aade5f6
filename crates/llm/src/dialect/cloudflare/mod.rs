//! Cloudflare Workers AI's own format for models that generate text. The path names the model, and models of any other
//! kind are run at paths alike: a request with messages or a prompt is one for text.

use serde::Deserialize;

use super::asked::{Asked, Format, flag};
use super::failure::Failure;
use super::json::Step::{At, Key};
use super::json::{Step, Value};
use super::lenient::{Code, Count, List, Object, Written};
use super::shapes::{Body, Messages, Shapes, say};
use super::{Api, Event, Part, Usage};
use crate::frame::Frame;

pub const REQUEST: Format = Format { keys: KEYS, take };

/// There is one choice only.
const CHOICE: u32 = 0;

const KEYS: &[&str] = &[
    "messages",
    "content",
    "text",
    "prompt",
    "stream",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "response_format",
    "type",
    "tools",
    // What only models that make images are asked.
    "steps",
    "num_steps",
    "guidance",
    "width",
    "height",
    "mask",
];

/// Takes one value of a request.
fn take(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    match path {
        [Key("messages")] if value == Value::Array => asked.facts.api = Some(Api::CloudflareRun),
        [Key("prompt")] => {
            if !asked.no_text && matches!(value, Value::Text(_)) {
                asked.facts.api = Some(Api::CloudflareRun);
            }
            asked.prompt(value);
        }
        [Key("steps" | "num_steps" | "guidance" | "width" | "height" | "mask")] => {
            asked.no_text = true;
            asked.facts.api = None;
        }
        [Key("messages"), At(_), Key("content")]
        | [Key("messages"), At(_), Key("content"), At(_), Key("text")] => asked.prompt(value),
        [Key("tools"), At(_)] => asked.facts.tools |= value == Value::Object,
        [Key("stream")] => asked.facts.stream = flag(value).or(asked.facts.stream),
        [Key("response_format"), Key("type")] => {
            if let Some(word) = asked.word(value) {
                let json = matches!(&*word, "json_object" | "json_schema");
                asked.facts.output_type = json.then_some("json");
            }
        }
        [Key(name)] => asked.setting(name, value),
        _ => {}
    }
}

/// Reads the answer of one call.
#[derive(Debug)]
pub struct Response(Shapes<Stream, Whole>);

impl Response {
    /// `failed`: the status says that the answer is an error.
    pub fn new(failed: bool) -> Self {
        Self(Shapes::new(failed))
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.0.read(frame, out);
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    /// A text; one of digits alone comes as a number.
    response: Code<'a>,
    tool_calls: List<ToolCall>,
    usage: Object<RawUsage>,
    /// Of several the first.
    errors: Failure<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToolCall {
    arguments: Written,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawUsage {
    prompt_tokens: Count,
    completion_tokens: Count,
}

#[derive(Debug, Default)]
pub struct Stream {
    /// How many tool calls there were. Each comes whole.
    calls: u32,
}

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, _name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        say(Part::Text, CHOICE, &chunk.response.0, out);
        for call in chunk.tool_calls.iter() {
            let part = Part::Tool(self.calls);
            self.calls = self.calls.saturating_add(1);
            say(part, CHOICE, &call.arguments.0, out);
        }
        if let Some(usage) = &chunk.usage.0 {
            counted(usage.prompt_tokens, usage.completion_tokens, out);
        }
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        &chunk.errors
    }
}

fn counted(input: Count, output: Count, out: &mut impl FnMut(Event<'_>)) {
    if input.0.or(output.0).is_some() {
        out(Event::Usage(Usage { input: input.0, output: output.0, ..Usage::default() }));
    }
}

/// A whole answer: what there is stands under `result`.
#[derive(Debug, Default)]
pub struct Whole {
    input: Count,
    output: Count,
}

impl Body for Whole {
    const KEYS: &'static [&'static str] = &[
        "result",
        "response",
        "tool_calls",
        "arguments",
        "usage",
        "prompt_tokens",
        "completion_tokens",
        "error",
        "errors",
        "type",
        "code",
        "error_type",
    ];

    /// The response is an object where a schema asked for one.
    const RAW: &'static [&'static str] = &["response", "arguments"];

    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        let [Key("result"), path @ ..] = path else {
            return;
        };
        match (path, value) {
            ([Key("response")], Value::Text(text)) => say(Part::Text, CHOICE, text, out),
            ([Key("tool_calls"), At(call), Key("arguments")], Value::Text(text)) => {
                say(Part::Tool(*call), CHOICE, text, out);
            }
            ([Key("usage")], Value::End) => counted(self.input, self.output, out),
            ([Key("usage"), Key("prompt_tokens")], value) => self.input = Count::of(value),
            ([Key("usage"), Key("completion_tokens")], value) => self.output = Count::of(value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
