//! Tests that the proxy never sends a request again that the upstream can have executed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Response;
use tokengauge::forward::Protocol;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio::time::sleep;
use tokio_rustls::server::TlsStream;

use crate::support::certificate::Certificate;
use crate::support::{Backend, Proxy, Setup, settle, within};

/// Number of requests that run at the same time on reused connections.
const RUNNING: usize = 50;

const WARM: &str = "POST /warm HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
const RUN: &str = "POST /run HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// How an upstream ends a connection whose request it has read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// FIN. Over TLS after `close_notify`.
    Close,
    /// FIN without `close_notify`.
    Drop,
    /// RST.
    Reset,
    /// FIN, and then RST.
    CloseAndReset,
}

/// A connection of the upstream, with or without TLS.
trait Connection: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    fn tcp(&self) -> &TcpStream;
}

impl Connection for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Connection for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// State of the upstream that all connections share.
struct Upstream {
    warm: Barrier,
    executions: AtomicUsize,
    end: End,
    delay: Duration,
}

impl Upstream {
    /// Answers each warm-up request when all have arrived. Executes each other request, and ends the connection.
    async fn serve(&self, mut stream: impl Connection) {
        while let Some(is_run) = read_post(&mut stream).await {
            if !is_run {
                self.warm.wait().await;
                stream.write_all(OK.as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
                continue;
            }
            self.executions.fetch_add(1, Ordering::Relaxed);
            sleep(self.delay).await;
            match self.end {
                End::Close => drop(stream.shutdown().await),
                End::Drop => {}
                End::Reset => stream.tcp().set_zero_linger().unwrap(),
                End::CloseAndReset => {
                    drop(stream.shutdown().await);
                    stream.tcp().set_zero_linger().unwrap();
                }
            }
            return;
        }
    }
}

/// Reads one POST. Returns whether it must be executed, or `None` if the connection closes.
async fn read_post(stream: &mut (impl AsyncRead + Unpin)) -> Option<bool> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\nbody") {
        request.push(stream.read_u8().await.ok()?);
    }
    Some(request.starts_with(b"POST /run "))
}

/// Runs [`RUNNING`] requests on reused connections. Returns how often the upstream executed them, and how many got an
/// error response.
async fn executions(
    certificate: Option<&Certificate>,
    end: End,
    delay: Duration,
) -> (usize, usize) {
    let backend = Backend::start().await;
    let setup = Setup::to(backend.address);
    let setup = match certificate {
        None => setup,
        Some(certificate) => setup.tls(certificate),
    };
    let proxy = setup.start().await;
    let acceptor = certificate.map(Certificate::acceptor);
    let warm = Barrier::new(RUNNING);
    let upstream = Arc::new(Upstream { warm, executions: AtomicUsize::new(0), end, delay });
    let shared = Arc::clone(&upstream);
    let serving = tokio::spawn(async move {
        loop {
            let (stream, upstream) = (backend.accept().await.0, Arc::clone(&shared));
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                match acceptor {
                    None => upstream.serve(stream).await,
                    Some(acceptor) => upstream.serve(acceptor.accept(stream).await.unwrap()).await,
                }
            });
        }
    });
    let failed = run_requests(&proxy).await;
    serving.abort();
    (upstream.executions.load(Ordering::Relaxed), failed)
}

async fn run_requests(proxy: &Proxy) -> usize {
    let mut clients = Vec::new();
    for _ in 0..RUNNING {
        let mut client = proxy.client().await;
        client.write(WARM).await;
        clients.push(client);
    }
    for client in &mut clients {
        client.read_until("\r\n\r\nok").await;
    }
    for client in &mut clients {
        client.write(RUN).await;
    }
    let mut failed = 0;
    for client in &mut clients {
        failed += usize::from(client.read_head().await.starts_with("HTTP/1.1 502 "));
    }
    failed
}

const DELAYS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(10), Duration::from_millis(100), Duration::from_secs(1)];

async fn is_executed_once(certificate: Option<&Certificate>) {
    for end in [End::Close, End::Drop, End::Reset, End::CloseAndReset] {
        for delay in DELAYS {
            let (executed, failed) = executions(certificate, end, delay).await;
            assert_eq!((executed, failed), (RUNNING, RUNNING), "{end:?} after {delay:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_read_is_executed_once_over_tcp() {
    is_executed_once(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_read_is_executed_once_over_tls() {
    is_executed_once(Some(&Certificate::new())).await;
}

/// Tests an upstream that has read a part of a request. A server can act on the part.
#[tokio::test]
async fn a_request_that_was_partly_read_is_not_sent_again() {
    let (backend, proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, WARM).await;
    upstream.read_until("body").await;
    upstream.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    client.write("POST /run HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst").await;
    upstream.read_until("first").await;
    drop(upstream);
    assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
    assert!(!backend.has_another().await);
}

/// Tests an HTTP/2 upstream that shuts down after it has accepted a request. Its GOAWAY includes the request.
#[tokio::test]
async fn a_request_that_was_accepted_is_executed_once_over_http2() {
    for reason in [h2::Reason::NO_ERROR, h2::Reason::INTERNAL_ERROR] {
        let backend = Backend::start().await;
        let mut setup = Setup::to(backend.address);
        setup.upstream.protocol = Protocol::Http2;
        let proxy = setup.start().await;
        let mut client = proxy.client().await;
        client.write(WARM).await;
        let mut connection = h2::server::handshake(backend.accept().await.0).await.unwrap();
        let (_, mut respond) = within("request", connection.accept()).await.unwrap().unwrap();
        respond.send_response(Response::new(()), true).unwrap();
        let asking = async {
            client.read_head().await;
            client.write(RUN).await;
        };
        let (accepted, ()) = tokio::join!(within("request", connection.accept()), asking);
        let _accepted = accepted.unwrap().unwrap();
        connection.abrupt_shutdown(reason);
        tokio::select! {
            _ = std::future::poll_fn(|cx| connection.poll_closed(cx)) => {}
            () = settle() => {}
        }
        drop(connection);
        let head = client.read_head().await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{reason:?}: {head}");
        assert!(!backend.has_another().await, "{reason:?}");
    }
}
