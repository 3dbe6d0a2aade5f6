//! Text generation inference: `/generate`, `/generate_stream` and, hosted, a model's or an endpoint's root.
//!
//! A stream has a message for each token, and all the text once more in the last one. A whole answer is an object or,
//! from a root, a list of one; several prompts at once are answered by a longer list.

use serde::Deserialize;

use super::say;
use super::shares::Shares;
use crate::dialect::failure::{Failure, identifier};
use crate::dialect::grown::Echo;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Short, Step, Value};
use crate::dialect::lenient::{Count, Flag, FromAny, Object, Text, read_leniently};
use crate::dialect::shapes::{Body, Messages};
use crate::dialect::{Event, RequestFacts, Usage};

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    token: Object<Token<'a>>,
    generated_text: All<'a>,
    details: Object<Details<'a>>,
    error: Failure<'a>,
    error_type: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Token<'a> {
    text: Text<'a>,
    /// An end or padding mark, which is no text.
    special: Flag,
}

/// All the text: null until the last message.
#[derive(Debug, Default)]
struct All<'a>(Option<Text<'a>>);

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Details<'a> {
    finish_reason: Text<'a>,
    generated_tokens: Count,
    input_length: Count,
}

impl<'de: 'a, 'a> FromAny<'de> for All<'a> {
    fn borrowed(text: &'de str) -> Self {
        Self(Some(Text::borrowed(text)))
    }

    fn copied(text: &str) -> Self {
        Self(Some(Text::copied(text)))
    }
}

read_leniently! {
    impl['a] All<'a> where 'de: 'a;
}

#[derive(Debug, Default)]
pub struct Stream {
    /// A token had text.
    spoken: bool,
}

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, _name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        let token = chunk.token.0.as_ref().filter(|token| !token.special.0);
        if let Some(text) = token.and_then(|token| token.text.some()) {
            self.spoken = true;
            say(0, text, out);
        }
        // The text as a whole counts only where it did not come token by token.
        if let Some(text) = &chunk.generated_text.0 {
            if !self.spoken {
                say(0, &text.0, out);
            }
            if let Some(details) = &chunk.details.0 {
                details.tell(out);
            }
            out(Event::Done);
        }
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        &chunk.error
    }

    fn kind<'m>(chunk: &'m Chunk<'_>) -> Option<&'m str> {
        identifier(&chunk.error_type.0).or(chunk.error.kind())
    }
}

impl Details<'_> {
    fn tell(&self, out: &mut impl FnMut(Event<'_>)) {
        if let Some(reason) = self.finish_reason.some() {
            out(Event::Stopped { choice: 0, reason });
        }
        let (input, output) = (self.input_length.0, self.generated_tokens.0);
        if input.or(output).is_some() {
            out(Event::Usage(Usage { input, output, ..Usage::default() }));
        }
    }
}

/// A whole answer.
#[derive(Debug, Default)]
pub struct Whole {
    short: Short,
    shares: Shares,
    echo: Echo,
}

impl Whole {
    pub fn new(asked: &RequestFacts) -> Self {
        Self { short: Short::default(), shares: Shares::new(asked), echo: Echo::new(asked, false) }
    }
}

impl Body for Whole {
    const KEYS: &'static [&'static str] = &[
        "generated_text",
        "details",
        "finish_reason",
        "generated_tokens",
        "error",
        "errors",
        "type",
        "code",
        "error_type",
    ];

    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        let (choice, path) = match path {
            [At(choice), At(_), rest @ ..] | [At(choice), rest @ ..] => (*choice, rest),
            _ => (0, path),
        };
        match (path, value) {
            ([Key("generated_text")], Value::Text(piece)) => {
                say(choice, self.echo.pass(piece), out);
            }
            ([Key("generated_text")], Value::TextEnd) => self.echo.end(),
            ([Key("details"), Key("finish_reason")], value) => {
                if let Some(reason) = self.short.word(value) {
                    let reason = &reason;
                    out(Event::Stopped { choice, reason });
                }
            }
            ([Key("details"), Key("generated_tokens")], value) => {
                let counts = [Count(None), Count::of(value), Count(None)];
                self.shares.tell(choice, counts, out);
            }
            _ => {}
        }
    }
}
