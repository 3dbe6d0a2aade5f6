//! An answer in a model's own format, whichever that is.
//!
//! A model's identifier may name its vendor, or be the name of a profile, an endpoint or a copy that hides it, and one
//! vendor's models speak several formats. The answer itself tells: by the first of its keys that only one format has.

use super::{converse, native};
use crate::dialect::json::Step::{At, Key};
use crate::dialect::json::{Skimmer, Step, Value};
use crate::dialect::{Api, Event, anthropic, openai};
use crate::frame::Frame;

/// The most bytes of a whole answer that are held until its format shows. It shows within the first few keys; what has
/// none of them by then has nothing that is read.
const HELD: usize = 1 << 14;

/// The keys that tell.
const KEYS: &[&str] = &[
    "message",
    "content_block",
    "delta",
    "content",
    "completion",
    "choices",
    "text",
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
    "metadata",
    "output",
    "outputText",
    "results",
    "inputTextTokenCount",
    "generation",
    "outputs",
    "generations",
    "event_type",
    "is_finished",
    "completions",
    "token",
    "generated_text",
    "generated_texts",
    "embedding",
    "embeddings",
];

/// Reads an answer whose format is told by itself.
#[derive(Debug)]
pub enum Inner {
    Unknown(Box<Sniff>),
    Anthropic(Box<anthropic::Response>),
    OpenAi(Box<openai::Response>),
    Nova(Box<converse::NovaResponse>),
    Native(Box<native::Response>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Format {
    Anthropic,
    OpenAiChat,
    OpenAiCompletions,
    Nova,
    Native,
}

/// What of a whole answer came before its format showed.
#[derive(Debug)]
pub struct Sniff {
    skimmer: Skimmer,
    held: Vec<u8>,
}

impl Default for Sniff {
    fn default() -> Self {
        Self { skimmer: Skimmer::new(KEYS), held: Vec::new() }
    }
}

impl Sniff {
    fn push(&mut self, bytes: &[u8]) -> Option<Format> {
        let mut found = None;
        self.skimmer.push(bytes, &mut |path, value| {
            found = found.or_else(|| format(path, value));
        });
        found
    }
}

impl Inner {
    /// `failed`: the status says that the answer is an error and nothing else; those are alike in all formats.
    pub fn new(failed: bool) -> Self {
        if failed {
            Self::Native(Box::new(native::Response::new(true)))
        } else {
            Self::Unknown(Box::default())
        }
    }

    pub fn read(&mut self, frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        match self {
            Self::Unknown(sniff) => match frame {
                Frame::Event { data, .. } => self.first(data, frame, out),
                Frame::Piece(bytes) => {
                    let found = sniff.push(bytes);
                    sniff.held.extend_from_slice(bytes);
                    if found.is_some() || sniff.held.len() > HELD {
                        self.settle(found, out);
                    }
                }
                Frame::Exception { .. } | Frame::Whole => {
                    self.settle(None, out);
                    self.read(frame, out);
                }
                Frame::Stray(_) | Frame::Odd(_) => {}
            },
            Self::Anthropic(response) => response.read(frame, out),
            Self::OpenAi(response) => response.read(frame, out),
            Self::Nova(response) => response.read(frame, out),
            Self::Native(response) => response.read(frame, out),
        }
    }

    /// Takes a message of a stream none of whose messages has told its format yet. One that tells nothing (a ping) says
    /// nothing, either, but may be broken, or an error.
    fn first(&mut self, data: &[u8], frame: &Frame<'_>, out: &mut impl FnMut(Event<'_>)) {
        match Sniff::default().push(data) {
            Some(format) => {
                *self = Self::of(format);
                self.read(frame, out);
            }
            None => native::Response::new(false).read(frame, out),
        }
    }

    /// Goes over to the format that was found, with what was held.
    fn settle(&mut self, found: Option<Format>, out: &mut impl FnMut(Event<'_>)) {
        let format = found.unwrap_or(Format::Native);
        if let Self::Unknown(sniff) = std::mem::replace(self, Self::of(format))
            && !sniff.held.is_empty()
        {
            self.read(&Frame::Piece(&sniff.held), out);
        }
    }

    fn of(format: Format) -> Self {
        let openai = |api| Self::OpenAi(Box::new(openai::Response::new(api, false)));
        match format {
            Format::Anthropic => Self::Anthropic(Box::new(anthropic::Response::new(false))),
            Format::OpenAiChat => openai(Api::OpenAiChat),
            Format::OpenAiCompletions => openai(Api::OpenAiCompletions),
            Format::Nova => Self::Nova(Box::new(converse::NovaResponse::new(false))),
            Format::Native => Self::Native(Box::new(native::Response::new(false))),
        }
    }
}

/// The format that has a value there.
fn format(path: &[Step], value: Value<'_>) -> Option<Format> {
    let path = match path {
        [At(_), rest @ ..] if !rest.is_empty() => rest,
        // Lists are of servers that embed or generate for several inputs at once.
        [At(_)] if value != Value::Object => return Some(Format::Native),
        _ => path,
    };
    Some(match path {
        [Key("choices"), At(_), Key("text")] if value != Value::Null => Format::OpenAiCompletions,
        [Key("choices"), At(_), Key("message" | "delta")] => Format::OpenAiChat,
        [Key("choices")] if value == Value::End => Format::OpenAiChat,
        [Key("message")] if value != Value::Object => return None,
        [Key("message" | "content_block" | "delta" | "content" | "completion")] => {
            Format::Anthropic
        }
        [
            Key(
                "messageStart" | "contentBlockStart" | "contentBlockDelta" | "contentBlockStop"
                | "messageStop" | "metadata" | "output",
            ),
        ] => Format::Nova,
        [Key("choices"), ..] | [] | [At(_)] => return None,
        [Key(key)] if !key.is_empty() => Format::Native,
        _ => return None,
    })
}
