//! Writes lines on a separate thread, so that a full disk, a hung file system or a pipe that no process reads blocks no
//! other thread. Lines wait in a bounded buffer, and lost lines are counted.
//!
//! The request log and the log of the process use it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

pub(crate) mod sink;

use self::sink::{Sink, WriteFailure};
use crate::export_counters::{DropCounters, DropReason};
use crate::self_telemetry;
use tokengauge_types::sync::lock;

/// Size of the waiting lines in bytes at which the thread writes immediately.
const FULL_BATCH_BYTES: usize = 256 << 10;

/// Capacity in bytes that the buffer keeps between two batches.
const KEPT_CAPACITY: usize = 1 << 20;

/// What differs between the logs.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Name of the thread.
    pub(crate) thread: &'static str,
    /// Maximum size of the waiting lines in bytes.
    pub(crate) max_waiting_bytes: usize,
    /// Maximum time that a line waits to be written together with further lines.
    pub(crate) max_delay: Duration,
    /// Reports the first of several failed writes.
    pub(crate) report_failure: fn(&str),
    /// Reports that lines are written again, and how many lines were lost since the previous report.
    pub(crate) report_recovery: fn(u64),
}

/// Number of lines since the start of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LineCounts {
    pub written: u64,
    pub dropped: [(DropReason, u64); DropReason::ALL.len()],
    /// Number of failed attempts to start a new file.
    pub failed_rotations: u64,
}

impl LineCounts {
    /// Returns the number of dropped lines for each of these reasons.
    pub(crate) fn dropped_for<const N: usize>(
        &self,
        reasons: [DropReason; N],
    ) -> [(&'static str, Option<u64>); N] {
        let counts = |reason| self.dropped.iter().find(|(known, _)| *known == reason);
        reasons.map(|reason| (reason.as_str(), counts(reason).map(|(_, lines)| *lines)))
    }
}

impl Default for LineCounts {
    fn default() -> Self {
        let dropped = DropReason::ALL.map(|reason| (reason, 0));
        Self { written: 0, dropped, failed_rotations: 0 }
    }
}

/// Counts the lines of a log.
#[derive(Debug, Default)]
pub struct LineCounters {
    pub(crate) written: AtomicU64,
    pub(crate) dropped: DropCounters,
    pub(crate) failed_rotations: AtomicU64,
}

impl LineCounters {
    pub fn counts(&self) -> LineCounts {
        LineCounts {
            written: self.written.load(Ordering::Relaxed),
            dropped: DropReason::ALL.map(|reason| (reason, self.dropped.get(reason))),
            failed_rotations: self.failed_rotations.load(Ordering::Relaxed),
        }
    }
}

/// The buffer of a log and the thread that writes its lines.
#[derive(Debug)]
pub(crate) struct LineWriter {
    buffer: Arc<Buffer>,
}

#[derive(Debug)]
struct Buffer {
    settings: &'static Settings,
    state: Mutex<State>,
    /// Notified when the first line arrives, when a batch is full, when the sink changes, and when the writer stops.
    changed: Condvar,
    /// Notified when the thread has ended.
    ended: Condvar,
    counters: Arc<LineCounters>,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    line_count: usize,
    /// Number of lines that were dropped because the buffer was full, since the last report.
    refused: u64,
    /// Sinks (destinations) that replace the current sink. Each has the offset in `lines` from which it is used.
    switches: Vec<(usize, Sink)>,
    stopping: bool,
    /// Number of lines that the thread has taken but not written yet.
    in_progress: usize,
    ended: bool,
}

impl State {
    fn has_request(&self) -> bool {
        self.stopping || !self.switches.is_empty()
    }
}

/// Requests to the thread that it takes from the buffer together with the lines.
struct Batch {
    switches: Vec<(usize, Sink)>,
    stopping: bool,
}

impl LineWriter {
    pub(crate) fn start(
        settings: &'static Settings,
        sink: Sink,
        counters: Arc<LineCounters>,
    ) -> io::Result<Self> {
        let buffer = Arc::new(Buffer {
            settings,
            state: Mutex::default(),
            changed: Condvar::new(),
            ended: Condvar::new(),
            counters,
        });
        let guard = EndGuard(Arc::clone(&buffer));
        std::thread::Builder::new()
            .name(settings.thread.into())
            .spawn(move || guard.0.run(sink))?;
        Ok(Self { buffer })
    }

    /// Appends a line to the buffer. If the buffer is full, the line is dropped and counted. The lock is held only
    /// while the line is copied.
    pub(crate) fn offer(&self, line: &[u8]) {
        let buffer = &self.buffer;
        let mut state = lock(&buffer.state);
        if state.stopping {
            return buffer.counters.dropped.add(DropReason::Shutdown, 1);
        }
        if state.lines.len() + line.len() > buffer.settings.max_waiting_bytes {
            state.refused += 1;
            return buffer.counters.dropped.add(DropReason::QueueFull, 1);
        }
        let before = state.lines.len();
        state.lines.extend_from_slice(line);
        state.line_count += 1;
        let after = state.lines.len();
        drop(state);
        if before == 0 || (before < FULL_BATCH_BYTES && after >= FULL_BATCH_BYTES) {
            buffer.changed.notify_one();
        }
    }

