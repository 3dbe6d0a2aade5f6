//! Parses server-sent events, such as `data: {"choices":[…]}`, as the HTML standard defines them.
//!
//! An event that arrives complete in one push is emitted without a copy. Only the part of an incomplete event is
//! buffered. Between events, nothing is buffered.
//!
//! The parser differs from the standard in four ways:
//!
//! - It emits an event that is cut off by the end of the body, because providers omit the last blank line.
//! - It emits a line that is not a field if the line looks like JSON, because some providers report errors in this way.
//!   The standard ignores such lines.
//! - A `data:` line with a complete JSON object is an event of its own if another such line follows. The standard joins
//!   both lines, but then the result is not JSON. Some servers send a single line end between their messages.
//! - It emits an event named `error` that has no data.
//!
//! The sniffer has already removed a byte order mark at the beginning of the body.

mod large_event;

use std::borrow::Cow;

use large_event::LargeEvent;
use memchr::{memchr, memchr2};

use super::scan::{Scanner, Stop};
use super::shortener::append;
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
    /// Whether a `data:` line with a complete JSON object is emitted at once, because the blank lines between the
    /// events are missing.
    is_line_based: bool,
    mode: Mode,
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

/// What happens with the lines up to the next blank line.
#[derive(Debug)]
enum Mode {
    /// The lines are collected in [`Sse::pending`].
    Collect,
    Skip,
    /// The lines belong to an event that exceeded the size limit.
    Shorten(Box<LargeEvent>),
}

/// An event whose end has not arrived.
#[derive(Debug, Default)]
struct PendingEvent<'a> {
    name: Cow<'a, [u8]>,
    /// The name before the data, if another name followed. It applies if more data follows after that name.
    earlier_name: Option<Box<[u8]>>,
    data: Option<Cow<'a, [u8]>>,
    /// Whether the data consists of several lines.
    is_joined: bool,
    /// Length in bytes of all lines of the event so far, without comments.
    size: usize,
}

impl Sse {
    /// Creates a parser. `cap` is the maximum length in bytes of all lines of an event. A longer event is shortened.
    /// The parser uses at most twice this memory, and a quarter of it for an event that is being shortened. The reason
    /// is that the event's data and the current line are separate vectors, which double when they are full.
    pub fn new(cap: usize) -> Self {
        Self {
            cap,
            pending: PendingEvent::default(),
            line: Line::Empty,
            after_return: false,
            is_line_based: false,
            mode: Mode::Collect,
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
        let within = match (&self.line, &self.mode) {
            (_, Mode::Shorten(large)) => large.is_in_data(),
            (Line::Partial(line), Mode::Collect | Mode::Skip) => bare_json(line).is_none(),
            (Line::Empty | Line::Dropped, Mode::Collect | Mode::Skip) => false,
        };
        if matches!(self.line, Line::Partial(_)) {
            self.end_line(b"", &mut event, out);
        }
        match std::mem::replace(&mut self.mode, Mode::Collect) {
            Mode::Collect => event.emit(out),
            Mode::Skip => {}
            Mode::Shorten(large) => large.emit(false, out),
        }
        if within {
            out(Frame::ParseError(ParseError::Unterminated));
        }
        *self = Self::new(self.cap);
    }

    /// Handles the loss of bytes. Drops the current event and skips all lines up to the next blank line.
    pub fn gap(&mut self) {
        self.pending = PendingEvent::default();
        self.line = Line::Dropped;
        self.after_return = false;
        self.mode = Mode::Skip;
    }

    pub(super) fn capacity(&self) -> usize {
        let line = match &self.line {
            Line::Partial(line) => line.capacity(),
            Line::Empty | Line::Dropped => 0,
        };
        let large = match &self.mode {
            Mode::Shorten(large) => large.capacity(),
            Mode::Collect | Mode::Skip => 0,
        };
        let event = &self.pending;
        let owned = |part: Option<&Cow<'_, [u8]>>| match part {
            Some(Cow::Owned(part)) => part.capacity(),
            Some(Cow::Borrowed(_)) | None => 0,
        };
        line + large + owned(Some(&event.name)) + owned(event.data.as_ref())
    }

