//! Tests failures: the result that the client and the upstream get, and the reported error source.

use std::net::SocketAddr;
use std::time::Duration;

use tokengauge::forward::ConcurrencyLimit;
use tokengauge_listen::Address;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Backend, Proxy, Setup, lines, settle};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Returns the response's status line and JSON error.
async fn answer_to(proxy: &Proxy, request: &str) -> (String, serde_json::Value) {
    let mut client = proxy.client().await;
    client.write(request).await;
    let head = client.read_head().await;
    let length = lines(&head)
        .iter()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
        .unwrap();
    let body = client.read_exactly(length).await;
    (lines(&head)[0].to_owned(), serde_json::from_slice(&body).unwrap())
}

async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

#[tokio::test]
async fn a_refused_connection_returns_502_with_the_reason() {
    let mut proxy = Proxy::to(nobody().await).await;
    let (status, error) = answer_to(&proxy, GET).await;
    assert_eq!(status, "HTTP/1.1 502 Bad Gateway");
    let error = &error["error"];
    assert_eq!(error["type"], "tokengauge_upstream_connect");
    assert_eq!(error["code"], 502);
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("tokengauge: ") && message.contains("refused"), "{message}");
    assert_eq!(proxy.words().await, ["Open Admitted Own(502) End(UpstreamFailed(Connect))"]);
}

#[tokio::test]
async fn an_unresolvable_name_returns_502() {
    let mut setup = Setup::to(nobody().await);
    setup.upstream.host = "no-such-host.invalid".to_owned();
    let mut proxy = setup.start().await;
    let (status, error) = answer_to(&proxy, GET).await;
    assert_eq!(status, "HTTP/1.1 502 Bad Gateway");
    assert_eq!(error["error"]["type"], "tokengauge_upstream_dns");
    assert_eq!(proxy.words().await, ["Open Admitted Own(502) End(UpstreamFailed(Dns))"]);
}

#[tokio::test]
async fn a_header_timeout_returns_504_and_closes_the_upstream() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.timeouts.response_header = Some(Duration::from_millis(50));
    let mut proxy = setup.start().await;
    let (status, error) = answer_to(&proxy, GET).await;
    assert_eq!(status, "HTTP/1.1 504 Gateway Timeout");
    assert_eq!(error["error"]["type"], "tokengauge_upstream_timeout");
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    assert_eq!(upstream.read_to_end().await, b"");
    assert_eq!(
        proxy.words().await,
        [
            "Open Admitted Connected RequestHeadSent RequestBodySent Own(504) End(TimedOut(ResponseHeader))"
        ]
    );
}

#[tokio::test]
async fn the_idle_limit_truncates_a_silent_stream() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.timeouts.idle = Some(Duration::from_millis(50));
    let mut proxy = setup.start().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write(format!("{CHUNKED}1\r\na\r\n")).await;
    client.read_head().await;
    assert_eq!(client.read_to_end().await, b"1\r\na\r\n");
    assert_eq!(upstream.read_to_end().await, b"");
    assert_eq!(
        proxy.words().await,
        [
            "Open Admitted Connected RequestHeadSent RequestBodySent Head(200) Arrival(Response) End(TimedOut(Idle))"
        ]
    );
}

#[tokio::test]
async fn the_total_limit_ends_an_active_stream() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.timeouts.total = Some(Duration::from_millis(200));
    let mut proxy = setup.start().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write(format!("{CHUNKED}1\r\na\r\n")).await;
    client.read_head().await;
    assert_eq!(client.read_to_end().await, b"1\r\na\r\n");
    let words = proxy.words().await;
    assert!(words[0].ends_with("End(TimedOut(Total))"), "{words:?}");
}

#[tokio::test]
async fn a_close_before_the_headers_returns_502_without_a_retry() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let asking = answer_to(&proxy, "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na");
    let closing = async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.read_exactly(1).await;
    };
    let ((status, error), ()) = tokio::join!(asking, closing);
    assert_eq!(status, "HTTP/1.1 502 Bad Gateway");
    assert_eq!(error["error"]["type"], "tokengauge_upstream_closed");
    assert!(!backend.has_another().await, "the request was not retried");
    assert_eq!(
        proxy.words().await,
        [
            "Open Admitted Arrival(Request) Connected RequestHeadSent RequestBodySent Own(502) End(UpstreamFailed(BeforeResponse))"
        ]
    );
}

#[tokio::test]
async fn a_response_that_is_not_http_returns_502() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let asking = answer_to(&proxy, GET);
    let answering = async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write("SSH-2.0-OpenSSH_9.6\r\n\r\n").await;
        upstream
    };
    let ((status, error), _upstream) = tokio::join!(asking, answering);
    assert_eq!(status, "HTTP/1.1 502 Bad Gateway");
    assert_eq!(error["error"]["type"], "tokengauge_upstream_protocol");
    let words = proxy.words().await;
    assert!(words[0].ends_with("Own(502) End(UpstreamFailed(Protocol))"), "{words:?}");
}

