//! Records which data each response really sent. Tests and the demo compare the proxy's telemetry with these records.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::label::Name;

/// Default maximum number of entries. They need about 30 MB, and are enough for several minutes of the demo or several
/// hours of a test.
pub const DEFAULT_CAPACITY: usize = 100_000;

/// One response as the backend sent it.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Value of the request header `x-request-id`, or a generated id. The response has the same id.
    pub request_id: Name,
    pub model: Option<Name>,
    pub stream: bool,
    /// Number of tokens (o200k_base) in the text that was written to the connection, including reasoning and tool
    /// arguments.
    pub tokens: u64,
    /// Usage that the response reported to the client. `None` if the response reported no usage.
    pub reported: Option<Usage>,
    /// Time at which the whole request was read.
    pub received: MonotonicInstant,
    /// Time at which the response headers were written to the connection.
    pub head: Option<MonotonicInstant>,
    /// Time of the first write with generated text.
    pub first_token: Option<MonotonicInstant>,
    /// Time of the last write with generated text.
    pub last_token: Option<MonotonicInstant>,
    pub end: MonotonicInstant,
    pub ended: ResponseEnd,
}

/// Token counts with the names of the OpenTelemetry conventions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    pub input: u64,
    /// Output tokens, including `reasoning`.
    pub output: u64,
    pub reasoning: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ResponseEnd {
    /// The whole response was handed to the socket.
    Complete,
    /// The backend broke the connection, as configured.
    Cut,
    /// The client disconnected before the end of the response.
    ClientGone,
    /// The response was an error with this status.
    Failed(u16),
}

/// Records of the responses, up to a limit. When the limit is reached, the oldest record is removed.
#[derive(Debug)]
pub struct Ledger {
    state: Mutex<LedgerState>,
    capacity: usize,
    changed: Notify,
}

#[derive(Debug, Default)]
struct LedgerState {
    entries: VecDeque<Entry>,
    open: u64,
    recorded: u64,
    evicted: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { state: Mutex::default(), capacity: DEFAULT_CAPACITY, changed: Notify::new() }
    }
}

impl Ledger {
    /// Returns all records, in the order in which the responses ended.
    pub fn entries(&self) -> Vec<Entry> {
        self.with(|state| state.entries.iter().cloned().collect())
    }

    /// Returns the number of records that were removed because the limit was reached.
    pub fn evicted(&self) -> u64 {
        self.with(|state| state.evicted)
    }

    /// Waits until at least `count` responses have ended and no response is open.
    pub async fn wait_for_responses(&self, count: u64) {
        loop {
            let changed = self.changed.notified();
            if self.with(|state| state.recorded >= count && state.open == 0) {
                return;
            }
            changed.await;
        }
    }

    /// Starts the record of a response. The record is stored when the returned [`EntryGuard`] is dropped.
    pub fn open_entry(self: &Arc<Self>, request_id: Name) -> EntryGuard {
        self.with(|state| state.open += 1);
        let received = clock::now();
        EntryGuard {
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
                ended: ResponseEnd::ClientGone,
            },
        }
    }

    fn enter(&self, entry: Entry) {
        self.with(|state| {
            state.open = state.open.saturating_sub(1);
            state.recorded += 1;
            if state.entries.len() >= self.capacity {
                state.entries.pop_front();
                state.evicted += 1;
            }
            state.entries.push_back(entry);
        });
        self.changed.notify_waiters();
    }

    fn with<T>(&self, act: impl FnOnce(&mut LedgerState) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Record of an open response, which is stored when this value is dropped. If no result was set, the record reports a
/// client disconnect, because only a disconnect makes hyper drop a response early.
#[derive(Debug)]
pub struct EntryGuard {
    ledger: Arc<Ledger>,
    pub entry: Entry,
}

impl EntryGuard {
    /// Records that text is handed to the socket now.
    pub fn token(&mut self) {
        let now = clock::now();
        self.entry.first_token.get_or_insert(now);
        self.entry.last_token = Some(now);
    }
}

impl Drop for EntryGuard {
    fn drop(&mut self) {
        self.entry.end = clock::now();
        self.ledger.enter(self.entry.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(ledger: &Arc<Ledger>, id: &str) -> EntryGuard {
        ledger.open_entry(Name::new(id).unwrap())
    }

    #[test]
    fn a_dropped_entry_records_a_client_disconnect() {
        let ledger = Arc::new(Ledger::default());
        let mut guard = open(&ledger, "a");
        guard.token();
        assert_eq!(ledger.with(|state| (state.open, state.recorded)), (1, 0));
        drop(guard);
        let entry = ledger.entries().pop().unwrap();
        assert_eq!(entry.ended, ResponseEnd::ClientGone);
        assert!(entry.first_token.unwrap() <= entry.end);
        assert_eq!(ledger.with(|state| (state.open, state.recorded)), (0, 1));
    }

    #[test]
    fn evicts_and_counts_the_oldest_entries() {
        let ledger = Arc::new(Ledger { capacity: 2, ..Ledger::default() });
        for id in ["a", "b", "c"] {
            drop(open(&ledger, id));
        }
        let ids: Vec<_> =
            ledger.entries().into_iter().map(|entry| entry.request_id.to_string()).collect();
        assert_eq!(ids, ["b", "c"]);
        assert_eq!(ledger.with(|state| (state.recorded, state.evicted)), (3, 1));
    }
}
