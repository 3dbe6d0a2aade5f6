//! The request log: one JSON line for each finished exchange, with every fact of its record and none of its text.
//!
//! It is the raw material of audits, so what is lost of it is counted and said. The observer only ever appends to a
//! bounded buffer; a thread of its own writes. Lines stand in the order in which exchanges ended.

mod convert;
mod convert_call;
mod line;
mod schema;
mod sink;
mod time;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};

pub use schema::{schema, table};
pub use sink::{Destination, Rotation};
pub use time::rfc3339;

use crate::export_counters::DropReason;
use sink::Sink;
use tokengauge_measure::record::Record;
use writer::Writer;

/// How long a log that is turned off may take to write what is left.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// What is logged, and where to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    pub place: Destination,
    pub rotate: Rotation,
}

/// The log, if there is one.
#[derive(Debug)]
pub struct RequestLog {
    /// Of the configuration in force.
    fingerprint: ArcSwap<String>,
    running: ArcSwapOption<Running>,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Running {
    writer: Writer,
}

/// Why the log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("request_log: {place} cannot be opened: {problem}", place = place.display())]
    Open { place: PathBuf, problem: io::Error },
    #[error("request_log: its thread cannot be started: {0}")]
    Thread(io::Error),
}

/// Lines, since the start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LineCounts {
    pub written: u64,
    pub dropped: [(DropReason, u64); DropReason::ALL.len()],
}

impl Default for LineCounts {
    fn default() -> Self {
        Self { written: 0, dropped: DropReason::ALL.map(|reason| (reason, 0)) }
    }
}

#[derive(Debug, Default)]
struct Counters {
    written: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
}

impl Counters {
    fn wrote(&self, lines: usize) {
        self.written.fetch_add(lines as u64, Ordering::Relaxed);
    }

    fn lost(&self, reason: DropReason, lines: usize) {
        let place = DropReason::ALL.iter().position(|known| *known == reason);
        if let Some(counter) = place.and_then(|place| self.dropped.get(place)) {
            counter.fetch_add(lines as u64, Ordering::Relaxed);
        }
    }
}

impl RequestLog {
    /// `fingerprint`: of the configuration, which each line carries.
    ///
    /// # Errors
    /// Where the file cannot be opened, or the thread not be started.
    pub fn start(config: Option<&Config>, fingerprint: &str) -> Result<Self, Error> {
        let log = Self {
            fingerprint: ArcSwap::default(),
            running: ArcSwapOption::empty(),
            counters: Arc::default(),
        };
        log.reload(config, fingerprint)?;
        Ok(log)
    }

    /// Logs a finished exchange. Never waits for anything.
    pub fn record(&self, record: &Record) {
        let running = self.running.load();
        let Some(running) = &*running else { return };
        let mut line = Vec::with_capacity(USUAL_LINE);
        // Of texts, numbers and maps with texts as keys nothing can fail to be written.
        if serde_json::to_writer(&mut line, &convert::line(record, &self.fingerprint.load()))
            .is_ok()
        {
            line.push(b'\n');
            running.writer.offer(&line);
        }
    }

    /// Puts a new configuration in force, or opens the file of the same one anew.
    ///
    /// # Errors
    /// As at the start; then all goes on as before.
    pub fn reload(&self, config: Option<&Config>, fingerprint: &str) -> Result<(), Error> {
        let before = self.running.load_full();
        let Some(config) = config else {
            self.running.store(None);
            if let Some(before) = before {
                before.writer.stop(LAST_WRITE);
            }
            return Ok(());
        };
        let target = Sink::open(&config.place, config.rotate).map_err(|problem| {
            let place = match &config.place {
                Destination::File(path) => path.clone(),
                Destination::Stdout => "stdout".into(),
            };
            Error::Open { place, problem }
        })?;
        // Before the first line that may carry it.
        self.fingerprint.store(Arc::new(fingerprint.to_owned()));
        match before {
            Some(before) => before.writer.switch_to(target),
            None => {
                let writer =
                    Writer::start(target, Arc::clone(&self.counters)).map_err(Error::Thread)?;
                self.running.store(Some(Arc::new(Running { writer })));
            }
        }
        Ok(())
    }

    /// Writes what is left, within `bound`; true where all of it was written. Blocks.
    pub fn stop(&self, bound: Duration) -> bool {
        self.running.swap(None).is_none_or(|running| running.writer.stop(bound))
    }

    pub fn counts(&self) -> LineCounts {
        let mut counts = LineCounts {
            written: self.counters.written.load(Ordering::Relaxed),
            ..LineCounts::default()
        };
        for ((_, lines), counter) in counts.dropped.iter_mut().zip(&self.counters.dropped) {
            *lines = counter.load(Ordering::Relaxed);
        }
        counts
    }
}

/// What a line of a streamed call has; longer ones grow.
const USUAL_LINE: usize = 3_072;

#[cfg(test)]
mod tests;
