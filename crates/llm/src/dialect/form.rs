//! Reads forms (`multipart/form-data`) incrementally. Short fields are passed on, and files are skipped.
//!
//! A field is read like a top-level key of a JSON body, so the same paths apply to forms and JSON.

use memchr::memchr;

use super::characters::whole_characters;
use super::json::{BoundedText, Found, Position, Value, ValueSink};
use super::request::{RequestField, RequestPaths};
use tokengauge_types::label::MAX_NAME_BYTES;

/// Maximum length of a boundary in bytes. The standard allows 70 characters after two hyphens.
const MAX_BOUNDARY_BYTES: usize = 256;

/// Number of bytes of a header line that are read. The name of the field is at the beginning of the line.
const MAX_HEADER_LINE_BYTES: usize = 1_024;

/// Maximum length in bytes of a field that is read in one piece. Only prompts are longer, and are read in several pieces.
const MAX_PIECE_BYTES: usize = 4_096;

/// Maximum length in bytes of a field that can be a number or a flag.
const MAX_SCALAR_BYTES: usize = 32;

#[derive(Debug)]
pub struct Form {
    paths: &'static RequestPaths,
    state: FormState,
    /// The delimiter between two fields: a line end and the boundary. No other line end occurs in the delimiter, so a
    /// failed comparison can continue at the current byte.
    delimiter: Vec<u8>,
    /// Number of bytes of the delimiter that were found.
    found: usize,
    /// Buffer for the current line or the current piece of a field.
    buffered: Vec<u8>,
    /// Bit set of the rows (paths) that match the current field. 0 means that the field is skipped.
    field: u128,
    /// The beginning of the current field, if a piece was passed on.
    word: BoundedText,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum FormState {
    /// In the first line.
    Boundary,
    /// In a header line of a field.
    Headers,
    Field,
    /// In the rest of the line with the boundary.
    Between,
    Done,
}

impl Form {
    /// Returns whether a body with this first byte is a form. No JSON request begins with a hyphen.
    pub const fn starts_with(byte: u8) -> bool {
        byte == b'-'
    }

    pub fn new(paths: &'static RequestPaths) -> Self {
        Self {
            paths,
            state: FormState::Boundary,
            delimiter: Vec::new(),
            found: 0,
            buffered: Vec::new(),
            field: 0,
            word: BoundedText::default(),
        }
    }

    pub fn push(&mut self, bytes: &[u8], out: &mut impl ValueSink<RequestField>) {
        let mut rest = bytes;
        while !rest.is_empty() && self.state != FormState::Done {
            rest = match self.state {
                FormState::Field => self.read_field(rest, out),
                FormState::Boundary | FormState::Headers | FormState::Between | FormState::Done => {
                    self.read_line(rest)
                }
            };
        }
    }

    fn read_line<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let end = memchr(b'\n', rest);
        let (line, after) = rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or((rest, b""));
        let free = MAX_HEADER_LINE_BYTES.saturating_sub(self.buffered.len());
        self.buffered.extend(line.iter().take(free));
        if self.state == FormState::Boundary && self.buffered.len() > MAX_BOUNDARY_BYTES {
            self.state = FormState::Done;
        }
        if end.is_some() && self.state != FormState::Done {
            let line = std::mem::take(&mut self.buffered);
            self.end_line(line.trim_ascii_end());
        }
        after.get(1..).unwrap_or_default()
    }

    fn end_line(&mut self, line: &[u8]) {
        self.state = match self.state {
            FormState::Boundary if line.starts_with(b"--") => {
                self.delimiter = [b"\n", line].concat();
                FormState::Headers
            }
            FormState::Headers if line.is_empty() => FormState::Field,
            FormState::Headers => {
                self.header(line);
                FormState::Headers
            }
            FormState::Between if line.is_empty() => {
                self.field = 0;
                FormState::Headers
            }
            FormState::Boundary | FormState::Between | FormState::Field | FormState::Done => {
                FormState::Done
            }
        };
    }

    /// Processes a header line. `Content-Disposition` contains the name of the field.
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
        self.field = field.filter(|_| !is_file).map_or(0, |field| self.paths.root_key(field).ended);
    }

    fn read_field<'a>(
        &mut self,
        rest: &'a [u8],
        out: &mut impl ValueSink<RequestField>,
    ) -> &'a [u8] {
        let Some(wanted) = self.delimiter.get(self.found).filter(|_| self.found > 0) else {
            let end = memchr(b'\n', rest);
            let (piece, after) =
                rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or((rest, b""));
            self.push_piece(piece, out);
            self.found = usize::from(end.is_some());
            return after.get(1..).unwrap_or_default();
        };
        if rest.first() == Some(wanted) {
            self.found += 1;
            if self.found == self.delimiter.len() {
                self.found = 0;
                self.end_field(out);
                self.state = FormState::Between;
            }
            return rest.get(1..).unwrap_or_default();
        }
        // These bytes look like a delimiter but belong to the field.
        let found = std::mem::take(&mut self.found);
        let part: Vec<u8> = self.delimiter.iter().take(found).copied().collect();
        self.push_piece(&part, out);
        rest
    }

    /// Adds a piece of the current field.
    fn push_piece(&mut self, piece: &[u8], out: &mut impl ValueSink<RequestField>) {
        if self.field == 0 {
            return;
        }
        for piece in piece.chunks(MAX_PIECE_BYTES) {
            self.buffered.extend_from_slice(piece);
            if self.buffered.len() <= MAX_PIECE_BYTES {
                continue;
            }
            let whole = whole_characters(&self.buffered);
            let rest = self.buffered.split_off(whole);
            let piece = std::mem::replace(&mut self.buffered, rest);
            self.emit_piece(&String::from_utf8_lossy(&piece), out);
        }
    }

    fn end_field(&mut self, out: &mut impl ValueSink<RequestField>) {
        let held = std::mem::take(&mut self.buffered);
        if self.field == 0 {
            return;
        }
        let value = held.strip_suffix(b"\r").unwrap_or(&held);
        let text = String::from_utf8_lossy(value);
        if let Some(scalar) = scalar(&text).filter(|_| self.word.as_str().is_empty()) {
            self.emit(scalar, out);
        } else {
            if !text.is_empty() {
                self.emit_piece(&text, out);
            }
            self.emit(Value::TextEnd(self.word.as_str()), out);
            self.word.clear();
        }
        self.field = 0;
    }

    fn emit_piece(&mut self, piece: &str, out: &mut impl ValueSink<RequestField>) {
        self.word.push(piece, MAX_NAME_BYTES);
        self.emit(Value::Text(piece), out);
    }

    fn emit(&self, value: Value<'_>, out: &mut impl ValueSink<RequestField>) {
        for field in self.paths.fields(self.field) {
            let position = Position::default();
            out(field, Found { position, value, is_skipped: false, is_repeated: false });
        }
    }
}

