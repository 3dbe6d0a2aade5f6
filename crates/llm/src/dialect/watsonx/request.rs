//! What a request asks for: generation has its settings under `parameters`, chat has OpenAI's.

use crate::dialect::asked::Asked;
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Step, Value};
use crate::dialect::openai;
use tokengauge_types::label::Name;

pub const KEYS: &[&str] = &[
    "model_id",
    "input",
    "parameters",
    "max_new_tokens",
    "random_seed",
    "stop_sequences",
    // Chat.
    "messages",
    "content",
    "text",
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
    "response_format",
    "type",
    "tools",
];

/// Takes one value of a request.
pub fn take(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    match path {
        [Key("model_id")] => {
            if let Some(model) = asked.word(value) {
                asked.facts.model = Name::new(&model).or(asked.facts.model.take());
            }
        }
        [Key("parameters"), Key(name)] | [Key("parameters"), Key(name), At(_)] => {
            asked.setting(name, value);
        }
        _ => {
            (openai::REQUEST.take)(asked, path, value);
            // The path says whose it is.
            asked.facts.api = None;
        }
    }
}
