//! Scans JSON incrementally. Passes on the values at the paths that a format reads, and stores nothing else.
//!
//! The `model` of a request can follow megabytes of messages, and the usage of a response can follow megabytes of
//! vectors. The input may be split at any position. Other values are skipped at the speed of a search for quotes.

mod bounded_text;
mod errors;
mod expected;
mod path;
mod seen_keys;
mod state;
mod text;
mod value;

pub use bounded_text::BoundedText;
pub use errors::{ErrorScanner, identifier};
pub use expected::{Expected, Typed, deliver};
pub use path::{Paths, Row};
pub use value::{Found, Outcome, Position, Value, ValueSink};

use crate::dialect::lenient::record_misfit;
use crate::frame::scan::Scanner;
use path::Matches;
use seen_keys::SeenKeys;
use state::{Level, LevelKind, ParserState};
use text::{Decoder, Progress, TextLength};
use tokengauge_types::label::MAX_NAME_BYTES;

/// Maximum depth of a value that is passed on. A path has at most eight steps. Wrappers, and lists around the root, add
/// levels.
const MAX_DEPTH: usize = 12;

/// Maximum length in bytes of a key that is compared. No format has a longer key.
const MAX_KEY_BYTES: usize = 40;

/// Maximum length in bytes of an object in a [`Value::TextEnd`]. Objects with token counts have less than 1 KiB. A
/// truncated object is not valid JSON and is ignored.
const MAX_OBJECT_BYTES: usize = 8 << 10;

/// Maximum length in bytes of a number that is read. A double takes at most 25 characters.
const MAX_SCALAR_BYTES: usize = 40;

/// Scans one JSON document. Calls a function with the field, position and value at each path of the format. Collects
/// the parts that describe an error.
#[derive(Debug)]
pub struct JsonScanner<F: 'static> {
    paths: &'static Paths<F>,
    /// The open objects and lists, outermost first.
    levels: Vec<Level>,
    /// The index of the current element in each open list.
    positions: Vec<u32>,
    /// Number of open lists that surround the root value.
    roots: usize,
    state: ParserState,
    /// The rows that match the value that comes next.
    next: Matches,
    /// The key that is being read.
    key: BoundedText,
    seen_keys: SeenKeys,
    scalar: Vec<u8>,
    text: Decoder,
    /// The beginning of the string that is being read.
    word: BoundedText,
    errors: ErrorScanner,
    /// Whether a field reads only the length of its strings.
    reads_length: fn(F) -> bool,
}

impl<F: Copy> JsonScanner<F> {
    pub fn new(paths: &'static Paths<F>) -> Self {
        Self {
            paths,
            levels: Vec::new(),
            positions: Vec::new(),
            roots: 0,
            state: ParserState::Value { first: false },
            next: paths.root(),
            key: BoundedText::default(),
            seen_keys: SeenKeys::default(),
            scalar: Vec::new(),
            text: Decoder::default(),
            word: BoundedText::default(),
            errors: ErrorScanner::default(),
            reads_length: |_| false,
        }
    }

    /// Delivers strings of the fields for which `reads_length` returns true as [`Value::TextLength`].
    pub fn with_lengths(self, reads_length: fn(F) -> bool) -> Self {
        Self { reads_length, ..self }
    }

    /// Scans a whole document. Reuses the memory of the previous document.
    pub fn scan(&mut self, bytes: &[u8], out: &mut impl ValueSink<F>) -> Outcome {
        self.levels.clear();
        self.positions.clear();
        self.roots = 0;
        self.state = ParserState::Value { first: false };
        self.next = self.paths.root();
        self.key.clear();
        self.seen_keys.clear();
        self.scalar.clear();
        self.text = Decoder::default();
        self.word.clear();
        self.errors = ErrorScanner::default();
        self.push(bytes, out);
        self.finish(out)
    }

    pub fn push(&mut self, bytes: &[u8], out: &mut impl ValueSink<F>) {
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first() {
            rest = match self.state {
                ParserState::InKey => self.read_key(rest),
                ParserState::InText => self.read_text(rest, out),
                ParserState::InRaw(scanner) => self.read_raw(rest, scanner, out),
                ParserState::InScalar => self.scan_scalar(rest, out),
                ParserState::Malformed => return,
                ParserState::Value { .. }
                | ParserState::Key { .. }
                | ParserState::Colon
                | ParserState::AfterValue
                | ParserState::Done => {
                    if !byte.is_ascii_whitespace() {
                        self.read_structure(*byte, out);
                    }
                    after
                }
            }
        }
    }