/// Returns the status line and the error of the client, if the upstream sends `response`.
async fn answer_of(response: &str) -> (String, serde_json::Value) {
    let (backend, proxy) = Proxy::with_backend().await;
    let answering = async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write(response).await;
        upstream
    };
    let (answer, _upstream) = tokio::join!(answer_to(&proxy, GET), answering);
    answer
}

#[tokio::test]
async fn a_transfer_coding_other_than_chunked_is_refused() {
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n";
    let (status, error) = answer_of(response).await;
    assert_eq!(status, "HTTP/1.1 502 Bad Gateway");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("a transfer coding other than chunked"), "{message}");

    let (backend, proxy) = Proxy::with_backend().await;
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n";
    let (status, error) = answer_to(&proxy, request).await;
    assert_eq!(status, "HTTP/1.1 400 Bad Request");
    assert_eq!(error["error"]["type"], "tokengauge_bad_request");
    assert!(!backend.has_another().await, "the request was not forwarded");
}

#[tokio::test]
async fn a_response_with_too_many_headers_returns_502_with_the_limit() {
    let headers: String = (0..501).map(|number| format!("X-{number}: a\r\n")).collect();
    let (status, error) = answer_of(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n")).await;
    assert_eq!(status, "HTTP/1.1 502 Bad Gateway");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("limits.header_lines"), "{message}");
}

#[tokio::test]
async fn an_error_before_the_end_of_the_request_announces_the_close() {
    let proxy = Proxy::to(nobody().await).await;
    let mut client = proxy.client().await;
    client.write("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nab").await;
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(head.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{head}");
}

#[tokio::test]
async fn a_close_mid_chunk_truncates_and_never_ends_cleanly() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write(format!("{CHUNKED}5\r\nhello\r\n5\r\nwo")).await;
    client.read_head().await;
    client.read_until("hello\r\n").await;
    drop(upstream);
    let rest = client.read_to_end().await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
    assert_eq!(
        proxy.words().await,
        [
            "Open Admitted Connected RequestHeadSent RequestBodySent Head(200) Arrival(Response) End(UpstreamFailed(MidBody))"
        ]
    );
}

#[tokio::test]
async fn an_incomplete_length_framed_body_is_truncated() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await;
    client.read_head().await;
    drop(upstream);
    assert_eq!(client.read_to_end().await, b"hello");
    let words = proxy.words().await;
    assert!(words[0].ends_with("End(UpstreamFailed(MidBody))"), "{words:?}");
}

/// An upstream that closes only its sending side cannot complete its response, so its connection is closed.
#[tokio::test]
async fn an_upstream_that_closes_its_sending_side_has_broken_off() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.0.shutdown().await.unwrap();
    assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
    assert_eq!(upstream.read_to_end().await, b"");

    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write(format!("{CHUNKED}5\r\nhello\r\n")).await;
    upstream.0.shutdown().await.unwrap();
    client.read_head().await;
    assert_eq!(client.read_to_end().await, b"5\r\nhello\r\n", "the end of the body is missing");
    assert_eq!(upstream.read_to_end().await, b"");
    let words = proxy.words().await;
    assert!(words[0].ends_with("End(UpstreamFailed(BeforeResponse))"), "{words:?}");
    assert!(words[1].ends_with("End(UpstreamFailed(MidBody))"), "{words:?}");
}

#[tokio::test]
async fn a_client_disconnect_mid_stream_closes_the_upstream() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write(format!("{CHUNKED}1\r\na\r\n")).await;
    client.read_until("a\r\n").await;
    drop(client);
    assert_eq!(upstream.read_to_end().await, b"", "the connection closes without more data");
    assert_eq!(
        proxy.words().await,
        [
            "Open Admitted Connected RequestHeadSent RequestBodySent Head(200) Arrival(Response) End(ClientDisconnected)"
        ]
    );
}

#[tokio::test]
async fn a_client_disconnect_before_the_headers_closes_the_upstream() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (client, mut upstream) = proxy.exchange(&backend, GET).await;
    drop(client);
    assert_eq!(upstream.read_to_end().await, b"");
    assert_eq!(
        proxy.words().await,
        ["Open Admitted Connected RequestHeadSent RequestBodySent End(ClientDisconnected)"]
    );
}

#[tokio::test]
async fn an_aborted_upload_is_recorded_as_a_client_error() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (client, mut upstream) = proxy
        .exchange(&backend, "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
        .await;
    assert_eq!(upstream.read_exactly(3).await, b"abc");
    drop(client);
    assert_eq!(upstream.read_to_end().await, b"", "the upload is incomplete, too");
    assert_eq!(
        proxy.words().await,
        ["Open Admitted Arrival(Request) Connected RequestHeadSent End(RequestBodyFailed)"]
    );
}

