//! Tests which peer is reported as slow: a client that hardly reads, or an upstream that never pauses.
//!
//! Between the tee and a client are the client's socket buffer, the proxy's socket buffer and hyper's buffer. The tee
//! can detect a slow client only if the stream is larger than all three buffers.

use std::net::SocketAddr;
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};

use super::rig::Rig;
use super::stream::{BODY, PATH, until};
use crate::support::{Backend, Raw, Setup, within};

/// Number of events in the stream, 16 MiB in total. The buffers between the tee and the client hold 2.7 MB on loopback.
const EVENTS: usize = 512;
const EVENT: usize = 32 * 1024;

/// Receive buffer in bytes. It results in the smallest window that Linux allows.
const WINDOW: u32 = 4 * 1024;

/// Returns an event with one token and a padding field like OpenAI's, but longer.
fn event() -> String {
    let start = r#"data: {"id":"c","model":"gpt-4o","choices":[{"index":0,"delta":{"content":" a"},"finish_reason":null}],"obfuscation":""#;
    let end = "\"}\n\n";
    let padding = "x".repeat(EVENT - start.len() - end.len());
    format!("{start}{padding}{end}")
}

/// Writes as fast as the proxy reads.
async fn pour(mut upstream: Raw<TcpStream>) {
    let event = event();
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    for _ in 0..EVENTS {
        upstream.write(&chunk).await;
    }
    let last = "data: {\"id\":\"c\",\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let length = last.len();
    upstream.write(format!("{length:x}\r\n{last}\r\n0\r\n\r\n")).await;
    drop(upstream.read_to_end().await);
}

async fn connect(address: SocketAddr) -> Raw<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(WINDOW).unwrap();
    Raw(socket.connect(address).await.unwrap())
}

fn seconds(span: &Span, key: &str) -> f64 {
    let found = span.attributes.iter().find(|it| it.key == key);
    let value = found.and_then(|it| it.value.as_ref()?.value.as_ref());
    match value {
        Some(Value::DoubleValue(seconds)) => *seconds,
        other => panic!("{key}: {other:?}"),
    }
}

/// Returns the sum of the series of `/metrics` that begin with `name` and contain `label`.
fn metric(metrics: &str, name: &str, label: &str) -> f64 {
    let series = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label));
    let values = series.map(|line| line.rsplit_once(' ').unwrap().1);
    values.map(|value| value.parse::<f64>().unwrap()).sum()
}

const STREAM_TIME: &str = "tokengauge_stream_active_time_seconds_total{";

/// Time in seconds for which the client hardly reads. Without this, the stream would take a small part of this time.
const HELD: f64 = 3.0;

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_is_not_reported_as_a_slow_model() {
    let backend = Backend::start().await;
    let rig = Rig::start(Setup::to(backend.address)).await;
    let mut client = connect(rig.proxy.address).await;
    let length = BODY.len();
    client
        .write(format!("POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{BODY}"))
        .await;
    let mut upstream = backend.accept().await;
    upstream.read_until(BODY).await;
    upstream
        .write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    let pouring = tokio::spawn(pour(upstream));
    client.read_head().await;
    // The client reads at most 1 KiB per second, and the proxy's counter measures the time.
    let (mut told, mut next) = (0.0, 0.0);
    within("the backpressure time to increase during the backpressure", async {
        while told < HELD {
            if told >= next {
                client.read_exactly(1024).await;
                next = told + 1.0;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            rig.observer.with_current_state(|_, _| ());
            told = metric(&rig.metrics(), STREAM_TIME, "state=\"blocked\"");
        }
    })
    .await;
    // Afterwards, the client reads the rest of the stream.
    let mut tail = Vec::new();
    within("the end", async {
        while !tail.ends_with(b"0\r\n\r\n") {
            tail.drain(..tail.len().saturating_sub(8));
            tail.reserve(1 << 20);
            assert!(client.0.read_buf(&mut tail).await.unwrap() > 0);
        }
    })
    .await;
    drop(client);
    pouring.await.unwrap();

    let (spans, metrics) = rig.told().await;
    let span = spans.iter().find(|span| span.kind == 3).unwrap();
    let blocked = seconds(span, "tokengauge.client.backpressure.duration");
    let decode = seconds(span, "tokengauge.stage.decode");
    assert!(blocked >= 0.9 * HELD, "backpressure: {blocked} s");
    let slow = decode - blocked;
    assert!(
        slow < blocked / 2.0,
        "decode {decode} s, of which {slow} s without and {blocked} s with backpressure"
    );
    // The next token is later than the stall threshold of the route, but the client causes the delay.
    let stalls = metric(&metrics, "tokengauge_stream_stalls_total{", "");
    assert!(stalls < 1.0, "{stalls} stalls");
    let gaps = metric(&metrics, "tokengauge_inter_chunk_latency_seconds_sum", "");
    assert!(gaps < blocked / 2.0, "{gaps} s of gaps");
    let streaming = metric(&metrics, STREAM_TIME, "state=\"streaming\"");
    let blocked = metric(&metrics, STREAM_TIME, "state=\"blocked\"");
    assert!(streaming < blocked / 2.0, "{streaming} s of streaming, {blocked} s blocked");
}

/// Tests a stream that fits into the buffers between the tee and the client.
///
/// For the tee, such a stream is already delivered. The client reads nothing, but the stream is reported neither as
/// slow nor as blocked.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_fits_the_buffers_is_not_blocked_by_a_client_that_does_not_read() {
    let backend = Backend::start().await;
    let rig = Rig::start(Setup::to(backend.address)).await;
    let mut client = connect(rig.proxy.address).await;
    let length = BODY.len();
    client
        .write(format!("POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{BODY}"))
        .await;
    let mut upstream = backend.accept().await;
    upstream.read_until(BODY).await;
    let body = until("after the last event").unwrap();
    let length = body.len();
    upstream
        .write(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await;
    let (spans, _) = rig.told().await;
    let span = spans.iter().find(|span| span.kind == 3).unwrap();
    // On a busy machine, the connection's task can be late by some milliseconds, which count as backpressure.
    let key = "tokengauge.client.backpressure.duration";
    let is_blocked = span.attributes.iter().any(|it| it.key == key);
    let blocked = if is_blocked { seconds(span, key) } else { 0.0 };
    assert!(blocked < HELD / 10.0, "backpressure: {blocked} s");
    assert!(client.read_until(&body).await.ends_with(&body), "the body is complete");
}
