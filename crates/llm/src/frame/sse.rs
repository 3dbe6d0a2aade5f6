//! A push parser for server-sent events that follows the HTML standard's rules for interpreting an event stream.
//!
//! An event that arrives complete in one push is emitted without a copy. Otherwise only its incomplete part is
//! buffered. Between events, nothing is buffered.
//!
//! The parser departs from the standard in two ways:
//!
//! - It emits an event that the end of the body cuts off, because providers omit the last blank line.
//! - It emits a line that is not a field if the line looks like JSON, because some providers report stream failures
//!   that way. The standard ignores such lines.
//!
//! The sniffer has already dropped the byte order mark that may begin a body.

use std::borrow::Cow;

use memchr::memchr2;

use super::held::append;
use super::{Frame, ParseError};

#[derive(Debug)]
pub struct Sse {
    cap: usize,
    /// The finished part of the current event.
    held: Pending<'static>,
    /// The position in the current line.
    line: Line,
    /// The last byte was a CR. An LF directly after it belongs to the same line end.
    after_return: bool,
    /// Everything up to the next blank line is skipped.
    skipping: bool,
}

/// The current line.
#[derive(Debug)]
enum Line {
    /// No byte of the line has arrived.
    Empty,
    /// The buffered beginning of the line.
    Part(Vec<u8>),
    /// A line that is not buffered: a comment, or a line of a skipped event.
    Dropped,
}

/// An incomplete event.
#[derive(Debug, Default)]
struct Pending<'a> {
    name: Cow<'a, [u8]>,
    data: Option<Cow<'a, [u8]>>,
    /// Bytes of its lines so far, without comments.
    size: usize,
}

impl Sse {
    /// Creates a parser for events whose lines take at most `cap` bytes. Memory is bounded by twice the cap: the data
    /// so far and the current line are two vectors, and each grows by doubling.
    pub fn new(cap: usize) -> Self {
        Self {
            cap,
            held: Pending::default(),
            line: Line::Empty,
            after_return: false,
            skipping: false,
        }
    }

    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        let mut rest = bytes;
        let mut event = std::mem::take(&mut self.held);
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let Some((piece, end, after)) = split_line(rest) else {
                self.keep(rest, &mut event, out);
                break;
            };
            self.after_return = end == b'\r';
            rest = after;
            self.end_line(piece, &mut event, out);
        }
        self.held = event.into_owned();
    }

    /// Ends the body and emits the pending event. Reports an error if the body ended within a line of an event.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        let mut event = std::mem::take(&mut self.held);
        let within = matches!(&self.line, Line::Part(line) if stray(line).is_none());
        if matches!(self.line, Line::Part(_)) {
            self.end_line(b"", &mut event, out);
        }
        if !self.skipping {
            event.dispatch(out);
        }
        if within {
            out(Frame::ParseError(ParseError::Unterminated));
        }
        *self = Self::new(self.cap);
    }

    /// Drops the current event and skips to the next blank line, because bytes were lost.
    pub fn gap(&mut self) {
        self.held = Pending::default();
        self.skip();
    }

    /// Returns the allocated memory in bytes.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let line = match &self.line {
            Line::Part(line) => line.capacity(),
            Line::Empty | Line::Dropped => 0,
        };
        let event = &self.held;
        let owned = |part: Option<&Cow<'_, [u8]>>| match part {
            Some(Cow::Owned(part)) => part.capacity(),
            Some(Cow::Borrowed(_)) | None => 0,
        };
        line + owned(Some(&event.name)) + owned(event.data.as_ref())
    }

    /// Ends the current line with its last `piece`.
    fn end_line<'a>(
        &mut self,
        piece: &'a [u8],
        event: &mut Pending<'a>,
        out: &mut impl FnMut(Frame<'_>),
    ) {
        let line = match std::mem::replace(&mut self.line, Line::Empty) {
            Line::Empty if piece.is_empty() => {
                let event = std::mem::take(event);
                if !std::mem::take(&mut self.skipping) {
                    event.dispatch(out);
                }
                return;
            }
            Line::Empty => Cow::Borrowed(piece),
            Line::Part(mut line) => {
                append(&mut line, piece, self.cap);
                Cow::Owned(line)
            }
            Line::Dropped => return,
        };
        if self.skipping || line.starts_with(b":") {
            return;
        }
        event.size += line.len();
        if event.size > self.cap {
            *event = Pending::default();
            self.skipping = true;
            out(Frame::ParseError(ParseError::Oversize));
            return;
        }
        match stray(&line) {
            Some(stray) => out(Frame::BareJson(stray)),
            None => event.field(line, self.cap),
        }
    }

    /// Buffers `piece` of a line whose end has not arrived.
    fn keep(&mut self, piece: &[u8], event: &mut Pending<'_>, out: &mut impl FnMut(Frame<'_>)) {
        let kept = match &self.line {
            Line::Empty if self.skipping || piece.starts_with(b":") => {
                self.line = Line::Dropped;
                return;
            }
            Line::Empty => 0,
            Line::Part(line) => line.len(),
            Line::Dropped => return,
        };
        if event.size + kept + piece.len() > self.cap {
            *event = Pending::default();
            self.skip();
            out(Frame::ParseError(ParseError::Oversize));
            return;
        }
        match &mut self.line {
            Line::Part(line) => append(line, piece, self.cap - event.size),
            Line::Empty | Line::Dropped => self.line = Line::Part(piece.to_vec()),
        }
    }

    fn skip(&mut self) {
        self.line = Line::Dropped;
        self.after_return = false;
        self.skipping = true;
    }
}

