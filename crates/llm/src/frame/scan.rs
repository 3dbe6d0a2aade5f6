//! Finds the end of a JSON value without parsing it, by counting brackets and skipping strings.

use memchr::{memchr2, memchr3};

/// Scans one JSON object, list or string, which may arrive in pieces. The scanner does not check that the JSON is
/// valid.
///
/// With `LINES`, the scanner also stops at line ends. Without `LINES`, it removes white space outside of strings.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Scanner<const LINES: bool> {
    depth: u32,
    in_string: bool,
    /// Whether the last byte was a backslash, which escapes the next character of a string.
    escaped: bool,
}

/// Why a scan stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stop {
    /// The value is complete. The next scan begins another value.
    End,
    /// A line ended inside the value.
    Line,
    /// The input ended inside the value.
    Bytes,
}

impl Scanner<true> {
    /// Scans until the value, a line or the input ends. Returns the number of scanned bytes and the reason for the
    /// stop.
    pub fn run(&mut self, bytes: &[u8]) -> (usize, Stop) {
        let mut passed = 0;
        while let Some(byte) = self.next(bytes, &mut passed) {
            if byte == b'\n' {
                return (passed, Stop::Line);
            }
            if self.is_complete() {
                return (passed, Stop::End);
            }
        }
        (bytes.len(), Stop::Bytes)
    }
}

impl Scanner<false> {
    /// Creates a scanner that starts after the opening bracket of an object or a list.
    pub const fn in_brackets() -> Self {
        Self { depth: 1, in_string: false, escaped: false }
    }

    /// Starts after the opening quote of a string.
    pub const fn in_string() -> Self {
        Self { depth: 0, in_string: true, escaped: false }
    }

    /// Passes the bytes without white space to `out`. When the value ends, returns the bytes after it.
    pub fn compact<'a>(
        &mut self,
        bytes: &'a [u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Option<&'a [u8]> {
        let (mut start, mut passed) = (0, 0);
        while let Some(byte) = self.next(bytes, &mut passed) {
            let is_blank = byte.is_ascii_whitespace();
            if is_blank || self.is_complete() {
                let end = passed - usize::from(is_blank);
                out(bytes.get(start..end).unwrap_or_default());
                start = passed;
            }
            if self.is_complete() {
                return bytes.get(passed..);
            }
        }
        out(bytes.get(start..).unwrap_or_default());
        None
    }
}

impl<const LINES: bool> Scanner<LINES> {
    const fn is_complete(self) -> bool {
        self.depth == 0 && !self.in_string
    }

    /// Advances past the next significant byte and returns it.
    fn next(&mut self, bytes: &[u8], passed: &mut usize) -> Option<u8> {
        let mut rest = bytes.get(*passed..)?;
        if self.escaped {
            let first = rest.first()?;
            self.escaped = false;
            // A line end counts even after a backslash: if a line breaks off there, the scanner must still detect the
            // next line.
            if !LINES || *first != b'\n' {
                *passed += 1;
                rest = rest.get(1..)?;
            }
        }
        let at = match (self.in_string, LINES) {
            (true, true) => memchr3(b'"', b'\\', b'\n', rest)?,
            (true, false) => memchr2(b'"', b'\\', rest)?,
            (false, _) => rest.iter().position(|byte| Self::matters(*byte))?,
        };
        *passed += at + 1;
        let byte = *rest.get(at)?;
        match byte {
            b'\\' => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        Some(byte)
    }

    /// Returns whether a byte outside of strings is significant.
    fn matters(byte: u8) -> bool {
        matches!(byte, b'"' | b'{' | b'}' | b'[' | b']' | b'\n')
            || !LINES && byte.is_ascii_whitespace()
    }
}
