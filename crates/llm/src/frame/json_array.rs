//! A streamed JSON array: the framer emits each element on its last byte, while the array continues.
//!
//! Only the preceding bytes determine where an element begins. After lost bytes, the framer therefore ignores the rest.

use super::held::Held;
use super::scan::{Scanner, Stop};
use super::{Frame, ParseError};

#[derive(Debug)]
pub struct JsonArray {
    place: Place,
    scanner: Scanner,
    held: Held,
}

/// The position in the array.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// Before the array's opening bracket.
    Before,
    Between,
    Element,
    /// In an element that ends only at the next comma or at the end of the array: a number or a literal.
    Bare,
    /// After the array's closing bracket.
    After,
    /// Bytes were lost.
    Lost,
}

impl JsonArray {
    /// Creates a framer for elements of at most `cap` bytes.
    pub fn new(cap: usize) -> Self {
        Self { place: Place::Before, scanner: Scanner::default(), held: Held::new(cap) }
    }

    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.place {
                Place::Before => self.open(rest),
                Place::Between => self.begin(rest),
                Place::Element => self.element(rest, out),
                Place::Bare => self.bare(rest, out),
                Place::After | Place::Lost => return,
            };
        }
    }

    /// Ends the body. If the closing bracket is missing, reports an unterminated body, even between two elements.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        match self.place {
            Place::Between | Place::Element | Place::Bare => {
                out(Frame::ParseError(ParseError::Unterminated));
            }
            Place::Before | Place::After | Place::Lost => {}
        }
        *self = Self::new(self.held.cap());
    }

    pub fn gap(&mut self) {
        self.held.clear();
        self.place = Place::Lost;
    }

    /// Returns the allocated memory in bytes.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.held.capacity()
    }

    fn open<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(at) = bytes.iter().position(|byte| *byte == b'[') else {
            return &[];
        };
        self.place = Place::Between;
        bytes.get(at + 1..).unwrap_or_default()
    }

    fn begin<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let between = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
        let Some(at) = bytes.iter().position(|byte| !between(byte)) else {
            return &[];
        };
        let rest = bytes.get(at..).unwrap_or_default();
        self.place = match rest.first() {
            Some(b'{' | b'[' | b'"') => Place::Element,
            Some(b']') => Place::After,
            Some(_) | None => Place::Bare,
        };
        rest
    }

    fn element<'a>(&mut self, bytes: &'a [u8], out: &mut impl FnMut(Frame<'_>)) -> &'a [u8] {
        let mut rest = bytes;
        loop {
            let (count, stop) = self.scanner.run(rest);
            rest = rest.get(count..).unwrap_or_default();
            match stop {
                Stop::Line => {}
                Stop::End => {
                    let end = bytes.len() - rest.len();
                    self.end(bytes.get(..end).unwrap_or(bytes), out);
                    return rest;
                }
                Stop::Bytes => {
                    self.held.keep(bytes, out);
                    return rest;
                }
            }
        }
    }

    fn bare<'a>(&mut self, bytes: &'a [u8], out: &mut impl FnMut(Frame<'_>)) -> &'a [u8] {
        let end = bytes.iter().position(|byte| matches!(byte, b',' | b']'));
        let Some((piece, rest)) = end.and_then(|end| bytes.split_at_checked(end)) else {
            self.held.keep(bytes, out);
            return &[];
        };
        self.end(piece, out);
        rest
    }

    /// Ends an element with `piece`.
    fn end(&mut self, piece: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        self.place = Place::Between;
        if let Some(element) = self.held.end(piece, out) {
            out(Frame::Event { name: b"", data: element.trim_ascii_end() });
        }
    }
}
