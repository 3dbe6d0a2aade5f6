//! Bytes → frames: where one message of a body ends and the next begins, whatever the messages mean.
//!
//! A framer takes bytes as they come, cut anywhere, and calls back once per frame. It enforces its cap *while waiting*
//! for a delimiter, so a peer that never sends one cannot make it grow. It has no error: what is malformed is skipped
//! and reported as an [`Anomaly`].

mod sniff;
mod sse;
mod whole;

use sniff::Sniffer;
pub use sse::Sse;
pub use whole::Whole;

/// The largest frame that is read, in bytes. The largest event seen in the wild is 101 KB (a Responses event that
/// repeats instructions and tools); ten times that is still nothing a peer could hurt with.
pub const CAP: usize = 1 << 20;

/// Cuts one body into frames. Which framing it is shows in the first bytes: content types lie (streams declared as JSON,
/// JSON errors declared as streams), so the declared one only decides where the bytes do not.
#[derive(Debug)]
pub enum Framer {
    /// Too little was seen to tell.
    Unknown(Sniffer),
    Sse(Sse),
    Whole(Whole),
}

impl Framer {
    pub fn new(content_type: Option<&str>) -> Self {
        Self::Unknown(Sniffer::new(content_type))
    }

    /// Takes the next bytes of the body and calls `out` for every frame that they complete.
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        match self {
            Self::Unknown(sniffer) => {
                let Some(found) = sniffer.push(bytes) else {
                    return;
                };
                let held = sniffer.held();
                *self = Self::of(found.stream);
                self.push(&held, out);
                self.push(found.rest, out);
            }
            Self::Sse(sse) => sse.push(bytes, out),
            Self::Whole(whole) => whole.push(bytes, out),
        }
    }

    /// The body is over: what stands unfinished is handed out as far as it can be read.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        match self {
            Self::Unknown(sniffer) => {
                let held = sniffer.held();
                if !held.is_empty() {
                    *self = Self::of(sniffer.declared_stream());
                    self.push(&held, out);
                    self.finish(out);
                }
            }
            Self::Sse(sse) => sse.finish(out),
            Self::Whole(whole) => whole.finish(out),
        }
    }

    /// Bytes were lost here. A stream is read again from the next frame on; a whole body is given up.
    pub fn gap(&mut self) {
        match self {
            Self::Unknown(sniffer) => *self = Self::of(sniffer.declared_stream()),
            Self::Sse(_) | Self::Whole(_) => {}
        }
        match self {
            Self::Unknown(_) => {}
            Self::Sse(sse) => sse.gap(),
            Self::Whole(whole) => whole.gap(),
        }
    }

    /// Whether the body is a stream of messages; `None` until enough of it was seen.
    pub fn is_stream(&self) -> Option<bool> {
        match self {
            Self::Unknown(_) => None,
            Self::Sse(_) => Some(true),
            Self::Whole(_) => Some(false),
        }
    }

    fn of(stream: bool) -> Self {
        if stream {
            Self::Sse(Sse::new(CAP))
        } else {
            Self::Whole(Whole::default())
        }
    }
}

/// One message of a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Frame<'a> {
    /// One dispatched server-sent event: its `event:` field (empty where it had none) and its `data:` lines joined by
    /// newlines. UTF-8 is not checked here.
    Event { name: &'a [u8], data: &'a [u8] },
    /// A piece of a body that is one message as a whole.
    Piece(&'a [u8]),
    /// The body that came in pieces is over.
    Whole,
    /// Something was odd; what it stood in is skipped.
    Odd(Anomaly),
}

/// What was odd in what went by: counted and carried in the record, never an error.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Anomaly {
    /// A frame was larger than the cap and was skipped to its end.
    Oversize,
    /// A frame was not the JSON that its dialect wants.
    BadJson,
    /// Text was not UTF-8.
    BadText,
    /// The body ended inside a frame.
    Unterminated,
    /// Bytes were lost before the observer saw them.
    Gap,
    /// A content-encoding that is not understood, or whose data is broken.
    Encoding,
    /// The exchange's stages broke off by a panic; what was known before it still counts.
    Panic,
}

impl Anomaly {
    pub const ALL: [Self; 7] = [
        Self::Oversize,
        Self::BadJson,
        Self::BadText,
        Self::Unterminated,
        Self::Gap,
        Self::Encoding,
        Self::Panic,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Oversize => "oversize",
            Self::BadJson => "bad_json",
            Self::BadText => "bad_text",
            Self::Unterminated => "unterminated",
            Self::Gap => "gap",
            Self::Encoding => "encoding",
            Self::Panic => "panic",
        }
    }
}

#[cfg(test)]
mod tests;
