//! Parses the AWS event stream format (`application/vnd.amazon.eventstream`): binary messages that begin with their
//! lengths.
//!
//! ```text
//! total length · length of headers · CRC-32 of these two │ headers │ payload │ CRC-32 of everything before
//!     u32               u32                 u32                                       u32
//! ```
//!
//! Integers are big-endian. A message above the size limit is shortened while it arrives. No marker shows where a
//! message begins. If a checksum is wrong, the lengths are therefore unreliable, and the rest of the body is ignored.

mod headers;
mod large;

use large::LargeMessage;

use super::frame_buffer::FrameBuffer;
use super::{Frame, ParseError};

/// Size in bytes of the start of a message (the prelude): two lengths and their checksum.
pub const PRELUDE_BYTES: usize = 12;

/// Size in bytes of the checksum at the end of a message.
const CHECKSUM_BYTES: usize = 4;

#[derive(Debug)]
pub struct AwsEventStream {
    /// Lengths of the current message. `None` until the start of the message (the prelude) has arrived.
    message: Option<Prelude>,
    buffer: FrameBuffer,
    /// A message above the size limit.
    large: Option<Box<LargeMessage>>,
    /// Number of bytes to skip before the next message.
    skip: usize,
    /// Whether the rest of the body is ignored, because the start of the next message is unknown.
    lost: bool,
}

/// The lengths that a message announces.
#[derive(Clone, Copy, Debug)]
pub struct Prelude {
    total: usize,
    headers: usize,
}

impl Prelude {
    /// Parses the start of a message. Returns `None` if the checksum or the lengths are invalid.
    pub fn read(bytes: &[u8; PRELUDE_BYTES]) -> Option<Self> {
        let (lengths, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
        let (total, headers) = lengths.split_first_chunk()?;
        if crc32fast::hash(lengths) != u32::from_be_bytes(*checksum) {
            return None;
        }
        let prelude = Self { total: length(total), headers: length(headers.first_chunk()?) };
        let around = prelude.total.checked_sub(prelude.headers)?;
        (around >= PRELUDE_BYTES + CHECKSUM_BYTES).then_some(prelude)
    }
}

impl AwsEventStream {
    /// Creates a parser for messages of at most `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Self { message: None, buffer: FrameBuffer::new(cap), large: None, skip: 0, lost: false }
    }

    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() && !self.lost {
            rest = match self.message {
                Some(prelude) => self.read_message(prelude, rest, out),
                None if self.large.is_some() => self.read_large(rest, out),
                None if self.skip > 0 => self.skip_bytes(rest),
                None => self.read_prelude(rest, out),
            };
        }
    }

    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        if self.buffer.len() > 0 || self.large.is_some() || self.skip > 0 {
            out(Frame::ParseError(ParseError::Unterminated));
        }
        *self = Self::new(self.buffer.cap());
    }

    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity() + self.large.as_ref().map_or(0, |large| large.capacity())
    }

    fn skip_bytes<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let count = self.skip.min(bytes.len());
        self.skip -= count;
        bytes.get(count..).unwrap_or_default()
    }

    /// Parses the start of the next message (the prelude). The prelude is not consumed, because it is a part of the
    /// message.
    fn read_prelude<'a>(&mut self, bytes: &'a [u8], out: &mut impl FnMut(Frame<'_>)) -> &'a [u8] {
        let Some(lead) = self.buffer.first_bytes(bytes) else {
            self.buffer.push(bytes, out);
            return &[];
        };
        match Prelude::read(&lead) {
            None => {
                self.gap();
                out(Frame::ParseError(ParseError::BadFrame));
            }
            Some(prelude) if prelude.total > self.buffer.cap() => self.begin_large(prelude, out),
            Some(prelude) => self.message = Some(prelude),
        }
        bytes
    }

    fn begin_large(&mut self, prelude: Prelude, out: &mut impl FnMut(Frame<'_>)) {
        let start = self.buffer.take();
        self.large = LargeMessage::new(prelude, self.buffer.cap()).map(Box::new);
        match &mut self.large {
            // The start is a part of the prelude.
            Some(large) => drop(large.push(&start, out)),
            None => {
                self.skip = prelude.total - start.len();
                out(Frame::ParseError(ParseError::Oversize));
            }
        }
    }

    fn read_large<'a>(&mut self, bytes: &'a [u8], out: &mut impl FnMut(Frame<'_>)) -> &'a [u8] {
        let Some(large) = &mut self.large else {
            return bytes;
        };
        let rest = large.push(bytes, out);
        if large.is_complete()
            && let Some(large) = self.large.take()
            && !large.finish(out)
        {
            self.gap();
            out(Frame::ParseError(ParseError::BadFrame));
        }
        rest
    }

    fn read_message<'a>(
        &mut self,
        prelude: Prelude,
        bytes: &'a [u8],
        out: &mut impl FnMut(Frame<'_>),
    ) -> &'a [u8] {
        let missing = prelude.total - self.buffer.len();
        let Some((piece, rest)) = bytes.split_at_checked(missing) else {
            self.buffer.push(bytes, out);
            return &[];
        };
        self.message = None;
        if let Some(message) = self.buffer.finish(piece, out) {
            match verified(&message) {
                Some(message) => out(read(prelude, message)),
                None => {
                    self.gap();
                    out(Frame::ParseError(ParseError::BadFrame));
                }
            }
        }
        rest
    }

    /// Handles the loss of bytes. The rest of the body is ignored, because the start of the next message is unknown.
    pub fn gap(&mut self) {
        *self = Self::new(self.buffer.cap());
        self.lost = true;
    }
}

/// Returns the message without its checksum. Returns `None` if the checksum is wrong.
fn verified(message: &[u8]) -> Option<&[u8]> {
    let (message, checksum) = message.split_last_chunk()?;
    (crc32fast::hash(message) == u32::from_be_bytes(*checksum)).then_some(message)
}

/// Parses a message whose checksum is valid. If the headers are invalid, only this message is lost.
fn read(prelude: Prelude, message: &[u8]) -> Frame<'_> {
    let parts =
        message.get(PRELUDE_BYTES..).and_then(|rest| rest.split_at_checked(prelude.headers));
    parts
        .and_then(|(headers, payload)| headers::frame(headers, payload))
        .unwrap_or(Frame::ParseError(ParseError::BadFrame))
}

fn length(bytes: &[u8; 4]) -> usize {
    usize::try_from(u32::from_be_bytes(*bytes)).unwrap_or(usize::MAX)
}
