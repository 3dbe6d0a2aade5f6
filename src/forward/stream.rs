//! The byte stream to an upstream: plain TCP or TLS over it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use tokengauge_observe::tee::UploadFlush;

/// The stream, which tells when everything was written.
#[derive(Debug)]
pub(super) struct UpstreamStream<S = Transport> {
    stream: S,
    written: Arc<UploadFlush>,
}

#[derive(Debug)]
pub(super) enum Transport {
    Plain(TcpStream),
    /// Boxed: a TLS state is a kilobyte that plain links should not carry.
    Tls(Box<TlsStream<TcpStream>>),
}

impl UpstreamStream {
    /// Whether the upstream chose HTTP/2 by ALPN.
    pub(super) fn chose_http2(&self) -> bool {
        match &self.stream {
            Transport::Plain(_) => false,
            Transport::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }
}

impl<S> UpstreamStream<S> {
    pub(super) fn over(stream: S) -> Self {
        Self { stream, written: Arc::default() }
    }

    /// For a body that is sent over this, one at a time.
    pub(super) fn written(&self) -> Arc<UploadFlush> {
        Arc::clone(&self.written)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for UpstreamStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for UpstreamStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper comes here only when it has handed over all that it had.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.written.flushed();
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::Request;
    use http_body_util::Full;
    use hyper::client::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;
    use tokengauge_observe::tee::body::RequestBody;
    use tokengauge_observe::tee::{self, ObservationChannel, RequestObserver};
    use tokengauge_types::clock;
    use tokengauge_types::event::{
        CallerIdentity, Headers, ProxyPosition, RequestHead, RouteFacts, Scheme, TraceContext,
    };
    use tokengauge_types::label::{Label, Name};

    /// All of it finds room in hyper's buffer, and none in the stream below.
    const BODY: usize = 100 * 1024;

    fn observer() -> RequestObserver {
        let facts = RouteFacts {
            name: Label::known("test"),
            vantage: ProxyPosition::Outbound,
            server_address: Label::known("localhost"),
            server_port: 80,
            provider: None,
            dialect: None,
            stripped: 0,
            base_path: Label::known(""),
            stall_after: Duration::from_secs(2),
            hung_after: Duration::from_secs(30),
        };
        let open = RequestHead {
            wall: clock::wall_now(),
            method: http::Method::POST,
            path: Name::new("/").unwrap(),
            model: None,
            host: None,
            version: http::Version::HTTP_11,
            scheme: Scheme::Http,
            headers: Headers::default(),
            length: None,
            client: None,
            connection: None,
            route: Arc::new(facts),
            trace: TraceContext::default(),
            conversation: None,
            who: CallerIdentity::default(),
            cell: Arc::default(),
        };
        Arc::new(ObservationChannel::new(tee::Config::default())).open(open, clock::now())
    }

    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn an_upload_ends_when_it_is_written_and_not_when_hyper_took_it() {
        let (near, mut far) = duplex(16);
        let wire = UpstreamStream::over(near);
        let observer = observer();
        let mut body = RequestBody::new(Full::new(Bytes::from(vec![b'x'; BODY])), observer.clone());
        body.sent_over(Some(wire.written()));
        let (mut sender, connection) = http1::handshake(TokioIo::new(wire)).await.unwrap();
        tokio::spawn(connection);
        let answered = tokio::spawn(sender.send_request(Request::post("/").body(body).unwrap()));
        far.read_exact(&mut [0; BODY]).await.unwrap();
        settle().await;
        assert!(!observer.uploaded(), "the head was read too, so some of the body is left");
        let mut left = Vec::new();
        while !observer.uploaded() {
            left.push(far.read_u8().await.unwrap());
        }
        assert!(left.iter().all(|byte| *byte == b'x'));
        drop(far);
        assert!(answered.await.unwrap().is_err());
    }

    #[tokio::test]
    async fn without_a_connection_to_say_so_it_ends_when_it_was_taken() {
        let (near, mut far) = duplex(64);
        let observer = observer();
        let body = RequestBody::new(Full::new(Bytes::from(vec![b'x'; BODY])), observer.clone());
        let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await.unwrap();
        tokio::spawn(connection);
        let answered = tokio::spawn(sender.send_request(Request::post("/").body(body).unwrap()));
        far.read_u8().await.unwrap();
        settle().await;
        assert!(observer.uploaded());
        drop(far);
        assert!(answered.await.unwrap().is_err());
    }
}
