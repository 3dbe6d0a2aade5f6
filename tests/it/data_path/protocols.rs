//! Tests upgrades, HTTP/2, TLS, HTTP proxies and Unix sockets.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Version};
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokengauge::forward::Protocol;
use tokengauge_listen::{Address, Tls};
use tokengauge_types::event::{ConnectTimings, Direction, ObserverEvent, TimestampedEvent};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::support::certificate::Certificate;
use crate::support::{Backend, Proxy, Raw, Setup, lines, settle, within};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn an_upgrade_passes_bytes_both_ways_even_directly_after_the_101() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client
        .write("GET /realtime HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n")
        .await;
    let mut upstream = backend.accept().await;
    let head = upstream.read_head().await;
    assert!(
        head.contains("Connection: Upgrade\r\n") && head.contains("Upgrade: websocket\r\n"),
        "{head}"
    );
    upstream
        .write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: a\r\n\r\nearly")
        .await;
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("Upgrade: websocket\r\n"), "{head}");
    assert_eq!(client.read_exactly(5).await, b"early");
    client.write("ping").await;
    assert_eq!(upstream.read_exactly(4).await, b"ping");
    upstream.write("pong").await;
    assert_eq!(client.read_exactly(4).await, b"pong");
    drop(client);
    assert_eq!(upstream.read_to_end().await, b"");
    drop(upstream);
    let words = proxy.words().await;
    assert!(
        words[0].starts_with(
            "Open Admitted Connected RequestHeadSent RequestBodySent Head(101) Upgraded Arrival(Response)"
        ),
        "{words:?}"
    );
    let end = " Closed(Request) Closed(Response) Complete";
    assert!(
        words[0].ends_with(end),
        "the events name the side that closed and the ending: {words:?}"
    );
    assert_eq!(proxy.observed(Direction::Request), b"ping");
    assert_eq!(proxy.observed(Direction::Response), b"earlypong");
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_response() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client
        .write("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    let words = proxy.words().await;
    assert!(words[0].ends_with("Head(200) Arrival(Response) Complete"), "{words:?}");
}

/// Tests that an upgrade to h2c cannot hide behind one to a WebSocket. Requests inside would bypass the routes.
#[tokio::test]
async fn forwards_an_upgrade_to_websocket_only() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client
        .write("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: websocket\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
        .await;
    let mut upstream = backend.accept().await;
    let head = upstream.read_head().await.to_ascii_lowercase();
    assert!(head.contains("\r\nupgrade: websocket\r\n"), "{head}");
    assert!(!head.contains("h2c") && !head.contains("http2"), "{head}");
    // An upstream that answers with another protocol nevertheless reaches no client.
    upstream
        .write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        .await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
    let words = proxy.words().await;
    assert!(words[0].ends_with("Own(502) End(UpstreamFailed(Protocol))"), "{words:?}");
}

#[tokio::test]
async fn removes_an_upgrade_to_another_protocol() {
    for settings in ["", "HTTP2-Settings: AAMAAABk\r\n"] {
        let (backend, proxy) = Proxy::with_backend().await;
        let mut client = proxy.client().await;
        client
            .write(format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c, TLS/1.0\r\n{settings}\r\n"))
            .await;
        let mut upstream = backend.accept().await;
        let head = upstream.read_head().await.to_ascii_lowercase();
        assert!(!head.contains("upgrade") && !head.contains("http2"), "{head}");
        upstream
            .write(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
            )
            .await;
        assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
    }
}

#[tokio::test]
async fn aborts_an_upgraded_exchange_that_outlasts_the_drain() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client
        .write("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nx").await;
    client.read_until("\r\n\r\nx").await;
    proxy.forwarder.abort();
    assert_eq!(client.read_to_end().await, b"");
    let words = proxy.words().await;
    assert!(words[0].ends_with("Upgraded Arrival(Response) End(Drained)"), "{words:?}");
}

pub(super) async fn http2<T, B>(stream: T) -> SendRequest<B>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    B: http_body::Body<Data = Bytes, Error: Send + Sync + std::error::Error>
        + Send
        + Unpin
        + 'static,
{
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    sender
}

/// Tests that the proxy does not offer WebSockets over HTTP/2.
///
/// Such a WebSocket is an extended CONNECT request (RFC 8441). A client may send it only if the server offers it.
#[tokio::test]
async fn does_not_offer_websockets_over_http2() {
    let (backend, proxy) = Proxy::with_backend().await;
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, mut connection) = handshake.await.unwrap();
    let request = Request::get("http://a/").body(Empty::<Bytes>::new()).unwrap();
    let answering = async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write(OK).await;
    };
    let answered = async { tokio::join!(sender.send_request(request), answering).0 };
    let response = tokio::select! {
        response = within("answer", answered) => response,
        ended = &mut connection => panic!("{ended:?}"),
    };
    assert_eq!(response.unwrap().version(), Version::HTTP_2);
    assert!(!connection.is_extended_connect_protocol_enabled());
}

