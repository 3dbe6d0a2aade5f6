//! Reads transcripts in plain text or as subtitles (SRT, WebVTT). Skips the numbers and times of subtitle entries
//! (cues).

use memchr::memchr;

use crate::dialect::characters::whole_characters;

/// Maximum length in bytes of a line that is buffered because it may contain the times of a cue. The times have 29
/// characters. In WebVTT, a few settings can follow.
const MAX_CUE_LINE_BYTES: usize = 128;

/// Reads a transcript that arrives in pieces.
#[derive(Debug, Default)]
pub struct Transcript {
    /// The current line if the line is short. Otherwise, only the bytes of an incomplete character.
    line: Vec<u8>,
    /// Whether the line is too long to contain the times of a cue.
    is_text: bool,
    /// The previous line, if it was a number. The number belongs to a cue if times follow.
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

    pub fn finish(&mut self, out: &mut impl FnMut(&str)) {
        self.end_line(out);
        self.end_number(out);
    }

    fn add(&mut self, piece: &[u8], out: &mut impl FnMut(&str)) {
        self.line.extend_from_slice(piece);
        if self.line.len() <= MAX_CUE_LINE_BYTES && !self.is_text {
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

    /// Emits a number after which no times followed.
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
