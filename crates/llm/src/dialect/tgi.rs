//! Text generation inference: `/generate`, `/generate_stream` and, hosted, the root of a model or an endpoint.
//!
//! A stream has one message per token, and the whole text once more in the last one. A JSON body is an object or, at a
//! root, a list of one. Several prompts are answered by a longer list.

use super::error_field::ERROR_ROWS;
use super::json::Paths;
use super::request::RequestPaths;
use super::table::{Counter, Counts, Field, Table, TableReader};
use super::{Api, RequestFacts, engine_request};

pub type Reader = TableReader;

static TABLE: Table = Table {
    counts: Counts::Result,
    full_text_is_last: true,
    ..Table::new(
        Paths::new(&[
            ("token.text", Field::Token),
            ("token.special", Field::SpecialToken),
            ("generated_text", Field::FullText),
            ("details.finish_reason", Field::StopReason),
            ("details.input_length", Field::Count(Counter::Input)),
            ("details.generated_tokens", Field::Count(Counter::Output)),
            ("details", Field::Report),
        ])
        .with_errors(ERROR_ROWS),
    )
};

pub fn reader(_: Api, request: &RequestFacts, failed: bool) -> Reader {
    TABLE.reader(request, failed)
}

pub fn request_paths(_: Api) -> &'static RequestPaths {
    &engine_request::PATHS
}
