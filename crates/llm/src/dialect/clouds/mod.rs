//! Reads the formats of four clouds: Aleph Alpha, Cloudflare, DashScope and watsonx.

use super::json::{Found, Value};
use super::request::{RequestField, RequestPaths, RequestState, SETTINGS};
use super::table::{Counter, Field, Table, Texts};
use super::{Api, Part, openai};

/// Aleph Alpha's completions. A stream contains the pieces of each completion, a summary of each completion, and a
/// summary of all completions.
pub static ALEPH_ALPHA: Table = Table {
    last_type: "completion_summary",
    ..Table::new(&[
        ("completions.*.completion", Field::Text(Part::Text)),
        ("completions.*.finish_reason", Field::StopReason),
        // Messages of a stream.
        ("type", Field::Type),
        ("index", Field::Choice),
        ("completion", Field::Text(Part::Text)),
        ("finish_reason", Field::StopReason),
        ("num_tokens_prompt_total", Field::Count(Counter::Input)),
        ("num_tokens_generated", Field::Count(Counter::Output)),
        ("", Field::Report),
    ])
};

pub static ALEPH_ALPHA_REQUEST: RequestPaths = RequestPaths::new(&[
    ("model", RequestField::Model),
    ("prompt", RequestField::Rule(aleph_alpha_prompt)),
    ("prompt.*", RequestField::Rule(part)),
    ("prompt.*.type", RequestField::Rule(part_type)),
    ("prompt.*.data", RequestField::Rule(part_data)),
    ("stream", RequestField::Stream),
    ("echo", RequestField::Echo),
])
.extends(SETTINGS);

fn aleph_alpha_prompt(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if matches!(value, Value::Text(_) | Value::Array) {
        state.facts.api = Some(Api::AlephAlphaComplete);
    }
    state.prompt(value);
}

fn part(state: &mut RequestState, _: Found<'_>) {
    state.is_not_text = false;
}

/// Reads the type of a prompt part. Only parts of type `text` count as prompt text.
fn part_type(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if let Some(kind) = value.string() {
        state.is_not_text = kind != "text";
    }
}

fn part_data(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if !state.is_not_text {
        state.prompt(value);
    }
}

/// Cloudflare's own format for text generation models on Workers AI.
///
/// The URL path contains the model name for every kind of model. A request with messages or a prompt is a text
/// generation request.
///
/// A JSON body has its content in `result`.
pub static CLOUDFLARE: Table = Table {
    numbers_calls: true,
    ..Table::new(&[
        // An object if the request has a JSON schema. A number if the generated text has only digits.
        ("response{}", Field::DigitsOrText),
        ("tool_calls.*.arguments{}", Field::Arguments),
        ("usage.prompt_tokens", Field::Count(Counter::Input)),
        ("usage.completion_tokens", Field::Count(Counter::Output)),
        ("usage.total_tokens", Field::Count(Counter::Total)),
        ("usage", Field::Report),
    ])
    .unwraps(&["result"])
};

pub static CLOUDFLARE_REQUEST: RequestPaths = RequestPaths::new(&[
    ("messages", RequestField::ApiOfList(Api::CloudflareRun)),
    ("messages.*.content", RequestField::Prompt),
    ("messages.*.content.*.text", RequestField::Prompt),
    ("prompt", RequestField::Rule(cloudflare_prompt)),
    ("steps|num_steps|guidance|width|height|mask", RequestField::Rule(image_setting)),
    ("stream", RequestField::Stream),
    ("response_format.type", RequestField::OutputFormat),
    ("tools.*", RequestField::Tools),
])
.extends(SETTINGS);

fn cloudflare_prompt(state: &mut RequestState, Found { value, .. }: Found<'_>) {
    if !state.is_not_text && matches!(value, Value::Text(_)) {
        state.facts.api = Some(Api::CloudflareRun);
    }
    state.prompt(value);
}

