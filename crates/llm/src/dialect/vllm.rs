//! vLLM's demonstration server, `/generate`: `{"text": ["…"]}`, where each text starts with the prompt.
//!
//! A stream repeats the whole text in each message. Line ends, in old versions zero bytes, divide the messages. Neither
//! counts nor an end are sent.

use super::error_field::ERROR_ROWS;
use super::json::Paths;
use super::request::RequestPaths;
use super::table::{Field, Table, TableReader, Texts};
use super::{Api, Part, RequestFacts, engine_request};

pub type Reader = TableReader;

static TABLE: Table = Table {
    texts: Texts::PromptAndCumulative,
    ..Table::new(
        Paths::new(&[("text", Field::Text(Part::Text)), ("text.*", Field::Text(Part::Text))])
            .with_errors(ERROR_ROWS),
    )
};

pub fn reader(_: Api, request: &RequestFacts, failed: bool) -> Reader {
    TABLE.reader(request, failed)
}

pub fn request_paths(_: Api) -> &'static RequestPaths {
    &engine_request::PATHS
}
