//! Limits how long a connection waits for a request.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::active_exchanges::{ActiveExchanges, Idleness};

/// Time limits of a connection without an active request.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLimits {
    /// From the first byte of a request, or from the opening of the connection, to the end of the headers.
    pub(super) header: Duration,
    /// Time limit from the end of a response to the first byte of the next request.
    pub(super) idle: Duration,
    /// Time limit for a client that does not read, without progress.
    pub(super) send: Duration,
}

/// The limit that a connection exceeded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Expired {
    Header,
    Idle,
    /// The connection is closing, but its client does not read the rest of a response.
    Delivery,
}

/// Measures how long a connection waits for a request.
#[derive(Debug)]
pub(super) struct WaitTimer {
    limits: WaitLimits,
    /// Whether the connection uses HTTP/2. Only the idle limit then applies, because clients open HTTP/2 connections in
    /// advance and send pings while idle.
    http2: bool,
    /// `None` while a request is active.
    wait: Option<Wait>,
    /// Timer for the current limit. It keeps running while a request is active, because an unneeded wake-up costs less
    /// than a new timer per request.
    sleep: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    since: Instant,
    /// Limit that applies to this wait.
    limit: Expired,
    /// State of the connection when the wait began.
    at_start: Idleness,
}

impl WaitTimer {
    pub(super) const fn new(limits: WaitLimits, http2: bool) -> Self {
        Self { limits, http2, wait: None, sleep: None }
    }

    /// Returns `Ready` when a limit is exceeded. `is_closing` is true if the connection closes as soon as its client has
    /// read everything.
    pub(super) fn poll(
        &mut self,
        exchanges: &ActiveExchanges,
        is_closing: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Expired> {
        let Some((deadline, limit)) = self.deadline(exchanges.idleness(), Instant::now) else {
            return Poll::Pending;
        };
        let (deadline, limit) = match limit {
            Expired::Idle if is_closing => (deadline + self.limits.send, Expired::Delivery),
            Expired::Header | Expired::Idle | Expired::Delivery => (deadline, limit),
        };
        self.poll_deadline(deadline, cx).map(|()| limit)
    }

    /// Returns when the connection must close, and the limit that it then exceeds. `None` while a request is active.
    fn deadline(
        &mut self,
        idleness: Option<Idleness>,
        now: impl FnOnce() -> Instant,
    ) -> Option<(Instant, Expired)> {
        let Some(at) = idleness else {
            self.wait = None;
            return None;
        };
        let limit = match self.wait {
            None if at.started == 0 && !self.http2 => Expired::Header,
            None => Expired::Idle,
            Some(wait) if wait.at_start.started != at.started => Expired::Idle,
            Some(wait)
                if wait.limit == Expired::Idle
                    && wait.at_start.reads != at.reads
                    && !self.http2 =>
            {
                Expired::Header
            }
            Some(wait) => return Some((wait.since + self.limit(wait.limit), wait.limit)),
        };
        let since = now();
        self.wait = Some(Wait { since, limit, at_start: at });
        Some((since + self.limit(limit), limit))
    }

    const fn limit(&self, limit: Expired) -> Duration {
        match limit {
            Expired::Header => self.limits.header,
            Expired::Idle => self.limits.idle,
            Expired::Delivery => self.limits.send,
        }
    }

    /// Waits until `deadline`. A timer that ends earlier is extended only when it ends.
    fn poll_deadline(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WaitLimits = WaitLimits {
        header: Duration::from_secs(30),
        idle: Duration::from_secs(75),
        send: Duration::from_secs(60),
    };

    /// An HTTP connection with a timer. Times are seconds since the connection was opened.
    struct Connection {
        timer: WaitTimer,
        opened: Instant,
    }

    impl Connection {
        fn new(http2: bool) -> Self {
            Self { timer: WaitTimer::new(LIMITS, http2), opened: Instant::now() }
        }

        /// Polls an idle connection. Returns its deadline and limit.
        fn idle(&mut self, at: u64, started: u32, reads: u32) -> (u64, Expired) {
            let now = self.opened + Duration::from_secs(at);
            let idleness = Some(Idleness { started, reads });
            let deadline = self.timer.deadline(idleness, || now);
            let (deadline, limit) = deadline.unwrap();
            (deadline.duration_since(self.opened).as_secs(), limit)
        }

        fn busy(&mut self) {
            assert_eq!(self.timer.deadline(None, Instant::now), None);
        }
    }

    #[test]
    fn first_request_and_partial_headers_have_the_header_limit() {
        let mut connection = Connection::new(false);
        assert_eq!(connection.idle(0, 0, 0), (30, Expired::Header));
        assert_eq!(connection.idle(20, 0, 5), (30, Expired::Header), "not extended by reads");
        connection.busy();
        assert_eq!(connection.idle(100, 1, 5), (175, Expired::Idle));
        assert_eq!(connection.idle(160, 1, 6), (190, Expired::Header));
        assert_eq!(connection.idle(180, 1, 7), (190, Expired::Header));
    }

    #[test]
    fn idle_limit_starts_at_the_end_of_each_exchange() {
        let mut connection = Connection::new(false);
        connection.busy();
        assert_eq!(connection.idle(10_000, 1, 1), (10_075, Expired::Idle));
        assert_eq!(connection.idle(10_070, 2, 2), (10_145, Expired::Idle), "between two polls");
    }

    #[test]
    fn http2_has_only_the_idle_limit() {
        let mut connection = Connection::new(true);
        assert_eq!(connection.idle(0, 0, 0), (75, Expired::Idle));
        assert_eq!(connection.idle(60, 0, 9), (75, Expired::Idle), "pings do not count");
        connection.busy();
        assert_eq!(connection.idle(100, 1, 20), (175, Expired::Idle));
    }
}
