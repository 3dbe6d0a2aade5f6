//! Drives the board from the seam: drain, sweep, park.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock::{self, Moment};
use crate::observe::board::Board;
use crate::tee::{Batch, Seam};
use crate::wire::{Entry, Word};

/// Between two drains while anything is open. A timed wake costs 20–55 µs, as much as relaying a chunk; instants were
/// stamped at the seam, so nothing is less exact for waiting.
const DRAIN_EVERY: Duration = Duration::from_millis(50);

/// Between two sweeps over the exchanges in flight.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// How long the observer sleeps when nothing is open; the first exchange wakes it. Bounded, so that a last word that
/// was said after the last drain does not wait for the next exchange.
const IDLE: Duration = Duration::from_secs(1);

/// The observer: one thread that drains the seam, and the board that anybody may bring up to date and read.
#[derive(Debug)]
pub struct Observer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    seam: Arc<Seam>,
    desk: Mutex<Desk>,
    stopping: AtomicBool,
}

/// The board, and the batch that is swapped with each shard in turn: buffers are used again, not made again.
#[derive(Debug)]
struct Desk {
    board: Board,
    batch: Batch,
}

impl Observer {
    /// # Errors
    /// Where the thread cannot be made.
    pub fn start(seam: Arc<Seam>, board: Board) -> std::io::Result<Self> {
        let desk = Mutex::new(Desk {
            board,
            batch: Batch::default(),
        });
        let shared = Arc::new(Shared {
            seam,
            desk,
            stopping: AtomicBool::new(false),
        });
        let thread = thread::Builder::new().name("observer".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run()
        })?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Has the board take in every word said so far, then reads it. A barrier: what was said before this call is in
    /// what `read` sees.
    pub fn settled<T>(&self, read: impl FnOnce(&mut Board, Moment) -> T) -> T {
        let mut desk = self.shared.desk();
        desk.drain(&self.shared.seam);
        let now = clock::now();
        desk.board.sweep(now);
        read(&mut desk.board, now)
    }

    /// Takes in what is left and ends the thread.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.seam.wake();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the observer thread had ended by a panic");
        }
        self.settled(|_, _| ());
    }
}

impl Shared {
    fn run(&self) {
        let mut swept = clock::now();
        while !self.stopping.load(Ordering::Acquire) {
            {
                let mut desk = self.desk();
                desk.drain(&self.seam);
                let now = clock::now();
                if now.since(swept) >= SWEEP_EVERY {
                    swept = now;
                    desk.board.sweep(now);
                }
            }
            // Asked after the drain: an exchange that opens from here on finds none open, and wakes this thread.
            self.seam.park(if self.seam.open_exchanges() == 0 {
                IDLE
            } else {
                DRAIN_EVERY
            });
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    fn drain(&mut self, seam: &Seam) {
        for shard in 0..seam.shards() {
            seam.drain(shard, &mut self.batch);
            let mut rest: &[u8] = &self.batch.bytes;
            for entry in self.batch.entries.drain(..) {
                let (bytes, behind) = rest.split_at(carried(&entry).min(rest.len()));
                rest = behind;
                self.board.take(entry, bytes);
            }
            self.batch.bytes.clear();
        }
    }
}

/// How many bytes of the batch's buffer belong to an entry.
fn carried(entry: &Entry) -> usize {
    if let Word::Arrival { len, .. } = entry.word {
        usize::try_from(len).unwrap_or(usize::MAX)
    } else {
        0
    }
}
