//! The byte stream to an upstream over TCP, with or without TLS.

use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::mem;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{self, Handle};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::open_sockets::OpenSocket;
use super::socket::UpstreamSocket;
use crate::tcp;
use tokengauge_listen::MAX_READ;
use tokengauge_observe::tee::UploadFlush;
use tokengauge_types::tcp::TcpConnection;

/// A byte stream that reports when all written data was flushed. After a failed read or write, it returns all received
/// data before the error.
#[derive(Debug)]
pub struct UpstreamStream<S = Transport> {
    stream: S,
    state: Arc<StreamState>,
    /// The error of a failed write, which is returned after the last received data. Further writes are discarded. If
    /// the write itself returned the error, hyper would drop the connection with the unread data.
    failed_write: Option<io::Error>,
    /// The error of a TLS read, to be returned after the data before it. `tokio_rustls` returns the error first.
    failed_read: Option<io::Error>,
    /// Number of bytes that the kernel had taken before the latest request.
    written_before: u64,
    /// The runtime that receives the events of the socket.
    runtime: runtime::Id,
    _socket: Option<OpenSocket>,
}

/// TCP, with or without TLS. The TLS state is boxed, because it takes a kilobyte that connections without TLS do not
/// need.
pub type Transport = Either<UpstreamSocket, Box<TlsStream<UpstreamSocket>>>;

/// State that a connection shares with its stream.
#[derive(Debug, Default)]
pub struct StreamState {
    /// Reports that a request body was sent completely. A connection sends one body at a time.
    pub(super) flush: Arc<UploadFlush>,
    /// Whether the next read first asks the kernel for the state of the connection.
    is_probing: AtomicBool,
    /// Whether the next write is the first one of a request.
    is_request_due: AtomicBool,
    /// Whether any byte was received since the start of the latest request.
    has_received: AtomicBool,
    /// Whether the upstream has closed its sending side: with FIN, or with `close_notify` over TLS.
    is_closed: AtomicBool,
    /// Whether a task waits for the HTTP/2 settings of the upstream.
    awaits_settings: AtomicBool,
    settings: Notify,
}

impl StreamState {
    /// Calls `read`, which checks whether the connection can be reused. The first read of this stream during the call fails
    /// if the upstream has sent data or closed the connection. The kernel is asked directly, because the runtime may not
    /// have noticed this yet. If the check succeeds, the stream moves to the current runtime.
    pub(super) fn probe<T>(&self, read: impl FnOnce() -> T) -> T {
        self.is_probing.store(true, Ordering::Relaxed);
        let result = read();
        self.is_probing.store(false, Ordering::Relaxed);
        result
    }

    /// Prepares [`settings_received`](Self::settings_received). Called before the HTTP/2 handshake.
    pub(super) fn expect_settings(&self) {
        self.awaits_settings.store(true, Ordering::Relaxed);
    }

    /// Waits until hyper has applied the HTTP/2 settings of the upstream.
    pub(super) async fn settings_received(&self) {
        self.settings.notified().await;
    }

    /// Prepares the state for a request. On a reused connection, hyper reads before it writes, and this read asks the
    /// kernel. If the upstream has closed the connection by then, no byte of the request is written.
    pub(super) fn begin_request(&self, is_reused: bool) {
        self.has_received.store(false, Ordering::Relaxed);
        self.is_request_due.store(true, Ordering::Relaxed);
        self.is_probing.store(is_reused, Ordering::Relaxed);
    }

    pub(super) fn has_received(&self) -> bool {
        self.has_received.load(Ordering::Relaxed)
    }

    /// Returns whether the upstream closed its sending side before it sent a byte of the response.
    fn is_closed_before_response(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) && !self.has_received()
    }
}

/// Access to the TCP connection and TLS state.
pub trait Socket {
    /// Returns the socket. `None` for streams in memory.
    fn socket(&self) -> Option<&UpstreamSocket>;

    fn socket_mut(&mut self) -> Option<&mut UpstreamSocket>;

    /// Reads data that is already decrypted, without reading from the socket. Returns the number of bytes.
    fn read_decrypted(&mut self, buf: &mut ReadBuf<'_>) -> usize;
}

impl Socket for Transport {
    fn socket(&self) -> Option<&UpstreamSocket> {
        Some(match self {
            Self::Left(socket) => socket,
            Self::Right(stream) => stream.get_ref().0,
        })
    }

    fn socket_mut(&mut self) -> Option<&mut UpstreamSocket> {
        Some(match self {
            Self::Left(socket) => socket,
            Self::Right(stream) => stream.get_mut().0,
        })
    }