#[tokio::test]
async fn reuses_idle_connections_and_not_closed_ones() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    let mut upstream = backend.accept().await;
    for _ in 0..2 {
        upstream.read_head().await;
        upstream.write(format!("{CHUNKED}1\r\na\r\n0\r\n\r\n")).await;
        client.read_until("0\r\n\r\n").await;
        client.write(GET).await;
    }
    upstream.read_head().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na").await;
    drop(upstream);
    client.read_until("\r\n\r\na").await;
    settle().await;
    client.write(GET).await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb").await;
    client.read_until("\r\n\r\nb").await;
    let end = "RequestHeadSent RequestBodySent Head(200) Arrival(Response) Complete";
    assert_eq!(
        proxy.words().await,
        [
            format!("Open Admitted Connected {end}"),
            format!("Open Admitted Reused {end}"),
            format!("Open Admitted Reused {end}"),
            format!("Open Admitted Connected {end}"),
        ]
    );
}

#[tokio::test]
async fn does_not_pool_a_connection_that_the_upstream_will_close() {
    let (backend, proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na").await;
    let head = client.read_head().await;
    assert!(!head.to_ascii_lowercase().contains("connection"), "{head}");
    assert_eq!(client.read_exactly(1).await, b"a");
    assert_eq!(upstream.read_to_end().await, b"", "the connection is closed and not pooled");
    client.write(GET).await;
    backend.accept().await.read_head().await;
}

#[tokio::test]
async fn no_route_returns_404_and_overload_429() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.prefix = "/v1".to_owned();
    setup.admission = Some(ConcurrencyLimit {
        max_in_flight: 1,
        max_queue: 0,
        queue_timeout: Duration::from_secs(3),
    });
    let mut proxy = setup.start().await;
    let (status, error) = answer_to(&proxy, "GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(status, "HTTP/1.1 404 Not Found");
    assert_eq!(error["error"]["type"], "tokengauge_no_route");
    let mut first = proxy.client().await;
    first.write(GET).await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    let (status, error) = answer_to(&proxy, GET).await;
    assert_eq!(status, "HTTP/1.1 429 Too Many Requests");
    assert_eq!(error["error"]["type"], "tokengauge_overload");
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    first.read_head().await;
    first.write(GET).await;
    upstream.read_head().await;
    drop(first);
    let words = proxy.words().await;
    assert_eq!(words[0], "Open Own(404) End(Rejected(NoRoute))");
    assert_eq!(words[2], "Open Own(429) End(Rejected(Overload))");
    assert!(words[3].ends_with("End(ClientDisconnected)"), "the permit was returned: {words:?}");
}

/// Starts a proxy whose upstream is a relay to the proxy itself. Like address translation, the relay changes the
/// addresses, so that the proxy cannot recognize its own requests.
async fn looped(max_connections: usize, max_requests: usize) -> Proxy {
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut setup = Setup::to(relay.local_addr().unwrap());
    setup.listen.max_connections = max_connections;
    setup.listen.max_requests = max_requests;
    let proxy = setup.start().await;
    let address = proxy.address;
    tokio::spawn(async move {
        while let Ok((mut near, _)) = relay.accept().await {
            tokio::spawn(async move {
                let mut far = TcpStream::connect(address).await?;
                tokio::io::copy_bidirectional(&mut near, &mut far).await
            });
        }
    });
    proxy
}

#[tokio::test]
async fn a_loop_through_address_translation_ends_at_the_request_limit() {
    const REQUESTS: usize = 10;
    let mut proxy = looped(2 * REQUESTS, REQUESTS).await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 503 "));
    drop(client);
    assert_eq!(proxy.words().await.len(), REQUESTS);
}

/// Tests an upstream whose address leads back to the proxy. Without detection, one request opens connections until no
/// file descriptor is left.
#[tokio::test]
async fn a_request_from_the_proxy_itself_is_rejected() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut setup = Setup::to(address);
    setup.listen.address = Address::Tcp(address);
    setup.listen.max_connections = 20;
    let mut proxy = setup.start().await;
    let (status, error) = answer_to(&proxy, GET).await;
    assert_eq!(status, "HTTP/1.1 508 Loop Detected");
    assert_eq!(error["error"]["type"], "tokengauge_loop");
    let words = proxy.words().await;
    assert_eq!(words.len(), 2, "{words:?}");
    assert_eq!(words[1], "Open Own(508) End(Rejected(Loop))");
    assert!(words[0].ends_with("Head(508) Arrival(Response) Complete"), "{words:?}");
}
