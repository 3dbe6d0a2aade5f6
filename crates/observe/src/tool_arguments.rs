//! Checks while a response streams whether the arguments of its tool calls are valid JSON.
//!
//! Only arguments that begin as a JSON object are checked. Other arguments are free text, such as code, a patch or a
//! command, which some tools take.

/// Maximum nesting depth that is checked. More deeply nested arguments count as valid.
const MAX_DEPTH: u32 = 128;

/// Maximum number of tool calls per response whose arguments are checked. Arguments of further calls count as valid.
const MAX_CALLS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct ToolArguments(Vec<Call>);

#[derive(Debug)]
struct Call {
    choice: u32,
    number: u32,
    json: JsonValidator,
}

impl ToolArguments {
    /// Adds a part of the arguments of tool call `number` in `choice` (alternative answer).
    pub(super) fn push(&mut self, choice: u32, number: u32, text: &str) {
        let same = |call: &Call| call.choice == choice && call.number == number;
        let known = self.0.iter().rposition(same);
        if known.is_none() {
            if self.0.len() >= MAX_CALLS {
                return;
            }
            self.0.push(Call { choice, number, json: JsonValidator::default() });
        }
        let at = known.unwrap_or(self.0.len() - 1);
        if let Some(call) = self.0.get_mut(at) {
            call.json.push(text);
        }
    }

    /// Returns whether any tool call of `choice` has arguments that are not valid JSON.
    pub(super) fn are_broken(&self, choice: u32) -> bool {
        let mut calls = self.0.iter().filter(|call| call.choice == choice);
        calls.any(|call| call.json.is_broken())
    }
}

