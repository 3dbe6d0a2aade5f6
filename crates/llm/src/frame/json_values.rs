//! Splits a stream of JSON values: JSON lines (`{"a":1}` and a line end), or the elements of a streamed array
//! (`[{"a":1},…`).
//!
//! The framer finds the end of a value by its brackets. It emits a value at the closing bracket, while the stream
//! continues.
//!
//! In JSON lines, a value can span several lines, and the next value can follow without a line end. A line that begins
//! with `{` always begins a new value, even if the previous value is incomplete. A broken line therefore does not
//! affect the next line. Text that is not a JSON value extends to the end of its line.
//!
//! In an array, the beginning of an element depends on all previous bytes. After lost bytes, the framer therefore
//! ignores the rest of the body.

use memchr::{memchr, memchr2};

use super::frame_buffer::FrameBuffer;
use super::scan::{Scanner, Stop};
use super::sniff::{RECORD_SEPARATOR, is_blank};
use super::{Frame, ParseError};

#[derive(Debug)]
pub struct JsonValues {
    layout: Layout,
    position: Position,
    scanner: Scanner<true>,
    buffer: FrameBuffer,
    /// Whether the current position is the start of a line, inside a value of JSON lines.
    at_line_start: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Layout {
    Lines,
    Array,
}

/// The position in the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Position {
    /// Before the array's opening bracket.
    BeforeArray,
    BetweenValues,
    /// In a value with brackets or quotes.
    InValue,
    /// In a value without brackets or quotes, such as a number. The value ends at the line end or, in an array, before
    /// the next comma or bracket.
    InBareValue,
    /// In a line that is skipped because some of its bytes were lost.
    InLostLine,
    /// After the array, or in an array that lost bytes. All later bytes are ignored.
    AfterEnd,
}

impl JsonValues {
    /// Creates a parser for JSON lines of at most `cap` bytes.
    pub fn lines(cap: usize) -> Self {
        Self::new(Layout::Lines, cap)
    }

    /// Creates a parser for an array whose elements have at most `cap` bytes.
    pub fn array(cap: usize) -> Self {
        Self::new(Layout::Array, cap)
    }

    fn new(layout: Layout, cap: usize) -> Self {
        let scanner = Scanner::default();
        let position = match layout {
            Layout::Lines => Position::BetweenValues,
            Layout::Array => Position::BeforeArray,
        };
        Self { layout, position, scanner, buffer: FrameBuffer::new(cap), at_line_start: false }
    }

    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.position {
                Position::BeforeArray => self.skip_past(b'[', rest),
                Position::BetweenValues => self.begin_value(rest),
                Position::InValue => self.read_value(rest, out),
                Position::InBareValue => self.read_bare_value(rest, out),
                Position::InLostLine => self.skip_past(b'\n', rest),
                Position::AfterEnd => return,
            };
        }
    }

    /// Ends the body. Reports an error if a bracket or quote is not closed. The last line needs no line end, but an
    /// array needs its closing bracket.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        match (self.layout, self.position) {
            (Layout::Lines, Position::InBareValue) => self.end_value(b"", out),
            (_, Position::InValue)
            | (Layout::Array, Position::BetweenValues | Position::InBareValue) => {
                out(Frame::ParseError(ParseError::Unterminated));
            }
            (
                _,
                Position::BeforeArray
                | Position::BetweenValues
                | Position::InLostLine
                | Position::AfterEnd,
            ) => {}
        }
        *self = Self::new(self.layout, self.buffer.cap());
    }

    /// Handles the loss of bytes. JSON lines continue at the next line. The rest of an array is ignored.
    pub fn gap(&mut self) {
        let position = match self.layout {
            Layout::Lines => Position::InLostLine,
            Layout::Array => Position::AfterEnd,
        };
        *self = Self { position, ..Self::new(self.layout, self.buffer.cap()) };
    }

    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    fn skip_past<'a>(&mut self, mark: u8, bytes: &'a [u8]) -> &'a [u8] {
        let Some(at) = memchr(mark, bytes) else {
            return &[];
        };
        self.position = Position::BetweenValues;
        bytes.get(at + 1..).unwrap_or_default()
    }

    fn begin_value<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let is_separator = |byte: &u8| match self.layout {
            // Old versions of vLLM's server separate values with zero bytes.
            Layout::Lines => is_blank(*byte) || *byte == 0,
            Layout::Array => byte.is_ascii_whitespace() || *byte == b',',
        };
        let Some(at) = bytes.iter().position(|byte| !is_separator(byte)) else {
            return &[];
        };
        let rest = bytes.get(at..).unwrap_or_default();
        self.position = match rest.first() {
            Some(b'{' | b'[' | b'"') => Position::InValue,
            Some(b']') if self.layout == Layout::Array => Position::AfterEnd,
            Some(_) | None => Position::InBareValue,
        };
        rest
    }

    fn read_value<'a>(&mut self, bytes: &'a [u8], out: &mut impl FnMut(Frame<'_>)) -> &'a [u8] {
        let mut passed = 0;
        while let Some((piece, rest)) = bytes.split_at_checked(passed)
            && let Some(first) = rest.first()
        {
            let at_line_start = std::mem::take(&mut self.at_line_start);
            if at_line_start && matches!(*first, b'{' | RECORD_SEPARATOR) {
                self.end_value(piece, out);
                return rest;
            }
            let (count, stop) = self.scanner.run(rest);
            passed += count;
            match stop {
                Stop::Line => self.at_line_start = self.layout == Layout::Lines,
                Stop::End => {
                    let (piece, rest) = bytes.split_at_checked(passed).unwrap_or((bytes, &[]));
                    self.end_value(piece, out);
                    return rest;
                }
                Stop::Bytes => {}
            }
        }
        self.buffer.push(bytes, out);
        &[]
    }

    fn read_bare_value<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut impl FnMut(Frame<'_>),
    ) -> &'a [u8] {
        let end = match self.layout {
            Layout::Lines => memchr(b'\n', bytes),
            Layout::Array => memchr2(b',', b']', bytes),
        };
        let Some((piece, rest)) = end.and_then(|end| bytes.split_at_checked(end)) else {
            self.buffer.push(bytes, out);
            return &[];
        };
        self.end_value(piece, out);
        rest
    }

    /// Ends a value with `piece`.
    fn end_value(&mut self, piece: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        self.position = Position::BetweenValues;
        self.scanner = Scanner::default();
        if let Some(value) = self.buffer.finish(piece, out) {
            out(Frame::Event { name: b"", data: value.trim_ascii_end() });
        }
    }
}
