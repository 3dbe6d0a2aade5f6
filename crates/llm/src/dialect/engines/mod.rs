//! Describes the native formats of inference engines: Ollama, TGI, llama.cpp, SGLang, vLLM and Triton.
//!
//! Several engines use the path `/generate`. The key of the prompt identifies the engine: `inputs` for TGI, `text` or
//! `input_ids` for SGLang, `prompt` for vLLM. The root path of a host can serve anything, so only `inputs` identifies
//! an engine there.

use super::json::{Found, Value};
use super::request::{RequestField, RequestPaths, RequestState, SETTINGS};
use super::table::{Counter, Counts, Field, Table, Texts, TimingPhase, Unit};
use super::{Api, Part};

/// Ollama: chat, generate and embed. Responses are streams of JSON lines unless the request disables streaming. A JSON
/// body is like the last line of a stream, but with the whole text.
pub static OLLAMA: Table = Table {
    numbers_calls: true,
    ..Table::new(&[
        ("model", Field::Model),
        // Chat.
        ("message.content", Field::Text(Part::Text)),
        ("message.thinking", Field::Text(Part::Reasoning)),
        ("message.tool_calls.*.id", Field::CallId),
        ("message.tool_calls.*.function.name", Field::CallName),
        ("message.tool_calls.*.function.arguments{}", Field::Arguments),
        // Generate.
        ("response", Field::Text(Part::Text)),
        ("thinking", Field::Text(Part::Reasoning)),
        // Embed.
        ("embedding|embeddings", Field::Result),
        ("done_reason", Field::StopReason),
        ("done", Field::Done),
        ("prompt_eval_count", Field::Count(Counter::Input)),
        ("eval_count", Field::Count(Counter::Output)),
        ("total_duration", Field::Clock(TimingPhase::Total, Unit::Nanoseconds)),
        ("load_duration", Field::Clock(TimingPhase::Load, Unit::Nanoseconds)),
        ("prompt_eval_duration", Field::Clock(TimingPhase::Prefill, Unit::Nanoseconds)),
        ("eval_duration", Field::Clock(TimingPhase::Decode, Unit::Nanoseconds)),
        ("", Field::Report),
    ])
};

/// Most settings of Ollama are in the object `options`.
pub static OLLAMA_REQUEST: RequestPaths = RequestPaths::new(&[
    ("model", RequestField::Model),
    ("messages.*.content", RequestField::Prompt),
    ("prompt|suffix|system|input", RequestField::Prompt),
    ("input.*", RequestField::Prompt),
    ("stream", RequestField::Stream),
    ("think", RequestField::Reasoning),
    ("format", RequestField::JsonOutput),
    ("tools.*", RequestField::Tools),
])
.extends(SETTINGS)
.unwraps(&["options"]);

/// Text Generation Inference (TGI): `/generate`, `/generate_stream` and, on hosted platforms, the root path of a model
/// or an endpoint.
///
/// A stream has one message per token, and the last message repeats the whole text. A JSON body is an object or, at a
/// root path, a list of one object. The response to several prompts is a longer list.
pub static TGI: Table = Table {
    counts: Counts::Result,
    full_text_is_last: true,
    ..Table::new(&[
        ("token.text", Field::Token),
        ("token.special", Field::SpecialToken),
        ("generated_text", Field::FullText),
        ("details.finish_reason", Field::StopReason),
        ("details.input_length", Field::Count(Counter::Input)),
        ("details.generated_tokens", Field::Count(Counter::Output)),
        ("details", Field::Report),
    ])
};

/// llama.cpp: its native completions and infill.
///
/// Each message of a stream contains the next text and the counts so far. The last message also contains the timings. A
/// JSON body is like the last message, but with the whole text. For several prompts or completions, it is a list.
pub static LLAMA_CPP: Table = Table {
    counts: Counts::Result,
    ..Table::new(&[
        ("index", Field::Choice),
        ("model", Field::Model),
        ("content", Field::Text(Part::Text)),
        // A request can exclude the stop reason from the fields of the response.
        ("stop", Field::DoneUnlessStopped),
        ("stop_type", Field::StopReason),
        // Older builds of llama.cpp.
        ("stopped_eos", Field::StopFlag("eos")),
        ("stopped_word", Field::StopFlag("word")),
        ("stopped_limit", Field::StopFlag("limit")),
        ("tokens_evaluated", Field::Count(Counter::Input)),
        ("tokens_predicted", Field::Count(Counter::Output)),
        ("timings.cache_n", Field::Count(Counter::CacheRead)),
        ("timings.prompt_ms", Field::Clock(TimingPhase::Prefill, Unit::Milliseconds)),
        ("timings.predicted_ms", Field::Clock(TimingPhase::Decode, Unit::Milliseconds)),
        ("", Field::Report),
    ])
};

