//! Transcripts as plain text or as subtitles (SRT, WebVTT): the text without cue numbers and times.

use memchr::memchr;

use crate::dialect::characters::whole_characters;

/// How much of a line is held back to detect the times of a cue. They have 29 characters, in WebVTT followed by a few
/// settings.
const LONGEST_CUE: usize = 128;

/// Reads a transcript that may be cut anywhere.
#[derive(Debug, Default)]
pub struct Transcript {
    /// The current line while it is short, or the bytes of an incomplete character.
    line: Vec<u8>,
    /// The line is longer than any cue.
    is_text: bool,
    /// The last line was a number, which is that of a cue if times follow.
    number: Option<String>,
    has_text: bool,
}

impl Transcript {
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(&str)) {
        let mut rest = bytes;
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at_checked(end).unwrap_or((rest, b""));
            self.add(line, out);
            self.end_line(out);
            rest = after.get(1..).unwrap_or_default();
        }
        self.add(rest, out);
    }

    /// Ends the transcript.
    pub fn finish(&mut self, out: &mut impl FnMut(&str)) {
        self.end_line(out);
        self.end_number(out);
    }

    /// Adds a piece of a line.
    fn add(&mut self, piece: &[u8], out: &mut impl FnMut(&str)) {
        self.line.extend_from_slice(piece);
        if self.line.len() <= LONGEST_CUE && !self.is_text {
            return;
        }
        let line = std::mem::take(&mut self.line);
        let whole = whole_characters(&line);
        let (text, cut) = line.split_at_checked(whole).unwrap_or((&line, b""));
        self.line = cut.to_vec();
        if !self.is_text {
            self.end_number(out);
        }
        let starts_line = !std::mem::replace(&mut self.is_text, true);
        self.emit(&String::from_utf8_lossy(text), starts_line, out);
    }

    fn end_line(&mut self, out: &mut impl FnMut(&str)) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        if std::mem::take(&mut self.is_text) {
            return self.emit(line, false, out);
        }
        if line.contains("-->") {
            self.number = None;
            return;
        }
        self.end_number(out);
        let is_header = !self.has_text && line.starts_with("WEBVTT");
        let is_number = line.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && !line.is_empty() {
            self.number = Some(line.to_owned());
        } else if !is_header {
            self.emit(line, true, out);
        }
    }

    /// Emits a number that no times followed.
    fn end_number(&mut self, out: &mut impl FnMut(&str)) {
        if let Some(number) = self.number.take() {
            self.emit(&number, true, out);
        }
    }

    fn emit(&mut self, text: &str, starts_line: bool, out: &mut impl FnMut(&str)) {
        if text.is_empty() {
            return;
        }
        if starts_line && self.has_text {
            out("\n");
        }
        self.has_text = true;
        out(text);
    }
}