/// Validates a JSON value (RFC 8259) part by part, without storing it.
#[derive(Clone, Debug)]
struct JsonValidator {
    state: ArgumentState,
    /// Stack of open brackets, one bit per level: 1 is an object, 0 is an array. The lowest bit is the innermost level.
    open: u128,
    depth: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ArgumentState {
    /// Only whitespace so far.
    Before,
    /// A value must follow. If `first` is true, an array has just begun, so `]` may follow too.
    Value {
        first: bool,
    },
    /// A key must follow. If `first` is true, an object has just begun, so `}` may follow too.
    Key {
        first: bool,
    },
    Text {
        key: bool,
    },
    Escape {
        key: bool,
    },
    /// Inside a `\u` escape: `left` more hexadecimal digits must follow.
    Digits {
        key: bool,
        left: u8,
    },
    Colon,
    Number(Number),
    /// The rest of `true`, `false` or `null` must follow.
    Word(&'static [u8]),
    /// A comma or a closing bracket must follow.
    After,
    Done,
    /// Validation is off: the arguments are not a JSON object, or are nested too deeply.
    Free,
    Broken,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Number {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl Default for JsonValidator {
    fn default() -> Self {
        Self { state: ArgumentState::Before, open: 0, depth: 0 }
    }
}

impl JsonValidator {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            self.state = self.next(byte);
        }
    }

    /// Returns whether the JSON value is invalid or incomplete.
    fn is_broken(&self) -> bool {
        !matches!(self.state, ArgumentState::Before | ArgumentState::Free | ArgumentState::Done)
    }

    fn next(&mut self, byte: u8) -> ArgumentState {
        let blank = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        match self.state {
            ArgumentState::Free => ArgumentState::Free,
            ArgumentState::Broken => ArgumentState::Broken,
            ArgumentState::Text { key } => text(byte, key),
            ArgumentState::Escape { key } => escape(byte, key),
            ArgumentState::Digits { key, left } => digits(byte, key, left),
            ArgumentState::Word(rest) => word(byte, rest),
            ArgumentState::Number(number) => self.number(byte, number),
            state if blank => state,
            ArgumentState::Before if byte == b'{' => self.begin(true),
            ArgumentState::Before => ArgumentState::Free,
            ArgumentState::Value { first: true } if byte == b']' => self.end(false),
            ArgumentState::Value { .. } => self.value(byte),
            ArgumentState::Key { first: true } if byte == b'}' => self.end(true),
            ArgumentState::Key { .. } if byte == b'"' => ArgumentState::Text { key: true },
            ArgumentState::Colon if byte == b':' => ArgumentState::Value { first: false },
            ArgumentState::After => self.after(byte),
            ArgumentState::Key { .. } | ArgumentState::Colon | ArgumentState::Done => {
                ArgumentState::Broken
            }
        }
    }

    fn value(&mut self, byte: u8) -> ArgumentState {
        match byte {
            b'{' => self.begin(true),
            b'[' => self.begin(false),
            b'"' => ArgumentState::Text { key: false },
            b'-' => ArgumentState::Number(Number::Minus),
            b'0' => ArgumentState::Number(Number::Zero),
            b'1'..=b'9' => ArgumentState::Number(Number::Whole),
            b't' => ArgumentState::Word(b"rue"),
            b'f' => ArgumentState::Word(b"alse"),
            b'n' => ArgumentState::Word(b"ull"),
            _ => ArgumentState::Broken,
        }
    }

    fn after(&mut self, byte: u8) -> ArgumentState {
        let object = self.open & 1 == 1;
        match byte {
            b',' if object => ArgumentState::Key { first: false },
            b',' => ArgumentState::Value { first: false },
            b'}' => self.end(true),
            b']' => self.end(false),
            _ => ArgumentState::Broken,
        }
    }

    /// Continues or ends a number. A number ends at the first character that is not part of it.
    fn number(&mut self, byte: u8, number: Number) -> ArgumentState {
        let next = match (number, byte) {
            (Number::Minus, b'0') => Number::Zero,
            (Number::Minus, b'1'..=b'9') | (Number::Whole, b'0'..=b'9') => Number::Whole,
            (Number::Zero | Number::Whole, b'.') => Number::Point,
            (Number::Point | Number::Fraction, b'0'..=b'9') => Number::Fraction,
            (Number::Zero | Number::Whole | Number::Fraction, b'e' | b'E') => Number::E,
            (Number::E, b'+' | b'-') => Number::Sign,
            (Number::E | Number::Sign | Number::Exponent, b'0'..=b'9') => Number::Exponent,
            (Number::Zero | Number::Whole | Number::Fraction | Number::Exponent, _) => {
                self.state = ArgumentState::After;
                return self.next(byte);
            }
            (Number::Minus | Number::Point | Number::E | Number::Sign, _) => {
                return ArgumentState::Broken;
            }
        };
        ArgumentState::Number(next)
    }

    fn begin(&mut self, object: bool) -> ArgumentState {
        if self.depth == MAX_DEPTH {
            return ArgumentState::Free;
        }
        self.depth += 1;
        self.open = self.open << 1 | u128::from(object);
        if object {
            ArgumentState::Key { first: true }
        } else {
            ArgumentState::Value { first: true }
        }
    }

    fn end(&mut self, object: bool) -> ArgumentState {
        if (self.open & 1 == 1) != object {
            return ArgumentState::Broken;
        }
        self.depth -= 1;
        self.open >>= 1;
        if self.depth == 0 { ArgumentState::Done } else { ArgumentState::After }
    }
}

fn text(byte: u8, key: bool) -> ArgumentState {
    match byte {
        b'"' if key => ArgumentState::Colon,
        b'"' => ArgumentState::After,
        b'\\' => ArgumentState::Escape { key },
        0..=0x1f => ArgumentState::Broken,
        _ => ArgumentState::Text { key },
    }
}

fn escape(byte: u8, key: bool) -> ArgumentState {
    match byte {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => ArgumentState::Text { key },
        b'u' => ArgumentState::Digits { key, left: 4 },
        _ => ArgumentState::Broken,
    }
}

fn digits(byte: u8, key: bool, left: u8) -> ArgumentState {
    match (byte.is_ascii_hexdigit(), left) {
        (false, _) => ArgumentState::Broken,
        (true, 0 | 1) => ArgumentState::Text { key },
        (true, _) => ArgumentState::Digits { key, left: left - 1 },
    }
}

fn word(byte: u8, rest: &'static [u8]) -> ArgumentState {
    match rest.split_first() {
        Some((expected, rest)) if *expected == byte => match rest {
            [] => ArgumentState::After,
            [_, ..] => ArgumentState::Word(rest),
        },
        Some(_) | None => ArgumentState::Broken,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_broken(pieces: &[&str]) -> bool {
        let mut arguments = ToolArguments::default();
        for piece in pieces {
            arguments.push(0, 0, piece);
        }
        arguments.are_broken(0)
    }

    #[test]
    fn accepts_objects_in_any_pieces() {
        for text in [
            "{}",
            " { } \n",
            r#"{"a":1}"#,
            r#"{"a":{"b":[1,-0.5e+10,"x\n\u00e9",true,false,null,[],{}]},"c":"é"}"#,
        ] {
            assert!(!is_broken(&[text]), "{text}");
            for (cut, _) in text.char_indices() {
                let (head, tail) = text.split_at(cut);
                assert!(!is_broken(&[head, tail]), "{text} at {cut}");
            }
        }
    }

    #[test]
    fn rejects_malformed_objects() {
        for text in [
            "{",
            r#"{"a"#,
            r#"{"a":1,}"#,
            r#"{"a":1}}"#,
            r#"{"a":1} x"#,
            r#"{a:1}"#,
            r#"{"a":01}"#,
            r#"{"a":+1}"#,
            r#"{"a":1.}"#,
            r#"{"a":.5}"#,
            r#"{"a":tru}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":"\u00g0"}"#,
            "{\"a\":\"\n\"}",
            r#"{"a" 1}"#,
            r#"{"a":[1}"#,
            r#"{'a':1}"#,
            r#"{"a":[,1]}"#,
        ] {
            assert!(is_broken(&[text]), "{text}");
        }
    }

    #[test]
    fn ignores_free_text() {
        for text in ["", "  ", "ls -la {", "print({})", "[1"] {
            assert!(!is_broken(&[text]), "{text}");
        }
        let deep = r#"{"a":"#.repeat(200);
        assert!(!is_broken(&[&deep]), "nested too deeply to be checked");
    }

    #[test]
    fn separates_calls_and_choices() {
        let mut arguments = ToolArguments::default();
        arguments.push(0, 0, r#"{"a":"#);
        arguments.push(1, 0, "{}");
        arguments.push(0, 1, "{}");
        arguments.push(0, 0, "1}");
        arguments.push(1, 1, "{]");
        assert!(!arguments.are_broken(0) && arguments.are_broken(1));
        for number in 0..10_000 {
            arguments.push(2, number, "{");
        }
        assert_eq!(arguments.0.len(), MAX_CALLS);
    }

    proptest! {
        /// The validator and `serde_json` agree on random texts that resemble JSON.
        #[test]
        fn agrees_with_serde_json(
            text in r#"\{("[ab\\nu0-9]{0,4}"|[\[\]{},: ]|-?[0-9.eE+-]{1,4}|true|false|null){0,12}\}?"#,
        ) {
            let parsed = serde_json::from_str::<serde::de::IgnoredAny>(&text);
            prop_assert_eq!(is_broken(&[&text]), parsed.is_err(), "{} {:?}", text, parsed.err());
        }
    }
}
