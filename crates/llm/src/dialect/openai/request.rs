//! Lists the values that are read from requests in OpenAI's formats.

use crate::dialect::Api;
use crate::dialect::json::{Found, Value};
use crate::dialect::request::{RequestField, RequestPaths, RequestRow, RequestState};
use tokengauge_types::event::SessionSource;

pub const REQUEST_ROWS: &[RequestRow] = &[
    ("model", RequestField::Model),
    // Vertex AI requires the version in raw requests for Claude.
    ("anthropic_version", RequestField::Rule(anthropic_version)),
    ("messages", RequestField::Rule(messages)),
    ("messages.*.content", RequestField::Prompt),
    ("messages.*.content.*.text", RequestField::Prompt),
    ("prompt", RequestField::Rule(prompt)),
    ("prompt|input.*", RequestField::Prompt),
    ("input", RequestField::Rule(input)),
    // Responses API: earlier messages, tool arguments and tool results. Moderations: a part of the input.
    ("instructions", RequestField::Prompt),
    ("input.*.content|output|arguments|input|text", RequestField::Prompt),
    ("input.*.content|output.*.text", RequestField::Prompt),
    ("stream", RequestField::Stream),
    ("max_tokens", RequestField::MaxTokens),
    ("max_completion_tokens|max_output_tokens", RequestField::MaxCompletionTokens),
    ("temperature", RequestField::Temperature),
    ("top_p", RequestField::TopP),
    ("top_k", RequestField::TopK),
    ("frequency_penalty", RequestField::FrequencyPenalty),
    ("presence_penalty", RequestField::PresencePenalty),
    ("seed", RequestField::Seed),
    ("n", RequestField::Choices),
    ("stop", RequestField::Stop),
    ("stop.*", RequestField::Stop),
    ("reasoning_effort", RequestField::ReasoningLevel),
    ("reasoning.effort", RequestField::ReasoningLevel),
    ("service_tier", RequestField::ServiceTier),
    ("modalities.*", RequestField::OutputModality),
    ("response_format.type", RequestField::OutputFormat),
    ("text.format.type", RequestField::OutputFormat),
    ("dimensions", RequestField::Dimensions),
    ("encoding_format", RequestField::EncodingFormat),
    ("tools|functions.*", RequestField::Tools),
    ("previous_response_id", RequestField::PreviousResponse),
    ("prompt.id", RequestField::PromptName),
    ("prompt.version", RequestField::PromptVersion),
    ("input.*.type", RequestField::PartType),
    ("background", RequestField::Background),
    ("conversation", RequestField::Conversation),
    ("conversation.id", RequestField::Conversation),
    ("prompt_cache_key", RequestField::Session(SessionSource::PromptCacheKey)),
    // Raw requests for Claude on Vertex AI.
    ("metadata.user_id", RequestField::Session(SessionSource::UserId)),
    ("n_predict|id_slot|cache_prompt", RequestField::Rule(llama_cpp_key)),
    ("n_predict", RequestField::MaxTokens),
];

pub static REQUEST: RequestPaths = RequestPaths::new(REQUEST_ROWS);

fn anthropic_version(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if let Value::Text(_) = value {
        state.facts.api = Some(Api::AnthropicMessages);
    }
}

fn messages(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if value == Value::Array && state.facts.api != Some(Api::AnthropicMessages) {
        state.facts.api = Some(Api::OpenAiChat);
    }
}

fn prompt(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    note_api(Api::OpenAiCompletions, state, value);
    state.prompt(value);
}

fn input(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    let api = match state.shared_path {
        Some(Api::OpenAiChat) => Api::OpenAiEmbeddings,
        // LM Studio's path without its first segment.
        Some(Api::CohereV1Chat) => Api::LmStudioChat,
        _ => return state.prompt(value),
    };
    note_api(api, state, value);
    state.prompt(value);
}

/// Records the API that a key of the request identifies. Used only if several APIs share the path.
fn note_api(api: Api, state: &mut RequestState, value: Value<'_>) {
    if state.shared_path.is_some() && matches!(value, Value::Text(_) | Value::Array) {
        state.facts.api.get_or_insert(api);
    }
}

fn llama_cpp_key(state: &mut RequestState, _: Found<'_>) {
    if state.shared_path.is_some() {
        state.facts.api = Some(Api::LlamaCppCompletion);
    }
}
