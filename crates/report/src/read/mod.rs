//! Files of a request log → rows.
//!
//! One thread reads and hashes, some parse, the caller collects. Block *i* goes to parser *i* mod *n* and comes back from
//! there in its turn, so rows keep the order of the files whatever the threads do, and no queue can grow.

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
use crate::row::{Row, Rows, Side};
use crate::texts::Texts;
pub use source::sha256;

use batch::Batch;
use blocks::Blocks;
use source::Source;

/// Groups of a table: more of them nobody reads, and a log with a session in each line must not fill the memory.
pub const MOST_GROUPS: usize = 10_000;
/// Words that providers, price tables and the log itself choose from, each of a few.
const MOST_WORDS: usize = 64;
/// Hashes of configurations that are told.
const MOST_CONFIGS: usize = 16;
/// Parsers: more would wait for the one that reads and hashes.
const MOST_PARSERS: usize = 4;
/// Blocks that wait before and behind each parser, 1 MiB each.
const WAITING: usize = 2;

/// Which requests are read, and what is kept of them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// What groups are made by.
    pub by: Vec<Dimension>,
    /// All of these must hold.
    pub only: Vec<Selector>,
    pub sides: Sides,
}

/// How it is told which side of a comparison a request is on.
#[derive(Clone, Debug, Default)]
pub enum Sides {
    #[default]
    None,
    /// By a property of each.
    By { a: Selector, b: Selector },
    /// By the file that it stands in.
    ByFile,
}

/// A file to read, and the side that its requests are on where the file says that.
#[derive(Clone, Debug)]
pub struct File {
    pub path: PathBuf,
    pub side: Side,
}

/// What was read of one file.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub struct Input {
    pub path: String,
    /// `A` or `B`, where the file says which side its requests are on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side: Option<&'static str>,
    /// Bytes of the file as it is stored.
    pub bytes: u64,
    /// Of the file as it is stored: 64 hexadecimal digits.
    pub sha256: String,
    /// Why it was not read to its end, where it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// What became of the lines.
#[derive(Clone, Copy, Debug, Default, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Lines {
    /// All that are not empty.
    pub read: u64,
    /// Calls of a known API, which is what the report is about.
    pub calls: u64,
    /// Plain HTTP, left out.
    pub plain: u64,
    /// Left out as the command line asks.
    pub filtered: u64,
    /// No JSON, or no line of a request log; skipped.
    pub unreadable: u64,
    /// Longer than 1 MiB; skipped.
    pub too_long: u64,
    /// Beyond the most requests that are held, left out.
    pub beyond: u64,
}

/// Everything that was read.
#[derive(Debug)]
pub struct Log {
    pub rows: Rows,
    /// The values of a group's dimensions, joined by [`SEPARATOR`].
    pub groups: Texts,
    pub finishes: Texts,
    pub currencies: Texts,
    pub bands: Texts,
    /// `config.hash` of all lines.
    pub configs: BTreeSet<String>,
    pub inputs: Vec<Input>,
    pub lines: Lines,
}

/// Stands between the values of a group: a control character, of which values hold none.
pub const SEPARATOR: char = '\u{1f}';

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be read: {problem}", path = path.display())]
pub struct Unreadable {
    path: PathBuf,
    problem: io::Error,
}

/// Reads `files` one after another; `-` is standard input.
///
/// # Errors
/// Where one cannot be opened. What breaks later is told in its [`Input`].
pub fn read(files: &[File], selection: &Selection) -> Result<Log, Unreadable> {
    let sources = files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let parsers = thread::available_parallelism().map_or(1, usize::from).min(MOST_PARSERS);
    let mut log = Log::new();
    thread::scope(|scope| {
        let (mut inlets, mut outlets) = (Vec::new(), Vec::new());
        for _ in 0..parsers {
            let (inlet, blocks) = sync_channel(WAITING);
            let (batches, outlet) = sync_channel(WAITING);
            scope.spawn(move || parse(&blocks, &batches, selection));
            inlets.push(inlet);
            outlets.push(outlet);
        }
        let reader = scope.spawn(move || feed(sources, &inlets));
        // The first parser that has no more is the one whose turn it is when all has been read.
        for batch in outlets.iter().cycle().map_while(|outlet| outlet.recv().ok()) {
            log.take(&batch);
        }
        // It cannot have panicked: it calls nothing that does.
        let (inputs, too_long) = reader.join().unwrap_or_default();
        log.inputs = inputs;
        log.lines.too_long += too_long;
        log.lines.read += too_long;
    });
    Ok(log)
}

fn open(file: &File) -> Result<(File, Source), Unreadable> {
    let source = Source::open(&file.path)
        .map_err(|problem| Unreadable { path: file.path.clone(), problem })?;
    Ok((file.clone(), source))
}

/// Whole lines of one file.
struct Block {
    text: Vec<u8>,
    side: Side,
}

/// Hands out the blocks of all sources in turn; then what is to be told of each, and how many lines were too long.
fn feed(sources: Vec<(File, Source)>, parsers: &[SyncSender<Block>]) -> (Vec<Input>, u64) {
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
                    // A parser ends only after its inlet.
                    debug_assert!(matches!(sent, Some(Ok(()))));
                }
                Ok(None) => break None,
                Err(problem) => break Some(problem.to_string()),
            }
        };
        too_long += blocks.too_long();
        inputs.push(told(&file, blocks.into_source(), broken));
    }
    (inputs, too_long)
}

fn told(file: &File, source: Source, broken: Option<String>) -> Input {
    let (bytes, sha256) = source.finish();
    Input {
        path: shown(&file.path),
        side: match file.side {
            Side::Neither => None,
            Side::A => Some("A"),
            Side::B => Some("B"),
        },
        bytes,
        sha256,
        broken,
    }
}

fn shown(path: &Path) -> String {
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
            groups: Texts::new(MOST_GROUPS),
            finishes: Texts::new(MOST_WORDS),
            currencies: Texts::new(MOST_WORDS),
            bands: Texts::new(MOST_WORDS),
            configs: BTreeSet::new(),
            inputs: Vec::new(),
            lines: Lines::default(),
        }
    }

    /// Takes a batch in, its own numbers of texts replaced by those of the whole.
    fn take(&mut self, batch: &Batch) {
        let groups: Vec<u32> = batch.groups.iter().map(|text| self.groups.id(text)).collect();
        let [finishes, currencies, bands] = [
            words(&batch.finishes, &mut self.finishes),
            words(&batch.currencies, &mut self.currencies),
            words(&batch.bands, &mut self.bands),
        ];
        let word =
            |words: &[u16], id: u16| words.get(usize::from(id)).copied().unwrap_or(Row::ABSENT);
        for row in &batch.rows {
            let group = usize::try_from(row.group).ok().and_then(|id| groups.get(id));
            let mut row = *row;
            row.group = group.copied().unwrap_or_default();
            row.finish = word(&finishes, row.finish);
            row.currency = word(&currencies, row.currency);
            row.input_band = word(&bands, row.input_band);
            row.output_band = word(&bands, row.output_band);
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
            if self.configs.len() < MOST_CONFIGS {
                self.configs.insert(config.to_owned());
            }
        }
    }
}

/// The id in `all` of each of `some`.
fn words(some: &Texts, all: &mut Texts) -> Vec<u16> {
    let ids = some.iter().map(|text| all.id(text));
    ids.map(|id| u16::try_from(id).unwrap_or(Row::ABSENT)).collect()
}

#[cfg(test)]
mod tests;
