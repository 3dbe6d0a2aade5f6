//! What an answer says of an error: never its message, which is content, only its kind.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use super::Event;
use super::lenient::{Code, FromAny, Text, read_leniently};

/// What stands under `error`.
#[derive(Debug, Default)]
pub enum Failure<'a> {
    #[default]
    None,
    /// Only a message, which is content.
    Message,
    Object(Box<FailureObject<'a>>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct FailureObject<'a> {
    #[serde(rename = "type")]
    pub kind: Text<'a>,
    /// Google's word for it.
    pub status: Text<'a>,
    pub code: Code<'a>,
}

impl<'de: 'a, 'a> FromAny<'de> for Failure<'a> {
    fn copied(text: &str) -> Self {
        if text.is_empty() { Self::None } else { Self::Message }
    }

    /// Of several the first.
    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let first = seq.next_element()?.unwrap_or_default();
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }

    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Box::deserialize(MapAccessDeserializer::new(map)).map(Self::Object)
    }
}

impl Failure<'_> {
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Its kind, by its type or status or else its code, if one is an identifier.
    pub fn kind(&self) -> Option<&str> {
        let Self::Object(object) = self else {
            return None;
        };
        [&*object.kind.0, &*object.status.0, &*object.code.0].into_iter().find_map(identifier)
    }
}

/// What was told of an answer's error: several messages may report it, and the first may know less than a later one.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub enum Told {
    #[default]
    Nothing,
    Failure,
    TextKind,
}

impl Told {
    /// Whether an event tells something that was not told before; all but errors do.
    pub fn admits(&mut self, event: &Event<'_>) -> bool {
        let Event::Failed { kind } = event else {
            return true;
        };
        let tells = kind.map_or(Self::Failure, |_| Self::TextKind);
        let more = tells > *self;
        if more {
            *self = tells;
        }
        more
    }
}

/// The longest word that is taken for the kind of an error. Longer ones are sentences.
const LONGEST_KIND: usize = 64;

/// An error's kind, if it is an identifier and not a message.
pub fn identifier(kind: &str) -> Option<&str> {
    let short = kind.len() <= LONGEST_KIND;
    let word = kind.bytes().all(|byte| byte.is_ascii_graphic());
    (short && word && !kind.is_empty()).then_some(kind)
}

read_leniently! {
    impl['a] Failure<'a> where 'de: 'a;
}
