//! Reads a server-sent event that exceeds the size limit. Its JSON is shortened while it arrives.

use std::borrow::Cow;

use super::{Frame, value};
use crate::frame::shortener::Shortener;

/// Maximum length in bytes of a line that is buffered. Only lines with the name of the event are buffered.
const MAX_LINE_BYTES: usize = 256;

#[derive(Debug)]
pub struct LargeEvent {
    name: Vec<u8>,
    /// A name after the data. It applies to this event unless another event follows without a blank line.
    later_name: Option<Vec<u8>>,
    json: Shortener,
    line: Line,
    /// Maximum length in bytes of a line that is buffered.
    longest_line: usize,
}

/// How much of the current line has arrived.
#[derive(Debug)]
enum Line {
    /// The beginning of a line, which shows the field.
    Start(Vec<u8>),
    Data,
    Ignored,
}

impl LargeEvent {
    /// Creates a reader for an event with this name and this data so far. `cap` is the size limit of an event.
    pub fn new(name: &[u8], data: &[u8], cap: usize) -> Self {
        let mut json = Shortener::new(cap);
        json.push(data);
        let longest_line = MAX_LINE_BYTES.min(cap / 2);
        Self {
            name: name.to_vec(),
            later_name: None,
            json,
            line: Line::Start(Vec::new()),
            longest_line,
        }
    }

    /// Reads the next part of a line. Returns `false` if the line begins another event. The reader then has not read
    /// the part.
    pub fn push(&mut self, piece: &[u8]) -> bool {
        match &mut self.line {
            Line::Data => self.json.push(piece),
            Line::Ignored => {}
            Line::Start(start) => {
                let known = start.len();
                start.extend(piece.iter().take(self.longest_line - known));
                if start.starts_with(b"data:") {
                    if self.json.is_complete() {
                        start.truncate(known);
                        return false;
                    }
                    self.json.push(start.get(b"data:".len()..).unwrap_or_default());
                    self.json.push(piece.get(start.len() - known..).unwrap_or_default());
                    self.line = Line::Data;
                } else if start.len() == self.longest_line {
                    self.line = Line::Ignored;
                }
            }
        }
        true
    }

    /// Ends the current line. Returns whether the line is blank, which ends the event.
    pub fn end_line(&mut self) -> bool {
        if let Line::Start(start) = std::mem::replace(&mut self.line, Line::Start(Vec::new())) {
            if start.starts_with(b"event:") {
                let name = value(Cow::Owned(start), b"event".len()).into_owned();
                if self.json.is_complete() {
                    self.later_name = Some(name);
                } else {
                    self.name = name;
                }
                return false;
            }
            return start.is_empty();
        }
        false
    }

    /// Returns the part of the current line that is buffered.
    pub fn line_start(&self) -> &[u8] {
        match &self.line {
            Line::Start(start) => start,
            Line::Data | Line::Ignored => b"",
        }
    }

    /// Returns whether the current line belongs to the data and has not ended.
    pub const fn is_in_data(&self) -> bool {
        matches!(self.line, Line::Data)
    }

    pub fn last_name(&self) -> &[u8] {
        self.later_name.as_ref().unwrap_or(&self.name)
    }

    pub fn capacity(&self) -> usize {
        let later = self.later_name.as_ref().map_or(0, Vec::len);
        self.name.len() + later + self.line_start().len() + self.json.capacity()
    }

    /// Ends the event. Emits nothing if its data is not JSON or cannot be shortened. `is_followed` is set if another
    /// event follows without a blank line.
    pub fn emit(self, is_followed: bool, out: &mut impl FnMut(Frame<'_>)) {
        let name = if is_followed { self.name } else { self.later_name.unwrap_or(self.name) };
        if let Some(data) = self.json.finish() {
            out(Frame::Event { name: &name, data: &data });
        }
    }
}
