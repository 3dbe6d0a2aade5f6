//! Tests the limits of headers: the same for HTTP/1 and HTTP/2, and for requests and responses.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokengauge::forward::Protocol;
use tokengauge_listen::HeaderLimits;
use tokio::net::TcpStream;

use super::protocols::http2;
use crate::support::{Backend, Proxy, Raw, Setup, within};

const VERSIONS: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];

const LIMITS: HeaderLimits = HeaderLimits::DEFAULT;

/// Serves requests. Each response has `headers`, and the number of request headers whose names start with `x-`.
async fn serve(backend: Backend, version: Protocol, headers: HeaderMap) {
    loop {
        let stream = TokioIo::new(backend.accept().await.0);
        let headers = headers.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let names = request.headers().keys().map(HeaderName::as_str);
            let count = names.filter(|name| name.starts_with("x-")).count();
            let mut response = Response::new(Empty::<Bytes>::new());
            response.headers_mut().extend(headers.clone());
            response.headers_mut().insert("received", HeaderValue::from(count));
            async move { Ok::<_, hyper::Error>(response) }
        });
        match version {
            Protocol::Http1 => {
                let mut builder = hyper::server::conn::http1::Builder::new();
                builder.max_headers(10_000).auto_date_header(false);
                tokio::spawn(builder.serve_connection(stream, service));
            }
            Protocol::Http2 => {
                let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                builder.max_header_list_size(1 << 24).auto_date_header(false);
                tokio::spawn(builder.serve_connection(stream, service));
            }
        }
    }
}

/// Starts a proxy before an upstream that answers with `headers`.
async fn proxy(upstream: Protocol, headers: HeaderMap) -> Proxy {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.protocol = upstream;
    tokio::spawn(serve(backend, upstream, headers));
    setup.start().await
}

/// Sends a request with `headers`. Returns the response.
async fn ask(proxy: &Proxy, client: Protocol, headers: HeaderMap) -> Response<Bytes> {
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.headers_mut() = headers;
    let response = match client {
        Protocol::Http1 => {
            *request.uri_mut() = "/v1/x".parse().unwrap();
            request.headers_mut().insert("host", HeaderValue::from_static("a"));
            let mut builder = hyper::client::conn::http1::Builder::new();
            builder.max_headers(10_000);
            let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(connection);
            within("response", sender.send_request(request)).await
        }
        Protocol::Http2 => {
            *request.uri_mut() = "http://a/v1/x".parse().unwrap();
            let (mut sender, connection) =
                hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                    .max_header_list_size(1 << 24)
                    .handshake(TokioIo::new(stream))
                    .await
                    .unwrap();
            tokio::spawn(connection);
            within("response", sender.send_request(request)).await
        }
    };
    let (head, body) = response.unwrap().into_parts();
    Response::from_parts(head, within("body", body.collect()).await.unwrap().to_bytes())
}

/// Returns `count` headers with distinct names.
fn lines(count: usize) -> HeaderMap {
    let name = |number| HeaderName::try_from(format!("x-{number}")).unwrap();
    (0..count).map(|number| (name(number), HeaderValue::from_static("v"))).collect()
}

/// Returns headers that take `bytes` in HTTP/1.
fn sized(bytes: usize) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut left = bytes;
    while left > 0 {
        let size = if left > 5_000 { 4_096 } else { left };
        let value = "v".repeat(size - "x-large: \r\n".len());
        headers.append("x-large", HeaderValue::try_from(value).unwrap());
        left -= size;
    }
    headers
}

