//! What a request asks for: the prompt under `input`, settings under `parameters`.

use crate::dialect::asked::{Asked, flag};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Step, Value};
use tokengauge_types::label::Name;

pub const KEYS: &[&str] = &[
    "model",
    "input",
    "messages",
    "content",
    "text",
    "prompt",
    "texts",
    "parameters",
    "incremental_output",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "presence_penalty",
    "seed",
    "n",
    "stop",
    "dimension",
    "response_format",
    "type",
    "tools",
];

/// Takes one value of a request.
pub fn take(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    match path {
        [Key("model")] => {
            if let Some(model) = asked.word(value) {
                asked.facts.model = Name::new(&model);
            }
        }
        [Key("input"), rest @ ..] => prompt(asked, rest, value),
        [Key("parameters"), rest @ ..] => parameter(asked, rest, value),
        _ => {}
    }
}

fn prompt(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    match path {
        [Key("prompt")]
        | [Key("texts"), At(_)]
        | [Key("messages"), At(_), Key("content")]
        | [Key("messages"), At(_), Key("content"), At(_), Key("text")] => asked.prompt(value),
        _ => {}
    }
}

fn parameter(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    match path {
        // It means something only in a stream.
        [Key("incremental_output")] if flag(value) == Some(true) => {
            asked.facts.stream = Some(true);
        }
        [Key("tools"), At(_)] => asked.facts.tools |= value == Value::Object,
        [Key("response_format"), Key("type")] => {
            if let Some(word) = asked.word(value) {
                asked.facts.output_type = match &*word {
                    "json_object" | "json_schema" => Some("json"),
                    "text" => Some("text"),
                    _ => None,
                };
            }
        }
        [Key("dimension")] => asked.setting("dimensions", value),
        [Key(name)] | [Key(name), At(_)] => asked.setting(name, value),
        _ => {}
    }
}
