//! Requests of inference engines in their own formats.
//!
//! Several engines share the path `/generate`. The key of the prompt shows which one it is: `inputs` for TGI, `text` or
//! `input_ids` for SGLang, `prompt` for vLLM. At the root of a host, where any request may arrive, only `inputs` counts.

use super::Api;
use super::json::{Position, Value};
use super::request::{RequestField, RequestPaths, RequestState, SETTINGS};

/// Settings are at the root, in `parameters` or in `sampling_params`.
pub static PATHS: RequestPaths = RequestPaths::new(&[
    ("inputs", RequestField::Rule(tgi_prompt)),
    ("inputs.*", RequestField::Rule(tgi_prompt)),
    ("text", RequestField::Rule(sglang_prompt)),
    ("text.*", RequestField::Rule(sglang_prompt)),
    ("input_ids|sampling_params", RequestField::Rule(sglang_key)),
    ("prompt|input_prefix|input_suffix", RequestField::Rule(vllm_or_llama_cpp_prompt)),
    ("prompt.*", RequestField::Rule(vllm_or_llama_cpp_prompt)),
    ("prompt.prompt_string", RequestField::Rule(vllm_or_llama_cpp_prompt)),
    ("prompt.*.prompt_string", RequestField::Rule(vllm_or_llama_cpp_prompt)),
    ("input_extra.*.text", RequestField::Rule(vllm_or_llama_cpp_prompt)),
    ("text_input", RequestField::Rule(triton_prompt)),
    ("text_input.*", RequestField::Rule(triton_prompt)),
    ("model", RequestField::Model),
    ("stream", RequestField::Stream),
    // TGI: `{"type": "json", "value": {…}}`.
    ("grammar.type", RequestField::JsonOutput),
    ("json_schema", RequestField::OutputSchema),
    ("return_full_text", RequestField::Echo),
    ("exclude_input_in_output", RequestField::NoEcho),
])
.extends(SETTINGS)
.unwraps(&["parameters", "sampling_params"]);

fn tgi_prompt(state: &mut RequestState, position: Position<'_>, value: Value<'_>) {
    prompt(Api::TgiGenerate, state, position, value);
}

fn triton_prompt(state: &mut RequestState, position: Position<'_>, value: Value<'_>) {
    prompt(Api::TritonGenerate, state, position, value);
}

fn sglang_prompt(state: &mut RequestState, position: Position<'_>, value: Value<'_>) {
    if state.shared_path != Some(Api::TgiGenerate) {
        prompt(Api::SglangGenerate, state, position, value);
    }
}

fn sglang_key(state: &mut RequestState, _: Position<'_>, value: Value<'_>) {
    if state.shared_path != Some(Api::TgiGenerate) && is_given(value) {
        state.facts.api = Some(Api::SglangGenerate);
    }
}

fn vllm_or_llama_cpp_prompt(state: &mut RequestState, position: Position<'_>, value: Value<'_>) {
    let api = match state.shared_path {
        Some(Api::TgiGenerate) => return,
        Some(Api::LlamaCppCompletion) => Api::LlamaCppCompletion,
        _ => Api::VllmGenerate,
    };
    prompt(api, state, position, value);
}

fn prompt(api: Api, state: &mut RequestState, position: Position<'_>, value: Value<'_>) {
    if is_given(value) {
        state.facts.api.get_or_insert(api);
    }
    // The length of each of several prompts is unknown.
    if position.last() > 0 {
        state.facts.echo = Some(false);
    }
    state.prompt(value);
}

const fn is_given(value: Value<'_>) -> bool {
    matches!(value, Value::Text(_) | Value::Array | Value::Object)
}

#[cfg(test)]
mod tests;
