//! What a request asks for. Several engines are asked at the same path, `/generate`; the key that the prompt stands
//! under tells them apart: TGI's is `inputs`, SGLang's `text` or `input_ids`, vLLM's `prompt`. At a root, where anybody
//! may be asked anything, only `inputs` says something.

use crate::dialect::Api;
use crate::dialect::asked::{Asked, flag};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Step, Value};
use tokengauge_types::label::Name;

pub const KEYS: &[&str] = &[
    // The prompt.
    "inputs",
    "text",
    "input_ids",
    "prompt",
    "prompt_string",
    "input_prefix",
    "input_suffix",
    "input_extra",
    "text_input",
    // Where settings stand.
    "parameters",
    "sampling_params",
    // The settings.
    "model",
    "stream",
    "max_tokens",
    "max_new_tokens",
    "n_predict",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "random_seed",
    "sampling_seed",
    "n",
    "n_cmpl",
    "stop",
    "stop_words",
    "grammar",
    "type",
    "json_schema",
    "return_full_text",
    "exclude_input_in_output",
];

/// Takes one value of a request.
pub fn take(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    prompt(asked, path, value);
    match path {
        [Key("stream")] | [Key("parameters"), Key("stream")] => {
            asked.facts.stream = flag(value).or(asked.facts.stream);
        }
        [Key("model")] => {
            if let Some(model) = asked.word(value) {
                asked.facts.model = Name::new(&model).or(asked.facts.model.take());
            }
        }
        [Key("parameters"), rest @ ..] => setting(asked, rest, value),
        [Key("sampling_params"), At(_), rest @ ..] | [Key("sampling_params"), rest @ ..] => {
            setting(asked, rest, value);
        }
        _ => setting(asked, path, value),
    }
}

/// A text of the prompt, and whose it is by where it stands.
fn prompt(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    let given = matches!(value, Value::Text(_) | Value::Array | Value::Object);
    let tgi = asked.by_path == Some(Api::TgiGenerate);
    let api = match path {
        [Key("inputs")] | [Key("inputs"), At(_)] => Api::TgiGenerate,
        [Key("text" | "input_ids" | "sampling_params" | "prompt"), ..] if tgi => return,
        [Key("text")] | [Key("text"), At(_)] => Api::SglangGenerate,
        [Key("input_ids" | "sampling_params")] if given => {
            asked.facts.api = Some(Api::SglangGenerate);
            return;
        }
        [Key("prompt")]
        | [Key("prompt"), At(_)]
        | [Key("prompt"), Key("prompt_string")]
        | [Key("prompt"), At(_), Key("prompt_string")]
        | [Key("input_prefix" | "input_suffix")]
        | [Key("input_extra"), At(_), Key("text")] => {
            if asked.by_path == Some(Api::LlamaCppCompletion) {
                Api::LlamaCppCompletion
            } else {
                Api::VllmGenerate
            }
        }
        [Key("text_input")] | [Key("text_input"), At(_)] => Api::TritonGenerate,
        _ => return,
    };
    if given {
        asked.facts.api.get_or_insert(api);
    }
    // Where there are several prompts, none is told by how long they are together.
    if let [.., At(1..)] = path {
        asked.facts.echo = Some(false);
    }
    asked.prompt(value);
}

fn setting(asked: &mut Asked, path: &[Step], value: Value<'_>) {
    match path {
        // TGI: `{"type": "json", "value": {…}}`.
        [Key("grammar"), Key("type")] if asked.word(value).as_deref() == Some("json") => {
            asked.facts.output_type = Some("json");
        }
        [Key("json_schema")] if matches!(value, Value::Object | Value::Text(_)) => {
            asked.facts.output_type = Some("json");
        }
        [Key("return_full_text")] => echo(asked, flag(value)),
        [Key("exclude_input_in_output")] => echo(asked, flag(value).map(|without| !without)),
        [Key(name)] | [Key(name), At(_)] => asked.setting(name, value),
        _ => {}
    }
}

fn echo(asked: &mut Asked, echo: Option<bool>) {
    asked.facts.echo = asked.facts.echo.or(echo);
}
