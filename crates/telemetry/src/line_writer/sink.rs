//! Writes log lines to standard output, or to a file that is rotated by size. The file can be deleted or moved at any
//! time.

use std::convert::Infallible;
use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use memchr::memrchr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tokengauge_types::bounded::{Int, Size};
use tokengauge_types::serde_as_str;

/// Permissions of a new file. Lines contain client addresses and model names, so only the owner and the group (such as
/// a log shipper's) can read the file.
const MODE: u32 = 0o640;

const STDOUT: &str = "stdout";

/// The destination of log lines.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Destination {
    Stdout,
    File(PathBuf),
}

/// Parses `stdout`, or a path. A file with the name `stdout` must be written as `./stdout`.
impl FromStr for Destination {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            STDOUT => Self::Stdout,
            path => Self::File(path.into()),
        })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str(STDOUT),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

serde_as_str!(Destination, { "type": "string", "format": "path or `stdout`" });

/// The size limit of a file, and the number of rotated files to keep. The default allows about 40,000 calls per file and
/// at most 600 MiB in total.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rotation {
    /// Size at which the file is rotated.
    // Files below 1 MiB rotate faster than anything can read them. 1 TiB limits nothing.
    pub size: Size<{ 1 << 20 }, { 1 << 40 }, { 100 << 20 }>,
    /// Number of rotated files to keep. `path.1` is the newest.
    pub max_files: Int<0, 1_000, 5>,
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
    /// Returns the result of the last rotation since the previous call, or `None` if there was none.
    pub(crate) fn take_rotation(&mut self) -> Option<io::Result<()>> {
        match self {
            Self::Stream { .. } => None,
            Self::File(file) => file.last_rotation.take(),
        }
    }

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
    last_rotation: Option<io::Result<()>>,
}

