//! The byte stream to an upstream: TCP, with or without TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::either::Either;

use super::tls_stream::TlsStream;
use tokengauge_observe::tee::UploadFlush;

/// A byte stream that reports when all written data was flushed, and that returns all received data before an error.
#[derive(Debug)]
pub struct UpstreamStream<S = Transport> {
    stream: S,
    flush: Arc<UploadFlush>,
    /// The error of a failed write. From then on, written data is discarded, and the end of the received data becomes
    /// this error. hyper would otherwise drop the connection with the data that it has not read yet.
    failed_write: Option<io::Error>,
}

/// TCP, with or without TLS. The TLS state is boxed: it takes a kilobyte, which plain connections should not allocate.
pub type Transport = Either<TcpStream, Box<TlsStream>>;

impl UpstreamStream {
    /// Returns whether the upstream chose HTTP/2 by ALPN.
    pub(super) fn chose_http2(&self) -> bool {
        match &self.stream {
            Transport::Left(_) => false,
            Transport::Right(stream) => stream.chose_http2(),
        }
    }
}

impl<S> UpstreamStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, flush: Arc::default(), failed_write: None }
    }

    /// Returns the object that reports the end of request bodies on this stream. The bodies are sent one at a time.
    pub(super) fn flush(&self) -> Arc<UploadFlush> {
        Arc::clone(&self.flush)
    }

    /// Keeps the error of a write for the read that follows the last received data.
    fn keep_error<T>(&mut self, polled: Poll<io::Result<T>>, discarded: T) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = polled {
            self.failed_write = Some(error);
            return Poll::Ready(Ok(discarded));
        }
        polled
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for UpstreamStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let is_end = buf.filled().len() == before;
        match self.failed_write.take_if(|_| is_end) {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for UpstreamStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.failed_write.is_some() {
            return Poll::Ready(Ok(buf.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.keep_error(polled, buf.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = bufs.iter().map(|buf| buf.len()).sum();
        if self.failed_write.is_some() {
            return Poll::Ready(Ok(length));
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.keep_error(polled, length)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Reports the end of a request body. hyper calls this only after it has written everything that it buffered.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.failed_write.is_some() {
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.flush.on_flushed();
        }
        self.keep_error(polled, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use http_body_util::Full;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use crate::forward::testing::observer;
    use tokengauge_observe::tee::body::RequestBody;

    /// Body size in bytes that fits into hyper's buffer completely, but not into the buffer of the stream below.
    const BODY: usize = 100 * 1024;

    async fn let_tasks_run() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn upload_ends_when_it_is_written_and_not_when_hyper_takes_it() {
        let (near, mut far) = duplex(16);
        let stream = UpstreamStream::new(near);
        let observer = observer();
        let mut body = RequestBody::new(Full::new(Bytes::from(vec![b'x'; BODY])), observer.clone());
        body.report_end_by(Some(stream.flush()));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let response = tokio::spawn(sender.send_request(Request::post("/").body(body).unwrap()));
        far.read_exact(&mut [0; BODY]).await.unwrap();
        let_tasks_run().await;
        assert!(
            !observer.is_uploaded(),
            "part of the body is unread, because the headers were read too"
        );
        let mut rest = Vec::new();
        while !observer.is_uploaded() {
            rest.push(far.read_u8().await.unwrap());
        }
        assert!(rest.iter().all(|byte| *byte == b'x'));
        drop(far);
        assert!(response.await.unwrap().is_err());
    }

    #[tokio::test]
    async fn upload_ends_when_hyper_takes_it_if_no_connection_reports_it() {
        let (near, mut far) = duplex(64);
        let observer = observer();
        let body = RequestBody::new(Full::new(Bytes::from(vec![b'x'; BODY])), observer.clone());
        let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await.unwrap();
        tokio::spawn(connection);
        let response = tokio::spawn(sender.send_request(Request::post("/").body(body).unwrap()));
        far.read_u8().await.unwrap();
        let_tasks_run().await;
        assert!(observer.is_uploaded());
        drop(far);
        assert!(response.await.unwrap().is_err());
    }
}
