//! Removes white space from a JSON value, and finds the end of a value that is skipped.
//!
//! Some formats send the arguments of a tool call as a JSON object, and others as a string that contains JSON. The
//! model generated the same text in both cases, so an object is read as compact text.

use memchr::memchr2;

/// Finds the end of one value and removes the white space between its tokens. The input may be cut at any position.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Compact {
    depth: u32,
    string: StringState,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum StringState {
    #[default]
    Outside,
    Inside,
    Escape,
}

impl Compact {
    /// Starts after the opening bracket of an object or a list.
    pub const fn in_brackets() -> Self {
        Self { depth: 1, string: StringState::Outside }
    }

    /// Starts after the opening quote of a string.
    pub const fn in_string() -> Self {
        Self { depth: 0, string: StringState::Inside }
    }

    /// Passes the bytes without white space to `out`. At the end of the value, returns the remaining bytes.
    pub fn push<'a>(&mut self, bytes: &'a [u8], out: &mut impl FnMut(&[u8])) -> Option<&'a [u8]> {
        let (mut start, mut at) = (0, 0);
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let next = match self.string {
                StringState::Escape => Some(0),
                StringState::Inside => memchr2(b'"', b'\\', rest),
                StringState::Outside => rest.iter().position(|byte| is_structure(*byte)),
            };
            let Some(byte) = next.and_then(|next| rest.get(next)) else {
                break;
            };
            at += next.unwrap_or_default() + 1;
            let is_blank = self.string == StringState::Outside && byte.is_ascii_whitespace();
            let ends = self.ends_at(*byte);
            if is_blank || ends {
                out(bytes.get(start..at - usize::from(is_blank)).unwrap_or_default());
                start = at;
            }
            if ends {
                return bytes.get(at..);
            }
        }
        out(bytes.get(start..).unwrap_or_default());
        None
    }

    /// Returns whether the value ends with this byte.
    fn ends_at(&mut self, byte: u8) -> bool {
        match (self.string, byte) {
            (StringState::Escape, _) | (StringState::Outside, b'"') => {
                self.string = StringState::Inside;
                return false;
            }
            (StringState::Inside, b'\\') => {
                self.string = StringState::Escape;
                return false;
            }
            (StringState::Inside, b'"') => self.string = StringState::Outside,
            (StringState::Outside, b'{' | b'[') => self.depth = self.depth.saturating_add(1),
            (StringState::Outside, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            (StringState::Inside | StringState::Outside, _) => return false,
        }
        self.depth == 0
    }
}

const fn is_structure(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'[' | b'}' | b']') || byte.is_ascii_whitespace()
}

/// Returns a value as compact JSON.
pub fn compact(json: &str) -> String {
    let json = json.trim_ascii();
    if !json.starts_with(['{', '[']) {
        return json.to_owned();
    }
    let mut kept = Vec::with_capacity(json.len());
    Compact::default().push(json.as_bytes(), &mut |piece| kept.extend_from_slice(piece));
    String::from_utf8(kept).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_whitespace_outside_strings() {
        assert_eq!(
            compact(" {\n \"a b\" : [ 1 , \" \\\" ] \" ] ,\t\"é\":{ } }\r\n"),
            r#"{"a b":[1," \" ] "],"é":{}}"#
        );
        assert_eq!(compact(" 1.50 "), "1.50");
        assert_eq!(compact("{} {}"), "{}");
    }
}