/// SGLang: its native `/generate`.
///
/// `meta_info` contains the counts so far. After the text has stopped, it also contains the stop reason and the total
/// time. Each message of a stream repeats the whole text so far, unless the server was started with `--stream-output`.
/// The response to several prompts or completions is a list.
pub static SGLANG: Table = Table {
    texts: Texts::MaybeCumulative,
    counts: Counts::Result,
    ..Table::new(&[
        ("index", Field::Choice),
        ("text", Field::Text(Part::Text)),
        ("meta_info.id", Field::Id),
        // An object. In old versions, a string.
        ("meta_info.finish_reason", Field::StopReason),
        ("meta_info.finish_reason.type", Field::StopReason),
        ("meta_info.finish_reason.err_type", Field::StopError),
        ("meta_info.prompt_tokens", Field::Count(Counter::Input)),
        ("meta_info.completion_tokens", Field::Count(Counter::Output)),
        ("meta_info.cached_tokens", Field::Count(Counter::CacheRead)),
        ("meta_info.e2e_latency", Field::Clock(TimingPhase::Total, Unit::Seconds)),
        ("meta_info", Field::Report),
    ])
};

/// vLLM's demonstration server, `/generate`: `{"text": ["…"]}`. Each text begins with the prompt.
///
/// Each message of a stream repeats the whole text so far. A line end separates messages, or a zero byte in old
/// versions. The server reports neither token counts nor the end of the text.
pub static VLLM: Table = Table {
    texts: Texts::PromptAndCumulative,
    ..Table::new(&[("text", Field::Text(Part::Text)), ("text.*", Field::Text(Part::Text))])
};

/// Triton's generate extension with any backend (TensorRT-LLM, vLLM), and KServe's version of it.
///
/// `text_output` is one text or a list of texts. A backend reports counts and a stop reason if the request asks for
/// them. A stream has no end marker.
pub static TRITON: Table = Table {
    texts: Texts::MaybeCumulative,
    counts: Counts::Message,
    ..Table::new(&[
        ("model_name", Field::Model),
        ("text_output", Field::Text(Part::Text)),
        ("text_output.*", Field::Text(Part::Text)),
        ("finish_reason", Field::StopReason),
        ("finish_reason.*", Field::StopReason),
        // KServe.
        ("details.finish_reason", Field::StopReason),
        ("num_input_tokens", Field::Addend(Counter::Input)),
        ("num_input_tokens.*", Field::Addend(Counter::Input)),
        ("num_output_tokens", Field::Addend(Counter::Output)),
        ("num_output_tokens.*", Field::Addend(Counter::Output)),
        ("", Field::Report),
    ])
};

/// Paths of the values in requests. Settings are at the root, in `parameters` or in `sampling_params`.
pub static REQUEST: RequestPaths = RequestPaths::new(&[
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

fn tgi_prompt(state: &mut RequestState, found: Found<'_>) {
    prompt(Api::TgiGenerate, state, found);
}

fn triton_prompt(state: &mut RequestState, found: Found<'_>) {
    prompt(Api::TritonGenerate, state, found);
}

fn sglang_prompt(state: &mut RequestState, found: Found<'_>) {
    if state.shared_path != Some(Api::TgiGenerate) {
        prompt(Api::SglangGenerate, state, found);
    }
}

fn sglang_key(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if state.shared_path != Some(Api::TgiGenerate) && is_given(value) {
        state.facts.api = Some(Api::SglangGenerate);
    }
}

fn vllm_or_llama_cpp_prompt(state: &mut RequestState, found: Found<'_>) {
    let api = match state.shared_path {
        Some(Api::TgiGenerate) => return,
        Some(Api::LlamaCppCompletion) => Api::LlamaCppCompletion,
        _ => Api::VllmGenerate,
    };
    prompt(api, state, found);
}

fn prompt(api: Api, state: &mut RequestState, found: Found<'_>) {
    if is_given(found.value) {
        state.facts.api.get_or_insert(api);
    }
    // The length of each of several prompts is unknown, so a repeated prompt could not be removed.
    if found.position.last() > 0 {
        state.facts.echo = Some(false);
    }
    state.prompt(found.value);
}

const fn is_given(value: Value<'_>) -> bool {
    matches!(value, Value::Text(_) | Value::Array | Value::Object)
}

#[cfg(test)]
mod tests;
