//! A value that is handed out as the text that it is: compact JSON.
//!
//! Some formats have a tool called with an object where others have a string that holds one. What the model wrote is the
//! same, so both are read as text.

/// Takes the blanks out of one object or array, cut anywhere. Strings stay as they are written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Compact {
    depth: u32,
    string: Place,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Place {
    #[default]
    Outside,
    Inside,
    Escape,
}

impl Compact {
    /// After the opening bracket.
    pub const fn opened() -> Self {
        Self { depth: 1, string: Place::Outside }
    }

    /// Takes the next bytes; `out` gets those that stay. What comes after the closing
    /// bracket is returned, once it was found.
    pub fn push<'a>(&mut self, bytes: &'a [u8], out: &mut impl FnMut(&[u8])) -> Option<&'a [u8]> {
        let mut begun = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let blank = self.string == Place::Outside && byte.is_ascii_whitespace();
            let over = self.over(*byte);
            if !blank && !over {
                continue;
            }
            let end = if blank { at } else { at + 1 };
            out(bytes.get(begun..end).unwrap_or_default());
            begun = at + 1;
            if over {
                return bytes.get(begun..);
            }
        }
        out(bytes.get(begun..).unwrap_or_default());
        None
    }

    /// Whether the value ends with this byte.
    fn over(&mut self, byte: u8) -> bool {
        match (self.string, byte) {
            (Place::Escape, _) | (Place::Outside, b'"') => self.string = Place::Inside,
            (Place::Inside, b'\\') => self.string = Place::Escape,
            (Place::Inside, b'"') => self.string = Place::Outside,
            (Place::Outside, b'{' | b'[') => self.depth = self.depth.saturating_add(1),
            (Place::Outside, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            (Place::Inside | Place::Outside, _) => {}
        }
        false
    }
}

/// A value as compact JSON.
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
    fn only_the_blanks_between_are_taken_out() {
        assert_eq!(
            compact(" {\n \"a b\" : [ 1 , \" \\\" ] \" ] ,\t\"é\":{ } }\r\n"),
            r#"{"a b":[1," \" ] "],"é":{}}"#
        );
        assert_eq!(compact(" 1.50 "), "1.50");
        assert_eq!(compact("{} {}"), "{}");
    }
}
