//! What a request asks for. Google takes every field in either spelling of protocol buffers, `topK` and `top_k`.

use crate::dialect::asked::{Asked, flag, float};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Step, Value};
use crate::dialect::{Api, RequestFacts, lenient};
use tokengauge_types::label::Name;

pub const KEYS: &[&str] = &[
    "model",
    "agent",
    "stream",
    "contents",
    "content",
    "parts",
    "text",
    "input",
    "systemInstruction",
    "system_instruction",
    "request",
    "generateContentRequest",
    "generate_content_request",
    "requests",
    "instances",
    "prompt",
    "parameters",
    "sampleCount",
    "tools",
    "generationConfig",
    "generation_config",
    "temperature",
    "topP",
    "top_p",
    "topK",
    "top_k",
    "candidateCount",
    "candidate_count",
    "maxOutputTokens",
    "max_output_tokens",
    "stopSequences",
    "stop_sequences",
    "seed",
    "presencePenalty",
    "presence_penalty",
    "frequencyPenalty",
    "frequency_penalty",
    "responseMimeType",
    "response_mime_type",
    "responseModalities",
    "response_modalities",
    "thinkingConfig",
    "thinking_config",
    "thinkingLevel",
    "thinking_level",
    "thinkingBudget",
    "thinking_budget",
    "serviceTier",
    "service_tier",
    "outputDimensionality",
    "output_dimensionality",
    "embedContentConfig",
    "embed_content_config",
];

/// Takes one value of a request.
pub fn take(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    // Some requests hold others: tokens are counted of one, embeddings are asked for in batches, Code Assist wraps all.
    let path = match path {
        [Key("request" | "generateContentRequest" | "generate_content_request"), rest @ ..]
        | [Key("requests"), At(_), rest @ ..] => rest,
        _ => path,
    };
    if is_prompt(path) {
        asked.prompt(value);
    }
    match path {
        [Key("input")] => asked.facts.api = Some(Api::GeminiInteractions),
        // What a model of one's own is asked by this key, nobody knows but who made it; this one is an embedding's.
        [Key("instances"), At(_), Key("content")] => asked.facts.api = Some(Api::VertexPredict),
        [Key("tools"), At(_)] => asked.facts.tools |= value == Value::Object,
        [Key("stream")] => asked.facts.stream = asked.facts.stream.or(flag(value)),
        [Key("model" | "agent")] => {
            // The path says it, too, and is what holds.
            if let Some(word) = asked.word(value) {
                let model = asked.facts.model.take();
                asked.facts.model = model.or_else(|| Name::new(&word));
            }
        }
        [Key("serviceTier" | "service_tier")] => {
            if let Some(word) = asked.word(value) {
                asked.facts.service_tier = Name::new(&word);
            }
        }
        [Key("generationConfig" | "generation_config"), rest @ ..] => config(asked, rest, value),
        // Interactions have these outside.
        [Key("response_mime_type" | "response_modalities"), ..] => config(asked, path, value),
        [Key("parameters"), Key("sampleCount")] => {
            asked.facts.choices = whole(value).filter(|choices| *choices != 1);
        }
        [Key("outputDimensionality" | "output_dimensionality")]
        | [
            Key("parameters" | "embedContentConfig" | "embed_content_config"),
            Key("outputDimensionality" | "output_dimensionality"),
        ] => asked.facts.dimensions = whole(value).or(asked.facts.dimensions),
        _ => {}
    }
}

/// Whether a text of the prompt stands there.
fn is_prompt(path: &[Step]) -> bool {
    matches!(
        path,
        [
            Key("contents"),
            At(_),
            Key("parts"),
            At(_),
            Key("text")
        ] | [
            Key("content" | "systemInstruction" | "system_instruction"),
            Key("parts"),
            At(_),
            Key("text")
        ] | [
            Key("instances"),
            At(_),
            Key("content" | "prompt" | "text")
        ]
        // Interactions.
        | [Key("input" | "system_instruction")]
            | [Key("input"), Key("text")]
            | [Key("input"), At(_), Key("text" | "content")]
            | [Key("input"), At(_), Key("content"), At(_), Key("text")]
    )
}

/// Takes a value of the generation's settings; `path` is the way to it from there.
fn config(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    match path {
        [Key("stopSequences" | "stop_sequences"), At(_)] if value == Value::TextEnd => {
            *asked.facts.stop_sequences.get_or_insert_default() += 1;
        }
        [
            Key("responseMimeType" | "response_mime_type")
            | Key("responseModalities" | "response_modalities"),
            ..,
        ] => {
            if let Some(word) = asked.word(value) {
                output(&mut asked.facts, &word);
            }
        }
        [Key("thinkingLevel" | "thinking_level")]
        | [Key("thinkingConfig" | "thinking_config"), Key("thinkingLevel" | "thinking_level")] => {
            if let Some(word) = asked.word(value) {
                asked.facts.reasoning_level = Name::new(&word);
            }
        }
        [Key("thinkingConfig" | "thinking_config"), Key("thinkingBudget" | "thinking_budget")] => {
            if let (Value::Number(budget), None) = (value, &asked.facts.reasoning_level) {
                asked.facts.reasoning_level = Name::new(budget);
            }
        }
        [Key(key)] => number(&mut asked.facts, key, value),
        _ => {}
    }
}

/// Takes what the answer is to be: a media type, or one of several modalities. What is not text says more than what is.
fn output(facts: &mut RequestFacts, word: &str) {
    let told = match word.to_ascii_lowercase().as_str() {
        "application/json" => "json",
        "image" => "image",
        "audio" => "speech",
        "text" | "text/plain" | "text/x.enum" => facts.output_type.unwrap_or("text"),
        _ => return,
    };
    facts.output_type = Some(told);
}

fn number(facts: &mut RequestFacts, key: &str, value: Value<'_>) {
    if !matches!(value, Value::Number(_)) {
        return;
    }
    match key {
        "temperature" => facts.temperature = float(value),
        "topP" | "top_p" => facts.top_p = float(value),
        "topK" | "top_k" => facts.top_k = whole(value),
        "candidateCount" | "candidate_count" => {
            facts.choices = whole(value).filter(|choices| *choices != 1);
        }
        "maxOutputTokens" | "max_output_tokens" => facts.max_tokens = whole(value),
        "seed" => facts.seed = crate::dialect::asked::integer(value),
        "presencePenalty" | "presence_penalty" => facts.presence_penalty = float(value),
        "frequencyPenalty" | "frequency_penalty" => facts.frequency_penalty = float(value),
        _ => {}
    }
}

/// A count; Google's `topK` is a float by its schema, and 40.0 is 40.
fn whole(value: Value<'_>) -> Option<i64> {
    let number = lenient::whole(float(value)?)?;
    i64::try_from(number).ok()
}
