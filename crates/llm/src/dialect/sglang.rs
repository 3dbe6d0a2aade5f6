//! SGLang: its own `/generate`.
//!
//! `meta_info` has the counts so far, the reason once the text has stopped, and then the total time. A stream repeats the
//! whole text in each message, unless the server is started with `--stream-output`. Several prompts or completions are
//! answered by a list.

use super::error_field::ERROR_ROWS;
use super::json::Paths;
use super::request::RequestPaths;
use super::table::{Counter, Counts, Field, Phase, Table, TableReader, Texts, Unit};
use super::{Api, Part, RequestFacts, engine_request};

pub type Reader = TableReader;

static TABLE: Table = Table {
    texts: Texts::MaybeCumulative,
    counts: Counts::Result,
    error_reasons: &[("abort", Some("abort"))],
    ..Table::new(
        Paths::new(&[
            ("index", Field::Choice),
            ("text", Field::Text(Part::Text)),
            ("meta_info.id", Field::Id),
            // An object, in old versions a string.
            ("meta_info.finish_reason", Field::StopReason),
            ("meta_info.finish_reason.type", Field::StopReason),
            ("meta_info.finish_reason.err_type", Field::StopError),
            ("meta_info.prompt_tokens", Field::Count(Counter::Input)),
            ("meta_info.completion_tokens", Field::Count(Counter::Output)),
            ("meta_info.cached_tokens", Field::Count(Counter::CacheRead)),
            ("meta_info.e2e_latency", Field::Clock(Phase::Total, Unit::Seconds)),
            ("meta_info", Field::Report),
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
