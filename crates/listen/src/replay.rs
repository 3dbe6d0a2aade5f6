//! Detects whether a new connection uses HTTP/1 or HTTP/2 (with prior knowledge). The bytes read for the detection can
//! be read again.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// Connection preface of HTTP/2.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose first bytes were already read. Readers get these bytes first, and then the rest of the stream.
#[derive(Debug)]
pub(super) struct ReplayStream<T> {
    inner: T,
    bytes: [u8; PREFACE.len()],
    from: u8,
    to: u8,
}

impl<T> ReplayStream<T> {
    pub(super) const fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns the first byte of the stream. `None` if the stream ended before.
    pub(super) fn first_byte(&self) -> Option<u8> {
        self.bytes.get(..usize::from(self.to))?.first().copied()
    }
}

impl<T: AsyncRead + Unpin> ReplayStream<T> {
    /// Reads bytes until the protocol is known. The returned flag is `true` for HTTP/2 and `false` for HTTP/1.
    pub(super) async fn read(mut inner: T) -> io::Result<(Self, bool)> {
        let mut bytes = [0; PREFACE.len()];
        let mut to = 0;
        let http2 = loop {
            let room = bytes.get_mut(to..).unwrap_or_default();
            let read = inner.read(room).await?;
            to += read;
            let so_far = bytes.get(..to).unwrap_or_default();
            let differs = !PREFACE.starts_with(so_far);
            if differs || read == 0 || to == PREFACE.len() {
                break !differs && to == PREFACE.len();
            }
        };
        let first = Self { inner, bytes, from: 0, to: u8::try_from(to).unwrap_or_default() };
        Ok((first, http2))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ReplayStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.from == self.to {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let left = self.bytes.get(usize::from(self.from)..usize::from(self.to)).unwrap_or_default();
        let taken = left.len().min(buf.remaining());
        buf.put_slice(left.get(..taken).unwrap_or_default());
        self.from += u8::try_from(taken).unwrap_or_default();
        // Reads the following bytes into the same buffer. A second read would make hyper double its buffer.
        if let Poll::Ready(Err(error)) = Pin::new(&mut self.inner).poll_read(cx, buf) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ReplayStream<T> {
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Sends the bytes of `sent` one at a time. Returns whether HTTP/2 was detected, and the bytes that a reader then
    /// gets.
    async fn told(sent: &[u8]) -> (bool, Vec<u8>) {
        let (mut near, far) = tokio::io::duplex(1);
        let writing = async {
            near.write_all(sent).await.unwrap();
            drop(near);
        };
        let reading = async {
            let (mut first, http2) = ReplayStream::read(far).await.unwrap();
            let mut all = Vec::new();
            first.read_to_end(&mut all).await.unwrap();
            (http2, all)
        };
        tokio::join!(writing, reading).1
    }

    #[tokio::test]
    async fn only_the_complete_preface_is_http2_and_no_byte_is_lost() {
        let http2 = [PREFACE.as_slice(), b"\0\0\0\x04"].concat();
        for (sent, expected) in [
            (http2.as_slice(), true),
            (b"POST /v1 HTTP/1.1\r\n\r\n", false),
            (b"PRIVATE / HTTP/1.1\r\n\r\n", false),
            (b"PRI * HT", false),
            (b"", false),
        ] {
            assert_eq!(told(sent).await, (expected, sent.to_vec()));
        }
    }
}
