//! Reads files of a request log into rows.
//!
//! One thread reads and hashes, several threads parse, and the caller collects. Parser *i* mod *n* parses block *i*,
//! and its result is collected in the same order. Rows therefore keep the order of the files, and no queue can grow.

mod batch;
mod blocks;
mod source;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use schemars::JsonSchema;
use serde::Serialize;

use crate::dimension::{Dimension, Selector};
use crate::interner::StringInterner;
use crate::row::{Row, Rows, Side};
pub use source::sha256;

use batch::Batch;
use blocks::Blocks;
use source::Source;

/// Maximum number of groups. A log with one session per line must not exhaust memory, and longer tables are not
/// useful.
pub const MAX_GROUPS: usize = 10_000;
/// Maximum number of finish reasons, currencies or length buckets. A log has only a few of each.
const MAX_VALUES: usize = 64;
/// Maximum number of reported configuration hashes.
const MAX_CONFIGS: usize = 16;
/// Maximum number of parser threads. More would wait for the reading thread.
const MAX_PARSERS: usize = 4;
/// Blocks of 1 MiB that may wait before and after each parser.
const QUEUED_BLOCKS: usize = 2;

/// Selection and grouping of requests.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Dimensions that define the groups.
    pub by: Vec<Dimension>,
    /// Selectors that a request must match, all of them.
    pub only: Vec<Selector>,
    pub sides: SideRule,
}

/// Rule that assigns requests to the sides of a comparison.
#[derive(Clone, Debug, Default)]
pub enum SideRule {
    #[default]
    None,
    /// By a property of the request.
    By { a: Selector, b: Selector },
    /// By the file that contains it.
    ByFile,
}

/// A file to read, and the side of its requests if the file determines it.
#[derive(Clone, Debug)]
pub struct File {
    pub path: PathBuf,
    pub side: Side,
}

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
    /// Error that ended reading before the end of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// Counts of log lines.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Lines {
    /// All lines that are not empty.
    pub read: u64,
    /// Calls of a known API, the subject of the report.
    pub calls: u64,
    /// Plain HTTP requests, left out.
    pub plain: u64,
    /// Requests that the selectors exclude.
    pub filtered: u64,
    /// Lines that are not JSON or not from a request log, skipped.
    pub unreadable: u64,
    /// Lines longer than 1 MiB, skipped.
    pub too_long: u64,
    /// Requests beyond the row limit, left out.
    pub beyond: u64,
}

/// Content of all files.
#[derive(Debug)]
pub struct Log {
    pub rows: Rows,
    /// Values of each group's dimensions, joined by [`SEPARATOR`].
    pub groups: StringInterner,
    pub finishes: StringInterner,
    pub currencies: StringInterner,
    pub buckets: StringInterner,
    /// Distinct `config.hash` values of the lines.
    pub configs: BTreeSet<String>,
    pub inputs: Vec<Input>,
    pub lines: Lines,
}

/// Separates the values of a group. Values contain no control characters.
pub const SEPARATOR: char = '\u{1f}';

/// A file that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {error}", path = path.display())]
pub struct ReadError {
    path: PathBuf,
    error: io::Error,
}

/// Reads `files` in order. The path `-` is standard input.
///
/// # Errors
/// Fails if a file cannot be opened. A later read error is reported in the file's [`Input`].
pub fn read(files: &[File], selection: &Selection) -> Result<Log, ReadError> {
    let sources = files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let parsers = thread::available_parallelism().map_or(1, usize::from).min(MAX_PARSERS);
    let mut log = Log::new();
    thread::scope(|scope| {
        let (mut block_senders, mut batch_receivers) = (Vec::new(), Vec::new());
        for _ in 0..parsers {
            let (block_sender, blocks) = sync_channel(QUEUED_BLOCKS);
            let (batches, batch_receiver) = sync_channel(QUEUED_BLOCKS);
            scope.spawn(move || parse(&blocks, &batches, selection));
            block_senders.push(block_sender);
            batch_receivers.push(batch_receiver);
        }
        let reader = scope.spawn(move || read_blocks(sources, &block_senders));
        // After the last block, the next parser in turn is the first without a result.
        for batch in
            batch_receivers.iter().cycle().map_while(|batch_receiver| batch_receiver.recv().ok())
        {
            log.merge(&batch);
        }
        // The thread cannot panic: it calls no function that does.
        let (inputs, too_long) = reader.join().unwrap_or_default();
        log.inputs = inputs;
        log.lines.too_long += too_long;
        log.lines.read += too_long;
    });
    Ok(log)
}

