//! JSON lines: a sequence of JSON values, by convention one per line.
//!
//! Brackets delimit the values, not line ends. The framer emits a value on its closing bracket. A line end, a blank or
//! the next value may follow it, and a value may span several lines. A line that begins with `{` always begins a new
//! value, even if the value before it is incomplete. A broken line therefore never consumes the next one. Text that is
//! not a value extends to the end of its line.

use memchr::memchr;

use super::held::Held;
use super::scan::{Scanner, Stop};
use super::sniff::{RECORD_SEPARATOR, is_blank};
use super::{Frame, ParseError};

#[derive(Debug)]
pub struct JsonLines {
    place: Place,
    scanner: Scanner,
    held: Held,
    /// The last byte ended a line within a value.
    at_line_start: bool,
}

/// The position in the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Between,
    Value,
    /// In a line that does not begin with a self-delimiting value.
    Bare,
    /// In a line that is skipped.
    Lost,
}

impl JsonLines {
    /// Creates a framer for values of at most `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Self {
            place: Place::Between,
            scanner: Scanner::default(),
            held: Held::new(cap),
            at_line_start: false,
        }
    }

    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.place {
                Place::Between => self.begin(rest),
                Place::Value => self.value(rest, out),
                Place::Bare => self.bare(rest, out),
                Place::Lost => self.lost(rest),
            };
        }
    }

    /// Ends the body. The last line needs no line end, but a value in brackets or quotes needs its closing delimiter.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        match self.place {
            Place::Value => out(Frame::ParseError(ParseError::Unterminated)),
            Place::Bare => self.end(b"", out),
            Place::Between | Place::Lost => {}
        }
        *self = Self::new(self.held.cap());
    }

    /// Skips to the next line end, because bytes were lost.
    pub fn gap(&mut self) {
        *self = Self::new(self.held.cap());
        self.place = Place::Lost;
    }

    /// Returns the allocated memory in bytes.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.held.capacity()
    }

    fn begin<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        // The server of old vLLM versions separates values with zero bytes.
        let between = |byte: &u8| is_blank(*byte) || *byte == 0;
        let Some(at) = bytes.iter().position(|byte| !between(byte)) else {
            return &[];
        };
        let rest = bytes.get(at..).unwrap_or_default();
        self.place = match rest.first() {
            Some(b'{' | b'[' | b'"') => Place::Value,
            Some(_) | None => Place::Bare,
        };
        rest
    }

    fn value<'a>(&mut self, bytes: &'a [u8], out: &mut impl FnMut(Frame<'_>)) -> &'a [u8] {
        let mut passed = 0;
        while let Some((piece, rest)) = bytes.split_at_checked(passed)
            && let Some(first) = rest.first()
        {
            let at_line_start = std::mem::take(&mut self.at_line_start);
            if at_line_start && matches!(*first, b'{' | RECORD_SEPARATOR) {
                self.end(piece, out);
                return rest;
            }
            let (count, stop) = self.scanner.run(rest);
            passed += count;
            match stop {
                Stop::Line => self.at_line_start = true,
                Stop::End => {
                    let (piece, rest) = bytes.split_at_checked(passed).unwrap_or((bytes, &[]));
                    self.end(piece, out);
                    return rest;
                }
                Stop::Bytes => {}
            }
        }
        self.held.keep(bytes, out);
        &[]
    }

    fn bare<'a>(&mut self, bytes: &'a [u8], out: &mut impl FnMut(Frame<'_>)) -> &'a [u8] {
        let end = memchr(b'\n', bytes);
        let Some((piece, rest)) = end.and_then(|end| bytes.split_at_checked(end)) else {
            self.held.keep(bytes, out);
            return &[];
        };
        self.end(piece, out);
        rest
    }

    fn lost<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(end) = memchr(b'\n', bytes) else {
            return &[];
        };
        self.place = Place::Between;
        bytes.get(end..).unwrap_or_default()
    }

    /// Ends a value or a line with `piece`.
    fn end(&mut self, piece: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        self.place = Place::Between;
        self.scanner = Scanner::default();
        if let Some(value) = self.held.end(piece, out) {
            out(Frame::Event { name: b"", data: value.trim_ascii_end() });
        }
    }
}
