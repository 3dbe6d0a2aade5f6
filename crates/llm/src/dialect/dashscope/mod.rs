//! Alibaba DashScope: generation and embeddings in its own format.
//!
//! A stream repeats the whole text in each message, unless the request sets `incremental_output`.

use super::error_field::ERROR_ROWS;
use super::json::Paths;
use super::request::{RequestField, RequestPaths, SETTINGS};
use super::table::{Counter, Field, Table, TableReader, Texts};
use super::{Api, Part, RequestFacts};

pub type Reader = TableReader;

static TABLE: Table = Table {
    texts: Texts::MaybeCumulative,
    no_reasons: &["null"],
    ..Table::new(
        Paths::new(&[
            ("request_id", Field::Id),
            ("code", Field::ErrorCode),
            ("output.choices.*.message.content", Field::Text(Part::Text)),
            ("output.choices.*.message.content.*.text", Field::Text(Part::Text)),
            ("output.choices.*.message.reasoning_content", Field::Text(Part::Reasoning)),
            ("output.choices.*.message.tool_calls.*.index", Field::CallIndex),
            ("output.choices.*.message.tool_calls.*.id", Field::CallId),
            ("output.choices.*.message.tool_calls.*.function.name", Field::CallName),
            ("output.choices.*.message.tool_calls.*.function.arguments", Field::Arguments),
            ("output.choices.*.finish_reason", Field::StopReason),
            // The older form of a result.
            ("output.text", Field::Text(Part::Text)),
            ("output.finish_reason", Field::StopReason),
            ("usage.input_tokens", Field::Count(Counter::Input)),
            ("usage.output_tokens", Field::Count(Counter::Output)),
            // Embeddings have only the total.
            ("usage.total_tokens", Field::Count(Counter::Total)),
            ("usage.prompt_tokens_details.cached_tokens", Field::Count(Counter::CacheRead)),
            ("usage.output_tokens_details.reasoning_tokens", Field::Count(Counter::Reasoning)),
            ("usage", Field::Report),
        ])
        .with_errors(ERROR_ROWS),
    )
};

static REQUEST: RequestPaths = RequestPaths::new(&[
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

pub fn reader(_: Api, request: &RequestFacts, failed: bool) -> Reader {
    TABLE.reader(request, failed)
}

pub fn request_paths(_: Api) -> &'static RequestPaths {
    &REQUEST
}

#[cfg(test)]
mod tests;
