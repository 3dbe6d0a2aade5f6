//! Compact JSON text of a value.
//!
//! Some formats send the arguments of a tool call as an object, others as a string that contains one. The model wrote the
//! same text, so both are read as text.

/// Removes the whitespace between the tokens of one object or list. The input may be cut anywhere.
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
    /// Starts after the opening bracket.
    pub const fn opened() -> Self {
        Self { depth: 1, string: StringState::Outside }
    }

    /// Passes the bytes without whitespace to `out`. Returns the bytes after the closing bracket when it is found.
    pub fn push<'a>(&mut self, bytes: &'a [u8], out: &mut impl FnMut(&[u8])) -> Option<&'a [u8]> {
        let mut start = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let blank = self.string == StringState::Outside && byte.is_ascii_whitespace();
            let ends = self.ends_at(*byte);
            if !blank && !ends {
                continue;
            }
            let end = if blank { at } else { at + 1 };
            out(bytes.get(start..end).unwrap_or_default());
            start = at + 1;
            if ends {
                return bytes.get(start..);
            }
        }
        out(bytes.get(start..).unwrap_or_default());
        None
    }

    /// Returns whether the value ends with this byte.
    fn ends_at(&mut self, byte: u8) -> bool {
        match (self.string, byte) {
            (StringState::Escape, _) | (StringState::Outside, b'"') => {
                self.string = StringState::Inside
            }
            (StringState::Inside, b'\\') => self.string = StringState::Escape,
            (StringState::Inside, b'"') => self.string = StringState::Outside,
            (StringState::Outside, b'{' | b'[') => self.depth = self.depth.saturating_add(1),
            (StringState::Outside, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            (StringState::Inside | StringState::Outside, _) => {}
        }
        false
    }
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
