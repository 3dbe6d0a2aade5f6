//! Ollama: chat, generate and embed. A stream is lines of JSON, and the default. A JSON body is the last line of a stream
//! with the whole text.

use super::error_field::ERROR_ROWS;
use super::json::Paths;
use super::request::{RequestField, RequestPaths, SETTINGS};
use super::table::{Counter, Field, Phase, Table, TableReader, Unit};
use super::{Api, Part, RequestFacts};

pub type Reader = TableReader;

static TABLE: Table = Table {
    numbers_calls: true,
    ..Table::new(
        Paths::new(&[
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
            ("done_reason", Field::StopReason),
            ("done", Field::Done),
            ("prompt_eval_count", Field::Count(Counter::Input)),
            ("eval_count", Field::Count(Counter::Output)),
            ("total_duration", Field::Clock(Phase::Total, Unit::Nanoseconds)),
            ("load_duration", Field::Clock(Phase::Load, Unit::Nanoseconds)),
            ("prompt_eval_duration", Field::Clock(Phase::Prefill, Unit::Nanoseconds)),
            ("eval_duration", Field::Clock(Phase::Decode, Unit::Nanoseconds)),
            ("", Field::Report),
        ])
        .with_errors(ERROR_ROWS),
    )
};

/// Most settings are in `options`.
static REQUEST: RequestPaths = RequestPaths::new(&[
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

pub fn reader(_: Api, request: &RequestFacts, failed: bool) -> Reader {
    TABLE.reader(request, failed)
}

pub fn request_paths(_: Api) -> &'static RequestPaths {
    &REQUEST
}

#[cfg(test)]
mod tests;
