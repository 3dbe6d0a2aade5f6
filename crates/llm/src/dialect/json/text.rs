//! Decodes a JSON string incrementally: resolves escapes and validates UTF-8. The input may be split at any position.
//!
//! Invalid UTF-8, and half of a surrogate pair, become U+FFFD. Backends send them when they split an emoji.

use memchr::memchr2;

const REPLACEMENT: &str = "\u{FFFD}";

/// The result of decoding a piece of a string.
#[derive(Debug, Eq, PartialEq)]
pub enum Progress<'a> {
    /// The string continues after the piece.
    More,
    /// The closing quote was found. The remaining bytes follow it.
    Closed(&'a [u8]),
    /// The piece contains an escape that JSON does not define.
    Bad,
}

/// Receives decoded text in pieces that are never empty.
pub trait TextSink {
    /// Whether [`add_length`](Self::add_length) can replace the text, so that ASCII needs no validation.
    const ONLY_LENGTH: bool = false;

    fn text(&mut self, piece: &str);

    fn add_length(&mut self, _bytes: usize) {}
}

impl<F: FnMut(&str)> TextSink for F {
    fn text(&mut self, piece: &str) {
        self(piece);
    }
}

/// The length of the text in bytes.
#[derive(Debug, Default)]
pub struct TextLength(pub usize);

impl TextSink for TextLength {
    const ONLY_LENGTH: bool = true;

    fn text(&mut self, piece: &str) {
        self.0 += piece.len();
    }

    fn add_length(&mut self, bytes: usize) {
        self.0 += bytes;
    }
}

#[derive(Debug, Default)]
pub struct Decoder {
    /// The first bytes of an incomplete character.
    partial: Vec<u8>,
    escape: Escape,
    /// The first half of a surrogate pair.
    high_surrogate: Option<u16>,
    lossy: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Escape {
    #[default]
    No,
    /// After the backslash.
    Backslash,
    /// After `\u` and some digits.
    Unicode { digits: u8, unit: u16 },
}

impl Decoder {
    /// Returns whether any text was replaced by U+FFFD.
    pub const fn is_lossy(&self) -> bool {
        self.lossy
    }

    /// Decodes bytes inside a string. Passes the decoded text to `out` in pieces that are never empty.
    pub fn push<'a>(&mut self, bytes: &'a [u8], out: &mut impl TextSink) -> Progress<'a> {
        let mut rest = bytes;
        loop {
            if let Escape::No = self.escape {
                let end = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                let (run, after) = rest.split_at_checked(end).unwrap_or((rest, b""));
                self.push_unescaped(run, out);
                let Some((byte, after)) = after.split_first() else {
                    return Progress::More;
                };
                self.end_partial(out);
                if *byte == b'"' {
                    self.end_surrogate(out);
                    return Progress::Closed(after);
                }
                self.escape = Escape::Backslash;
                rest = after;
            }
            let Some((byte, after)) = rest.split_first() else {
                return Progress::More;
            };
            if self.push_escaped(*byte, out).is_none() {
                return Progress::Bad;
            }
            rest = after;
        }
    }

    /// Processes one byte of an escape. Returns `None` if the escape is not valid.
    fn push_escaped(&mut self, byte: u8, out: &mut impl TextSink) -> Option<()> {
        if let Escape::Unicode { digits, unit } = self.escape {
            let digit = u16::try_from(char::from(byte).to_digit(16)?).ok()?;
            let unit = unit << 4 | digit;
            self.escape = match digits {
                3 => Escape::No,
                _ => Escape::Unicode { digits: digits + 1, unit },
            };
            if digits == 3 {
                self.push_code_unit(unit, out);
            }
            return Some(());
        }
        self.escape = Escape::No;
        let text = match byte {
            b'u' => {
                self.escape = Escape::Unicode { digits: 0, unit: 0 };
                return Some(());
            }
            b'"' => "\"",
            b'\\' => "\\",
            b'/' => "/",
            b'b' => "\u{8}",
            b'f' => "\u{c}",
            b'n' => "\n",
            b'r' => "\r",
            b't' => "\t",
            _ => return None,
        };
        self.end_surrogate(out);
        out.text(text);
        Some(())
    }

    /// Processes one UTF-16 code unit of an escape.
    fn push_code_unit(&mut self, unit: u16, out: &mut impl TextSink) {
        if let Some(high) = self.high_surrogate {
            let pair = char::decode_utf16([high, unit]).next();
            if let Some(Ok(character)) = pair {
                self.high_surrogate = None;
                out.text(character.encode_utf8(&mut [0; 4]));
                return;
            }
        }
        self.end_surrogate(out);
        match char::from_u32(u32::from(unit)) {
            Some(character) => out.text(character.encode_utf8(&mut [0; 4])),
            None if unit < 0xDC00 => self.high_surrogate = Some(unit),
            None => self.replace(out),
        }
    }

    /// Decodes bytes that contain no escapes.
    pub fn push_unescaped<S: TextSink>(&mut self, run: &[u8], out: &mut S) {
        if run.is_empty() {
            return;
        }
        self.end_surrogate(out);
        if S::ONLY_LENGTH && self.partial.is_empty() && run.is_ascii() {
            return out.add_length(run.len());
        }
        let mut rest = run;
        while !self.partial.is_empty() {
            let Some((byte, after)) = rest.split_first() else {
                return;
            };
            self.partial.push(*byte);
            match std::str::from_utf8(&self.partial) {
                Ok(text) => {
                    out.text(text);
                    self.partial = Vec::new();
                }
                Err(error) if error.error_len().is_none() => {}
                Err(_) => {
                    // The byte does not continue the incomplete character, so it starts a new character.
                    self.end_partial(out);
                    break;
                }
            }
            rest = after;
        }
        loop {
            let error = match std::str::from_utf8(rest) {
                Ok("") => return,
                Ok(text) => return out.text(text),
                Err(error) => error,
            };
            let (valid, invalid) =
                rest.split_at_checked(error.valid_up_to()).unwrap_or((rest, b""));
            emit(valid, out);
            let Some(bad) = error.error_len() else {
                self.partial = invalid.to_vec();
                return;
            };
            self.replace(out);
            rest = invalid.get(bad..).unwrap_or_default();
        }
    }

    /// Replaces a character that remained incomplete.
    pub fn end_partial(&mut self, out: &mut impl TextSink) {
        if !self.partial.is_empty() {
            self.partial = Vec::new();
            self.replace(out);
        }
    }

    fn end_surrogate(&mut self, out: &mut impl TextSink) {
        if self.high_surrogate.take().is_some() {
            self.replace(out);
        }
    }

    fn replace(&mut self, out: &mut impl TextSink) {
        self.lossy = true;
        out.text(REPLACEMENT);
    }
}

/// Passes on bytes that are known to be valid UTF-8.
fn emit(valid: &[u8], out: &mut impl TextSink) {
    if let Ok(text) = std::str::from_utf8(valid)
        && !text.is_empty()
    {
        out.text(text);
    }
}
