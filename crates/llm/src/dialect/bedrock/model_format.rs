//! Detects the format of a response from a model on Bedrock or SageMaker.
//!
//! The model identifier does not show the format: it can be a profile, an endpoint or a copy. Models of one provider
//! also have several formats. The first key that only one format uses determines the format.

use super::{converse, models};
use crate::budget::RequestBudget;
use crate::dialect::json::{Found, JsonScanner, Paths, Value};
use crate::dialect::{Api, Event, EventSink, Reader, RequestFacts, anthropic, openai};
use crate::frame::Frame;

/// Maximum number of body bytes that are buffered until the format is known. The first few keys normally show the
/// format. A body without any of these keys has nothing to read.
const MAX_BUFFERED_BYTES: usize = 1 << 14;

/// What a value at this path shows about the response format.
#[derive(Clone, Copy, Debug)]
enum Hint {
    Is(ModelFormat),
    /// Indicates the format if the value is an object.
    Object(ModelFormat),
    /// Indicates the format unless the value is null.
    NotNull(ModelFormat),
    /// The format applies if the list ends before another hint was found.
    End(ModelFormat),
    /// An element of a top-level list of results. Servers return such lists for embedding or generation requests with
    /// several inputs.
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

/// Reads a response whose format is detected from its JSON keys.
#[derive(Debug)]
pub enum ModelReader {
    Unknown(Box<Detector>),
    Known(Reader),
}

/// Buffers the start of a body until its format is known.
#[derive(Debug)]
pub struct Detector {
    scanner: JsonScanner<Hint>,
    buffered: Vec<u8>,
    /// The budget of the reader that follows.
    budget: RequestBudget,
}

impl Detector {
    fn new(budget: &RequestBudget) -> Self {
        Self { scanner: JsonScanner::new(&PATHS), buffered: Vec::new(), budget: budget.clone() }
    }

    fn push(&mut self, bytes: &[u8]) -> Option<ModelFormat> {
        let mut format = None;
        self.scanner.push(bytes, &mut |hint, found| {
            format = format.or_else(|| hint.format(found));
        });
        format
    }
}

impl Hint {
    fn format(self, Found { position, value, .. }: Found<'_>) -> Option<ModelFormat> {
        let (format, applies) = match self {
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
        applies.then_some(format)
    }
}

impl ModelReader {
    /// Creates a reader. An error status (`failed`) needs no detection, because all formats have the same error
    /// objects.
    pub fn new(failed: bool, budget: &RequestBudget) -> Self {
        if failed {
            Self::Known(models::reader(true).into())
        } else {
            Self::Unknown(Box::new(Detector::new(budget)))
        }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl EventSink) {
        match self {
            Self::Unknown(detector) => match frame {
                Frame::Event { data, .. } => match Detector::new(&detector.budget).push(data) {
                    Some(format) => {
                        *self = Self::with_format(format, &detector.budget);
                        self.read(frame, out);
                    }
                    // A message without a hint, such as a ping, has no text. It may still be malformed or report an
                    // error.
                    None => models::reader(false).read(frame, out),
                },
                Frame::BodyChunk(bytes) => {
                    let found = detector.push(bytes);
                    detector.buffered.extend_from_slice(bytes);
                    if found.is_some() || detector.buffered.len() > MAX_BUFFERED_BYTES {
                        self.replay_as(found, out);
                    }
                }
                Frame::Exception { .. } | Frame::BodyEnd => {
                    self.replay_as(None, out);
                    self.read(frame, out);
                }
                Frame::BareJson(_) => {}
                Frame::ParseError(error) => out(Event::ParseError(*error)),
            },
            // The trait object breaks a recursion of types, because the inner reader may be a Bedrock reader again.
            Self::Known(reader) => {
                let mut out: &mut dyn FnMut(Event<'_>) = out;
                reader.read(frame, &mut out);
            }
        }
    }

    /// Replays the buffered bytes in the detected format.
    fn replay_as(&mut self, found: Option<ModelFormat>, out: &mut impl EventSink) {
        let Self::Unknown(detector) = self else { return };
        let buffered = std::mem::take(&mut detector.buffered);
        *self = Self::with_format(found.unwrap_or(ModelFormat::Other), &detector.budget);
        if !buffered.is_empty() {
            self.read(&Frame::BodyChunk(&buffered), out);
        }
    }

    fn with_format(format: ModelFormat, budget: &RequestBudget) -> Self {
        Self::Known(match format {
            ModelFormat::Anthropic => anthropic::reader(false, budget),
            ModelFormat::OpenAiChat => {
                openai::reader(Api::OpenAiChat, &RequestFacts::default(), false, budget)
            }
            ModelFormat::OpenAiCompletions => {
                openai::reader(Api::OpenAiCompletions, &RequestFacts::default(), false, budget)
            }
            ModelFormat::Nova => converse::reader(false).into(),
            ModelFormat::Other => models::reader(false).into(),
        })
    }
}
