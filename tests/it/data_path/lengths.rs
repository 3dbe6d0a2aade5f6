//! Tests that a message with several values of `Content-Length` has one length on both sides of the proxy.

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use tokengauge::forward::Protocol;
use tokio::net::TcpStream;

use super::protocols::http2;
use crate::support::{Backend, Proxy, Setup, lines, within};

/// Headers that say 3 bytes more than once.
const EQUAL: [&str; 4] = [
    "Content-Length: 3, 3",
    "Content-Length: 3,3 ,3",
    "Content-Length: 3\r\ncontent-length: 3",
    "Content-Length: 3\r\nContent-Length: 3, 03",
];

/// Headers without one length.
const CONTRADICTORY: [&str; 6] = [
    "Content-Length: 3, 4",
    "Content-Length: 3\r\nContent-Length: 4",
    "Content-Length: 3,",
    "Content-Length: +3",
    "Content-Length: 3, x",
    "Content-Length: 99999999999999999999",
];

fn lengths(head: &str) -> Vec<String> {
    let lines = lines(head).into_iter().map(str::to_ascii_lowercase);
    lines.filter_map(|line| line.strip_prefix("content-length: ").map(str::to_owned)).collect()
}

/// Returns the response headers that the client receives for a response with `length`, and the connection.
async fn response_with(
    method: &str,
    length: &str,
) -> (String, crate::support::Raw<TcpStream>, Proxy) {
    let (backend, proxy) = Proxy::with_backend().await;
    let request = format!("{method} /x HTTP/1.1\r\nHost: a\r\n\r\n");
    let (mut client, mut upstream) = proxy.exchange(&backend, request).await;
    upstream.write(format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\n")).await;
    if method == "GET" {
        upstream.write("abc").await;
    }
    (client.read_head().await, client, proxy)
}

#[tokio::test]
async fn equal_lengths_of_a_response_become_one() {
    for length in EQUAL {
        let (head, mut client, _proxy) = response_with("GET", length).await;
        assert_eq!(lengths(&head), ["3"], "{length}");
        assert_eq!(client.read_exactly(3).await, b"abc", "{length}");
        let (head, _client, _proxy) = response_with("HEAD", length).await;
        assert_eq!(lengths(&head), ["3"], "HEAD {length}");
    }
}

#[tokio::test]
async fn contradictory_lengths_of_a_response_are_an_error() {
    for length in CONTRADICTORY {
        for method in ["GET", "HEAD"] {
            let (head, _client, _proxy) = response_with(method, length).await;
            assert!(head.starts_with("HTTP/1.1 502 "), "{method} {length}: {head}");
        }
    }
}

#[tokio::test]
async fn a_request_is_forwarded_with_one_length_or_rejected() {
    for (length, is_valid) in [
        ("Content-Length: 3\r\ncontent-length: 3", true),
        ("Content-Length: 3, 3", false),
        ("Content-Length: 3\r\nContent-Length: 4", false),
        ("Content-Length: +3", false),
    ] {
        let (backend, proxy) = Proxy::with_backend().await;
        let mut client = proxy.client().await;
        client.write(format!("POST /x HTTP/1.1\r\nHost: a\r\n{length}\r\n\r\nabc")).await;
        if is_valid {
            let mut upstream = backend.accept().await;
            assert_eq!(lengths(&upstream.read_head().await), ["3"], "{length}");
            assert_eq!(upstream.read_exactly(3).await, b"abc");
        } else {
            assert!(client.read_head().await.starts_with("HTTP/1.1 400 "), "{length}");
            assert!(!backend.has_another().await, "{length}");
        }
    }
}

#[tokio::test]
async fn equal_lengths_over_http2_become_one() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.protocol = Protocol::Http2;
    let proxy = setup.start().await;
    let mut sender = http2(TcpStream::connect(proxy.address).await.unwrap()).await;
    let mut request =
        Request::post("http://a/x").body(Full::new(Bytes::from_static(b"abc"))).unwrap();
    for _ in 0..2 {
        request.headers_mut().append(CONTENT_LENGTH, HeaderValue::from_static("3"));
    }
    let serving = async {
        let stream = backend.accept().await.0;
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        let values: Vec<_> = request.headers().get_all(CONTENT_LENGTH).iter().collect();
        assert_eq!(values, ["3"]);
        let mut response = Response::new(());
        for _ in 0..2 {
            response.headers_mut().append(CONTENT_LENGTH, HeaderValue::from_static("3"));
        }
        let mut body = respond.send_response(response, false).unwrap();
        body.send_data(Bytes::from_static(b"abc"), true).unwrap();
        while connection.accept().await.is_some() {}
    };
    let asking = async {
        let response = within("response", sender.send_request(request)).await.unwrap();
        let values: Vec<_> = response.headers().get_all(CONTENT_LENGTH).iter().cloned().collect();
        assert_eq!(values, ["3"]);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "abc");
    };
    tokio::select! {
        () = asking => {}
        () = serving => panic!("the connection ended"),
    }
}