impl Rotated {
    fn open(path: &Path, rotate: Rotation) -> io::Result<Self> {
        let file = open(path)?;
        let length = file.metadata()?.len();
        let path = path.to_owned();
        Ok(Self { path, rotate, file, length, whole: false, last_rotation: None })
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

    /// Writes as many lines as fit into the current file, or else at least one line into a new file. If the file cannot
    /// be rotated, all lines go to the current file.
    fn write_some(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.reopen_if_moved()?;
        self.end_torn_line()?;
        let room = (self.rotate.size.get() as u64).saturating_sub(self.length);
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let mut fits = whole_lines(lines, room);
        if fits == 0 {
            fits = if self.length == 0 || self.rotate_files() {
                self.lines_of_new_file(lines)
            } else {
                lines.len()
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

    /// Returns the length in bytes of the lines that fit into an empty file. A line that is longer than the size limit
    /// gets a file of its own.
    fn lines_of_new_file(&self, lines: &[u8]) -> usize {
        let size = self.rotate.size.get();
        let first = || lines.iter().position(|byte| *byte == b'\n');
        match whole_lines(lines, size) {
            0 => first().map_or(lines.len(), |end| end + 1),
            fits => fits,
        }
    }

    /// Reopens the file if the path now belongs to another file, or if the file was deleted. If the path cannot be
    /// examined, for example because the folder's permissions have changed, the open file stays in use.
    fn reopen_if_moved(&mut self) -> io::Result<()> {
        let open_one = self.file.metadata()?;
        let moved = match fs::metadata(&self.path) {
            Ok(at_path) => identity(&at_path) != identity(&open_one),
            Err(problem) => problem.kind() == io::ErrorKind::NotFound,
        };
        self.length = open_one.len();
        if moved {
            let last_rotation = self.last_rotation.take();
            *self = Self { last_rotation, ..Self::open(&self.path, self.rotate)? };
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
        let mut excess =
            (self.rotate.max_files.get() + 1..).map(|number| numbered(&self.path, number));
        while excess.next().is_some_and(|path| fs::remove_file(path).is_ok()) {}
    }

    /// Starts a new file, and returns whether this succeeded. If not, the current file stays in use, because its lines
    /// are worth more than its size limit. A file that is a mount point of its own, for example, cannot be renamed.
    fn rotate_files(&mut self) -> bool {
        let rotated = self.start_new_file();
        let is_rotated = rotated.is_ok();
        if is_rotated {
            self.remove_excess_files();
        }
        self.last_rotation = Some(rotated);
        is_rotated
    }

    /// Moves the current file away, and opens a new one. After an error, each file has its previous name, except that
    /// files with higher numbers may already have moved by one.
    fn start_new_file(&mut self) -> io::Result<()> {
        let staged = numbered(&self.path, 0);
        if self.rotate.max_files.get() == 0 {
            // An empty file replaces the current one, so that there is a file at every time.
            drop(open(&staged)?);
            if let Err(problem) = fs::rename(&staged, &self.path) {
                drop(fs::remove_file(&staged));
                return Err(problem);
            }
            *self = Self::open(&self.path, self.rotate)?;
            return Ok(());
        }
        // The current file is moved first. If that is not possible, no other file has moved.
        // A previous process can have ended during a rotation.
        if staged.exists() {
            self.shift_numbered_files()?;
        }
        fs::rename(&self.path, &staged)?;
        let opened = Self::open(&self.path, self.rotate)
            .and_then(|new| self.shift_numbered_files().map(|()| new));
        match opened {
            Ok(new) => {
                *self = new;
                Ok(())
            }
            Err(problem) => {
                // Replaces the new file, which is empty. If this fails, the next write starts a new file, and the next
                // rotation gives the staged file its number.
                drop(fs::rename(&staged, &self.path));
                Err(problem)
            }
        }
    }

    /// Increases the number of each rotated file by one, beginning with number 0. Files beyond a gap keep their number,
    /// so that repeated attempts do not move them beyond the last number.
    fn shift_numbered_files(&self) -> io::Result<()> {
        let is_present = |number: &usize| numbered(&self.path, *number).exists();
        let count = (0..self.rotate.max_files.get()).take_while(is_present).count();
        for number in (0..count).rev() {
            fs::rename(numbered(&self.path, number), numbered(&self.path, number + 1))?;
        }
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
    use tokengauge_types::value::ByteSize;

    fn target(path: &Path, size: usize, keep: usize) -> Sink {
        Sink::open(
            &Destination::File(path.to_owned()),
            Rotation { size: Size::within(ByteSize(size)), max_files: Int::within(keep) },
        )
        .unwrap()
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
    fn returns_unwritten_lines() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let path = inner.join("log");
        let mut target = target(&path, 100, 1);
        target.write(b"aaa\n").unwrap();
        fs::remove_dir_all(&inner).unwrap();
        let failed = target.write(b"bbb\nccc\n").unwrap_err();
        assert_eq!(failed.rest, b"bbb\nccc\n");
        fs::create_dir(&inner).unwrap();
        target.write(b"ddd\n").unwrap();
        assert_eq!(texts(&path), some(["ddd\n", ""]));
    }

    /// Makes all rotations fail: a folder with a file in it has the name of the rotated file.
    fn block_rotation(path: &Path) -> PathBuf {
        let in_the_way = numbered(path, 1);
        fs::create_dir_all(in_the_way.join("file")).unwrap();
        in_the_way
    }

    #[test]
    fn continues_in_the_same_file_if_it_cannot_be_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut target = target(&path, 4, 1);
        let in_the_way = block_rotation(&path);
        for line in [b"aaa\n", b"bbb\n", b"ccc\n"] {
            target.write(line).unwrap();
        }
        assert_eq!(read(&path), Some("aaa\nbbb\nccc\n".into()));
        assert!(target.take_rotation().is_some_and(|result| result.is_err()));
        assert!(target.take_rotation().is_none(), "each result is returned once");
        assert!(!numbered(&path, 0).exists());
        fs::remove_dir_all(in_the_way).unwrap();
        target.write(b"ddd\n").unwrap();
        assert_eq!(texts(&path), some(["ddd\n", "aaa\nbbb\nccc\n"]));
        assert!(target.take_rotation().is_some_and(|result| result.is_ok()));
    }

    #[test]
    fn failed_rotations_lose_no_rotated_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut target = target(&path, 4, 3);
        target.write(b"aaa\nbbb\nccc\n").unwrap();
        // A folder takes the place of the newest rotated file, and a file that of the second.
        fs::remove_file(numbered(&path, 1)).unwrap();
        let in_the_way = block_rotation(&path);
        for line in [b"ddd\n", b"eee\n", b"fff\n"] {
            target.write(line).unwrap();
        }
        let all: String = (0..=4).filter_map(|number| texts::<5>(&path)[number].clone()).collect();
        let folders: Vec<_> =
            (1..=4).map(|n| numbered(&path, n)).filter(|it| it.is_dir()).collect();
        for line in ["aaa", "ccc", "ddd", "eee", "fff"] {
            assert!(all.contains(line), "{line} in {all} {folders:?}");
        }
        drop(in_the_way);
    }

    #[test]
    fn a_rotation_that_a_crash_interrupted_is_completed_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(numbered(&path, 0), "old\n").unwrap();
        fs::write(numbered(&path, 1), "older\n").unwrap();
        let mut target = target(&path, 4, 3);
        target.write(b"aaa\nbbb\n").unwrap();
        assert_eq!(texts(&path), some(["bbb\n", "aaa\n", "old\n", "older\n", ""]));
        assert!(!numbered(&path, 0).exists());
    }

    #[test]
    fn rejects_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        let place = Destination::File(folder.path().to_owned());
        let refused = Sink::open(&place, Rotation::default()).unwrap_err();
        assert!(refused.to_string().contains("not a regular file"), "{refused}");
    }
}
