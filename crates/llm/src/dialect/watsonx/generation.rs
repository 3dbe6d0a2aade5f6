//! Text generation. Each message of a stream has the next text and the count so far; that of the input stands in the
//! first, later ones say 0.

use serde::Deserialize;

use crate::dialect::failure::Failure;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::lenient::{Count, List, Text};
use crate::dialect::once::Once;
use crate::dialect::shapes::{Body, Messages, say};
use crate::dialect::{Event, Part, Usage};

/// What stands for no reason.
const NOT_FINISHED: &str = "not_finished";

/// The reason of an answer that an error ended.
const ERROR: &str = "error";

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    model_id: Text<'a>,
    results: List<Generated<'a>>,
    /// Of several the first.
    errors: Failure<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Generated<'a> {
    generated_text: Text<'a>,
    generated_token_count: Count,
    input_token_count: Count,
    stop_reason: Text<'a>,
}

#[derive(Debug, Default)]
pub struct Stream {
    once: Once,
}

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.once.started(None, chunk.model_id.some(), out);
        for (choice, result) in (0..).zip(chunk.results.iter()) {
            say(Part::Text, choice, &result.generated_text.0, out);
            counted(result.input_token_count, result.generated_token_count, out);
            stopped(choice, &result.stop_reason.0, out);
        }
        if name == b"close" {
            out(Event::Done);
        }
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        &chunk.errors
    }
}

fn counted(input: Count, output: Count, out: &mut impl FnMut(Event<'_>)) {
    let usage =
        Usage { input: input.0.filter(|count| *count > 0), output: output.0, ..Usage::default() };
    if usage != Usage::default() {
        out(Event::Usage(usage));
    }
}

fn stopped(choice: u32, reason: &str, out: &mut impl FnMut(Event<'_>)) {
    // Some versions write it in capitals.
    if reason.is_empty() || reason.eq_ignore_ascii_case(NOT_FINISHED) {
        return;
    }
    out(Event::Stopped { choice, reason });
    if reason.eq_ignore_ascii_case(ERROR) {
        out(Event::Failed { kind: None });
    }
}

/// A whole answer.
#[derive(Debug, Default)]
pub struct Whole {
    short: Short,
    once: Once,
    input: Count,
    output: Count,
}

impl Body for Whole {
    const KEYS: &'static [&'static str] = &[
        "model_id",
        "results",
        "generated_text",
        "generated_token_count",
        "input_token_count",
        "stop_reason",
        "error",
        "errors",
        "type",
        "code",
        "error_type",
    ];

    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        match path {
            [Key("model_id")] => {
                if let Some(model) = self.short.word(value) {
                    self.once.started(None, Some(&model), out);
                }
            }
            [Key("results"), At(_)] if value == Value::End => counted(self.input, self.output, out),
            [Key("results"), At(choice), Key(name)] => match (*name, value) {
                ("generated_text", Value::Text(text)) => say(Part::Text, *choice, text, out),
                ("input_token_count", value) => self.input = Count::of(value),
                ("generated_token_count", value) => self.output = Count::of(value),
                ("stop_reason", value) => {
                    if let Some(reason) = self.short.word(value) {
                        stopped(*choice, &reason, out);
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }
}
