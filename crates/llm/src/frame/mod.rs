//! Splits a body into frames: server-sent events, JSON values, AWS event stream messages or WebSocket messages.
//!
//! A framer does not interpret the messages. It accepts bytes split at any position and calls back once per frame. A
//! frame that arrives complete in one push is passed on without a copy, and only incomplete frames are buffered. The
//! size limit applies *while the framer waits* for the end of a frame, so a missing delimiter cannot exhaust memory. A
//! framer never fails: it skips malformed input and reports a [`ParseError`].

mod aws_event_stream;
mod budgeted;
mod frame_buffer;
mod json_values;
pub(crate) mod scan;
mod shortener;
mod single;
mod sniff;
mod sse;
mod websocket;

pub use aws_event_stream::AwsEventStream;
pub use budgeted::BudgetedFramer;
pub use json_values::JsonValues;
pub use single::SingleMessage;
pub use sniff::is_foreign_media_type;
use sniff::{Framing, Sniffer};
pub use sse::Sse;
pub use websocket::{Message, SkipReason, WebSocket};

use tokengauge_types::label_enum;

/// Maximum size of a frame (one message) in bytes. The largest event without an image, audio or a file that was seen in
/// production has 101 KB: a Responses event that repeats instructions and tools. Ten times this size is still harmless.
/// A larger frame is shortened.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// Splits a body into frames (messages). The first bytes of the body determine the format, because content types are
/// unreliable: some servers declare streams as JSON, or JSON errors as streams. The content type decides only if the
/// first bytes fit several formats.
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
    /// Creates a framer. `json` states whether a JSON body of this API is one document, an array of messages, or lines.
    pub fn new(content_type: Option<&str>, json: JsonFraming) -> Self {
        Self::Unknown(Sniffer::new(content_type, json))
    }

    /// Parses the next bytes of the body, and calls `out` for every frame that is now complete.
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        match self {
            Self::Unknown(sniffer) => {
                let Some((framing, rest)) = sniffer.push(bytes) else {
                    return;
                };
                let buffered = sniffer.take_buffered();
                *self = Self::from_framing(framing);
                self.push(&buffered, out);
                self.push(rest, out);
            }
            Self::Sse(sse) => sse.push(bytes, out),
            Self::JsonLines(values) | Self::JsonArray(values) => values.push(bytes, out),
            Self::AwsEventStream(aws) => aws.push(bytes, out),
            Self::SingleMessage(whole) => whole.push(bytes, out),
        }
    }

    /// Ends the body. Emits the readable part of an incomplete frame.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        match self {
            Self::Unknown(sniffer) => {
                let buffered = sniffer.take_buffered();
                let declared = sniffer.declared_framing();
                if buffered.is_empty() && declared != Framing::Single {
                    // The body has no bytes, so the content type is right: the body is a stream without messages.
                    *self = Self::from_framing(declared);
                } else if !buffered.is_empty() {
                    *self = Self::from_framing(sniffer.fallback_framing(&buffered));
                    self.push(&buffered, out);
                    self.finish(out);
                }
            }
            Self::Sse(sse) => sse.finish(out),
            Self::JsonLines(values) | Self::JsonArray(values) => values.finish(out),
            Self::AwsEventStream(aws) => aws.finish(out),
            Self::SingleMessage(whole) => whole.finish(out),
        }
    }

    /// Handles the loss of bytes. Server-sent events and JSON lines continue at the next event or line. For other
    /// formats, the rest of the body is ignored, because the start of the next frame is unknown.
    pub fn gap(&mut self) {
        if let Self::Unknown(sniffer) = self {
            *self = Self::from_framing(sniffer.declared_framing());
        }
        match self {
            Self::Unknown(_) => {}
            Self::Sse(sse) => sse.gap(),
            Self::JsonLines(values) | Self::JsonArray(values) => values.gap(),
            Self::AwsEventStream(aws) => aws.gap(),
            Self::SingleMessage(whole) => whole.gap(),
        }
    }

    /// Returns whether the body is a stream of messages. Returns `None` until enough bytes have arrived.
    pub fn is_stream(&self) -> Option<bool> {
        match self {
            Self::Unknown(_) => None,
            Self::Sse(_) | Self::JsonLines(_) | Self::JsonArray(_) | Self::AwsEventStream(_) => {
                Some(true)
            }
            Self::SingleMessage(_) => Some(false),
        }
    }

    /// Returns the allocated bytes of an incomplete frame.
    pub fn held_bytes(&self) -> usize {
        match self {
            Self::Unknown(sniffer) => sniffer.capacity(),
            Self::Sse(sse) => sse.capacity(),
            Self::JsonLines(values) | Self::JsonArray(values) => values.capacity(),
            Self::AwsEventStream(aws) => aws.capacity(),
            Self::SingleMessage(_) => 0,
        }
    }

    fn from_framing(framing: Framing) -> Self {
        match framing {
            Framing::Sse => Self::Sse(Sse::new(MAX_FRAME_BYTES)),
            Framing::Lines => Self::JsonLines(JsonValues::lines(MAX_FRAME_BYTES)),
            Framing::Array => Self::JsonArray(JsonValues::array(MAX_FRAME_BYTES)),
            Framing::Aws => Self::AwsEventStream(AwsEventStream::new(MAX_FRAME_BYTES)),
            Framing::Single => Self::SingleMessage(SingleMessage::default()),
        }
    }
}

