//! Tests the concurrency limit in the real program.
//!
//! The configuration sets the limit, a reload changes it, and a drain releases the queue.

use std::path::Path;

use crate::support::process::{CALL, DONE, Process, open};
use crate::support::{Backend, Raw, within};
use tokio::net::TcpStream;

fn write(file: &Path, backend: &Backend, admission: &str) {
    let text = format!(
        "version: 1\nshutdown_grace_period: 1h\nupstreams: {{a: {{url: \"http://{}\", pool: {{max_idle_connections: 0}}}}}}\nroutes:\n  - {{upstream: a{admission}}}\n",
        backend.address
    );
    std::fs::write(file, text).unwrap();
}

/// Connects a client and sends a request. Returns when `/streams` shows that the request is queued.
async fn queued(process: &Process) -> Raw<TcpStream> {
    let mut client = process.client().await;
    client.write(format!("GET {CALL} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
    within("a queued exchange", async {
        loop {
            let streams = process.streams().await;
            if streams.iter().any(|stream| stream["phase"] == "queued") {
                return;
            }
        }
    })
    .await;
    client
}

#[tokio::test]
async fn a_reload_admits_and_a_drain_rejects_queued_requests() {
    let backend = Backend::start().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("c.yaml");
    write(&file, &backend, ", concurrency_limit: {max_in_flight: 1, queue_timeout: 10m}");
    let mut process = Process::start(&["--config", file.to_str().unwrap()], &[]).await;
    let (mut first, mut at_first) = open(&process, &backend, CALL).await;
    let mut second = queued(&process).await;

    write(&file, &backend, ", concurrency_limit: {max_in_flight: 2, queue_timeout: 10m}");
    process.signal("HUP");
    let mut at_second = backend.accept().await;
    at_second.read_head().await;
    at_second.write("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert!(second.read_head().await.starts_with("HTTP/1.1 204 "));

    write(&file, &backend, ", concurrency_limit: {max_in_flight: 1, queue_timeout: 10m}");
    process.signal("HUP");
    within("the second reload", async {
        while process.log().matches("configuration reloaded").count() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut third = queued(&process).await;
    process.signal("TERM");
    assert!(third.read_head().await.starts_with("HTTP/1.1 503 "));
    at_first.write(DONE).await;
    assert_eq!(first.read_to_end().await, DONE.as_bytes(), "the running stream may finish");
    assert_eq!(process.ended().await.code(), Some(0));
}
