//! One HTTP/1.1 connection to an upstream, driven by the task that uses it.
//!
//! hyper's client returns a sender and a connection. Usually, a separate task polls the connection. Here, the task that
//! reads the response polls the connection instead, so that a chunk does not have to wake a second task. When the
//! client disconnects, dropping the response closes the socket immediately. An idle connection in the pool is not
//! polled. The pool checks the connection when it takes the connection out.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use super::buffered_body::Upload;
use super::stream::UpstreamStream;
use tokengauge_observe::tee::UploadFlush;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::notifier::{MOST_ROUNDS, Notifier};
use tokengauge_types::tcp::TcpConnection;

pub struct Http1Connection {
    sender: SendRequest<Upload>,
    /// `None` once the connection has ended.
    connection: Option<Connection<TokioIo<UpstreamStream>, Upload>>,
    notifier: Arc<Notifier>,
    waker: Waker,
    /// Time at which the connection was last returned to the pool.
    pub(super) idle_since: MonotonicInstant,
    pub(super) tcp: Option<Arc<TcpConnection>>,
    /// Reports the end of each request body.
    pub(super) flush: Arc<UploadFlush>,
}

pub type Sent = Result<Response<Incoming>, TrySendError<Request<Upload>>>;

impl Http1Connection {
    /// Starts HTTP/1.1 on `stream`. `tcp` identifies the TCP connection below it.
    pub(super) async fn handshake(
        stream: UpstreamStream,
        tcp: Option<Arc<TcpConnection>>,
    ) -> hyper::Result<Box<Self>> {
        let flush = stream.flush();
        let (sender, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .handshake(TokioIo::new(stream))
            .await?;
        let (notifier, waker) = Notifier::new();
        Ok(Box::new(Self {
            sender,
            connection: Some(connection),
            notifier,
            waker,
            idle_since: MonotonicInstant::ZERO,
            tcp,
            flush,
        }))
    }

    /// Returns whether the connection can take a request. The upstream may have closed it since the last poll.
    pub(super) fn is_usable(&mut self) -> bool {
        self.poll_connection(&mut Context::from_waker(Waker::noop()));
        // This poll registered no waker, so the next poll must happen without a wake-up.
        self.notifier.remind();
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Sends `request` and waits for the response headers.
    pub(super) async fn send(&mut self, request: Request<Upload>) -> Sent {
        let mut head = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| self.poll_with(cx, |cx| head.as_mut().poll(cx))).await
    }

    /// Polls the connection and then `wanted`, a future or stream that only progress on this connection makes ready.
    pub(super) fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut wanted: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        // `wanted` needs no waker: only the connection can wake it, and the connection is polled right here.
        let quiet = &mut Context::from_waker(Waker::noop());
        let mut due = self.notifier.enter(cx.waker());
        for _ in 0..MOST_ROUNDS {
            if due {
                let waker = self.waker.clone();
                self.poll_connection(&mut Context::from_waker(&waker));
            }
            if let Poll::Ready(value) = wanted(quiet) {
                self.notifier.leave_anyway();
                return Poll::Ready(value);
            }
            if self.notifier.leave() {
                return Poll::Pending;
            }
            due = true;
        }
        self.notifier.remind();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Moves the connection to a separate task. This keeps an upload running during the response, even if the client
    /// does not read the response.
    pub(super) fn detach(self) {
        if let Some(connection) = self.connection {
            tokio::spawn(connection);
        }
    }

    /// Moves the connection to a separate task that supports an upgrade. Returns the sender for the request.
    pub(super) fn detach_for_upgrade(self) -> SendRequest<Upload> {
        if let Some(connection) = self.connection {
            tokio::spawn(connection.with_upgrades());
        }
        self.sender
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(cx).is_ready()
        {
            // If the connection failed, the error has gone to the future of the response headers or to the body.
            self.connection = None;
        }
    }
}

impl std::fmt::Debug for Http1Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1Connection")
            .field("connected", &self.connection.is_some())
            .field("idle_since", &self.idle_since)
            .finish_non_exhaustive()
    }
}
