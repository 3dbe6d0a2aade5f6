//! Tests kernel statistics of connections. The tests need a Linux kernel that provides these statistics.

use crate::support::process::{CALL, CHUNK, DONE, Process, open};
use crate::support::{Backend, within};

async fn samples(process: &Process, side: &str) -> u64 {
    let side = format!("peer=\"{side}\"");
    process.count(&["tokengauge_network_rtt_seconds_count", &side]).await
}

async fn connecting(process: &Process, stage: &str) -> u64 {
    let stage = format!("connect_stage=\"{stage}\"");
    process.count(&["tokengauge_connect_stage_duration_seconds_count", &stage]).await
}

/// Waits until `side` has this number of samples. The observer records them at the end of each exchange.
async fn until_samples(process: &Process, side: &str, number: u64) {
    within("the samples", async { while samples(process, side).await < number {} }).await;
    assert_eq!(samples(process, side).await, number, "{side}");
}

#[tokio::test]
async fn each_exchange_reports_both_connections_and_connecting_is_reported_once() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    let (mut client, mut upstream) = open(&process, &backend, CALL).await;
    upstream.write(DONE).await;
    client.read_until(DONE).await;
    for side in ["client", "upstream"] {
        until_samples(&process, side, 1).await;
    }
    let told = |stage: &'static str| connecting(&process, stage);
    assert_eq!(told("tcp").await, 1);
    // The upstream is an IP address without TLS, and no other request competes for a connection.
    assert_eq!([told("wait").await, told("dns").await, told("tls").await], [0; 3]);

    let body = "{\"model\":\"gpt-4o\",\"stream\":true}";
    client
        .write(format!(
            "POST {CALL} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    upstream.read_until(body).await;
    let length = CHUNK.len() + DONE.len();
    upstream
        .write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n{CHUNK}{DONE}"
        ))
        .await;
    client.read_until(DONE).await;
    until_samples(&process, "upstream", 2).await;
    assert_eq!(told("tcp").await, 1, "the connection was reused");
}

#[tokio::test]
async fn a_reset_client_connection_keeps_its_earlier_values() {
    let backend = Backend::start().await;
    let process = Process::before(backend.address).await;
    let (client, _upstream) = open(&process, &backend, CALL).await;
    // Reading `/streams` triggers a sweep of the observer, in which it reads the kernel statistics of active exchanges.
    assert_eq!(process.streams().await.len(), 1);
    client.0.set_zero_linger().unwrap();
    drop(client);
    until_samples(&process, "client", 1).await;
}

#[tokio::test]
async fn a_unix_socket_has_no_round_trip_time() {
    let backend = Backend::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let upstream = format!("http://{}", backend.address);
    let listen = format!("unix:{}", path.display());
    let process = Process::start(&["--listen", &listen, "--upstream", &upstream], &[]).await;
    let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
    let mut client = crate::support::Raw(stream);
    client.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let mut upstream = backend.accept().await;
    upstream.read_head().await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    client.read_until("ok").await;
    until_samples(&process, "upstream", 1).await;
    assert_eq!(samples(&process, "client").await, 0);
    let side = "tokengauge_network_retransmits_total";
    assert_eq!(process.count(&[side, "peer=\"client\""]).await, 0);
}
