//! Messages of a stream → events.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::SeqAccess;

use super::{Counts, stopped};
use crate::dialect::failure::{Failure, identifier};
use crate::dialect::grown::Growing;
use crate::dialect::lenient::{Code, Count, FromAny, List, Object, Text, read_leniently};
use crate::dialect::once::Once;
use crate::dialect::shapes::{Messages, say};
use crate::dialect::{Event, Part};

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    request_id: Text<'a>,
    output: Object<Output<'a>>,
    usage: Object<RawUsage>,
    /// Only an error has it.
    code: Code<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Output<'a> {
    choices: List<Choice<'a>>,
    /// Without choices, in the older form of a result.
    text: Text<'a>,
    finish_reason: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Choice<'a> {
    message: Object<Message<'a>>,
    finish_reason: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Message<'a> {
    content: Content<'a>,
    reasoning_content: Text<'a>,
    tool_calls: List<ToolCall<'a>>,
}

/// A text, or the texts among a list of parts, joined.
#[derive(Debug, Default)]
struct Content<'a>(Cow<'a, str>);

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Parted<'a> {
    text: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ToolCall<'a> {
    index: Count,
    function: Object<Function<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Function<'a> {
    arguments: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawUsage {
    input_tokens: Count,
    output_tokens: Count,
    total_tokens: Count,
    prompt_tokens_details: Object<PromptDetails>,
    output_tokens_details: Object<OutputDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Count,
}

impl<'de: 'a, 'a> FromAny<'de> for Content<'a> {
    fn borrowed(text: &'de str) -> Self {
        Self(Cow::Borrowed(text))
    }

    fn copied(text: &str) -> Self {
        Self(Cow::Owned(text.to_owned()))
    }

    fn seq<A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut joined = Cow::Borrowed("");
        while let Some(part) = seq.next_element::<Object<Parted<'a>>>()? {
            if let Object(Some(Parted { text: Text(text) })) = part {
                joined += text;
            }
        }
        Ok(Self(joined))
    }
}

read_leniently! {
    impl['a] Content<'a> where 'de: 'a;
}

#[derive(Debug, Default)]
pub struct Stream {
    once: Once,
    texts: Growing,
    reasonings: Growing,
    /// By the number of the call.
    arguments: Growing,
}

impl Messages for Stream {
    type Message<'a> = Chunk<'a>;

    fn message(&mut self, _name: &[u8], chunk: &Chunk<'_>, out: &mut impl FnMut(Event<'_>)) {
        self.once.started(chunk.request_id.some(), None, out);
        if let Some(output) = &chunk.output.0 {
            say(Part::Text, 0, self.texts.news(0, &output.text.0), out);
            stopped(0, &output.finish_reason.0, out);
            for (choice, read) in (0..).zip(output.choices.iter()) {
                if let Some(message) = &read.message.0 {
                    self.said(choice, message, out);
                }
                stopped(choice, &read.finish_reason.0, out);
            }
        }
        if let Some(usage) = &chunk.usage.0 {
            usage.counts().tell(out);
        }
    }

    fn error<'m>(chunk: &'m Chunk<'_>) -> &'m Failure<'m> {
        if chunk.code.0.is_empty() { &Failure::None } else { &Failure::Message }
    }

    fn kind<'m>(chunk: &'m Chunk<'_>) -> Option<&'m str> {
        identifier(&chunk.code.0)
    }
}

impl Stream {
    fn said(&mut self, choice: u32, message: &Message<'_>, out: &mut impl FnMut(Event<'_>)) {
        let reasoning = self.reasonings.news(choice, &message.reasoning_content.0);
        say(Part::Reasoning, choice, reasoning, out);
        say(Part::Text, choice, self.texts.news(choice, &message.content.0), out);
        for (position, call) in (0..).zip(message.tool_calls.iter()) {
            let index = call.index.0.and_then(|index| u32::try_from(index).ok());
            let number = index.unwrap_or(position);
            if let Some(function) = &call.function.0 {
                let arguments = self.arguments.news(number, &function.arguments.0);
                say(Part::Tool(number), choice, arguments, out);
            }
        }
    }
}

impl RawUsage {
    fn counts(&self) -> Counts {
        let prompt = self.prompt_tokens_details.0.as_ref();
        let output = self.output_tokens_details.0.as_ref();
        Counts {
            input: self.input_tokens,
            output: self.output_tokens,
            total: self.total_tokens,
            cached: prompt.map(|details| details.cached_tokens).unwrap_or_default(),
            reasoning: output.map(|details| details.reasoning_tokens).unwrap_or_default(),
        }
    }
}
