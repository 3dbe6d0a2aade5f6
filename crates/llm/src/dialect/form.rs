//! Forms (`multipart/form-data`), read as they go by: the short fields, not the files.
//!
//! A field is handed out as if it stood at the top of a JSON body, so that one function takes the facts of both.

use memchr::memchr;

use super::characters::whole_characters;
use super::json::{Step, Value};

/// The longest boundary that is read. The standard allows 70 characters and two hyphens before them.
const LONGEST_BOUNDARY: usize = 256;

/// How much of a header line is read; a field's name stands at its beginning.
const LONGEST_HEADER: usize = 1_024;

/// How much of a field is held to be handed out in one piece; only prompts are longer than a name.
const LONGEST_PIECE: usize = 4_096;

/// The longest field that may be a number or a flag.
const LONGEST_SCALAR: usize = 32;

#[derive(Debug)]
pub struct Form {
    keys: &'static [&'static str],
    state: State,
    /// A line end and what stands after it between two fields. A line end stands nowhere else in it, so that after a
    /// part of it was found in vain the search goes on from there.
    delimiter: Vec<u8>,
    /// How much of the delimiter was found.
    found: usize,
    /// The line that is being read, or the piece of the field.
    held: Vec<u8>,
    field: Option<&'static str>,
    /// Whether a piece of the field was handed out.
    begun: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// In the first line.
    Boundary,
    /// In a line of a field's head.
    Head,
    Field,
    /// In the rest of the line that ends a field.
    Between,
    Over,
}

impl Form {
    /// Whether a body that begins so is a form: no JSON body of a request begins with a hyphen.
    pub const fn begins(byte: u8) -> bool {
        byte == b'-'
    }

