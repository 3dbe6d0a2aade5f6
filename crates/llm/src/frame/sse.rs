//! Parses server-sent events, such as `data: {"choices":[…]}`, as the HTML standard defines them.
//!
//! An event that arrives complete in one push is emitted without a copy. Only the part of an incomplete event is
//! buffered. Between events, nothing is buffered.
//!
//! The parser differs from the standard in two ways:
//!
//! - It emits an event that is cut off by the end of the body, because providers omit the last blank line.
//! - It emits a line that is not a field if the line looks like JSON, because some providers report errors in this way.
//!   The standard ignores such lines.
//!
//! The sniffer has already removed a byte order mark at the beginning of the body.

use std::borrow::Cow;

use memchr::memchr2;

use super::frame_buffer::append;
use super::{Frame, ParseError};

#[derive(Debug)]
pub struct Sse {
    cap: usize,
    /// The complete lines of the current event.
    pending: PendingEvent<'static>,
    /// The position in the current line.
    line: Line,
    /// Whether the last byte was a CR. An LF directly after the CR is part of the same line end.
    after_return: bool,
    /// Whether all lines up to the next blank line are skipped.
    skipping: bool,
}

/// How much of the current line has arrived.
#[derive(Debug)]
enum Line {
    /// No byte of the line has arrived.
    Empty,
    /// The beginning of the line, which is buffered.
    Partial(Vec<u8>),
    /// The line is not buffered, because it is a comment or belongs to a skipped event.
    Dropped,
}

/// An event whose end has not arrived.
#[derive(Debug, Default)]
struct PendingEvent<'a> {
    name: Cow<'a, [u8]>,
    data: Option<Cow<'a, [u8]>>,
    /// Length in bytes of all lines of the event so far, without comments.
    size: usize,
}

