//! Tests limits of client connections: their number, their requests, and how long they may be silent.
//!
//! A test that lets a timeout pass waits for its effect on another connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::support::process::{CALL, DONE, Process, open};
use crate::support::{Backend, Proxy, Raw, Setup, settle, within};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const UPGRADE: &str =
    "GET /realtime HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

/// A time that passes within a test.
const SHORT: Duration = Duration::from_millis(50);

/// A time that does not pass within a test.
const LONG: Duration = Duration::from_secs(3_600);

type AnyBody = BoxBody<Bytes, Infallible>;
type Http2 = SendRequest<AnyBody>;

/// Opens an HTTP/2 connection. The task ends when the connection has closed.
async fn http2(proxy: &Proxy) -> (Http2, JoinHandle<hyper::Result<()>>) {
    let socket = TcpStream::connect(proxy.address).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket));
    let (sender, connection) = within("handshake", handshake).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn get(proxy: &Proxy) -> Request<AnyBody> {
    let uri = format!("http://{}/v1/models", proxy.address);
    Request::get(uri).body(Empty::new().boxed()).unwrap()
}

type Responding = JoinHandle<hyper::Result<Response<Incoming>>>;

fn send(sender: &Http2, request: Request<AnyBody>) -> Responding {
    let mut sender = sender.clone();
    tokio::spawn(async move { sender.send_request(request).await })
}

async fn response(responding: Responding) -> Response<Incoming> {
    within("a response", responding).await.unwrap().unwrap()
}

/// Performs one exchange on an HTTP/1 connection. The upstream connection closes after it.
async fn exchange(client: &mut Raw<TcpStream>, backend: &Backend) {
    client.write(GET).await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write(OK).await;
    client.read_head().await;
    assert_eq!(client.read_exactly(2).await, b"ok");
}

/// Returns both ends of a WebSocket.
async fn websocket(mut client: Raw<TcpStream>, backend: &Backend) -> [Raw<TcpStream>; 2] {
    client.write(UPGRADE).await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write(SWITCHING).await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 101 "));
    [client, upstream]
}

#[tokio::test]
async fn an_http2_connection_announces_100_streams() {
    let backend = Backend::start().await;
    let proxy = Setup::to(backend.address).start().await;
    let socket = TcpStream::connect(proxy.address).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket));
    let (sender, mut connection) = within("handshake", handshake).await.unwrap();
    let responding = send(&sender, get(&proxy));
    let exchange = async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write(OK).await;
        response(responding).await
    };
    tokio::select! {
        response = exchange => assert_eq!(response.status(), StatusCode::OK),
        ended = &mut connection => panic!("the connection has ended: {ended:?}"),
    }
    assert_eq!(connection.current_max_send_streams(), 100);
}

#[tokio::test]
async fn http2_streams_beyond_the_request_limit_get_503() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.pool_size = 0;
    setup.listen.max_requests = 3;
    let mut proxy = setup.start().await;
    let (first, _connection) = http2(&proxy).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let responding = send(&first, get(&proxy));
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        held.push((responding, upstream));
    }
    let (second, _connection) = http2(&proxy).await;
    let refused = response(send(&second, get(&proxy))).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "1");
    let body = refused.into_body().collect().await.unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["error"]["type"], "tokengauge_overload");
    let mut client = proxy.client().await;
    client.write(GET).await;
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 503 "), "the limit is shared by all connections: {head}");
    assert!(!backend.has_another().await);

    let (responding, mut upstream) = held.remove(0);
    upstream.write(OK).await;
    response(responding).await.into_body().collect().await.unwrap();
    let responding = send(&second, get(&proxy));
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write(OK).await;
    assert_eq!(response(responding).await.status(), StatusCode::OK, "a permit was returned");
    drop((held, first, second));
    assert_eq!(proxy.words().await.len(), 4, "refused requests are no exchanges");
}

