//! Describes Google's APIs: generateContent, interactions, embeddings and predictions of Gemini and Vertex AI.
//!
//! A stream of generateContent has server-sent events, or one list of the same messages. Instead of an end marker, each
//! candidate has a finish reason.

mod generate;
mod usage;

pub use generate::Generate;

use super::lenient;
use super::request::{RequestField, RequestPaths};
use super::response::FormatReader;
use super::table::{Field, Table};
use super::{Api, Part, Reader, RequestFacts};
use tokengauge_types::event::SessionSource;
use usage::RawUsage;

/// An interaction: a list of steps, such as thoughts, answers, tool calls and tool results. In a stream, a step begins,
/// grows by deltas and ends. The first version of the API has outputs and contents instead of steps.
static INTERACTION: Table = Table {
    parse_usage: |json| lenient::parse::<RawUsage<'_>>(json).usage(),
    has_blocks: true,
    bare_object_is_error: false,
    ..Table::new(&[
        ("id", Field::Id),
        ("model|agent", Field::Model),
        ("service_tier", Field::ServiceTier),
        ("status", Field::StopReason),
        ("usage{}", Field::Usage),
        ("steps|outputs.*.text", Field::Text(Part::Text)),
        ("steps|outputs.*.content.*.text", Field::Text(Part::Text)),
        ("steps|outputs.*.summary.*.text", Field::Text(Part::Reasoning)),
        ("steps|outputs.*.arguments{}", Field::Arguments),
        // Values that only streams contain.
        ("interaction.id", Field::Id),
        ("interaction.model|agent", Field::Model),
        ("interaction.service_tier", Field::ServiceTier),
        ("interaction.status", Field::StopReason),
        ("interaction.usage{}", Field::Usage),
        ("index", Field::Block),
        ("step|content|delta.text", Field::Text(Part::Text)),
        // A summary of a thought.
        ("step|content|delta.content.text", Field::Text(Part::Reasoning)),
        ("step|content.arguments{}", Field::FirstArguments),
        ("delta.arguments{}", Field::Arguments),
        ("", Field::Report),
    ])
};

/// A stored interaction that the client fetches. Its text was counted when the interaction was generated, unless it was
/// generated in the background.
static STORED_INTERACTION: Table = Table {
    parse_usage: INTERACTION.parse_usage,
    bare_object_is_error: false,
    ..Table::new(&[
        ("id", Field::Id),
        ("model|agent", Field::Model),
        ("service_tier", Field::ServiceTier),
        ("status", Field::StopReason),
        ("usage{}", Field::Usage),
        ("", Field::Report),
    ])
    .unwraps(&["interaction"])
};

/// Paths of the values in requests. Google accepts every field in both spellings of protocol buffers, such as `topK`
/// and `top_k`.
///
/// Requests that count tokens, batches of embeddings and all requests of Code Assist wrap other requests.
pub static REQUEST: RequestPaths = RequestPaths::new(&[
    ("model|agent", RequestField::ModelUnlessInPath),
    ("stream", RequestField::StreamUnlessInPath),
    ("contents.*.parts.*.text", RequestField::Prompt),
    ("content|systemInstruction|system_instruction.parts.*.text", RequestField::Prompt),
    ("tools.*", RequestField::Tools),
    ("serviceTier|service_tier", RequestField::ServiceTier),
    // Code Assist.
    ("session_id", RequestField::Session(SessionSource::CodeAssist)),
    // Vertex AI. The keys of a custom model are unknown, but only embeddings have `content`.
    ("instances.*.content|prompt|text", RequestField::Prompt),
    ("instances.*.content", RequestField::Api(Api::VertexPredict)),
    // Interactions.
    ("background", RequestField::Background),
    ("input", RequestField::Api(Api::GeminiInteractions)),
    ("input|system_instruction", RequestField::Prompt),
    ("input.text", RequestField::Prompt),
    ("input.*.text|content", RequestField::Prompt),
    ("input.*.content.*.text", RequestField::Prompt),
    // Settings.
    ("temperature", RequestField::Temperature),
    ("topP|top_p", RequestField::TopP),
    ("topK|top_k", RequestField::TopK),
    ("candidateCount|candidate_count|sampleCount", RequestField::Choices),
    ("maxOutputTokens|max_output_tokens", RequestField::MaxTokens),
    ("stopSequences|stop_sequences.*", RequestField::Stop),
    ("seed", RequestField::Seed),
    ("presencePenalty|presence_penalty", RequestField::PresencePenalty),
    ("frequencyPenalty|frequency_penalty", RequestField::FrequencyPenalty),
    ("responseMimeType|response_mime_type", RequestField::OutputMedia),
    ("responseModalities|response_modalities", RequestField::OutputMedia),
    ("responseModalities|response_modalities.*", RequestField::OutputMedia),
    ("thinkingLevel|thinking_level", RequestField::ReasoningLevel),
    ("thinkingConfig|thinking_config.thinkingLevel|thinking_level", RequestField::ReasoningLevel),
    (
        "thinkingConfig|thinking_config.thinkingBudget|thinking_budget",
        RequestField::ReasoningLevelUnlessGiven,
    ),
    ("outputDimensionality|output_dimensionality", RequestField::Dimensions),
])
.unwraps(&[
    "request",
    "requests",
    "generateContentRequest",
    "generate_content_request",
    "generationConfig",
    "generation_config",
    "embedContentConfig",
    "embed_content_config",
    "parameters",
]);

pub fn reader(api: Api, request: &RequestFacts, failed: bool) -> Reader {
    match api {
        Api::GeminiInteractions => INTERACTION.reader(request, failed).into(),
        Api::GeminiStoredInteraction => STORED_INTERACTION.reader(request, failed).into(),
        _ => FormatReader::new(Generate::default(), failed).into(),
    }
}

#[cfg(test)]
mod tests;
