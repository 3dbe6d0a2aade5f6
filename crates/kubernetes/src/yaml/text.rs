//! Finds positions in a text, such as line ends, columns and comments. All positions are byte offsets.

use std::ops::Range;

/// A byte range and its replacement.
pub(super) type Splice = (Range<usize>, String);

/// Replaces parts of a text. The splices (a byte range and its new text) must be in order and must not overlap.
pub(super) fn splice(text: &str, splices: &[Splice]) -> Option<String> {
    let mut result = String::with_capacity(text.len());
    let mut at = 0;
    for (range, replacement) in splices {
        result.push_str(text.get(at..range.start)?);
        result.push_str(replacement);
        at = range.end;
    }
    result.push_str(text.get(at..)?);
    Some(result)
}

/// Returns the position after blanks, line ends and comments. In flow style, also skips commas.
pub(super) fn skip_trivia(text: &str, from: usize, flow: bool) -> usize {
    let mut at = from;
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b',' if flow => at += 1,
            b'#' => at = line_feed(text, at),
            _ => break,
        }
    }
    at
}

/// Skips blanks and line ends.
pub(super) fn skip_whitespace(text: &str, from: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    from + rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len()
}

/// Returns the position of the next line feed, or the end of the text.
fn line_feed(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    rest.find('\n').map_or(text.len(), |length| at + length)
}

/// Returns the end of the line that contains the position, before its LF or CRLF.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    let end = line_feed(text, at);
    match text.get(at..end) {
        Some(line) if line.ends_with('\r') => end - 1,
        Some(_) | None => end,
    }
}

pub(super) fn next_line(text: &str, at: usize) -> usize {
    text.len().min(line_feed(text, at) + 1)
}

/// Returns the start of the line that contains the position, after a byte order mark.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    before.rfind('\n').map_or_else(|| text_start(text).min(at), |end| end + 1)
}

/// Returns the position after a byte order mark.
pub(super) fn text_start(text: &str) -> usize {
    text.len() - text.trim_start_matches('\u{feff}').len()
}

fn line_before(text: &str, at: usize) -> &str {
    let before = text.get(..at).unwrap_or_default();
    before.rsplit('\n').next().unwrap_or_default()
}

/// Returns whether the line contains only blanks before the position.
pub(super) fn starts_line(text: &str, at: usize) -> bool {
    line_before(text, at).chars().all(|c| matches!(c, ' ' | '\t' | '\u{feff}'))
}

/// Returns the column in characters, from 0.
pub(super) fn column(text: &str, at: usize) -> usize {
    line_before(text, at).chars().filter(|c| *c != '\u{feff}').count()
}

/// Returns the number of spaces at the start of the line.
pub(super) fn line_indent(text: &str, at: usize) -> usize {
    line_before(text, at).chars().take_while(|c| *c == ' ').count()
}
