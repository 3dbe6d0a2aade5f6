//! The thread that writes lines, and the buffer that it takes them from.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::export_counters::DropReason;
use crate::request_log::Counters;
use crate::request_log::sink::{Sink, WriteFailure};
use crate::self_telemetry;

/// Bytes that may wait: a disk that hangs for a second while a thousand calls end.
const MOST_WAITING: usize = 8 << 20;

/// From so many bytes on they are written at once.
const WORTH_WRITING: usize = 256 << 10;

/// How long a line may wait for others to be written with.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// Between two batches the buffer keeps no more room than this.
const KEPT_ROOM: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Writer {
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<State>,
    /// Notified at the first line, when many wait, and when there is something else to do.
    news: Condvar,
    /// Notified when the thread has ended.
    ended: Condvar,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    number: usize,
    /// From which byte of `lines` on they go elsewhere.
    turns: Vec<(usize, Sink)>,
    stopping: bool,
    /// Lines that the thread has taken and not yet written.
    in_hand: usize,
    ended: bool,
}

impl State {
    fn has_news(&self) -> bool {
        self.stopping || !self.turns.is_empty()
    }
}

/// What the thread takes at a time, beside the lines themselves.
struct Batch {
    turns: Vec<(usize, Sink)>,
    stopping: bool,
}

impl Writer {
    pub(super) fn start(target: Sink, counters: Arc<Counters>) -> io::Result<Self> {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            news: Condvar::new(),
            ended: Condvar::new(),
            counters,
        });
        let ending = Ending(Arc::clone(&queue));
        std::thread::Builder::new()
            .name("tokengauge-request-log".into())
            .spawn(move || ending.0.write(target))?;
        Ok(Self { queue })
    }

    /// Takes a line, or counts it where there is no room. Holds its lock only to copy.
    pub(super) fn offer(&self, line: &[u8]) {
        let queue = &self.queue;
        let mut state = queue.state();
        if state.stopping {
            return queue.counters.lost(DropReason::Shutdown, 1);
        }
        if state.lines.len() + line.len() > MOST_WAITING {
            return queue.counters.lost(DropReason::QueueFull, 1);
        }
        let before = state.lines.len();
        state.lines.extend_from_slice(line);
        state.number += 1;
        let after = state.lines.len();
        drop(state);
        if before == 0 || (before < WORTH_WRITING && after >= WORTH_WRITING) {
            queue.news.notify_one();
        }
    }

    /// Lines from here on go to `target`; those that wait still go where they would have gone.
    pub(super) fn switch_to(&self, target: Sink) {
        let mut state = self.queue.state();
        let from = state.lines.len();
        state.turns.push((from, target));
        drop(state);
        self.queue.news.notify_one();
    }

    /// Writes what is left and ends the thread; what is not written within `bound` is counted. True where all was.
    pub(super) fn stop(&self, bound: Duration) -> bool {
        let queue = &self.queue;
        let mut state = queue.state();
        state.stopping = true;
        queue.news.notify_one();
        let (mut state, _) = queue
            .ended
            .wait_timeout_while(state, bound, |state| !state.ended)
            .unwrap_or_else(PoisonError::into_inner);
        let left = state.number + state.in_hand;
        (state.number, state.in_hand) = (0, 0);
        queue.counters.lost(DropReason::Shutdown, left);
        left == 0
    }
}

/// Tells that the thread is over even if it panicked.
struct Ending(Arc<Queue>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.ended.notify_all();
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread.
    fn write(&self, mut target: Sink) {
        let mut lines = Vec::new();
        let mut failures = Failures::default();
        loop {
            let Batch { turns, stopping } = self.take(&mut lines);
            let mut rest = lines.as_slice();
            let mut gone = 0;
            for (from, next) in turns {
                let (before, after) = rest.split_at_checked(from - gone).unwrap_or((rest, b""));
                self.put(&mut target, before, &mut failures);
                (rest, gone, target) = (after, from, next);
            }
            self.put(&mut target, rest, &mut failures);
            if stopping {
                return;
            }
            lines.clear();
            lines.shrink_to(KEPT_ROOM);
        }
    }

    /// Waits for lines, and for a moment more for others that go with them.
    fn take(&self, lines: &mut Vec<u8>) -> Batch {
        let idle = |state: &mut State| state.lines.is_empty() && !state.has_news();
        let few = |state: &mut State| state.lines.len() < WORTH_WRITING && !state.has_news();
        let state =
            self.news.wait_while(self.state(), idle).unwrap_or_else(PoisonError::into_inner);
        let (mut state, _) = self
            .news
            .wait_timeout_while(state, LONGEST_WAIT, few)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.lines, lines);
        state.in_hand = std::mem::take(&mut state.number);
        Batch { turns: std::mem::take(&mut state.turns), stopping: state.stopping }
    }

    /// Writes lines and counts each of them once: those that a stop has given up in the meantime are counted by it.
    fn put(&self, target: &mut Sink, lines: &[u8], failures: &mut Failures) {
        if lines.is_empty() {
            return;
        }
        let result = target.write(lines);
        let unwritten = result.as_ref().err().map_or(0, |failed| count(failed.rest));
        let all = count(lines);
        let mut state = self.state();
        if state.in_hand >= all {
            state.in_hand -= all;
            self.counters.wrote(all - unwritten);
            self.counters.lost(DropReason::Failed, unwritten);
        }
        drop(state);
        failures.tell(&result, unwritten);
    }
}

fn count(lines: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', lines).count()
}

/// Said when writing begins to fail and when it works again, not at every attempt in between.
#[derive(Debug, Default)]
struct Failures {
    lines: Option<usize>,
}

impl Failures {
    fn tell(&mut self, result: &Result<(), WriteFailure<'_>>, lines: usize) {
        match (result, &mut self.lines) {
            (Err(_), Some(lost)) => *lost += lines,
            (Err(failed), None) => {
                self.lines = Some(lines);
                self_telemetry::request_log_write_failed(&failed.problem.to_string());
            }
            (Ok(()), Some(lost)) => {
                self_telemetry::request_log_write_recovered(*lost);
                self.lines = None;
            }
            (Ok(()), None) => {}
        }
    }
}
