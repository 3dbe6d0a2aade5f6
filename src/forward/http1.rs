//! One HTTP/1.1 connection to an upstream, driven by whoever uses it.
//!
//! hyper's client hands out a sender and a connection that wants a task of its own. Here the connection is polled by
//! the task that reads the response instead: a chunk needs no second task, no wake from one to the other, and when the
//! client goes away, dropping the response closes the socket at once. An idle link in the pool is polled by nobody; it
//! is looked at when it is taken out again.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;

use super::Upload;
use super::stream::UpstreamStream;
use tokengauge_observe::tee::UploadFlush;
use tokengauge_types::clock::MonotonicInstant;
use tokengauge_types::notifier::{MOST_ROUNDS, Notifier};
use tokengauge_types::tcp::TcpConnection;

pub(super) struct Http1Connection {
    sender: SendRequest<Upload>,
    /// None once it is over.
    connection: Option<Connection<TokioIo<UpstreamStream>, Upload>>,
    bell: Arc<Notifier>,
    waker: Waker,
    /// Since when it lies in the pool.
    pub(super) idle_since: MonotonicInstant,
    pub(super) ends: Option<Arc<TcpConnection>>,
    /// For the body of each request.
    pub(super) written: Arc<UploadFlush>,
}

pub(super) type Sent = Result<Response<Incoming>, TrySendError<Request<Upload>>>;

impl Http1Connection {
    /// `ends`: the connection that `wire` goes over.
    pub(super) async fn over(
        wire: UpstreamStream,
        ends: Option<Arc<TcpConnection>>,
    ) -> hyper::Result<Box<Self>> {
        let written = wire.written();
        let (sender, connection) =
            http1::Builder::new().preserve_header_case(true).handshake(TokioIo::new(wire)).await?;
        let (bell, waker) = Notifier::new();
        Ok(Box::new(Self {
            sender,
            connection: Some(connection),
            bell,
            waker,
            idle_since: MonotonicInstant::ZERO,
            ends,
            written,
        }))
    }

    /// Whether a request may be sent, as far as this side knows.
    pub(super) fn is_fit(&mut self) -> bool {
        self.poll_connection(&mut Context::from_waker(Waker::noop()));
        // Polled for nobody, it will ring for nobody.
        self.bell.remind();
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Sends `request` and waits for the response's head.
    pub(super) async fn send(&mut self, request: Request<Upload>) -> Sent {
        let mut head = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| self.poll_with(cx, |cx| head.as_mut().poll(cx))).await
    }

    /// Polls `wanted`, which can only become ready by what the connection does, and the connection.
    pub(super) fn poll_with<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut wanted: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        // The connection is the only one to wake `wanted`, and it runs right here.
        let quiet = &mut Context::from_waker(Waker::noop());
        let mut due = self.bell.enter(cx.waker());
        for _ in 0..MOST_ROUNDS {
            if due {
                let waker = self.waker.clone();
                self.poll_connection(&mut Context::from_waker(&waker));
            }
            if let Poll::Ready(value) = wanted(quiet) {
                self.bell.leave_anyway();
                return Poll::Ready(value);
            }
            if self.bell.leave() {
                return Poll::Pending;
            }
            due = true;
        }
        self.bell.remind();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Lets the connection run by itself from here on: for an upload that goes on while the response is read, because
    /// a response that is not being read must not stop it.
    pub(super) fn detach(self) {
        if let Some(connection) = self.connection {
            tokio::spawn(connection);
        }
    }

    /// The same with an upgrade in view; the sender is left to send the request with.
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
            // Its error, if any, went to whoever waited for the head or for the body.
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
