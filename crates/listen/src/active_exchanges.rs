//! Counts the *exchanges* (a request and its response) of a connection, to detect whether the connection is idle.
//!
//! hyper does not report whether a connection is idle. The counters add two words per response to the memory of a
//! stream.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use super::delivery::NewStream;
use super::flush_signal::FlushSignal;
use super::request_limit::RequestPermit;
use super::response_limits::ResponseLimits;
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::sync::lock;

/// State that a connection shares with its requests. `started` and `finished` count requests. They may wrap around,
/// because only their equality is tested.
///
/// The fields that each chunk accesses are next to each other, so that they usually share a cache line.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct ActiveExchanges {
    started: AtomicU32,
    finished: AtomicU32,
    /// Number of active WebSocket requests, which `started` and `finished` do not include.
    upgrading: AtomicU32,
    /// Number of reads from the client that returned bytes. Wraps around.
    reads: AtomicU32,
    /// Number of bytes of the current HTTP/1 response that hyper has taken and not written. Too small by at most the
    /// headers of the response, which are written with the same calls. Only the task of the connection changes it.
    unwritten: AtomicUsize,
    is_write_blocked: AtomicBool,
    /// Whether the response body waits until fewer bytes are unwritten.
    awaits_write: AtomicBool,
    closing: AtomicBool,
    /// Whether the connection is to be closed to make room for another one. A request that arrives before the close
    /// resets this flag.
    evicted: AtomicBool,
    is_upgraded: AtomicBool,
    /// Whether a request body was dropped before its end. The client may still be sending the rest.
    abandoned_request: AtomicBool,
    /// Whether a response body failed. All data before the failure is already written.
    truncated: AtomicBool,
    /// Whether the response has no length, so that only the end of the connection shows its end.
    unframed: AtomicBool,
    /// Whether a response of an HTTP/2 connection can neither be delivered nor reset. The connection takes no further
    /// requests, and closes with its last one.
    is_stuck: AtomicBool,
    flush: FlushSignal,
    /// When the connection was opened or its last response ended, in nanoseconds of the monotonic clock.
    waiting_since: AtomicU64,
    /// The deadline of an HTTP/1 response, and the timeout that has ended the connection.
    limits: ResponseLimits,
    new_stream: NewStream,
    /// Permit of the WebSocket request that upgraded the connection. The permit is returned when the stream closes.
    upgraded: Mutex<Option<RequestPermit>>,
}

/// Number of unwritten bytes at which an HTTP/1 response body is not read further: hundreds of chunks. hyper itself would
/// stop at the maximum size of headers. One more piece of the upstream may be added.
pub(super) const MAX_UNWRITTEN: usize = 32 << 10;

/// Counters of a connection that has no active request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Idleness {
    pub(super) started: u32,
    pub(super) reads: u32,
}

/// What remains to be sent or received when an HTTP/1 connection ends. Decides how the connection is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Leftover {
    None,
    /// The client has not received the last bytes yet, or is still sending its request.
    Transfer,
    /// Like `Transfer`, for a truncated response without a length. Only the end of the connection ends such a response,
    /// so an orderly close would make the response look complete.
    Unframed,
}

impl ActiveExchanges {
    /// Creates the state of a connection that was opened just now.
    pub(super) fn new() -> Arc<Self> {
        let now = AtomicU64::new(clock::now().nanos());
        Arc::new(Self { waiting_since: now, ..Self::default() })
    }

    pub(super) fn started(&self) -> u32 {
        self.started.load(Ordering::Acquire)
    }

    pub(super) fn finished(&self) -> u32 {
        self.finished.load(Ordering::Acquire)
    }

    /// Returns the counters of an idle connection. `None` while a request is active, or while the client has not read a
    /// complete response.
    pub(super) fn idleness(&self) -> Option<Idleness> {
        let started = self.started();
        let is_active = started != self.finished()
            || self.upgrading.load(Ordering::Acquire) > 0
            || self.is_upgraded.load(Ordering::Acquire)
            || self.is_write_blocked.load(Ordering::Relaxed);
        (!is_active).then(|| Idleness { started, reads: self.reads.load(Ordering::Relaxed) })
    }

    /// Returns since when the connection has waited for a request. `None` while a request is active, or if the
    /// connection is already being closed.
    pub(super) fn waiting_since(&self) -> Option<MonotonicInstant> {
        let is_waiting = self.idleness().is_some() && !self.evicted.load(Ordering::Acquire);
        let since = self.waiting_since.load(Ordering::Relaxed);
        is_waiting.then(|| MonotonicInstant::from_nanos(since))
    }

    /// Closes the connection, unless a request arrives first.
    pub(super) fn evict(&self) {
        self.evicted.store(true, Ordering::Release);
    }

