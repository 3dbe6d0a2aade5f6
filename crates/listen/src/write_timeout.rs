//! A TCP stream with a send timeout, for servers that do not use a [`Listener`](super::Listener).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::send_timer::SendTimer;

/// A TCP stream whose writes fail if the client reads nothing for a time. The kernel then discards the unread data.
#[derive(Debug)]
pub struct WriteTimeout {
    inner: TcpStream,
    /// Number of writes that the kernel has accepted. Wraps around.
    writes: u32,
    timer: SendTimer,
}

impl WriteTimeout {
    pub const fn new(inner: TcpStream, timeout: Duration) -> Self {
        Self { inner, writes: 0, timer: SendTimer::new(timeout) }
    }

    fn on_written(
        &mut self,
        polled: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if polled.is_ready() {
            self.writes = self.writes.wrapping_add(1);
            return polled;
        }
        ready!(self.timer.poll(Some(self.writes), None, cx));
        // If setting the option fails, the connection is broken already.
        drop(self.inner.set_zero_linger());
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.on_written(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.on_written(polled, cx)
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
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_write_fails_if_the_client_does_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _silent = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = WriteTimeout::new(stream, Duration::from_millis(50));
        let writing = async {
            let piece = vec![b'x'; 64 << 10];
            while stream.write_all(&piece).await.is_ok() {}
            stream.write_all(&piece).await.unwrap_err().kind()
        };
        let failed = tokio::time::timeout(Duration::from_secs(30), writing).await.unwrap();
        assert_eq!(failed, io::ErrorKind::TimedOut);
    }
}