    fn read_decrypted(&mut self, buf: &mut ReadBuf<'_>) -> usize {
        let Self::Right(stream) = self else { return 0 };
        let (_, session) = stream.get_mut();
        let read = session.reader().read(buf.initialize_unfilled()).unwrap_or_default();
        buf.advance(read);
        read
    }
}

impl UpstreamStream {
    /// Returns whether the upstream chose HTTP/2 by ALPN.
    pub(super) fn chose_http2(&self) -> bool {
        match &self.stream {
            Transport::Left(_) => false,
            Transport::Right(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }
}

impl<S> UpstreamStream<S> {
    /// `socket` is registered as long as the stream exists.
    pub(super) fn new(stream: S, socket: Option<OpenSocket>) -> Self {
        Self {
            stream,
            state: Arc::default(),
            failed_write: None,
            failed_read: None,
            written_before: 0,
            runtime: Handle::current().id(),
            _socket: socket,
        }
    }

    pub(super) const fn state(&self) -> &Arc<StreamState> {
        &self.state
    }

    /// Keeps the error of a write for a later read, and returns `discarded` as if the write had succeeded. The read
    /// after the last received data returns the error.
    fn keep_error<T>(&mut self, polled: Poll<io::Result<T>>, discarded: T) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = polled {
            self.failed_write = Some(error);
            return Poll::Ready(Ok(discarded));
        }
        polled
    }
}

impl<S: Socket> UpstreamStream<S> {
    /// Moves the socket to the current runtime. Otherwise, each chunk would wake two threads: that of the runtime on
    /// which the connection was opened, and the current one. If no file descriptor is free, the socket stays where it
    /// is.
    fn move_to_current_runtime(&mut self) {
        let current = Handle::current().id();
        if self.runtime != current
            && let Some(socket) = self.stream.socket_mut()
            && let Ok(moved) = registered_here(&socket.tcp)
        {
            socket.tcp = moved;
            self.runtime = current;
        }
    }

    /// Records where a request begins.
    fn before_write(&mut self) {
        if self.state.is_request_due.load(Ordering::Relaxed) {
            self.state.is_request_due.store(false, Ordering::Relaxed);
            self.state.is_probing.store(false, Ordering::Relaxed);
            self.written_before = self.written();
        }
    }

    fn written(&self) -> u64 {
        self.stream.socket().map_or(0, UpstreamSocket::written)
    }

    /// Returns whether the upstream closed the connection before its kernel received any byte of the latest request.
    /// Called if the connection has ended before the response. Waits for the proof up to [`MAX_RESET_DELAY`].
    ///
    /// Two facts together are a proof. First, the FIN of the upstream acknowledges no byte of the request. FIN
    /// acknowledges everything that the upstream's kernel had received, so a program can have read nothing before FIN,
    /// and after FIN it cannot answer. Second, the request is answered with RST and without an acknowledgement. The
    /// upstream has therefore closed the connection in both directions, and no program reads the request later.
    ///
    /// RST alone proves nothing: a program that has read the request can cause the same RST, and the kernel does not
    /// report what RST acknowledges.
    pub(super) async fn is_request_unread(&self, connection: &TcpConnection) -> bool {
        if !self.state.is_closed_before_response() {
            return false;
        }
        let sent = self.sent_of_request();
        let until = Instant::now() + MAX_RESET_DELAY;
        let mut was_unread_at_fin = false;
        if sent == 0 {
            return true;
        }
        loop {
            match tcp::send_queue(connection) {
                Some(queue) if queue.unacknowledged < sent => return false,
                Some(queue) => was_unread_at_fin |= queue.has_received_fin,
                // The kernel forgets a connection when RST arrives.
                None => return was_unread_at_fin && self.is_reset(),
            }
            if Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(RESET_INTERVAL).await;
        }
    }

    /// Returns how many bytes of the latest request the kernel has taken.
    fn sent_of_request(&self) -> u64 {
        if self.state.is_request_due.load(Ordering::Relaxed) {
            return 0;
        }
        self.written() - self.written_before
    }

    fn is_reset(&self) -> bool {
        let error = self.stream.socket().and_then(|socket| socket.tcp.take_error().ok()?);
        // Linux returns `BrokenPipe` for RST after FIN.
        error.is_some_and(|error| {
            matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        })
    }

