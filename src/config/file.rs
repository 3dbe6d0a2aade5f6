//! Reads files up to a maximum size. Error messages contain what the user can do.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::Secret;
use super::errors::{ConfigErrors, ErrorCollector, Position};

/// Maximum size in bytes of a configuration or certificate file. 1,000 routes need about 200 KiB, and so do the root
/// certificates of an operating system. A larger file was named by mistake.
pub(super) const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Maximum size in bytes of a token file. All known tokens are shorter.
const MAX_TOKEN_BYTES: u64 = 4 << 10;

/// The error for a pipe or a device.
pub(super) const NOT_A_FILE: &str = "this is not a regular file; name a file";

pub(super) const TOKEN_HINT: &str = "write at least one character of visible ASCII, and no spaces";

/// Reads a YAML file. Errors carry positions in this file.
pub(super) fn read(file: &Path) -> Result<String, ConfigErrors> {
    let bytes = read_bytes(file, MAX_CONFIG_BYTES);
    decode(file, bytes.map_err(|message| error(file, Position::START, message))?)
}

/// Reads a configuration file. The path `-` means standard input.
pub(super) fn read_or_stdin(file: &Path) -> Result<String, ConfigErrors> {
    if file != Path::new("-") {
        return read(file);
    }
    decode(file, read_stdin().map_err(|message| error(file, Position::START, message))?)
}

fn error(file: &Path, position: Position, message: String) -> ConfigErrors {
    let mut errors = ErrorCollector::for_file(file);
    errors.add_at(position, String::new(), message);
    errors.into_errors()
}

/// Converts the content of `file` to text. The error has the position of the first invalid byte.
pub(super) fn decode(file: &Path, bytes: Vec<u8>) -> Result<String, ConfigErrors> {
    String::from_utf8(bytes).map_err(|invalid| {
        let valid = invalid.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(invalid.as_bytes().get(..valid).unwrap_or_default());
        let last_line = before.rsplit('\n').next().unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = last_line.chars().count() + 1;
        let message = "not UTF-8; save the file in that encoding".to_owned();
        error(file, Position { line, column }, message)
    })
}

/// Reads a bearer token. Removes white space at the end of the file.
pub(super) fn read_token(file: &Path) -> Result<Secret, String> {
    let bytes = read_bytes(file, MAX_TOKEN_BYTES)?;
    let text = str::from_utf8(&bytes).unwrap_or_default().trim_end();
    if is_token(text) {
        return Ok(Secret::new(text));
    }
    Err(format!("{} holds no valid bearer token; {TOKEN_HINT}", file.display()))
}

/// Returns whether `text` can be sent unchanged in an `Authorization` header.
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic())
}

fn read_stdin() -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    io::stdin()
        .lock()
        .take(MAX_CONFIG_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("cannot read standard input: {error}"))?;
    if bytes.len() as u64 > MAX_CONFIG_BYTES {
        return Err(format!("more than {MAX_CONFIG_BYTES} bytes; a configuration is smaller"));
    }
    Ok(bytes)
}

/// Returns the SHA-256 of a file.
pub(super) fn digest(file: &Path) -> Result<[u8; 32], String> {
    let bytes = read_bytes(file, MAX_CONFIG_BYTES)?;
    let digest = ring::digest::digest(&ring::digest::SHA256, &bytes);
    Ok(digest.as_ref().try_into().expect("SHA-256 has 32 bytes"))
}

/// Reads a whole file of at most `max` bytes. A longer file is an error.
///
/// Pipes and devices are errors, too. Reading them can block forever, and a second read does not return the same
/// content.
pub(super) fn read_bytes(file: &Path, max: u64) -> Result<Vec<u8>, String> {
    let describe =
        |error: io::Error| format!("cannot read the file: {error}; check path and permissions");
    // Opening a pipe blocks, so the type is read first.
    let metadata = fs::metadata(file).map_err(describe)?;
    if metadata.is_dir() {
        return Err("this is a directory; name a file in it".to_owned());
    }
    if !metadata.is_file() {
        return Err(NOT_A_FILE.to_owned());
    }
    let mut bytes = Vec::new();
    File::open(file).map_err(describe)?.take(max + 1).read_to_end(&mut bytes).map_err(describe)?;
    if bytes.len() as u64 > max {
        let limit = max >> 10;
        return Err(format!("the file is larger than {limit} KiB; check that it is the right one"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_unreadable_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str, content: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let max = usize::try_from(MAX_CONFIG_BYTES).unwrap();
        let cases = [
            (directory.path().join("none.yaml"), ":1:1: cannot read the file: No such file"),
            (directory.path().to_owned(), ":1:1: this is a directory"),
            ("/dev/zero".into(), ":1:1: this is not a regular file"),
            (path("large", &vec![b'#'; max + 1]), ":1:1: the file is larger than 1024 KiB"),
            (path("latin", b"version: 1\n\xc3\xbc: \xfc\n"), ":2:4: not UTF-8"),
        ];
        for (file, expected) in cases {
            let message = read(&file).unwrap_err().to_string();
            let expected = format!("{}{expected}", file.display());
            assert!(message.starts_with(&expected), "{message}");
        }
        let file = path("right", &vec![b'#'; max]);
        assert!(read(&file).is_ok(), "exactly the maximum size");
    }

    #[test]
    fn reads_a_token_without_its_line_break_and_never_prints_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        fs::write(&file, "s3cret-token\n").unwrap();
        assert_eq!(read_token(&file).unwrap().expose(), "s3cret-token");
        for invalid in ["", "\n", "s3cret token", "s3cret\ntoken", "s3crét"] {
            fs::write(&file, invalid).unwrap();
            let message = read_token(&file).unwrap_err();
            let is_redacted = !message.contains("s3cr");
            assert!(message.contains("no valid bearer token") && is_redacted, "{message}");
        }
    }
}
