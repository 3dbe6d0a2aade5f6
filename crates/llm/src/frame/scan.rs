//! Finds the end of a JSON value without parsing it: the scanner counts brackets and skips strings.

use memchr::memchr3;

/// Scans the bytes of one value that begins with `{`, `[` or `"`, split at any position. It does not validate JSON.
#[derive(Debug, Default)]
pub struct Scanner {
    depth: usize,
    in_string: bool,
    /// The last byte was a backslash in a string.
    escaped: bool,
}

/// Reason why a run stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stop {
    /// The value is complete. The next run begins another value.
    End,
    /// A line ended within the value.
    Line,
    /// The input ended within the value.
    Bytes,
}

impl Scanner {
    /// Scans until a stop condition and returns the number of scanned bytes.
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
            // A line end counts even after a backslash. If a line breaks off there, the scanner must still detect the
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

/// Reports whether a byte outside of strings is significant.
fn matters(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'}' | b'[' | b']' | b'\n')
}