    /// Records that the upstream has closed its sending side. `error` is the read error, or `None` at the end of the
    /// data.
    fn record_end(&self, error: Option<&io::Error>) {
        let error = self.failed_write.as_ref().or(error).map(io::Error::kind);
        // Without `close_notify`, TLS returns `UnexpectedEof` for FIN.
        let is_closed = matches!(error, None | Some(ErrorKind::UnexpectedEof));
        self.state.is_closed.store(is_closed, Ordering::Relaxed);
    }
}

/// Returns a handle of the same socket that is registered with the current runtime.
fn registered_here(tcp: &TcpStream) -> io::Result<TcpStream> {
    TcpStream::from_std(tcp.as_fd().try_clone_to_owned()?.into())
}

/// Maximum time between FIN and the RST that follows if a request reaches a closed connection. The value is a round trip
/// between continents.
const MAX_RESET_DELAY: Duration = Duration::from_millis(200);

/// Interval of checks for RST.
const RESET_INTERVAL: Duration = Duration::from_millis(5);

impl<S: AsyncRead + Socket + Unpin> AsyncRead for UpstreamStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.state.is_probing.load(Ordering::Relaxed) {
            self.state.is_probing.store(false, Ordering::Relaxed);
            if !self.stream.socket().is_none_or(|socket| tcp::is_silent(&socket.tcp)) {
                return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
            }
            self.move_to_current_runtime();
        }
        // `h2` applies all frames that it has received before it reads again.
        if self.state.awaits_settings.load(Ordering::Relaxed) && self.state.has_received() {
            self.state.awaits_settings.store(false, Ordering::Relaxed);
            self.state.settings.notify_one();
        }
        let before = buf.filled().len();
        let mut result = match self.failed_read.take() {
            Some(error) => Err(error),
            None => ready!(Pin::new(&mut (&mut self.stream).take(MAX_READ)).poll_read(cx, buf)),
        };
        if result.is_err() && self.stream.read_decrypted(buf) > 0 {
            self.failed_read = mem::replace(&mut result, Ok(())).err();
        }
        if result.is_ok() && buf.filled().len() > before {
            self.state.has_received.store(true, Ordering::Relaxed);
            return Poll::Ready(Ok(()));
        }
        self.record_end(result.as_ref().err());
        match self.failed_write.take() {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Ready(result),
        }
    }
}

impl<S: AsyncWrite + Socket + Unpin> AsyncWrite for UpstreamStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.failed_write.is_some() {
            return Poll::Ready(Ok(buf.len()));
        }
        self.before_write();
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
        self.before_write();
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.keep_error(polled, length)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Flushes the stream, and reports the end of a request body. hyper flushes only after it has written all buffered
    /// data.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.failed_write.is_some() {
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(polled, Poll::Ready(Ok(()))) {
            self.state.flush.on_flushed();
        }
        self.keep_error(polled, ())
    }

    /// Closes the sending side. Sends nothing if the upstream closed the connection before the response: a `close_notify`
    /// would provoke RST, which [`is_request_unread`](UpstreamStream::is_request_unread) would take for the answer to the
    /// request.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state.is_closed_before_response() {
            return Poll::Ready(Ok(()));
        }
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
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;
    use crate::forward::testing::observer;
    use tokengauge_observe::tee::body::RequestBody;

    /// Body size in bytes. The body fits into hyper's buffer, but not into the buffer of the stream below.
    const BODY: usize = 100 * 1024;

    impl Socket for DuplexStream {
        fn socket(&self) -> Option<&UpstreamSocket> {
            None
        }

        fn socket_mut(&mut self) -> Option<&mut UpstreamSocket> {
            None
        }

        fn read_decrypted(&mut self, _: &mut ReadBuf<'_>) -> usize {
            0
        }
    }

    #[test]
    fn a_probed_stream_does_not_need_the_runtime_that_opened_it() {
        let runtime = || runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (opener, user) = (runtime(), runtime());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = opener.block_on(async {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            UpstreamStream::new(Transport::Left(UpstreamSocket::new(stream)), None)
        });
        let (mut far, _) = listener.accept().unwrap();
        user.block_on(async {
            let state = Arc::clone(stream.state());
            let mut byte = [0];
            let probed = state.probe(|| {
                let cx = &mut Context::from_waker(std::task::Waker::noop());
                Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut byte))
            });
            assert!(probed.is_pending());
            // No thread runs `opener`, so only events of `user` arrive.
            io::Write::write_all(&mut far, b"x").unwrap();
            let read = tokio::time::timeout(Duration::from_secs(30), stream.read_u8());
            assert_eq!(read.await.unwrap().unwrap(), b'x');
        });
    }

    async fn let_tasks_run() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn upload_ends_when_it_is_written_and_not_when_hyper_takes_it() {
        let (near, mut far) = duplex(16);
        let stream = UpstreamStream::new(near, None);
        let observer = observer();
        let mut body = RequestBody::new(Full::new(Bytes::from(vec![b'x'; BODY])), observer.clone());
        body.report_end_by(Some(Arc::clone(&stream.state().flush)));
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
