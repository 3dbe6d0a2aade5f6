//! TLS to an upstream, which loses no data when it fails.

use std::io::{self, IoSlice, Read as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client;

/// A TLS connection. If one read of the socket returns valid records and then an invalid one, the data of the valid
/// records is returned before the error. `tokio_rustls` returns the error first.
#[derive(Debug)]
pub struct TlsStream {
    inner: client::TlsStream<TcpStream>,
    /// The error of the last read, while decrypted data before it is left.
    failed: Option<io::Error>,
}

impl TlsStream {
    pub(super) const fn new(inner: client::TlsStream<TcpStream>) -> Self {
        Self { inner, failed: None }
    }

    /// Returns whether the upstream chose HTTP/2 by ALPN.
    pub(super) fn chose_http2(&self) -> bool {
        self.inner.get_ref().1.alpn_protocol() == Some(b"h2")
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        self.inner.get_ref().0
    }

    /// Reads decrypted data without reading the socket. Returns the number of bytes.
    fn read_decrypted(&mut self, buf: &mut ReadBuf<'_>) -> usize {
        let (_, session) = self.inner.get_mut();
        let read = session.reader().read(buf.initialize_unfilled()).unwrap_or_default();
        buf.advance(read);
        read
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let error = match self.failed.take() {
            Some(error) => error,
            None => match ready!(Pin::new(&mut self.inner).poll_read(cx, buf)) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(error) => error,
            },
        };
        if self.read_decrypted(buf) == 0 {
            return Poll::Ready(Err(error));
        }
        self.failed = Some(error);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
