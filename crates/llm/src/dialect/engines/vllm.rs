//! vLLM's own demonstration server, `/generate`: `{"text": ["…"]}`, of which each text begins with the prompt. A stream
//! repeats all the text so far in each message; they are divided by line ends, in old versions by zero bytes. Nothing is
//! said of counts or of the end.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::SeqAccess;

use super::say;
use crate::dialect::failure::Failure;
use crate::dialect::grown::{Echo, Growing};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Step, Value};
use crate::dialect::lenient::{FromAny, Text, read_leniently};
use crate::dialect::shapes::{Body, Messages};
use crate::dialect::{Event, RequestFacts};

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    text: Texts<'a>,
    error: Failure<'a>,
}

/// One text, or a list of them; what is no text counts as an empty one. The first stands inline, as there is mostly one.
#[derive(Debug, Default)]
pub struct Texts<'a> {
    first: Option<Cow<'a, str>>,
    rest: Vec<Cow<'a, str>>,
}

impl<'de: 'a, 'a> FromAny<'de> for Texts<'a> {
    fn borrowed(text: &'de str) -> Self {
        Self { first: Some(Cow::Borrowed(text)), rest: Vec::new() }
    }

    fn copied(text: &str) -> Self {
        Self { first: Some(Cow::Owned(text.to_owned())), rest: Vec::new() }
    }

    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut texts = Self::default();
        while let Some(Text(text)) = seq.next_element()? {
            match texts.first {
                None => texts.first = Some(text),
                Some(_) => texts.rest.push(text),
            }
        }
        Ok(texts)
    }
}

impl Texts<'_> {
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.first.iter().chain(&self.rest).map(|text| &**text)
    }
}

read_leniently! {
    impl['a] Texts<'a> where 'de: 'a;
}

#[derive(Debug, Default)]
pub struct Stream {
    texts: Growing,
}

impl Stream {
    pub fn new(asked: &RequestFacts) -> Self {
        Self { texts: Growing::after(Echo::new(asked, true).bytes()) }
    }
}

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, _name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        for (choice, text) in (0..).zip(chunk.text.iter()) {
            say(choice, self.texts.news(choice, text), out);
        }
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        &chunk.error
    }
}

/// A whole answer.
#[derive(Debug, Default)]
pub struct Whole {
    echo: Echo,
}

impl Whole {
    pub fn new(asked: &RequestFacts) -> Self {
        Self { echo: Echo::new(asked, true) }
    }
}

impl Body for Whole {
    const KEYS: &'static [&'static str] =
        &["text", "error", "errors", "type", "code", "error_type"];

    fn value(&mut self, path: &[Step], value: Value<'_>, out: &mut impl FnMut(Event<'_>)) {
        let choice = match path {
            [Key("text")] => 0,
            [Key("text"), At(choice)] => *choice,
            _ => return,
        };
        match value {
            Value::Text(piece) => say(choice, self.echo.pass(piece), out),
            Value::TextEnd => self.echo.end(),
            Value::Object
            | Value::Array
            | Value::End
            | Value::Number(_)
            | Value::Bool(_)
            | Value::Null => {}
        }
    }
}
