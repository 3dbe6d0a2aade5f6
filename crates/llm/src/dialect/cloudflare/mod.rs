//! Cloudflare Workers AI: its own format for models that generate text.
//!
//! The path names the model, whatever its kind. A request with messages or a prompt is one for text.

use super::error_field::ERROR_ROWS;
use super::json::{Paths, Position, Value};
use super::request::{RequestField, RequestPaths, RequestState, SETTINGS};
use super::table::{Counter, Field, Table, TableReader};
use super::{Api, RequestFacts};

pub type Reader = TableReader;

/// A JSON body has everything in `result`.
static TABLE: Table = Table {
    numbers_calls: true,
    ..Table::new(
        Paths::new(&[
            // An object if the request has a schema, a number if the text has only digits.
            ("response{}", Field::DigitsOrText),
            ("tool_calls.*.arguments{}", Field::Arguments),
            ("usage.prompt_tokens", Field::Count(Counter::Input)),
            ("usage.completion_tokens", Field::Count(Counter::Output)),
            ("usage", Field::Report),
        ])
        .with_errors(ERROR_ROWS)
        .unwraps(&["result"]),
    )
};

static REQUEST: RequestPaths = RequestPaths::new(&[
    ("messages", RequestField::ApiOfList(Api::CloudflareRun)),
    ("messages.*.content", RequestField::Prompt),
    ("messages.*.content.*.text", RequestField::Prompt),
    ("prompt", RequestField::Rule(prompt)),
    ("steps|num_steps|guidance|width|height|mask", RequestField::Rule(image_setting)),
    ("stream", RequestField::Stream),
    ("response_format.type", RequestField::OutputFormat),
    ("tools.*", RequestField::Tools),
])
.extends(SETTINGS);

pub fn reader(_: Api, request: &RequestFacts, failed: bool) -> Reader {
    TABLE.reader(request, failed)
}

pub fn request_paths(_: Api) -> &'static RequestPaths {
    &REQUEST
}

fn prompt(state: &mut RequestState, _: Position<'_>, value: Value<'_>) {
    if !state.is_not_text && matches!(value, Value::Text(_)) {
        state.facts.api = Some(Api::CloudflareRun);
    }
    state.prompt(value);
}

fn image_setting(state: &mut RequestState, _: Position<'_>, _: Value<'_>) {
    state.is_not_text = true;
    state.facts.api = None;
}

#[cfg(test)]
mod tests;
