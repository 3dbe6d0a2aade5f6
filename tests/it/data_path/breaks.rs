//! Tests responses that break off. The client receives everything that the proxy received, and then sees the break.

use std::io::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokengauge_types::event::Direction;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use super::protocols::http2;
use crate::support::certificate::Certificate;
use crate::support::{Backend, Proxy, Raw, Setup, settle, within};

/// Number of responses that each test breaks off. What was lost depended on timing.
const REPETITIONS: usize = 200;

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n";
const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Time after which an upload counts as stalled.
const STALLED: Duration = Duration::from_millis(200);

/// How an upstream breaks off a response.
#[derive(Clone, Copy, Debug)]
enum Break {
    /// RST.
    Reset,
    /// FIN between two chunks.
    Close,
    /// A chunk size that is not a number.
    BadChunk,
    /// A TLS record that cannot be decrypted.
    BadRecord,
}

fn events() -> Vec<String> {
    (0..10).map(|n| format!("data: {{\"n\":{n}}}\n\n")).collect()
}

/// The events as chunks, without the end of the body.
fn chunks() -> String {
    events().iter().map(|event| format!("{:x}\r\n{event}\r\n", event.len())).collect()
}

/// Answers each connection with headers and ten chunks, and then breaks off.
async fn serve(backend: Backend, how: Break, certificate: Option<Certificate>) {
    loop {
        let mut stream = backend.accept().await;
        let certificate = certificate.as_ref();
        match certificate {
            None => {
                stream.read_head().await;
                break_off(stream, how).await;
            }
            Some(certificate) => {
                let accepting = certificate.acceptor().accept(stream.0);
                let mut stream = Raw(within("handshake", accepting).await.unwrap());
                stream.read_head().await;
                break_off_tls(stream.0).await;
            }
        }
    }
}

async fn break_off(mut stream: Raw<TcpStream>, how: Break) {
    stream.write(HEAD).await;
    stream.write(chunks()).await;
    match how {
        Break::Reset => stream.0.set_zero_linger().unwrap(),
        Break::Close => {}
        Break::BadChunk => stream.write("no size\r\n").await,
        Break::BadRecord => unreachable!("only over TLS"),
    }
}

/// Writes the response and the invalid record as one piece, so that the proxy reads both together.
async fn break_off_tls(mut stream: tokio_rustls::server::TlsStream<TcpStream>) {
    let mut records = Vec::new();
    let (socket, session) = stream.get_mut();
    for part in [HEAD, &chunks()] {
        session.writer().write_all(part.as_bytes()).unwrap();
        while session.wants_write() {
            session.write_tls(&mut records).unwrap();
        }
    }
    // The header of a record with application data, and 32 bytes that no key decrypts.
    records.extend([0x17, 3, 3, 0, 32]);
    records.extend([0; 32]);
    socket.write_all(&records).await.unwrap();
    // The connection stays open until the proxy has read the record.
    drop(Raw(stream).read_to_end().await);
}

async fn start(how: Break) -> Proxy {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    let certificate = matches!(how, Break::BadRecord).then(Certificate::new);
    if let Some(certificate) = &certificate {
        setup = setup.tls(certificate);
    }
    // The file of the certificate is read here, before the task takes it.
    let proxy = setup.start().await;
    tokio::spawn(serve(backend, how, certificate));
    proxy
}

/// Asserts that `told` has one complete response of which the proxy observed all data, for each repetition.
async fn assert_observed(mut proxy: Proxy, failed: &str) {
    let words = proxy.words().await;
    assert_eq!(words.len(), REPETITIONS);
    assert!(words.iter().all(|word| word.ends_with(failed)), "{words:?}");
    let observed = proxy.observed(Direction::Response);
    assert_eq!(observed.len(), REPETITIONS * events().concat().len());
}

async fn every_byte_reaches_a_client_of_http1(how: Break) {
    let proxy = start(how).await;
    let mut complete = 0;
    for _ in 0..REPETITIONS {
        let mut client = proxy.client().await;
        client.write(GET).await;
        let response = String::from_utf8(client.read_to_end().await).unwrap();
        let body = response.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        complete += usize::from(body.eq_ignore_ascii_case(&chunks()));
    }
    assert_eq!(complete, REPETITIONS, "{how:?}: responses with all data and no end");
    assert_observed(proxy, "End(UpstreamFailed(MidBody))").await;
}

async fn every_byte_reaches_a_client_of_http2(how: Break) {
    let proxy = start(how).await;
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let mut sender = http2::<_, Empty<Bytes>>(stream).await;
    let mut complete = 0;
    for _ in 0..REPETITIONS {
        let request = Request::get("http://a/v1/models").body(Empty::new()).unwrap();
        let Ok(response) = within("head", sender.send_request(request)).await else { continue };
        let mut body = response.into_body();
        let mut received = Vec::new();
        let failed = loop {
            match within("frame", body.frame()).await {
                Some(Ok(frame)) => received.extend(frame.into_data().unwrap()),
                Some(Err(_)) => break true,
                None => break false,
            }
        };
        complete += usize::from(failed && received == events().concat().into_bytes());
    }
    assert_eq!(complete, REPETITIONS, "{how:?}: responses with all data and no end");
    assert_observed(proxy, "End(UpstreamFailed(MidBody))").await;
}

