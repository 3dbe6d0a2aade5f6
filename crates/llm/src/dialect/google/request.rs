//! Requests of Google's formats. Google accepts every field in both spellings of protocol buffers, `topK` and `top_k`.

use crate::dialect::Api;
use crate::dialect::request::{RequestField, RequestPaths};

/// Some requests contain others: those that count tokens, batches of embeddings, and all of Code Assist.
static PATHS: RequestPaths = RequestPaths::new(&[
    ("model|agent", RequestField::ModelUnlessInPath),
    ("stream", RequestField::StreamUnlessInPath),
    ("contents.*.parts.*.text", RequestField::Prompt),
    ("content|systemInstruction|system_instruction.parts.*.text", RequestField::Prompt),
    ("tools.*", RequestField::Tools),
    ("serviceTier|service_tier", RequestField::ServiceTier),
    // Vertex AI. The keys of a custom model are unknown, but only embeddings have `content`.
    ("instances.*.content|prompt|text", RequestField::Prompt),
    ("instances.*.content", RequestField::Api(Api::VertexPredict)),
    // Interactions.
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

pub const fn request_paths(_: Api) -> &'static RequestPaths {
    &PATHS
}
