//! Finds where a JSON value ends, without reading what it says: brackets are counted, strings are passed over.

use memchr::memchr3;

/// Runs over the bytes of one value that begins with `{`, `[` or `"`, cut anywhere. It does not check that it is JSON.
#[derive(Debug, Default)]
pub struct Scanner {
    depth: usize,
    in_string: bool,
    /// The last byte was a backslash in a string.
    escaped: bool,
}

/// Why a run stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stop {
    /// The value is over; the next run begins another.
    End,
    /// A line is over, the value is not.
    Line,
    /// The bytes are.
    Bytes,
}

impl Scanner {
    /// Runs on to what stops it, and says how many bytes it passed.
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

    /// The next byte that matters, passed.
    fn next(&mut self, bytes: &[u8], passed: &mut usize) -> Option<u8> {
        let mut rest = bytes.get(*passed..)?;
        if self.escaped {
            let first = rest.first()?;
            self.escaped = false;
            // A line end is one even after a backslash: where a line breaks off there, the next is to be seen.
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

/// Whether a byte outside of strings matters.
fn matters(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'}' | b'[' | b']' | b'\n')
}