    pub fn finish(&mut self, out: &mut impl ValueSink<F>) -> Outcome {
        if self.state == ParserState::InScalar && self.levels.is_empty() {
            self.end_scalar(out);
        }
        match self.state {
            ParserState::Done => Outcome::Complete,
            ParserState::AfterValue if self.levels.is_empty() => Outcome::Complete,
            ParserState::Malformed => Outcome::Malformed,
            ParserState::Value { .. }
            | ParserState::Key { .. }
            | ParserState::InKey
            | ParserState::Colon
            | ParserState::InText
            | ParserState::InRaw(_)
            | ParserState::InScalar
            | ParserState::AfterValue => Outcome::Cut,
        }
    }

    /// Returns whether invalid text was replaced by U+FFFD.
    pub const fn is_lossy(&self) -> bool {
        self.text.is_lossy()
    }

    /// Returns the parts of the document that describe an error.
    pub const fn errors(&self) -> &ErrorScanner {
        &self.errors
    }

    pub fn into_errors(self) -> ErrorScanner {
        self.errors
    }

    /// Processes a byte between two values.
    fn read_structure(&mut self, byte: u8, out: &mut impl ValueSink<F>) {
        self.state = match (self.state, byte) {
            (ParserState::Value { first: true }, b']')
            | (ParserState::Key { first: true }, b'}') => {
                return self.close(byte, out);
            }
            (ParserState::Value { .. }, _) => return self.begin_value(byte, out),
            (ParserState::Key { .. }, b'"') => {
                self.key.clear();
                ParserState::InKey
            }
            (ParserState::Colon, b':') => ParserState::Value { first: false },
            (ParserState::AfterValue, b',') => self.next_item(),
            (ParserState::AfterValue, b']' | b'}') => return self.close(byte, out),
            _ => ParserState::Malformed,
        };
    }

