//! Tests clients that pipeline requests or close their sending side, and an upstream that sends too much.

use tokio::io::AsyncWriteExt;

use crate::support::{Backend, Proxy, within};

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn pipelined_requests_get_their_responses_in_order() {
    let backend = Backend::start().await;
    let proxy = Proxy::to(backend.address).await;
    let mut client = proxy.client().await;
    let requests: String = (0..3).map(|n| GET.replace("models", &n.to_string())).collect();
    client.write(requests).await;
    let mut upstream = backend.accept().await;
    for n in 0..3 {
        let head = upstream.read_head().await;
        assert!(head.starts_with(&format!("GET /v1/{n} ")), "{head}");
        upstream.write(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{n}")).await;
    }
    for n in 0..3 {
        client.read_head().await;
        assert_eq!(client.read_exactly(1).await, n.to_string().as_bytes());
    }
}

/// The end of a client's sending side cannot be distinguished from a disconnect, and a disconnect must stop the backend.
/// Bytes that were received before reach the client.
#[tokio::test]
async fn a_client_that_closes_its_sending_side_has_cancelled() {
    let backend = Backend::start().await;
    let mut proxy = Proxy::to(backend.address).await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    upstream.write(response).await;
    within("the response to arrive", async {
        let mut received = vec![0; response.len()];
        while client.0.peek(&mut received).await.unwrap() < response.len() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    client.0.shutdown().await.unwrap();
    assert_eq!(upstream.read_to_end().await, b"");
    assert_eq!(client.read_to_end().await, response.as_bytes(), "the end of the body is missing");
    let words = proxy.words().await;
    assert!(words[0].ends_with("End(ClientDisconnected)"), "{words:?}");
}

#[tokio::test]
async fn bytes_beyond_the_content_length_do_not_reach_the_next_client() {
    let backend = Backend::start().await;
    let proxy = Proxy::to(backend.address).await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream
        .write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\nevil")
        .await;
    client.read_head().await;
    assert_eq!(client.read_exactly(2).await, b"ok");
    client.write(GET).await;
    let mut second = backend.accept().await;
    second.read_head().await;
    second.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood").await;
    client.read_head().await;
    assert_eq!(client.read_exactly(4).await, b"good");
}
