//! One message of a streamed generateContent, as far as it is read. Strings are borrowed from the frame; what few
//! messages have is boxed, so that the many stay small.

use serde::Deserialize;

use super::usage::RawUsage;
use crate::dialect::failure::Failure;
use crate::dialect::lenient::{Code, Count, Flag, List, Object, Text, Written};

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    pub candidates: List<Candidate<'a>>,
    pub prompt_feedback: Object<Feedback<'a>>,
    pub usage_metadata: Object<RawUsage<'a>>,
    pub model_version: Text<'a>,
    pub response_id: Text<'a>,
    pub error: Failure<'a>,
    /// The message itself, where it comes wrapped: Code Assist puts a trace beside it.
    pub response: Object<Box<Chunk<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Feedback<'a> {
    pub block_reason: Code<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Candidate<'a> {
    pub index: Count,
    pub content: Object<Content<'a>>,
    pub finish_reason: Code<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Content<'a> {
    pub parts: List<Part<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Part<'a> {
    pub text: Text<'a>,
    /// The text is a summary of what was thought.
    pub thought: Flag,
    pub function_call: Object<Box<Call<'a>>>,
    /// A call of a tool that Google runs.
    pub tool_call: Object<Box<Call<'a>>>,
    pub executable_code: Object<Box<Executable<'a>>>,
}

/// A call of a function. Where arguments are streamed, the first message has the name and those that follow have
/// `partialArgs`; they end with one that does not say `willContinue`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Call<'a> {
    pub id: Text<'a>,
    pub name: Text<'a>,
    pub args: Written,
    pub partial_args: List<Argument<'a>>,
}

/// One value within the arguments, or a piece of a string. Where it belongs is said by a path, which is not what the
/// model wrote.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub struct Argument<'a> {
    pub string_value: Text<'a>,
    pub number_value: Written,
    pub bool_value: Written,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Executable<'a> {
    pub code: Text<'a>,
}
