//! Tests the reuse of upstream connections that the upstream closes.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokengauge::forward::Retry;
use tokengauge_listen::Workers;
use tokengauge_types::event::Direction;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::support::process::Process;
use crate::support::{Backend, Proxy, Setup, lines, settle};

/// Number of requests of each test. What failed depended on timing.
const REQUESTS: usize = 300;

const POST: &str = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
const PUT: &str = "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
const OK: &str = "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nok";

/// Reads one request. Returns `None` if the connection closes before its last byte.
async fn read_request(stream: &mut TcpStream) -> Option<()> {
    let mut request = vec![0; 0];
    while !request.ends_with(b"\r\n\r\nbody") {
        request.push(stream.read_u8().await.ok()?);
    }
    Some(())
}

/// Runs `serve` for each connection. Returns the backend's address.
async fn serve<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream, u64) -> F + Send + Sync + 'static,
) -> Proxy {
    let backend = Backend::start().await;
    let proxy = Proxy::to(backend.address).await;
    tokio::spawn(async move {
        for number in 0.. {
            tokio::spawn(serve(backend.accept().await.0, number));
        }
    });
    proxy
}

/// Sends requests one after the other on one connection, after pauses of 0 to 1 ms. Returns how many succeed.
async fn succeeding(proxy: &Proxy, request: &str) -> usize {
    let mut client = proxy.client().await;
    let mut succeeded = 0;
    for n in 0..REQUESTS {
        sleep(Duration::from_micros(n as u64 * 37 % 1_000)).await;
        client.write(request).await;
        let head = client.read_head().await;
        let length: usize = lines(&head)
            .iter()
            .find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
            })
            .unwrap();
        client.read_exactly(length).await;
        succeeded += usize::from(head.starts_with("HTTP/1.1 200 "));
    }
    succeeded
}

/// Tests a server that announces keep-alive and closes after each response, as llama.cpp does after a stream. The
/// requests are idempotent: the server can close while it has an unread request, and its RST then does not show that it
/// has not read the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_if_the_upstream_closes_after_each_response() {
    let proxy = serve(|mut stream, number| async move {
        read_request(&mut stream).await;
        stream.write_all(OK.as_bytes()).await.unwrap();
        let pause = Duration::from_micros(number * 13 % 400);
        sleep(pause).await;
    })
    .await;
    assert_eq!(succeeding(&proxy, PUT).await, REQUESTS);
}

/// Tests a server that closes idle connections at random instants, before or while the next request arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_if_the_upstream_closes_at_random_instants() {
    let proxy = serve(|mut stream, number| async move {
        let idle = Duration::from_micros(number * 131 % 1_500);
        let mut next = read_request(&mut stream).await;
        while let Some(()) = next {
            stream.write_all(OK.as_bytes()).await.unwrap();
            next = timeout(idle, read_request(&mut stream)).await.unwrap_or_default();
        }
    })
    .await;
    assert_eq!(succeeding(&proxy, PUT).await, REQUESTS);
}

/// Tests a server that closes its connections in order: it sends FIN, and then reads what the proxy had sent before FIN
/// arrived. Only requests that were under way at that moment may fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_post_fails_only_if_the_upstream_had_received_it() {
    let received = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&received);
    let proxy = serve(move |mut stream, number| {
        let received = Arc::clone(&counted);
        async move {
            let idle = Duration::from_micros(number * 131 % 1_500);
            let mut next = read_request(&mut stream).await;
            while let Some(()) = next {
                stream.write_all(OK.as_bytes()).await.unwrap();
                next = timeout(idle, read_request(&mut stream)).await.unwrap_or_default();
            }
            stream.shutdown().await.unwrap();
            let late = timeout(Duration::from_millis(50), stream.read(&mut [0; 1])).await;
            received.fetch_add(usize::from(matches!(late, Ok(Ok(1)))), Ordering::Relaxed);
        }
    })
    .await;
    let failed = REQUESTS - succeeding(&proxy, POST).await;
    settle().await;
    assert_eq!(failed, received.load(Ordering::Relaxed));
}

/// What an upstream does with the second request on a connection.
#[derive(Clone, Copy)]
enum Second {
    /// Closes without reading it, so that the kernel sends RST. The same RST can follow after reading.
    Ignore,
    /// Reads it and closes.
    Read,
}

/// Sends two requests. Returns the status line of the second response, and the events of its exchange.
async fn second(retry: Retry, request: &str, how: Second) -> (String, String) {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.upstream.retry = retry;
    let mut proxy = setup.start().await;
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let (mut client, mut upstream) = proxy.exchange(&backend, request).await;
    upstream.read_exactly(body.len()).await;
    upstream.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    settle().await;
    client.write(head).await;
    client.write("\r\n\r\n").await;
    client.write(body).await;
    match how {
        Second::Ignore => drop(upstream.0.peek(&mut [0]).await),
        Second::Read => {
            upstream.read_head().await;
            upstream.read_exactly(body.len()).await;
        }
    }
    drop(upstream);
    let again = async {
        let mut upstream = backend.accept().await;
        assert_eq!(lines(&upstream.read_head().await)[0], lines(head)[0]);
        assert_eq!(upstream.read_exactly(body.len()).await, body.as_bytes());
        upstream.write(OK).await;
        std::future::pending().await
    };
    let response = tokio::select! {
        response = client.read_head() => response,
        () = again => unreachable!(),
    };
    let words = proxy.words().await;
    (lines(&response)[0].to_owned(), words[1].clone())
}

