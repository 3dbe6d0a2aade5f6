//! Tests that bodies with every framing pass unchanged in both directions, in separate writes.

use tokengauge_types::event::Direction;

use crate::support::{Proxy, lines};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: proxy.local\r\n\r\n";

/// The events of a successful exchange whose request has no body.
const PLAIN: &str =
    "Open Admitted Connected RequestHeadSent RequestBodySent Head(200) Arrival(Response) Complete";

#[tokio::test]
async fn a_length_framed_body_passes_both_ways() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client.write("POST /v1/x?q=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\n{\"a\":1}").await;
    let mut upstream = backend.accept().await;
    let head = upstream.read_head().await;
    assert_eq!(lines(&head)[0], "POST /v1/x?q=1 HTTP/1.1");
    assert!(head.contains("\r\nContent-Length: 7\r\n"), "{head}");
    assert_eq!(upstream.read_exactly(7).await, b"{\"a\":1}");
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await;
    let head = client.read_head().await;
    assert_eq!(lines(&head), ["HTTP/1.1 200 OK", "Content-Length: 5"]);
    assert_eq!(client.read_exactly(5).await, b"hello");
    assert_eq!(
        proxy.words().await,
        [
            "Open Admitted Arrival(Request) Connected RequestHeadSent RequestBodySent Head(200) Arrival(Response) Complete"
        ]
    );
    assert_eq!(proxy.observed(Direction::Request), b"{\"a\":1}");
    assert_eq!(proxy.observed(Direction::Response), b"hello");
}

#[tokio::test]
async fn forwards_headers_before_the_body_and_each_write_before_the_next() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    let head = client.read_head().await;
    assert_eq!(lines(&head)[0], "HTTP/1.1 200 OK");
    for event in ["data: one\n\n", "data: two\n\n", "data: [DONE]\n\n"] {
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        upstream.write(&chunk).await;
        let received = client.read_exactly(chunk.len()).await;
        assert!(received.eq_ignore_ascii_case(chunk.as_bytes()));
    }
    upstream.write("0\r\n\r\n").await;
    assert_eq!(client.read_until("0\r\n\r\n").await, "0\r\n\r\n");
    assert_eq!(proxy.words().await, [PLAIN]);
    assert_eq!(proxy.observed(Direction::Response), b"data: one\n\ndata: two\n\ndata: [DONE]\n\n");
}

#[tokio::test]
async fn single_bytes_pass_both_ways() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    for byte in
        b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    {
        client.write([*byte]).await;
    }
    let mut upstream = backend.accept().await;
    let head = upstream.read_head().await;
    assert!(head.to_ascii_lowercase().contains("transfer-encoding: chunked"), "{head}");
    let mut body = String::new();
    while !body.ends_with("0\r\n\r\n") {
        body.push(char::from(upstream.read_exactly(1).await[0]));
    }
    let sent: String = body.split("\r\n").skip(1).step_by(2).collect();
    assert_eq!(sent, "abc");
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxyz" {
        upstream.write([*byte]).await;
    }
    client.read_head().await;
    assert_eq!(client.read_exactly(3).await, b"xyz");
    proxy.words().await;
    assert_eq!(proxy.observed(Direction::Request), b"abc");
    assert_eq!(proxy.observed(Direction::Response), b"xyz");
}

#[tokio::test]
async fn a_body_framed_by_close_is_chunked_for_the_client_and_complete() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write("HTTP/1.1 200 OK\r\n\r\nall of it").await;
    drop(upstream);
    let head = client.read_head().await;
    assert!(head.to_ascii_lowercase().contains("transfer-encoding: chunked"), "{head}");
    let body = client.read_until("0\r\n\r\n").await;
    assert_eq!(body, "9\r\nall of it\r\n0\r\n\r\n");
    assert_eq!(proxy.words().await, [PLAIN]);
}

#[tokio::test]
async fn a_large_body_passes_completely_both_ways() {
    let body: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    let head = format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    let echo = async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        let received = upstream.read_exactly(body.len()).await;
        upstream
            .write(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", received.len()))
            .await;
        upstream.write(&received).await;
    };
    let ask = async {
        client.write(&head).await;
        client.write(&body).await;
        client.read_head().await;
        client.read_exactly(body.len()).await
    };
    let ((), echoed) = tokio::join!(echo, ask);
    assert!(echoed == body, "the echo equals the body");
    proxy.words().await;
    assert!(proxy.observed(Direction::Request) == body);
    assert!(proxy.observed(Direction::Response) == body);
}

