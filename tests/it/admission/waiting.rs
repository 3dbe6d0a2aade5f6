//! Tests requests that wait in the queue of a concurrency limit.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokengauge::forward::ConcurrencyLimit;
use tokengauge_types::event::{Direction, ObserverEvent, TimestampedEvent};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::{LONG, limit};
use crate::support::{Backend, Proxy, Raw, Setup, settle, within};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const DONE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A proxy with one active exchange, and the client and the upstream of this exchange.
struct Busy {
    backend: Backend,
    proxy: Proxy,
    first: Raw<TcpStream>,
    upstream: Raw<TcpStream>,
}

impl Busy {
    async fn start(admission: Option<ConcurrencyLimit>) -> Self {
        let backend = Backend::start().await;
        let mut setup = Setup::to(backend.address);
        setup.admission = admission;
        let proxy = setup.start().await;
        let mut first = proxy.client().await;
        first.write(GET).await;
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        Self { backend, proxy, first, upstream }
    }

    /// Sends a request that is queued. The client writes as much of the request as the proxy reads.
    async fn waiting(&self, request: impl AsRef<[u8]>) -> JoinHandle<Raw<TcpStream>> {
        let before = self.proxy.channel.open_exchanges();
        let mut client = self.proxy.client().await;
        let request = request.as_ref().to_vec();
        let sending = tokio::spawn(async move {
            client.write(request).await;
            client
        });
        within("a further exchange", async {
            while self.proxy.channel.open_exchanges() == before {
                tokio::task::yield_now().await;
            }
        })
        .await;
        sending
    }

    /// Completes the active exchange.
    async fn finish(&mut self) {
        self.upstream.write(DONE).await;
        self.first.read_head().await;
    }
}

async fn answer(client: &mut Raw<TcpStream>) -> (String, serde_json::Value) {
    let head = client.read_head().await;
    let length = head.to_ascii_lowercase();
    let length = length.split("content-length: ").nth(1).unwrap();
    let length = length.split("\r\n").next().unwrap().parse().unwrap();
    let body = client.read_exactly(length).await;
    (head, serde_json::from_slice(&body).unwrap())
}

async fn sent(client: JoinHandle<Raw<TcpStream>>) -> Raw<TcpStream> {
    within("the request to be sent", client).await.unwrap()
}