    /// `keys`: the names of the fields that are wanted are among them.
    pub fn new(keys: &'static [&'static str]) -> Self {
        Self {
            keys,
            state: State::Boundary,
            delimiter: Vec::new(),
            found: 0,
            held: Vec::new(),
            field: None,
            begun: false,
        }
    }

    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(&[Step], Value<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() && self.state != State::Over {
            rest = match self.state {
                State::Field => self.in_field(rest, out),
                State::Boundary | State::Head | State::Between | State::Over => self.in_line(rest),
            };
        }
    }

    fn in_line<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let end = memchr(b'\n', rest);
        let (line, after) = rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or((rest, b""));
        let room = LONGEST_HEADER.saturating_sub(self.held.len());
        self.held.extend(line.iter().take(room));
        if self.state == State::Boundary && self.held.len() > LONGEST_BOUNDARY {
            self.state = State::Over;
        }
        if end.is_some() && self.state != State::Over {
            let line = std::mem::take(&mut self.held);
            self.line(line.trim_ascii_end());
        }
        after.get(1..).unwrap_or_default()
    }

    fn line(&mut self, line: &[u8]) {
        self.state = match self.state {
            State::Boundary if line.starts_with(b"--") => {
                self.delimiter = [b"\n", line].concat();
                State::Head
            }
            State::Head if line.is_empty() => {
                self.begun = false;
                State::Field
            }
            State::Head => {
                self.header(line);
                State::Head
            }
            State::Between if line.is_empty() => {
                self.field = None;
                State::Head
            }
            State::Boundary | State::Between | State::Field | State::Over => State::Over,
        };
    }

    /// Reads a header; that of a field names it.
    fn header(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let Some((name, value)) = line.split_once(':') else {
            return;
        };
        if !name.eq_ignore_ascii_case("content-disposition") {
            return;
        }
        let mut parameters = value.split(';').filter_map(|part| part.trim().split_once('='));
        let field = parameters
            .find(|(name, _)| name.eq_ignore_ascii_case("name"))
            .map(|(_, value)| value.trim_matches('"'));
        let is_file = parameters.any(|(name, _)| name.eq_ignore_ascii_case("filename"));
        self.field = field
            .filter(|_| !is_file)
            .and_then(|field| self.keys.iter().find(|known| **known == field))
            .copied();
    }

    fn in_field<'a>(
        &mut self,
        rest: &'a [u8],
        out: &mut impl FnMut(&[Step], Value<'_>),
    ) -> &'a [u8] {
        let Some(wanted) = self.delimiter.get(self.found).filter(|_| self.found > 0) else {
            let end = memchr(b'\n', rest);
            let (piece, after) =
                rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or((rest, b""));
            self.hold(piece, out);
            self.found = usize::from(end.is_some());
            return after.get(1..).unwrap_or_default();
        };
        if rest.first() == Some(wanted) {
            self.found += 1;
            if self.found == self.delimiter.len() {
                self.found = 0;
                self.end_field(out);
                self.state = State::Between;
            }
            return rest.get(1..).unwrap_or_default();
        }
        // What was found was a part of the field.
        let found = std::mem::take(&mut self.found);
        let part: Vec<u8> = self.delimiter.iter().take(found).copied().collect();
        self.hold(&part, out);
        rest
    }

    /// Takes a piece of the field.
    fn hold(&mut self, piece: &[u8], out: &mut impl FnMut(&[Step], Value<'_>)) {
        let Some(field) = self.field else {
            return;
        };
        for piece in piece.chunks(LONGEST_PIECE) {
            self.held.extend_from_slice(piece);
            if self.held.len() <= LONGEST_PIECE {
                continue;
            }
            let whole = whole_characters(&self.held);
            let rest = self.held.split_off(whole);
            let piece = std::mem::replace(&mut self.held, rest);
            self.begun = true;
            let text = String::from_utf8_lossy(&piece);
            out(&[Step::Key(field)], Value::Text(&text));
        }
    }

    fn end_field(&mut self, out: &mut impl FnMut(&[Step], Value<'_>)) {
        let held = std::mem::take(&mut self.held);
        let Some(field) = self.field.take() else {
            return;
        };
        let value = held.strip_suffix(b"\r").unwrap_or(&held);
        let text = String::from_utf8_lossy(value);
        let path = &[Step::Key(field)];
        if let Some(scalar) = scalar(&text).filter(|_| !self.begun) {
            return out(path, scalar);
        }
        if !text.is_empty() {
            out(path, Value::Text(&text));
        }
        out(path, Value::TextEnd);
    }
}

/// A flag or a number, if the text is one.
fn scalar(text: &str) -> Option<Value<'_>> {
    let number = |text: &str| text.parse::<f64>().is_ok_and(f64::is_finite);
    match text {
        _ if text.len() > LONGEST_SCALAR => None,
        "true" | "True" => Some(Value::Bool(true)),
        "false" | "False" => Some(Value::Bool(false)),
        _ if number(text) => Some(Value::Number(text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &[&str] = &["model", "stream", "temperature", "prompt", "file"];

    /// What is handed out of a form, however it is cut.
    fn read(body: &[u8]) -> Vec<String> {
        let cut = |pieces: &[&[u8]]| {
            let mut form = Form::new(KEYS);
            let mut said: Vec<String> = Vec::new();
            let mut open = String::new();
            let mut take = |path: &[Step], value: Value<'_>| {
                if let Value::Text(text) = value {
                    open.push_str(text);
                } else {
                    let text = std::mem::take(&mut open);
                    said.push(format!("{path:?} {value:?} {text}"));
                }
            };
            pieces.iter().for_each(|piece| form.push(piece, &mut take));
            said
        };
        let whole = cut(&[body]);
        assert_eq!(cut(&body.chunks(1).collect::<Vec<_>>()), whole);
        for at in 0..=body.len() {
            let (first, second) = body.split_at(at);
            assert_eq!(cut(&[first, second]), whole, "cut at {at}");
        }
        whole
    }

    #[test]
    fn fields_are_read_and_files_are_not() {
        let body = b"--b0und\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n\
            RIFF\r\n--b0un\r\n\r\n--b0\xFF\n\r\n--b0und\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper-x\r\n--b0und\r\n\
            Content-Disposition: form-data; name=stream\r\n\r\nTrue\r\n--b0und\r\nContent-Disposition: form-data; name=\"temperature\"\r\n\r\n0.5\r\n\
            --b0und\r\nContent-Disposition: form-data; name=\"language\"\r\n\r\nen\r\n--b0und\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n\
            one\r\ntwo \xC3\xA9\r\n--b0und--\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nno\r\n--b0und--";
        assert_eq!(
            read(body),
            [
                "[Key(\"model\")] TextEnd whisper-x",
                "[Key(\"stream\")] Bool(true) ",
                "[Key(\"temperature\")] Number(\"0.5\") ",
                "[Key(\"prompt\")] TextEnd one\r\ntwo é",
            ]
        );
    }

    #[test]
    fn bare_line_ends_and_empty_fields_are_read_too() {
        let body = b"--b\nContent-Disposition: form-data; name=\"prompt\"\n\n\n--b\nContent-Disposition: form-data; name=\"model\"\n\nm\n--b--";
        let said = ["[Key(\"prompt\")] TextEnd ", "[Key(\"model\")] TextEnd m"];
        assert_eq!(read(body), said);
    }

    #[test]
    fn what_is_no_form_is_nothing() {
        for body in [
            &b""[..],
            b"--",
            b"-1",
            b"--b\r\n\r\nx\r\n--b--",
            b"--b\r\nno header\r\nContent-Type: x\r\n\r\nx\r\n--b",
            b"-b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n-b--",
        ] {
            assert_eq!(read(body), [""; 0], "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut form = Form::new(KEYS);
        let mut bytes = 0;
        let mut push = |form: &mut Form, piece: &[u8]| {
            form.push(piece, &mut |_, value| {
                if let Value::Text(text) = value {
                    bytes += text.len();
                }
            });
        };
        push(&mut form, b"--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\nX: ");
        push(&mut form, &[b'x'; 100_000]);
        assert!(form.held.len() <= LONGEST_HEADER);
        push(&mut form, b"\r\n\r\n");
        for _ in 0..100 {
            push(&mut form, "\n\u{e9}".repeat(1_000).as_bytes());
            assert!(form.held.len() <= 2 * LONGEST_PIECE);
        }
        push(&mut form, b"\r\n--b--\r\n");
        assert_eq!(bytes, 300_000);
        let mut endless = Form::new(KEYS);
        endless.push(&[b'-'; 100_000], &mut |_, _| {});
        assert!(endless.held.len() <= LONGEST_HEADER && endless.state == State::Over);
    }

    proptest::proptest! {
        #[test]
        fn no_form_makes_it_panic(fields in proptest::collection::vec(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60), 0..5)) {
            let parts = fields.iter().map(|field| [&b"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n"[..], field, b"\r\n"].concat());
            read(&parts.chain([b"--b--".to_vec()]).collect::<Vec<_>>().concat());
        }
    }
}
