//! Reads an AWS event stream message that exceeds the size limit. The payload is shortened while it arrives.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc32fast::Hasher;

use super::{CHECKSUM_BYTES, PRELUDE_BYTES, Prelude, headers};
use crate::frame::shortener::Shortener;
use crate::frame::shortener::append;
use crate::frame::{Frame, ParseError};

/// Divides the size limit of a frame. The quotient is the size limit of the headers: 128 KiB for 1 MiB, as AWS states.
const HEADERS_DIVISOR: usize = 8;

/// Divides the size limit of a frame. The quotient is the size limit of a message that is wrapped in another one. Its
/// shortened form must fit into the shortened form of the other one, in base64.
const WRAPPED_DIVISOR: usize = 4;

/// Event type of a part of another stream, which SageMaker splits at any position.
const PART: &[u8] = b"PayloadPart";

/// Number of base64 characters that are decoded at a time.
const CHARACTERS: usize = 1024;

/// A message that is too large for the buffer.
#[derive(Debug)]
pub struct LargeMessage {
    cap: usize,
    prelude: Prelude,
    /// Number of bytes of the message so far.
    position: usize,
    hasher: Hasher,
    headers: Vec<u8>,
    payload: Payload,
    checksum: Vec<u8>,
}

#[derive(Debug)]
enum Payload {
    Json(Shortener),
    /// Bedrock's `{"bytes": BASE64}`, which contains the JSON of the model.
    Wrapped(Shortener, Option<Base64>),
    /// A part of another stream, which is emitted in smaller parts.
    Part(Vec<u8>),
}

impl LargeMessage {
    /// Creates a reader of a message. `cap` is the size limit of a frame. Returns `None` if the headers are too large.
    pub fn new(prelude: Prelude, cap: usize) -> Option<Self> {
        (prelude.headers <= cap / HEADERS_DIVISOR).then(|| Self {
            cap,
            prelude,
            position: 0,
            hasher: Hasher::new(),
            headers: Vec::new(),
            payload: Payload::Json(Shortener::new(cap)),
            checksum: Vec::with_capacity(CHECKSUM_BYTES),
        })
    }

    pub fn capacity(&self) -> usize {
        self.headers.capacity()
            + match &self.payload {
                Payload::Json(json) => json.capacity(),
                Payload::Wrapped(json, inner) => {
                    json.capacity() + inner.as_ref().map_or(0, |inner| inner.json.capacity())
                }
                Payload::Part(part) => part.capacity(),
            }
    }

