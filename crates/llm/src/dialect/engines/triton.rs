//! Triton's generate extension, with whatever backend behind it (TensorRT-LLM, vLLM), and KServe's generate, which is the
//! same. `text_output` is one text or a list; a backend may count, and give a reason, where the request asks for that.
//! The end is not said otherwise.

use serde::Deserialize;
use serde::de::SeqAccess;

use super::say;
use super::vllm::Texts;
use crate::dialect::failure::Failure;
use crate::dialect::grown::{Echo, Growing};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::lenient::{Count, FromAny, Object, Text, read_leniently};
use crate::dialect::once::Once;
use crate::dialect::shapes::{Body, Messages};
use crate::dialect::{Event, RequestFacts, Usage};

/// What a backend in Python writes for no reason.
const NO_REASON: &str = "None";

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    model_name: Text<'a>,
    text_output: Texts<'a>,
    finish_reason: Texts<'a>,
    num_input_tokens: Sum,
    num_output_tokens: Sum,
    details: Object<Details<'a>>,
    error: Failure<'a>,
}

/// KServe's.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Details<'a> {
    finish_reason: Text<'a>,
}

/// A count, or the sum of a list of them.
#[derive(Clone, Copy, Debug, Default)]
struct Sum(Option<u64>);

impl Sum {
    fn add(&mut self, count: Count) {
        self.0 = match (self.0, count.0) {
            (Some(sum), Some(count)) => Some(sum.saturating_add(count)),
            (sum, count) => sum.or(count),
        };
    }
}

impl<'de> FromAny<'de> for Sum {
    fn number(number: u64) -> Self {
        Self(Some(number))
    }

    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut sum = Self::default();
        while let Some(count) = seq.next_element()? {
            sum.add(count);
        }
        Ok(sum)
    }
}

read_leniently! {
    impl[] Sum;
}

#[derive(Debug, Default)]
pub struct Stream {
    once: Once,
    texts: Growing,
    /// Output so far: each message counts its own.
    output: Sum,
}

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, _name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.once.started(None, chunk.model_name.some(), out);
        for (choice, text) in (0..).zip(chunk.text_output.iter()) {
            say(choice, self.texts.news(choice, text), out);
        }
        let details = chunk.details.0.as_ref();
        let reasons = chunk.finish_reason.iter();
        let of_details = details.map(|details| &*details.finish_reason.0);
        for (choice, reason) in (0..).zip(reasons.chain(of_details)) {
            stopped(choice, reason, out);
        }
        self.output.add(Count(chunk.num_output_tokens.0));
        counted(chunk.num_input_tokens, self.output, out);
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        &chunk.error
    }
}

fn stopped(choice: u32, reason: &str, out: &mut impl FnMut(Event<'_>)) {
    if !reason.is_empty() && reason != NO_REASON {
        out(Event::Stopped { choice, reason });
    }
}

fn counted(input: Sum, output: Sum, out: &mut impl FnMut(Event<'_>)) {
    if input.0.or(output.0).is_some() {
        out(Event::Usage(Usage { input: input.0, output: output.0, ..Usage::default() }));
    }
}

/// A whole answer.
#[derive(Debug, Default)]
pub struct Whole {
    short: Short,
    once: Once,
    echo: Echo,
    input: Sum,
    output: Sum,
}

impl Whole {
    pub fn new(asked: &RequestFacts) -> Self {
        Self {
            short: Short::default(),
            once: Once::default(),
            echo: Echo::new(asked, false),
            input: Sum::default(),
            output: Sum::default(),
        }
    }
}

impl Body for Whole {
    const KEYS: &'static [&'static str] = &[
        "model_name",
        "text_output",
        "finish_reason",
        "num_input_tokens",
        "num_output_tokens",
        "details",
        "error",
        "errors",
        "type",
        "code",
        "error_type",
    ];

    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        let (choice, path) = match path {
            [rest @ .., At(choice)] => (*choice, rest),
            _ => (0, path),
        };
        match (path, value) {
            ([], Value::End) => counted(self.input, self.output, out),
            ([Key("text_output")], Value::Text(piece)) => {
                say(choice, self.echo.pass(piece), out);
            }
            ([Key("text_output")], Value::TextEnd) => self.echo.end(),
            ([Key("finish_reason")] | [Key("details"), Key("finish_reason")], value) => {
                if let Some(reason) = self.short.word(value) {
                    stopped(choice, &reason, out);
                }
            }
            ([Key("model_name")], value) => {
                if let Some(model) = self.short.word(value) {
                    self.once.started(None, Some(&model), out);
                }
            }
            ([Key("num_input_tokens")], value) => self.input.add(Count::of(value)),
            ([Key("num_output_tokens")], value) => self.output.add(Count::of(value)),
            _ => {}
        }
    }
}
