//! Splits the bytes of a log into blocks of complete lines, so that several threads can parse them.

use std::io::{self, Read};
use std::mem;

use memchr::{memchr, memrchr};

/// Maximum length of a block in bytes. A line cannot be longer than a block. A log line normally has a few thousand
/// bytes and never more than 40,000.
pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// Reads `source` in blocks. Each block contains complete lines.
pub(super) struct Blocks<R> {
    source: R,
    /// Start of a line whose end was not read yet.
    carry: Vec<u8>,
    /// Whether the current position is inside a line that is too long.
    skipping: bool,
    ended: bool,
    /// A read error, which is returned after the data that was read before it.
    failed: Option<io::Error>,
    too_long: u64,
}

impl<R: Read> Blocks<R> {
    pub(super) const fn new(source: R) -> Self {
        Self { source, carry: Vec::new(), skipping: false, ended: false, failed: None, too_long: 0 }
    }

    /// Returns the next block of lines, or `None` after the last block.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        while !self.ended {
            let mut block = mem::take(&mut self.carry);
            let room = BLOCK_BYTES.saturating_sub(block.len());
            block.reserve_exact(room);
            let read = self.source.by_ref().take(room as u64).read_to_end(&mut block);
            self.failed = read.err();
            self.ended = self.failed.is_some() || block.len() < BLOCK_BYTES;
            if let Some(lines) = self.complete_lines(block) {
                return Ok(Some(lines));
            }
        }
        self.failed.take().map_or(Ok(None), Err)
    }

    /// Returns the complete lines of `block`. Keeps the incomplete last line for the next block.
    fn complete_lines(&mut self, mut block: Vec<u8>) -> Option<Vec<u8>> {
        let full = block.len() >= BLOCK_BYTES;
        if self.skipping {
            let end = memchr(b'\n', &block)?;
            block.drain(..=end);
            self.skipping = false;
        }
        if self.ended {
            // The last line of a file may have no line end.
            return (!block.is_empty()).then_some(block);
        }
        if let Some(end) = memrchr(b'\n', &block) {
            self.carry = block.split_off(end + 1);
            return Some(block);
        }
        if full && block.len() >= BLOCK_BYTES {
            self.too_long += 1;
            self.skipping = true;
        } else {
            self.carry = block;
        }
        None
    }

    pub(super) const fn too_long(&self) -> u64 {
        self.too_long
    }

    pub(super) fn into_source(self) -> R {
        self.source
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &[u8]) -> (Vec<Vec<u8>>, u64) {
        let mut blocks = Blocks::new(text);
        let mut found = Vec::new();
        while let Some(block) = blocks.next().unwrap() {
            found.push(block);
        }
        (found, blocks.too_long())
    }

    #[test]
    fn keeps_lines_complete_across_blocks() {
        let line = [vec![b'x'; 1_000], vec![b'\n']].concat();
        let mut text = line.repeat(3_000);
        text.extend_from_slice(b"last");
        let (blocks, too_long) = all(&text);
        assert!(blocks.len() >= 3);
        assert!(blocks.iter().all(|block| block.len() <= BLOCK_BYTES));
        assert!(blocks.iter().rev().skip(1).all(|block| block.ends_with(b"\n")));
        assert_eq!((blocks.concat(), too_long), (text, 0));
    }

    #[test]
    fn skips_and_counts_long_lines() {
        let long = vec![b'y'; BLOCK_BYTES * 2 + 5];
        for (before, after) in [("", ""), ("a\n", "b\nc\n"), ("a\n", ""), ("", "b")] {
            let after_long = if after.is_empty() { String::new() } else { format!("\n{after}") };
            let text = [before.as_bytes(), &long, after_long.as_bytes()].concat();
            let (blocks, too_long) = all(&text);
            assert_eq!(blocks.concat(), [before, after].concat().as_bytes());
            assert_eq!(too_long, 1);
        }
    }

    #[test]
    fn returns_data_before_a_read_error() {
        struct Breaks(bool);
        impl Read for Breaks {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if mem::replace(&mut self.0, true) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                buffer[..2].copy_from_slice(b"a\n");
                Ok(2)
            }
        }
        let mut blocks = Blocks::new(Breaks(false));
        assert_eq!(blocks.next().unwrap().unwrap(), b"a\n");
        assert!(blocks.next().is_err());
        assert!(blocks.next().unwrap().is_none());
    }

    proptest! {
        #[test]
        fn preserves_all_other_bytes(text in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..2_000)) {
            let (blocks, too_long) = all(&text);
            prop_assert_eq!(blocks.concat(), text);
            prop_assert_eq!(too_long, 0);
        }
    }
}
