//! Google: generateContent, interactions, embeddings and predictions of Gemini and Vertex AI.
//!
//! A streamed generateContent is server-sent events or one list of the same messages. It has no end mark: the finish
//! reason of each candidate shows the end.

mod calls;
mod generate;
mod interactions;
mod request;
mod usage;

pub use request::request_paths;

use super::error_field::ERROR_ROWS;
use super::errors::ErrorScanner;
use super::json::{JsonScanner, Meaning, Paths, Value};
use super::response::FormatReader;
use super::{Api, Event, RequestFacts};
use crate::frame::Frame;
use generate::Generate;
use interactions::Interactions;

/// Reads the response of one call.
#[derive(Debug)]
pub struct Reader {
    format: Format,
    bare_error: Option<Box<BareError>>,
}

#[derive(Debug)]
enum Format {
    Generate(Box<FormatReader<Generate>>),
    Interactions(Box<FormatReader<Interactions>>),
}

/// An error among server-sent events as plain JSON, spread over lines: Google reports that way that a stream cannot go
/// on.
#[derive(Debug)]
struct BareError {
    scanner: JsonScanner<()>,
    errors: ErrorScanner,
}

/// The root, whose end completes the error.
static BARE_ERROR: Paths<()> = Paths::new(&[("", ())]).with_errors(ERROR_ROWS);

pub fn reader(api: Api, _: &RequestFacts, failed: bool) -> Reader {
    let format = match api {
        Api::GeminiInteractions | Api::GeminiStoredInteraction => {
            let is_stored = api == Api::GeminiStoredInteraction;
            let interactions = FormatReader::new(Interactions::new(is_stored), failed);
            Format::Interactions(Box::new(interactions))
        }
        _ => Format::Generate(Box::new(FormatReader::new(Generate::default(), failed))),
    };
    Reader { format, bare_error: None }
}

impl Reader {
    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        if let Frame::BareJson(line) = frame {
            return self.bare_line(line, out);
        }
        match &mut self.format {
            Format::Generate(reader) => reader.read(frame, out),
            Format::Interactions(reader) => reader.read(frame, out),
        }
    }

    fn bare_line(&mut self, line: &[u8], out: &mut impl FnMut(Event<'_>)) {
        let error = self.bare_error.get_or_insert_with(|| Box::new(BareError::new()));
        if !error.is_complete_after(line) {
            return;
        }
        let error = self.bare_error.take().filter(|error| error.errors.is_error());
        let Some(error) = error else {
            return;
        };
        match &mut self.format {
            Format::Generate(reader) => reader.fail(error.errors.kind(), out),
            Format::Interactions(reader) => reader.fail(error.errors.kind(), out),
        }
    }
}

impl BareError {
    fn new() -> Self {
        Self { scanner: JsonScanner::new(&BARE_ERROR), errors: ErrorScanner::default() }
    }

    /// Reads the next line, which has no line end. Returns whether the error is complete.
    fn is_complete_after(&mut self, line: &[u8]) -> bool {
        let errors = &mut self.errors;
        let mut is_complete = false;
        for piece in [line, b"\n"] {
            self.scanner.push(piece, &mut |meaning, _, value| match meaning {
                Meaning::Error(field) => errors.read(field, value),
                Meaning::Field(()) => is_complete |= value == Value::End,
            });
        }
        is_complete
    }
}

#[cfg(test)]
mod tests;
