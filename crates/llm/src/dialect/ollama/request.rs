//! What a request asks for. Most settings stand under `options`.

use crate::dialect::asked::{Asked, flag};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Step, Value};
use tokengauge_types::label::Name;

pub const KEYS: &[&str] = &[
    "model",
    "messages",
    "content",
    "prompt",
    "suffix",
    "system",
    "input",
    "stream",
    "think",
    "format",
    "tools",
    "dimensions",
    "options",
    "num_predict",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "stop",
];

/// Takes one value of a request.
pub fn take(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    match path {
        [Key("messages"), At(_), Key("content")]
        | [Key("prompt" | "suffix" | "system" | "input")]
        | [Key("input"), At(_)] => asked.prompt(value),
        [Key("tools"), At(_)] => asked.facts.tools |= value == Value::Object,
        [Key("stream")] => asked.facts.stream = flag(value).or(asked.facts.stream),
        [Key("model")] => {
            if let Some(model) = asked.word(value) {
                asked.facts.model = Name::new(&model).or(asked.facts.model.take());
            }
        }
        // Most models know only yes and no, which are no levels.
        [Key("think")] => {
            asked.facts.reasoning |= flag(value) == Some(true);
            if let Some(level) = asked.word(value) {
                asked.facts.reasoning_level = Name::new(&level);
            }
        }
        // `json`, or a schema.
        [Key("format")] => {
            let word = asked.word(value);
            if value == Value::Object || word.as_deref() == Some("json") {
                asked.facts.output_type = Some("json");
            }
        }
        [Key("dimensions")] => asked.setting("dimensions", value),
        [Key("options"), Key(name)] | [Key("options"), Key(name), At(_)] => {
            asked.setting(name, value);
        }
        _ => {}
    }
}