#[tokio::test]
async fn a_websocket_counts_until_it_closes() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.pool_size = 0;
    setup.listen.max_requests = 1;
    let proxy = setup.start().await;
    let [client, mut upstream] = websocket(proxy.client().await, &backend).await;
    let mut other = proxy.client().await;
    other.write(GET).await;
    assert!(other.read_head().await.starts_with("HTTP/1.1 503 "));
    drop(client);
    assert_eq!(upstream.read_to_end().await, b"");
    drop(upstream);
    within("the permit", async {
        while proxy.channel.open_exchanges() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    settle().await;
    exchange(&mut proxy.client().await, &backend).await;

    let mut setup = Setup::to(backend.address);
    setup.listen.max_connections = 1;
    let proxy = setup.start().await;
    let websocket = websocket(proxy.client().await, &backend).await;
    let mut waiting = proxy.client().await;
    waiting.write(GET).await;
    assert!(!backend.has_another().await, "the WebSocket is the only connection");
    drop(websocket);
    backend.accept().await.read_head().await;
}

#[tokio::test]
async fn limits_fit_the_open_files_so_that_health_checks_are_answered() {
    let backend = Backend::start().await;
    let upstream = format!("http://{}", backend.address);
    let process = Process::with_open_files(128, &["--upstream", &upstream]).await;
    let lowered = [
        "listener limits lowered",
        "\"max_connections\":29",
        "\"max_requests\":26",
        "\"open_files\":128",
    ];
    process.logged(&lowered).await;
    let mut clients = Vec::new();
    let mut upstreams = Vec::new();
    for number in 0..150 {
        let mut client = process.client().await;
        client.write(GET).await;
        clients.push(client);
        if number < 26 {
            upstreams.push(backend.accept().await);
        }
    }
    process.logged(&["max_connections reached", "\"limit\":29"]).await;
    assert!(process.page("/livez").await.0.starts_with("HTTP/1.1 200 "));
    // Connections whose request was rejected are idle, and replaced by later ones.
    let open = process.count(&["self_connections_open"]).await;
    assert!((26..=29).contains(&open), "{open}");
    assert_eq!(process.count(&["self_connections_limit"]).await, 29);
    assert!(!backend.has_another().await);
}

/// Without a free descriptor, `accept` fails. A new client then waits in the kernel's backlog.
#[tokio::test]
async fn a_client_without_a_descriptor_waits_until_one_is_free() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    let (mut stream, mut upstream) = open(&process, &backend, CALL).await;
    process.limit_open_files(Some(0));
    let mut waiting = process.client().await;
    waiting.write(GET).await;
    process.logged(&["\"WARN\"", "cannot accept connections", "Too many open files"]).await;
    upstream.write(DONE).await;
    assert_eq!(stream.read_exactly(DONE.len()).await, DONE.as_bytes(), "a stream continues");
    drop(upstream);

    process.limit_open_files(None);
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write(OK).await;
    waiting.read_until("\r\n\r\nok").await;
    assert_eq!(process.log().matches("cannot accept").count(), 1, "one line for many attempts");
}

#[tokio::test]
async fn at_the_limit_a_new_client_replaces_the_one_that_has_waited_longest() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.pool_size = 0;
    setup.listen.max_connections = 4;
    let proxy = setup.start().await;
    let (mut busy, mut upstream) = proxy.exchange(&backend, GET).await;
    let mut idle = proxy.client().await;
    exchange(&mut idle, &backend).await;
    let (unused, connection) = http2(&proxy).await;
    let mut silent = proxy.client().await;
    silent.write("GET / HT").await;
    exchange(&mut idle, &backend).await;

    let mut new = proxy.client().await;
    exchange(&mut new, &backend).await;
    assert!(within("the HTTP/2 connection", connection).await.is_ok());
    drop(unused);
    let mut newer = proxy.client().await;
    exchange(&mut newer, &backend).await;
    assert_eq!(silent.read_to_end().await, b"", "the request never became complete");
    upstream.write(OK).await;
    busy.read_until("\r\n\r\nok").await;
    exchange(&mut new, &backend).await;
    exchange(&mut idle, &backend).await;
}

