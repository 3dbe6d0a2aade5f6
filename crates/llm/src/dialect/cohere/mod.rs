//! Reads Cohere's APIs: chat and generate of version 1, chat of version 2, embeddings, and reranking. Other providers
//! adopted Cohere's reranking format.
//!
//! The message format shows the version. Of billed and processed tokens, only processed tokens are recorded, which
//! include the prompt template. Embeddings report only billed tokens, which equal the processed tokens.

use serde::Deserialize;

use super::lenient::{self, Object};
use super::request::{RequestField, RequestPaths};
use super::table::{Field, Table};
use super::token_count::TokenCount;
use super::{Api, ByModality, Part, Usage, openai};

/// Version 1 of chat and generate. The last messages of a stream repeat its text and its tool calls.
static FIRST_VERSION: Table = Table {
    last_type: "stream-end",
    repeating_type: "tool-calls-generation",
    parse_usage: |json| RawUsage::parse(json).generated(),
    bare_object_is_error: false,
    ..Table::new(&[
        ("id|generation_id", Field::Id),
        ("model", Field::Model),
        ("index", Field::Choice),
        // The text includes the model's plan for tool use.
        ("text", Field::Text(Part::Text)),
        ("tool_call_delta.text", Field::Text(Part::Text)),
        ("tool_call_delta.index", Field::CallIndex),
        ("tool_call_delta.parameters{}", Field::Arguments),
        ("tool_calls.*.parameters{}", Field::FullArguments),
        ("finish_reason", Field::StopReason),
        ("generations.*.text", Field::FullText),
        ("generations.*.finish_reason", Field::StopReason),
        ("meta|usage{}", Field::Usage),
        // The last message of a stream.
        ("response.generation_id|id", Field::Id),
        ("response.text", Field::FullText),
        ("response.finish_reason", Field::StopReason),
        ("response.generations.*.text", Field::FullText),
        ("response.generations.*.finish_reason", Field::StopReason),
        ("response.meta{}", Field::Usage),
        ("event_type", Field::Type),
        ("", Field::Report),
    ])
};

/// Version 2 of chat. The tool plan counts as reasoning.
static SECOND_VERSION: Table = Table {
    last_type: "message-end",
    parse_usage: |json| RawUsage::parse(json).generated(),
    bare_object_is_error: false,
    has_blocks: true,
    ..Table::new(&[
        ("id", Field::Id),
        ("model", Field::Model),
        // Index of a content part or of a tool call.
        ("index", Field::Block),
        ("message.content", Field::Text(Part::Text)),
        ("message.content.text", Field::Text(Part::Text)),
        ("message.content.*.text", Field::Text(Part::Text)),
        ("message.content.thinking", Field::Text(Part::Reasoning)),
        ("message.content.*.thinking", Field::Text(Part::Reasoning)),
        ("message.tool_plan", Field::Text(Part::Reasoning)),
        ("message.tool_calls.id", Field::CallId),
        ("message.tool_calls.function.name", Field::CallName),
        ("message.tool_calls.function.arguments{}", Field::Arguments),
        ("message.tool_calls.*.function.arguments{}", Field::Arguments),
        ("finish_reason", Field::StopReason),
        ("usage|meta{}", Field::Usage),
        ("type", Field::Type),
        ("", Field::Report),
    ])
    .unwraps(&["delta"])
};

/// Embeddings and reranking, which generate nothing.
static PROCESSING: Table = Table {
    parse_usage: |json| RawUsage::parse(json).processed(),
    bare_object_is_error: false,
    ..Table::new(&[
        ("id", Field::Id),
        ("model", Field::Model),
        ("meta|usage{}", Field::Usage),
        // Cohere's vectors, and the rankings or vectors of other providers.
        ("embeddings", Field::Result),
        ("results|data|rankings.*", Field::Result),
        ("index|score|relevance_score", Field::Result),
    ])
};

/// Paths of the values in requests to all Cohere APIs. They extend OpenAI's rows, because chat version 2 is close to
/// OpenAI's format, and an OpenAI-compatible provider shares one of the URL paths.
pub static REQUEST: RequestPaths = RequestPaths::new(&[
    ("message|preamble|query", RequestField::Prompt),
    ("query.text", RequestField::Prompt),
    ("chat_history.*.message", RequestField::Prompt),
    ("documents|texts.*", RequestField::Prompt),
    ("documents.*.text|snippet|title|data", RequestField::Prompt),
    ("documents.*.data.text|snippet|title", RequestField::Prompt),
    ("inputs.*.content.*.text", RequestField::Prompt),
    // Keys that only one API has.
    ("message", RequestField::Api(Api::CohereV1Chat)),
    ("prompt", RequestField::Api(Api::CohereV1Generate)),
    ("query", RequestField::Api(Api::Rerank)),
    ("stop_sequences|end_sequences.*", RequestField::Stop),
    ("embedding_types.*", RequestField::EncodingFormat),
    ("thinking.type", RequestField::ReasoningLevelUnlessGiven),
    ("thinking.token_budget", RequestField::ReasoningLevel),
    ("conversation_id", RequestField::Conversation),
    ("p", RequestField::TopP),
    ("k", RequestField::TopK),
    ("num_generations", RequestField::Choices),
    ("output_dimension", RequestField::Dimensions),
])
.extends(openai::REQUEST_ROWS);

/// Token counts: `usage` in version 2, `meta` in version 1.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawUsage {
    tokens: Object<Units>,
    billed_units: Object<Units>,
    cached_tokens: TokenCount,
    /// Fields of rerank responses by Jina, Voyage, llama.cpp and vLLM.
    prompt_tokens: TokenCount,
    total_tokens: TokenCount,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Units {
    input_tokens: TokenCount,
    output_tokens: TokenCount,
    reasoning_tokens: TokenCount,
    image_tokens: TokenCount,
}

/// Returns the table of an API.
pub fn table(api: Api) -> &'static Table {
    match api {
        Api::CohereV1Chat | Api::CohereV1Generate => &FIRST_VERSION,
        Api::CohereV2Chat => &SECOND_VERSION,
        _ => &PROCESSING,
    }
}

impl RawUsage {
    fn parse(json: &str) -> Self {
        lenient::parse(json)
    }

    /// Returns the counts of a generation.
    fn generated(&self) -> Usage {
        let Some(tokens) = &self.tokens.0 else {
            return Usage::default();
        };
        Usage {
            input: tokens.input_tokens.0,
            output: tokens.output_tokens.0,
            reasoning: tokens.reasoning_tokens.0,
            cache_read: self.cached_tokens.0,
            ..Usage::default()
        }
    }

    /// Returns the token counts of a call that generates no text: embeddings or reranking.
    fn processed(&self) -> Usage {
        let units = self.tokens.0.as_ref().or(self.billed_units.0.as_ref());
        let text = units.and_then(|units| units.input_tokens.0);
        let image = units.and_then(|units| units.image_tokens.0);
        let both = text.unwrap_or(0).saturating_add(image.unwrap_or(0));
        let input = text.or(image).map(|_| both);
        Usage {
            input: input.or(self.prompt_tokens.0).or(self.total_tokens.0),
            input_by: ByModality {
                text: text.filter(|_| image.is_some()),
                image,
                ..ByModality::default()
            },
            ..Usage::default()
        }
    }
}

#[cfg(test)]
mod tests;
