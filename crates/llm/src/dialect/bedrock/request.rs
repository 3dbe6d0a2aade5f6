//! What a request asks for, in Converse's format or in that of any model. They name the same things differently, and no
//! two of them use one name for two things, so they are read as one.

use crate::dialect::anthropic::is_prompt;
use crate::dialect::asked::{Asked, flag, float, integer};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Step, Value};
use crate::dialect::{Api, RequestFacts};
use tokengauge_types::label::Name;

pub const KEYS: &[&str] = &[
    // Prompts.
    "model",
    "messages",
    "content",
    "text",
    "toolResult",
    "guardContent",
    "system",
    "prompt",
    "inputText",
    "inputs",
    "text_inputs",
    "texts",
    "message",
    "chat_history",
    "preamble",
    "query",
    "documents",
    // Where parameters stand.
    "inferenceConfig",
    "textGenerationConfig",
    "additionalModelRequestFields",
    "parameters",
    // How many tokens.
    "max_tokens",
    "max_completion_tokens",
    "max_tokens_to_sample",
    "max_new_tokens",
    "max_gen_len",
    "maxTokens",
    "maxTokenCount",
    // How they are drawn.
    "temperature",
    "top_p",
    "topP",
    "p",
    "top_k",
    "topK",
    "k",
    "seed",
    "random_seed",
    "frequency_penalty",
    "presence_penalty",
    "frequencyPenalty",
    "presencePenalty",
    "scale",
    "n",
    "num_generations",
    "num_return_sequences",
    "numResults",
    "stop",
    "stop_sequences",
    "stopSequences",
    // The rest.
    "stream",
    "tools",
    "toolConfig",
    "output_config",
    "effort",
    "reasoning_effort",
    "service_tier",
    "serviceTier",
    "type",
    "response_format",
    // Of vectors and images.
    "dimensions",
    "output_dimension",
    "embedding_types",
    "embeddingTypes",
    "input_type",
    "normalize",
    "embeddingConfig",
    "singleEmbeddingParams",
    "textToImageParams",
    "imageGenerationConfig",
    "text_prompts",
    "aspect_ratio",
];

/// Takes one value of a request to a model of Bedrock in the model's own format.
pub fn take_invoke(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    let api = match path {
        [] if value == Value::Object => Some(Api::BedrockInvoke),
        [Key("prompt" | "inputText")] => Some(Api::BedrockInvokeText),
        [
            Key(
                "texts"
                | "embedding_types"
                | "embeddingTypes"
                | "input_type"
                | "normalize"
                | "dimensions"
                | "embeddingConfig"
                | "singleEmbeddingParams",
            ),
        ] => Some(Api::BedrockEmbeddings),
        [Key("query")] => Some(Api::BedrockRerank),
        [Key("textToImageParams" | "imageGenerationConfig" | "text_prompts" | "aspect_ratio")] => {
            Some(Api::BedrockImages)
        }
        _ => None,
    };
    if let Some(api) = api {
        // What an API alone has tells more than a prompt, which most have.
        let known = asked.facts.api.filter(|_| api == Api::BedrockInvokeText);
        let particular = known.filter(|known| *known != Api::BedrockInvoke);
        asked.facts.api = particular.or(Some(api));
    }
    take(asked, path, value);
}

/// Takes one value of a request to SageMaker, whose endpoints need not serve language models at all.
pub fn take_sagemaker(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    match path {
        [Key("messages")] if value == Value::Array => {
            asked.facts.api = Some(Api::SageMakerChat);
        }
        [Key("inputs" | "prompt" | "text_inputs")]
        | [Key("inputs" | "prompt" | "text_inputs"), At(_)]
            if matches!(value, Value::Text(_)) =>
        {
            asked.facts.api.get_or_insert(Api::SageMakerInvocations);
        }
        _ => {}
    }
    take(asked, path, value);
}