fn open(file: &File) -> Result<(File, Source), ReadError> {
    let source =
        Source::open(&file.path).map_err(|error| ReadError { path: file.path.clone(), error })?;
    Ok((file.clone(), source))
}

/// Complete lines of one file.
struct Block {
    text: Vec<u8>,
    side: Side,
}

/// Sends the blocks of all sources to the parsers in turn. Returns a summary of each file and the number of lines
/// that were too long.
fn read_blocks(sources: Vec<(File, Source)>, parsers: &[SyncSender<Block>]) -> (Vec<Input>, u64) {
    let mut turns = parsers.iter().cycle();
    let mut too_long = 0;
    let mut inputs = Vec::new();
    for (file, source) in sources {
        let mut blocks = Blocks::new(source);
        let broken = loop {
            match blocks.next() {
                Ok(Some(text)) => {
                    let sent =
                        turns.next().map(|parser| parser.send(Block { text, side: file.side }));
                    // A parser ends only after its sender is dropped.
                    debug_assert!(matches!(sent, Some(Ok(()))));
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        too_long += blocks.too_long();
        inputs.push(input_summary(&file, blocks.into_source(), broken));
    }
    (inputs, too_long)
}

fn input_summary(file: &File, source: Source, broken: Option<String>) -> Input {
    let (bytes, sha256) = source.finish();
    Input { path: display(&file.path), side: file.side.name(), bytes, sha256, broken }
}

fn display(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn parse(blocks: &Receiver<Block>, batches: &SyncSender<Batch>, selection: &Selection) {
    while let Ok(block) = blocks.recv() {
        if batches.send(Batch::parse(&block.text, block.side, selection)).is_err() {
            return;
        }
    }
}

impl Log {
    fn new() -> Self {
        Self {
            rows: Rows::default(),
            groups: StringInterner::new(MAX_GROUPS),
            finishes: StringInterner::new(MAX_VALUES),
            currencies: StringInterner::new(MAX_VALUES),
            buckets: StringInterner::new(MAX_VALUES),
            configs: BTreeSet::new(),
            inputs: Vec::new(),
            lines: Lines::default(),
        }
    }

    /// Adds the rows of a batch, and replaces their interned ids with the ids of the log.
    fn merge(&mut self, batch: &Batch) {
        let groups: Vec<u32> = batch.groups.iter().map(|text| self.groups.intern(text)).collect();
        let [finishes, currencies, buckets] = [
            intern_all(&batch.finishes, &mut self.finishes),
            intern_all(&batch.currencies, &mut self.currencies),
            intern_all(&batch.buckets, &mut self.buckets),
        ];
        let word = |intern_all: &[u16], id: u16| {
            intern_all.get(usize::from(id)).copied().unwrap_or(Row::ABSENT)
        };
        for row in &batch.rows {
            let group = usize::try_from(row.group).ok().and_then(|id| groups.get(id));
            let mut row = *row;
            row.group = group.copied().unwrap_or_default();
            row.finish = word(&finishes, row.finish);
            row.currency = word(&currencies, row.currency);
            row.input_bucket = word(&buckets, row.input_bucket);
            row.output_bucket = word(&buckets, row.output_bucket);
            self.lines.beyond += u64::from(!self.rows.push(row));
        }
        let Lines { read, calls, plain, filtered, unreadable, too_long: _, beyond: _ } =
            batch.lines;
        self.lines.read += read;
        self.lines.calls += calls;
        self.lines.plain += plain;
        self.lines.filtered += filtered;
        self.lines.unreadable += unreadable;
        for config in batch.configs.iter() {
            if self.configs.len() < MAX_CONFIGS {
                self.configs.insert(config.to_owned());
            }
        }
    }
}

/// Interns the strings of `some` in `all` and returns the new ids.
fn intern_all(some: &StringInterner, all: &mut StringInterner) -> Vec<u16> {
    let ids = some.iter().map(|text| all.intern(text));
    ids.map(|id| u16::try_from(id).unwrap_or(Row::ABSENT)).collect()
}

#[cfg(test)]
mod tests;