    /// Begins a value with its first byte.
    fn begin_value(&mut self, byte: u8, out: &mut impl ValueSink<F>) {
        self.state = match byte {
            b'"' if self.next.ended != 0 || self.paths.has_own(self.next.open) => {
                ParserState::InText
            }
            b'"' => ParserState::InRaw(Scanner::in_string()),
            b'{' | b'[' if self.next.is_raw => {
                let bracket = if byte == b'{' { "{" } else { "[" };
                self.piece(bracket, out);
                ParserState::InRaw(Scanner::in_brackets())
            }
            b'{' | b'[' if self.levels.len() < MAX_DEPTH => self.begin_container(byte == b'[', out),
            b'{' | b'[' => ParserState::InRaw(Scanner::in_brackets()),
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                self.scalar.push(byte);
                ParserState::InScalar
            }
            // Python writes NaN and Infinity, which are not JSON. The scanner accepts them if no row reads the value.
            b'N' | b'I' if self.next.is_none() => ParserState::InScalar,
            _ => ParserState::Malformed,
        };
    }

    fn begin_container(&mut self, is_list: bool, out: &mut impl ValueSink<F>) -> ParserState {
        self.emit(if is_list { Value::Array } else { Value::Object }, out);
        if self.next.open == 0 {
            return ParserState::InRaw(Scanner::in_brackets());
        }
        let elements = self.paths.elements(self.next.open, self.next_depth());
        let kind = match is_list {
            _ if self.next.is_root => None,
            true if elements == 0 => Some(LevelKind::ListOfOne),
            false if elements == self.next.open => Some(LevelKind::Implied),
            _ => None,
        };
        match kind {
            Some(LevelKind::Implied) if self.levels.len() + 1 < MAX_DEPTH => {
                self.open(LevelKind::Implied);
                self.emit(Value::Object, out);
                self.open(LevelKind::Object)
            }
            Some(LevelKind::ListOfOne) => self.open(LevelKind::ListOfOne),
            _ => self.open(if is_list { LevelKind::List } else { LevelKind::Object }),
        }
    }

    /// Returns the number of path steps from the root to the members of the next value.
    fn next_depth(&self) -> usize {
        match self.levels.last() {
            Some(level) if !self.next.is_root => level.depth + 1,
            _ => 0,
        }
    }

    fn open(&mut self, kind: LevelKind) -> ParserState {
        let matches = self.next;
        let depth = match kind {
            // The list is no step of a path.
            LevelKind::ListOfOne => self.next_depth().saturating_sub(1),
            LevelKind::Object | LevelKind::List | LevelKind::Implied => self.next_depth(),
        };
        self.levels.push(Level { kind, matches, depth });
        match kind {
            LevelKind::Object => return ParserState::Key { first: true },
            LevelKind::ListOfOne => {}
            LevelKind::List | LevelKind::Implied => {
                self.positions.push(0);
                self.roots += usize::from(matches.is_root);
            }
        }
        self.next = self.element();
        ParserState::Value { first: true }
    }

    /// Returns the rows that match an element of the innermost list. An element of a list around the root is read like
    /// the root.
    fn element(&self) -> Matches {
        match self.levels.last() {
            Some(list) if list.matches.is_root || list.kind == LevelKind::ListOfOne => list.matches,
            Some(list) => self.paths.element(list.matches, list.depth),
            None => Matches::default(),
        }
    }

    /// Continues after a comma.
    fn next_item(&mut self) -> ParserState {
        match self.levels.last() {
            Some(level) if level.kind == LevelKind::ListOfOne => {
                record_misfit();
                self.next = Matches::default();
                ParserState::Value { first: false }
            }
            Some(level) if level.kind == LevelKind::List => {
                if let Some(position) = self.positions.last_mut() {
                    *position = position.saturating_add(1);
                }
                self.next = self.element();
                ParserState::Value { first: false }
            }
            Some(_) => ParserState::Key { first: false },
            None => ParserState::Malformed,
        }
    }

    fn close(&mut self, bracket: u8, out: &mut impl ValueSink<F>) {
        let is_object = self.levels.last().is_some_and(|level| level.kind == LevelKind::Object);
        if is_object != (bracket == b'}') || !self.end_level(out) {
            self.state = ParserState::Malformed;
            return;
        }
        if self.levels.last().is_some_and(|level| level.kind == LevelKind::Implied) {
            self.end_level(out);
        }
        self.state =
            if self.levels.is_empty() { ParserState::Done } else { ParserState::AfterValue };
    }

    /// Ends the innermost object or list. Returns `false` if none is open.
    fn end_level(&mut self, out: &mut impl ValueSink<F>) -> bool {
        self.seen_keys.end(self.levels.len());
        let Some(level) = self.levels.pop() else {
            return false;
        };
        if matches!(level.kind, LevelKind::List | LevelKind::Implied) {
            self.positions.pop();
            self.roots -= usize::from(level.matches.is_root);
        }
        self.next = level.matches;
        self.emit(Value::End, out);
        true
    }

    fn read_key<'a>(&mut self, rest: &'a [u8]) -> &'a [u8] {
        let key = &mut self.key;
        match self.text.push(rest, &mut |piece: &str| key.push(piece, MAX_KEY_BYTES)) {
            Progress::More => b"",
            Progress::Bad => self.malformed(),
            Progress::Closed(after) => {
                self.next = match self.levels.last() {
                    Some(level) if !self.key.is_cut() => {
                        self.paths.key(level.matches, level.depth, self.key.as_str())
                    }
                    _ => Matches::default(),
                };
                if !self.next.is_none() {
                    let level = self.levels.len();
                    self.next.is_repeated |= self.seen_keys.insert(level, self.key.as_str());
                }
                self.state = ParserState::Colon;
                after
            }
        }
    }

    fn read_text<'a>(&mut self, rest: &'a [u8], out: &mut impl ValueSink<F>) -> &'a [u8] {
        let mut text = std::mem::take(&mut self.text);
        let progress = if self.reads_only_length() {
            let mut length = TextLength::default();
            let progress = text.push(rest, &mut length);
            if length.0 > 0 {
                self.emit(Value::TextLength(length.0), out);
            }
            progress
        } else {
            text.push(rest, &mut |piece: &str| self.piece(piece, out))
        };
        self.text = text;
        match progress {
            Progress::More => b"",
            Progress::Bad => self.malformed(),
            Progress::Closed(after) => {
                self.end_text(out);
                self.state = ParserState::AfterValue;
                after
            }
        }
    }

    /// Whether every row that reads the current string reads only its length.
    fn reads_only_length(&self) -> bool {
        let ended = self.next.ended;
        ended != 0
            && self.paths.fields(ended).all(self.reads_length)
            && self.paths.error_fields(ended).next().is_none()
    }

    fn read_raw<'a>(
        &mut self,
        rest: &'a [u8],
        mut scanner: Scanner<false>,
        out: &mut impl ValueSink<F>,
    ) -> &'a [u8] {
        let after = if self.next.is_raw {
            let mut text = std::mem::take(&mut self.text);
            let mut piece = |piece: &str| self.piece(piece, out);
            let after = scanner.compact(rest, &mut |kept| text.push_unescaped(kept, &mut piece));
            if after.is_some() {
                text.end_partial(&mut piece);
            }
            self.text = text;
            if after.is_some() {
                self.end_text(out);
            }
            after
        } else {
            scanner.compact(rest, &mut |_| {})
        };
        self.state = after.map_or(ParserState::InRaw(scanner), |_| ParserState::AfterValue);
        after.unwrap_or_default()
    }

    fn scan_scalar<'a>(&mut self, rest: &'a [u8], out: &mut impl ValueSink<F>) -> &'a [u8] {
        let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
        let end = rest.iter().position(ends).unwrap_or(rest.len());
        let (piece, after) = rest.split_at_checked(end).unwrap_or((rest, b""));
        let free = (MAX_SCALAR_BYTES + 1).saturating_sub(self.scalar.len());
        self.scalar.extend(piece.iter().take(free));
        if !after.is_empty() {
            self.end_scalar(out);
        }
        after
    }

    fn end_scalar(&mut self, out: &mut impl ValueSink<F>) {
        let mut scalar = std::mem::take(&mut self.scalar);
        self.state = self.read_scalar(&scalar, out);
        scalar.clear();
        self.scalar = scalar;
    }

    /// Delivers a number, a boolean or null, and returns the next state.
    fn read_scalar(&mut self, scalar: &[u8], out: &mut impl ValueSink<F>) -> ParserState {
        if self.next.is_none() || scalar.len() > MAX_SCALAR_BYTES {
            return ParserState::AfterValue;
        }
        let value = match std::str::from_utf8(scalar).unwrap_or_default() {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "null" => {
                self.seen_keys.remove(self.levels.len(), self.key.as_str());
                Value::Null
            }
            text if is_number(text) => Value::Number(text),
            _ => return ParserState::Malformed,
        };
        if value != Value::Null {
            self.check_ended();
        }
        self.emit(value, out);
        ParserState::AfterValue
    }

    /// Records a misfit if rows read members of the current value, which is no object or list.
    fn check_ended(&self) {
        if self.next.ended == 0 && self.paths.has_own(self.next.open) {
            record_misfit();
        }
    }

    /// Delivers a piece of a string.
    fn piece(&mut self, piece: &str, out: &mut impl ValueSink<F>) {
        let longest = if self.next.is_raw { MAX_OBJECT_BYTES } else { MAX_NAME_BYTES };
        self.word.push(piece, longest);
        self.emit(Value::Text(piece), out);
    }

    fn end_text(&mut self, out: &mut impl ValueSink<F>) {
        let mut word = std::mem::take(&mut self.word);
        if !word.as_str().is_empty() {
            self.check_ended();
        }
        self.emit(Value::TextEnd(word.as_str()), out);
        if !self.next.is_raw {
            word.clear();
            self.word = word;
        }
    }

    /// Passes a value on once for every row whose path ends here.
    fn emit(&mut self, value: Value<'_>, out: &mut impl ValueSink<F>) {
        let ended = self.next.ended;
        let position = Position::new(&self.positions, self.roots);
        for field in self.paths.fields(ended) {
            let is_skipped = self.next.open == 0;
            out(field, Found { position, value, is_skipped, is_repeated: self.next.is_repeated });
        }
        for field in self.paths.error_fields(ended) {
            self.errors.read(field, value);
        }
    }

    const fn malformed(&mut self) -> &'static [u8] {
        self.state = ParserState::Malformed;
        b""
    }
}

fn is_number(text: &str) -> bool {
    let digits = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    text.bytes().all(digits) && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests;