    /// Returns whether the connection must close now: [`evict`](Self::evict) was called, and no request has started
    /// since.
    pub(super) fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Acquire) && self.idleness().is_some()
    }

    pub(super) fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a write of response data.
    pub(super) fn on_write(&self, polled: &Poll<io::Result<usize>>) {
        self.set_write_blocked(polled.is_pending());
        if let Poll::Ready(Ok(written)) = polled {
            let unwritten = self.unwritten.load(Ordering::Relaxed).saturating_sub(*written);
            self.unwritten.store(unwritten, Ordering::Relaxed);
            if unwritten < MAX_UNWRITTEN && self.awaits_write.load(Ordering::Relaxed) {
                self.awaits_write.store(false, Ordering::Relaxed);
                self.flush.wake_connection();
            }
        }
    }

    pub(super) fn set_write_blocked(&self, is_blocked: bool) {
        self.is_write_blocked.store(is_blocked, Ordering::Relaxed);
    }

    /// Adds `Connection: close` to every later response, so that hyper closes the connection. For HTTP/1 only.
    ///
    /// hyper's graceful shutdown is not enough: it takes effect between two polls, but within one poll a request can
    /// arrive and be answered.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    pub(super) fn abandon_request(&self) {
        self.abandoned_request.store(true, Ordering::Release);
    }

    pub(super) const fn flush(&self) -> &FlushSignal {
        &self.flush
    }

    pub(super) const fn limits(&self) -> &ResponseLimits {
        &self.limits
    }

    pub(super) const fn new_stream(&self) -> &NewStream {
        &self.new_stream
    }

    /// Closes the connection with its last request, because a response can neither be delivered nor reset.
    pub(super) fn set_stuck(&self) {
        self.is_stuck.store(true, Ordering::Release);
        self.flush.wake_connection();
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Relaxed)
    }

    pub(super) fn leftover(&self) -> Leftover {
        let truncated = self.truncated.load(Ordering::Acquire);
        if truncated && self.unframed.load(Ordering::Acquire) {
            Leftover::Unframed
        } else if truncated || self.abandoned_request.load(Ordering::Acquire) {
            Leftover::Transfer
        } else {
            Leftover::None
        }
    }

    pub(super) fn begin(
        self: &Arc<Self>,
        is_websocket: bool,
        permit: Option<RequestPermit>,
    ) -> ActiveExchange {
        let counter = if is_websocket { &self.upgrading } else { &self.started };
        counter.fetch_add(1, Ordering::AcqRel);
        self.evicted.store(false, Ordering::Release);
        ActiveExchange { connection: Arc::clone(self), permit, is_websocket }
    }
}

/// An active request. Dropped when the last byte of the response was passed on, or when the request is aborted.
#[derive(Debug)]
pub(super) struct ActiveExchange {
    connection: Arc<ActiveExchanges>,
    /// `None` for a request beyond the limit.
    permit: Option<RequestPermit>,
    /// Whether the request asks for a WebSocket. Such requests are counted separately, so that they do not start a
    /// pending graceful shutdown. hyper would then answer with `Connection: Upgrade, close`, which is valid but
    /// rejected by some clients.
    is_websocket: bool,
}

impl ActiveExchange {
    /// Returns the limits of the connection.
    pub(super) fn connection_limits(&self) -> &ResponseLimits {
        &self.connection.limits
    }

    pub(super) fn flush(&self) -> &FlushSignal {
        &self.connection.flush
    }

    /// Adds data that hyper has taken from the body of an HTTP/1 response.
    pub(super) fn add_unwritten(&self, bytes: usize) {
        let unwritten = self.connection.unwritten.load(Ordering::Relaxed) + bytes;
        self.connection.unwritten.store(unwritten, Ordering::Relaxed);
    }

    /// Returns whether hyper may take more of the response body. If not, the connection is woken after enough data was
    /// written.
    pub(super) fn has_room(&self) -> bool {
        let has_room = self.connection.unwritten.load(Ordering::Relaxed) < MAX_UNWRITTEN;
        if !has_room {
            self.connection.awaits_write.store(true, Ordering::Relaxed);
        }
        has_room
    }

    /// Forgets the unwritten data of earlier responses. hyper can drop a part of a response, such as the body that a
    /// HEAD request does not receive.
    pub(super) fn reset_unwritten(&self) {
        self.connection.unwritten.store(0, Ordering::Relaxed);
    }

    /// Records whether the response has no length, so that only the end of the connection ends it.
    pub(super) fn set_unframed(&self, is_unframed: bool) {
        self.connection.unframed.store(is_unframed, Ordering::Release);
    }

    /// Records that the response ends early. All data before the end is already written.
    pub(super) fn truncate(&self) {
        self.connection.truncated.store(true, Ordering::Release);
    }

    /// Keeps the permit of a WebSocket until the stream of the connection closes.
    pub(super) fn keep_permit(&mut self) {
        self.connection.is_upgraded.store(true, Ordering::Release);
        let mut upgraded = lock(&self.connection.upgraded);
        *upgraded = self.permit.take();
    }

    /// Counts a request for a WebSocket like every other request, because its response is an ordinary one. Otherwise, a
    /// client could keep its connection during a drain with such requests.
    pub(super) fn refuse_upgrade(&mut self) {
        if std::mem::take(&mut self.is_websocket) {
            self.connection.started.fetch_add(1, Ordering::AcqRel);
            self.connection.upgrading.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Returns whether the connection must end with this response.
    pub(super) fn is_last(&self) -> bool {
        let ActiveExchanges { closing, abandoned_request, .. } = &*self.connection;
        !self.is_websocket && closing.load(Ordering::Acquire)
            || abandoned_request.load(Ordering::Acquire)
    }
}

impl Drop for ActiveExchange {
    fn drop(&mut self) {
        self.connection.waiting_since.store(clock::now().nanos(), Ordering::Relaxed);
        self.connection.limits.set_deadline(None);
        if self.is_websocket {
            self.connection.upgrading.fetch_sub(1, Ordering::AcqRel);
        } else {
            self.connection.finished.fetch_add(1, Ordering::AcqRel);
        }
    }
}