/// Returns a text as a flag or a number, or `None` if it is neither.
fn scalar(text: &str) -> Option<Value<'_>> {
    let number = |text: &str| text.parse::<f64>().is_ok_and(f64::is_finite);
    match text {
        _ if text.len() > MAX_SCALAR_BYTES => None,
        "true" | "True" => Some(Value::Bool(true)),
        "false" | "False" => Some(Value::Bool(false)),
        _ if number(text) => Some(Value::Number(text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PATHS: RequestPaths = RequestPaths::new(&[
        ("model", RequestField::Model),
        ("stream", RequestField::Stream),
        ("temperature", RequestField::Temperature),
        ("prompt", RequestField::Prompt),
        ("file", RequestField::Prompt),
    ]);

    /// Returns the values of a form. Asserts that splitting the body anywhere gives the same values.
    fn read(body: &[u8]) -> Vec<String> {
        let cut = |pieces: &[&[u8]]| {
            let mut form = Form::new(&PATHS);
            let mut said: Vec<String> = Vec::new();
            let mut open = String::new();
            let mut take = |field: RequestField, Found { value, .. }: Found<'_>| {
                if let Value::Text(text) = value {
                    open.push_str(text);
                } else {
                    let text = std::mem::take(&mut open);
                    said.push(format!("{field:?} {value:?} {text}"));
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
    fn reads_fields_and_skips_files() {
        let body = b"--b0und\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n\
            RIFF\r\n--b0un\r\n\r\n--b0\xFF\n\r\n--b0und\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper-x\r\n--b0und\r\n\
            Content-Disposition: form-data; name=stream\r\n\r\nTrue\r\n--b0und\r\nContent-Disposition: form-data; name=\"temperature\"\r\n\r\n0.5\r\n\
            --b0und\r\nContent-Disposition: form-data; name=\"language\"\r\n\r\nen\r\n--b0und\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n\
            one\r\ntwo \xC3\xA9\r\n--b0und--\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nno\r\n--b0und--";
        assert_eq!(
            read(body),
            [
                "Model TextEnd(\"whisper-x\") whisper-x",
                "Stream Bool(true) ",
                "Temperature Number(\"0.5\") ",
                "Prompt TextEnd(\"one\\r\\ntwo é\") one\r\ntwo é",
            ]
        );
    }

    #[test]
    fn reads_bare_line_ends_and_empty_fields() {
        let body = b"--b\nContent-Disposition: form-data; name=\"prompt\"\n\n\n--b\nContent-Disposition: form-data; name=\"model\"\n\nm\n--b--";
        let said = ["Prompt TextEnd(\"\") ", "Model TextEnd(\"m\") m"];
        assert_eq!(read(body), said);
    }

    #[test]
    fn ignores_bodies_that_are_not_forms() {
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
    fn memory_is_bounded() {
        let mut form = Form::new(&PATHS);
        let mut bytes = 0;
        let mut push = |form: &mut Form, piece: &[u8]| {
            form.push(piece, &mut |_, Found { value, .. }| {
                if let Value::Text(text) = value {
                    bytes += text.len();
                }
            });
        };
        push(&mut form, b"--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\nX: ");
        push(&mut form, &[b'x'; 100_000]);
        assert!(form.buffered.len() <= MAX_HEADER_LINE_BYTES);
        push(&mut form, b"\r\n\r\n");
        for _ in 0..100 {
            push(&mut form, "\n\u{e9}".repeat(1_000).as_bytes());
            assert!(form.buffered.len() <= 2 * MAX_PIECE_BYTES);
        }
        push(&mut form, b"\r\n--b--\r\n");
        assert_eq!(bytes, 300_000);
        let mut endless = Form::new(&PATHS);
        endless.push(&[b'-'; 100_000], &mut |_, _| {});
        assert!(
            endless.buffered.len() <= MAX_HEADER_LINE_BYTES && endless.state == FormState::Done
        );
    }

    proptest::proptest! {
        #[test]
        fn never_panics(fields in proptest::collection::vec(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60), 0..5)) {
            let parts = fields.iter().map(|field| [&b"--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n"[..], field, b"\r\n"].concat());
            read(&parts.chain([b"--b--".to_vec()]).collect::<Vec<_>>().concat());
        }
    }
}
