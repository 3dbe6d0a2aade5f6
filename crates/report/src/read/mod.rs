//! Reads the files of a request log into rows.
//!
//! One thread reads and hashes the files, and several threads parse blocks of lines. The calling thread collects the
//! rows. Each parser gets a block in turn, and the results are collected in the same order. Rows therefore keep the
//! order of the files, and each queue has a fixed length.

mod batch;
mod blocks;
mod duplicates;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use schemars::JsonSchema;
use serde::Serialize;

use crate::Request;
use crate::focus::Table;
use crate::interner::StringInterner;
use crate::row::{Row, Rows, Side};
pub use source::sha256;

use blocks::Blocks;
use duplicates::Duplicate;
use source::{Source, Stored};

/// Maximum number of groups. This limits the memory for a log in which every line has another session.
pub const MAX_GROUPS: usize = 10_000;
/// Maximum number of different finish reasons, currencies or length buckets. A log has only a few of each.
const MAX_VALUES: usize = 64;
/// Maximum number of configuration hashes in the report.
const MAX_CONFIGS: usize = 16;
/// Maximum number of values that are collected for the message that no call matches. The message lists ten values. The
/// eleventh shows that there are more.
const MAX_EXCLUDED: usize = 11;
/// Maximum number of parser threads. Only one thread reads the files, so more parsers would wait for data.
const MAX_PARSERS: usize = 4;
/// Maximum number of blocks (1 MiB each) in the queue to a parser, and of results in the queue from a parser.
const QUEUED_BLOCKS: usize = 2;

/// A file to read. `side` is the side of its requests, if the file determines the side.
#[derive(Clone, Debug)]
pub struct File {
    pub path: PathBuf,
    pub side: Side,
}

/// Contents that do not come from files, by the path in the request.
pub type Streams = BTreeMap<PathBuf, Box<dyn Read + Send>>;

/// Result of reading one file.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Input {
    pub path: String,
    /// `A` or `B` if the file determines the side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<&'static str>,
    /// Size of the stored file in bytes.
    pub bytes: u64,
    /// SHA-256 of the stored file, 64 hexadecimal digits.
    pub sha256: String,
    /// Error that stopped reading before the end of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// Path of an earlier file of the same side with the same content. The lines of the later file are not counted
    /// again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<String>,
}

/// Counts of log lines.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Lines {
    /// All lines that are not empty.
    pub read: u64,
    /// Calls of a known API. The report evaluates these lines.
    pub calls: u64,
    /// Plain HTTP requests, which the report leaves out.
    pub plain: u64,
    /// Requests that the selectors exclude.
    pub filtered: u64,
    /// Requests that started outside the selected period.
    pub outside: u64,
    /// Skipped lines that are not JSON or not from a request log.
    pub unreadable: u64,
    /// Skipped lines that are longer than 1 MiB.
    pub too_long: u64,
    /// Requests beyond the row limit, which the report leaves out.
    pub beyond: u64,
}

/// Requests and strings of one block, or of all files.
#[derive(Debug)]
pub struct Log {
    /// Cost by hour, if the request asks for it.
    pub focus: Option<Table>,
    pub rows: Rows,
    /// Values of each group's dimensions, joined by `SEPARATOR`.
    pub groups: StringInterner,
    pub finishes: StringInterner,
    pub currencies: StringInterner,
    pub buckets: StringInterner,
    /// Distinct `config.hash` values of the lines, at most `MAX_CONFIGS`.
    pub configs: BTreeSet<String>,
    /// For each dimension of the selectors, values in calls that the selectors exclude. There are at most
    /// `MAX_EXCLUDED` values of each dimension.
    pub excluded: BTreeMap<&'static str, BTreeSet<String>>,
    /// Start of the first and of the last call, including those that are not in the report.
    pub starts: Option<[u64; 2]>,
    pub inputs: Vec<Input>,
    pub lines: Lines,
}

/// Error for a file that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}", path = path.display())]
pub struct ReadError {
    path: PathBuf,
    source: io::Error,
}

