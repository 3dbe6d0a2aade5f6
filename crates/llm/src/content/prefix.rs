//! Parses truncated JSON: closes values that are open at the end, and drops incomplete values.

use serde_json::Value;

/// Marks the end of a truncated text until the text is redacted. Unicode assigns no meaning to this character. If a
/// client sends the character, the captured text ends there.
pub const TRUNCATION_MARK: char = '\u{10ffff}';

/// Parses the beginning of a JSON text. Returns `None` if it is not JSON.
pub fn read(bytes: &[u8]) -> Option<Value> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(cut) => std::str::from_utf8(bytes.get(..cut.valid_up_to())?).ok()?,
    };
    let mut open = Open::default();
    text.chars().for_each(|character| open.take(character));
    // If the text ends inside a key or a literal, or before a value, closing it does not give valid JSON. The text up
    // to the last complete value is then parsed instead.
    let whole = open.closed(text);
    serde_json::from_str(&whole).ok().or_else(|| {
        let kept = text.get(..open.complete)?;
        let mut open = Open::default();
        kept.chars().for_each(|character| open.take(character));
        serde_json::from_str(&open.closed(kept)).ok()
    })
}

/// The objects, lists and strings that are open at a position in a JSON text.
#[derive(Debug, Default)]
struct Open {
    brackets: Vec<char>,
    in_string: bool,
    /// Length in bytes of an incomplete escape sequence.
    escape: usize,
    /// Number of missing digits of the escape sequence.
    digits: usize,
    at: usize,
    /// The last position at which the text can be closed without dropping anything: after a bracket or before a comma.
    complete: usize,
}

impl Open {
    fn take(&mut self, character: char) {
        let length = character.len_utf8();
        self.at += length;
        if self.in_string {
            self.in_string(character, length);
            return;
        }
        match character {
            '"' => self.in_string = true,
            '{' | '[' => {
                self.brackets.push(if character == '{' { '}' } else { ']' });
                self.complete = self.at;
            }
            '}' | ']' => {
                self.brackets.pop();
                self.complete = self.at;
            }
            ',' => self.complete = self.at - 1,
            _ => {}
        }
    }

    fn in_string(&mut self, character: char, length: usize) {
        if self.digits > 0 {
            self.digits -= 1;
            self.escape = if self.digits == 0 { 0 } else { self.escape + length };
        } else if self.escape == 1 {
            (self.escape, self.digits) = if character == 'u' { (2, 4) } else { (0, 0) };
        } else if character == '\\' {
            self.escape = 1;
        } else if character == '"' {
            self.in_string = false;
        }
    }

    fn closed(&self, text: &str) -> String {
        let mut whole = text.get(..text.len() - self.escape).unwrap_or(text).to_owned();
        if self.in_string {
            // The first half of a surrogate pair is an incomplete escape sequence, too.
            if let Some(at) = whole.len().checked_sub(6)
                && whole.get(at..at + 3).is_some_and(|start| start.eq_ignore_ascii_case("\\ud"))
            {
                whole.truncate(at);
            }
            whole.push(TRUNCATION_MARK);
            whole.push('"');
        }
        whole.extend(self.brackets.iter().rev());
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_everything_that_is_complete_at_the_cut() {
        let text = r#"{"a": [1, {"b": "x\u00e9\"y\ud83d\ude00"}], "c": true, "d": {"e": null}}"#;
        let whole: Value = serde_json::from_str(text).unwrap();
        assert_eq!(read(text.as_bytes()), Some(whole.clone()));
        for at in 1..text.len() {
            let Some(read) = read(&text.as_bytes()[..at]) else {
                panic!("cut at {at}");
            };
            assert!(is_beginning(&read, &whole), "cut at {at}: {read}");
        }
        assert_eq!(read(br#"{"a": "tex"#).unwrap()["a"], format!("tex{TRUNCATION_MARK}"));
        assert_eq!(read(br#"{"a": 1, "b"#).unwrap(), serde_json::json!({"a": 1}));
    }

    /// Returns whether `part` can be the beginning of `whole`.
    fn is_beginning(part: &Value, whole: &Value) -> bool {
        match (part, whole) {
            (Value::Object(part), Value::Object(whole)) => part
                .iter()
                .all(|(key, value)| whole.get(key).is_some_and(|of| is_beginning(value, of))),
            (Value::Array(part), Value::Array(whole)) => {
                part.iter().zip(whole).all(|(part, whole)| is_beginning(part, whole))
            }
            (Value::String(part), Value::String(whole)) => {
                whole.starts_with(part.trim_end_matches(TRUNCATION_MARK))
            }
            (part, whole) => part == whole,
        }
    }

    #[test]
    fn rejects_text_that_is_not_json() {
        for text in ["", "hello", "<html>", "{]", "}", "\u{0}"] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        assert!(read(b"{\"a\": \"\xff\"").is_some(), "the text up to invalid UTF-8 is read");
    }
}