    /// Reads the next bytes of the message. Returns the bytes after the message.
    pub fn push<'a>(&mut self, bytes: &'a [u8], out: &mut impl FnMut(Frame<'_>)) -> &'a [u8] {
        let headers_end = PRELUDE_BYTES + self.prelude.headers;
        let payload_end = self.prelude.total - CHECKSUM_BYTES;
        let mut rest = bytes;
        while !rest.is_empty() && !self.is_complete() {
            let ends = [PRELUDE_BYTES, headers_end, payload_end, self.prelude.total];
            let end = ends.into_iter().find(|end| self.position < *end).unwrap_or_default();
            let (piece, after) = rest.split_at_checked(end - self.position).unwrap_or((rest, b""));
            rest = after;
            self.position += piece.len();
            if end == self.prelude.total {
                self.checksum.extend_from_slice(piece);
                continue;
            }
            self.hasher.update(piece);
            if end == headers_end && end > PRELUDE_BYTES {
                self.headers.extend_from_slice(piece);
            } else if end == payload_end {
                self.payload.push(piece, self.cap, out);
            }
            if self.position == headers_end {
                self.payload = Payload::new(&self.headers, self.cap);
                if !matches!(self.payload, Payload::Part(_)) {
                    out(Frame::ParseError(ParseError::Oversize));
                }
            }
        }
        rest
    }

    pub const fn is_complete(&self) -> bool {
        self.position == self.prelude.total
    }

    /// Ends the message. Returns `false` if its checksum is wrong.
    pub fn finish(self, out: &mut impl FnMut(Frame<'_>)) -> bool {
        if self.checksum != self.hasher.finalize().to_be_bytes() {
            return false;
        }
        let payload = match self.payload {
            Payload::Json(json) | Payload::Wrapped(json, _) => json.finish(),
            Payload::Part(part) => Some(part),
        };
        let error = Frame::ParseError(ParseError::BadFrame);
        let frame = headers::frame(&self.headers, payload.as_deref().unwrap_or_default());
        let frame = frame.unwrap_or(error);
        // Otherwise the message was reported as too large, and nothing is left of its payload.
        if payload.is_some() || !matches!(frame, Frame::Event { .. }) {
            out(frame);
        }
        true
    }
}

impl Payload {
    /// Creates a reader for the payload of a message with these headers.
    fn new(headers: &[u8], cap: usize) -> Self {
        match headers::frame(headers, b"") {
            Some(Frame::Event { name: PART, .. }) => Self::Part(Vec::new()),
            Some(Frame::Event { name: b"chunk", .. }) => Self::Wrapped(Shortener::new(cap), None),
            Some(_) | None => Self::Json(Shortener::new(cap)),
        }
    }

    fn push(&mut self, piece: &[u8], cap: usize, out: &mut impl FnMut(Frame<'_>)) {
        match self {
            Self::Json(json) => json.push(piece),
            Self::Wrapped(json, inner) => push_wrapped(json, inner, piece, cap),
            Self::Part(part) => push_part(part, piece, cap, out),
        }
    }
}

/// Emits the part in pieces of one size, which does not depend on how the message arrives. The last piece stays.
fn push_part(part: &mut Vec<u8>, piece: &[u8], cap: usize, out: &mut impl FnMut(Frame<'_>)) {
    let length = cap.saturating_sub(PART.len()).max(1);
    let mut rest = piece;
    while !rest.is_empty() {
        let (next, after) = rest.split_at_checked(length - part.len()).unwrap_or((rest, b""));
        append(part, next, length);
        rest = after;
        if part.len() == length {
            out(Frame::Event { name: PART, data: &std::mem::take(part) });
        }
    }
}

fn push_wrapped(json: &mut Shortener, inner: &mut Option<Base64>, piece: &[u8], cap: usize) {
    let mut rest = piece;
    loop {
        if inner.is_none() {
            let Some(after) = json.push_to_wrapped(rest) else {
                return;
            };
            rest = after;
        }
        let Some(after) = inner.get_or_insert_with(|| Base64::new(cap)).push(rest) else {
            return;
        };
        rest = after;
        if let Some(inner) = inner.take() {
            json.end_wrapped(inner.finish().as_bytes());
        }
    }
}

/// Decodes and shortens a JSON message in base64.
#[derive(Debug)]
struct Base64 {
    json: Shortener,
    /// Characters that are not decoded yet.
    characters: Vec<u8>,
    is_broken: bool,
}

impl Base64 {
    fn new(cap: usize) -> Self {
        let json = Shortener::new(cap / WRAPPED_DIVISOR);
        Self { json, characters: Vec::with_capacity(CHARACTERS), is_broken: false }
    }

    /// Reads the next characters. Returns the bytes after the closing quote, or `None` if the quote has not arrived.
    fn push<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            match byte {
                b'"' => return Some(rest),
                // Some encoders escape each slash.
                b'\\' => {}
                _ => self.characters.push(*byte),
            }
            if self.characters.len() == CHARACTERS {
                self.decode();
            }
        }
        None
    }

    fn decode(&mut self) {
        let mut plain = [0; CHARACTERS];
        match STANDARD.decode_slice(&self.characters, &mut plain) {
            Ok(length) => self.json.push(plain.get(..length).unwrap_or_default()),
            Err(_) => self.is_broken = true,
        }
        self.characters.clear();
    }

    /// Returns the shortened message in base64. The text is empty if the message could not be shortened.
    fn finish(mut self) -> String {
        self.decode();
        let short = self.json.finish().filter(|_| !self.is_broken);
        STANDARD.encode(short.unwrap_or_default())
    }
}
