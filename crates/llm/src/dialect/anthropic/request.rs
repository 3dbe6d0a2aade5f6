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
    "system",
    "prompt",
    "stream",
    "max_tokens",
    "max_tokens_to_sample",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "service_tier",
    "tools",
    "output_config",
    "effort",
    "thinking",
    "output_format",
    "format",
    "type",
];

/// Takes one value of a request.
pub fn take(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    match path {
        [Key("tools"), At(_)] => asked.facts.tools |= value == Value::Object,
        [Key("stop_sequences"), At(_)] if value == Value::TextEnd => {
            *asked.facts.stop_sequences.get_or_insert_default() += 1;
        }
        [Key("stream")] => asked.facts.stream = flag(value).or(asked.facts.stream),
        _ if is_prompt(path) => asked.prompt(value),
        _ if is_word(path) => {
            if let Some(said) = asked.word(value) {
                word(&mut asked.facts, path, &said);
            }
        }
        [Key(key)] => number(&mut asked.facts, key, value),
        _ => {}
    }
}

/// Whether a text of the prompt stands there. What a tool gave back is one.
pub fn is_prompt(path: &[Step]) -> bool {
    match path {
        [Key("messages"), At(_), Key("content"), rest @ ..] => {
            matches!(
                rest,
                [] | [At(_), Key("text" | "content")] | [At(_), Key("content"), At(_), Key("text")]
            )
        }
        _ => matches!(path, [Key("system" | "prompt")] | [Key("system"), At(_), Key("text")]),
    }
}

fn number(facts: &mut RequestFacts, key: &str, value: Value<'_>) {
    if !matches!(value, Value::Number(_)) {
        return;
    }
    match key {
        "max_tokens" => {
            facts.max_tokens = integer(value);
            // Among those who call their list `messages`, only this format must have a limit.
            facts.api.get_or_insert(Api::AnthropicMessages);
        }
        "max_tokens_to_sample" => {
            facts.max_tokens = integer(value);
            facts.api.get_or_insert(Api::AnthropicComplete);
        }
        "temperature" => facts.temperature = float(value),
        "top_p" => facts.top_p = float(value),
        "top_k" => facts.top_k = integer(value),
        _ => {}
    }
}

fn word(facts: &mut RequestFacts, path: &[Step], word: &str) {
    match path {
        [Key("model")] => facts.model = Name::new(word).or(facts.model.take()),
        [Key("service_tier")] => facts.service_tier = Name::new(word),
        [Key("output_config"), Key("effort")] => facts.reasoning_level = Name::new(word),
        [Key("thinking"), Key("type")] => facts.reasoning = word != "disabled",
        _ if word == "json_schema" => facts.output_type = Some("json"),
        _ => {}
    }
}

/// Whether a string stands there that is read whole.
fn is_word(path: &[Step]) -> bool {
    matches!(
        path,
        [Key("model" | "service_tier")]
            | [Key("output_config"), Key("effort")]
            | [Key("thinking"), Key("type")]
            | [Key("output_format"), Key("type")]
            | [Key("output_config"), Key("format"), Key("type")]
    )
}
