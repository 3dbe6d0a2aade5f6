//! Places in a text: lines, blanks, and what stands between nodes.

/// Behind blanks and line ends, and comments; in flow style behind commas too.
pub(super) fn skip_trivia(text: &str, from: usize, flow: bool) -> usize {
    let mut at = from;
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b',' if flow => at += 1,
            b'#' => at = text.len().min(line_end(text, at)),
            _ => break,
        }
    }
    at
}

pub(super) fn skip_blanks(text: &str, from: usize) -> usize {
    skip_trivia(text, from, false)
}

/// Where the line of `at` ends, before its line feed.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    rest.find('\n').map_or(text.len(), |length| at + length)
}

/// The first byte behind a mark of the byte order.
pub(super) fn first(text: &str) -> usize {
    text.len() - text.trim_start_matches('\u{feff}').len()
}

/// If nothing but blanks stands before it in its line.
pub(super) fn own_line(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.chars().all(|c| matches!(c, ' ' | '\t' | '\u{feff}'))
}
