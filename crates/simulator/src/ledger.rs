//! What was really sent, answer by answer: the truth that telemetry is checked against.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::label::Name;

/// How many answers are remembered: several minutes of the demo, hours of a test, and about 30 MB.
pub const LONGEST: usize = 100_000;

/// One answer, as the backend itself saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The request's own `x-request-id`, or the one made for it; the response carries it too.
    pub request_id: Name,
    pub model: Option<Name>,
    pub stream: bool,
    /// Tokens of all generated text that was handed to the socket (text, reasoning, tool arguments), in o200k_base.
    pub tokens: u64,
    /// The usage that was sent with the answer; `None` where none was.
    pub reported: Option<Usage>,
    /// When the request had been read to its end.
    pub received: MonotonicInstant,
    /// When the response's head was handed to the connection.
    pub head: Option<MonotonicInstant>,
    /// When the first write that carries generated text was handed to the socket.
    pub first_token: Option<MonotonicInstant>,
    /// When the last one was.
    pub last_token: Option<MonotonicInstant>,
    pub end: MonotonicInstant,
    pub ended: Ended,
}

/// Token counts in the words of the standard.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    pub input: u64,
    /// Includes `reasoning`.
    pub output: u64,
    pub reasoning: u64,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// Everything was handed to the socket.
    Complete,
    /// The backend broke off on purpose.
    Cut,
    /// The caller closed before the end.
    ClientGone,
    /// Answered by this error status.
    Failed(u16),
}

/// A bounded list of what was sent, oldest forgotten first.
#[derive(Debug)]
pub struct Ledger {
    book: Mutex<Book>,
    capacity: usize,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Book {
    entries: VecDeque<Entry>,
    open: u64,
    recorded: u64,
    forgotten: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::with_capacity(LONGEST)
    }
}

impl Ledger {
    pub fn with_capacity(capacity: usize) -> Self {
        Self { book: Mutex::default(), capacity, changed: Notify::new() }
    }

    /// Everything that is remembered, in the order in which it ended.
    pub fn entries(&self) -> Vec<Entry> {
        self.with(|book| book.entries.iter().cloned().collect())
    }

    /// Answers that have ended since the start, forgotten ones included.
    pub fn recorded(&self) -> u64 {
        self.with(|book| book.recorded)
    }

    /// Answers that have begun and not ended.
    pub fn open(&self) -> u64 {
        self.with(|book| book.open)
    }

    /// Entries that had to make room.
    pub fn forgotten(&self) -> u64 {
        self.with(|book| book.forgotten)
    }

    /// Waits until at least `count` answers have ended and none is open.
    pub async fn settled(&self, count: u64) {
        loop {
            let changed = self.changed.notified();
            if self.with(|book| book.recorded >= count && book.open == 0) {
                return;
            }
            changed.await;
        }
    }

    /// Opens the account of one answer; it is entered when the [`Tally`] is dropped, however that comes about.
    pub fn open_tally(self: &Arc<Self>, request_id: Name) -> Tally {
        self.with(|book| book.open += 1);
        let received = clock::now();
        Tally {
            ledger: Arc::clone(self),
            entry: Entry {
                request_id,
                model: None,
                stream: false,
                tokens: 0,
                reported: None,
                received,
                head: None,
                first_token: None,
                last_token: None,
                end: received,
                ended: Ended::ClientGone,
            },
        }
    }

    fn enter(&self, entry: Entry) {
        self.with(|book| {
            book.open = book.open.saturating_sub(1);
            book.recorded += 1;
            if book.entries.len() >= self.capacity {
                book.entries.pop_front();
                book.forgotten += 1;
            }
            book.entries.push_back(entry);
        });
        self.changed.notify_waiters();
    }

    fn with<T>(&self, act: impl FnOnce(&mut Book) -> T) -> T {
        act(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The open account of one answer. Dropped without an ending it says that the client has gone: that is what it means
/// when hyper drops a response before its end.
#[derive(Debug)]
pub struct Tally {
    ledger: Arc<Ledger>,
    pub entry: Entry,
}

impl Tally {
    /// Text that makes tokens is being handed to the socket now.
    pub fn token(&mut self) {
        let now = clock::now();
        self.entry.first_token.get_or_insert(now);
        self.entry.last_token = Some(now);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.entry.end = clock::now();
        self.ledger.enter(self.entry.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(ledger: &Arc<Ledger>, id: &str) -> Tally {
        ledger.open_tally(Name::new(id).unwrap())
    }

    #[test]
    fn an_answer_dropped_before_its_end_says_that_the_client_has_gone() {
        let ledger = Arc::new(Ledger::default());
        let mut tally = open(&ledger, "a");
        tally.token();
        assert_eq!((ledger.open(), ledger.recorded()), (1, 0));
        drop(tally);
        let entry = ledger.entries().pop().unwrap();
        assert_eq!(entry.ended, Ended::ClientGone);
        assert!(entry.first_token.unwrap() <= entry.end);
        assert_eq!((ledger.open(), ledger.recorded()), (0, 1));
    }

    #[test]
    fn the_oldest_make_room_and_are_counted() {
        let ledger = Arc::new(Ledger::with_capacity(2));
        for id in ["a", "b", "c"] {
            drop(open(&ledger, id));
        }
        let ids: Vec<_> =
            ledger.entries().into_iter().map(|entry| entry.request_id.to_string()).collect();
        assert_eq!(ids, ["b", "c"]);
        assert_eq!((ledger.recorded(), ledger.forgotten()), (3, 1));
    }
}