fn image_setting(state: &mut RequestState, _: Found<'_>) {
    state.is_not_text = true;
    state.facts.api = None;
}

/// Alibaba DashScope: text generation and embeddings in its own format.
///
/// Each message of a stream repeats the whole text, unless the request sets `incremental_output`.
pub static DASHSCOPE: Table = Table {
    texts: Texts::MaybeCumulative,
    ..Table::new(&[
        ("request_id", Field::Id),
        ("code", Field::ErrorCode),
        ("output.choices.*.message.content", Field::Text(Part::Text)),
        ("output.choices.*.message.content.*.text", Field::Text(Part::Text)),
        ("output.choices.*.message.reasoning_content", Field::Text(Part::Reasoning)),
        ("output.choices.*.message.tool_calls.*.index", Field::CallIndex),
        ("output.choices.*.message.tool_calls.*.id", Field::CallId),
        ("output.choices.*.message.tool_calls.*.function.name", Field::CallName),
        ("output.choices.*.message.tool_calls.*.function.arguments{}", Field::Arguments),
        ("output.choices.*.finish_reason", Field::StopReason),
        // The older form of a result.
        ("output.text", Field::Text(Part::Text)),
        ("output.finish_reason", Field::StopReason),
        ("usage.input_tokens", Field::Count(Counter::Input)),
        ("usage.output_tokens", Field::Count(Counter::Output)),
        ("output.embeddings", Field::Result),
        // Embeddings have only the total.
        ("usage.total_tokens", Field::Count(Counter::Total)),
        ("usage.prompt_tokens_details.cached_tokens", Field::Count(Counter::CacheRead)),
        ("usage.output_tokens_details.reasoning_tokens", Field::Count(Counter::Reasoning)),
        ("usage", Field::Report),
    ])
};

pub static DASHSCOPE_REQUEST: RequestPaths = RequestPaths::new(&[
    ("model", RequestField::Model),
    ("input.prompt", RequestField::Prompt),
    ("input.texts.*", RequestField::Prompt),
    ("input.messages.*.content", RequestField::Prompt),
    ("input.messages.*.content.*.text", RequestField::Prompt),
    ("incremental_output", RequestField::StreamIfSet),
    ("tools.*", RequestField::Tools),
    ("response_format.type", RequestField::OutputFormat),
    ("dimension", RequestField::Dimensions),
])
.extends(SETTINGS)
.unwraps(&["parameters"]);

/// IBM watsonx.ai: text generation in its own format, and chat in OpenAI's format.
///
/// Each message of a text generation stream has the next piece of text and the output count so far. Only the first
/// message has the input count. Later messages report 0.
pub static WATSONX: Table = Table {
    last_event: "close",
    ..Table::new(&[
        ("model_id", Field::Model),
        ("results.*", Field::Report),
        ("results.*.generated_text", Field::Text(Part::Text)),
        ("results.*.input_token_count", Field::Count(Counter::InputOnce)),
        ("results.*.generated_token_count", Field::Count(Counter::Output)),
        ("results.*.stop_reason", Field::StopReason),
    ])
};

/// Paths of the values in requests. Text generation settings are in `parameters`. Chat settings are at the root, as in
/// OpenAI's format.
pub static WATSONX_REQUEST: RequestPaths = RequestPaths::new(&[
    ("model_id", RequestField::Model),
    ("max_new_tokens", RequestField::MaxTokens),
    ("random_seed", RequestField::Seed),
    ("stop_sequences", RequestField::Stop),
    ("stop_sequences.*", RequestField::Stop),
    ("messages|prompt|input", RequestField::Rule(keep_api_of_path)),
])
.extends(openai::REQUEST_ROWS)
.unwraps(&["parameters"]);

/// Clears the API that OpenAI's rows inferred from the request keys, because the URL path determines the API.
fn keep_api_of_path(state: &mut RequestState, _: Found<'_>) {
    state.facts.api = None;
}

#[cfg(test)]
mod tests;