#[tokio::test]
async fn accepts_http2_with_prior_knowledge_and_forwards_http1() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let mut sender = http2::<_, Empty<Bytes>>(stream).await;
    let request = Request::get("http://asked.example/v1/x?q").body(Empty::new()).unwrap();
    let answering = async {
        let mut upstream = backend.accept().await;
        let head = upstream.read_head().await;
        upstream.write("HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").await;
        (upstream, head)
    };
    let (response, (_upstream, head)) = tokio::join!(sender.send_request(request), answering);
    assert_eq!(lines(&head), ["GET /v1/x?q HTTP/1.1", &format!("host: {}", backend.address)]);
    let response = response.unwrap();
    assert_eq!(response.version(), Version::HTTP_2);
    let body = within("body", response.into_body().collect()).await.unwrap();
    assert_eq!(body.to_bytes(), "ok");
    let words = proxy.words().await;
    assert!(words[0].ends_with("Head(200) Arrival(Response) Complete"), "{words:?}");
    assert_eq!(proxy.opened().host.as_ref().unwrap().as_str(), "asked.example");
}

#[tokio::test]
async fn cookies_of_http2_are_joined_for_http1() {
    let (backend, proxy) = Proxy::with_backend().await;
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let mut sender = http2::<_, Empty<Bytes>>(stream).await;
    let request = Request::get("http://a/").header("cookie", "a=1").header("cookie", "b=2");
    let request = request.body(Empty::new()).unwrap();
    let answering = async {
        let mut upstream = backend.accept().await;
        let head = upstream.read_head().await;
        upstream.write(OK).await;
        (upstream, head)
    };
    let (response, (_upstream, head)) = tokio::join!(sender.send_request(request), answering);
    assert!(response.unwrap().status().is_success());
    let cookies: Vec<_> = lines(&head).into_iter().filter(|it| it.starts_with("cookie")).collect();
    assert_eq!(cookies, ["cookie: a=1; b=2"]);
}

#[tokio::test]
async fn a_reset_http2_stream_closes_its_upstream_only() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let mut sender = http2::<_, Empty<Bytes>>(stream).await;
    let request = || Request::get("http://a/").body(Empty::new()).unwrap();
    let answering = async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await;
        upstream
    };
    let (response, mut left) = tokio::join!(sender.send_request(request()), answering);
    drop(response.unwrap());
    left.read_to_end().await;
    let answering = async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write(OK).await;
        upstream
    };
    let (response, _upstream) = tokio::join!(sender.send_request(request()), answering);
    let body = within("body", response.unwrap().into_body().collect()).await.unwrap();
    assert_eq!(body.to_bytes(), "ok");
    let words = proxy.words().await;
    assert!(
        words[0].ends_with("End(ClientDisconnected)") && words[1].ends_with("Complete"),
        "{words:?}"
    );
}

/// Runs an HTTP/2 upstream that answers with the request's body and a trailer, as gRPC does.
async fn grpc_echo<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(stream: T) {
    let service =
        hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async move {
            assert_eq!(request.headers().get("te").unwrap(), "trailers");
            assert_eq!(request.uri().path(), "/pkg.Service/Call");
            let body = request.into_body().collect().await?.to_bytes();
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            let body = Full::new(body).with_trailers(async { Some(Ok(trailers)) });
            hyper::Result::Ok(http::Response::new(body))
        });
    drop(
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await,
    );
}

#[tokio::test]
async fn grpc_passes_over_http2_with_its_trailers() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.protocol = Protocol::Http2;
    let mut proxy = setup.start().await;
    let serving = tokio::spawn(async move {
        let upstream = backend.accept().await;
        tokio::spawn(grpc_echo(upstream.0));
        backend
    });
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let mut sender = http2(stream).await;
    for _ in 0..2 {
        let request = Request::post("http://a/pkg.Service/Call")
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(Full::new(Bytes::from_static(b"\0\0\0\0\x02hi")))
            .unwrap();
        let response = within("answer", sender.send_request(request)).await.unwrap();
        let body = within("body", response.into_body().collect()).await.unwrap();
        assert_eq!(body.trailers().unwrap().get("grpc-status").unwrap(), "0");
        assert_eq!(body.to_bytes().as_ref(), b"\0\0\0\0\x02hi");
    }
    let backend = serving.await.unwrap();
    assert!(!backend.has_another().await, "all streams share one connection");
    // While the connection is being opened, the body may arrive.
    let words = proxy.words().await;
    assert!(words.iter().all(|word| word.matches("Arrival(Request)").count() == 1), "{words:?}");
    let words: Vec<_> =
        words.iter().map(|word| word.replacen(" Arrival(Request)", "", 1)).collect();
    let rest =
        "RequestHeadSent RequestBodySent Head(200) Arrival(Response) Trailers(Response) Complete";
    assert_eq!(
        words,
        [format!("Open Admitted Connected {rest}"), format!("Open Admitted Reused {rest}")]
    );
}