/// Tests that an upload in progress does not depend on the client reading the response.
#[tokio::test]
async fn an_early_echo_response_does_not_stop_the_upload() {
    const LEN: usize = 16 * 1024 * 1024;
    let (backend, proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    let answer = async {
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n")).await;
        let (mut from, mut to) = upstream.0.split();
        let reading = async {
            let mut sink = tokio::io::sink();
            tokio::io::copy(&mut tokio::io::AsyncReadExt::take(&mut from, LEN as u64), &mut sink)
                .await
        };
        let writing =
            async { tokio::io::AsyncWriteExt::write_all(&mut to, &vec![b'r'; LEN]).await };
        tokio::join!(reading, writing).0.unwrap()
    };
    let ask = async {
        client.write(format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {LEN}\r\n\r\n")).await;
        client.write(vec![b'q'; LEN]).await;
        client.read_head().await;
        client.read_exactly(LEN).await.len()
    };
    let (uploaded, downloaded) = tokio::join!(answer, ask);
    assert_eq!((uploaded, downloaded), (LEN as u64, LEN));
}

#[tokio::test]
async fn head_204_and_304_have_no_body_and_leave_the_connection_usable() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client.write("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut upstream = backend.accept().await;
    assert!(upstream.read_head().await.starts_with("HEAD /x "));
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nETag: \"e\"\r\n\r\n").await;
    let head = client.read_head().await;
    assert_eq!(lines(&head), ["HTTP/1.1 200 OK", "Content-Length: 1000", "ETag: \"e\""]);
    for status in ["204 No Content", "304 Not Modified"] {
        client.write(GET).await;
        upstream.read_head().await;
        upstream.write(format!("HTTP/1.1 {status}\r\n\r\n")).await;
        let head = client.read_head().await;
        assert_eq!(lines(&head), [format!("HTTP/1.1 {status}")]);
    }
    client.write(GET).await;
    upstream.read_head().await;
    upstream.write("HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n").await;
    let head = client.read_head().await;
    assert_eq!(lines(&head), ["HTTP/1.1 304 Not Modified", "Content-Length: 1000"]);
    client.write(GET).await;
    upstream.read_head().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    client.read_until("\r\n\r\nok").await;
    assert_eq!(
        proxy.words().await,
        [
            "Open Admitted Connected RequestHeadSent RequestBodySent Head(200) Complete",
            "Open Admitted Reused RequestHeadSent RequestBodySent Head(204) Complete",
            "Open Admitted Reused RequestHeadSent RequestBodySent Head(304) Complete",
            "Open Admitted Reused RequestHeadSent RequestBodySent Head(304) Complete",
            "Open Admitted Reused RequestHeadSent RequestBodySent Head(200) Arrival(Response) Complete",
        ]
    );
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client
        .write("POST /x HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n")
        .await;
    let mut upstream = backend.accept().await;
    let head = upstream.read_head().await.to_ascii_lowercase();
    assert!(head.contains("te: trailers") && head.contains("trailer: x-sum"), "{head}");
    let body = upstream.read_until("\r\n\r\n").await.to_ascii_lowercase();
    assert!(body.ends_with("0\r\nx-sum: 1\r\n\r\n"), "{body:?}");
    upstream
        .write("HTTP/1.1 200 OK\r\nTrailer: X-End\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\nX-End: yes\r\n\r\n")
        .await;
    client.read_head().await;
    let body = client.read_until("\r\n\r\n").await.to_ascii_lowercase();
    assert_eq!(body, "1\r\nb\r\n0\r\nx-end: yes\r\n\r\n");
    assert_eq!(
        proxy.words().await,
        [
            "Open Admitted Arrival(Request) Trailers(Request) Connected RequestHeadSent RequestBodySent Head(200) Arrival(Response) Trailers(Response) Complete"
        ]
    );
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it_before_it_sends_its_body() {
    let (backend, proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client
        .write("POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        .await;
    let mut upstream = backend.accept().await;
    let head = upstream.read_head().await;
    assert!(head.contains("Expect: 100-continue"), "{head}");
    upstream.write("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert_eq!(client.read_head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write("ab").await;
    assert_eq!(upstream.read_exactly(2).await, b"ab");
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_its_body_up_to_the_close() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut client = proxy.client().await;
    client.write("GET /x HTTP/1.0\r\n\r\n").await;
    let mut upstream = backend.accept().await;
    let head = upstream.read_head().await;
    assert_eq!(lines(&head)[0], "GET /x HTTP/1.1");
    upstream
        .write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        .await;
    let head = client.read_head().await;
    assert!(!head.to_ascii_lowercase().contains("chunked"), "{head}");
    assert_eq!(client.read_to_end().await, b"abc");
    assert_eq!(proxy.words().await, [PLAIN]);
}

/// Tests that the transfer coding takes precedence over the length (RFC 9112 §6.3), and that the connection is not
/// reused.
#[tokio::test]
async fn a_chunked_response_with_a_length_is_complete() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream
        .write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n14\r\nall of twenty bytes.\r\n0\r\n\r\n")
        .await;
    let head = client.read_head().await.to_ascii_lowercase();
    assert!(head.contains("transfer-encoding: chunked") && !head.contains("length"), "{head}");
    assert_eq!(client.read_until("0\r\n\r\n").await, "14\r\nall of twenty bytes.\r\n0\r\n\r\n");
    assert_eq!(upstream.read_to_end().await, b"");
    client.write(GET).await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    drop(client);
    let words = proxy.words().await;
    assert_eq!(words[0], PLAIN);
    assert!(words[1].starts_with("Open Admitted Connected "), "{words:?}");
}
