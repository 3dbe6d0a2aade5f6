//! Writes log lines to standard output, or to a file that is rotated by size. The file can be deleted or moved at any
//! time.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use memchr::memrchr;

/// Permissions of a new file. Lines contain client addresses and model names, so only the owner and the group (such as
/// a log shipper's) can read the file.
const MODE: u32 = 0o640;

/// The destination of log lines.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Destination {
    Stdout,
    File(PathBuf),
}

/// The size limit of a file, and the number of rotated files to keep. The newest rotated file is `path.1`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rotation {
    /// Maximum size of a file in bytes.
    pub size: u64,
    pub keep: usize,
}

impl Default for Rotation {
    /// Returns limits that allow about 40,000 calls per file and at most 600 MiB in total.
    fn default() -> Self {
        Self { size: 100 << 20, keep: 5 }
    }
}

/// An open destination.
#[derive(Debug)]
pub(crate) enum Sink {
    Stream {
        file: File,
        /// Whether the last line was written only partially.
        torn: bool,
    },
    File(Rotated),
}

/// The lines that were not written, and the reason.
#[derive(Debug)]
pub(crate) struct WriteFailure<'l> {
    pub(crate) rest: &'l [u8],
    pub(crate) problem: io::Error,
}

impl Sink {
    pub(crate) fn open(place: &Destination, rotate: Rotation) -> io::Result<Self> {
        match place {
            Destination::Stdout => Self::stream(io::stdout()),
            Destination::File(path) => Rotated::open(path, rotate).map(Self::File),
        }
    }

    /// Returns a sink that writes to a stream of the process, such as standard error. The sink has its own descriptor.
    /// A blocked write therefore holds no lock of the standard library.
    pub(crate) fn stream(stream: impl AsFd) -> io::Result<Self> {
        let file = File::from(stream.as_fd().try_clone_to_owned()?);
        Ok(Self::Stream { file, torn: false })
    }

    /// Writes complete lines. If a write fails, the error contains the lines that were not written.
    pub(crate) fn write<'l>(&mut self, lines: &'l [u8]) -> Result<(), WriteFailure<'l>> {
        match self {
            Self::File(file) => file.write(lines),
            Self::Stream { file, torn } => write_stream(file, torn, lines),
        }
    }
}

/// Time between two attempts to write to a stream that does not block.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Writes lines to a stream, and waits as long as the stream takes no bytes. `torn` is whether the last line was written
/// only partially.
#[expect(
    clippy::disallowed_methods,
    reason = "only the thread that writes lines sleeps, and it has nothing else to do"
)]
fn write_stream<'l>(
    file: &mut impl Write,
    torn: &mut bool,
    lines: &'l [u8],
) -> Result<(), WriteFailure<'l>> {
    let mut rest = lines;
    while !rest.is_empty() {
        let next = if *torn { b"\n" } else { rest };
        match file.write(next).map_err(|problem| (problem.kind(), problem)) {
            Ok(_) if *torn => *torn = false,
            Ok(written) if written > 0 => rest = rest.get(written..).unwrap_or_default(),
            Err((io::ErrorKind::Interrupted, _)) => {}
            // Another process that has the same terminal or pipe can set it to non-blocking.
            Err((io::ErrorKind::WouldBlock, _)) => std::thread::sleep(RETRY_DELAY),
            other => {
                let problem = other.map_or_else(|(_, it)| it, |_| io::ErrorKind::WriteZero.into());
                let written = lines.len() - rest.len();
                let whole = whole_lines(lines, written);
                *torn |= written > whole;
                return Err(WriteFailure { rest: lines.get(whole..).unwrap_or(lines), problem });
            }
        }
    }
    Ok(())
}

/// A file and its rotated predecessors.
#[derive(Debug)]
pub(crate) struct Rotated {
    path: PathBuf,
    rotate: Rotation,
    file: File,
    length: u64,
    /// Whether it is known that the file ends with a complete line.
    whole: bool,
}