fn error_of(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

/// Returns the number of lines and the size of a request without additional headers. `Host` is one line.
fn base() -> (usize, usize) {
    (1, "/v1/xhost: a\r\n".len())
}

#[tokio::test]
async fn requests_are_forwarded_up_to_the_exact_limit() {
    let (base_lines, base_bytes) = base();
    for upstream in VERSIONS {
        for client in VERSIONS {
            let mut proxy = proxy(upstream, HeaderMap::new()).await;
            let most = LIMITS.max_lines - base_lines;
            for count in [101, most] {
                let response = ask(&proxy, client, lines(count)).await;
                assert_eq!(response.status(), 200, "{client:?} {upstream:?} {count}");
                assert_eq!(response.headers()["received"], count.to_string());
            }
            let large = sized(LIMITS.max_bytes - base_bytes);
            assert_eq!(ask(&proxy, client, large).await.status(), 200, "{client:?} {upstream:?}");
            let beyond = [lines(most + 1), sized(LIMITS.max_bytes - base_bytes + 1)];
            for headers in beyond {
                let response = ask(&proxy, client, headers).await;
                assert_eq!(response.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
                let error = error_of(&response);
                assert_eq!(error["error"]["type"], "tokengauge_headers_too_large", "{error}");
                let message = error["error"]["message"].as_str().unwrap();
                assert!(message.contains("limits.header_lines"), "{message}");
            }
            let words = proxy.words().await;
            assert_eq!(words.len(), 5, "each request is recorded: {words:?}");
            for rejected in &words[3..] {
                assert_eq!(rejected, "Open Own(431) End(Rejected(HeadersTooLarge))");
            }
        }
    }
}

/// Checks whether a response with these headers arrives, or is replaced by an error.
async fn check_response(
    (client, upstream): (Protocol, Protocol),
    headers: HeaderMap,
    is_allowed: bool,
) {
    let case = format!("{client:?} {upstream:?} {}", headers.len());
    let length = HeaderValue::from_static("0");
    let mut sent = headers.clone();
    sent.insert("content-length", length);
    let mut proxy = proxy(upstream, sent).await;
    let response = ask(&proxy, client, HeaderMap::new()).await;
    let words = proxy.words().await;
    if is_allowed {
        assert_eq!(response.status(), 200, "{case} {:?}", response.body());
        assert!(response.headers().len() >= headers.len(), "{case}");
        return;
    }
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY, "{case}");
    let error = error_of(&response);
    assert_eq!(error["error"]["type"], "tokengauge_upstream_protocol", "{case}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("limits.header_size"), "{case}: {message}");
    assert!(words[0].ends_with("Own(502) End(UpstreamFailed(Protocol))"), "{case}: {words:?}");
}

#[tokio::test]
async fn responses_are_forwarded_up_to_the_exact_limit() {
    // The upstream adds the number of received headers, and hyper adds the length of the body.
    let added = ["received: 0\r\n", "content-length: 0\r\n"];
    let added_bytes: usize = added.iter().map(|line| line.len()).sum();
    let most = LIMITS.max_lines - added.len();
    let most_bytes = LIMITS.max_bytes - added_bytes;
    for upstream in VERSIONS {
        for client in VERSIONS {
            for (headers, is_allowed) in [
                (lines(101), true),
                (lines(most), true),
                (lines(most + 1), false),
                (sized(most_bytes), true),
                (sized(most_bytes + 1), false),
                (sized(2 * most_bytes), false),
                (lines(4 * most), false),
            ] {
                check_response((client, upstream), headers, is_allowed).await;
            }
        }
    }
}

/// Tests that a lower limit applies to both directions.
#[tokio::test]
async fn limits_can_be_changed() {
    let limits = HeaderLimits { max_lines: 60, max_bytes: 10_000 };
    for version in VERSIONS {
        let backend = Backend::start().await;
        let mut setup = Setup::to(backend.address);
        setup.upstream.protocol = version;
        setup.upstream.header_limits = limits;
        setup.listen.headers = limits;
        tokio::spawn(serve(backend, version, lines(61)));
        let proxy = setup.start().await;
        assert_eq!(ask(&proxy, version, lines(61)).await.status(), 431);
        assert_eq!(ask(&proxy, version, sized(10_000)).await.status(), 431);
        assert_eq!(ask(&proxy, version, lines(50)).await.status(), 502);
    }
}

/// Tests that the listener itself answers if its handler does not, as on the admin port.
#[tokio::test]
async fn a_listener_without_records_rejects_large_headers_itself() {
    for version in VERSIONS {
        let backend = Backend::start().await;
        let mut setup = Setup::to(backend.address);
        setup.listen.marks_large_headers = false;
        let proxy = setup.start().await;
        let response = ask(&proxy, version, lines(LIMITS.max_lines)).await;
        assert_eq!(response.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        assert_eq!(error_of(&response)["error"]["type"], "tokengauge_headers_too_large");
        assert_eq!(proxy.channel.open_exchanges(), 0);
        assert!(!backend.has_another().await, "{version:?}");
    }
}

/// Tests a request that HTTP/1 receives with one read, which hyper alone would accept.
#[tokio::test]
async fn headers_in_one_write_have_the_same_limit() {
    let backend = Backend::start().await;
    let proxy = Setup::to(backend.address).start().await;
    let mut client: Raw<TcpStream> = proxy.client().await;
    let line = format!("X-Large: {}\r\n", "v".repeat(1_000));
    client.write(format!("GET /v1/x HTTP/1.1\r\nHost: a\r\n{}\r\n", line.repeat(110))).await;
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 431 "), "{head}");
    assert!(!backend.has_another().await);
}

/// Tests that many headers on a kept connection do not end the connection.
#[tokio::test]
async fn an_http2_connection_survives_a_request_with_too_many_headers() {
    let proxy = proxy(Protocol::Http1, HeaderMap::new()).await;
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let mut sender = http2::<_, Empty<Bytes>>(stream).await;
    for (count, status) in [(LIMITS.max_lines, 431), (150, 200)] {
        let mut request = Request::get("http://a/v1/x").body(Empty::new()).unwrap();
        *request.headers_mut() = lines(count);
        let response = within("response", sender.send_request(request)).await.unwrap();
        assert_eq!(response.status(), status);
    }
}