impl Setup {
    /// Connects to the upstream with TLS, as `localhost`, and trusts `certificate`.
    pub(super) fn tls(mut self, certificate: &Certificate) -> Self {
        self.upstream.tls = true;
        self.upstream.host = "localhost".to_owned();
        self.upstream.ca_file = Some(certificate.file());
        self
    }
}

#[tokio::test]
async fn terminates_tls_with_http1_or_http2_by_alpn() {
    let certificate = Certificate::new();
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.listen.tls = Some(Tls { certificate: certificate.file(), key: certificate.key() });
    let mut proxy = setup.start().await;

    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let mut client = Raw(certificate.connect(stream, &["http/1.1"]).await);
    client.write(GET).await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    proxy.words().await;
    assert_eq!(proxy.opened().scheme.as_str(), "https");

    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let mut sender = http2(certificate.connect(stream, &["h2"]).await).await;
    let request = Request::get("https://localhost/").body(Empty::<Bytes>::new()).unwrap();
    let answering = async {
        upstream.read_head().await;
        upstream.write(OK).await;
    };
    let (response, ()) = tokio::join!(sender.send_request(request), answering);
    assert_eq!(response.unwrap().version(), Version::HTTP_2);
}

#[tokio::test]
async fn connects_with_tls_and_an_unknown_issuer_returns_502() {
    let certificate = Certificate::new();
    let backend = Backend::start().await;
    let setup = Setup::to(backend.address).tls(&certificate);
    let mut proxy = setup.start().await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    let accepting = certificate.acceptor().accept(backend.accept().await.0);
    let mut upstream = Raw(within("handshake", accepting).await.unwrap());
    upstream.read_head().await;
    upstream.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    let words = proxy.words().await;
    assert!(words[0].ends_with("Complete"), "{words:?}");

    let mut setup = Setup::to(backend.address);
    setup.upstream.tls = true;
    setup.upstream.host = "localhost".to_owned();
    let mut proxy = setup.start().await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    let accepting = certificate.acceptor().accept(backend.accept().await.0);
    assert!(within("handshake", accepting).await.is_err());
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert_eq!(proxy.words().await, ["Open Admitted Own(502) End(UpstreamFailed(Tls))"]);
}

#[tokio::test]
async fn an_upstream_that_supports_only_http1_gets_http1() {
    let certificate = Certificate::new();
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address).tls(&certificate);
    setup.upstream.protocol = Protocol::Http2;
    let proxy = setup.start().await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    let accepting = certificate.acceptor().accept(backend.accept().await.0);
    let mut upstream = Raw(within("handshake", accepting).await.unwrap());
    let head = upstream.read_head().await;
    let host = format!("host: localhost:{}", backend.address.port());
    assert_eq!(lines(&head.to_ascii_lowercase()), ["get /v1/models http/1.1", host.as_str()]);
}

