//! Tests several HTTP/2 connections to one upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokengauge::forward::{Http2Ping, Protocol};
use tokengauge_types::clock;
use tokengauge_types::event::{ObserverEvent, TimestampedEvent};
use tokio::net::TcpStream;
use tokio::sync::Barrier;

use crate::support::certificate::Certificate;
use crate::support::{Backend, Proxy, Setup, settle, within};

const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

/// Starts a proxy in front of an HTTP/2 upstream.
async fn before(backend: &Backend) -> Proxy {
    let mut setup = Setup::to(backend.address);
    setup.upstream.protocol = Protocol::Http2;
    setup.start().await
}

/// Tests that requests share one connection attempt, and do not make one attempt each in turn.
#[tokio::test]
async fn requests_share_the_attempt_to_reach_a_silent_upstream() {
    let certificate = Certificate::new();
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address).tls(&certificate);
    setup.upstream.protocol = Protocol::Http2;
    setup.upstream.timeouts.connect = Some(Duration::from_secs(1));
    let mut proxy = setup.start().await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = proxy.client().await;
        client.write(GET).await;
        clients.push(client);
    }
    // The connection is open, and its TLS handshake gets no answer.
    let _silent = backend.accept().await;
    for client in &mut clients {
        assert!(client.read_head().await.starts_with("HTTP/1.1 504 "));
    }
    assert!(!backend.has_another().await, "one attempt failed for all");
    let words = proxy.words().await;
    assert!(words.iter().all(|word| word.ends_with("End(TimedOut(Connect))")), "{words:?}");
}

/// Tests an upstream that is slow to send its settings. Until then, a connection carries one request. Another request
/// waits, and counts as sent when it leaves.
#[tokio::test]
async fn a_request_is_sent_when_the_settings_of_the_upstream_allow_it() {
    let backend = Backend::start().await;
    let mut proxy = before(&backend).await;
    let mut first = proxy.client().await;
    first.write(GET).await;
    let stream = backend.accept().await.0;
    let mut second = proxy.client().await;
    second.write(GET).await;
    let opening = async {
        while proxy.said(|event| matches!(event, ObserverEvent::RequestHead(_))) < 2 {
            tokio::task::yield_now().await;
            proxy.drain();
        }
    };
    within("both requests", opening).await;
    settle().await;
    let settings_sent_at = clock::now();
    let mut connection = h2::server::handshake(stream).await.unwrap();
    for _ in 0..2 {
        let (_, mut respond) = within("request", connection.accept()).await.unwrap().unwrap();
        respond.send_response(Response::new(()), true).unwrap();
    }
    tokio::spawn(async move { while connection.accept().await.is_some() {} });
    first.read_head().await;
    second.read_head().await;
    let words = proxy.words().await;
    assert!(words[0].contains(" Connected ") && words[1].contains(" Reused "), "{words:?}");
    let sent = |entry: &&TimestampedEvent| matches!(entry.event, ObserverEvent::RequestHeadSent);
    let sent: Vec<_> = proxy.entries().iter().filter(sent).map(|entry| entry.at).collect();
    assert!(sent.len() == 2 && sent[0] < settings_sent_at, "{sent:?} {settings_sent_at:?}");
    assert!(sent[1] > settings_sent_at, "{sent:?} {settings_sent_at:?}");
}

/// Tests an upstream with a limit of two streams, which answers when all six requests have arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opens_connections_beyond_the_stream_limit_of_the_upstream() {
    const REQUESTS: usize = 6;
    let backend = Backend::start().await;
    let proxy = before(&backend).await;
    let connections = Arc::new(AtomicUsize::new(0));
    tokio::spawn(answer_together(backend, Arc::clone(&connections), REQUESTS));
    for round in 1..=2 {
        let mut clients = Vec::new();
        for _ in 0..REQUESTS {
            let mut client = proxy.client().await;
            client.write(GET).await;
            clients.push(client);
        }
        for client in &mut clients {
            client.read_until("\r\n\r\nok").await;
        }
        assert_eq!(connections.load(Ordering::Relaxed), REQUESTS / 2, "round {round}");
    }
}

