//! Finds files with the same content, such as a rotated file and its compressed copy. Their requests must count only
//! once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::File;
use super::source::{HashingReader, Source, Stored};
use crate::row::Side;

/// Number of bytes at the start of each file that are compared first. Different logs differ in the time of the first
/// line. A whole file is therefore read for a comparison only if it is very likely a copy.
const PREFIX_BYTES: u64 = 64 << 10;

/// A file that has the same content as an earlier file of the same side.
#[derive(Debug)]
pub(super) struct Duplicate {
    pub(super) of: PathBuf,
    pub(super) stored: Stored,
}

/// Returns, for each file, the earlier file with the same content. Returns `None` for other files, and for a file that
/// cannot be read completely.
pub(super) fn find(files: &[File]) -> Vec<Option<Duplicate>> {
    let prefixes: Vec<_> =
        files.iter().map(|file| Some((file.side, prefix(&file.path)?))).collect();
    let mut count = BTreeMap::<&(Side, String), usize>::new();
    for prefix in prefixes.iter().flatten() {
        *count.entry(prefix).or_default() += 1;
    }
    let mut seen = BTreeMap::<(Side, String), &Path>::new();
    let mut duplicates = Vec::new();
    for (file, prefix) in files.iter().zip(&prefixes) {
        let is_shared = |prefix| count.get(&prefix).is_some_and(|count| *count > 1);
        let content = prefix.as_ref().filter(|prefix| is_shared(*prefix));
        let content = content.and_then(|_| content_of(&file.path, u64::MAX).ok());
        duplicates.push(content.and_then(|(content, stored)| {
            match seen.entry((file.side, content.sha256)) {
                Entry::Occupied(first) => Some(Duplicate { of: first.get().to_path_buf(), stored }),
                Entry::Vacant(entry) => {
                    entry.insert(&file.path);
                    None
                }
            }
        }));
    }
    duplicates
}

/// Returns a hash of the start of the file. Returns `None` for a pipe, which can be read only once, and for an empty
/// file.
fn prefix(path: &Path) -> Option<String> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let (content, _) = content_of(path, PREFIX_BYTES).ok()?;
    (content.bytes > 0).then_some(content.sha256)
}

/// Reads at most `limit` bytes of the decompressed content. Returns size and hash of these bytes, and then of the
/// stored bytes that were read.
fn content_of(path: &Path, limit: u64) -> io::Result<(Stored, Stored)> {
    let mut content = HashingReader::new(Source::open(path)?.take(limit));
    io::copy(&mut content, &mut io::sink())?;
    let (source, hashed) = content.finish();
    Ok((hashed, source.into_inner().finish()))
}