#[tokio::test]
async fn connections_that_are_closed_for_new_ones_are_counted() {
    const LIMIT: usize = 29;
    let process = Process::with_open_files(128, &["--upstream", "http://127.0.0.1:9"]).await;
    let mut clients = Vec::new();
    for _ in 0..LIMIT {
        let mut client = process.client().await;
        client.write(GET).await;
        assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
        clients.push(client);
    }
    assert_eq!(process.count(&["self_connections_evicted_total"]).await, 0);
    for _ in 0..2 {
        let mut client = process.client().await;
        client.write(GET).await;
        assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
        clients.push(client);
    }
    // A slow machine may close more connections before a permit is returned.
    let evicted = process.count(&["self_connections_evicted_total"]).await;
    assert!(evicted >= 2, "{evicted}");
    for client in &mut clients[..2] {
        client.read_to_end().await;
    }
    within("the other connections", async {
        while process.count(&["self_connections_open"]).await + evicted < clients.len() as u64 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Waits until the proxy closes a new connection because no headers arrive.
async fn header_timeout(proxy: &Proxy) {
    assert_eq!(proxy.client().await.read_to_end().await, b"");
}

#[tokio::test]
async fn an_idle_connection_outlives_the_header_timeout() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.pool_size = 0;
    setup.listen.head_timeout = SHORT;
    setup.listen.idle_timeout = LONG;
    let proxy = setup.start().await;
    let mut client = proxy.client().await;
    for _ in 0..3 {
        exchange(&mut client, &backend).await;
        header_timeout(&proxy).await;
    }
    client.write("GET / HTTP/1.1\r\n").await;
    assert_eq!(client.read_to_end().await, b"", "partial headers have the header timeout");
}

#[tokio::test]
async fn an_idle_connection_closes_and_a_long_response_does_not() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.pool_size = 0;
    setup.listen.idle_timeout = SHORT;
    setup.listen.body_timeout = SHORT;
    let proxy = setup.start().await;
    let (mut thinking, mut upstream) =
        proxy.exchange(&backend, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}").await;
    let [mut websocket, mut peer] = websocket(proxy.client().await, &backend).await;
    let mut idle = proxy.client().await;
    for _ in 0..2 {
        let mut idle = proxy.client().await;
        exchange(&mut idle, &backend).await;
        assert_eq!(idle.read_to_end().await, b"");
    }
    let (sender, connection) = http2(&proxy).await;
    assert!(
        within("GOAWAY on an unused connection", connection).await.unwrap().is_ok(),
        "never used"
    );
    drop(sender);
    let (sender, connection) = http2(&proxy).await;
    let responding = send(&sender, get(&proxy));
    let mut stream = backend.accept().await;
    stream.read_head().await;
    exchange(&mut idle, &backend).await;
    assert_eq!(idle.read_to_end().await, b"");
    assert!(!connection.is_finished(), "a stream is open");
    stream.write(OK).await;
    assert_eq!(response(responding).await.into_body().collect().await.unwrap().to_bytes(), "ok");
    assert!(within("GOAWAY", connection).await.unwrap().is_ok(), "idle after a stream");

    upstream.read_exactly(2).await;
    upstream.write(OK).await;
    thinking.read_until("\r\n\r\nok").await;
    peer.write("hello").await;
    assert_eq!(websocket.read_exactly(5).await, b"hello");
}

#[tokio::test]
async fn an_upload_that_stops_is_ended() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.listen.body_timeout = SHORT;
    let mut proxy = setup.start().await;
    let begin = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{\"a";
    let (mut client, mut upstream) = proxy.exchange(&backend, begin).await;
    let answer = String::from_utf8(client.read_to_end().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("request body is incomplete"), "{answer}");
    assert_eq!(upstream.read_to_end().await, b"{\"a");
    let words = proxy.words().await;
    assert!(words[0].ends_with("End(RequestBodyFailed)"), "{words:?}");
}

#[tokio::test]
async fn a_two_way_stream_may_be_silent_for_longer_and_not_forever() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.listen.body_timeout = 4 * SHORT;
    let proxy = setup.start().await;
    let (sender, _connection) = http2(&proxy).await;
    let post = |kind: &str| {
        let uri = format!("http://{}/x", proxy.address);
        Request::post(uri).header("content-type", kind).body(Silent.boxed()).unwrap()
    };
    let two_way = send(&sender, post("application/grpc"));
    let mut peer = backend.accept().await;
    peer.read_head().await;
    let upload = send(&sender, post("application/json"));
    let _upstream = backend.accept().await;
    assert_eq!(response(upload).await.status(), StatusCode::BAD_REQUEST);
    assert!(!two_way.is_finished());
    peer.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let mut answer = response(two_way).await;
    assert_eq!(answer.status(), StatusCode::OK);
    // The client sends nothing for longer than its limit of 2 s, but the response continues.
    for _ in 0..60 {
        peer.write("1\r\na\r\n").await;
        within("a message", answer.frame()).await.unwrap().unwrap();
        tokio::time::sleep(SHORT).await;
    }
    let rest = within("the end of the stream", answer.collect()).await;
    assert!(rest.is_err(), "both sides were silent");
    peer.read_to_end().await;
}

