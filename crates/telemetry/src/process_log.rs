//! Writes the log of the process to standard error without ever blocking the thread that logs.
//!
//! A pipe that no process reads is full after 64 KiB, for example while a container runtime restarts or its log driver
//! has no disk space. A direct write to the pipe would then stop every thread that logs, with its requests.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crate::line_writer::sink::Sink;
use crate::line_writer::{LineCounters, LineWriter, Settings};
use crate::self_telemetry;

const WRITER: Settings = Settings {
    thread: "tokengauge-log",
    // About 4,000 lines. A process in normal operation logs fewer lines in a day.
    max_waiting_bytes: 1 << 20,
    // A reader of the log sees each line at once.
    max_delay: Duration::ZERO,
    // A log line about a failed write would fail, too. The metric `tokengauge.self.log.dropped` reports it.
    report_failure: |_| {},
    report_recovery: self_telemetry::log_lines_lost,
};

/// The log of the process. Implements [`io::Write`] for one line per write.
#[derive(Debug)]
pub struct ProcessLog {
    writer: LineWriter,
    counters: Arc<LineCounters>,
}

impl ProcessLog {
    /// Starts the thread that writes lines to `stream`.
    ///
    /// # Errors
    /// Fails if the process has no free descriptor or cannot start a thread.
    pub fn start(stream: impl AsFd) -> io::Result<Self> {
        let counters = Arc::default();
        let writer = LineWriter::start(&WRITER, Sink::stream(stream)?, Arc::clone(&counters))?;
        Ok(Self { writer, counters })
    }

    /// Returns the counters of written and lost lines.
    pub const fn counters(&self) -> &Arc<LineCounters> {
        &self.counters
    }

    /// Writes the waiting lines and ends the thread. Blocks for at most `limit`, and discards lines that are not written
    /// by then. Returns `true` if all lines were written.
    pub fn stop(&self, limit: Duration) -> bool {
        self.writer.stop(limit)
    }
}

impl io::Write for &ProcessLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.writer.offer(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
