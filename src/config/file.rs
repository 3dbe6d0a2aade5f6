//! The configuration file's text, or why there is none.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::Secret;
use super::errors::{ConfigErrors, ErrorCollector, Position};

/// A configuration of 1,000 routes is about 200 KiB; whatever is larger is some other file.
const LARGEST: u64 = 1 << 20;

/// The text of `file`.
pub(super) fn read(file: &Path) -> Result<String, ConfigErrors> {
    let tell = |place, message: String| {
        let mut errors = ErrorCollector::of_file(file);
        errors.in_file(place, String::new(), message);
        errors.into_errors()
    };
    let bytes = bytes_of(file, LARGEST).map_err(|message| tell(Position::START, message))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(error.as_bytes().get(..valid).unwrap_or_default());
        let line = before.rsplit('\n').next().unwrap_or_default();
        let place =
            Position { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 };
        tell(place, "this is not UTF-8; save the file in that encoding".to_owned())
    })
}

/// The bearer token that `file` holds; the line break at its end does not belong to it.
pub(super) fn token(file: &Path) -> Result<Secret, String> {
    // Tokens of any make are shorter.
    const LARGEST: u64 = 4 << 10;
    let bytes = bytes_of(file, LARGEST)?;
    let text = str::from_utf8(&bytes).unwrap_or_default().trim_end();
    if is_token(text) {
        return Ok(Secret::new(text));
    }
    Err(format!("{} holds no bearer token; {TOKEN_REMEDY}", file.display()))
}

/// Whether a text can stand in an `Authorization` header as it is.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic())
}

pub(super) const TOKEN_REMEDY: &str =
    "write at least one character of visible ASCII, and no spaces";

/// At most `largest` bytes of `file`; more is an error, told in words.
pub(super) fn bytes_of(file: &Path, largest: u64) -> Result<Vec<u8>, String> {
    let in_words =
        |error: io::Error| format!("the file cannot be read: {error}; check path and permissions");
    let opened = File::open(file).map_err(in_words)?;
    if opened.metadata().map_err(in_words)?.is_dir() {
        return Err("this is a directory; name a file in it".to_owned());
    }
    let mut bytes = Vec::new();
    opened.take(largest + 1).read_to_end(&mut bytes).map_err(in_words)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length <= largest) {
        Ok(bytes)
    } else {
        Err(format!(
            "the file is larger than {} KiB; check that it is the right one",
            largest >> 10
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_told_in_words() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str, content: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let largest = usize::try_from(LARGEST).unwrap();
        let cases = [
            (directory.path().join("none.yaml"), ":1:1: the file cannot be read: No such file"),
            (directory.path().to_owned(), ":1:1: this is a directory"),
            (path("large", &vec![b'#'; largest + 1]), ":1:1: the file is larger than 1024 KiB"),
            (path("latin", b"version: 1\n\xc3\xbc: \xfc\n"), ":2:4: this is not UTF-8"),
        ];
        for (file, expected) in cases {
            let told = read(&file).unwrap_err().to_string();
            let expected = format!("{}{expected}", file.display());
            assert!(told.starts_with(&expected), "{told}");
        }
        let file = path("right", &vec![b'#'; largest]);
        assert!(read(&file).is_ok(), "the bound itself is not too large");
    }

    #[test]
    fn a_token_ends_before_its_line_break_and_is_never_echoed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "s3cret-token\n").unwrap();
        assert_eq!(token(&file).unwrap().expose(), "s3cret-token");
        for wrong in ["", "\n", "s3cret token", "s3cret\ntoken", "s3crét"] {
            std::fs::write(&file, wrong).unwrap();
            let told = token(&file).unwrap_err();
            assert!(told.contains("no bearer token") && !told.contains("s3cr"), "{told}");
        }
    }
}
