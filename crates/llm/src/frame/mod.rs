//! Bytes → frames: where one message of a body ends and the next begins, whatever the messages mean.
//!
//! A framer takes bytes as they come, cut anywhere, and calls back once per frame. What lies whole within one push is
//! handed out where it lies; only what is unfinished is kept. It enforces its cap *while waiting* for a delimiter, so a
//! peer that never sends one cannot make it grow. It has no error: what is malformed is skipped and reported as an
//! [`ParseError`].

mod aws_event_stream;
mod held;
mod json_array;
mod json_lines;
mod scan;
mod single;
mod sniff;
mod sse;
mod websocket;

pub use aws_event_stream::AwsEventStream;
#[cfg(test)]
pub(crate) use aws_event_stream::encode;
pub use json_array::JsonArray;
pub use json_lines::JsonLines;
pub use single::SingleMessage;
use sniff::{Framing, Sniffer};
pub use sse::Sse;
pub use websocket::{Message, SkipReason, WebSocket};

/// The largest frame that is read, in bytes. The largest event seen in the wild is 101 KB (a Responses event that
/// repeats instructions and tools); ten times that is still nothing a peer could hurt with.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// Cuts one body into frames. Which framing it is shows in the first bytes: content types lie (streams declared as JSON,
/// JSON errors declared as streams), so the declared one only decides where the bytes do not.
#[derive(Debug)]
pub enum Framer {
    /// Too little was seen to tell.
    Unknown(Sniffer),
    Sse(Sse),
    JsonLines(JsonLines),
    JsonArray(JsonArray),
    AwsEventStream(AwsEventStream),
    SingleMessage(SingleMessage),
}

impl Framer {
    /// `json`: what JSON at the body's top level means in the API that answers.
    pub fn new(content_type: Option<&str>, json: JsonFraming) -> Self {
        Self::Unknown(Sniffer::new(content_type, json))
    }

    /// Takes the next bytes of the body and calls `out` for every frame that they complete.
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
            Self::JsonLines(lines) => lines.push(bytes, out),
            Self::JsonArray(elements) => elements.push(bytes, out),
            Self::AwsEventStream(aws) => aws.push(bytes, out),
            Self::SingleMessage(whole) => whole.push(bytes, out),
        }
    }

    /// The body is over: what stands unfinished is handed out as far as it can be read.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        match self {
            Self::Unknown(sniffer) => {
                let held = sniffer.held();
                let declared = sniffer.declared();
                if held.is_empty() && declared != Framing::Single {
                    // Nothing shows that the content type is wrong: a stream of no messages.
                    *self = Self::of(declared);
                } else if !held.is_empty() {
                    *self = Self::of(sniffer.settle(&held));
                    self.push(&held, out);
                    self.finish(out);
                }
            }
            Self::Sse(sse) => sse.finish(out),
            Self::JsonLines(lines) => lines.finish(out),
            Self::JsonArray(elements) => elements.finish(out),
            Self::AwsEventStream(aws) => aws.finish(out),
            Self::SingleMessage(whole) => whole.finish(out),
        }
    }

    /// Bytes were lost here. Events and lines are read again from the next one on; what has no delimiter to pick up
    /// from is given up.
    pub fn gap(&mut self) {
        if let Self::Unknown(sniffer) = self {
            *self = Self::of(sniffer.declared());
        }
        match self {
            Self::Unknown(_) => {}
            Self::Sse(sse) => sse.gap(),
            Self::JsonLines(lines) => lines.gap(),
            Self::JsonArray(elements) => elements.gap(),
            Self::AwsEventStream(aws) => aws.gap(),
            Self::SingleMessage(whole) => whole.gap(),
        }
    }

    /// Whether the body is a stream of messages; `None` until enough of it was seen.
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
            Framing::Lines => Self::JsonLines(JsonLines::new(MAX_FRAME_BYTES)),
            Framing::Array => Self::JsonArray(JsonArray::new(MAX_FRAME_BYTES)),
            Framing::Aws => Self::AwsEventStream(AwsEventStream::new(MAX_FRAME_BYTES)),
            Framing::Single => Self::SingleMessage(SingleMessage::default()),
        }
    }
}

/// What JSON values at the top level of a body mean in an API, where the content type does not decide.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JsonFraming {
    /// The body is one message, whatever it begins with.
    Single,
    /// Values that follow one another are a stream (Ollama, Cohere v1).
    Lines,
    /// `[` begins a stream of its elements (Gemini without `alt=sse`), `{` a body that is one message.
    Array,
}

/// One message of a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Frame<'a> {
    /// One message of a stream. UTF-8 is not checked here.
    ///
    /// - A dispatched server-sent event: its `event:` field (empty where it had none) and its `data:` lines joined by
    ///   newlines.
    /// - A JSON value of a stream of lines, or an element of a streamed array: no name.
    /// - A message of AWS's event-stream: its `:event-type` and its payload.
    Event { name: &'a [u8], data: &'a [u8] },
    /// A message of AWS's event-stream that says that the stream failed: its `:exception-type` or `:error-code`, and
    /// its payload, or its `:error-message` where it has that instead.
    Exception { name: &'a [u8], data: &'a [u8] },
    /// A line among server-sent events that is no field of theirs and looks like JSON, without its line end. Google
    /// writes `{"error": …}` raw and pretty-printed into the middle of a stream, llama.cpp `error: {…}`, of which this is
    /// what stands after the name.
    BareJson(&'a [u8]),
    /// A piece of a body that is one message as a whole.
    BodyChunk(&'a [u8]),
    /// The body that came in pieces is over.
    BodyEnd,
    /// Something was odd; what it stood in is skipped.
    ParseError(ParseError),
}

/// What was odd in what went by: counted and carried in the record, never an error.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ParseError {
    /// A frame was larger than the cap and was skipped to its end.
    Oversize,
    /// A frame's checksum does not hold, or it is not laid out as its framing wants (AWS event-stream, WebSocket).
    BadFrame,
    /// A frame was not the JSON that its dialect wants.
    BadJson,
    /// Text was not UTF-8.
    BadText,
    /// The body ended inside a frame, or before the array was closed whose elements are its frames.
    Unterminated,
    /// Bytes were lost before the observer saw them.
    Gap,
    /// A content-encoding that is not understood, or whose data is broken or ends too soon.
    Encoding,
    /// A body inflates to more, or needs more memory for it, than is allowed; it is not read from there on.
    Inflation,
    /// The exchange's stages broke off by a panic; what was known before it still counts.
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
        Self::Inflation,
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
            Self::Inflation => "inflation",
            Self::Panic => "panic",
        }
    }
}

#[cfg(test)]
mod tests;
