//! A message of a chat or completions stream, such as `{"choices":[{"index":0,"delta":{"content":"Hi"}}]}`.
//!
//! Strings are borrowed from the frame. Rare fields are boxed, so that the struct stays small.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use super::usage::RawUsage;
use crate::dialect::errors::HasError;
use crate::dialect::lenient::{
    Arguments, Code, Count, FromAny, List, Object, Text, impl_lenient, record_misfit,
};

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    pub id: Text<'a>,
    pub model: Text<'a>,
    /// The model of watsonx.
    pub model_id: Text<'a>,
    pub service_tier: Text<'a>,
    pub system_fingerprint: Text<'a>,
    pub choices: List<Choice<'a>>,
    pub usage: Object<Box<RawUsage>>,
    pub x_groq: Object<Box<Groq>>,
    pub provider_metadata: Object<Box<ProviderMetadata>>,
    /// Durations of llama.cpp.
    pub timings: Object<Box<RawUsage>>,
    /// Durations of Cerebras.
    pub time_info: Object<Box<RawUsage>>,
    /// Durations of Fireworks.
    pub perf_metrics: Object<Box<RawUsage>>,
    /// Durations of LM Studio.
    pub stats: Object<Box<RawUsage>>,
    /// Text of Writer's completions, which have no other field.
    pub value: Text<'a>,
    pub error: HasError,
    /// Errors of Cloudflare.
    pub errors: List<HasError>,
    /// Status of MiniMax, which every message contains.
    pub base_resp: Object<Box<BaseResponse<'a>>>,
    /// The type of the message, which is `error` in old formats.
    pub object: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct BaseResponse<'a> {
    /// 0 means success.
    pub status_code: Code<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Groq {
    pub usage: Object<Box<RawUsage>>,
    /// The error that ended the stream early.
    pub error: HasError,
}

/// Metadata of Vercel's AI Gateway.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProviderMetadata {
    /// Has the cost of the call under the same key as a usage object.
    pub gateway: Object<Box<RawUsage>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Choice<'a> {
    pub index: Count,
    pub delta: Object<ChatMessage<'a>>,
    pub message: Object<Box<ChatMessage<'a>>>,
    pub text: Text<'a>,
    pub finish_reason: Text<'a>,
    /// Finish reason of Mistral and DeepSeek on Bedrock. Other providers use this key for the text that stopped the
    /// choice.
    pub stop_reason: Text<'a>,
    pub usage: Object<Box<RawUsage>>,
    pub error: HasError,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct ChatMessage<'a> {
    pub content: Content<'a>,
    pub reasoning_content: Text<'a>,
    pub reasoning: Text<'a>,
    /// Reasoning of GitHub Copilot.
    pub reasoning_text: Text<'a>,
    pub reasoning_details: List<Box<Detail<'a>>>,
    pub refusal: Text<'a>,
    pub tool_calls: List<Box<ToolCall<'a>>>,
    pub function_call: Object<Box<Function<'a>>>,
    pub audio: Object<Audio<'a>>,
    pub provider_metadata: Object<Box<ProviderMetadata>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Detail<'a> {
    pub text: Text<'a>,
    pub summary: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct ToolCall<'a> {
    pub index: Count,
    pub id: Text<'a>,
    pub function: Object<Function<'a>>,
    pub custom: Object<Function<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Function<'a> {
    pub name: Text<'a>,
    pub arguments: Arguments<'a>,
    /// Arguments of a custom tool.
    pub input: Arguments<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Audio<'a> {
    pub transcript: Text<'a>,
}

/// The text of a message or of one of its parts: a string or a list.
#[derive(Debug, Default)]
pub enum Content<'a> {
    #[default]
    None,
    Text(Cow<'a, str>),
    Parts(Box<List<ContentPart<'a>>>),
}

#[derive(Debug, Default)]
pub struct ContentPart<'a> {
    pub text: Text<'a>,
    /// Reasoning of Mistral, which is again a list of parts.
    pub thinking: Box<Content<'a>>,
    /// Reasoning of Databricks, as a nested list.
    pub summary: List<Box<Detail<'a>>>,
}

impl ContentPart<'_> {
    pub fn is_reasoning(&self) -> bool {
        !matches!(*self.thinking, Content::None) || self.summary.first().is_some()
    }
}

impl<'de: 'a, 'a> FromAny<'de> for ContentPart<'a> {
    /// Reads a part. Other kinds of parts, such as images, have a type and no text.
    fn map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut part = Self::default();
        let (mut is_part, mut is_empty) = (false, true);
        while let Some(Text(key)) = map.next_key::<Text<'a>>()? {
            is_empty = false;
            match &*key {
                "text" => part.text = map.next_value()?,
                "thinking" => part.thinking = map.next_value()?,
                "summary" => part.summary = map.next_value()?,
                other => {
                    is_part |= other == "type";
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            }
            is_part = true;
        }
        if !is_part && !is_empty {
            record_misfit();
        }
        Ok(part)
    }
}

impl<'de: 'a, 'a> FromAny<'de> for Content<'a> {
    fn borrowed(text: &'de str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    fn copied(text: &str) -> Self {
        Self::Text(Cow::Owned(text.to_owned()))
    }

    fn number(number: u64) -> Self {
        Self::Text(Text::number(number).0)
    }

    fn float(number: f64) -> Self {
        Self::Text(Text::float(number).0)
    }

    fn seq<A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        List::seq(seq).map(|parts| Self::Parts(Box::new(parts)))
    }

    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        List::map(map).map(|part| Self::Parts(Box::new(part)))
    }
}

impl_lenient! {
    impl['a] Content<'a> where 'de: 'a;
    impl['a] ContentPart<'a> where 'de: 'a;
}
