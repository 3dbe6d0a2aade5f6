//! One message of a stream in any model's own format, as far as it is read. No two of the formats use one name for two
//! things, so they are read as one.

use serde::Deserialize;

use crate::dialect::failure::Failure;
use crate::dialect::lenient::{Count, Flag, List, Object, Text, Written};

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Chunk<'a> {
    pub error: Failure<'a>,
    // Titan.
    #[serde(rename = "outputText")]
    pub output_text: Text<'a>,
    #[serde(rename = "completionReason")]
    pub completion_reason: Text<'a>,
    #[serde(rename = "inputTextTokenCount")]
    pub input_text_token_count: Count,
    #[serde(rename = "totalOutputTextTokenCount")]
    pub total_output_text_token_count: Count,
    // Llama.
    pub generation: Text<'a>,
    pub prompt_token_count: Count,
    pub generation_token_count: Count,
    pub stop_reason: Text<'a>,
    /// Mistral's completions.
    pub outputs: List<Output<'a>>,
    // Cohere.
    pub text: Text<'a>,
    pub index: Count,
    pub finish_reason: Text<'a>,
    pub generation_id: Text<'a>,
    /// Cohere: a whole answer in one message.
    pub generations: List<Output<'a>>,
    pub tool_call_delta: Object<Box<Call<'a>>>,
    pub tool_calls: List<WholeCall>,
    // TGI and those who write as it does.
    pub token: Object<Token<'a>>,
    pub generated_text: Text<'a>,
    pub details: Object<Box<Details<'a>>>,
}

/// A piece of a tool call.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Call<'a> {
    pub index: Count,
    pub parameters: Text<'a>,
}

/// A tool call that comes whole.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WholeCall {
    pub parameters: Written,
}

/// One choice.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Output<'a> {
    pub text: Text<'a>,
    pub stop_reason: Text<'a>,
    pub finish_reason: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Token<'a> {
    pub text: Text<'a>,
    /// It is a mark (the end of the text) and no text.
    pub special: Flag,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Details<'a> {
    pub finish_reason: Text<'a>,
    pub generated_tokens: Count,
}