/// How an API uses JSON at the top level of a response. A content type for JSON lines overrides `Single` and `Lines`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JsonFraming {
    /// The body is one message, even if its first byte is `[`.
    Single,
    /// The body consists of JSON values, which are the messages of a stream (Ollama, Cohere v1).
    Lines,
    /// A body that begins with `[` is a stream, and each element of the array is a message (Gemini without `alt=sse`).
    /// A body that begins with `{` is one message.
    Array,
}

/// One message of a body, or a part of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Frame<'a> {
    /// One message of a stream. The framer does not check that it is valid UTF-8.
    ///
    /// - Server-sent event: `name` is the `event:` field, or empty without this field. `data` is the `data:` lines,
    ///   joined by newlines.
    /// - JSON line or element of a streamed array: `name` is empty.
    /// - Message of an AWS event stream: `name` is the `:event-type`, and `data` is the payload.
    Event { name: &'a [u8], data: &'a [u8] },
    /// A message of an AWS event stream that reports a failure. `name` is the `:exception-type` or `:error-code`.
    /// `data` is the payload, or the `:error-message` of an error without payload.
    Exception { name: &'a [u8], data: &'a [u8] },
    /// A line between server-sent events that looks like JSON, without its line end. Google writes a pretty-printed
    /// `{"error": …}` into the middle of a stream. For `error: {…}` from llama.cpp, this is the text after `error:`.
    BareJson(&'a [u8]),
    /// A piece of a body that is a single message.
    BodyChunk(&'a [u8]),
    /// The end of a single message, after its [`BodyChunk`](Self::BodyChunk) frames.
    BodyEnd,
    /// A parse error. The framer skips the affected input.
    ParseError(ParseError),
}

label_enum! {
    /// A problem in the bytes of a request or response. The problem is counted and reported in the request record, and
    /// never fails the request.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub enum ParseError {
        /// A frame exceeded the size limit. Its long strings were left out, or the whole frame if it is not JSON.
        Oversize = "oversize",
        /// A frame has a wrong checksum or violates its framing format (AWS event stream, WebSocket).
        BadFrame = "bad_frame",
        /// A frame is not the JSON that its API format requires, or a value has a type without a meaning.
        BadJson = "bad_json",
        /// Text is not valid UTF-8.
        BadText = "bad_text",
        /// A count, such as a number of tokens, is negative, not whole, or implausibly large. The count is ignored.
        BadCount = "bad_count",
        /// The body ended inside a frame, or before the end of a streamed array. Reported only if HTTP delivered the
        /// whole body.
        Unterminated = "unterminated",
        /// Bytes were lost before the observer received them.
        Gap = "gap",
        /// The content encoding is unknown, or the encoded data is corrupt or incomplete.
        Encoding = "encoding",
        /// The decompressed size or the window exceeds its limit. The rest of the body is ignored.
        DecompressionLimit = "decompression_limit",
        /// A part of the body exceeded the memory or the decompressed bytes that all requests share. This part is
        /// ignored.
        Budget = "budget",
        /// A parser panicked. The data collected before the panic still counts.
        Panic = "panic",
    }
}

impl ParseError {
    /// Counts one more occurrence of this kind in `counts`.
    pub fn add_to(self, counts: &mut Vec<(Self, u32)>) {
        self.add_times(1, counts);
    }

    /// Counts several occurrences of this kind in `counts`.
    pub fn add_times(self, times: u32, counts: &mut Vec<(Self, u32)>) {
        match counts.iter_mut().find(|(known, _)| *known == self) {
            _ if times == 0 => {}
            Some((_, count)) => *count = count.saturating_add(times),
            None => counts.push((self, times)),
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::encode;