/// Tests clients on two workers. A worker prefers the connections that it used last, and takes others if there is none.
#[tokio::test]
async fn a_worker_prefers_its_connections_to_those_of_others() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.workers = Workers::start(NonZeroUsize::new(2).unwrap()).unwrap();
    let proxy = setup.start().await;
    // Each connection goes to the worker with fewer connections.
    let (mut one, mut upstream_of_one) = proxy.exchange(&backend, GET).await;
    let (mut two, mut upstream_of_two) = proxy.exchange(&backend, GET).await;
    let (_three, mut four) = (proxy.client().await, proxy.client().await);
    upstream_of_one.write(OK).await;
    one.read_until("ok").await;
    upstream_of_two.write(OK).await;
    two.read_until("ok").await;

    one.write(GET).await;
    upstream_of_one.read_head().await;
    upstream_of_one.write(OK).await;
    one.read_until("ok").await;
    two.write(GET).await;
    upstream_of_two.read_head().await;
    // The fourth client has the same worker as the second one, whose connection is in use.
    four.write(GET).await;
    upstream_of_one.read_head().await;
    upstream_of_one.write(OK).await;
    four.read_until("ok").await;
}

const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
const KEYED: &str =
    "POST /x HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 4\r\n\r\nbody";

#[tokio::test]
async fn repeats_a_request_on_a_new_connection_only_if_that_is_safe() {
    for (retry, request, how, is_repeated) in [
        (Retry::Safe, POST, Second::Ignore, false),
        (Retry::Safe, PUT, Second::Ignore, true),
        (Retry::Safe, KEYED, Second::Ignore, true),
        (Retry::Always, POST, Second::Ignore, true),
        (Retry::Safe, POST, Second::Read, false),
        (Retry::Safe, GET, Second::Read, true),
        (Retry::Safe, KEYED, Second::Read, true),
        (Retry::Always, POST, Second::Read, true),
        (Retry::Never, POST, Second::Ignore, false),
        (Retry::Never, GET, Second::Read, false),
    ] {
        let (status, words) = second(retry, request, how).await;
        let case = format!("{retry:?} {request:?} read: {}", matches!(how, Second::Read));
        let sent = words.matches("RequestHeadSent").count();
        if is_repeated {
            assert_eq!((status.as_str(), sent), ("HTTP/1.1 200 OK", 2), "{case}: {words}");
            assert!(words.contains("Reused") && words.contains("Connected"), "{case}: {words}");
            assert!(words.ends_with("Complete"), "{case}: {words}");
            assert_eq!(words.matches("Arrival(Request)").count(), usize::from(request != GET));
        } else {
            assert_eq!((status.as_str(), sent), ("HTTP/1.1 502 Bad Gateway", 1), "{case}: {words}");
        }
    }
}

/// Tests a request of which the upstream has sent a part of the response.
#[tokio::test]
async fn does_not_repeat_a_request_after_the_first_byte_of_the_response() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    client.write(GET).await;
    upstream.read_head().await;
    upstream.write("HTTP/1.1 200").await;
    drop(upstream);
    assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
    assert!(!backend.has_another().await);
    assert!(proxy.words().await[1].contains("Reused"));
}

/// Tests that a second attempt continues an upload that the first one has begun.
#[tokio::test]
async fn a_second_attempt_sends_the_whole_upload() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    client.write("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nfirst").await;
    upstream.read_until("first").await;
    drop(upstream);
    let mut upstream = backend.accept().await;
    upstream.read_until("first").await;
    client.write("later").await;
    assert_eq!(upstream.read_exactly(5).await, b"later");
    upstream.write(OK).await;
    client.read_until("\r\n\r\nok").await;
    let words = proxy.words().await;
    assert!(words[1].contains("RequestBodySent Head(200)"), "{words:?}");
    assert_eq!(proxy.observed(Direction::Request), b"firstlater", "each byte is observed once");
}

/// Tests the bound of the memory that is kept for a second attempt. Short frames take more memory than their data.
#[tokio::test]
async fn does_not_repeat_a_request_with_a_body_that_takes_more_memory() {
    let long = vec![b'x'; 1024 * 1024 + 1];
    let length = format!("Content-Length: {}", long.len());
    let frames = [b"1\r\nx\r\n".repeat(4 * 1024), b"0\r\n\r\n".to_vec()].concat();
    for (framing, body) in [(length.as_str(), long), ("Transfer-Encoding: chunked", frames)] {
        let (backend, proxy) = Proxy::with_backend().await;
        let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
        upstream.write(OK).await;
        client.read_until("\r\n\r\nok").await;
        client.write(format!("PUT /x HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n")).await;
        let reading = async {
            upstream.read_head().await;
            upstream.read_exactly(body.len()).await;
            drop(upstream);
        };
        tokio::join!(client.write(&body), reading);
        assert!(client.read_head().await.starts_with("HTTP/1.1 502 "), "{framing}");
        assert!(!backend.has_another().await, "{framing}");
    }
}

/// Tests what the program reports about an upstream that closes its connections after each response.
#[tokio::test]
async fn an_upstream_that_closes_connections_is_logged_once_and_counted() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    let mut client = process.client().await;
    for _ in 0..8 {
        client.write(GET).await;
        let mut upstream = backend.accept().await;
        upstream.read_head().await;
        upstream.write(OK).await;
        // The connection is in the pool before the client has the whole response.
        client.read_until("\r\n\r\nok").await;
        drop(upstream);
    }
    let message = "upstream closes idle connections";
    let log = process.logged(&[message, "default"]).await;
    assert_eq!(log.matches(message).count(), 1, "{log}");
    // After three closed connections, no connection is kept.
    assert_eq!(process.count(&["upstream_stale_connections_total"]).await, 3);
    assert_eq!(process.count(&["upstream_retries_total"]).await, 0);
}
