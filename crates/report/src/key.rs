//! Text of the log in keys of groups.

use tokengauge_types::label::MAX_NAME_BYTES;

/// Separator between the values in a key. Values contain no control characters, and therefore no separator.
pub const SEPARATOR: char = '\u{1f}';

/// Removes control characters and shortens the text. The length limit is the same as the proxy's limit for names.
pub fn sanitized(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|c| !c.is_control()).take(MAX_NAME_BYTES)
}

/// Returns the [`sanitized`] text.
pub fn bounded(text: &str) -> String {
    sanitized(text).collect()
}
