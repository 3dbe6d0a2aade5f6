//! JSON of any size, read as it goes by: the values at the paths one wants to know, nothing kept.
//!
//! A request's `model` may stand after megabytes of messages, an answer's usage after megabytes of vectors; holding a
//! body only to read three fields of it would cost memory by the body's size. So bytes go through here, cut anywhere,
//! and every value whose keys are all known is handed out with its path; everything else is passed over at the speed of
//! a search for quotes.

mod raw;
mod short;
mod text;

pub use raw::{Compact, compact};
pub use short::Short;

use memchr::memchr2;

use text::{Decoder, Progress};

/// The deepest value that is handed out. The deepest that any dialect reads stands nine steps down
/// (`choices[].delta.content[].thinking[].text`).
const DEEPEST: usize = 12;

/// The longest key that is compared: no key that any dialect reads is longer.
const LONGEST_KEY: usize = 40;

/// The longest number that is read; a double takes 25 characters at most.
const LONGEST_SCALAR: usize = 40;

/// One step from the root towards a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    Key(&'static str),
    At(u32),
}

/// A value, or a piece of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Object,
    Array,
    /// The object or array at this path is over.
    End,
    /// A piece of a string, unescaped; never empty.
    Text(&'a str),
    /// The string at this path is over.
    TextEnd,
    Number(&'a str),
    Bool(bool),
    Null,
}

/// How the whole came out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    Complete,
    /// It ended before its end.
    Cut,
    /// It is not JSON.
    Broken,
}

#[derive(Debug)]
pub struct Skimmer {
    keys: &'static [&'static str],
    /// The keys whose objects and arrays are handed out as text.
    raw: &'static [&'static str],
    /// The path of the value that is being read; a step that is not known is an empty key.
    path: Vec<Step>,
    state: State,
    /// Whether the value that comes next is handed out.
    wanted: bool,
    key: Key,
    scalar: Vec<u8>,
    text: Decoder,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Before a value; `first` in an array, where it may also end.
    Value {
        first: bool,
    },
    /// Before a key; `first` in an object, where it may also end.
    Key {
        first: bool,
    },
    InKey,
    Colon,
    InText,
    /// In an object or array that is handed out as text.
    InRaw(Compact),
    InScalar,
    /// In a value that nobody wants, so many brackets deep.
    Skip {
        depth: u32,
        string: Skipped,
    },
    /// After a value.
    After,
    Done,
    Broken,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Skipped {
    Outside,
    Inside,
    Escape,
}

/// The key that is being read, as far as it is compared.
#[derive(Debug, Default)]
struct Key {
    text: String,
    too_long: bool,
}