impl Sse {
    /// Creates a parser. `cap` is the maximum length in bytes of all lines of an event. The parser uses at most twice
    /// this memory. The reason is that the event's data and the current line are separate vectors, which double when
    /// they are full.
    pub fn new(cap: usize) -> Self {
        Self {
            cap,
            pending: PendingEvent::default(),
            line: Line::Empty,
            after_return: false,
            skipping: false,
        }
    }

    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(Frame<'_>)) {
        let mut rest = bytes;
        let mut event = std::mem::take(&mut self.pending);
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let Some((piece, end, after)) = split_line(rest) else {
                self.buffer_line(rest, &mut event, out);
                break;
            };
            self.after_return = end == b'\r';
            rest = after;
            self.end_line(piece, &mut event, out);
        }
        self.pending = event.into_owned();
    }

    /// Ends the body. Emits the last event even without a blank line after it. Reports an error if the body ended
    /// inside a line.
    pub fn finish(&mut self, out: &mut impl FnMut(Frame<'_>)) {
        let mut event = std::mem::take(&mut self.pending);
        let within = matches!(&self.line, Line::Partial(line) if bare_json(line).is_none());
        if matches!(self.line, Line::Partial(_)) {
            self.end_line(b"", &mut event, out);
        }
        if !self.skipping {
            event.emit(out);
        }
        if within {
            out(Frame::ParseError(ParseError::Unterminated));
        }
        *self = Self::new(self.cap);
    }

    /// Handles the loss of bytes. Drops the current event and skips all lines up to the next blank line.
    pub fn gap(&mut self) {
        self.pending = PendingEvent::default();
        self.skip_event();
    }

    pub(super) fn capacity(&self) -> usize {
        let line = match &self.line {
            Line::Partial(line) => line.capacity(),
            Line::Empty | Line::Dropped => 0,
        };
        let event = &self.pending;
        let owned = |part: Option<&Cow<'_, [u8]>>| match part {
            Some(Cow::Owned(part)) => part.capacity(),
            Some(Cow::Borrowed(_)) | None => 0,
        };
        line + owned(Some(&event.name)) + owned(event.data.as_ref())
    }

    /// Ends the current line. `piece` is its last part.
    fn end_line<'a>(
        &mut self,
        piece: &'a [u8],
        event: &mut PendingEvent<'a>,
        out: &mut impl FnMut(Frame<'_>),
    ) {
        let line = match std::mem::replace(&mut self.line, Line::Empty) {
            Line::Empty if piece.is_empty() => {
                let event = std::mem::take(event);
                if !std::mem::take(&mut self.skipping) {
                    event.emit(out);
                }
                return;
            }
            Line::Empty => Cow::Borrowed(piece),
            Line::Partial(mut line) => {
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
            *event = PendingEvent::default();
            self.skipping = true;
            out(Frame::ParseError(ParseError::Oversize));
            return;
        }
        match bare_json(&line) {
            Some(json) => out(Frame::BareJson(json)),
            None => event.add_field(line, self.cap),
        }
    }

    /// Buffers `piece`, a part of a line whose end has not arrived.
    fn buffer_line(
        &mut self,
        piece: &[u8],
        event: &mut PendingEvent<'_>,
        out: &mut impl FnMut(Frame<'_>),
    ) {
        let kept = match &self.line {
            Line::Empty if self.skipping || piece.starts_with(b":") => {
                self.line = Line::Dropped;
                return;
            }
            Line::Empty => 0,
            Line::Partial(line) => line.len(),
            Line::Dropped => return,
        };
        if event.size + kept + piece.len() > self.cap {
            *event = PendingEvent::default();
            self.skip_event();
            out(Frame::ParseError(ParseError::Oversize));
            return;
        }
        match &mut self.line {
            Line::Partial(line) => append(line, piece, self.cap - event.size),
            Line::Empty | Line::Dropped => self.line = Line::Partial(piece.to_vec()),
        }
    }

    fn skip_event(&mut self) {
        self.line = Line::Dropped;
        self.after_return = false;
        self.skipping = true;
    }
}

impl<'a> PendingEvent<'a> {
    /// Adds one line to the event. The fields `id` and `retry` are ignored, because only clients that reconnect need
    /// them.
    fn add_field(&mut self, line: Cow<'a, [u8]>, cap: usize) {
        let colon = memchr::memchr(b':', &line);
        let name_end = colon.unwrap_or(line.len());
        let spaced = line.get(name_end + 1) == Some(&b' ');
        let value_start = (name_end + 1 + usize::from(spaced)).min(line.len());
        match line.get(..name_end) {
            Some(b"data") => self.add_data(line_from(line, value_start), cap),
            Some(b"event") => self.name = line_from(line, value_start),
            _ => {}
        }
    }

    fn add_data(&mut self, value: Cow<'a, [u8]>, cap: usize) {
        match &mut self.data {
            None => self.data = Some(value),
            Some(data) => {
                let data = data.to_mut();
                append(data, b"\n", cap);
                append(data, &value, cap);
            }
        }
    }

    fn emit(self, out: &mut impl FnMut(Frame<'_>)) {
        if let Some(data) = self.data {
            out(Frame::Event { name: &self.name, data: &data });
        }
    }

    fn into_owned(self) -> PendingEvent<'static> {
        PendingEvent {
            name: Cow::Owned(self.name.into_owned()),
            data: self.data.map(|data| Cow::Owned(data.into_owned())),
            size: self.size,
        }
    }
}

/// Splits `bytes` at the first line end. Returns the line, the byte that ends the line, and the rest.
fn split_line(bytes: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let end = memchr2(b'\n', b'\r', bytes)?;
    let (line, rest) = bytes.split_at_checked(end)?;
    let (byte, after) = rest.split_first()?;
    Some((line, *byte, after))
}

/// Returns the line if it looks like JSON, which no field does. First removes the prefix `error:`, because llama.cpp
/// reported errors in this form for a long time.
fn bare_json(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_prefix(b"error:").unwrap_or(line);
    let first = line.iter().find(|byte| !matches!(byte, b' ' | b'\t'));
    matches!(first, Some(b'{' | b'}' | b'[' | b']' | b'"')).then_some(line)
}

/// Returns the line from byte `start` on. A borrowed line is not copied. The rest of an owned line is copied, so that
/// the memory of the whole line is freed.
fn line_from(line: Cow<'_, [u8]>, start: usize) -> Cow<'_, [u8]> {
    match line {
        Cow::Borrowed(line) => Cow::Borrowed(line.get(start..).unwrap_or_default()),
        Cow::Owned(line) => Cow::Owned(line.get(start..).unwrap_or_default().to_vec()),
    }
}