impl Rotated {
    fn open(path: &Path, rotate: Rotation) -> io::Result<Self> {
        let file = open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), rotate, file, length, whole: false })
    }

    fn write<'l>(&mut self, lines: &'l [u8]) -> Result<(), WriteFailure<'l>> {
        let mut rest = lines;
        while !rest.is_empty() {
            match self.write_some(rest) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(problem) => return Err(WriteFailure { rest, problem }),
            }
        }
        Ok(())
    }

    /// Writes as many lines as fit into the current file, or else at least one line into a new file.
    fn write_some(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.reopen_if_moved()?;
        self.end_torn_line()?;
        let room = self.rotate.size.saturating_sub(self.length);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let mut fits = whole_lines(lines, room);
        if fits == 0 {
            if self.length > 0 {
                self.rotate_files()?;
            }
            let size = usize::try_from(self.rotate.size).unwrap_or(usize::MAX);
            // A line that is longer than the size limit gets a file of its own.
            let first = || lines.iter().position(|byte| *byte == b'\n');
            fits = match whole_lines(lines, size) {
                0 => first().map_or(lines.len(), |end| end + 1),
                fits => fits,
            };
        }
        let written = self.file.write_all(lines.get(..fits).unwrap_or(lines));
        if let Err(problem) = written {
            // A full disk can accept a part of a line. This part is removed, so that the file contains only complete
            // lines.
            self.whole = false;
            self.file.set_len(self.length)?;
            return Err(problem);
        }
        self.length += fits as u64;
        Ok(fits)
    }

    /// Reopens the file if the path now belongs to another file, or if the file was deleted.
    fn reopen_if_moved(&mut self) -> io::Result<()> {
        let open_one = self.file.metadata()?;
        let moved = match fs::metadata(&self.path) {
            Ok(at_path) => identity(&at_path) != identity(&open_one),
            Err(problem) if problem.kind() == io::ErrorKind::NotFound => true,
            Err(problem) => return Err(problem),
        };
        self.length = open_one.len();
        if moved {
            *self = Self::open(&self.path, self.rotate)?;
        }
        Ok(())
    }

    /// Ends a line that a crash has cut off, so that the next line does not continue it. Runs before the first write
    /// and not when the file is opened, because the previous sink may still write to the file then.
    fn end_torn_line(&mut self) -> io::Result<()> {
        if self.whole {
            return Ok(());
        }
        let mut last = *b"\n";
        // Leaves `last` as it is if the file was truncated in the meantime.
        self.file.read_at(&mut last, self.length.saturating_sub(1))?;
        if last != *b"\n" {
            self.file.write_all(b"\n")?;
            self.length += 1;
        }
        self.whole = true;
        Ok(())
    }

    /// Removes rotated files that an earlier, higher limit allowed. Rotated files are numbered without gaps, so the
    /// first missing number ends the search. A file that cannot be removed stays until the next rotation.
    ///
    /// Must be called only after a rotation. If this log never rotates, numbered files next to it may belong to
    /// logrotate and must not be removed.
    fn remove_excess_files(&self) {
        let mut excess = (self.rotate.keep + 1..).map(|number| numbered(&self.path, number));
        while excess.next().is_some_and(|path| fs::remove_file(path).is_ok()) {}
    }

    fn rotate_files(&mut self) -> io::Result<()> {
        if self.rotate.keep == 0 {
            fs::remove_file(&self.path)?;
        } else {
            for number in (1..self.rotate.keep).rev() {
                let from = numbered(&self.path, number);
                match fs::rename(&from, numbered(&self.path, number + 1)) {
                    Err(problem) if problem.kind() != io::ErrorKind::NotFound => {
                        return Err(problem);
                    }
                    Ok(()) | Err(_) => {}
                }
            }
            fs::rename(&self.path, numbered(&self.path, 1))?;
        }
        *self = Self::open(&self.path, self.rotate)?;
        self.remove_excess_files();
        Ok(())
    }
}

