//! Writes the request log: one JSON line per finished request. A line has all recorded values, but no text of the
//! prompt or response.
//!
//! Audits rely on this log, so lost lines are counted and logged. The observer thread only appends to a bounded buffer,
//! and a separate thread writes the lines. Lines are in the order in which requests ended.

mod line;
mod schema;
mod time;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokengauge_measure::record::Record;

pub use crate::line_writer::sink::{Destination, Rotation};
pub use schema::schema;
pub use time::rfc3339;

use crate::line_writer::sink::Sink;
use crate::line_writer::{LineCounters, LineCounts, LineWriter, Settings};
use crate::logs::LogEmitter;
use crate::self_telemetry;
use line::Line;

/// Time limit for writing the remaining lines when a configuration reload turns the log off.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// Initial capacity of the buffer for one line, in bytes. The line of a streamed call fits.
const TYPICAL_LINE_BYTES: usize = 3_072;

const WRITER: Settings = Settings {
    thread: "tokengauge-request-log",
    // Enough if a disk hangs for a second while a thousand calls end.
    max_waiting_bytes: 8 << 20,
    max_delay: Duration::from_millis(200),
    report_failure: self_telemetry::request_log_write_failed,
    report_recovery: self_telemetry::request_log_write_recovered,
};

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RequestLogConfig {
    pub destination: Destination,
    pub rotate: Rotation,
}

/// The request log. Writes nothing if no request log is configured.
#[derive(Debug)]
pub struct RequestLog {
    /// Hash of the current configuration, which is a field of each line.
    fingerprint: ArcSwap<String>,
    writer: ArcSwapOption<LineWriter>,
    counters: Arc<LineCounters>,
    exporter: OnceLock<LogEmitter>,
}

/// Why the log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RequestLogError {
    #[error("request_log: cannot open {path}", path = path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("request_log: cannot start the thread")]
    Thread(#[source] io::Error),
}

impl RequestLog {
    /// Opens the log. Each line contains `fingerprint`, the hash of the configuration.
    ///
    /// # Errors Fails if the file cannot be opened, or if the writer thread cannot be started.
    pub fn start(
        config: Option<&RequestLogConfig>,
        fingerprint: &str,
    ) -> Result<Self, RequestLogError> {
        let log = Self {
            fingerprint: ArcSwap::default(),
            writer: ArcSwapOption::empty(),
            counters: Arc::default(),
            exporter: OnceLock::new(),
        };
        log.reload(config, fingerprint)?;
        Ok(log)
    }

    /// Exports each finished request over OTLP, too, even if no lines are written. Only the first call has an effect.
    pub fn export_to(&self, exporter: LogEmitter) {
        self.exporter.get_or_init(|| exporter);
    }

    /// Logs a finished request. Never blocks.
    pub fn record(&self, record: &Record) {
        if let Some(writer) = &*self.writer.load() {
            let mut line = Vec::with_capacity(TYPICAL_LINE_BYTES);
            let fingerprint = self.fingerprint.load();
            let fields = Line::new(record, &fingerprint);
            // Serialization cannot fail: the fields are texts, numbers and maps with text keys.
            if serde_json::to_writer(&mut line, &fields).is_ok() {
                line.push(b'\n');
                writer.offer(&line);
            }
        }
        if let Some(exporter) = self.exporter.get() {
            let line = || serde_json::to_value(Line::new(record, &self.fingerprint.load())).ok();
            exporter.emit_request(record, line);
        }
    }

    /// Applies a configuration and reopens the file, even if the configuration is unchanged. `None` turns the log off.
    ///
    /// # Errors Returns the same errors as [`RequestLog::start`]. After an error, the previous configuration stays in
    /// use.
    pub fn reload(
        &self,
        config: Option<&RequestLogConfig>,
        fingerprint: &str,
    ) -> Result<(), RequestLogError> {
        let previous = self.writer.load_full();
        let Some(config) = config else {
            self.fingerprint.store(Arc::new(fingerprint.to_owned()));
            self.writer.store(None);
            if let Some(previous) = previous {
                previous.stop(LAST_WRITE);
            }
            return Ok(());
        };
        let sink = Sink::open(&config.destination, config.rotate).map_err(|source| {
            let path = match &config.destination {
                Destination::File(path) => path.clone(),
                Destination::Stdout => "stdout".into(),
            };
            RequestLogError::Open { path, source }
        })?;
        // The hash is replaced before the first line under the new configuration.
        self.fingerprint.store(Arc::new(fingerprint.to_owned()));
        match previous {
            Some(previous) => previous.switch_to(sink),
            None => {
                let writer = LineWriter::start(&WRITER, sink, Arc::clone(&self.counters));
                let writer = writer.map_err(RequestLogError::Thread)?;
                self.writer.store(Some(Arc::new(writer)));
            }
        }
        Ok(())
    }

    /// Writes the remaining lines and closes the log. Blocks for at most `limit`. Returns `true` if all lines were
    /// written.
    pub fn stop(&self, limit: Duration) -> bool {
        self.writer.swap(None).is_none_or(|writer| writer.stop(limit))
    }

    pub fn counts(&self) -> LineCounts {
        self.counters.counts()
    }
}

#[cfg(test)]
mod tests;
