//! Tests the timeouts that must end a response although its client does not read it.
//!
//! hyper does not poll the response body of such a client, so no timeout inside the body can end the response. The
//! upstream always has more data than all buffers can hold.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokengauge_listen::Tls;
use tokengauge_types::event::Direction;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use crate::support::certificate::Certificate;
use crate::support::{Backend, Proxy, Raw, Setup, within};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const ENDLESS: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";

/// A timeout that passes within a test.
const SHORT: Duration = Duration::from_millis(300);

/// How a client that does not read is connected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Transport {
    Http1,
    Http1Tls,
    /// The client reads the connection, but not the stream: it sends no WINDOW_UPDATE for the stream.
    Http2Stream,
    /// The client does not read the connection.
    Http2Connection,
}

const TRANSPORTS: [Transport; 4] =
    [Transport::Http1, Transport::Http1Tls, Transport::Http2Stream, Transport::Http2Connection];

/// A stream whose reader sees no data while the gate is closed.
struct Gate<T> {
    inner: T,
    is_closed: Arc<AtomicBool>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Gate<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gate<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// A client that has read the response headers, and reads no more. Its connection is open until it is dropped.
enum Stuck {
    Http1(Raw<TcpStream>),
    Http1Tls(Box<Raw<tokio_rustls::client::TlsStream<TcpStream>>>),
    Http2(SendRequest<Empty<Bytes>>, http::Response<Incoming>, JoinHandle<hyper::Result<()>>),
}

impl Stuck {
    /// Reads the next part of the response.
    async fn read_some(&mut self) {
        match self {
            Self::Http1(client) => drop(client.read_exactly(256 * 1024).await),
            Self::Http1Tls(client) => drop(client.read_exactly(256 * 1024).await),
            Self::Http2(_, response, _) => {
                within("a frame", response.frame()).await.unwrap().unwrap();
            }
        }
    }
}

/// The proxy, and a client that does not read.
struct Scene {
    backend: Backend,
    proxy: Proxy,
    stuck: Stuck,
    /// Ends when the proxy closes the connection to the upstream.
    pouring: JoinHandle<()>,
}

/// Connects with the smallest receive window that Linux allows.
async fn connect(proxy: &Proxy) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 * 1024).unwrap();
    socket.connect(proxy.address).await.unwrap()
}

/// Writes until the proxy closes the connection.
async fn pour(mut upstream: Raw<TcpStream>) {
    let chunk = vec![b'x'; 64 * 1024];
    while upstream.0.write_all(&chunk).await.is_ok() {}
}

async fn http2(proxy: &Proxy, transport: Transport) -> Stuck {
    let is_closed = Arc::<AtomicBool>::default();
    let stream = Gate { inner: connect(proxy).await, is_closed: Arc::clone(&is_closed) };
    let window = if transport == Transport::Http2Stream { 1_024 } else { 1 << 30 };
    let handshake = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .initial_connection_window_size(1 << 30)
        .handshake(TokioIo::new(stream));
    let (mut sender, connection) = within("handshake", handshake).await.unwrap();
    let connection = tokio::spawn(connection);
    let uri = format!("http://{}/v1/models", proxy.address);
    let request = Request::get(uri).body(Empty::new()).unwrap();
    let response = within("headers", sender.send_request(request)).await.unwrap();
    is_closed.store(transport == Transport::Http2Connection, Ordering::Relaxed);
    Stuck::Http2(sender, response, connection)
}