/// Tests a break directly after the headers, of which hyper keeps no body data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_before_a_reset_reach_the_client() {
    let (backend, proxy) = Proxy::with_backend().await;
    tokio::spawn(async move {
        loop {
            let mut stream = backend.accept().await;
            stream.read_head().await;
            stream.write(HEAD).await;
            stream.0.set_zero_linger().unwrap();
        }
    });
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let mut sender = http2::<_, Empty<Bytes>>(stream).await;
    let (mut over_http1, mut over_http2) = (0, 0);
    for _ in 0..REPETITIONS {
        let mut client = proxy.client().await;
        client.write(GET).await;
        let response = String::from_utf8(client.read_to_end().await).unwrap();
        over_http1 += usize::from(response.eq_ignore_ascii_case(HEAD));
        let request = Request::get("http://a/v1/models").body(Empty::new()).unwrap();
        if let Ok(response) = within("head", sender.send_request(request)).await {
            over_http2 +=
                usize::from(within("body", response.into_body().collect()).await.is_err());
        }
    }
    assert_eq!((over_http1, over_http2), (REPETITIONS, REPETITIONS));
}

/// Tests a client whose flow-control window is smaller than the response, and that reads late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_loses_nothing_that_a_client_of_http2_reads_late() {
    // More than the initial window of a stream, and less than the buffers between upstream and client.
    const LENGTH: usize = 80_000;
    let (backend, proxy) = Proxy::with_backend().await;
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let handshake = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(Some(65_535))
        .handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let answering = async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 80001\r\n\r\n").await;
        upstream.write(vec![b'x'; LENGTH]).await;
        upstream.0.set_zero_linger().unwrap();
    };
    let request = Request::get("http://a/").body(Empty::<Bytes>::new()).unwrap();
    let (response, ()) = tokio::join!(sender.send_request(request), answering);
    let mut body = response.unwrap().into_body();
    while proxy.channel.open_exchanges() > 0 {
        tokio::task::yield_now().await;
    }
    settle().await;
    let mut received = 0;
    while let Some(Ok(frame)) = within("frame", body.frame()).await {
        received += frame.into_data().unwrap().len();
    }
    assert_eq!(received, LENGTH);
}

/// Tests that the end of the connection is no orderly end, if it is the only end that a response has.
#[tokio::test]
async fn a_client_of_http_1_0_sees_a_reset() {
    let (backend, proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, "GET / HTTP/1.0\r\n\r\n").await;
    upstream.write(format!("{HEAD}{}", chunks())).await;
    drop(upstream);
    let mut received = Vec::new();
    let result = within("end", client.0.read_to_end(&mut received)).await;
    let error = result.expect_err("the response is not complete");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let received = String::from_utf8(received).unwrap();
    assert!(received.ends_with(&events().concat()), "{received}");
}

/// Tests that the connection to the client is not reset. A reset would discard the data in the proxy's socket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_chunk_loses_nothing_while_the_client_uploads() {
    // More than the client's receive buffer, and less than the proxy buffers for a client that does not read.
    const LENGTH: usize = 100_000;
    let (backend, proxy) = Proxy::with_backend().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut client = within("connect", socket.connect(proxy.address)).await.unwrap();
    let head = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    // The upstream does not read, so part of the upload stays unread in the socket of the proxy.
    let upload = vec![b'x'; 64 * 1024];
    while let Ok(written) = timeout(STALLED, client.write(&upload)).await {
        written.unwrap();
    }
    upstream.write(format!("{HEAD}{LENGTH:x}\r\n")).await;
    upstream.write(vec![b'y'; LENGTH]).await;
    upstream.write("\r\nno size\r\n").await;
    while proxy.channel.open_exchanges() > 0 {
        tokio::task::yield_now().await;
    }
    sleep(STALLED).await;
    let mut received = Vec::new();
    drop(within("response", client.read_to_end(&mut received)).await);
    assert_eq!(received.iter().filter(|byte| **byte == b'y').count(), LENGTH);
}

/// Tests an upstream that answers before it has read the request, and closes with unread data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_early_response_reaches_a_client_that_still_uploads() {
    const LENGTH: usize = 8 * 1024 * 1024;
    const RESPONSE: &str = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig";
    let (backend, proxy) = Proxy::with_backend().await;
    tokio::spawn(async move {
        loop {
            let mut stream = backend.accept().await;
            stream.read_head().await;
            stream.write(RESPONSE).await;
        }
    });
    for _ in 0..20 {
        let client = proxy.client().await;
        let (mut reading, mut writing) = client.0.into_split();
        let upload = tokio::spawn(async move {
            let head = format!(
                "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\nConnection: close\r\n\r\n"
            );
            drop(writing.write_all(head.as_bytes()).await);
            drop(writing.write_all(&vec![b'x'; LENGTH]).await);
            // If the client closed one direction, it would not get the response.
            writing
        });
        let mut response = Vec::new();
        drop(within("response", reading.read_to_end(&mut response)).await);
        let response = String::from_utf8(response).unwrap();
        assert!(response.starts_with("HTTP/1.1 413 ") && response.ends_with("big"), "{response}");
        upload.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_loses_nothing_over_http1() {
    every_byte_reaches_a_client_of_http1(Break::Reset).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_loses_nothing_over_http1() {
    every_byte_reaches_a_client_of_http1(Break::Close).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_chunk_loses_nothing_over_http1() {
    every_byte_reaches_a_client_of_http1(Break::BadChunk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tls_error_loses_nothing_over_http1() {
    every_byte_reaches_a_client_of_http1(Break::BadRecord).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_loses_nothing_over_http2() {
    every_byte_reaches_a_client_of_http2(Break::Reset).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_loses_nothing_over_http2() {
    every_byte_reaches_a_client_of_http2(Break::Close).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_chunk_loses_nothing_over_http2() {
    every_byte_reaches_a_client_of_http2(Break::BadChunk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tls_error_loses_nothing_over_http2() {
    every_byte_reaches_a_client_of_http2(Break::BadRecord).await;
}