    /// Ends the current line. `piece` is its last part.
    fn end_line<'a>(
        &mut self,
        piece: &'a [u8],
        event: &mut PendingEvent<'a>,
        out: &mut impl FnMut(Frame<'_>),
    ) {
        if !matches!(self.mode, Mode::Collect) {
            return self.end_uncollected_line(piece, event, out);
        }
        let line = match std::mem::replace(&mut self.line, Line::Empty) {
            Line::Empty if piece.is_empty() => return std::mem::take(event).emit(out),
            Line::Empty => Cow::Borrowed(piece),
            Line::Partial(mut line) => {
                append(&mut line, piece, self.cap);
                Cow::Owned(line)
            }
            Line::Dropped => return,
        };
        if line.starts_with(b":") {
            return;
        }
        event.size += line.len();
        if event.size > self.cap {
            self.shorten(&line, event, out);
            return self.end_uncollected_line(b"", event, out);
        }
        match bare_json(&line) {
            Some(json) => out(Frame::BareJson(json)),
            None => {
                self.is_line_based |= event.add_field(line, self.cap, out);
                if self.is_line_based {
                    event.emit_message(out);
                }
            }
        }
    }

    /// Buffers `piece`, a part of a line whose end has not arrived.
    fn buffer_line(
        &mut self,
        piece: &[u8],
        event: &mut PendingEvent<'_>,
        out: &mut impl FnMut(Frame<'_>),
    ) {
        let kept = match (&self.mode, &self.line) {
            (Mode::Shorten(_), _) => return self.push_large(piece, event, out),
            (Mode::Skip, _) => {
                self.line = Line::Dropped;
                return;
            }
            (Mode::Collect, Line::Empty) if piece.starts_with(b":") => {
                self.line = Line::Dropped;
                return;
            }
            (Mode::Collect, Line::Empty) => 0,
            (Mode::Collect, Line::Partial(line)) => line.len(),
            (Mode::Collect, Line::Dropped) => return,
        };
        if event.size + kept + piece.len() > self.cap {
            let line = std::mem::replace(&mut self.line, Line::Empty);
            let line = if let Line::Partial(line) = line { line } else { Vec::new() };
            self.shorten(&line, event, out);
            return self.push_large(piece, event, out);
        }
        match &mut self.line {
            Line::Partial(line) => append(line, piece, self.cap - event.size),
            Line::Empty | Line::Dropped => self.line = Line::Partial(piece.to_vec()),
        }
    }

    /// Starts to shorten an event that exceeds the size limit. `line` is the part of the current line that has arrived.
    fn shorten(
        &mut self,
        line: &[u8],
        event: &mut PendingEvent<'_>,
        out: &mut impl FnMut(Frame<'_>),
    ) {
        out(Frame::ParseError(ParseError::Oversize));
        event.emit_message(out);
        let begun = std::mem::take(event);
        let large = LargeEvent::new(&begun.name, &begun.data.unwrap_or_default(), self.cap);
        self.mode = Mode::Shorten(Box::new(large));
        self.push_large(line, event, out);
    }

    /// Adds `piece` to an event that is shortened, unless `piece` belongs to another event.
    #[cold]
    fn push_large(
        &mut self,
        piece: &[u8],
        event: &mut PendingEvent<'_>,
        out: &mut impl FnMut(Frame<'_>),
    ) {
        let Mode::Shorten(large) = &mut self.mode else {
            return;
        };
        if large.push(piece) {
            return;
        }
        let start = large.line_start().to_vec();
        event.name = Cow::Owned(large.last_name().to_vec());
        if !start.is_empty() {
            self.line = Line::Partial(start);
        }
        if let Mode::Shorten(large) = std::mem::replace(&mut self.mode, Mode::Collect) {
            large.emit(true, out);
        }
        self.buffer_line(piece, event, out);
    }

    /// Ends a line of an event that is skipped or shortened.
    #[cold]
    fn end_uncollected_line<'a>(
        &mut self,
        piece: &'a [u8],
        event: &mut PendingEvent<'a>,
        out: &mut impl FnMut(Frame<'_>),
    ) {
        if matches!(self.mode, Mode::Skip) {
            let line = std::mem::replace(&mut self.line, Line::Empty);
            if matches!(line, Line::Empty) && piece.is_empty() {
                self.mode = Mode::Collect;
            }
            return;
        }
        self.push_large(piece, event, out);
        let Mode::Shorten(large) = &mut self.mode else {
            return self.end_line(b"", event, out);
        };
        if large.end_line()
            && let Mode::Shorten(large) = std::mem::replace(&mut self.mode, Mode::Collect)
        {
            large.emit(false, out);
        }
    }
}

impl<'a> PendingEvent<'a> {
    /// Adds one line to the event. The fields `id` and `retry` are ignored, because only clients that reconnect need
    /// them. Returns whether the line begins another event. The previous event is then emitted.
    fn add_field(
        &mut self,
        line: Cow<'a, [u8]>,
        cap: usize,
        out: &mut impl FnMut(Frame<'_>),
    ) -> bool {
        let name_end = memchr(b':', &line).unwrap_or(line.len());
        match line.get(..name_end) {
            Some(b"data") => return self.add_data(value(line, name_end), cap, out),
            Some(b"event") => {
                let earlier = std::mem::replace(&mut self.name, value(line, name_end));
                if self.data.is_some() {
                    self.earlier_name.get_or_insert_with(|| Box::from(&*earlier));
                }
            }
            _ => {}
        }
        false
    }

    fn add_data(
        &mut self,
        value: Cow<'a, [u8]>,
        cap: usize,
        out: &mut impl FnMut(Frame<'_>),
    ) -> bool {
        let has_emitted = self.data.is_some() && is_message(&value) && self.emit_message(out);
        match &mut self.data {
            None => {
                if has_emitted {
                    self.size = value.len();
                }
                self.data = Some(value);
            }
            Some(data) => {
                self.is_joined = true;
                let data = data.to_mut();
                append(data, b"\n", cap);
                append(data, &value, cap);
            }
        }
        has_emitted
    }

    /// Emits the event if its only line of data is a complete JSON object or list, or `[DONE]`. Further lines with the
    /// same name can follow. Returns whether the event was emitted.
    fn emit_message(&mut self, out: &mut impl FnMut(Frame<'_>)) -> bool {
        let message = self.data.take_if(|data| !self.is_joined && is_message(data));
        if let Some(data) = &message {
            let earlier = self.earlier_name.take();
            out(Frame::Event { name: earlier.as_deref().unwrap_or(&self.name), data });
            self.size = 0;
        }
        message.is_some()
    }

    fn emit(self, out: &mut impl FnMut(Frame<'_>)) {
        // Dynamo reports an error by its event name alone. The standard ignores events without data.
        if self.data.is_some() || &*self.name == b"error" {
            let data = self.data.unwrap_or_default();
            out(Frame::Event { name: &self.name, data: &data });
        }
    }

    fn into_owned(self) -> PendingEvent<'static> {
        PendingEvent {
            name: Cow::Owned(self.name.into_owned()),
            earlier_name: self.earlier_name,
            data: self.data.map(|data| Cow::Owned(data.into_owned())),
            is_joined: self.is_joined,
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

/// Returns whether a line of data is one object or list. More data after it would not be JSON.
fn is_message(data: &[u8]) -> bool {
    let data = data.trim_ascii();
    let is_bracketed = matches!(data.first(), Some(b'{' | b'['));
    is_bracketed && Scanner::<true>::default().run(data) == (data.len(), Stop::End)
}

/// Returns the value of a field whose name ends at byte `name_end`. A borrowed value is not copied. An owned value is
/// copied, so that the memory of the whole line is freed.
fn value(line: Cow<'_, [u8]>, name_end: usize) -> Cow<'_, [u8]> {
    let spaced = line.get(name_end + 1) == Some(&b' ');
    let start = (name_end + 1 + usize::from(spaced)).min(line.len());
    match line {
        Cow::Borrowed(line) => Cow::Borrowed(line.get(start..).unwrap_or_default()),
        Cow::Owned(line) => Cow::Owned(line.get(start..).unwrap_or_default().to_vec()),
    }
}