impl Scene {
    async fn start(transport: Transport, configure: impl FnOnce(&mut Setup)) -> Self {
        let backend = Backend::start().await;
        let certificate = Certificate::new();
        let mut setup = Setup::to(backend.address);
        setup.listen.max_requests = 1;
        // Over HTTP/2, the connection outlives its stream.
        let is_http2 = matches!(transport, Transport::Http2Stream | Transport::Http2Connection);
        setup.listen.max_connections = if is_http2 { 2 } else { 1 };
        if transport == Transport::Http1Tls {
            setup.listen.tls =
                Some(Tls { certificate: certificate.file(), key: certificate.key() });
        }
        configure(&mut setup);
        let proxy = setup.start().await;
        let answering = async {
            let mut upstream = backend.accept().await;
            upstream.read_head().await;
            upstream.write(ENDLESS).await;
            upstream
        };
        let asking = async {
            match transport {
                Transport::Http1 => {
                    let mut client = Raw(connect(&proxy).await);
                    client.write(GET).await;
                    client.read_head().await;
                    Stuck::Http1(client)
                }
                Transport::Http1Tls => {
                    let stream = connect(&proxy).await;
                    let mut client = Raw(certificate.connect(stream, &["http/1.1"]).await);
                    client.write(GET).await;
                    client.read_head().await;
                    Stuck::Http1Tls(Box::new(client))
                }
                Transport::Http2Stream | Transport::Http2Connection => {
                    http2(&proxy, transport).await
                }
            }
        };
        let (upstream, stuck) = tokio::join!(answering, asking);
        let pouring = tokio::spawn(pour(upstream));
        Self { backend, proxy, stuck, pouring }
    }

    /// Asserts that the upstream is closed, that the request ended with `ending`, and that another client gets the
    /// connection and the request that were in use.
    async fn assert_ended(mut self, transport: Transport, ending: &str) {
        within("the end of the upstream connection", &mut self.pouring).await.unwrap();
        let words = self.proxy.words().await;
        assert!(words[0].ends_with(&format!("End({ending})")), "{transport:?}: {words:?}");
        if transport != Transport::Http1Tls {
            let mut client = self.proxy.client().await;
            client.write(GET).await;
            let mut upstream = self.backend.accept().await;
            upstream.read_head().await;
            upstream.write(OK).await;
            assert!(client.read_until("\r\n\r\nok").await.starts_with("HTTP/1.1 200 "));
        }
        drop(self.stuck);
    }
}

#[tokio::test]
async fn the_total_timeout_ends_a_response_that_its_client_does_not_read() {
    for transport in TRANSPORTS {
        let scene = Scene::start(transport, |setup| {
            setup.upstream.timeouts.total = Some(SHORT);
        });
        scene.await.assert_ended(transport, "TimedOut(TotalUnread)").await;
    }
}

#[tokio::test]
async fn a_client_that_stops_reading_is_ended_after_the_send_timeout() {
    for transport in TRANSPORTS {
        let scene = Scene::start(transport, |setup| {
            setup.listen.send_timeout = SHORT;
            if transport == Transport::Http2Connection {
                setup.listen.max_connections = 1;
            }
        });
        scene.await.assert_ended(transport, "TimedOut(Send)").await;
    }
}

/// The timeout covers the time without progress, not the time of the response.
#[tokio::test]
async fn a_client_that_reads_slowly_is_not_ended() {
    for transport in [Transport::Http1, Transport::Http2Stream] {
        let mut scene = Scene::start(transport, |setup| {
            setup.listen.send_timeout = 4 * SHORT;
        })
        .await;
        for _ in 0..12 {
            tokio::time::sleep(SHORT).await;
            scene.stuck.read_some().await;
        }
        assert!(!scene.pouring.is_finished(), "{transport:?}");
        drop(scene.stuck);
        let words = scene.proxy.words().await;
        assert!(words[0].ends_with("End(ClientDisconnected)"), "{transport:?}: {words:?}");
    }
}

/// A response can be complete for the proxy, but not for the client of an HTTP/2 stream. Its data then waits in the
/// HTTP/2 library, which does not reset such a stream.
#[tokio::test]
async fn an_unread_end_of_an_http2_response_does_not_hold_its_connection() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.pool_size = 0;
    setup.listen.send_timeout = SHORT;
    setup.listen.max_connections = 1;
    let proxy = setup.start().await;
    let answering = async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        let body = "x".repeat(3_000);
        let length = body.len();
        upstream.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")).await;
        upstream
    };
    let (_upstream, stuck) = tokio::join!(answering, http2(&proxy, Transport::Http2Stream));
    let Stuck::Http2(_sender, _response, connection) = stuck else { panic!("not HTTP/2") };
    drop(within("the end of the connection", connection).await);
    let mut client = proxy.client().await;
    client.write(GET).await;
    backend.accept().await.read_head().await;
}

