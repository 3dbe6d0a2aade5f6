//! Splits a body into frames, independent of the meaning of the messages.
//!
//! A framer accepts bytes split at any position and calls back once per frame. A frame that arrives complete in one
//! push is passed on without a copy. Only incomplete frames are buffered. The framer enforces its cap *while it waits*
//! for a delimiter, so a missing delimiter cannot exhaust memory. A framer never fails: it skips malformed input and
//! reports a [`ParseError`].

mod aws_event_stream;
mod held;
mod json_values;
mod scan;
mod single;
mod sniff;
mod sse;
mod websocket;

pub use aws_event_stream::AwsEventStream;
#[cfg(test)]
pub(crate) use aws_event_stream::encode;
pub use json_values::JsonValues;
pub use single::SingleMessage;
use sniff::{Framing, Sniffer};
pub use sse::Sse;
pub use websocket::{Message, SkipReason, WebSocket};

/// Maximum size of a frame in bytes. The largest event observed in production is 101 KB. It is a Responses event that
/// repeats instructions and tools. Ten times that size is still harmless.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// Splits one body into frames. The first bytes determine the framing, because content types are unreliable. Some
/// servers declare streams as JSON, or JSON errors as streams. The declared content type decides only if the bytes are
/// ambiguous.
#[derive(Debug)]
pub enum Framer {
    /// Too few bytes have arrived to determine the framing.
    Unknown(Sniffer),
    Sse(Sse),
    JsonLines(JsonValues),
    JsonArray(JsonValues),
    AwsEventStream(AwsEventStream),
    SingleMessage(SingleMessage),
}

impl Framer {
    /// Creates a framer. `json` is the meaning of top-level JSON in the upstream's API.
    pub fn new(content_type: Option<&str>, json: JsonFraming) -> Self {
        Self::Unknown(Sniffer::new(content_type, json))
    }

    /// Parses the next bytes of the body and calls `out` for every frame that they complete.
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        match self {
            Self::Unknown(sniffer) => {
                let Some(found) = sniffer.push(bytes) else {
                    return;
                };
                let held = sniffer.held();
                *self = Self::of(found.framing);
                self.push(&held, out);
                self.push(found.rest, out);
            }
            Self::Sse(sse) => sse.push(bytes, out),
            Self::JsonLines(values) | Self::JsonArray(values) => values.push(bytes, out),
            Self::AwsEventStream(aws) => aws.push(bytes, out),
            Self::SingleMessage(whole) => whole.push(bytes, out),
        }
    }

    /// Ends the body and emits the readable part of an incomplete frame.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        match self {
            Self::Unknown(sniffer) => {
                let held = sniffer.held();
                let declared = sniffer.declared();
                if held.is_empty() && declared != Framing::Single {
                    // No byte contradicts the content type: the body is a stream without messages.
                    *self = Self::of(declared);
                } else if !held.is_empty() {
                    *self = Self::of(sniffer.settle(&held));
                    self.push(&held, out);
                    self.finish(out);
                }
            }
            Self::Sse(sse) => sse.finish(out),
            Self::JsonLines(values) | Self::JsonArray(values) => values.finish(out),
            Self::AwsEventStream(aws) => aws.finish(out),
            Self::SingleMessage(whole) => whole.finish(out),
        }
    }

    /// Records that bytes were lost. Event and line framers resume at the next event or line. Framings without a
    /// delimiter to resume at ignore the rest of the body.
    pub fn gap(&mut self) {
        if let Self::Unknown(sniffer) = self {
            *self = Self::of(sniffer.declared());
        }
        match self {
            Self::Unknown(_) => {}
            Self::Sse(sse) => sse.gap(),
            Self::JsonLines(values) | Self::JsonArray(values) => values.gap(),
            Self::AwsEventStream(aws) => aws.gap(),
            Self::SingleMessage(whole) => whole.gap(),
        }
    }

    /// Returns whether the body is a stream of messages, or `None` until enough bytes have arrived.
    pub fn is_stream(&self) -> Option<bool> {
        match self {
            Self::Unknown(_) => None,
            Self::Sse(_) | Self::JsonLines(_) | Self::JsonArray(_) | Self::AwsEventStream(_) => {
                Some(true)
            }
            Self::SingleMessage(_) => Some(false),
        }
    }

    fn of(framing: Framing) -> Self {
        match framing {
            Framing::Sse => Self::Sse(Sse::new(MAX_FRAME_BYTES)),
            Framing::Lines => Self::JsonLines(JsonValues::lines(MAX_FRAME_BYTES)),
            Framing::Array => Self::JsonArray(JsonValues::array(MAX_FRAME_BYTES)),
            Framing::Aws => Self::AwsEventStream(AwsEventStream::new(MAX_FRAME_BYTES)),
            Framing::Single => Self::SingleMessage(SingleMessage::default()),
        }
    }
}

