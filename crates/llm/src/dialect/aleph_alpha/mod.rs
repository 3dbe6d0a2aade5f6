//! Aleph Alpha's completions. A stream has pieces of each completion, then a summary of each, then one of all.

use serde::Deserialize;

use super::asked::{Asked, Format, flag};
use super::failure::{Failure, identifier};
use super::grown::Echo;
use super::json::Step::{At, Key};
use super::json::{Short, Step, Value};
use super::lenient::{Code, Count, Text};
use super::shapes::{Body, Messages, Shapes, say};
use super::{Api, Event, Part, RequestFacts, Usage};
use crate::frame::Frame;
use tokengauge_types::label::Name;

pub const REQUEST: Format = Format { keys: KEYS, take };

const KEYS: &[&str] = &[
    "model",
    "prompt",
    "type",
    "data",
    "stream",
    "maximum_tokens",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "n",
    "stop_sequences",
    "echo",
];

/// Takes one value of a request.
fn take(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    match path {
        [Key("prompt")] => {
            if matches!(value, Value::Text(_) | Value::Array) {
                asked.facts.api = Some(Api::AlephAlphaComplete);
            }
            asked.prompt(value);
        }
        // Only a part of this type has text for its data.
        [Key("prompt"), At(_), Key("type")] => {
            if let Some(kind) = asked.word(value) {
                asked.no_text = kind != "text";
            }
        }
        [Key("prompt"), At(_)] => asked.no_text = false,
        [Key("prompt"), At(_), Key("data")] if !asked.no_text => asked.prompt(value),
        [Key("model")] => {
            if let Some(model) = asked.word(value) {
                asked.facts.model = Name::new(&model);
            }
        }
        [Key("stream")] => asked.facts.stream = flag(value).or(asked.facts.stream),
        [Key("echo")] => asked.facts.echo = flag(value),
        [Key(name)] | [Key(name), At(_)] => asked.setting(name, value),
        _ => {}
    }
}

/// Reads the answer of one call.
#[derive(Debug)]
pub struct Response(Shapes<Stream, Whole>);

impl Response {
    /// `failed`: the status says that the answer is an error.
    pub fn new(asked: &RequestFacts, failed: bool) -> Self {
        Self(Shapes::of(failed, Stream, Whole::new(asked)))
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.0.read(frame, out);
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    #[serde(rename = "type")]
    kind: Text<'a>,
    index: Count,
    completion: Text<'a>,
    finish_reason: Text<'a>,
    num_tokens_prompt_total: Count,
    num_tokens_generated: Count,
    error: Failure<'a>,
    code: Code<'a>,
}

#[derive(Debug, Default)]
pub struct Stream;

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, _name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let index = chunk.index.0.and_then(|index| u32::try_from(index).ok());
        let choice = index.unwrap_or_default();
        say(Part::Text, choice, &chunk.completion.0, out);
        if let Some(reason) = chunk.finish_reason.some() {
            out(Event::Stopped { choice, reason });
        }
        let (input, output) = (chunk.num_tokens_prompt_total, chunk.num_tokens_generated);
        counted(input, output, out);
        if chunk.kind.0 == "completion_summary" {
            out(Event::Done);
        }
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        &chunk.error
    }

    fn kind<'m>(chunk: &'m Chunk<'_>) -> Option<&'m str> {
        chunk.error.kind().or(identifier(&chunk.code.0))
    }
}

fn counted(input: Count, output: Count, out: &mut impl FnMut(Event<'_>)) {
    if input.0.or(output.0).is_some() {
        out(Event::Usage(Usage { input: input.0, output: output.0, ..Usage::default() }));
    }
}

/// A whole answer.
#[derive(Debug, Default)]
pub struct Whole {
    short: Short,
    echo: Echo,
    input: Count,
    output: Count,
}

impl Whole {
    fn new(asked: &RequestFacts) -> Self {
        Self {
            short: Short::default(),
            echo: Echo::new(asked, false),
            input: Count::default(),
            output: Count::default(),
        }
    }
}

impl Body for Whole {
    const KEYS: &'static [&'static str] = &[
        "completions",
        "completion",
        "finish_reason",
        "num_tokens_prompt_total",
        "num_tokens_generated",
        "error",
        "errors",
        "type",
        "code",
        "error_type",
    ];

    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        match (path, value) {
            ([], Value::End) => counted(self.input, self.output, out),
            ([Key("num_tokens_prompt_total")], value) => self.input = Count::of(value),
            ([Key("num_tokens_generated")], value) => self.output = Count::of(value),
            ([Key("completions"), At(choice), Key("completion")], Value::Text(piece)) => {
                say(Part::Text, *choice, self.echo.pass(piece), out);
            }
            ([Key("completions"), At(_), Key("completion")], Value::TextEnd) => self.echo.end(),
            ([Key("completions"), At(choice), Key("finish_reason")], value) => {
                if let Some(reason) = self.short.word(value) {
                    let (choice, reason) = (*choice, &*reason);
                    out(Event::Stopped { choice, reason });
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
