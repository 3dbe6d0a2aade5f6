//! Bytes → frames: where one message of a body ends and the next begins, whatever the messages mean.
//!
//! A framer takes bytes as they come, cut anywhere, and calls back once per frame. It enforces its cap *while waiting*
//! for a delimiter, so a peer that never sends one cannot make it grow. It has no error: what is malformed is skipped
//! and reported as an [`Anomaly`].

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