/// The meaning of top-level JSON values in an API, if the content type does not decide.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JsonFraming {
    /// The body is one message, whatever its first byte.
    Single,
    /// Consecutive values are a stream (Ollama, Cohere v1).
    Lines,
    /// `[` begins a stream of its elements (Gemini without `alt=sse`). `{` begins a body that is one message.
    Array,
}

/// One message of a body, or a part of one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Frame<'a> {
    /// One message of a stream. The framer does not check UTF-8.
    ///
    /// - A server-sent event: `name` is its `event:` field, or empty without one. `data` is its `data:` lines joined by
    ///   newlines.
    /// - A JSON value of a stream of lines, or an element of a streamed array: `name` is empty.
    /// - A message of an AWS event stream: `name` is its `:event-type`, and `data` is its payload.
    Event { name: &'a [u8], data: &'a [u8] },
    /// An AWS event stream message that reports a failure. `name` is its `:exception-type` or `:error-code`. `data` is
    /// its payload, or its `:error-message` if an error has no payload.
    Exception { name: &'a [u8], data: &'a [u8] },
    /// A line between server-sent events that is not a field and looks like JSON, without its line end. Google writes
    /// raw, pretty-printed `{"error": …}` into the middle of a stream. llama.cpp writes `error: {…}`, and then this
    /// frame holds the text after the name.
    BareJson(&'a [u8]),
    /// A piece of a body that is one message.
    BodyChunk(&'a [u8]),
    /// The end of a body that was emitted in pieces.
    BodyEnd,
    /// A parse error. The affected input is skipped.
    ParseError(ParseError),
}

/// A problem in the observed traffic. It is counted and reported in the record, and never fails the request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ParseError {
    /// A frame exceeded the cap and was skipped.
    Oversize,
    /// A frame has a wrong checksum or violates its framing format (AWS event stream, WebSocket).
    BadFrame,
    /// A frame is not the JSON that its API format requires.
    BadJson,
    /// Text is not valid UTF-8.
    BadText,
    /// The body ended inside a frame, or before the end of a streamed array.
    Unterminated,
    /// Bytes were lost before the observer received them.
    Gap,
    /// The content encoding is unknown, or the encoded data is corrupt or incomplete.
    Encoding,
    /// The decompressed size or the required memory exceeds its limit. The rest of the body is ignored.
    DecompressionLimit,
    /// A parsing stage of the exchange panicked. Data collected before the panic still counts.
    Panic,
}

impl ParseError {
    pub const ALL: [Self; 9] = [
        Self::Oversize,
        Self::BadFrame,
        Self::BadJson,
        Self::BadText,
        Self::Unterminated,
        Self::Gap,
        Self::Encoding,
        Self::DecompressionLimit,
        Self::Panic,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Oversize => "oversize",
            Self::BadFrame => "bad_frame",
            Self::BadJson => "bad_json",
            Self::BadText => "bad_text",
            Self::Unterminated => "unterminated",
            Self::Gap => "gap",
            Self::Encoding => "encoding",
            Self::DecompressionLimit => "decompression_limit",
            Self::Panic => "panic",
        }
    }

    /// Adds one occurrence to `counts`.
    pub fn add_to(self, counts: &mut Vec<(Self, u32)>) {
        match counts.iter_mut().find(|(known, _)| *known == self) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => counts.push((self, 1)),
        }
    }
}

#[cfg(test)]
mod tests;
