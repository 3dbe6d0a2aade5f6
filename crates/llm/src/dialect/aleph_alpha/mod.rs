//! Aleph Alpha: completions. A stream has pieces of each completion, a summary of each, and a summary of all.

use super::error_field::ERROR_ROWS;
use super::json::{Paths, Position, Value};
use super::request::{RequestField, RequestPaths, RequestState, SETTINGS};
use super::table::{Counter, Field, Table, TableReader};
use super::{Api, Part, RequestFacts};

pub type Reader = TableReader;

static TABLE: Table = Table::new(
    Paths::new(&[
        ("completions.*.completion", Field::Text(Part::Text)),
        ("completions.*.finish_reason", Field::StopReason),
        // Messages of a stream.
        ("type", Field::DoneIf("completion_summary")),
        ("index", Field::Choice),
        ("completion", Field::Text(Part::Text)),
        ("finish_reason", Field::StopReason),
        ("num_tokens_prompt_total", Field::Count(Counter::Input)),
        ("num_tokens_generated", Field::Count(Counter::Output)),
        ("", Field::Report),
    ])
    .with_errors(ERROR_ROWS),
);

static REQUEST: RequestPaths = RequestPaths::new(&[
    ("model", RequestField::Model),
    ("prompt", RequestField::Rule(prompt)),
    ("prompt.*", RequestField::Rule(part)),
    ("prompt.*.type", RequestField::Rule(part_type)),
    ("prompt.*.data", RequestField::Rule(part_data)),
    ("stream", RequestField::Stream),
    ("echo", RequestField::Echo),
])
.extends(SETTINGS);

pub fn reader(_: Api, request: &RequestFacts, failed: bool) -> Reader {
    TABLE.reader(request, failed)
}

pub fn request_paths(_: Api) -> &'static RequestPaths {
    &REQUEST
}

fn prompt(state: &mut RequestState, _: Position<'_>, value: Value<'_>) {
    if matches!(value, Value::Text(_) | Value::Array) {
        state.facts.api = Some(Api::AlephAlphaComplete);
    }
    state.prompt(value);
}

fn part(state: &mut RequestState, _: Position<'_>, _: Value<'_>) {
    state.is_not_text = false;
}

/// Only parts of this type have text.
fn part_type(state: &mut RequestState, _: Position<'_>, value: Value<'_>) {
    if let Some(kind) = state.string(value) {
        state.is_not_text = kind != "text";
    }
}

fn part_data(state: &mut RequestState, _: Position<'_>, value: Value<'_>) {
    if !state.is_not_text {
        state.prompt(value);
    }
}

#[cfg(test)]
mod tests;
