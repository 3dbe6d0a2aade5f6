//! Reads requests in the Converse format or in a model's own format. The same paths apply to all formats, because no
//! key has two meanings.

use crate::dialect::Api;
use crate::dialect::json::{Found, Value};
use crate::dialect::request::{RequestField, RequestPaths, RequestRow, RequestState};
use tokengauge_types::event::SessionSource;

static CONVERSE: RequestPaths = RequestPaths::new(ROWS).unwraps(SETTINGS_OBJECTS);

/// Paths of the values in an Invoke request. The model can generate text or images, embed, or rank. Keys that only one
/// API has determine the API.
static INVOKE: RequestPaths = RequestPaths::new(&[
    ("", RequestField::Rule(invoke_object)),
    ("prompt|inputText", RequestField::Rule(invoke_prompt)),
    ("texts|embedding_types|embeddingTypes", RequestField::Api(Api::BedrockEmbeddings)),
    ("input_type|normalize|dimensions", RequestField::Api(Api::BedrockEmbeddings)),
    ("embeddingConfig|singleEmbeddingParams", RequestField::Api(Api::BedrockEmbeddings)),
    ("query", RequestField::Api(Api::BedrockRerank)),
    ("textToImageParams|imageGenerationConfig", RequestField::Api(Api::BedrockImages)),
    ("text_prompts|aspect_ratio", RequestField::Api(Api::BedrockImages)),
])
.extends(ROWS)
.unwraps(SETTINGS_OBJECTS);

/// Paths of the values in a SageMaker request. The endpoint may serve a model that is not a language model.
static SAGEMAKER: RequestPaths = RequestPaths::new(&[
    ("messages", RequestField::ApiOfList(Api::SageMakerChat)),
    ("inputs|prompt|text_inputs", RequestField::Rule(sagemaker_prompt)),
    ("inputs|prompt|text_inputs.*", RequestField::Rule(sagemaker_prompt)),
])
.extends(ROWS)
.unwraps(SETTINGS_OBJECTS);

const SETTINGS_OBJECTS: &[&str] =
    &["inferenceConfig", "textGenerationConfig", "additionalModelRequestFields", "parameters"];

const ROWS: &[RequestRow] = &[
    ("model", RequestField::Model),
    ("stream", RequestField::Stream),
    // Prompts.
    ("messages.*.content", RequestField::Prompt),
    ("messages.*.content.*.text|content", RequestField::Prompt),
    ("messages.*.content.*.content.*.text", RequestField::Prompt),
    ("messages.*.content.*.toolResult.content.*.text", RequestField::Prompt),
    ("messages.*.content.*.guardContent.text.text", RequestField::Prompt),
    ("system.*.text", RequestField::Prompt),
    ("system|prompt|inputText|message|preamble|query", RequestField::Prompt),
    ("inputs|text_inputs", RequestField::Prompt),
    ("inputs|text_inputs|texts|documents.*", RequestField::Prompt),
    ("documents.*.text", RequestField::Prompt),
    ("chat_history.*.message", RequestField::Prompt),
    // Limits.
    ("max_tokens|max_tokens_to_sample|max_new_tokens|max_gen_len", RequestField::MaxTokens),
    ("maxTokens|maxTokenCount", RequestField::MaxTokens),
    ("max_completion_tokens", RequestField::MaxCompletionTokens),
    // Sampling.
    ("temperature", RequestField::Temperature),
    ("top_p|topP|p", RequestField::TopP),
    ("top_k|topK|k", RequestField::TopK),
    ("seed|random_seed", RequestField::Seed),
    ("frequency_penalty|frequencyPenalty", RequestField::FrequencyPenalty),
    ("frequencyPenalty.scale", RequestField::FrequencyPenalty),
    ("presence_penalty|presencePenalty", RequestField::PresencePenalty),
    ("presencePenalty.scale", RequestField::PresencePenalty),
    ("n|num_generations|num_return_sequences|numResults", RequestField::Choices),
    ("stop|stop_sequences|stopSequences", RequestField::Stop),
    ("stop|stop_sequences|stopSequences.*", RequestField::Stop),
    // Other.
    ("tools.*", RequestField::Tools),
    ("toolConfig.tools.*", RequestField::Tools),
    ("reasoning_effort", RequestField::ReasoningLevel),
    ("output_config.effort", RequestField::ReasoningLevel),
    ("service_tier", RequestField::ServiceTier),
    ("serviceTier.type", RequestField::ServiceTier),
    ("metadata.user_id", RequestField::Session(SessionSource::UserId)),
    ("response_format.type", RequestField::OutputFormat),
    ("dimensions|output_dimension", RequestField::Dimensions),
    ("embedding_types|embeddingTypes.*", RequestField::EncodingFormat),
];

pub const fn request_paths(api: Api) -> &'static RequestPaths {
    if matches!(api, Api::BedrockConverse | Api::BedrockCountTokens) {
        &CONVERSE
    } else if matches!(api, Api::SageMakerInvocations | Api::SageMakerChat) {
        &SAGEMAKER
    } else {
        &INVOKE
    }
}

fn invoke_object(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if value == Value::Object {
        state.facts.api.get_or_insert(Api::BedrockInvoke);
    }
}

/// Identifies a request with a prompt as text generation. Keys that only one API has take precedence, because most APIs
/// have a prompt.
fn invoke_prompt(state: &mut RequestState, _: Found<'_>) {
    if matches!(state.facts.api, None | Some(Api::BedrockInvoke)) {
        state.facts.api = Some(Api::BedrockInvokeText);
    }
}

fn sagemaker_prompt(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if let Value::Text(_) = value {
        state.facts.api.get_or_insert(Api::SageMakerInvocations);
    }
}
