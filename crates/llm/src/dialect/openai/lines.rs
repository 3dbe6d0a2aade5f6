//! A transcript that comes as plain text, or as subtitles (SRT, WebVTT): the words without the times.

use memchr::memchr;

use crate::dialect::characters::whole_characters;

/// How much of a line is held back to see what it is. The line of a cue's times has 29 characters, and in WebVTT a few
/// settings after them.
const HELD: usize = 128;

#[derive(Debug, Default)]
pub struct Lines {
    /// The line that is being read, while it is short, or the bytes of a character that was cut.
    line: Vec<u8>,
    /// The line is longer than any that is not text.
    is_text: bool,
    /// The last line was a number: a cue's, if times follow.
    number: Option<String>,
    /// Something was handed out.
    begun: bool,
}

impl Lines {
    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(&str)) {
        let mut rest = bytes;
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at_checked(end).unwrap_or((rest, b""));
            self.more(line, out);
            self.end_line(out);
            rest = after.get(1..).unwrap_or_default();
        }
        self.more(rest, out);
    }

    /// There is no more.
    pub fn finish(&mut self, out: &mut impl FnMut(&str)) {
        self.end_line(out);
        if let Some(number) = self.number.take() {
            self.hand_out(&number, true, out);
        }
    }

    /// Takes a piece of a line.
    fn more(&mut self, piece: &[u8], out: &mut impl FnMut(&str)) {
        self.line.extend_from_slice(piece);
        if self.line.len() <= HELD && !self.is_text {
            return;
        }
        let line = std::mem::take(&mut self.line);
        let whole = whole_characters(&line);
        let (text, cut) = line.split_at_checked(whole).unwrap_or((&line, b""));
        self.line = cut.to_vec();
        if !self.is_text {
            self.end_number(out);
        }
        let begins = !std::mem::replace(&mut self.is_text, true);
        self.hand_out(&String::from_utf8_lossy(text), begins, out);
    }

    fn end_line(&mut self, out: &mut impl FnMut(&str)) {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches('\r');
        if std::mem::take(&mut self.is_text) {
            return self.hand_out(line, false, out);
        }
        if line.contains("-->") {
            self.number = None;
            return;
        }
        self.end_number(out);
        let head = !self.begun && line.starts_with("WEBVTT");
        let digits = line.bytes().all(|byte| byte.is_ascii_digit());
        if digits && !line.is_empty() {
            self.number = Some(line.to_owned());
        } else if !head {
            self.hand_out(line, true, out);
        }
    }

    /// What looked like the number of a cue was text.
    fn end_number(&mut self, out: &mut impl FnMut(&str)) {
        if let Some(number) = self.number.take() {
            self.hand_out(&number, true, out);
        }
    }

    fn hand_out(&mut self, text: &str, begins_line: bool, out: &mut impl FnMut(&str)) {
        if text.is_empty() {
            return;
        }
        if begins_line && self.begun {
            out("\n");
        }
        self.begun = true;
        out(text);
    }
}
