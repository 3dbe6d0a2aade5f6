//! Detects the format of a response that a model wrote.
//!
//! The identifier of a model may hide its provider (a profile, an endpoint, a copy), and the models of one provider have
//! several formats. The first key that only one format has decides.

use super::{converse, models};
use crate::dialect::json::{JsonScanner, Meaning, Paths, Position, Value};
use crate::dialect::{Api, Event, EventSink, Reader, anthropic, openai};
use crate::frame::Frame;

/// The most bytes of a body that are held until its format is known. The first few keys decide. A body without any of
/// them has nothing to read.
const LONGEST_HELD: usize = 1 << 14;

/// Meaning of a value for the format.
#[derive(Clone, Copy, Debug)]
enum Hint {
    Is(ModelFormat),
    /// The format, if the value is an object.
    Object(ModelFormat),
    /// The format, unless the value is null.
    NotNull(ModelFormat),
    /// The format, if the list ends without any other hint.
    End(ModelFormat),
    /// An element of a list of bare results, which servers return that embed or generate for several inputs.
    Root,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ModelFormat {
    Anthropic,
    OpenAiChat,
    OpenAiCompletions,
    Nova,
    Other,
}

static PATHS: Paths<Hint> = Paths::new(&[
    ("choices.*.text", Hint::NotNull(ModelFormat::OpenAiCompletions)),
    ("choices.*.message|delta", Hint::Is(ModelFormat::OpenAiChat)),
    ("choices", Hint::End(ModelFormat::OpenAiChat)),
    ("message", Hint::Object(ModelFormat::Anthropic)),
    ("content_block|delta|content|completion", Hint::Is(ModelFormat::Anthropic)),
    ("messageStart|messageStop|metadata|output", Hint::Is(ModelFormat::Nova)),
    ("contentBlockStart|contentBlockDelta|contentBlockStop", Hint::Is(ModelFormat::Nova)),
    ("outputText|results|inputTextTokenCount", Hint::Is(ModelFormat::Other)),
    ("text|generation|outputs|generations", Hint::Is(ModelFormat::Other)),
    ("event_type|is_finished|completions|token", Hint::Is(ModelFormat::Other)),
    ("generated_text|generated_texts|embedding|embeddings", Hint::Is(ModelFormat::Other)),
    ("", Hint::Root),
]);

/// Reads a response whose format its keys show.
#[derive(Debug)]
pub enum ModelReader {
    Unknown(Box<Detector>),
    Known(Reader),
}

/// The start of a body whose format is unknown.
#[derive(Debug)]
pub struct Detector {
    scanner: JsonScanner<Hint>,
    held: Vec<u8>,
}

impl Default for Detector {
    fn default() -> Self {
        Self { scanner: JsonScanner::new(&PATHS), held: Vec::new() }
    }
}

impl Detector {
    fn push(&mut self, bytes: &[u8]) -> Option<ModelFormat> {
        let mut found = None;
        self.scanner.push(bytes, &mut |meaning, position, value| {
            if let Meaning::Field(hint) = meaning {
                found = found.or_else(|| hint.format(position, value));
            }
        });
        found
    }
}

impl Hint {
    fn format(self, position: Position<'_>, value: Value<'_>) -> Option<ModelFormat> {
        let (format, holds) = match self {
            Self::Is(format) => (format, true),
            Self::Object(format) => (format, value == Value::Object),
            Self::NotNull(format) => (format, value != Value::Null),
            Self::End(format) => (format, value == Value::End),
            Self::Root => {
                let is_element = position.is_in_root_list();
                let is_bare = !matches!(value, Value::Object | Value::End);
                (ModelFormat::Other, is_element && is_bare)
            }
        };
        holds.then_some(format)
    }
}

impl ModelReader {
    /// `failed`: the status says that the response is an error. Errors are alike in all formats.
    pub fn new(failed: bool) -> Self {
        if failed {
            Self::Known(models::reader(true).into())
        } else {
            Self::Unknown(Box::default())
        }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl EventSink) {
        match self {
            Self::Unknown(detector) => match frame {
                Frame::Event { data, .. } => self.first_message(data, frame, out),
                Frame::BodyChunk(bytes) => {
                    let found = detector.push(bytes);
                    detector.held.extend_from_slice(bytes);
                    if found.is_some() || detector.held.len() > LONGEST_HELD {
                        self.settle(found, out);
                    }
                }
                Frame::Exception { .. } | Frame::BodyEnd => {
                    self.settle(None, out);
                    self.read(frame, out);
                }
                Frame::BareJson(_) | Frame::ParseError(_) => {}
            },
            // The trait object ends the recursion of types: a reader may be that of Bedrock again.
            Self::Known(reader) => {
                let mut out: &mut dyn FnMut(Event<'_>) = out;
                reader.read(frame, &mut out);
            }
        }
    }

    /// Reads a message of a stream whose format is unknown. A message without a hint, such as a ping, has no text, but
    /// may be malformed or an error.
    fn first_message(&mut self, data: &[u8], frame: &Frame<'_>, out: &mut impl EventSink) {
        match Detector::default().push(data) {
            Some(format) => {
                *self = Self::of(format);
                self.read(frame, out);
            }
            None => models::reader(false).read(frame, out),
        }
    }

    /// Reads what was held in the format that was found.
    fn settle(&mut self, found: Option<ModelFormat>, out: &mut impl EventSink) {
        let reader = Self::of(found.unwrap_or(ModelFormat::Other));
        if let Self::Unknown(detector) = std::mem::replace(self, reader)
            && !detector.held.is_empty()
        {
            self.read(&Frame::BodyChunk(&detector.held), out);
        }
    }

    fn of(format: ModelFormat) -> Self {
        Self::Known(match format {
            ModelFormat::Anthropic => anthropic::reader(false),
            ModelFormat::OpenAiChat => openai::reader(Api::OpenAiChat, false),
            ModelFormat::OpenAiCompletions => openai::reader(Api::OpenAiCompletions, false),
            ModelFormat::Nova => converse::reader(false).into(),
            ModelFormat::Other => models::reader(false).into(),
        })
    }
}
