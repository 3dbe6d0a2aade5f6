//! One message of a stream, of either version, as far as it is read. Strings are borrowed from the frame; what few
//! messages have is boxed, so that the many stay small.

use serde::Deserialize;

use super::usage::RawUsage;
use crate::dialect::failure::Failure;
use crate::dialect::lenient::{Count, List, Object, Text, Written};

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    pub id: Text<'a>,
    /// The choice in generate, the part of the content or the call of a tool in the second version of chat.
    pub index: Count,
    pub error: Failure<'a>,
    // Of the first version.
    pub event_type: Text<'a>,
    pub generation_id: Text<'a>,
    pub text: Text<'a>,
    pub tool_call_delta: Object<CallDelta<'a>>,
    pub tool_calls: List<Call>,
    pub finish_reason: Text<'a>,
    /// The whole answer once more.
    pub response: Object<Box<Answer<'a>>>,
    /// Of an answer to generate that comes in one message.
    pub generations: List<Generation<'a>>,
    // Of the second version.
    #[serde(rename = "type")]
    pub kind: Text<'a>,
    pub delta: Object<Delta<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct CallDelta<'a> {
    pub index: Count,
    pub parameters: Text<'a>,
    /// The plan for the use of tools, which this version has no name for.
    pub text: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Call {
    pub parameters: Written,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Answer<'a> {
    pub id: Text<'a>,
    pub generation_id: Text<'a>,
    pub text: Text<'a>,
    pub finish_reason: Text<'a>,
    pub generations: List<Generation<'a>>,
    pub meta: Object<RawUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Generation<'a> {
    pub index: Count,
    pub text: Text<'a>,
    pub finish_reason: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Delta<'a> {
    pub message: Object<Message<'a>>,
    pub finish_reason: Text<'a>,
    pub error: Failure<'a>,
    pub usage: Object<Box<RawUsage>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Message<'a> {
    pub content: Object<Content<'a>>,
    pub tool_plan: Text<'a>,
    pub tool_calls: Object<Box<Tool<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Content<'a> {
    pub text: Text<'a>,
    pub thinking: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Tool<'a> {
    pub id: Text<'a>,
    pub function: Object<Function<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Function<'a> {
    pub name: Text<'a>,
    pub arguments: Text<'a>,
}
