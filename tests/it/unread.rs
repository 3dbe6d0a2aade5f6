//! Tests the memory of the real program while clients do not read responses, or upstreams do not read uploads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use tokio::net::TcpStream;

use crate::bounds::{STREAM_HEAD, call, pour, settled};
use crate::support::process::Process;
use crate::support::{Backend, Raw};

/// Starts the program before an upstream with this version of HTTP. `route` is added to the route.
pub async fn before_version(backend: &Backend, version: u8, route: &str) -> Process {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "version: 1\nupstreams: {{a: {{url: \"http://{}\", protocol: http{version}}}}}\n\
         limits: {{observer_memory: 1MiB}}\nroutes: [{{upstream: a{route}}}]\n",
        backend.address
    );
    std::fs::write(file.path(), text).unwrap();
    Process::start(&["--config", file.path().to_str().unwrap()], &[]).await
}

/// Data in pieces that are as large as an HTTP/2 frame.
fn piece() -> Bytes {
    Bytes::from_static(&[b'x'; 16 << 10])
}

/// Sends data as fast as the flow control of HTTP/2 allows. Counts the bytes.
async fn pour_http2(mut stream: h2::SendStream<Bytes>, taken: Arc<AtomicU64>) {
    loop {
        stream.reserve_capacity(piece().len());
        let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
            return;
        };
        let part = piece().slice(..room.min(piece().len()));
        taken.fetch_add(part.len() as u64, Ordering::Relaxed);
        if stream.send_data(part, false).is_err() {
            return;
        }
    }
}

/// Accepts connections of the given version of HTTP. Answers each request with an endless response if `responds`, and
/// otherwise does not read it. `taken` counts the bytes that the proxy has accepted.
async fn endless_upstream(backend: Backend, version: u8, responds: bool, taken: Arc<AtomicU64>) {
    let head = format!("{STREAM_HEAD}Content-Length: {}\r\n\r\n", 1_u64 << 40);
    loop {
        let mut stream = backend.accept().await;
        let taken = Arc::clone(&taken);
        if version == 2 {
            tokio::spawn(endless_http2_upstream(stream, responds, taken));
        } else if responds {
            stream.read_until("\"Hello\"}]}").await;
            stream.write(&head).await;
            tokio::spawn(pour(stream, piece().to_vec(), 1 << 26, taken));
        } else {
            tokio::spawn(async move {
                stream.read_head().await;
                std::future::pending::<()>().await;
            });
        }
    }
}

async fn endless_http2_upstream(stream: Raw<TcpStream>, responds: bool, taken: Arc<AtomicU64>) {
    let mut connection = h2::server::handshake(stream.0).await.unwrap();
    let mut unread = Vec::new();
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        unread.push(request);
        if responds {
            let body = respond.send_response(Response::new(()), false).unwrap();
            tokio::spawn(pour_http2(body, Arc::clone(&taken)));
        }
    }
}

/// Opens a connection of a client that sends one request. The client does not read the response. It uploads as much as
/// the proxy accepts if `uploads`.
async fn busy_client(process: &Process, version: u8, uploads: bool, taken: &Arc<AtomicU64>) {
    let mut client = process.client().await;
    if version == 1 {
        if uploads {
            let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1099511627776\r\n\r\n";
            client.write(head).await;
            tokio::spawn(pour(client, piece().to_vec(), 1 << 26, Arc::clone(taken)));
        } else {
            client.write(call("gpt-4o", true)).await;
            tokio::spawn(async move {
                let _client = client;
                std::future::pending::<()>().await;
            });
        }
        return;
    }
    let (sender, connection) = h2::client::handshake(client.0).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://a/v1/chat/completions").body(()).unwrap();
    let mut sender = sender.ready().await.unwrap();
    let (response, mut body) = sender.send_request(request, false).unwrap();
    if uploads {
        tokio::spawn(pour_http2(body, Arc::clone(taken)));
    } else {
        let call = call("gpt-4o", true);
        let (_, text) = call.split_once("\r\n\r\n").unwrap();
        body.send_data(Bytes::from(text.to_owned()), true).unwrap();
    }
    // Holds the response, whose window stays full.
    tokio::spawn(async move {
        let _response = response.await;
        std::future::pending::<()>().await;
    });
}

/// Returns the peak memory per client, in KiB, of clients that do not read or upstreams that do not read.
async fn memory_per_client(client: u8, upstream: u8, uploads: bool, route: &str) -> u64 {
    const CLIENTS: u64 = 100;
    let backend = Backend::start().await;
    let process = before_version(&backend, upstream, route).await;
    let taken = Arc::<AtomicU64>::default();
    tokio::spawn(endless_upstream(backend, upstream, !uploads, Arc::clone(&taken)));
    // One-time allocations do not count.
    for _ in 0..3 {
        busy_client(&process, client, uploads, &taken).await;
    }
    settled(&process, || taken.load(Ordering::Relaxed)).await;
    let before = process.peak_memory();
    for _ in 0..CLIENTS {
        busy_client(&process, client, uploads, &taken).await;
    }
    settled(&process, || taken.load(Ordering::Relaxed)).await;
    assert!(taken.load(Ordering::Relaxed) > CLIENTS * 32 * 1024, "the buffers were filled");
    (process.peak_memory() - before) / 1024 / CLIENTS
}

/// Returns the part of the budget for HTTP/2 windows that each of 100 streams has, in KiB. The window of a stream follows
/// the round trip, which can be long on a busy machine. The budget limits all windows together to 32 MiB.
const fn window_share(version: u8) -> u64 {
    if version == 2 { (32 << 10) / 100 } else { 0 }
}

/// A client that does not read its response costs the proxy small buffers, whichever versions of HTTP both sides use.
/// The rest waits in the kernel and at the upstream.
#[tokio::test(flavor = "multi_thread")]
async fn many_clients_that_do_not_read() {
    for (client, upstream) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let each = memory_per_client(client, upstream, false, "").await;
        let most = 160 + window_share(upstream);
        assert!(each < most, "HTTP/{client} client, HTTP/{upstream} upstream: {each} KiB");
    }
}

/// An upload that its upstream does not read costs the proxy small buffers as well.
#[tokio::test(flavor = "multi_thread")]
async fn many_uploads_that_upstreams_do_not_read() {
    for (client, upstream) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let each = memory_per_client(client, upstream, true, "").await;
        let most = 240 + window_share(client);
        assert!(each < most, "HTTP/{client} client, HTTP/{upstream} upstream: {each} KiB");
    }
}

/// A queued upload costs what is read ahead, and the buffers of its connection.
#[tokio::test(flavor = "multi_thread")]
async fn many_uploads_that_wait_in_the_queue() {
    let route = ", concurrency_limit: {max_in_flight: 1, max_queue: 1000, queue_timeout: 10m}";
    for client in [1, 2] {
        let each = memory_per_client(client, 1, true, route).await;
        assert!(each < 200 + window_share(client), "HTTP/{client} client: {each} KiB");
    }
}