/// Opens a regular file, or creates it. Rejects other types of files, because they cannot be rotated and opening a pipe
/// blocks.
fn open(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file; use the path of a file, or stdout",
        ));
    }
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true).mode(MODE).open(path)
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Returns the length in bytes of the complete lines that fit into `room` bytes.
fn whole_lines(lines: &[u8], room: usize) -> usize {
    let within = lines.get(..room).unwrap_or(lines);
    memrchr(b'\n', within).map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &Path, size: u64, keep: usize) -> Sink {
        Sink::open(&Destination::File(path.to_owned()), Rotation { size, keep }).unwrap()
    }

    fn read(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    fn texts<const N: usize>(path: &Path) -> [Option<String>; N] {
        std::array::from_fn(|number| match number {
            0 => read(path),
            number => read(&numbered(path, number)),
        })
    }

    fn some<const N: usize>(texts: [&str; N]) -> [Option<String>; N] {
        texts.map(|text| (!text.is_empty()).then(|| text.to_owned()))
    }

    #[test]
    fn rotates_at_the_size_limit_and_keeps_the_newest_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut target = target(&path, 8, 2);
        target.write(b"aaa\nbbb\nccc\n").unwrap();
        assert_eq!(texts(&path), some(["ccc\n", "aaa\nbbb\n", ""]));
        target.write(b"ddd\neee\n").unwrap();
        assert_eq!(texts(&path), some(["eee\n", "ccc\nddd\n", "aaa\nbbb\n", ""]));
        target.write(b"fff\nggg\n").unwrap();
        let kept = some(["ggg\n", "eee\nfff\n", "ccc\nddd\n", ""]);
        assert_eq!(texts(&path), kept, "the oldest file is deleted");
        target.write(b"longer than a file\nhhh\n").unwrap();
        let kept = some(["hhh\n", "longer than a file\n", "ggg\n", ""]);
        assert_eq!(texts(&path), kept, "a line is not split between files");
    }

    #[test]
    fn truncates_a_full_file_if_none_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut target = target(&path, 4, 0);
        target.write(b"aaa\nbbb\n").unwrap();
        assert_eq!(texts(&path), some(["bbb\n", ""]));
    }

    #[test]
    fn appends_to_an_existing_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        target(&path, 8, 1).write(b"aaa\n").unwrap();
        target(&path, 8, 1).write(b"bbb\nccc\n").unwrap();
        assert_eq!(texts(&path), some(["ccc\n", "aaa\nbbb\n"]));
    }

    #[test]
    fn begins_a_line_after_a_torn_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "aaa\nbb").unwrap();
        let mut first = target(&path, 20, 1);
        first.write(b"ccc\n").unwrap();
        assert_eq!(read(&path), Some("aaa\nbb\nccc\n".into()));
        // A second process that crashed, or an operator, left a part of a line.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "{").unwrap();
        first.write(b"ddd\n").unwrap();
        assert_eq!(read(&path), Some("{\nddd\n".into()));
        // A full file with a torn line is ended before it is rotated.
        fs::write(&path, "xxx").unwrap();
        target(&path, 3, 1).write(b"ee\n").unwrap();
        assert_eq!(texts(&path), some(["ee\n", "xxx\n"]));
    }

    #[test]
    fn removes_the_oldest_files_if_fewer_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        target(&path, 4, 5).write(b"aaa\nbbb\nccc\nddd\neee\n").unwrap();
        assert_eq!(texts(&path), some(["eee\n", "ddd\n", "ccc\n", "bbb\n", "aaa\n", ""]));
        fs::write(folder.path().join("log.20260101"), "another program's").unwrap();
        let mut fewer = target(&path, 8, 2);
        fewer.write(b"fff\n").unwrap();
        let before = some(["eee\nfff\n", "ddd\n", "ccc\n", "bbb\n", "aaa\n", ""]);
        assert_eq!(texts(&path), before, "nothing was rotated");
        fewer.write(b"ggg\n").unwrap();
        assert_eq!(texts(&path), some(["ggg\n", "eee\nfff\n", "ddd\n", "", "", ""]));
        target(&path, 4, 0).write(b"hhh\n").unwrap();
        assert_eq!(texts(&path), some(["hhh\n", "", "", ""]));
        assert!(folder.path().join("log.20260101").exists());
    }

    #[test]
    fn reopens_a_moved_or_deleted_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let moved = folder.path().join("moved");
        let mut target = target(&path, 100, 1);
        target.write(b"aaa\n").unwrap();
        fs::rename(&path, &moved).unwrap();
        target.write(b"bbb\n").unwrap();
        fs::remove_file(&path).unwrap();
        target.write(b"ccc\n").unwrap();
        assert_eq!((read(&moved), read(&path)), (Some("aaa\n".into()), Some("ccc\n".into())));
        fs::write(&path, "").unwrap();
        target.write(b"ddd\n").unwrap();
        assert_eq!(read(&path), Some("ddd\n".into()), "the file was truncated");
    }

    #[test]
    fn returns_unwritten_lines_and_leaves_no_partial_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut target = target(&path, 4, 1);
        // A folder with a file in it has the name of the rotated file, so rotation fails.
        fs::create_dir_all(numbered(&path, 1).join("in the way")).unwrap();
        let failed = target.write(b"aaa\nbbb\nccc\n").unwrap_err();
        assert_eq!(failed.rest, b"bbb\nccc\n");
        assert_eq!(read(&path), Some("aaa\n".into()));
        fs::remove_dir_all(numbered(&path, 1)).unwrap();
        target.write(b"ddd\n").unwrap();
        assert_eq!(texts(&path), some(["ddd\n", "aaa\n"]));
    }

    #[test]
    fn rejects_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        let place = Destination::File(folder.path().to_owned());
        let refused = Sink::open(&place, Rotation::default()).unwrap_err();
        assert!(refused.to_string().contains("not a regular file"), "{refused}");
    }
}