/// Takes one value of any request.
pub fn take(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    match path {
        [Key("tools"), At(_)] | [Key("toolConfig"), Key("tools"), At(_)] => {
            asked.facts.tools |= value == Value::Object;
        }
        [.., Key("stop" | "stop_sequences" | "stopSequences")]
        | [.., Key("stop" | "stop_sequences" | "stopSequences"), At(_)]
            if value == Value::TextEnd =>
        {
            *asked.facts.stop_sequences.get_or_insert_default() += 1;
        }
        [Key("stream")] => asked.facts.stream = flag(value).or(asked.facts.stream),
        _ if is_text(path) => asked.prompt(value),
        _ if is_word(path) => {
            if let Some(said) = asked.word(value) {
                word(&mut asked.facts, path, &said);
            }
        }
        [Key(key)] => number(asked, key, value),
        [Key("inferenceConfig" | "textGenerationConfig" | "parameters"), Key(key)]
        | [Key("additionalModelRequestFields"), Key(key)]
        | [Key("additionalModelRequestFields"), Key("inferenceConfig"), Key(key)]
        | [Key(key @ ("frequencyPenalty" | "presencePenalty")), Key("scale")] => {
            number(asked, key, value);
        }
        _ => {}
    }
}

/// Whether a text of the prompt stands there.
fn is_text(path: &[Step]) -> bool {
    match path {
        [
            Key("messages"),
            At(_),
            Key("content"),
            At(_),
            block @ Key("toolResult" | "guardContent"),
            rest @ ..,
        ] => {
            let guarded = *block == Key("guardContent");
            matches!(
                (guarded, rest),
                (true, [Key("text"), Key("text")]) | (false, [Key("content"), At(_), Key("text")])
            )
        }
        [Key("inputText" | "message" | "preamble" | "query")]
        | [Key("inputs" | "text_inputs")]
        | [Key("inputs" | "text_inputs" | "texts" | "documents"), At(_)]
        | [Key("documents"), At(_), Key("text")]
        | [Key("chat_history"), At(_), Key("message")] => true,
        _ => is_prompt(path),
    }
}

fn number(asked: &mut Asked, key: &str, value: Value<'_>) {
    if !matches!(value, Value::Number(_)) {
        return;
    }
    let facts = &mut asked.facts;
    match key {
        "max_completion_tokens" => {
            facts.max_tokens = integer(value);
            asked.newer_limit = true;
        }
        "max_tokens"
        | "max_tokens_to_sample"
        | "max_new_tokens"
        | "max_gen_len"
        | "maxTokens"
        | "maxTokenCount"
            if !asked.newer_limit =>
        {
            facts.max_tokens = integer(value);
        }
        "temperature" => facts.temperature = float(value),
        "top_p" | "topP" | "p" => facts.top_p = float(value),
        "top_k" | "topK" | "k" => facts.top_k = integer(value),
        "seed" | "random_seed" => facts.seed = integer(value),
        "frequency_penalty" | "frequencyPenalty" => facts.frequency_penalty = float(value),
        "presence_penalty" | "presencePenalty" => facts.presence_penalty = float(value),
        "n" | "num_generations" | "num_return_sequences" | "numResults" => {
            facts.choices = integer(value).filter(|choices| *choices != 1);
        }
        "dimensions" | "output_dimension" => facts.dimensions = integer(value),
        _ => {}
    }
}

fn word(facts: &mut RequestFacts, path: &[Step], word: &str) {
    match path {
        [Key("model")] => facts.model = Name::new(word).or(facts.model.take()),
        [Key("service_tier")] | [Key("serviceTier"), _] => facts.service_tier = Name::new(word),
        [Key("embedding_types" | "embeddingTypes"), At(0)] => {
            facts.encoding_format = Name::new(word);
        }
        [Key("response_format"), _] => {
            facts.output_type = match word {
                "text" => Some("text"),
                "json_object" | "json_schema" => Some("json"),
                _ => None,
            };
        }
        [.., Key("effort" | "reasoning_effort")] => facts.reasoning_level = Name::new(word),
        _ => {}
    }
}

/// Whether a string stands there that is read whole.
fn is_word(path: &[Step]) -> bool {
    matches!(
        path,
        [Key("model" | "service_tier" | "reasoning_effort")]
            | [Key("serviceTier" | "response_format"), Key("type")]
            | [Key("output_config"), Key("effort")]
            | [Key("additionalModelRequestFields"), Key("output_config"), Key("effort")]
            | [Key("additionalModelRequestFields"), Key("reasoning_effort")]
            | [Key("embedding_types" | "embeddingTypes"), At(0)]
    )
}
