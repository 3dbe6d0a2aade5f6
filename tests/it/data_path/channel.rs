//! Tests the observation channel under pressure and at shutdown of the proxy.

use std::time::Duration;

use tokengauge_types::event::{Direction, ObserverEvent};

use crate::support::{Backend, Proxy, Setup, within};

const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn forwards_bytes_beyond_the_budget_and_reports_them_as_a_gap() {
    const LEN: usize = 1024 * 1024;
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.tee.shards = 1;
    setup.tee.budget_bytes = 256 * 1024;
    let mut proxy = setup.start().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    let body = vec![b'x'; LEN];
    upstream.write(format!("HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n")).await;
    client.read_head().await;
    let (_, received) = tokio::join!(upstream.write(&body), client.read_exactly(LEN));
    assert!(received == body, "the stream is complete");
    let words = proxy.words().await;
    let gaps = words[0].split("Gap(Response, ").skip(1);
    let gap: usize = gaps.map(|gap| gap.split(')').next().unwrap().parse::<usize>().unwrap()).sum();
    let seen = proxy.observed(Direction::Response).len();
    assert!(seen > 0 && seen <= 128 * 1024, "{seen}");
    assert_eq!(seen + gap, LEN, "the gap has the number of unobserved bytes: {words:?}");
    assert!(words[0].ends_with("Complete"), "events are never lost: {words:?}");
    assert_eq!(proxy.channel.lost().bytes, gap as u64);
}

#[tokio::test]
async fn an_exchange_without_room_for_its_events_is_not_observed_at_all() {
    let backend = Backend::start().await;
    let mut setup = Setup::to(backend.address);
    setup.tee.shards = 1;
    setup.tee.max_requests = 0;
    let mut proxy = setup.start().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    assert_eq!(proxy.channel.open_exchanges(), 1);
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    client.read_until("\r\n\r\nok").await;
    assert_eq!(proxy.words().await, Vec::<String>::new());
    assert_eq!(proxy.channel.lost().exchanges, 1);
    assert_eq!(proxy.channel.lost().bytes, 2);
}

#[tokio::test]
async fn a_drain_finishes_streams_and_accepts_no_new_ones() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let mut idle = proxy.client().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no").await;
    client.read_until("\r\n\r\no").await;
    let connections = proxy.stop().await;
    assert_eq!(idle.read_to_end().await, b"", "an idle connection is closed at once");
    assert!(tokio::net::TcpStream::connect(proxy.address).await.is_err());
    upstream.write("k").await;
    assert_eq!(client.read_to_end().await, b"k", "the stream finishes, then its connection closes");
    assert_eq!(connections.drain(Duration::from_secs(30)).await, 0);
    let words = proxy.words().await;
    assert!(words[0].ends_with("Complete"), "{words:?}");
}

#[tokio::test]
async fn aborts_and_records_exchanges_that_outlast_the_drain() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    upstream.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no").await;
    client.read_until("\r\n\r\no").await;
    let connections = proxy.stop().await;
    assert_eq!(connections.drain(Duration::ZERO).await, 1);
    proxy.forwarder.abort();
    within("abort", connections.abort()).await;
    assert_eq!(client.read_to_end().await, b"");
    assert_eq!(upstream.read_to_end().await, b"");
    let words = proxy.words().await;
    assert!(words[0].ends_with("Arrival(Response) End(Drained)"), "{words:?}");
}

/// Tests that 2,000 chunks in one shard stay in order, regardless of when the observer drains the shard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_an_exchange_stay_in_order_while_drained() {
    let (backend, mut proxy) = Proxy::with_backend().await;
    let (mut client, mut upstream) = proxy.exchange(&backend, GET).await;
    let writing = tokio::spawn(async move {
        upstream.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        for n in 0..2_000 {
            upstream.write(format!("5\r\n{n:05}\r\n")).await;
        }
        upstream.write("0\r\n\r\n").await;
    });
    let reading = tokio::spawn(async move { client.read_until("\r\n0\r\n\r\n").await });
    while proxy.channel.open_exchanges() > 0 {
        proxy.drain();
        tokio::task::yield_now().await;
    }
    writing.await.unwrap();
    reading.await.unwrap();
    let words = proxy.words().await;
    assert_eq!(words.len(), 1);
    assert!(words[0].starts_with("Open ") && words[0].ends_with(" Complete"));
    let expected: String = (0..2_000).map(|n| format!("{n:05}")).collect();
    assert_eq!(String::from_utf8(proxy.observed(Direction::Response)).unwrap(), expected);
    assert_eq!(proxy.said(|word| matches!(word, ObserverEvent::End(_))), 1);
}