impl<'a> Pending<'a> {
    /// Parses one line that is neither blank nor a comment. Ignores `id` and `retry`, which matter only to reconnecting
    /// clients.
    fn field(&mut self, line: Cow<'a, [u8]>, cap: usize) {
        let colon = memchr::memchr(b':', &line);
        let name_end = colon.unwrap_or(line.len());
        let spaced = line.get(name_end + 1) == Some(&b' ');
        let value_start = (name_end + 1 + usize::from(spaced)).min(line.len());
        match line.get(..name_end) {
            Some(b"data") => self.data(tail(line, value_start), cap),
            Some(b"event") => self.name = tail(line, value_start),
            _ => {}
        }
    }

    fn data(&mut self, value: Cow<'a, [u8]>, cap: usize) {
        match &mut self.data {
            None => self.data = Some(value),
            Some(data) => {
                let data = data.to_mut();
                append(data, b"\n", cap);
                append(data, &value, cap);
            }
        }
    }

    fn dispatch(self, out: &mut impl FnMut(Frame<'_>)) {
        if let Some(data) = self.data {
            out(Frame::Event { name: &self.name, data: &data });
        }
    }

    fn into_owned(self) -> Pending<'static> {
        Pending {
            name: Cow::Owned(self.name.into_owned()),
            data: self.data.map(|data| Cow::Owned(data.into_owned())),
            size: self.size,
        }
    }
}

/// Splits at the first line end. Returns the line, the line-end byte, and the rest.
fn split_line(bytes: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let end = memchr2(b'\n', b'\r', bytes)?;
    let (line, rest) = bytes.split_at_checked(end)?;
    let (byte, after) = rest.split_first()?;
    Some((line, *byte, after))
}

/// Returns the line, or the text after `error:`, if it looks like a line of JSON. Field names never look like JSON.
/// llama.cpp wrote its errors in a field named `error` for a long time.
fn stray(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_prefix(b"error:").unwrap_or(line);
    let first = line.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
    matches!(first, Some(b'{' | b'}' | b'[' | b']' | b'"')).then_some(line)
}

/// Returns the line from `start` on. Borrowed lines are not copied. Owned lines are copied, to free the rest of their
/// memory.
fn tail(line: Cow<'_, [u8]>, start: usize) -> Cow<'_, [u8]> {
    match line {
        Cow::Borrowed(line) => Cow::Borrowed(line.get(start..).unwrap_or_default()),
        Cow::Owned(line) => Cow::Owned(line.get(start..).unwrap_or_default().to_vec()),
    }
}
