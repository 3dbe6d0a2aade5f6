//! IBM watsonx.ai: text generation in its own format, and chat in OpenAI's.
//!
//! Each message of a generation has the next text and the output count so far. The first has the count of the input,
//! later ones 0.

use super::error_field::ERROR_ROWS;
use super::json::{Paths, Position, Value};
use super::request::{RequestField, RequestPaths, RequestState};
use super::table::{Counter, Field, Table, TableReader};
use super::{Api, Event, Part, RequestFacts, openai};
use crate::frame::Frame;

static GENERATION: Table = Table {
    no_reasons: &["not_finished"],
    error_reasons: &[("error", None)],
    last_event: "close",
    ..Table::new(
        Paths::new(&[
            ("model_id", Field::Model),
            ("results.*", Field::Report),
            ("results.*.generated_text", Field::Text(Part::Text)),
            ("results.*.input_token_count", Field::Count(Counter::InputOnce)),
            ("results.*.generated_token_count", Field::Count(Counter::Output)),
            ("results.*.stop_reason", Field::StopReason),
        ])
        .with_errors(ERROR_ROWS),
    )
};

/// Generation has its settings in `parameters`, chat at the root as OpenAI.
static REQUEST: RequestPaths = RequestPaths::new(&[
    ("model_id", RequestField::Model),
    ("max_new_tokens", RequestField::MaxTokens),
    ("random_seed", RequestField::Seed),
    ("stop_sequences", RequestField::Stop),
    ("stop_sequences.*", RequestField::Stop),
    ("messages|prompt|input", RequestField::Rule(keep_api_of_path)),
])
.extends(openai::REQUEST_ROWS)
.unwraps(&["parameters"]);

/// Reads the response of one call.
#[derive(Debug)]
pub enum Reader {
    Generation(Box<TableReader>),
    Chat(Box<openai::Reader>),
}

pub fn reader(api: Api, request: &RequestFacts, failed: bool) -> Reader {
    if api == Api::WatsonxChat {
        Reader::Chat(Box::new(openai::reader(Api::OpenAiChat, request, failed)))
    } else {
        Reader::Generation(Box::new(GENERATION.reader(request, failed)))
    }
}

pub fn request_paths(_: Api) -> &'static RequestPaths {
    &REQUEST
}

impl Reader {
    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        match self {
            Self::Generation(reader) => reader.read(frame, out),
            Self::Chat(reader) => reader.read(frame, out),
        }
    }
}

/// Ignores what OpenAI's rows conclude from the keys: the path decides.
fn keep_api_of_path(state: &mut RequestState, _: Position<'_>, _: Value<'_>) {
    state.facts.api = None;
}

#[cfg(test)]
mod tests;
