//! Opens the sources of log lines: files, gzip files and standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use ring::digest::{Context, SHA256};

/// Reads the bytes of a log. The stored bytes, before decompression, are hashed.
pub(super) enum Source {
    Plain(Box<HashingReader<StoredBytes>>),
    Gzip(Box<MultiGzDecoder<HashingReader<StoredBytes>>>),
}

type StoredBytes = Box<dyn Read + Send>;

/// Size of a file, and its SHA-256 in hexadecimal digits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Stored {
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

impl Source {
    /// Opens a log file. The content of a file is decompressed if the file name ends in `.gz`. The path `-` is
    /// standard input.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::plain(io::stdin()));
        }
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let packed = path.extension().is_some_and(|extension| extension == "gz");
        Ok(if packed {
            Self::Gzip(Box::new(MultiGzDecoder::new(HashingReader::new(Box::new(file)))))
        } else {
            Self::plain(file)
        })
    }

    pub(super) fn stream(bytes: StoredBytes) -> Self {
        Self::Plain(Box::new(HashingReader::new(bytes)))
    }

    fn plain(bytes: impl Read + Send + 'static) -> Self {
        Self::stream(Box::new(bytes))
    }

    /// Returns the size and the hash of the stored bytes that were read so far.
    pub(super) fn finish(self) -> Stored {
        let stored = match self {
            Self::Plain(stored) => *stored,
            Self::Gzip(inflater) => inflater.into_inner(),
        };
        stored.finish().1
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

/// A reader that counts and hashes the bytes of another reader.
pub(super) struct HashingReader<R> {
    inner: R,
    hash: Context,
    bytes: u64,
}

impl<R> HashingReader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, hash: Context::new(&SHA256), bytes: 0 }
    }

    pub(super) fn finish(self) -> (R, Stored) {
        (self.inner, Stored { bytes: self.bytes, sha256: hex(self.hash.finish().as_ref()) })
    }
}

impl<R: Read> Read for HashingReader<R> {
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
        let mut source = Source::plain(&b"abc"[..]);
        let mut text = String::new();
        source.read_to_string(&mut text).unwrap();
        assert_eq!(source.finish(), Stored { bytes: 3, sha256: expected.to_owned() });
    }
}
