//! The byte stream of a client connection, which hyper reads and writes, and its orderly close.
//!
//! The connection's permit is part of the stream. It must stay taken until the end of a WebSocket, which continues on
//! the stream without hyper.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::server::TlsStream;

use super::exchanges::{Exchanges, Leftover};
use super::replay::ReplayStream;
use super::request_limit::ClientMember;
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
}

impl Transport for TcpStream {
    fn close_abruptly(&self) {
        // If setting the option fails, the connection is broken already.
        drop(self.set_zero_linger());
    }
}

impl<T: Transport> Transport for ReplayStream<T> {
    fn close_abruptly(&self) {
        self.get_ref().close_abruptly();
    }
}

/// A TLS stream without a shutdown sends no `close_notify`, so the client sees a truncated stream.
impl Transport for TlsStream<TcpStream> {
    fn close_abruptly(&self) {}
}

/// A Unix socket has no abrupt close.
impl Transport for UnixStream {
    fn close_abruptly(&self) {}
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

/// A client's byte stream. It reports three kinds of events to [`Exchanges`]: bytes were read, a write was accepted or
/// blocked, and hyper has written all data.
#[derive(Debug)]
pub(super) struct ClientStream<T> {
    inner: T,
    exchanges: Arc<Exchanges>,
    _guards: ConnectionGuards,
    /// Whether the client has closed its side of the connection, or the connection has failed.
    is_closed: bool,
}

impl<T: Transport> ClientStream<T> {
    pub(super) fn new(inner: T, exchanges: Arc<Exchanges>, guards: ConnectionGuards) -> Self {
        Self { inner, exchanges, _guards: guards, is_closed: false }
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

impl<T: AsyncRead + Unpin> AsyncRead for ClientStream<T> {
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

impl<T: AsyncWrite + Unpin> AsyncWrite for ClientStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.exchanges.on_write(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.exchanges.on_write(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        // Over TLS, a write can succeed although the socket is blocked. The flush then waits.
        self.exchanges.set_write_blocked(polled.is_pending());
        match &polled {
            Poll::Ready(Ok(())) => self.exchanges.flush().on_flushed(),
            Poll::Ready(Err(_)) => self.is_closed = true,
            Poll::Pending => {}
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
