//! Server-sent events, by the HTML standard's rules for interpreting an event stream, as a push parser.
//!
//! An event that lies whole within one push is handed out without a copy; else only what is unfinished of it is kept,
//! and nothing between events. Where this departs from the standard: an event that the body ends in is handed out, not
//! dropped, because providers leave out the last blank line.

use std::borrow::Cow;

use memchr::memchr2;

use super::{Anomaly, Frame};

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
    /// `cap`: the most bytes an event's lines may take.
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

    /// The body is over. What stands unfinished is handed out; that it broke off within a line is said.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        let mut event = std::mem::take(&mut self.held);
        let within = matches!(self.line, Line::Part(_));
        if within {
            self.end_line(b"", &mut event, out);
        }
        if !self.skipping {
            event.dispatch(out);
        }
        if within {
            out(Frame::Odd(Anomaly::Unterminated));
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
        line + event.name.len() + event.data.as_deref().map_or(0, <[u8]>::len)
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
                line.extend_from_slice(piece);
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
            out(Frame::Odd(Anomaly::Oversize));
            return;
        }
        event.field(line);
    }

    /// Keeps `piece` of a line whose end has not come.
    fn keep(&mut self, piece: &[u8], event: &mut Pending<'_>, out: &mut impl FnMut(Frame<'_>)) {
        match &mut self.line {
            Line::Empty if self.skipping || piece.starts_with(b":") => self.line = Line::Dropped,
            Line::Empty => self.line = Line::Part(piece.to_vec()),
            Line::Part(line) => line.extend_from_slice(piece),
            Line::Dropped => {}
        }
        if let Line::Part(line) = &self.line
            && event.size + line.len() > self.cap
        {
            *event = Pending::default();
            self.skip();
            out(Frame::Odd(Anomaly::Oversize));
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
    fn field(&mut self, line: Cow<'a, [u8]>) {
        let colon = memchr::memchr(b':', &line);
        let name_end = colon.unwrap_or(line.len());
        let spaced = line.get(name_end + 1) == Some(&b' ');
        let value_start = (name_end + 1 + usize::from(spaced)).min(line.len());
        match line.get(..name_end) {
            Some(b"data") => self.data(tail(line, value_start)),
            Some(b"event") => self.name = tail(line, value_start),
            _ => {}
        }
    }

    fn data(&mut self, value: Cow<'a, [u8]>) {
        match &mut self.data {
            None => self.data = Some(value),
            Some(data) => {
                let data = data.to_mut();
                data.push(b'\n');
                data.extend_from_slice(&value);
            }
        }
    }

    fn dispatch(self, out: &mut impl FnMut(Frame<'_>)) {
        if let Some(data) = self.data {
            out(Frame::Event {
                name: &self.name,
                data: &data,
            });
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

/// What stands from `start` on, without a copy of a borrowed line and in place in an owned one.
fn tail(line: Cow<'_, [u8]>, start: usize) -> Cow<'_, [u8]> {
    match line {
        Cow::Borrowed(line) => Cow::Borrowed(line.get(start..).unwrap_or_default()),
        Cow::Owned(mut line) => {
            line.drain(..start);
            Cow::Owned(line)
        }
    }
}
