//! What a request asks for.

use crate::dialect::asked::{Asked, flag, float, integer};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Step, Value};
use crate::dialect::{Api, RequestFacts};
use tokengauge_types::label::Name;

pub const KEYS: &[&str] = &[
    "model",
    "messages",
    "content",
    "text",
    "prompt",
    "input",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "n",
    "stop",
    "reasoning_effort",
    "reasoning",
    "effort",
    "service_tier",
    "response_format",
    "type",
    "modalities",
    "dimensions",
    "encoding_format",
    "tools",
    "functions",
    // Of Responses.
    "instructions",
    "output",
    "arguments",
    "format",
    "max_output_tokens",
    "previous_response_id",
    "conversation",
    "id",
    // llama.cpp's own.
    "n_predict",
    "id_slot",
    "cache_prompt",
];

/// Takes one value of a request.
pub fn take(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    shape(asked, path, value);
    match path {
        [Key("messages"), At(_), Key("content")]
        | [Key("messages"), At(_), Key("content"), At(_), Key("text")]
        | [Key("prompt" | "input" | "instructions")]
        | [Key("prompt" | "input"), At(_)] => asked.prompt(value),
        // What was said before, what tools were called with, and what they answered; of moderations, a part.
        [Key("input"), At(_), Key("content" | "output" | "arguments" | "input" | "text")]
        | [Key("input"), At(_), Key("content" | "output"), At(_), Key("text")] => {
            asked.prompt(value)
        }
        [Key("tools" | "functions"), At(_)] => asked.facts.tools |= value == Value::Object,
        [Key("stop")] | [Key("stop"), At(_)] if value == Value::TextEnd => {
            *asked.facts.stop_sequences.get_or_insert_default() += 1;
        }
        [Key("stream")] => asked.facts.stream = flag(value).or(asked.facts.stream),
        _ if is_word(path) => {
            if let Some(said) = asked.word(value) {
                word(&mut asked.facts, path, &said);
            }
        }
        [Key(key)] => number(asked, key, value),
        _ => {}
    }
}

/// Which API it is, where the path does not say.
fn shape(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    let given = matches!(value, Value::Text(_) | Value::Array);
    let shared = asked.by_path.is_some();
    match path {
        [Key("messages")] if value == Value::Array => asked.facts.api = Some(Api::OpenAiChat),
        [Key("prompt")] if given && shared => {
            asked.facts.api.get_or_insert(Api::OpenAiCompletions);
        }
        [Key("input")] if given && shared => {
            asked.facts.api.get_or_insert(Api::OpenAiEmbeddings);
        }
        [Key(name @ ("n_predict" | "id_slot" | "cache_prompt"))] if shared => {
            asked.facts.api = Some(Api::LlamaCppCompletion);
            asked.setting(name, value);
        }
        _ => {}
    }
}

/// A number of the wrong type (a fraction where a count belongs) is no number.
fn number(asked: &mut Asked, key: &str, value: Value<'_>) {
    if !matches!(value, Value::Number(_)) {
        return;
    }
    let facts = &mut asked.facts;
    match key {
        "max_completion_tokens" | "max_output_tokens" => {
            facts.max_tokens = integer(value);
            asked.newer_limit = true;
        }
        "max_tokens" if !asked.newer_limit => facts.max_tokens = integer(value),
        "temperature" => facts.temperature = float(value),
        "top_p" => facts.top_p = float(value),
        "top_k" => facts.top_k = integer(value),
        "frequency_penalty" => facts.frequency_penalty = float(value),
        "presence_penalty" => facts.presence_penalty = float(value),
        "seed" => facts.seed = integer(value),
        "n" => facts.choices = integer(value).filter(|choices| *choices != 1),
        "dimensions" => facts.dimensions = integer(value),
        _ => {}
    }
}

fn word(facts: &mut RequestFacts, path: &[Step], word: &str) {
    match path {
        [Key("model")] => facts.model = Name::new(word).or(facts.model.take()),
        [Key("reasoning_effort")] | [Key("reasoning"), Key("effort")] => {
            facts.reasoning_level = Name::new(word);
        }
        [Key("previous_response_id")] => facts.previous_response = Name::new(word),
        [Key("conversation")] | [Key("conversation"), Key("id")] => {
            facts.conversation = Name::new(word);
        }
        [Key("service_tier")] => facts.service_tier = Name::new(word),
        [Key("encoding_format")] => facts.encoding_format = Name::new(word),
        [Key("modalities"), At(_)] if word == "audio" => facts.output_type = Some("speech"),
        [Key("response_format"), Key("type")] | [Key("text"), Key("format"), Key("type")]
            if facts.output_type != Some("speech") =>
        {
            facts.output_type = match word {
                "text" => Some("text"),
                "json_object" | "json_schema" => Some("json"),
                _ => None,
            };
        }
        _ => {}
    }
}

/// Whether a string stands there that is read whole.
fn is_word(path: &[Step]) -> bool {
    matches!(
        path,
        [Key("model"
            | "reasoning_effort"
            | "service_tier"
            | "previous_response_id"
            | "conversation"
            | "encoding_format")]
            | [Key("reasoning"), Key("effort")]
            | [Key("conversation"), Key("id")]
            | [Key("modalities"), At(_)]
            | [Key("response_format"), Key("type")]
            | [Key("text"), Key("format"), Key("type")]
    )
}