/// Over HTTP/1, a client cannot read the response during its upload, so the content type has no effect.
#[tokio::test]
async fn the_content_type_of_an_http1_upload_does_not_change_its_time_limit() {
    for kind in ["application/grpc", "application/grpc+proto", "application/vnd.amazon.eventstream"]
    {
        let backend = Backend::start().await;
        let mut setup = Setup::to(backend.address);
        setup.listen.body_timeout = SHORT;
        let mut proxy = setup.start().await;
        let begin = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: 10\r\n\r\n{{\"a"
        );
        let (mut client, _upstream) = proxy.exchange(&backend, begin).await;
        let answer = String::from_utf8(client.read_to_end().await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{kind}: {answer}");
        let words = proxy.words().await;
        assert!(words[0].ends_with("End(RequestBodyFailed)"), "{kind}: {words:?}");
    }
}

/// Returns a connection from another address of this machine.
#[cfg(target_os = "linux")]
async fn client_at(proxy: &Proxy, last_byte: u8) -> Raw<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last_byte], 0).into()).unwrap();
    Raw(socket.connect(proxy.address).await.unwrap())
}

/// One client has taken every request slot with a few HTTP/2 connections.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn one_client_with_every_request_slot_does_not_lock_out_others() {
    const SLOTS: usize = 16;
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.pool_size = 0;
    setup.listen.max_requests = SLOTS;
    let proxy = setup.start().await;
    let (first, _connection) = http2(&proxy).await;
    let (second, _connection) = http2(&proxy).await;
    let mut held = Vec::new();
    for number in 0..SLOTS {
        let sender = if number % 2 == 0 { &first } else { &second };
        let responding = send(sender, get(&proxy));
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        held.push((responding, upstream));
    }
    let refused = response(send(&first, get(&proxy))).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "the client has every slot");

    let mut other = client_at(&proxy, 2).await;
    for _ in 0..3 {
        exchange(&mut other, &backend).await;
    }
    // A slot that the first client returns serves the others first.
    let mut running = Vec::new();
    for last_byte in [2, 3] {
        let mut client = client_at(&proxy, last_byte).await;
        client.write(GET).await;
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        running.push((client, upstream));
    }
    let (responding, mut upstream) = held.remove(0);
    upstream.write(OK).await;
    response(responding).await.into_body().collect().await.unwrap();
    let refused = response(send(&second, get(&proxy))).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "more than an equal share");
    exchange(&mut other, &backend).await;
    assert!(held.iter().all(|(responding, _)| !responding.is_finished()), "no request is aborted");
}

/// A request body that stays open and sends nothing.
struct Silent;

impl Body for Silent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

#[tokio::test]
async fn websockets_have_the_grace_period() {
    let backend = Backend::start().await;
    let mut process = Process::before(backend.address).await;
    let [mut client, mut upstream] = websocket(process.client().await, &backend).await;
    let (mut stream, mut at_stream) = open(&process, &backend, CALL).await;
    process.signal("TERM");
    process.logged(&["draining before shutdown"]).await;
    at_stream.write(DONE).await;
    assert_eq!(stream.read_to_end().await, DONE.as_bytes(), "the last HTTP connection ends");
    for _ in 0..3 {
        settle().await;
        client.write("ping").await;
        assert_eq!(upstream.read_exactly(4).await, b"ping");
        upstream.write("pong").await;
        assert_eq!(client.read_exactly(4).await, b"pong");
    }
    drop(client);
    assert_eq!(upstream.read_to_end().await, b"");
    drop(upstream);
    assert_eq!(process.ended().await.code(), Some(0));
    assert!(!process.log().contains("exchanges_cut"), "{}", process.log());
}
