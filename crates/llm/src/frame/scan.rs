//! Finds the end of a JSON value without parsing the value, by counting brackets and skipping strings.

use memchr::memchr3;

/// Scans one value that begins with `{`, `[` or `"`. The bytes may be split at any position. The scanner does not
/// validate the JSON.
#[derive(Debug, Default)]
pub struct Scanner {
    depth: usize,
    in_string: bool,
    /// Whether the last byte was a backslash in a string.
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

impl Scanner {
    /// Scans until a reason to stop occurs. Returns the number of scanned bytes and the reason.
    pub fn run(&mut self, bytes: &[u8]) -> (usize, Stop) {
        let mut passed = 0;
        while let Some(byte) = self.next(bytes, &mut passed) {
            match byte {
                b'\n' => return (passed, Stop::Line),
                b'\\' => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b'{' | b'[' => self.depth += 1,
                _ => self.depth = self.depth.saturating_sub(1),
            }
            if self.depth == 0 && !self.in_string {
                return (passed, Stop::End);
            }
        }
        (bytes.len(), Stop::Bytes)
    }

    /// Advances past the next significant byte and returns it.
    fn next(&mut self, bytes: &[u8], passed: &mut usize) -> Option<u8> {
        let mut rest = bytes.get(*passed..)?;
        if self.escaped {
            let first = rest.first()?;
            self.escaped = false;
            // A line end counts even after a backslash: if a line breaks off there, the scanner must still detect the
            // next line.
            if *first != b'\n' {
                *passed += 1;
                rest = rest.get(1..)?;
            }
        }
        let at = if self.in_string {
            memchr3(b'"', b'\\', b'\n', rest)?
        } else {
            rest.iter().position(|byte| matters(*byte))?
        };
        *passed += at + 1;
        rest.get(at).copied()
    }
}

/// Returns whether a byte outside of strings is significant.
fn matters(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'}' | b'[' | b']' | b'\n')
}
