//! Server-sent events, by the HTML standard's rules for interpreting an event stream, as a push parser.
//!
//! An event that lies whole within one push is handed out without a copy; else only what is unfinished of it is kept,
//! and nothing between events. Where this departs from the standard: an event that the body ends in is handed out, not
//! dropped, because providers leave out the last blank line; and a line that is no field, which the standard ignores, is
//! handed out as a stray where it looks like JSON, because that is how some report that a stream failed. The byte order
//! mark that a body may begin with has been dropped by the sniffer.

use std::borrow::Cow;

use memchr::memchr2;

use super::held::append;
use super::{Frame, ParseError};

#[derive(Debug)]
pub struct Sse {
    cap: usize,
    /// What is finished of the event that is being read.
    held: Pending<'static>,
    /// Where in a line the bytes stand.
    line: Line,
    /// The last byte was a CR: an LF right after it belongs to the same line end.
    after_return: bool,
    /// Everything up to the next blank line is passed over.
    skipping: bool,
}

/// The line that is being read.
#[derive(Debug)]
enum Line {
    /// Nothing of it was seen.
    Empty,
    /// Seen in part; kept.
    Part(Vec<u8>),
    /// Seen in part; not kept (a comment, or in an event that is passed over).
    Dropped,
}

/// An event in the making.
#[derive(Debug, Default)]
struct Pending<'a> {
    name: Cow<'a, [u8]>,
    data: Option<Cow<'a, [u8]>>,
    /// Bytes of its lines so far, comments not counted.
    size: usize,
}

impl Sse {
    /// `cap`: the most bytes an event's lines may take. Memory is bounded by twice as much: the data so far and the
    /// line that is being read are two vectors, and each grows by doubling.
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

    /// The body is over. What stands unfinished is handed out; that it broke off within a line of an event is said.
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

    /// Bytes were lost: the event that is being read is dropped, and all up to the next blank line.
    pub fn gap(&mut self) {
        self.held = Pending::default();
        self.skip();
    }

    /// How many bytes are held.
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

    /// Takes the last `piece` of a line whose end was found.
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

    /// Keeps `piece` of a line whose end has not come.
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
    /// Reads one line that is neither blank nor a comment. `id` and `retry` are for clients that reconnect.
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

/// Cuts at the first line end: what stands before it, its byte, what comes after.
fn split_line(bytes: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let end = memchr2(b'\n', b'\r', bytes)?;
    let (line, rest) = bytes.split_at_checked(end)?;
    let (byte, after) = rest.split_first()?;
    Some((line, *byte, after))
}

/// A line, or what stands in it, that looks like one of JSON that is spread over lines. No field's name does; but
/// llama.cpp long had its errors in a field of that name.
fn stray(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_prefix(b"error:").unwrap_or(line);
    let first = line.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
    matches!(first, Some(b'{' | b'}' | b'[' | b']' | b'"')).then_some(line)
}

/// What stands from `start` on, without a copy of a borrowed line; of an owned one, without the memory of the whole.
fn tail(line: Cow<'_, [u8]>, start: usize) -> Cow<'_, [u8]> {
    match line {
        Cow::Borrowed(line) => Cow::Borrowed(line.get(start..).unwrap_or_default()),
        Cow::Owned(line) => Cow::Owned(line.get(start..).unwrap_or_default().to_vec()),
    }
}