/// An endless upload over HTTP/1, whose upstream does not read.
#[tokio::test]
async fn the_total_timeout_ends_an_upload_that_its_upstream_does_not_read() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.listen.max_requests = 1;
    setup.upstream.timeouts.total = Some(SHORT);
    let mut proxy = setup.start().await;
    let post = "POST /v1/files HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n";
    let (client, mut upstream) = proxy.exchange(&backend, post).await;
    within("the end of the upload", pour(client)).await;
    let words = proxy.words().await;
    assert!(words[0].ends_with("Own(504) End(TimedOut(Total))"), "{words:?}");
    upstream.read_to_end().await;
}

/// The limit for the response headers also ends an upload that its upstream does not read.
#[tokio::test]
async fn the_header_timeout_ends_an_upload_that_its_upstream_does_not_read() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.timeouts.response_header = Some(SHORT);
    let mut proxy = setup.start().await;
    let post = "POST /v1/files HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n";
    let (client, _upstream) = proxy.exchange(&backend, post).await;
    within("the end of the upload", pour(client)).await;
    let words = proxy.words().await;
    assert!(words[0].ends_with("Own(504) End(TimedOut(ResponseHeader))"), "{words:?}");
}

/// A client that pipelines requests and reads no response. The time limits of later requests start late, but the send
/// timeout ends the connection.
#[tokio::test]
async fn a_client_that_reads_no_response_of_its_pipelined_requests_is_ended() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.listen.send_timeout = SHORT;
    setup.listen.max_connections = 1;
    let proxy = setup.start().await;
    let mut client = Raw(connect(&proxy).await);
    client.write(GET.repeat(3)).await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write(ENDLESS).await;
    within("the end of the upstream connection", pour(upstream)).await;
    let mut other = proxy.client().await;
    other.write(GET).await;
    backend.accept().await.read_head().await;
}

/// The idle timeout measures the upstream, so it must not run while the client does not read.
#[tokio::test]
async fn the_idle_timeout_is_paused_while_the_client_does_not_read() {
    for transport in TRANSPORTS {
        let scene = Scene::start(transport, |setup| {
            setup.upstream.timeouts.idle = Some(SHORT / 2);
            setup.listen.send_timeout = 2 * SHORT;
        });
        scene.await.assert_ended(transport, "TimedOut(Send)").await;
    }
}

/// The time limit of an upload measures the client, so it must not run while the upstream does not read.
#[tokio::test]
async fn the_body_timeout_is_paused_while_the_upstream_does_not_read() {
    const LENGTH: usize = 20 << 20;
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.listen.body_timeout = SHORT;
    let mut proxy = setup.start().await;
    let post = format!("POST /v1/files HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n");
    let (mut client, mut upstream) = proxy.exchange(&backend, post).await;
    let uploading = tokio::spawn(async move {
        client.write(vec![b'x'; LENGTH]).await;
        client
    });
    tokio::time::sleep(4 * SHORT).await;
    assert!(!uploading.is_finished(), "the upstream has not read the body");
    upstream.read_exactly(LENGTH).await;
    upstream.write(OK).await;
    let mut client = within("the upload", uploading).await.unwrap();
    assert!(client.read_until("\r\n\r\nok").await.starts_with("HTTP/1.1 200 "));
    let words = proxy.words().await;
    assert!(words[0].ends_with("Complete"), "{words:?}");
}

/// Maximum number of bytes that the proxy reads for a client that does not read: 64 KiB in hyper, 64 KiB in TLS, 128 KiB
/// in the kernel, and one read that exceeds each of these limits.
const WATERMARK: usize = 512 << 10;

#[tokio::test]
async fn a_client_that_does_not_read_stops_its_upstream_at_the_watermark() {
    for transport in TRANSPORTS {
        let mut scene = Scene::start(transport, |_| {}).await;
        let mut read = 0;
        // The proxy has stopped to read when nothing arrives for a while.
        loop {
            tokio::time::sleep(SHORT).await;
            scene.proxy.drain();
            let now = scene.proxy.observed(Direction::Response).len();
            if std::mem::replace(&mut read, now) == now && now > 0 {
                break;
            }
        }
        assert!(read <= WATERMARK, "{transport:?}: {read} bytes");
        assert!(!scene.pouring.is_finished(), "{transport:?}");
    }
}
