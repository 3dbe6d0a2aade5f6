//! The byte stream of a client connection, which hyper reads and writes, its send timeout, and its orderly close.
//!
//! The connection's permit is part of the stream. It must stay taken until the end of a WebSocket, which continues on
//! the stream without hyper.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::server::TlsStream;

use super::active_exchanges::{ActiveExchanges, Leftover};
use super::replay::ReplayStream;
use super::request_limit::ClientMember;
use super::send_timer::SendTimer;
use super::state::Member;
use super::window::WindowPermit;
use super::workers::Assignment;

/// After the last response, maximum wait for the client to close the connection.
///
/// If a socket is closed with unread data, the kernel sends RST. A client that receives RST can lose data that arrived
/// earlier, such as the last response. nginx has a similar limit: 5 s between two reads (`lingering_timeout`).
const LINGER: Duration = Duration::from_secs(2);

/// Maximum number of bytes of one read, from a client or from an upstream. hyper reads a body in pieces of this size and
/// can hold two of them. One byte less than a power of two, because hyper doubles its buffer after a read that fills it.
pub const MAX_READ: u64 = (32 << 10) - 1;

/// A transport that carries client connections.
pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Ensures that dropping the stream without a shutdown looks like an error to the client, not like an orderly
    /// close.
    fn close_abruptly(&self);

    /// Ensures that dropping the stream also discards the data that the client has not read. Otherwise, the kernel
    /// would keep the data and offer it to the client for minutes.
    fn discard_unsent(&self);
}

impl Transport for TcpStream {
    fn close_abruptly(&self) {
        // If setting the option fails, the connection is broken already.
        drop(self.set_zero_linger());
    }

    fn discard_unsent(&self) {
        self.close_abruptly();
    }
}

impl<T: Transport> Transport for ReplayStream<T> {
    fn close_abruptly(&self) {
        self.get_ref().close_abruptly();
    }

    fn discard_unsent(&self) {
        self.get_ref().discard_unsent();
    }
}

/// A TLS stream without a shutdown sends no `close_notify`, so the client sees a truncated stream.
impl Transport for TlsStream<TcpStream> {
    fn close_abruptly(&self) {}

    fn discard_unsent(&self) {
        self.get_ref().0.discard_unsent();
    }
}

/// A Unix socket has no abrupt close, and no unsent data: the kernel hands data to the peer's socket at once.
impl Transport for UnixStream {
    fn close_abruptly(&self) {}

    fn discard_unsent(&self) {}
}

/// Resources that a connection holds until its stream is dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "dropping the fields returns the resources")]
pub(super) struct ConnectionGuards {
    pub(super) member: Member,
    pub(super) requests: ClientMember,
    pub(super) permit: OwnedSemaphorePermit,
    pub(super) assignment: Assignment,
    /// Part of the budget for the flow-control windows of an HTTP/2 connection.
    pub(super) window: WindowPermit,
}

/// A client's byte stream. It reports three kinds of events to [`ActiveExchanges`]: bytes were read, a write was accepted or
/// blocked, and hyper has written all data.
///
/// A write fails if the client reads nothing until a timeout expires. This also ends HTTP/2 connections and WebSockets.
#[derive(Debug)]
pub(super) struct ClientStream<T: Transport> {
    inner: T,
    exchanges: Arc<ActiveExchanges>,
    _guards: ConnectionGuards,
    /// Whether the client has closed its side of the connection, or the connection has failed.
    is_closed: bool,
    /// Number of writes that the kernel has accepted. Wraps around.
    writes: u32,
    send_timer: SendTimer,
}

impl<T: Transport> ClientStream<T> {
    pub(super) fn new(
        inner: T,
        exchanges: Arc<ActiveExchanges>,
        guards: ConnectionGuards,
        send_timeout: Duration,
    ) -> Self {
        let send_timer = SendTimer::new(send_timeout);
        Self { inner, exchanges, _guards: guards, is_closed: false, writes: 0, send_timer }
    }

    /// Records the result of a write or flush. Fails if the client has not read until a timeout expired.
    fn on_written<R>(
        &mut self,
        polled: Poll<io::Result<R>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<R>> {
        self.exchanges.set_write_blocked(polled.is_pending());
        if polled.is_ready() {
            self.writes = self.writes.wrapping_add(1);
            return polled;
        }
        let deadline = self.exchanges.limits().deadline();
        let timeout = ready!(self.send_timer.poll(Some(self.writes), deadline, cx));
        self.exchanges.limits().time_out(timeout);
        self.is_closed = true;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ends the stream, and then waits for the client to close the connection, for at most [`LINGER`].
    pub(super) async fn close(mut self, leftover: Leftover) {
        if self.is_closed {
            return;
        }
        let closing = async {
            if leftover == Leftover::Unframed {
                self.inner.close_abruptly();
            } else {
                self.inner.shutdown().await?;
            }
            tokio::io::copy(&mut self.inner, &mut tokio::io::sink()).await
        };
        drop(tokio::time::timeout(LINGER, closing).await);
    }
}

impl<T: Transport> AsyncRead for ClientStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut (&mut self.inner).take(MAX_READ)).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.exchanges.count_read();
        } else if polled.is_ready() {
            self.is_closed = true;
        }
        polled
    }
}

impl<T: Transport> AsyncWrite for ClientStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.exchanges.on_write(&polled);
        self.on_written(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.exchanges.on_write(&polled);
        self.on_written(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        // Over TLS, a write can succeed although the socket is blocked. The flush then waits.
        let polled = self.on_written(polled, cx);
        match &polled {
            Poll::Ready(Ok(())) => self.exchanges.flush().on_flushed(),
            Poll::Ready(Err(_)) => self.is_closed = true,
            Poll::Pending => {}
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.on_written(polled, cx)
    }
}

impl<T: Transport> Drop for ClientStream<T> {
    fn drop(&mut self) {
        if self.exchanges.limits().timeout().is_some() {
            self.inner.discard_unsent();
        }
    }
}