/// Reads the files of `request` in order. The path `-` is standard input. A file with the same content as an earlier
/// file, such as a compressed copy, is not used.
///
/// # Errors
/// Fails if a file cannot be opened. A later read error is reported in the [`Input`] of the file.
pub fn read(request: &Request, mut streams: Streams) -> Result<Log, ReadError> {
    let duplicates = duplicates::find(&request.files);
    let sources = request.files.iter().zip(duplicates).map(|(file, duplicate)| {
        match streams.remove(&file.path) {
            Some(stream) => Ok((file.clone(), Content::New(Source::stream(stream)))),
            None => open(file, duplicate),
        }
    });
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let parsers = thread::available_parallelism().map_or(1, usize::from).min(MAX_PARSERS);
    let mut log = Log::new(request);
    thread::scope(|scope| {
        let (mut block_senders, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..parsers {
            let (block_sender, blocks) = sync_channel(QUEUED_BLOCKS);
            let (logs, parsed) = sync_channel(QUEUED_BLOCKS);
            scope.spawn(move || parse(&blocks, &logs, request));
            block_senders.push(block_sender);
            receivers.push(parsed);
        }
        let reader = scope.spawn(move || read_blocks(sources, &block_senders));
        // After the last block, the parser whose turn is next closes its channel without a result. This ends the loop.
        for (block, rows) in receivers.iter().cycle().map_while(|parsed| parsed.recv().ok()) {
            log.merge(&block, rows);
        }
        // The thread cannot panic: it calls no function that does.
        let (inputs, too_long) = reader.join().unwrap_or_default();
        log.inputs = inputs;
        log.lines.too_long += too_long;
        log.lines.read += too_long;
    });
    Ok(log)
}

/// A file to read, or a copy of an earlier file, which is skipped.
enum Content {
    New(Source),
    Duplicate(Duplicate),
}

fn open(file: &File, duplicate: Option<Duplicate>) -> Result<(File, Content), ReadError> {
    let content = match duplicate {
        Some(duplicate) => Content::Duplicate(duplicate),
        None => Content::New(
            Source::open(&file.path)
                .map_err(|source| ReadError { path: file.path.clone(), source })?,
        ),
    };
    Ok((file.clone(), content))
}

/// Complete lines of one file, at most 1 MiB, and the side of the file.
type Block = (Vec<u8>, Side);

/// Sends the blocks of all files to the parsers in turn. Returns a summary of each file, and the number of lines that
/// were too long.
fn read_blocks(sources: Vec<(File, Content)>, parsers: &[SyncSender<Block>]) -> (Vec<Input>, u64) {
    let mut turns = parsers.iter().cycle();
    let mut too_long = 0;
    let mut inputs = Vec::new();
    for (file, content) in sources {
        let source = match content {
            Content::New(source) => source,
            Content::Duplicate(Duplicate { of, stored }) => {
                let duplicate_of = Some(of.to_string_lossy().into_owned());
                inputs.push(Input { duplicate_of, ..Input::new(&file, stored) });
                continue;
            }
        };
        let mut blocks = Blocks::new(source);
        let broken = loop {
            match blocks.next() {
                Ok(Some(text)) => {
                    let sent = turns.next().map(|parser| parser.send((text, file.side)));
                    // A parser ends only after its sender is dropped, so sending cannot fail.
                    debug_assert!(matches!(sent, Some(Ok(()))));
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        too_long += blocks.too_long();
        inputs.push(Input { broken, ..Input::new(&file, blocks.into_source().finish()) });
    }
    (inputs, too_long)
}

impl Input {
    /// Describes an answer of a server.
    pub(crate) fn stream(name: &str, bytes: u64, sha256: String) -> Self {
        let path = name.to_owned();
        Self { path, side: None, bytes, sha256, broken: None, duplicate_of: None }
    }

    fn new(file: &File, Stored { bytes, sha256 }: Stored) -> Self {
        Self {
            path: file.path.to_string_lossy().into_owned(),
            side: file.side.name(),
            bytes,
            sha256,
            broken: None,
            duplicate_of: None,
        }
    }
}

fn parse(blocks: &Receiver<Block>, logs: &SyncSender<(Log, Vec<Row>)>, request: &Request) {
    for (text, side) in blocks {
        if logs.send(batch::parse(&text, side, request)).is_err() {
            return;
        }
    }
}

impl Log {
    fn new(request: &Request) -> Self {
        Self {
            focus: request.focus.then(Table::default),
            rows: Rows::default(),
            groups: StringInterner::new(MAX_GROUPS),
            finishes: StringInterner::new(MAX_VALUES),
            currencies: StringInterner::new(MAX_VALUES),
            buckets: StringInterner::new(MAX_VALUES),
            configs: BTreeSet::new(),
            excluded: BTreeMap::new(),
            starts: None,
            inputs: Vec::new(),
            lines: Lines::default(),
        }
    }

    /// Adds the rows of a block to this log. Replaces the ids of strings in the rows with the ids of this log.
    fn merge(&mut self, block: &Self, mut rows: Vec<Row>) {
        let groups: Vec<u32> = block.groups.iter().map(|text| self.groups.intern(text)).collect();
        let finishes = intern_all(&block.finishes, &mut self.finishes);
        let currencies = intern_all(&block.currencies, &mut self.currencies);
        let buckets = intern_all(&block.buckets, &mut self.buckets);
        let replace = |ids: &[u16], id: &mut u16| {
            *id = ids.get(usize::from(*id)).copied().unwrap_or(Row::ABSENT);
        };
        for row in &mut rows {
            let group = usize::try_from(row.group).ok().and_then(|id| groups.get(id));
            row.group = group.copied().unwrap_or_default();
            replace(&finishes, &mut row.finish);
            replace(&currencies, &mut row.currency);
            replace(&buckets, &mut row.input_bucket);
            replace(&buckets, &mut row.output_bucket);
        }
        let Lines { read, calls, plain, filtered, outside, unreadable, too_long: _, beyond: _ } =
            block.lines;
        self.lines.read += read;
        self.lines.calls += calls;
        self.lines.plain += plain;
        self.lines.filtered += filtered;
        self.lines.outside += outside;
        if let (Some(all), Some(some)) = (&mut self.focus, &block.focus) {
            all.merge(some);
        }
        self.starts = merge_ranges(self.starts, block.starts);
        self.lines.unreadable += unreadable;
        self.lines.beyond += self.rows.append(rows) as u64;
        block.configs.iter().for_each(|hash| self.add_config(hash));
        for (dimension, values) in &block.excluded {
            values.iter().for_each(|value| self.add_excluded(dimension, value));
        }
    }

    fn add_excluded(&mut self, dimension: &'static str, value: &str) {
        let values = self.excluded.entry(dimension).or_default();
        if values.len() < MAX_EXCLUDED && !values.contains(value) {
            values.insert(value.to_owned());
        }
    }

    fn add_config(&mut self, hash: &str) {
        if self.configs.len() < MAX_CONFIGS && !self.configs.contains(hash) {
            self.configs.insert(hash.to_owned());
        }
    }
}

/// Returns the range that contains both ranges of times.
fn merge_ranges(a: Option<[u64; 2]>, b: Option<[u64; 2]>) -> Option<[u64; 2]> {
    let merge =
        |[from_a, to_a]: [u64; 2], [from_b, to_b]: [u64; 2]| [from_a.min(from_b), to_a.max(to_b)];
    a.into_iter().chain(b).reduce(merge)
}

/// Adds the strings of `some` to `all`. Returns the ids of these strings in `all`.
fn intern_all(some: &StringInterner, all: &mut StringInterner) -> Vec<u16> {
    let ids = some.iter().map(|text| all.intern(text));
    ids.map(|id| u16::try_from(id).unwrap_or(Row::ABSENT)).collect()
}

#[cfg(test)]
mod tests;
