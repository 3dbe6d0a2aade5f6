//! SGLang's own `/generate`. What stands beside a text is its `meta_info`: the counts so far, the reason once it has
//! stopped, and then how long all of it took. A stream says the whole text so far in each message, unless the server was
//! started to say only what is new. Several prompts or completions are answered by a list.

use serde::Deserialize;
use serde::de::MapAccess;
use serde::de::value::MapAccessDeserializer;

use super::say;
use super::shares::Shares;
use crate::dialect::failure::{Failure, identifier};
use crate::dialect::grown::Growing;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::lenient::{Code, Count, FromAny, Number, Object, Text, read_leniently};
use crate::dialect::once::Once;
use crate::dialect::shapes::{Body, Messages};
use crate::dialect::{Event, RequestFacts, Timings};

/// The type of a stop that was none of the model's.
const ABORT: &str = "abort";

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    index: Count,
    text: Text<'a>,
    meta_info: Object<Meta<'a>>,
    error: Failure<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Meta<'a> {
    id: Text<'a>,
    finish_reason: Finish<'a>,
    prompt_tokens: Count,
    completion_tokens: Count,
    cached_tokens: Count,
    e2e_latency: Number,
}

/// Why it stopped: an object, in old versions a word.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Stop<'a> {
    #[serde(rename = "type")]
    kind: Text<'a>,
    err_type: Code<'a>,
}

#[derive(Debug, Default)]
struct Finish<'a>(Stop<'a>);

impl<'de: 'a, 'a> FromAny<'de> for Finish<'a> {
    fn copied(text: &str) -> Self {
        Self(Stop { kind: Text::copied(text), ..Stop::default() })
    }

    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Stop::deserialize(MapAccessDeserializer::new(map)).map(Self)
    }
}

read_leniently! {
    impl['a] Finish<'a> where 'de: 'a;
}

#[derive(Debug, Default)]
pub struct Stream {
    once: Once,
    shares: Shares,
    texts: Growing,
}

impl Stream {
    pub fn new(asked: &RequestFacts) -> Self {
        Self { once: Once::default(), shares: Shares::new(asked), texts: Growing::default() }
    }
}

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, _name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let index = chunk.index.0.and_then(|index| u32::try_from(index).ok());
        let choice = index.unwrap_or_default();
        let meta = chunk.meta_info.0.as_ref();
        self.once.started(meta.and_then(|meta| meta.id.some()), None, out);
        say(choice, self.texts.news(choice, &chunk.text.0), out);
        if let Some(meta) = meta {
            let counts = [meta.prompt_tokens, meta.completion_tokens, meta.cached_tokens];
            self.shares.tell(choice, counts, out);
            total(meta.e2e_latency, out);
            let stop = &meta.finish_reason.0;
            stopped(choice, &stop.kind.0, &stop.err_type.0, out);
        }
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        &chunk.error
    }
}

fn total(latency: Number, out: &mut impl FnMut(Event<'_>)) {
    let total = latency.seconds();
    if total.is_some() {
        out(Event::Timings(Timings { total, ..Timings::default() }));
    }
}

fn stopped(choice: u32, reason: &str, error: &str, out: &mut impl FnMut(Event<'_>)) {
    if reason.is_empty() {
        return;
    }
    out(Event::Stopped { choice, reason });
    if reason == ABORT {
        let kind = identifier(error).or(Some(ABORT));
        out(Event::Failed { kind });
    }
}

/// A whole answer.
#[derive(Debug, Default)]
pub struct Whole {
    short: Short,
    once: Once,
    shares: Shares,
    /// What is known of the result that is being read: its counts and why it stopped.
    counts: [Count; 3],
    reason: String,
    error: String,
}

impl Whole {
    pub fn new(asked: &RequestFacts) -> Self {
        Self {
            short: Short::default(),
            once: Once::default(),
            shares: Shares::new(asked),
            counts: Default::default(),
            reason: String::new(),
            error: String::new(),
        }
    }

    fn meta(
        &mut self,
        choice: u32,
        path: &[Step],
        value: Value<'_>,
        out: &mut impl FnMut(Event<'_>),
    ) {
        let [input, output, cached] = &mut self.counts;
        match path {
            [] if value == Value::End => {
                self.shares.tell(choice, std::mem::take(&mut self.counts), out);
                let (reason, error) =
                    (std::mem::take(&mut self.reason), std::mem::take(&mut self.error));
                stopped(choice, &reason, &error, out);
            }
            [Key("id")] => {
                if let Some(id) = self.short.word(value) {
                    self.once.started(Some(&id), None, out);
                }
            }
            [Key("prompt_tokens")] => *input = Count::of(value),
            [Key("completion_tokens")] => *output = Count::of(value),
            [Key("cached_tokens")] => *cached = Count::of(value),
            [Key("e2e_latency")] => total(Number::of(value), out),
            [Key("finish_reason")] | [Key("finish_reason"), Key("type")] => {
                self.reason =
                    self.short.word(value).unwrap_or_else(|| std::mem::take(&mut self.reason));
            }
            [Key("finish_reason"), Key("err_type")] => {
                self.error = self.short.word(value).unwrap_or_default();
            }
            _ => {}
        }
    }
}

impl Body for Whole {
    const KEYS: &'static [&'static str] = &[
        "text",
        "meta_info",
        "id",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "e2e_latency",
        "finish_reason",
        "err_type",
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
            ([Key("text")], Value::Text(text)) => say(choice, text, out),
            ([Key("meta_info"), rest @ ..], value) => self.meta(choice, rest, value, out),
            _ => {}
        }
    }
}
