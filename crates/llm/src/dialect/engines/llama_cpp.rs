//! llama.cpp's own completions and infill. Each message of a stream has the next text and the counts so far; the last
//! one, which says `stop`, has the timings too. A whole answer is that last message with all the text, or a list of them
//! where there are several prompts or completions.

use serde::Deserialize;

use super::say;
use super::shares::Shares;
use crate::dialect::failure::{Failure, identifier};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::lenient::{Count, Flag, Number, Object, Text};
use crate::dialect::once::Once;
use crate::dialect::shapes::{Body, Messages};
use crate::dialect::{Event, RequestFacts, Timings};

/// Why it stopped, as newer builds write it, where older ones have a flag for each.
const FLAGS: [(&str, &str); 3] =
    [("stopped_eos", "eos"), ("stopped_word", "word"), ("stopped_limit", "limit")];

/// What newer builds say of a choice that has not stopped.
const NOT_STOPPED: &str = "none";

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    index: Count,
    content: Text<'a>,
    stop: Flag,
    stop_type: Text<'a>,
    stopped_eos: Flag,
    stopped_word: Flag,
    stopped_limit: Flag,
    model: Text<'a>,
    tokens_predicted: Count,
    tokens_evaluated: Count,
    timings: Object<Box<Clocked>>,
    error: Failure<'a>,
    /// Old builds have an error stand bare.
    #[serde(rename = "type")]
    kind: Text<'a>,
}

/// `timings`, whose `prompt_n` leaves out what was cached.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Clocked {
    cache_n: Count,
    prompt_ms: Number,
    predicted_ms: Number,
}

impl Chunk<'_> {
    fn reason(&self) -> Option<&str> {
        let flags = [self.stopped_eos, self.stopped_word, self.stopped_limit];
        let old = FLAGS.iter().zip(flags).find(|(_, flag)| flag.0);
        let new = self.stop_type.some().filter(|word| *word != NOT_STOPPED);
        new.or(old.map(|((_, word), _)| *word))
    }
}

impl Clocked {
    fn tell(self, out: &mut impl FnMut(Event<'_>)) {
        let timings = Timings {
            prefill: self.prompt_ms.milliseconds(),
            decode: self.predicted_ms.milliseconds(),
            ..Timings::default()
        };
        if timings != Timings::default() {
            out(Event::Timings(timings));
        }
    }
}

#[derive(Debug, Default)]
pub struct Stream {
    once: Once,
    shares: Shares,
}

impl Stream {
    pub fn new(asked: &RequestFacts) -> Self {
        Self { once: Once::default(), shares: Shares::new(asked) }
    }
}

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, _name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let index = chunk.index.0.and_then(|index| u32::try_from(index).ok());
        let choice = index.unwrap_or_default();
        self.once.started(None, chunk.model.some(), out);
        say(choice, &chunk.content.0, out);
        let clocked = chunk.timings.0.as_deref().copied().unwrap_or_default();
        let (evaluated, predicted) = (chunk.tokens_evaluated, chunk.tokens_predicted);
        let counts = [evaluated, predicted, clocked.cache_n];
        self.shares.tell(choice, counts, out);
        clocked.tell(out);
        match chunk.reason() {
            Some(reason) => out(Event::Stopped { choice, reason }),
            // The request may have left the reason out of the fields it wants.
            None if chunk.stop.0 => out(Event::Done),
            None => {}
        }
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        &chunk.error
    }

    fn kind<'m>(chunk: &'m Chunk<'_>) -> Option<&'m str> {
        chunk.error.kind().or(identifier(&chunk.kind.0))
    }
}

/// A whole answer.
#[derive(Debug, Default)]
pub struct Whole {
    short: Short,
    once: Once,
    shares: Shares,
    /// What is known of the result that is being read.
    evaluated: Count,
    predicted: Count,
    clocked: Clocked,
}

impl Whole {
    pub fn new(asked: &RequestFacts) -> Self {
        Self {
            short: Short::default(),
            once: Once::default(),
            shares: Shares::new(asked),
            evaluated: Count::default(),
            predicted: Count::default(),
            clocked: Clocked::default(),
        }
    }

    fn end(&mut self, choice: u32, out: &mut impl FnMut(Event<'_>)) {
        let clocked = std::mem::take(&mut self.clocked);
        let (evaluated, predicted) = (self.evaluated, self.predicted);
        let counts = [evaluated, predicted, clocked.cache_n];
        self.shares.tell(choice, counts, out);
        clocked.tell(out);
        (self.evaluated, self.predicted) = Default::default();
    }
}

impl Body for Whole {
    const KEYS: &'static [&'static str] = &[
        "content",
        "model",
        "stop_type",
        "stopped_eos",
        "stopped_word",
        "stopped_limit",
        "tokens_evaluated",
        "tokens_predicted",
        "timings",
        "cache_n",
        "prompt_ms",
        "predicted_ms",
        "error",
        "errors",
        "type",
        "code",
        "error_type",
    ];

    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        let (choice, path) = match path {
            [At(choice), rest @ ..] => (*choice, rest),
            _ => (0, path),
        };
        match (path, value) {
            ([], Value::End) => self.end(choice, out),
            ([Key("content")], Value::Text(text)) => say(choice, text, out),
            ([Key("model")], value) => {
                if let Some(model) = self.short.word(value) {
                    self.once.started(None, Some(&model), out);
                }
            }
            ([Key("stop_type")], value) => {
                if let Some(reason) = self.short.word(value).filter(|word| word != NOT_STOPPED) {
                    let reason = &reason;
                    out(Event::Stopped { choice, reason });
                }
            }
            ([Key(flag)], Value::Bool(true)) => {
                if let Some((_, reason)) = FLAGS.iter().find(|(known, _)| known == flag) {
                    out(Event::Stopped { choice, reason });
                }
            }
            ([Key("tokens_evaluated")], value) => self.evaluated = Count::of(value),
            ([Key("tokens_predicted")], value) => self.predicted = Count::of(value),
            ([Key("timings"), Key("cache_n")], value) => self.clocked.cache_n = Count::of(value),
            ([Key("timings"), Key("prompt_ms")], value) => {
                self.clocked.prompt_ms = Number::of(value);
            }
            ([Key("timings"), Key("predicted_ms")], value) => {
                self.clocked.predicted_ms = Number::of(value);
            }
            _ => {}
        }
    }
}
