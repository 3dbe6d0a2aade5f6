//! One HTTP/1.1 connection to an upstream, driven by the task that uses it.
//!
//! hyper's client returns a sender and a connection. Usually, a separate task polls the connection. Here, the task that
//! reads the response polls the connection instead, so that a chunk does not have to wake a second task. When the
//! client disconnects, dropping the response closes the socket immediately. An idle connection in the pool is not
//! polled. The pool checks the connection when it takes the connection out.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use super::repeat::SentBody;
use super::stream::{StreamState, UpstreamStream};
use tokengauge_listen::HeaderLimits;
use tokengauge_types::clock::{self, MonotonicInstant};
use tokengauge_types::event::ConnectTimings;
use tokengauge_types::notifier::{MAX_POLL_ROUNDS, Notifier};
use tokengauge_types::tcp::TcpConnection;

pub struct Http1Connection {
    sender: SendRequest<SentBody>,
    /// `None` once the connection has ended.
    connection: Option<HyperConnection>,
    /// The stream of a connection that has ended. Boxed, because most connections have not.
    ended: Option<Box<UpstreamStream>>,
    notifier: Notifier,
    /// Time at which the connection was last returned to the pool. Zero if never.
    pub(super) idle_since: MonotonicInstant,
    pub(super) opened_at: MonotonicInstant,
    pub(super) tcp: Option<Arc<TcpConnection>>,
    pub(super) state: Arc<StreamState>,
}

type HyperConnection = Connection<TokioIo<UpstreamStream>, SentBody>;

pub type Sent = Result<Response<Incoming>, TrySendError<Request<SentBody>>>;

/// Minimum of the maximum size in bytes of the read buffer and of the write buffer. Response headers must fit as well. If
/// a client does not read, one such buffer stays in memory. hyper's default is 400 KiB.
const MIN_BUFFER: usize = 64 << 10;

impl Http1Connection {
    /// Starts HTTP/1.1 on `stream`, which `connected` describes. `limits` are those of response headers.
    pub(super) async fn handshake(
        stream: UpstreamStream,
        connected: &ConnectTimings,
        limits: HeaderLimits,
    ) -> hyper::Result<Box<Self>> {
        let state = Arc::clone(stream.state());
        let (sender, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .max_headers(limits.max_lines)
            .max_header_size(limits.http1_bytes())
            .max_buf_size(limits.http1_bytes().max(MIN_BUFFER))
            .handshake(TokioIo::new(stream))
            .await?;
        Ok(Box::new(Self {
            sender,
            connection: Some(connection),
            ended: None,
            notifier: Notifier::default(),
            idle_since: MonotonicInstant::ZERO,
            opened_at: clock::now(),
            tcp: connected.connection.clone(),
            state,
        }))
    }

    pub(super) fn is_reused(&self) -> bool {
        self.idle_since > MonotonicInstant::ZERO
    }

    /// Returns whether the connection can take a request. Uses only the events that the runtime has already received.
    pub(super) fn is_usable(&mut self) -> bool {
        if has_ended(&mut self.connection, Waker::noop()) {
            self.end();
        }
        // This poll registered no waker, so the next poll must happen without a wake-up.
        self.notifier.mark_due();
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Returns whether the connection can take a request. Asks the kernel, so that the answer is current.
    pub(super) fn is_open(&mut self) -> bool {
        let state = Arc::clone(&self.state);
        state.probe(|| self.is_usable())
    }

    /// Sends `request` and waits for the response headers. An error contains the request if no byte of it was written.
    pub(super) async fn send(&mut self, request: Box<Request<SentBody>>) -> Sent {
        self.state.begin_request(self.is_reused());
        let mut head = pin!(self.sender.try_send_request(*request));
        let sent = poll_fn(|cx| self.poll_with(cx, |cx| head.as_mut().poll(cx))).await;
        if sent.is_err() {
            self.end();
        }
        sent
    }

    /// Returns whether it is proven that the upstream has read nothing of the request. Called after
    /// [`send`](Self::send) has failed. See [`UpstreamStream::is_request_unread`].
    pub(super) async fn is_request_unread(&self) -> bool {
        match (&self.ended, &self.tcp) {
            (Some(stream), Some(connection)) => stream.is_request_unread(connection).await,
            (None, _) | (_, None) => false,
        }
    }

    /// Polls the connection and then `wanted`, such as the response headers. Only progress on this connection can make
    /// `wanted` ready.
    pub(super) fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut wanted: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        // `wanted` needs no waker: only the connection can wake it, and the connection is polled right here.
        let quiet = &mut Context::from_waker(Waker::noop());
        let mut due = self.notifier.enter(cx.waker());
        for _ in 0..MAX_POLL_ROUNDS {
            if due && has_ended(&mut self.connection, self.notifier.waker()) {
                self.end();
            }
            if let Poll::Ready(value) = wanted(quiet) {
                self.notifier.leave_pending();
                return Poll::Ready(value);
            }
            if self.notifier.leave() {
                return Poll::Pending;
            }
            due = true;
        }
        self.notifier.mark_due();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Moves the connection to a separate task. An upload then continues during the response, even if the client does
    /// not read the response.
    pub(super) fn detach(self) {
        if let Some(connection) = self.connection {
            tokio::spawn(connection);
        }
    }

    /// Moves the connection to a separate task that supports upgrades. Returns the handle that sends the request.
    pub(super) fn detach_for_upgrade(self) -> SendRequest<SentBody> {
        if let Some(connection) = self.connection {
            tokio::spawn(connection.with_upgrades());
        }
        self.sender
    }

    /// Ends the connection, which drops the request.
    fn end(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.ended = Some(Box::new(connection.into_parts().io.into_inner()));
        }
    }
}

/// Polls a connection and returns whether it has ended. If it failed, the error has gone to the future of the response
/// headers or to the body.
fn has_ended(connection: &mut Option<HyperConnection>, waker: &Waker) -> bool {
    let cx = &mut Context::from_waker(waker);
    connection.as_mut().is_some_and(|connection| Pin::new(connection).poll(cx).is_ready())
}

impl std::fmt::Debug for Http1Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1Connection")
            .field("connected", &self.connection.is_some())
            .field("idle_since", &self.idle_since)
            .finish_non_exhaustive()
    }
}