/// Allows two streams per connection. Answers when all `requests` have arrived.
async fn answer_together(backend: Backend, connections: Arc<AtomicUsize>, requests: usize) {
    let barrier = Arc::new(Barrier::new(requests));
    loop {
        let stream = backend.accept().await.0;
        connections.fetch_add(1, Ordering::Relaxed);
        let barrier = Arc::clone(&barrier);
        let service = service_fn(move |_: Request<Incoming>| answer_after(Arc::clone(&barrier)));
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(2)
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

async fn answer_after(barrier: Arc<Barrier>) -> hyper::Result<Response<Full<Bytes>>> {
    barrier.wait().await;
    Ok(Response::new(Full::new(Bytes::from_static(b"ok"))))
}

/// Tests 70 streams of one client that does not read them, and a request of another client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_not_read_do_not_stop_other_requests() {
    const UNREAD: usize = 70;
    const LENGTH: usize = 2 * 1024 * 1024;
    let backend = Backend::start().await;
    let proxy = before(&backend).await;
    tokio::spawn(async move {
        loop {
            let stream = backend.accept().await.0;
            let service = service_fn(|request: Request<Incoming>| async move {
                let body = match request.uri().path() {
                    "/large" => Bytes::from(vec![b'x'; LENGTH]),
                    _ => Bytes::from_static(b"ok"),
                };
                hyper::Result::Ok(Response::new(Full::new(body)))
            });
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    // The windows of this client are closed, so the proxy cannot pass on any data.
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let handshake = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1)
        .handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let mut unread = Vec::new();
    for _ in 0..UNREAD {
        let request = Request::get("http://a/large").body(Empty::<Bytes>::new()).unwrap();
        unread.push(within("head", sender.send_request(request)).await.unwrap());
    }
    settle().await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    client.read_until("\r\n\r\nok").await;
}

/// Tests an upstream that shuts a connection down: the refused request goes to a new connection.
#[tokio::test]
async fn repeats_a_refused_stream_on_another_connection() {
    let backend = Backend::start().await;
    let mut proxy = before(&backend).await;
    let mut client = proxy.client().await;
    client.write(GET).await;
    let mut first = h2::server::handshake(backend.accept().await.0).await.unwrap();
    let (_, mut respond) = within("request", first.accept()).await.unwrap().unwrap();
    respond.send_response(Response::new(()), true).unwrap();
    let refusing = async {
        let (_, mut respond) = within("request", first.accept()).await.unwrap().unwrap();
        respond.send_reset(h2::Reason::REFUSED_STREAM);
        while first.accept().await.is_some() {}
    };
    let asking = async {
        client.read_head().await;
        client.write("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody").await;
        let mut second = h2::server::handshake(backend.accept().await.0).await.unwrap();
        let (request, mut respond) = within("request", second.accept()).await.unwrap().unwrap();
        let response = Response::builder().status(StatusCode::CREATED).body(()).unwrap();
        respond.send_response(response, true).unwrap();
        let reading = async {
            let data = within("body", request.into_body().data()).await;
            assert_eq!(data.unwrap().unwrap(), "body");
        };
        let driving = async { while second.accept().await.is_some() {} };
        tokio::select! {
            ((), head) = async { tokio::join!(reading, client.read_head()) } => head,
            () = driving => panic!("the connection ended"),
        }
    };
    let head = tokio::select! {
        head = asking => head,
        () = async { refusing.await; std::future::pending().await } => unreachable!(),
    };
    assert!(head.starts_with("HTTP/1.1 201 "), "{head}");
    let words = proxy.words().await;
    assert!(words[1].contains("Reused") && words[1].contains(" Connected "), "{words:?}");
    assert!(words[1].ends_with("Complete"), "{words:?}");
}

/// Tests that the client receives all data before an upstream resets a stream, or its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_loses_nothing() {
    const REPETITIONS: usize = 200;
    for resets_connection in [false, true] {
        let backend = Backend::start().await;
        let proxy = before(&backend).await;
        tokio::spawn(async move {
            loop {
                let stream = backend.accept().await.0;
                stream.set_zero_linger().unwrap();
                tokio::spawn(break_off(stream, resets_connection));
            }
        });
        let mut complete = 0;
        for _ in 0..REPETITIONS {
            let mut client = proxy.client().await;
            client.write(GET).await;
            let response = String::from_utf8(client.read_to_end().await).unwrap();
            complete += usize::from(response.ends_with("\r\n\r\n3\r\none\r\n3\r\ntwo\r\n"));
        }
        assert_eq!(complete, REPETITIONS, "of the connection: {resets_connection}");
    }
}

/// Answers each request with two frames of data, and then resets the stream or the connection.
async fn break_off(stream: TcpStream, resets_connection: bool) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        for data in ["one", "two"] {
            body.send_data(Bytes::from_static(data.as_bytes()), false).unwrap();
        }
        // A reset discards queued frames, so they are written first.
        let written = async {
            settle().await;
        };
        tokio::select! {
            () = written => {}
            _ = std::future::poll_fn(|cx| connection.poll_closed(cx)) => return,
        }
        if resets_connection {
            return;
        }
        body.send_reset(h2::Reason::INTERNAL_ERROR);
    }
}

/// Tests a connection over which nothing arrives any more, although it is open: the proxy leaves it. A request that can
/// be repeated gets a response from the next connection. Another one fails, and further requests succeed.
#[tokio::test]
async fn leaves_a_connection_whose_pings_are_not_answered() {
    for (method, first_status) in [("GET", "200"), ("POST", "502")] {
        let backend = Backend::start().await;
        let mut setup = Setup::to(backend.address);
        setup.upstream.protocol = Protocol::Http2;
        setup.upstream.http2_ping =
            Http2Ping { interval: Duration::from_millis(100), timeout: Duration::from_millis(200) };
        let proxy = setup.start().await;
        let mut client = proxy.client().await;
        client.write(GET).await;
        let mut dead = h2::server::handshake(backend.accept().await.0).await.unwrap();
        let (_, mut respond) = within("request", dead.accept()).await.unwrap().unwrap();
        respond.send_response(Response::new(()), true).unwrap();
        let (next, _) = tokio::join!(
            async {
                client.read_head().await;
                client.write(format!("{method} /x HTTP/1.1\r\nHost: a\r\n\r\n")).await;
            },
            within("request", dead.accept())
        );
        let () = next;
        // From here on, no task polls `dead`: it reads and answers nothing.
        let asking = async {
            let head = client.read_head().await;
            assert!(head.starts_with(&format!("HTTP/1.1 {first_status} ")), "{method}: {head}");
            let mut client = proxy.client().await;
            client.write(GET).await;
            assert!(client.read_head().await.starts_with("HTTP/1.1 200 "), "{method}");
        };
        tokio::select! {
            () = asking => {}
            () = answer_all(&backend) => unreachable!(),
        }
        drop(dead);
    }
}

/// Answers all requests on further connections.
async fn answer_all(backend: &Backend) {
    loop {
        let mut connection = h2::server::handshake(backend.accept().await.0).await.unwrap();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            respond.send_response(Response::new(()), true).unwrap();
        }
    }
}
