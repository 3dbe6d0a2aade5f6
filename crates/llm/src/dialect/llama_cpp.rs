//! llama.cpp: its own completions and infill.
//!
//! Each message of a stream has the next text and the counts so far. The last one has the timings too. A JSON body is
//! that last message with the whole text, or a list of them for several prompts or completions.

use super::error_field::ERROR_ROWS;
use super::json::Paths;
use super::request::RequestPaths;
use super::table::{Counter, Counts, Field, Phase, Table, TableReader, Unit};
use super::{Api, Part, RequestFacts, engine_request};

pub type Reader = TableReader;

static TABLE: Table = Table {
    counts: Counts::Result,
    no_reasons: &["none"],
    ..Table::new(
        Paths::new(&[
            ("index", Field::Choice),
            ("model", Field::Model),
            ("content", Field::Text(Part::Text)),
            // A request may leave the reason out of the fields that it wants.
            ("stop", Field::DoneUnlessStopped),
            ("stop_type", Field::StopReason),
            // Older builds.
            ("stopped_eos", Field::StopFlag("eos")),
            ("stopped_word", Field::StopFlag("word")),
            ("stopped_limit", Field::StopFlag("limit")),
            ("tokens_evaluated", Field::Count(Counter::Input)),
            ("tokens_predicted", Field::Count(Counter::Output)),
            ("timings.cache_n", Field::Count(Counter::CacheRead)),
            ("timings.prompt_ms", Field::Clock(Phase::Prefill, Unit::Milliseconds)),
            ("timings.predicted_ms", Field::Clock(Phase::Decode, Unit::Milliseconds)),
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