#[tokio::test]
async fn a_full_queue_and_a_queue_timeout_return_429_with_retry_after() {
    let wait = Duration::from_millis(1_200);
    let mut busy = Busy::start(limit(1, 1, wait)).await;
    let mut waits = sent(busy.waiting(GET).await).await;
    let mut third = busy.proxy.client().await;
    third.write(GET).await;
    let (head, error) = answer(&mut third).await;
    assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
    assert!(head.contains("retry-after: 2\r\n"), "{head}");
    assert_eq!(error["error"]["type"], "tokengauge_overload");
    assert_eq!(error["error"]["code"], 429);
    let (head, error) = answer(&mut waits).await;
    assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
    assert!(head.contains("retry-after: 2\r\n"), "{head}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("queue timeout"), "{message}");
    busy.finish().await;
    let words = busy.proxy.words().await;
    let refused = "Own(429) End(Rejected(Overload))";
    assert_eq!(
        words,
        [
            "Open Admitted Connected RequestHeadSent RequestBodySent Head(200) Complete".to_owned(),
            format!("Open Queued {refused}"),
            format!("Open {refused}")
        ]
    );
    let at = |word: fn(&ObserverEvent) -> bool| {
        let mut entries = busy.proxy.entries().iter();
        let second = |entry: &&TimestampedEvent| entry.exchange.0 == 2 && word(&entry.event);
        entries.find(second).unwrap().at
    };
    let waited = at(|word| matches!(word, ObserverEvent::End(_)))
        - at(|word| matches!(word, ObserverEvent::Queued));
    assert!(waited >= wait, "{waited:?}");
}

#[tokio::test]
async fn a_queued_request_continues_with_a_free_permit_and_an_unchanged_body() {
    // The large body is larger than the buffers of hyper and the proxy's buffer for queued bodies. The short body fits
    // into them. Each is sent with a length and without one.
    let large = "0123456789abcdef".repeat(64 * 1024);
    for body in [large.as_str(), "short"] {
        let length = body.len();
        let known = format!("Content-Length: {length}\r\n\r\n{body}");
        let chunked =
            format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n");
        for rest in [known, chunked] {
            passes_after_waiting(body, &format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}")).await;
        }
    }
}

async fn passes_after_waiting(body: &str, request: &str) {
    let mut busy = Busy::start(limit(1, 1, LONG)).await;
    let client = busy.waiting(request).await;
    settle().await;
    assert!(!busy.backend.has_another().await, "the request is queued");
    busy.finish().await;
    let head = busy.upstream.read_head().await.to_ascii_lowercase();
    if head.contains("content-length") {
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
        assert!(busy.upstream.read_exactly(body.len()).await == body.as_bytes());
    } else {
        busy.upstream.read_until("\r\n0\r\n\r\n").await;
    }
    busy.upstream.write(DONE).await;
    sent(client).await.read_head().await;
    let words = busy.proxy.words().await;
    assert!(
        words[1].starts_with("Open Queued Arrival(Request) Admitted Reused RequestHeadSent")
            && words[1].ends_with("Complete"),
        "{words:?}"
    );
    let observed = busy.proxy.observed(Direction::Request);
    assert!(observed == body.as_bytes(), "{} bytes", observed.len());
}

#[tokio::test]
async fn a_client_that_disconnects_leaves_the_queue_whatever_it_has_sent() {
    let whole = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345";
    let part = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12";
    let prompt = "0123456789abcdef".repeat(3 * 1024);
    let length = prompt.len();
    let prompt = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{prompt}");
    let cases = [
        (GET, "End(ClientDisconnected)"),
        (whole, "Arrival(Request) End(ClientDisconnected)"),
        (prompt.as_str(), "Arrival(Request) End(ClientDisconnected)"),
        (part, "Arrival(Request) End(RequestBodyFailed)"),
    ];
    for (request, end) in cases {
        let mut busy = Busy::start(limit(1, 1, LONG)).await;
        let client = sent(busy.waiting(request).await).await;
        settle().await;
        drop(client);
        within("the end of the queued request", async {
            while busy.proxy.channel.open_exchanges() > 1 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let next = busy.waiting(GET).await;
        busy.finish().await;
        busy.upstream.read_head().await;
        busy.upstream.write(DONE).await;
        sent(next).await.read_head().await;
        let words = busy.proxy.words().await;
        assert_eq!(words[1], format!("Open Queued {end}"), "{request:.60}");
        assert!(words[2].starts_with("Open Queued Admitted Reused"), "{words:?}");
    }
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it_when_admitted() {
    let mut busy = Busy::start(limit(1, 1, LONG)).await;
    let request = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    let mut client = sent(busy.waiting(request).await).await;
    settle().await;
    let early = client.0.try_read(&mut [0; 8]);
    assert_eq!(early.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    busy.finish().await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 100 "));
    client.write("ab").await;
    busy.upstream.read_until("\r\n\r\nab").await;
    busy.upstream.write(DONE).await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_drain_rejects_queued_requests_and_finishes_running_ones() {
    let mut busy = Busy::start(limit(1, 5, LONG)).await;
    let mut waits = sent(busy.waiting(GET).await).await;
    busy.proxy.forwarder.drain();
    let (head, error) = answer(&mut waits).await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert_eq!(error["error"]["type"], "tokengauge_draining");
    let mut late = busy.proxy.client().await;
    late.write(GET).await;
    assert!(late.read_head().await.starts_with("HTTP/1.1 503 "), "a new request would be queued");
    busy.finish().await;
    let words = busy.proxy.words().await;
    assert!(words[0].ends_with("Complete"), "{words:?}");
    assert_eq!(words[1], "Open Queued Own(503) End(Rejected(Draining))");
    assert_eq!(words[2], words[1]);
}

#[tokio::test]
async fn a_reload_changes_the_limit_for_queued_and_running_requests() {
    let mut busy = Busy::start(limit(1, 9, LONG)).await;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(sent(busy.waiting(GET).await).await);
    }
    busy.proxy.limit(limit(3, 9, LONG));
    let mut upstreams = vec![busy.backend.accept().await, busy.backend.accept().await];
    for upstream in &mut upstreams {
        upstream.read_head().await;
    }
    settle().await;
    assert!(!busy.backend.has_another().await, "two more requests are admitted, but not a third");
    busy.proxy.limit(limit(1, 9, LONG));
    busy.finish().await;
    upstreams[0].write(DONE).await;
    settle().await;
    assert!(!busy.backend.has_another().await, "one request is running, which is the limit");
    busy.proxy.limit(None);
    // These requests can use connections that have become idle.
    within("all requests to be admitted", async {
        while busy.proxy.admitted() < 5 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_queued_stream_does_not_block_others_of_its_connection() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.admission = limit(1, 1, LONG);
    let mut proxy = setup.start().await;
    let socket = TcpStream::connect(proxy.address).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let ask = |body: &'static str| {
        let mut sender = sender.clone();
        let uri = format!("http://{}/", proxy.address);
        let request = Request::post(uri).body(Full::new(Bytes::from(body)));
        tokio::spawn(async move { sender.send_request(request.unwrap()).await })
    };
    let first = ask("1");
    let mut upstream = backend.accept().await;
    upstream.read_until("\r\n\r\n1").await;
    let second = ask("2");
    while proxy.channel.open_exchanges() < 2 {
        tokio::task::yield_now().await;
    }
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na").await;
    let mut response = within("head", first).await.unwrap().unwrap();
    let frame = within("a frame", response.body_mut().frame()).await;
    assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "a");
    let third = ask("3");
    let refused = within("a 429", third).await.unwrap().unwrap();
    assert_eq!(refused.status(), 429);
    // If a queued stream is reset, its request leaves the queue.
    second.abort();
    within("the end of the queued request", async {
        while proxy.channel.open_exchanges() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    upstream.write("b").await;
    within("the rest", response.body_mut().frame()).await;
    let words = proxy.words().await;
    assert_eq!(words[1], "Open Queued Arrival(Request) End(ClientDisconnected)");
}