impl Skimmer {
    /// `keys`: every key that stands in a wanted path.
    pub fn new(keys: &'static [&'static str]) -> Self {
        Self {
            keys,
            raw: &[],
            path: Vec::new(),
            state: State::Value { first: false },
            wanted: true,
            key: Key::default(),
            scalar: Vec::new(),
            text: Decoder::default(),
        }
    }

    /// Hands out an object or array under one of these keys as if a string that holds it stood there, compactly written.
    pub fn raw(self, keys: &'static [&'static str]) -> Self {
        Self { raw: keys, ..self }
    }

    pub fn push(&mut self, bytes: &[u8], out: &mut impl FnMut(&[Step], Value<'_>)) {
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first() {
            rest = match self.state {
                State::InKey => self.in_key(rest),
                State::InText => self.in_text(rest, out),
                State::InRaw(compact) => self.in_raw(rest, compact, out),
                State::InScalar => self.in_scalar(rest, out),
                State::Skip { depth, string } => self.skip(rest, depth, string),
                State::Broken => return,
                State::Value { .. }
                | State::Key { .. }
                | State::Colon
                | State::After
                | State::Done => {
                    if !byte.is_ascii_whitespace() {
                        self.structure(*byte, out);
                    }
                    after
                }
            }
        }
    }

    /// There is no more.
    pub fn finish(&mut self, out: &mut impl FnMut(&[Step], Value<'_>)) -> Outcome {
        if self.state == State::InScalar && self.path.is_empty() {
            self.end_scalar(out);
        }
        match self.state {
            State::Done => Outcome::Complete,
            State::After if self.path.is_empty() => Outcome::Complete,
            State::Broken => Outcome::Broken,
            State::Value { .. }
            | State::Key { .. }
            | State::InKey
            | State::Colon
            | State::InText
            | State::InRaw(_)
            | State::InScalar
            | State::Skip { .. }
            | State::After => Outcome::Cut,
        }
    }

    /// Whether some text had to be replaced by U+FFFD.
    pub fn lossy(&self) -> bool {
        self.text.lossy()
    }

    /// Takes a byte that stands between values.
    fn structure(&mut self, byte: u8, out: &mut impl FnMut(&[Step], Value<'_>)) {
        self.state = match (self.state, byte) {
            (State::Value { first: true }, b']') | (State::Key { first: true }, b'}') => {
                return self.close(byte, out);
            }
            (State::Value { .. }, _) => return self.begin(byte, out),
            (State::Key { .. }, b'"') => {
                self.key = Key::default();
                State::InKey
            }
            (State::Colon, b':') => State::Value { first: false },
            (State::After, b',') => self.next(),
            (State::After, b']' | b'}') => return self.close(byte, out),
            _ => State::Broken,
        };
    }

    /// Begins a value.
    fn begin(&mut self, byte: u8, out: &mut impl FnMut(&[Step], Value<'_>)) {
        let skip = |depth, string| State::Skip { depth, string };
        let enter = self.wanted && self.path.len() < DEEPEST;
        let raw = matches!(self.path.last(), Some(Step::Key(key)) if self.raw.contains(key));
        self.state = match byte {
            b'"' if self.wanted => State::InText,
            b'"' => skip(0, Skipped::Inside),
            b'{' | b'[' if self.wanted && raw => {
                let bracket = if byte == b'{' { "{" } else { "[" };
                out(&self.path, Value::Text(bracket));
                State::InRaw(Compact::opened())
            }
            b'{' if enter => {
                out(&self.path, Value::Object);
                self.path.push(Step::Key(""));
                State::Key { first: true }
            }
            b'[' if enter => {
                out(&self.path, Value::Array);
                self.path.push(Step::At(0));
                State::Value { first: true }
            }
            b'{' | b'[' => skip(1, Skipped::Outside),
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                self.scalar.push(byte);
                State::InScalar
            }
            // NaN and Infinity are no JSON, but some write them, in fields that nobody reads.
            b'N' | b'I' if !self.wanted => State::InScalar,
            _ => State::Broken,
        };
    }

    /// After a comma.
    fn next(&mut self) -> State {
        match self.path.last_mut() {
            Some(Step::At(index)) => {
                *index = index.saturating_add(1);
                self.wanted = true;
                State::Value { first: false }
            }
            Some(Step::Key(_)) => State::Key { first: false },
            None => State::Broken,
        }
    }

    fn close(&mut self, bracket: u8, out: &mut impl FnMut(&[Step], Value<'_>)) {
        let fits = match self.path.pop() {
            Some(Step::At(_)) => bracket == b']',
            Some(Step::Key(_)) => bracket == b'}',
            None => false,
        };
        if fits {
            out(&self.path, Value::End);
        }
        self.state = match (fits, self.path.is_empty()) {
            (false, _) => State::Broken,
            (true, true) => State::Done,
            (true, false) => State::After,
        };
    }

    fn in_key<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let key = &mut self.key;
        match self.text.push(rest, &mut |piece| key.push(piece)) {
            Progress::More => b"",
            Progress::Bad => self.broken(),
            Progress::Closed(after) => {
                let known = self.keys.iter().find(|known| key.is(known));
                self.wanted = known.is_some();
                if let Some(step) = self.path.last_mut() {
                    *step = Step::Key(known.copied().unwrap_or_default());
                }
                self.state = State::Colon;
                after
            }
        }
    }

    fn in_text<'a>(
        &mut self,
        rest: &'a [u8],
        out: &mut impl FnMut(&[Step], Value<'_>),
    ) -> &'a [u8] {
        let path = &self.path;
        match self.text.push(rest, &mut |piece| out(path, Value::Text(piece))) {
            Progress::More => b"",
            Progress::Bad => self.broken(),
            Progress::Closed(after) => {
                out(&self.path, Value::TextEnd);
                self.state = State::After;
                after
            }
        }
    }

    fn in_raw<'a>(
        &mut self,
        rest: &'a [u8],
        mut compact: Compact,
        out: &mut impl FnMut(&[Step], Value<'_>),
    ) -> &'a [u8] {
        let (path, text) = (&self.path, &mut self.text);
        let mut piece = |piece: &str| out(path, Value::Text(piece));
        let after = compact.push(rest, &mut |kept| text.plain(kept, &mut piece));
        if after.is_some() {
            text.end_partial(&mut piece);
            out(path, Value::TextEnd);
        }
        self.state = after.map_or(State::InRaw(compact), |_| State::After);
        after.unwrap_or_default()
    }

    fn in_scalar<'a>(
        &mut self,
        rest: &'a [u8],
        out: &mut impl FnMut(&[Step], Value<'_>),
    ) -> &'a [u8] {
        let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
        let end = rest.iter().position(ends).unwrap_or(rest.len());
        let (piece, after) = rest.split_at_checked(end).unwrap_or((rest, b""));
        let room = (LONGEST_SCALAR + 1).saturating_sub(self.scalar.len());
        self.scalar.extend(piece.iter().take(room));
        if !after.is_empty() {
            self.end_scalar(out);
        }
        after
    }

    fn end_scalar(&mut self, out: &mut impl FnMut(&[Step], Value<'_>)) {
        let scalar = std::mem::take(&mut self.scalar);
        let text = std::str::from_utf8(&scalar).unwrap_or_default();
        self.state = State::After;
        if !self.wanted {
            return;
        }
        let value = match text {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => Value::Null,
            _ if scalar.len() > LONGEST_SCALAR => return,
            _ if is_number(text) => Value::Number(text),
            _ => {
                self.state = State::Broken;
                return;
            }
        };
        out(&self.path, value);
    }

    /// Passes over a value.
    fn skip<'a>(&mut self, rest: &'a [u8], depth: u32, string: Skipped) -> &'a [u8] {
        match string {
            Skipped::Escape => {
                let string = Skipped::Inside;
                self.state = State::Skip { depth, string };
                rest.get(1..).unwrap_or_default()
            }
            Skipped::Inside => {
                let Some((byte, after)) = memchr2(b'"', b'\\', rest)
                    .and_then(|end| rest.get(end..))
                    .and_then(<[u8]>::split_first)
                else {
                    return b"";
                };
                self.state = match (byte, depth) {
                    (b'\\', _) => State::Skip { depth, string: Skipped::Escape },
                    (_, 0) => State::After,
                    _ => State::Skip { depth, string: Skipped::Outside },
                };
                after
            }
            Skipped::Outside => self.skip_structure(rest, depth),
        }
    }

    /// Passes over what stands between the strings of a value.
    fn skip_structure<'a>(&mut self, rest: &'a [u8], mut depth: u32) -> &'a [u8] {
        let mut bytes = rest.iter();
        for byte in bytes.by_ref() {
            match byte {
                b'{' | b'[' => depth = depth.saturating_add(1),
                b'}' | b']' => depth -= 1,
                b'"' => {
                    let string = Skipped::Inside;
                    self.state = State::Skip { depth, string };
                    return bytes.as_slice();
                }
                _ => {}
            }
            if depth == 0 {
                self.state = State::After;
                return bytes.as_slice();
            }
        }
        let string = Skipped::Outside;
        self.state = State::Skip { depth, string };
        b""
    }

    fn broken(&mut self) -> &'static [u8] {
        self.state = State::Broken;
        b""
    }
}

impl Key {
    fn push(&mut self, piece: &str) {
        if self.text.len() + piece.len() <= LONGEST_KEY {
            self.text.push_str(piece);
        } else {
            self.too_long = true;
        }
    }

    fn is(&self, known: &str) -> bool {
        !self.too_long && self.text == known
    }
}

fn is_number(text: &str) -> bool {
    let digits = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    text.bytes().all(digits) && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests;
