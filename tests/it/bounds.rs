//! Tests the real program with hostile and broken clients and upstreams.
//!
//! Bytes must keep flowing, memory must stay bounded, and a counter must record each loss.
//!
//! Memory is the growth of the peak resident size since the start of the test. Each limit leaves room for overhead of
//! the allocator and for buffers that may fill, and is much smaller than the number of bytes sent. The tests of `label`
//! pass a million distinct values directly to the cardinality limiter. The tests here use as many values as fit into a
//! few seconds.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use tokengauge_types::clock;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use crate::support::process::{DONE, PROGRAM, Process};
use crate::support::{Backend, Raw, settle, within};
use crate::unread::before_version;

const MIB: u64 = 1 << 20;

pub const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";

/// A chat event with one word.
const CHUNK: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"gpt-4o\",\
    \"choices\":[{\"index\":0,\"delta\":{\"content\":\" Wärme\"},\"finish_reason\":null}]}\n\n";

/// Returns a line of 1 KiB. 100,000 such lines have 100 MB.
fn line() -> Vec<u8> {
    let mut line = b"X-Filler: ".to_vec();
    line.resize(1022, b'x');
    line.extend(b"\r\n");
    line
}

/// Returns a chat call for `model`.
pub fn call(model: &str, stream: bool) -> String {
    let body = format!(
        "{{\"model\":\"{model}\",\"stream\":{stream},\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}"
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Starts a request. Returns the client's connection, and the upstream's connection after the upstream has read the
/// request.
async fn begun(process: &Process, backend: &Backend) -> (Raw<TcpStream>, Raw<TcpStream>) {
    let mut client = process.client().await;
    client.write(call("gpt-4o", true)).await;
    let mut upstream = backend.accept().await;
    upstream.read_until("\"Hello\"}]}").await;
    (client, upstream)
}

/// Waits until the observer is less than a second behind.
async fn observed(process: &Process) {
    let up_to_date = async {
        while !process.page("/streams").await.0.to_ascii_lowercase().contains("\r\nage: 0\r\n") {}
    };
    within("the observer to catch up", up_to_date).await;
}

/// Performs one small exchange first, so that one-time allocations do not count.
async fn warm(process: &Process, backend: &Backend) {
    let (mut client, mut upstream) = begun(process, backend).await;
    let body = CHUNK.repeat(10);
    let length = body.len();
    upstream.write(format!("{STREAM_HEAD}Content-Length: {length}\r\n\r\n{body}")).await;
    client.read_head().await;
    assert_eq!(client.read_exactly(length).await, body.as_bytes());
    process.page("/metrics").await;
}

/// Writes `piece` this number of times. Returns the number of accepted bytes.
pub async fn pour(mut upstream: Raw<TcpStream>, piece: Vec<u8>, times: u64, taken: Arc<AtomicU64>) {
    for _ in 0..times {
        upstream.write(&piece).await;
        taken.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
}

/// Reads exactly the bytes that [`pour`] writes.
async fn drink(client: &mut Raw<TcpStream>, piece: &[u8], times: u64) {
    for _ in 0..times {
        assert!(client.read_exactly(piece.len()).await == piece);
    }
}

async fn flows(process: &Process, backend: &Backend, piece: &[u8], times: u64) {
    let (mut client, mut upstream) = begun(process, backend).await;
    let length = piece.len() as u64 * times;
    upstream.write(format!("{STREAM_HEAD}Content-Length: {length}\r\n\r\n")).await;
    client.read_head().await;
    let pouring = tokio::spawn(pour(upstream, piece.to_vec(), times, Arc::default()));
    drink(&mut client, piece, times).await;
    pouring.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_without_a_line_end() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    warm(&process, &backend).await;
    let before = process.peak_memory();
    let piece = [b"data: ".as_slice(), &[b'x'; 250]].concat().repeat(1024);
    flows(&process, &backend, &piece, 4 * 1024).await;
    assert_eq!(process.count(&["parse_errors", "\"oversize\""]).await, 1);
    let grown = process.peak_memory() - before;
    assert!(grown < 64 * MIB, "{grown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_request_header() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    warm(&process, &backend).await;
    let before = process.peak_memory();
    let mut client = process.client().await;
    client.write("GET / HTTP/1.1\r\nHost: a\r\n").await;
    for _ in 0..100_000 {
        // After it has refused the request, the proxy stops reading.
        if client.0.write_all(&line()).await.is_err() {
            break;
        }
    }
    client.read_to_end().await;
    assert!(!backend.has_another().await, "the request was not forwarded");
    assert_eq!(process.count(&["requests_invalid"]).await, 1);
    let grown = process.peak_memory() - before;
    assert!(grown < 16 * MIB, "{grown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_response_header() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    warm(&process, &backend).await;
    let before = process.peak_memory();
    let (mut client, mut upstream) = begun(&process, &backend).await;
    upstream.write(STREAM_HEAD).await;
    for _ in 0..100_000 {
        if upstream.0.write_all(&line()).await.is_err() {
            break;
        }
    }
    assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
    let failed = ["requests_finished", "\"502\"", "error_source=\"upstream\""];
    within("the failure to be counted", async { while process.count(&failed).await == 0 {} }).await;
    let grown = process.peak_memory() - before;
    assert!(grown < 16 * MIB, "{grown}");
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[high, middle, low, kind, flags, 0, 0, 0, stream], payload].concat()
}

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;

/// Encodes a header without compression (RFC 7541 §6.2.2), with a name and a value shorter than 127 bytes.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// Writes `start` as a block of headers that never ends: further lines follow in continuation frames of 1 KiB. Stops
/// when the peer closes the connection.
async fn endless_http2_headers(stream: &mut Raw<TcpStream>, start: &[(&str, &str)]) {
    let start: Vec<u8> = start.iter().flat_map(|(name, value)| literal(name, value)).collect();
    stream.write(frame(HEADERS, 0, 1, &start)).await;
    let piece = literal("x-filler", &"x".repeat(118)).repeat(8);
    for _ in 0..100_000 {
        if stream.0.write_all(&frame(CONTINUATION, 0, 1, &piece)).await.is_err() {
            return;
        }
    }
    panic!("100 MB of headers were accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_http2_request_header() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    warm(&process, &backend).await;
    let before = process.peak_memory();
    let mut client = process.client().await;
    client.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.write(frame(SETTINGS, 0, 0, &[])).await;
    let start = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/v1")];
    endless_http2_headers(&mut client, &start).await;
    assert!(!backend.has_another().await, "the request was not forwarded");
    let grown = process.peak_memory() - before;
    assert!(grown < 16 * MIB, "{grown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_http2_response_header() {
    let backend = Backend::start().await;
    let process = before_version(&backend, 2, "").await;
    let mut client = process.client().await;
    client.write(call("gpt-4o", true)).await;
    let mut upstream = backend.accept().await;
    upstream.read_exactly("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()).await;
    upstream.write(frame(SETTINGS, 0, 0, &[])).await;
    // The proxy opens the stream before it knows the settings of the upstream.
    upstream.read_until("\"Hello\"}]}").await;
    let before = process.peak_memory();
    endless_http2_headers(&mut upstream, &[(":status", "200")]).await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
    let failed = ["requests_finished", "\"502\"", "error_source=\"upstream\""];
    within("the failure to be counted", async { while process.count(&failed).await == 0 {} }).await;
    let grown = process.peak_memory() - before;
    assert!(grown < 16 * MIB, "{grown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_that_falls_behind() {
    let backend = Backend::start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "version: 1\nupstreams: {{a: {{url: \"http://{}\"}}}}\nlimits: {{observer_memory: 1MiB}}\n",
        backend.address
    );
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap();
    let process = Process::start(&["--config", path], &[]).await;
    warm(&process, &backend).await;
    assert_eq!(process.count(&["observer_dropped_bytes"]).await, 0);
    let before = process.peak_memory();
    let piece = CHUNK.repeat(1024);
    flows(&process, &backend, piece.as_bytes(), 512).await;
    assert!(process.count(&["observer_dropped_bytes"]).await > 0);
    assert_eq!(process.count(&["observer_unobserved_requests"]).await, 1);
    assert_eq!(process.count(&["parse_errors", "\"gap\""]).await, 1);
    let grown = process.peak_memory() - before;
    assert!(grown < 16 * MIB, "{grown}");
    let lost = process.count(&["observer_dropped_bytes"]).await;
    warm(&process, &backend).await;
    assert_eq!(
        process.count(&["observer_dropped_bytes"]).await,
        lost,
        "the observer has caught up"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn half_frames_of_many_streams() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    warm(&process, &backend).await;
    let before = process.peak_memory();
    let half = [b"data: ".as_slice(), &[b'x'; 1_000_000]].concat();
    let mut open = Vec::new();
    for _ in 0..200 {
        let (mut client, mut upstream) = begun(&process, &backend).await;
        upstream.write(format!("{STREAM_HEAD}Content-Length: 2000000\r\n\r\n")).await;
        client.read_head().await;
        // In small pieces, so that the buffers of the connections stay small.
        for piece in half.chunks(16 << 10) {
            upstream.write(piece).await;
            assert!(client.read_exactly(piece.len()).await == piece);
        }
        open.push((client, upstream));
    }
    assert!(process.count(&["observer_unobserved"]).await > 100);
    let held = process.count(&["self_observer_memory_bytes"]).await;
    assert!(held > 40_000_000 && held <= 48 * MIB, "{held}");
    let grown = process.peak_memory() - before;
    assert!(grown < 96 * MIB, "{grown}");
    drop(open);
    let emptied = async { while process.count(&["self_observer_memory_bytes"]).await > 0 {} };
    within("the memory to be released", emptied).await;
    assert!(process.count(&["parse_errors", "\"budget\""]).await > 100);
}

/// Returns a response whose body of a few kilobytes decompresses to almost 4 MiB of text.
fn bomb() -> Vec<u8> {
    let text = "word and ".repeat(460_000);
    let body = format!("{{\"choices\":[{{\"message\":{{\"content\":\"{text}\"}}}}]}}");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body.as_bytes()).unwrap();
    let body = encoder.finish().unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn decompression_bombs_delay_neither_pages_nor_the_shutdown() {
    let backend = Backend::start().await;
    let mut process = Process::before(backend.address).await;
    warm(&process, &backend).await;
    let bomb = bomb();
    let (mut client, mut upstream) = begun(&process, &backend).await;
    for number in 0..300 {
        if number > 0 {
            client.write(call("gpt-4o", false)).await;
            upstream.read_until("\"Hello\"}]}").await;
        }
        upstream.write(&bomb).await;
        assert!(client.read_exactly(bomb.len()).await == bomb, "the response is forwarded");
    }
    for path in ["/metrics", "/streams", "/stats", "/slo", "/drift"] {
        let started = clock::now();
        let (head, _) = process.page(path).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.to_ascii_lowercase().contains("\r\nage: "), "{head}");
        let took = clock::now().since(started);
        assert!(took < Duration::from_secs(5), "{path}: {took:?}");
    }
    let counted = async { while process.count(&["observer_unobserved"]).await == 0 {} };
    within("the bombs to be counted", counted).await;
    let started = clock::now();
    process.signal("TERM");
    process.ended().await;
    let took = clock::now().since(started);
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// Waits until the counter of backpressure time has grown by 0.1 s since `before`. Returns its new value.
async fn more_blocked(process: &Process, before: f64) -> f64 {
    within("the counter to move", async {
        let mut now = before;
        while now < before + 0.1 {
            now = process.seconds(&["stream_active_time", "\"blocked\""]).await;
        }
        now
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_single_bytes_slowly() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    warm(&process, &backend).await;
    let before = process.peak_memory();
    let (mut client, mut upstream) = begun(&process, &backend).await;
    let piece = CHUNK.repeat(1024).into_bytes();
    let times = 2048;
    let length = piece.len() as u64 * times;
    upstream.write(format!("{STREAM_HEAD}Content-Length: {length}\r\n\r\n")).await;
    client.read_head().await;
    let taken = Arc::<AtomicU64>::default();
    let pouring = tokio::spawn(pour(upstream, piece.clone(), times, Arc::clone(&taken)));
    let mut read = Vec::new();
    let mut blocked = 0.0;
    for _ in 0..5 {
        read.extend(client.read_exactly(1).await);
        blocked = more_blocked(&process, blocked).await;
    }
    // The blocked stream must not delay another stream.
    flows(&process, &backend, CHUNK.as_bytes(), 100).await;
    assert!(taken.load(Ordering::Relaxed) < length / 2, "backpressure reaches the upstream");
    let grown = process.peak_memory() - before;
    assert!(grown < 64 * MIB, "{grown}");
    read.extend(client.read_exactly(piece.len() - read.len()).await);
    assert!(read == piece);
    drink(&mut client, &piece, times - 1).await;
    pouring.await.unwrap();
}

/// Starts an upstream that responds to every call with a small completion of the requested model.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            tokio::spawn(answer_all(Raw(stream)));
        }
    });
    address
}

async fn answer_all(mut upstream: Raw<TcpStream>) {
    while upstream.next_head().await.is_some() {
        let body = upstream.read_until("\"Hello\"}]}").await;
        let model = body.split('"').nth(3).unwrap();
        let answer = format!(
            "{{\"id\":\"c\",\"object\":\"chat.completion\",\"model\":\"{model}\",\"choices\":[{{\"index\":0,\
             \"message\":{{\"role\":\"assistant\",\"content\":\"Hi\"}},\"finish_reason\":\"stop\"}}]}}"
        );
        let length = answer.len();
        upstream
            .write(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{answer}"
            ))
            .await;
    }
}

/// Calls the models numbered from `from` up to, but not including, `to` over one connection.
async fn call_models(client: &mut Raw<TcpStream>, from: u64, to: u64) {
    for number in from..to {
        client.write(call(&format!("model-{number}"), false)).await;
        client.read_head().await;
        client.read_until("\"stop\"}]}").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlimited_number_of_models() {
    let process = Process::before(echo().await).await;
    let mut client = process.client().await;
    call_models(&mut client, 0, 2_000).await;
    let lines = process.page("/metrics").await.1.lines().count();
    let before = process.peak_memory();
    call_models(&mut client, 2_000, 10_000).await;
    within("all requests are observed", async {
        while process.count(&["requests_finished"]).await < 10_000 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(process.count(&["label_overflow", "\"model\""]).await >= 9_900);
    let now = process.page("/metrics").await.1.lines().count();
    assert!(now < lines + lines / 20, "{lines} became {now}");
    assert_eq!(process.count(&["requests_finished"]).await, 10_000);
    let grown = process.peak_memory() - before;
    assert!(grown < 16 * MIB, "{grown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tenants_of_many_models() {
    let backend = Backend::start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "upstreams: {{a: {{url: \"http://{}\"}}}}\nidentity: {{tenant: {{headers: [x-tenant]}}}}\n",
        backend.address
    );
    std::fs::write(file.path(), text).unwrap();
    let process = Process::start(&["--config", file.path().to_str().unwrap()], &[]).await;
    let (mut client, mut upstream) = begun(&process, &backend).await;
    let length = CHUNK.len() + DONE.len();
    let response = format!("{STREAM_HEAD}Content-Length: {length}\r\n\r\n{CHUNK}{DONE}");
    upstream.write(&response).await;
    client.read_until(DONE).await;
    process.page("/metrics").await;
    let before = process.peak_memory();
    for tenant in 0..100 {
        for model in 0..20 {
            let call = call(&format!("model-{model}"), true);
            let head = format!("Host: a\r\nX-Tenant: tenant-{tenant}\r\n");
            client.write(call.replacen("Host: a\r\n", &head, 1)).await;
            upstream.read_until("\"Hello\"}]}").await;
            upstream.write(&response).await;
            client.read_until(DONE).await;
        }
    }
    observed(&process).await;
    let page = process.page("/metrics").await.1;
    let finished = |label: &str| {
        let finished = "tokengauge_requests_finished_total{";
        let lines = page.lines().filter(|line| line.starts_with(finished) && line.contains(label));
        // The observer of a development build can be slower than the requests. It then drops bodies that are too old,
        // and the model of their calls is unknown.
        lines.filter(|line| line.contains("model=\"model-")).collect::<Vec<_>>()
    };
    let folded = finished("tokengauge_tenant=\"other\"");
    assert_eq!(folded.len(), 20, "tenants are folded, models are not: {folded:#?}");
    assert_eq!(finished("tokengauge_tenant=\"tenant-0\"").len(), 20);
    assert!(page.len() < 128 << 20, "{}", page.len());
    let grown = process.peak_memory() - before;
    assert!(grown < 96 * MIB, "{grown}");
}

#[tokio::test]
async fn uses_all_allowed_descriptors() {
    // Container runtimes start a process in this way, with `exec` in a shell.
    let line = "ulimit -S -n 64 && exec \"$0\" run --listen 127.0.0.1:0 --admin 127.0.0.1:0 --upstream http://127.0.0.1:9";
    let mut child = Command::new("/bin/sh")
        .args(["-c", line, PROGRAM])
        .env_clear()
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap();
    let raised = async {
        loop {
            let text = of("limits");
            let mut lines = text.lines();
            let files = lines.find_map(|line| line.strip_prefix("Max open files"));
            let [soft, hard] = [0, 1].map(|at| files.unwrap().split_whitespace().nth(at));
            // These limits now belong to the program, because it has replaced the shell.
            if of("comm").trim() == "tokengauge" && soft == hard {
                return;
            }
            settle().await;
        }
    };
    within("the descriptor limit to be raised", raised).await;
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Waits until a number no longer grows while the proxy answers many requests.
pub async fn settled(process: &Process, number: impl Fn() -> u64) {
    let mut last = None;
    while last != Some(number()) {
        last = Some(number());
        for _ in 0..50 {
            process.page("/livez").await;
        }
    }
}

/// A queued request costs no more memory if its body arrives in the smallest possible pieces.
#[tokio::test(flavor = "multi_thread")]
async fn many_queued_requests_in_chunks_of_one_byte() {
    const QUEUED: u64 = 40;
    const LENGTH: usize = 60_000;
    let backend = Backend::start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "upstreams: {{a: {{url: \"http://{}\"}}}}\nlimits: {{observer_memory: 1MiB}}\nroutes: [{{upstream: a, \
         concurrency_limit: {{max_in_flight: 1, max_queue: 100, queue_timeout: 10m}}}}]\n",
        backend.address
    );
    std::fs::write(file.path(), text).unwrap();
    let process = Process::start(&["--config", file.path().to_str().unwrap()], &[]).await;
    warm(&process, &backend).await;
    let (mut first, mut upstream) = begun(&process, &backend).await;
    let before = process.peak_memory();
    let sent: String = (0..LENGTH).map(|number| (number % 10).to_string()).collect();
    let body: String = sent.chars().map(|digit| format!("1\r\n{digit}\r\n")).collect();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut queued = Vec::new();
    for _ in 0..QUEUED {
        let mut client = process.client().await;
        client.write(format!("{head}{body}0\r\n\r\n")).await;
        queued.push(client);
    }
    settled(&process, || process.peak_memory() / MIB).await;
    let grown = process.peak_memory() - before;
    assert!(grown < QUEUED * MIB / 2, "{grown}");

    upstream.write(format!("{STREAM_HEAD}Content-Length: 0\r\n\r\n")).await;
    first.read_head().await;
    upstream.read_head().await;
    let mut arrived = Vec::new();
    while arrived.len() < LENGTH {
        let length = upstream.read_until("\r\n").await;
        let length = usize::from_str_radix(length.trim_end(), 16).unwrap();
        arrived.extend(upstream.read_exactly(length).await);
        upstream.read_exactly(2).await;
    }
    assert!(arrived == sent.as_bytes(), "all bytes in order");
}
