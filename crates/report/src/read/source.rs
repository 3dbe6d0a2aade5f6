//! Opens the sources of log lines: files, gzip files and standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use ring::digest::{Context, SHA256};

/// A stream of log bytes. It hashes the bytes as stored, before decompression.
pub(super) enum Source {
    Plain(Box<HashingReader>),
    Gzip(Box<MultiGzDecoder<HashingReader>>),
}

impl Source {
    /// Opens `path`. A file whose name ends in `.gz` is decompressed. The path `-` is standard input.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::Plain(Box::new(HashingReader::new(io::stdin()))));
        }
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let stored = HashingReader::new(file);
        let packed = path.extension().is_some_and(|extension| extension == "gz");
        Ok(if packed {
            Self::Gzip(Box::new(MultiGzDecoder::new(stored)))
        } else {
            Self::Plain(Box::new(stored))
        })
    }

    /// Returns the number of stored bytes and their SHA-256 in hexadecimal digits.
    pub(super) fn finish(self) -> (u64, String) {
        let stored = match self {
            Self::Plain(stored) => *stored,
            Self::Gzip(inflater) => inflater.into_inner(),
        };
        (stored.bytes, hex(stored.hash.finish().as_ref()))
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stored) => stored.read(buffer),
            Self::Gzip(inflater) => inflater.read(buffer),
        }
    }
}

/// A reader that hashes and counts the bytes of another reader.
pub(super) struct HashingReader {
    inner: Box<dyn Read + Send>,
    hash: Context,
    bytes: u64,
}

impl HashingReader {
    fn new(inner: impl Read + Send + 'static) -> Self {
        Self { inner: Box::new(inner), hash: Context::new(&SHA256), bytes: 0 }
    }
}

impl Read for HashingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(buffer.get(..count).unwrap_or_default());
        self.bytes += count as u64;
        Ok(count)
    }
}

/// Returns the SHA-256 of `bytes` in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_matches_the_standard() {
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), expected);
        let mut source = Source::Plain(Box::new(HashingReader::new(&b"abc"[..])));
        let mut text = String::new();
        source.read_to_string(&mut text).unwrap();
        assert_eq!(source.finish(), (3, expected.to_owned()));
    }
}