    /// Replaces the sink (the destination) for later lines. Lines that are already waiting are written to the previous
    /// sink.
    pub(crate) fn switch_to(&self, sink: Sink) {
        let mut state = lock(&self.buffer.state);
        let from = state.lines.len();
        state.switches.push((from, sink));
        drop(state);
        self.buffer.changed.notify_one();
    }

    /// Writes the remaining lines and ends the thread. Lines that are not written within `limit` are counted as
    /// dropped. Returns `true` if all lines were written.
    pub(crate) fn stop(&self, limit: Duration) -> bool {
        let buffer = &self.buffer;
        let mut state = lock(&buffer.state);
        state.stopping = true;
        buffer.changed.notify_one();
        let (mut state, _) = buffer
            .ended
            .wait_timeout_while(state, limit, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        let left = state.line_count + state.in_progress;
        (state.line_count, state.in_progress) = (0, 0);
        buffer.counters.dropped.add(DropReason::Shutdown, left);
        left == 0
    }
}

/// Marks the thread as ended when this guard is dropped, even if the thread panicked.
struct EndGuard(Arc<Buffer>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        lock(&self.0.state).ended = true;
        self.0.ended.notify_all();
    }
}

impl Buffer {
    fn run(&self, mut sink: Sink) {
        let mut lines = Vec::new();
        let mut losses =
            LossReport { settings: self.settings, lost_lines: None, is_rotation_failing: false };
        loop {
            let Batch { switches, stopping } = self.take(&mut lines);
            let mut rest = lines.as_slice();
            let mut offset = 0;
            for (from, next) in switches {
                let (before, after) = rest.split_at_checked(from - offset).unwrap_or((rest, b""));
                self.write(&mut sink, before, &mut losses);
                (rest, offset, sink) = (after, from, next);
            }
            self.write(&mut sink, rest, &mut losses);
            if stopping {
                return;
            }
            lines.clear();
            lines.shrink_to(KEPT_CAPACITY);
        }
    }

    /// Waits for a line, and then up to [`Settings::max_delay`] for more lines, so that they are written in one batch.
    fn take(&self, lines: &mut Vec<u8>) -> Batch {
        let idle = |state: &mut State| state.lines.is_empty() && !state.has_request();
        let few = |state: &mut State| state.lines.len() < FULL_BATCH_BYTES && !state.has_request();
        let state = self
            .changed
            .wait_while(lock(&self.state), idle)
            .unwrap_or_else(PoisonError::into_inner);
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, self.settings.max_delay, few)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.lines, lines);
        state.in_progress = std::mem::take(&mut state.line_count);
        Batch { switches: std::mem::take(&mut state.switches), stopping: state.stopping }
    }

    /// Writes lines, and counts each line as written or dropped. Lines that [`LineWriter::stop`] has already counted as
    /// dropped are not counted again.
    fn write(&self, sink: &mut Sink, lines: &[u8], losses: &mut LossReport) {
        if lines.is_empty() {
            return;
        }
        let result = sink.write(lines);
        let unwritten = result.as_ref().err().map_or(0, |failed| count(failed.rest));
        let all = count(lines);
        let mut state = lock(&self.state);
        if state.in_progress >= all {
            state.in_progress -= all;
            self.counters.written.fetch_add((all - unwritten) as u64, Ordering::Relaxed);
            self.counters.dropped.add(DropReason::Failed, unwritten);
        }
        // Lines that did not fit into the buffer are reported as soon as lines are written again, and the buffer has room
        // for the report, which can be a line of the same log.
        let can_report = result.is_ok() && state.lines.len() <= self.settings.max_waiting_bytes / 2;
        let refused = if can_report { std::mem::take(&mut state.refused) } else { 0 };
        drop(state);
        losses.update(&result, unwritten as u64 + refused, can_report);
        if let Some(rotation) = sink.take_rotation() {
            let failed = u64::from(rotation.is_err());
            self.counters.failed_rotations.fetch_add(failed, Ordering::Relaxed);
            losses.update_rotation(rotation);
        }
    }
}

fn count(lines: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', lines).count()
}

/// Reports the first failed write and the recovery, but not the failures in between. Does the same for rotations.
struct LossReport {
    settings: &'static Settings,
    lost_lines: Option<u64>,
    is_rotation_failing: bool,
}

impl LossReport {
    /// Applies the result of a write. `lines` is the number of lines that are known to be lost since the last call.
    /// Without `can_report`, lost lines are reported after a later write.
    fn update(&mut self, result: &Result<(), WriteFailure<'_>>, lines: u64, can_report: bool) {
        match (result, &mut self.lost_lines) {
            (Err(_), Some(lost)) => *lost += lines,
            (Err(failed), None) => {
                self.lost_lines = Some(lines);
                (self.settings.report_failure)(&failed.problem.to_string());
            }
            (Ok(()), _) if !can_report => {}
            (Ok(()), lost_lines) => {
                let lost = lost_lines.take().unwrap_or_default() + lines;
                if lost > 0 {
                    (self.settings.report_recovery)(lost);
                }
            }
        }
    }

    fn update_rotation(&mut self, rotation: io::Result<()>) {
        match (rotation, self.is_rotation_failing) {
            (Err(problem), false) => {
                self_telemetry::request_log_rotation_failed(&problem.to_string());
                self.is_rotation_failing = true;
            }
            (Ok(()), true) => {
                self_telemetry::request_log_rotation_recovered();
                self.is_rotation_failing = false;
            }
            (Err(_), true) | (Ok(()), false) => {}
        }
    }
}
