//! Triton's generate extension with any backend (TensorRT-LLM, vLLM), and KServe's, which is the same.
//!
//! `text_output` is one text or a list. A backend reports counts and a reason if the request asks for them. The end of a
//! stream is not marked.

use super::error_field::ERROR_ROWS;
use super::json::Paths;
use super::request::RequestPaths;
use super::table::{Counter, Counts, Field, Table, TableReader, Texts};
use super::{Api, Part, RequestFacts, engine_request};

pub type Reader = TableReader;

static TABLE: Table = Table {
    texts: Texts::MaybeCumulative,
    counts: Counts::Message,
    // Written by backends in Python.
    no_reasons: &["None"],
    ..Table::new(
        Paths::new(&[
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
        .with_errors(ERROR_ROWS),
    )
};

pub fn reader(_: Api, request: &RequestFacts, failed: bool) -> Reader {
    TABLE.reader(request, failed)
}

pub fn request_paths(_: Api) -> &'static RequestPaths {
    &engine_request::PATHS
}