#[tokio::test]
async fn reports_connect_stages_for_the_connecting_and_the_waiting_request() {
    let certificate = Certificate::new();
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address).tls(&certificate);
    setup.upstream.protocol = Protocol::Http2;
    let mut proxy = setup.start().await;
    let (mut first, mut second) = (proxy.client().await, proxy.client().await);
    let request =
        "POST /pkg.Service/Call HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nContent-Length: 2\r\n\r\nhi";
    first.write(request).await;
    // The TCP connection is open, and its TLS handshake waits for this test.
    let stream = backend.accept().await.0;
    second.write(request).await;
    while proxy.channel.open_exchanges() < 2 {
        tokio::task::yield_now().await;
    }
    settle().await;
    let accepting = certificate.acceptor_of(&["h2"]).accept(stream);
    let upstream = within("handshake", accepting).await.unwrap();
    tokio::spawn(grpc_echo(upstream));
    for client in [&mut first, &mut second] {
        client.read_until("hi").await;
    }
    proxy.words().await;
    let [made, waited] = [1, 2].map(|id| connected(&proxy, id));
    let parts = |connected: &ConnectTimings| -> Vec<&str> {
        let stages = connected.stages();
        stages.map(|(stage, _)| stage.as_str()).collect()
    };
    assert_eq!((parts(made), made.reused), (vec!["dns", "tcp", "tls"], false));
    assert_eq!((parts(waited), waited.reused), (vec!["wait"], true));
    for (id, connected) in [(1, made), (2, waited)] {
        let at = |wanted: fn(&ObserverEvent) -> bool| {
            let of_this =
                |entry: &&TimestampedEvent| entry.exchange.0 == id && wanted(&entry.event);
            proxy.entries().iter().find(of_this).unwrap().at
        };
        let all: Duration = connected.stages().map(|(_, length)| length).sum();
        let stage = at(|word| matches!(word, ObserverEvent::RequestHeadSent))
            - at(|word| matches!(word, ObserverEvent::Admitted));
        assert!(!all.is_zero() && all <= stage, "{all:?} of {stage:?}");
    }
    let (one, two) = (made.connection.as_ref(), waited.connection.as_ref());
    assert!(Arc::ptr_eq(one.unwrap(), two.unwrap()), "the connection is reused");
}

fn connected(proxy: &Proxy, exchange: u64) -> &ConnectTimings {
    let mut said = proxy.entries().iter();
    let found = said.find_map(|entry| {
        let ObserverEvent::Connected(connected) = &entry.event else {
            return None;
        };
        (entry.exchange.0 == exchange).then_some(connected)
    });
    found.unwrap()
}

#[tokio::test]
async fn reaches_an_https_upstream_through_a_proxy_tunnel() {
    let certificate = Certificate::new();
    let between = Backend::start().await;
    let mut setup = Setup::to("127.0.0.1:9".parse().unwrap()).tls(&certificate);
    setup.upstream.proxy = Some(through(between.address, Some("user:pass")));
    let proxy = setup.start().await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    let mut tunnel = between.accept().await;
    let head = tunnel.read_head().await;
    assert_eq!(
        lines(&head),
        [
            "CONNECT localhost:9 HTTP/1.1",
            "Host: localhost:9",
            "Proxy-Authorization: Basic dXNlcjpwYXNz"
        ]
    );
    tunnel.write("HTTP/1.1 200 Connection established\r\n\r\n").await;
    let accepting = certificate.acceptor().accept(tunnel.0);
    let mut upstream = Raw(within("handshake", accepting).await.unwrap());
    let head = upstream.read_head().await;
    assert!(!head.contains("Proxy-Authorization"), "{head}");
    upstream.write(OK).await;
    client.read_until("\r\n\r\nok").await;
}

#[tokio::test]
async fn a_refused_proxy_tunnel_returns_502() {
    let between = Backend::start().await;
    let mut setup = Setup::to("127.0.0.1:9".parse().unwrap());
    setup.upstream.tls = true;
    setup.upstream.host = "localhost".to_owned();
    setup.upstream.proxy = Some(through(between.address, None));
    let mut proxy = setup.start().await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    let mut tunnel = between.accept().await;
    tunnel.read_head().await;
    tunnel.write("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert_eq!(proxy.words().await, ["Open Admitted Own(502) End(UpstreamFailed(Connect))"]);
}

#[tokio::test]
async fn sends_the_absolute_url_of_an_http_upstream_to_the_proxy() {
    let between = Backend::start().await;
    let mut setup = Setup::to("127.0.0.1:9".parse().unwrap());
    setup.upstream.host = "upstream.example".to_owned();
    setup.upstream.proxy = Some(through(between.address, Some("u:p")));
    let proxy = setup.start().await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    let head = between.accept().await.read_head().await;
    let head = head.to_ascii_lowercase();
    let mut got = lines(&head);
    got.sort_unstable();
    assert_eq!(
        got,
        [
            "get http://upstream.example:9/v1/models http/1.1",
            "host: upstream.example:9",
            "proxy-authorization: basic dtpw"
        ]
    );
}

#[tokio::test]
async fn serves_a_unix_socket_and_replaces_an_unused_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.listen.address = Address::Unix(path.clone());
    let mut proxy = setup.start().await;
    let mut client = Raw(UnixStream::connect(&path).await.unwrap());
    client.write(GET).await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    proxy.words().await;
    assert_eq!(proxy.opened().client, None);
    drop(proxy.stop().await);
    assert!(!path.exists(), "the listener removes its file");
}

fn through(address: std::net::SocketAddr, credentials: Option<&str>) -> tokengauge::forward::Proxy {
    tokengauge::forward::Proxy::new(&address.ip().to_string(), address.port(), credentials)
}
